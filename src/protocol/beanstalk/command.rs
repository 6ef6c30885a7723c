//! Parsed beanstalk commands. A command reports the tubes and jobs for its permission check, and its size in memory.

use std::sync::Arc;

use super::reply;
use crate::access::{Denied, Digest, Need};
use crate::engine::{
    Body, Engine, FindOldest, FindReserved, Flush, IdPage, JobId, Kick, LongCommand, MoveJobs, NewJob, Priority,
    Progress, Report, ReserveMode, Span, State, Tags, TouchAll, TubeSettings,
};
use crate::protocol::connections::{ConnectionPage, VisibleSums};
use crate::protocol::guard::Subject;
use crate::protocol::pages::HistoryWalk;
use crate::protocol::text::{past, upto, MAX_QUOTED_NAME};
use crate::protocol::{CommandId, Context, Flow, LogSubject, Output, ProtocolCommand};

/// The maximum size of a job's tags in bytes, excluding groups and the failure reason.
pub const TAGS_OVERHEAD: u64 = 400 + MAX_QUOTED_NAME as u64;
/// The log bytes to claim for new tube settings, in addition to the tube names and the bytes that every change needs.
pub const SETTINGS_OVERHEAD: usize = 16;

/// Returns the maximum size of a job's tags in bytes. The same maximum applies in memory and in the binlog.
pub fn tags_size(tags: &Tags) -> u64 {
    let groups: usize = tags.options.groups.iter().map(|tag| tag.logged_size()).sum();
    TAGS_OVERHEAD + groups as u64 + tags.options.reason.as_ref().map_or(0, |reason| reason.len() as u64)
}

/// The memory of parsed tags in bytes, in addition to [`tags_size`], which includes only one quoted name.
pub const PARSED_TAGS: u64 = (size_of::<Tags>() + MAX_QUOTED_NAME) as u64;

#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// The number of bytes from the start of the body to the end of the input.
    pub before_end: usize,
    pub length: usize,
}

impl InPlace {
    pub fn bytes(self, input: &[u8]) -> &[u8] {
        upto(past(input, input.len() - self.before_end), self.length)
    }
}

#[derive(Debug)]
pub enum Command {
    Put { job: NewJob, tags: Option<Box<Tags>> },
    // A put without tags. The body is still in the input buffer.
    PutInPlace { job: NewJob<InPlace> },
    // A refused command with a body. `is_producer` means that the client counts as a producer, as in beanstalkd.
    Refused { reply: &'static [u8], is_producer: bool },
    Peek(JobId),
    PeekNext(State),
    Reserve(Option<Span>),
    // The wait ends when the client sends data.
    ReserveWithAbort(Option<Span>),
    ReserveJob(JobId),
    Delete(JobId),
    Release { id: JobId, pri: Priority, delay: Span },
    // For imports, `delay` is the job's last delay in seconds, and `dead_from` is a dead letter's original tube.
    Bury { id: JobId, pri: Priority, delay: Option<u32>, dead_from: Option<Box<[u8]>> },
    KickJob(JobId),
    // The second field contains the completed and the total units of work, if any.
    Touch(JobId, Option<(u32, u32)>),
    StatsJob(JobId),
    StatsGroup(Box<[u8]>),
    Use(Box<[u8]>),
    Watch(Box<[u8]>, Option<u16>),
    Ignore(Box<[u8]>),
    ListTubeUsed,
    PauseTube { tube: Box<[u8]>, length: Span },
    ReserveBatch(usize, Option<Span>),
    Wait(JobId, Span),
    Drain(bool),
    MoveJob { id: JobId, tube: Box<[u8]>, pri: Priority, delay: Span },
    // Limits for high, normal and low priority.
    LimitTube { tube: Box<[u8]>, limits: [Option<u32>; 3] },
    Name(Box<[u8]>),
    Revoke(JobId, Priority),
    SetTube { tube: Box<[u8]>, settings: Box<TubeSettings> },
    Fail { id: JobId, pri: Priority, reason: Body },
    ReserveMode(ReserveMode),
    Auth(Digest),
    // Has no data, because a client can queue thousands of these commands. `execute` converts each to `Long::Stats`.
    Stats,
    Long(Box<Long>),
    Quit,
    BadFormat,
    UnknownCommand,
}

impl Command {
    pub fn own(&mut self, input: &[u8]) {
        if let Command::PutInPlace { job: NewJob { pri, delay, ttr, body } } = *self {
            *self = match Body::copy(body.bytes(input)) {
                Some(body) => Command::Put { job: NewJob { pri, delay, ttr, body }, tags: None },
                None => Command::Refused { reply: reply::OUT_OF_MEMORY, is_producer: true },
            };
        }
    }

