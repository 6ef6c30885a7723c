//! The account of memory: what everything that clients caused takes, in bytes.
//!
//! Owns the sums by kind. Must not refuse anything: that is the verbs' business.

/// Bytes by what takes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Jobs: bodies, uniques, outcomes, and those who wait for them.
    pub jobs: u64,
    /// Tubes and their names.
    pub tubes: u64,
    /// Entries of watch lists.
    pub watches: u64,
    /// Outside of the engine: connections, what they have sent and what they have not read. As the server told it last.
    pub buffers: u64,
}

impl Account {
    /// All together.
    pub fn total(&self) -> u64 {
        self.jobs + self.tubes + self.watches + self.buffers
    }
}
