//! Server statistics for a client that may view only some tubes. Adding many tubes is interrupted to serve other clients.

use super::{sees, Context};
use crate::engine::{JobCounts, Progress, Stats};

#[derive(Debug, Default)]
pub struct VisibleSums {
    next: u32,
    jobs: JobCounts,
    total_jobs: u64,
    tubes: usize,
}

impl VisibleSums {
    /// Returns the statistics after the last tube.
    pub fn advance(&mut self, context: &mut Context) -> Option<Stats> {
        if context.sees_all() {
            return Some(context.stats());
        }
        let Context { engine, access, now, .. } = context;
        let progress = engine.walk_tubes(&mut self.next, *now, |tube| {
            if sees(access, tube.name) {
                self.jobs.merge(&tube.jobs);
                self.total_jobs += tube.total_jobs;
                self.tubes += 1;
            }
            0
        });
        if progress == Progress::More {
            return None;
        }
        let VisibleSums { jobs, total_jobs, tubes, .. } = *self;
        Some(Stats { jobs, total_jobs, tubes, ..context.stats() })
    }
}
