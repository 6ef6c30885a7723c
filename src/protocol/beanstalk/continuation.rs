//! Commands that were too much for one turn.
//!
//! Owns what is left of them, and what that costs in memory and in the binlog. `session` goes on with them.

use std::sync::Arc;

use super::command::CHANGE_OVERHEAD;
use crate::engine::{FindOldest, FindReserved, Flush, IdPage, JobId, Kick, LongCommand, MoveJobs, Report, TouchAll};
use crate::protocol::connections::ConnectionPage;
use crate::protocol::sums::VisibleSums;
use crate::protocol::{self, Flow, Output};

/// The rest of a command.
#[derive(Debug)]
pub enum Continuation {
    /// A kick of many jobs.
    Kick(Kick),
    /// A list of all tubes: the number of the next one, and the list so far.
    ListTubes(u32, Output),
    /// Statistics of all tubes: the number of the next one, and the list so far.
    StatsTubes(u32, Output),
    /// Figures of what the client may see, so far.
    Stats(Box<VisibleSums>),
    /// A list of the tubes that the client watches: the place of the next one, and the list so far.
    ListWatched(usize, Output),
    /// A delete of many jobs: how many were looked at, from the last one on, and how many were deleted.
    Delete(Box<[JobId]>, usize, u64),
    /// A touch of all that is held.
    TouchAll(TouchAll),
    /// A tube that is being emptied.
    Flush(Flush),
    /// A search for a reserved job.
    FindReserved(FindReserved),
    /// A page of `list-jobs`, as far as it is found.
    ListJobs(IdPage),
    /// A list of keys that outlive their jobs: the number of the next one, how many there are, and the list so far.
    ListKeys(u32, usize, Output),
    /// A page of `list-connections`, and the list so far.
    ListConnections(Box<ConnectionPage>),
    /// A progress report about a job, for the clients that wait for its outcome.
    Report(JobId, Arc<Report>),
    /// Jobs on their way to another tube.
    Move(MoveJobs),
    /// Statistics of a tube whose oldest jobs are being found.
    StatsTube(FindOldest),
}

impl Continuation {
    /// Has it go on in another turn.
    pub fn later(self) -> Flow {
        Flow::Continue(Box::new(protocol::Continuation::Beanstalk(self)))
    }

    /// What is completed although the client hangs up, if anything.
    pub fn into_operation(self) -> Option<LongCommand> {
        match self {
            Continuation::Flush(flush) => Some(LongCommand::Flush(flush)),
            Continuation::Move(moving) => Some(LongCommand::Move(moving)),
            _ => None,
        }
    }

    /// Bytes that it may take in a log before it stops once more.
    pub fn log_size(&self) -> u64 {
        match self {
            Continuation::Kick(_) => CHANGE_OVERHEAD,
            Continuation::Delete(..) | Continuation::Flush(_) => 1,
            Continuation::Move(moving) => CHANGE_OVERHEAD + moving.footprint(),
            Continuation::Stats(_) | Continuation::ListTubes(..) | Continuation::ListWatched(..) => 0,
            Continuation::TouchAll(_) | Continuation::FindReserved(_) | Continuation::ListJobs(_) => 0,
            Continuation::ListKeys(..) | Continuation::StatsTubes(..) => 0,
            Continuation::StatsTube(_) | Continuation::ListConnections(_) | Continuation::Report(..) => 0,
        }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        match self {
            Continuation::Stats(_) => size_of::<VisibleSums>() as u64,
            Continuation::ListTubes(_, text) | Continuation::ListWatched(_, text) => text.footprint(),
            Continuation::ListKeys(.., text) | Continuation::StatsTubes(_, text) => text.footprint(),
            Continuation::Delete(ids, ..) => size_of_val(&**ids) as u64,
            Continuation::Flush(flush) => flush.footprint(),
            Continuation::ListJobs(page) => page.footprint(),
            Continuation::Move(moving) => moving.footprint(),
            Continuation::StatsTube(find) => find.footprint(),
            Continuation::FindReserved(find) => find.footprint(),
            Continuation::ListConnections(page) => size_of::<ConnectionPage>() as u64 + page.footprint(),
            Continuation::Kick(_) | Continuation::TouchAll(_) | Continuation::Report(..) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_command_counts_what_it_owns() {
        let mut text = Output::new();
        text.text().extend_from_slice(b"---\n- default\n");
        assert!(text.footprint() > 0);
        let ids = vec![JobId(7); 100].into_boxed_slice();
        assert_eq!(Continuation::Delete(ids, 3, 2).footprint(), 800);
        let page = IdPage::new(b"tube".as_slice().into(), crate::engine::State::Ready, 0, 10);
        assert_eq!(Continuation::ListJobs(page).footprint(), 4 + 8 * 10);
        let size = text.footprint();
        assert_eq!(Continuation::ListTubes(5, text).footprint(), size);
        assert_eq!(Continuation::Stats(Box::default()).footprint(), size_of::<VisibleSums>() as u64);
        assert_eq!(Continuation::FindReserved(FindReserved::default()).footprint(), 16 * 16);
    }
}