    fn target(&self) -> Subject<'_> {
        match self {
            Command::Use(tube) | Command::Watch(tube, _) | Command::Ignore(tube) => Subject::Tube(tube),
            // Access to a group requires rights to the tube with the same name.
            Command::StatsGroup(group) => Subject::Tube(group),
            Command::PauseTube { tube, .. } | Command::LimitTube { tube, .. } => Subject::Tube(tube),
            Command::Long(long) => match &**long {
                Long::Flush(flush) => Subject::Tube(&flush.tube),
                Long::ListJobs(page) => Subject::Tube(&page.tube),
                Long::StatsTube(find) => Subject::Tube(find.tube()),
                Long::MoveTube(moving) => Subject::TwoTubes(&moving.from, &moving.to),
                Long::DeleteBatch { ids, .. } => Subject::Jobs(ids),
                _ => Subject::Nothing,
            },
            Command::SetTube { tube, settings } => match &settings.dead {
                Some(dead) => Subject::TwoTubes(tube, dead),
                None => Subject::Tube(tube),
            },
            Command::MoveJob { id, tube, .. } => Subject::JobAndTube(*id, tube),
            Command::Bury { id, dead_from: Some(from), .. } => Subject::JobAndTube(*id, from),
            Command::Put { tags: Some(tags), .. } => tags.tube.as_deref().map_or(Subject::Nothing, Subject::Tube),
            Command::Peek(id) | Command::ReserveJob(id) | Command::StatsJob(id) => Subject::Job(Some(*id)),
            Command::Release { id, .. } | Command::Bury { id, .. } => Subject::Job(Some(*id)),
            Command::Touch(id, _) | Command::Revoke(id, _) | Command::Wait(id, _) => Subject::Job(Some(*id)),
            Command::Delete(id) | Command::KickJob(id) | Command::Fail { id, .. } => Subject::Job(Some(*id)),
            _ => Subject::Nothing,
        }
    }

    /// Claims log space if needed, except for puts, moves and long commands. Returns `true` if there is not enough.
    pub fn lacks_log_room(&self, engine: &mut Engine) -> bool {
        use Command::*;
        let names = match self {
            Release { .. } | Bury { .. } | KickJob(_) | Revoke(..) | Fail { .. } => 0,
            PauseTube { tube, .. } | LimitTube { tube, .. } => tube.len(),
            SetTube { tube, settings } => SETTINGS_OVERHEAD + tube.len() + settings.dead_length(),
            _ => return false,
        };
        !engine.claim_log_room(names)
    }

    /// Returns the numbers for the command log, excluding IDs and sizes.
    fn numbers(&self) -> Vec<(&'static str, u64)> {
        match self {
            Command::Put { job: NewJob { pri, delay, ttr, .. }, .. }
            | Command::PutInPlace { job: NewJob { pri, delay, ttr, .. } } => {
                vec![("pri", (*pri).into()), ("delay", delay.secs()), ("ttr", ttr.secs())]
            }
            Command::Release { pri, delay, .. } | Command::MoveJob { pri, delay, .. } => {
                vec![("pri", (*pri).into()), ("delay", delay.secs())]
            }
            Command::Bury { pri, .. } | Command::Fail { pri, .. } => vec![("pri", (*pri).into())],
            Command::Long(long) => match &**long {
                Long::Kick(kick) => vec![("bound", kick.left)],
                Long::DeleteBatch { ids, .. } => vec![("jobs", ids.len() as u64)],
                Long::MoveTube(moving) => vec![("bound", moving.left)],
                _ => Vec::new(),
            },
            Command::Reserve(Some(timeout)) | Command::Wait(_, timeout) => vec![("timeout", timeout.secs())],
            Command::PauseTube { length, .. } => vec![("pause", length.secs())],
            _ => Vec::new(),
        }
    }
}

