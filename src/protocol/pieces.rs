//! For tests of decoders: streams that arrive in pieces.
//!
//! Owns the cutting. Must not know any protocol.

use super::beanstalk::Extensions;
use super::DecodeLimits;
use crate::engine::Fingerprints;

pub const LIMITS: DecodeLimits = DecodeLimits {
    max_job_size: 10,
    room: 100_000,
    max_packet: 50_000,
    fingerprints: Fingerprints::new(1),
    extensions: Extensions::ALL,
};

/// What `next` takes out of a stream that is cut into pieces of `step` bytes; what it leaves is offered again.
pub fn in_pieces(stream: &[u8], step: usize, mut next: impl FnMut(&mut &[u8]) -> Option<String>) -> Vec<String> {
    let (mut rest, mut out) = (Vec::new(), Vec::new());
    for piece in stream.chunks(step) {
        rest.extend_from_slice(piece);
        let mut input = rest.as_slice();
        while let Some(found) = next(&mut input) {
            out.push(found);
        }
        rest = input.to_vec();
    }
    out
}
