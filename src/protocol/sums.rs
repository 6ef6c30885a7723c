//! Figures of the server for a client that may see some of its tubes.
//!
//! Owns the sums over those tubes, which are computed in several turns. A client that may see all tubes gets the
//! engine's own figures. Must not decide what a client may see.

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
    /// Continues, and returns the figures when all tubes were added.
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
