//! Input that arrives in pieces, for tests of decoders.
//!
//! Owns the division into pieces. Must not depend on any protocol.

use crate::engine::Fingerprints;
use crate::protocol::beanstalk::Extensions;
use crate::protocol::DecodeLimits;

pub const LIMITS: DecodeLimits = DecodeLimits {
    max_job_size: 10,
    room: 100_000,
    max_packet: 50_000,
    fingerprints: Fingerprints::new(1),
    extensions: Extensions::ALL,
};

/// Passes a stream to `next` in pieces of `step` bytes, and returns all results. Bytes that `next` does not remove are
/// passed again with the next piece.
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
