//! All jobs, everything that belongs to jobs, data that outlives jobs, and the memory account.
//! Enforces promise P1 of beanpole-promises(7).

use super::{EndedKeys, ExtrasStore, Groups, JobCounts, Jobs, Lanes, OldestIds, Origins, Schedules};

#[derive(Debug, Default)]
pub struct Store {
    pub(in crate::engine) jobs: Jobs,
    pub(in crate::engine) extras: ExtrasStore,
    pub(in crate::engine) ended_keys: EndedKeys,
    pub(in crate::engine) lanes: Lanes,
    pub(in crate::engine) groups: Groups,
    pub(in crate::engine) origins: Origins,
    pub(in crate::engine) schedules: Schedules,
    pub(in crate::engine) last_id: u64,
    /// The last assigned rank in the order of burying.
    pub(in crate::engine) last_bury: u64,
    pub(in crate::engine) counts: JobCounts,
    pub(in crate::engine) oldest: OldestIds,
    pub(in crate::engine) total: u64,
    pub(in crate::engine) timeouts: u64,
    /// The number of unfinished jobs that expired.
    pub(in crate::engine) evicted: u64,
}

impl Store {
    pub fn memory(&self) -> u64 {
        self.jobs.memory()
            + self.extras.table.memory
            + self.ended_keys.table.memory
            + self.lanes.keys.memory
            + self.groups.table.memory
            + self.origins.memory
            + self.schedules.table.memory
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    pub jobs: u64,
    pub tubes: u64,
    pub watches: u64,
    pub history: u64,
    /// Of connections, as last reported by the server.
    pub buffers: u64,
}

impl Account {
    pub fn total(&self) -> u64 {
        self.jobs + self.tubes + self.watches + self.history + self.buffers
    }
}
