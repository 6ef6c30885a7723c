//! The memory account: the memory of everything that clients caused, in bytes.
//!
//! Owns the sums by kind. Must not refuse anything: `rules/memory.rs` enforces the limit.

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Jobs: bodies, dedup keys, outcomes, and the attachments of waiting clients.
    pub jobs: u64,
    pub tubes: u64,
    pub watches: u64,
    /// What is remembered of jobs that have ended.
    pub history: u64,
    /// Connections outside the engine: unprocessed input and unsent output, as last reported by the server.
    pub buffers: u64,
}

impl Account {
    pub fn total(&self) -> u64 {
        self.jobs + self.tubes + self.watches + self.history + self.buffers
    }
}
