//! Commands that are interrupted to serve other clients, with their progress and its size in memory.

use std::sync::Arc;

use super::reply;
use crate::engine::{
    FindOldest, FindReserved, Flush, IdPage, JobId, Kick, LongCommand, MoveJobs, Progress, Report, TouchAll,
};
use crate::protocol::connections::ConnectionPage;
use crate::protocol::guard::Subject;
use crate::protocol::history::HistoryWalk;
use crate::protocol::sums::VisibleSums;
use crate::protocol::{Context, Output};

#[derive(Debug)]
pub enum Long {
    Kick(Kick),
    // `None` until listing all tubes at once has failed.
    ListTubes(Option<PartialList>),
    StatsTubes(PartialList),
    Stats(Box<VisibleSums>),
    ListTubesWatched(PartialList),
    ListKeys(PartialList),
    ListConnections(Box<ConnectionPage>),
    ListHistory(HistoryWalk, PartialList),
    Report(JobId, Arc<Report>),
    // `at` is the number of processed IDs, last ID first.
    DeleteBatch { ids: Box<[JobId]>, at: usize, deleted: u64 },
    TouchAll(Option<TouchAll>),
    Flush(Flush),
    PeekReserved(FindReserved),
    ListJobs(IdPage),
    MoveTube(MoveJobs),
    StatsTube(FindOldest),
}

#[derive(Debug)]
pub struct PartialList {
    pub from: u32,
    pub count: usize,
    pub text: Output,
}

impl PartialList {
    pub fn new(from: u32) -> PartialList {
        let mut text = Output::new();
        text.text().extend_from_slice(b"---\n");
        PartialList { from, count: 0, text }
    }

    /// Sends the complete list, or an error if memory is exhausted. Returns `Progress::More` for an incomplete list.
    pub fn send(&mut self, progress: Progress, context: &Context, out: &mut Output) -> Progress {
        match progress {
            Progress::Done => reply::list(out, std::mem::take(&mut self.text)),
            Progress::More if context.engine.has_memory(self.text.footprint()) => return Progress::More,
            Progress::More => reply::words(out, reply::OUT_OF_MEMORY),
        }
        Progress::Done
    }
}

impl Long {
    pub fn into_operation(self) -> Option<LongCommand> {
        match self {
            Long::Flush(flush) => Some(LongCommand::Flush(flush)),
            Long::MoveTube(moving) => Some(LongCommand::Move(moving)),
            _ => None,
        }
    }

    pub fn target(&self) -> Subject<'_> {
        match self {
            Long::Flush(flush) => Subject::Tube(&flush.tube),
            Long::ListJobs(page) => Subject::Tube(&page.tube),
            Long::StatsTube(find) => Subject::Tube(find.tube()),
            Long::MoveTube(moving) => Subject::TwoTubes(&moving.from, &moving.to),
            Long::DeleteBatch { ids, .. } => Subject::Jobs(ids),
            _ => Subject::Nothing,
        }
    }

    pub fn number(&self) -> Option<(&'static str, u64)> {
        match self {
            Long::Kick(kick) => Some(("bound", kick.left)),
            Long::DeleteBatch { ids, .. } => Some(("jobs", ids.len() as u64)),
            Long::MoveTube(moving) => Some(("bound", moving.left)),
            _ => None,
        }
    }

    pub fn is_logged(&self) -> bool {
        matches!(self, Long::Kick(_) | Long::DeleteBatch { .. } | Long::Flush(_) | Long::MoveTube(_))
    }

    pub fn footprint(&self) -> u64 {
        match self {
            Long::ListTubes(Some(list)) | Long::StatsTubes(list) | Long::ListTubesWatched(list) => {
                list.text.footprint()
            }
            Long::ListKeys(list) | Long::ListHistory(_, list) => list.text.footprint(),
            Long::DeleteBatch { ids, .. } => size_of_val(&**ids) as u64,
            Long::Flush(flush) => flush.footprint(),
            Long::ListJobs(page) => page.footprint(),
            Long::MoveTube(moving) => moving.footprint(),
            Long::StatsTube(find) => find.footprint(),
            Long::PeekReserved(find) => find.footprint(),
            Long::ListConnections(page) => size_of_val(&**page) as u64 + page.footprint(),
            Long::Stats(sums) => size_of_val(&**sums) as u64,
            Long::Kick(_) | Long::ListTubes(None) | Long::TouchAll(_) | Long::Report(..) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footprint_includes_owned_memory() {
        let list = PartialList::new(0);
        let size = list.text.footprint();
        assert!(size > 0);
        assert_eq!(Long::ListTubes(Some(list)).footprint(), size);
        let ids = vec![JobId(7); 100].into_boxed_slice();
        assert_eq!(Long::DeleteBatch { ids, at: 3, deleted: 2 }.footprint(), 800);
        assert!(size_of::<Long>() <= 128, "{}", size_of::<Long>());
        let page = IdPage::new(b"tube".as_slice().into(), crate::engine::State::Ready, 0, 10);
        assert_eq!(Long::ListJobs(page).footprint(), 4 + 8 * 10);
        assert_eq!(Long::PeekReserved(FindReserved::default()).footprint(), 16 * 16);
    }
}
