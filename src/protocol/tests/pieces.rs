//! Streams that arrive in pieces, for tests of decoders.
//!
//! Owns the division into pieces. Must not know any protocol.

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

/// Returns what `next` takes from a stream that arrives in pieces of `step` bytes; the bytes that it leaves are passed
/// again.
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