impl ProtocolCommand for Command {
    fn subject(&self, _: &Context) -> Subject<'_> {
        self.target()
    }

    fn need(&self, id: Option<CommandId>) -> Need {
        match self {
            Command::BadFormat | Command::UnknownCommand => Need::OPEN,
            Command::Put { tags: Some(tags), .. } if tags.tube.is_some() => Need::PUT_NAMED,
            Command::Long(long) if matches!(&**long, Long::ListJobs(page) if page.tube.is_empty()) => Need::LOOK_ANY,
            _ => id.map_or(Need::OPEN, |id| id.entry().need),
        }
    }

    fn deny(&self, denied: Denied, out: &mut Output) -> Flow {
        reply::words(out, if denied == Denied::Unknown { reply::UNAUTHORIZED } else { reply::FORBIDDEN });
        Flow::denied(denied)
    }

    fn is_logged(&self) -> bool {
        use Command::*;
        match self {
            Put { .. } | PutInPlace { .. } | Delete(_) | Release { .. } | Bury { .. } | KickJob(_) | Revoke(..) => true,
            Fail { .. } | PauseTube { .. } | LimitTube { .. } | SetTube { .. } | MoveJob { .. } => true,
            Long(long) => {
                use super::command::Long::*;
                matches!(**long, Kick(_) | DeleteBatch { .. } | Flush(_) | MoveTube(_))
            }
            _ => false,
        }
    }

    fn footprint(&self) -> u64 {
        let bytes = match self {
            Command::Put { job, tags } => {
                return job.body.len() as u64 + tags.as_ref().map_or(0, |tags| tags_size(tags) + PARSED_TAGS)
            }
            Command::PutInPlace { job } => job.body.length,
            Command::Fail { reason, .. } => reason.len(),
            Command::Name(name) => name.len(),
            Command::Long(long) => return size_of::<Long>() as u64 + long.footprint(),
            _ => match self.target() {
                Subject::Tube(tube) | Subject::JobAndTube(_, tube) => tube.len(),
                Subject::TwoTubes(first, second) => first.len() + second.len(),
                _ => 0,
            },
        };
        bytes as u64
    }

    fn job_body(&self) -> Option<&Body> {
        let Command::Put { job, .. } = self else { return None };
        Some(&job.body)
    }

    fn log_subject(&self) -> LogSubject {
        let size = match self {
            Command::Put { job, .. } => Some(job.body.len()),
            Command::PutInPlace { job } => Some(job.body.length),
            Command::Fail { reason, .. } => Some(reason.len()),
            _ => None,
        };
        let uses_tube = match self {
            Command::Put { .. } | Command::PutInPlace { .. } | Command::PeekNext(_) => true,
            Command::Long(long) => matches!(**long, Long::Kick(_)),
            _ => false,
        };
        LogSubject { uses_tube, size, numbers: self.numbers(), ..LogSubject::of(self.target()) }
    }

    fn tags(&self) -> Option<&Tags> {
        let Command::Put { tags, .. } = self else { return None };
        tags.as_deref()
    }

    fn allows_anonymous(&self) -> bool {
        matches!(self, Command::Auth(_) | Command::Quit)
    }

    fn into_operation(self) -> Option<LongCommand> {
        let Command::Long(long) = self else { return None };
        match *long {
            Long::Flush(flush) => Some(LongCommand::Flush(flush)),
            Long::MoveTube(moving) => Some(LongCommand::Move(moving)),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub enum Long {
    Kick(Kick),
    // `None` until an attempt to list all tubes in one step has failed.
    ListTubes(Option<PartialList>),
    StatsTubes(PartialList),
    Stats(Box<VisibleSums>),
    ListTubesWatched(PartialList),
    ListKeys(PartialList),
    ListConnections(Box<ConnectionPage>),
    ListHistory(HistoryWalk, PartialList),
    Report(JobId, Arc<Report>),
    // IDs are processed from last to first. `at` is the number of processed IDs.
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
    pub fn footprint(&self) -> u64 {
        match self {
            Long::ListTubes(Some(list)) | Long::StatsTubes(list) | Long::ListKeys(list) => list.text.footprint(),
            Long::ListTubesWatched(list) | Long::ListHistory(_, list) => list.text.footprint(),
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
        assert_eq!(Long::ListJobs(page).footprint(), 4);
        assert!(Long::PeekReserved(FindReserved::default()).footprint() > 100);
        let (job, tags) =
            (NewJob { pri: 0, delay: Span::ZERO, ttr: Span::ZERO, body: Body::default() }, Box::default());
        assert!(Command::Put { job, tags: Some(tags) }.footprint() as usize > size_of::<Tags>() + 2 * MAX_QUOTED_NAME);
    }
}
