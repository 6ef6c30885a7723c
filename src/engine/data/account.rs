//! The account of memory: what everything that clients caused takes, in bytes.
//!
//! Owns the sums by kind. Must not refuse anything: `rules/memory.rs` has the bound.

/// Bytes by what takes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Jobs: bodies, dedup keys, outcomes, and those who wait for them.
    pub jobs: u64,
    pub tubes: u64,
    pub watches: u64,
    /// Outside of the engine: connections, what they have sent and what they have not read. As the server told it last.
    pub buffers: u64,
}

impl Account {
    pub fn total(&self) -> u64 {
        self.jobs + self.tubes + self.watches + self.buffers
    }
}
