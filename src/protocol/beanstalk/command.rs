//! What a line asks for.
//!
//! Owns the parsed form, and what it costs in memory and in the binlog. Must not know how it is framed.

use crate::access::Digest;
use crate::engine::{Body, JobId, NewJob, Priority, ReserveMode, Span, State, Tags, TubeSettings, LONGEST_REASON};
use crate::protocol::text::{past, upto, MAX_QUOTED_NAME};

/// Upper bound of the bytes of a job's record beside its body: the longest name of a tube, and some numbers.
const PUT_OVERHEAD: u64 = MAX_QUOTED_NAME as u64 + 100;

/// Upper bound of the bytes that the tags of a job take beside that.
pub const TAGS_OVERHEAD: u64 = 400 + MAX_QUOTED_NAME as u64;

/// Returns the bytes that the tags of a put occupy at most, in memory or in a log.
pub fn tags_size(tags: &Tags) -> u64 {
    let groups: usize = tags.groups.iter().map(|tag| tag.logged_size()).sum();
    TAGS_OVERHEAD + groups as u64 + tags.reason.as_ref().map_or(0, |reason| reason.len() as u64)
}

/// Upper bound of the bytes of the record of a change to a job.
pub const CHANGE_OVERHEAD: u64 = 50;

/// A body within the input of a turn.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// Bytes from its start to the end of the input.
    pub before_end: usize,
    pub length: usize,
}

impl InPlace {
    /// The bytes in their input.
    pub fn bytes(self, input: &[u8]) -> &[u8] {
        upto(past(input, input.len() - self.before_end), self.length)
    }
}

/// What a request asks for.
#[derive(Debug)]
#[allow(missing_docs)] // each is the command of its name, with the arguments of its name
pub enum Command {
    Put {
        job: NewJob,
        tags: Option<Box<Tags>>,
    },
    /// A put without tags, whose body is still where it was read.
    PutInPlace {
        job: NewJob<InPlace>,
    },
    /// A put that was wrong by itself; `counts_producer` as beanstalkd has it.
    PutRefused {
        answer: &'static [u8],
        counts_producer: bool,
    },
    Peek(JobId),
    PeekNext(State),
    Reserve(Option<Span>),
    /// A reserve whose wait ends as soon as the client sends anything.
    ReserveWithAbort(Option<Span>),
    ReserveJob(JobId),
    Delete(JobId),
    Release {
        id: JobId,
        pri: Priority,
        delay: Span,
    },
    Bury {
        id: JobId,
        pri: Priority,
        /// The tube that it is a dead letter of.
        dead_from: Option<Box<[u8]>>,
    },
    Kick(u32),
    KickJob(JobId),
    /// With the progress that its worker reports.
    Touch(JobId, Option<(u32, u32)>),
    Stats,
    StatsJob(JobId),
    StatsTube(Box<[u8]>),
    StatsGroup(Box<[u8]>),
    StatsTubes,
    Use(Box<[u8]>),
    Watch(Box<[u8]>, Option<u16>),
    Ignore(Box<[u8]>),
    ListTubes,
    ListTubeUsed,
    ListTubesWatched,
    PauseTube {
        tube: Box<[u8]>,
        length: Span,
    },
    ReserveBatch(usize, Option<Span>),
    DeleteBatch(Box<[JobId]>),
    TouchAll,
    Wait(JobId, Span),
    Flush {
        tube: Box<[u8]>,
        /// Of the jobs that go.
        states: &'static [State],
    },
    PeekReserved,
    Drain(bool),
    ListJobs {
        tube: Box<[u8]>,
        state: State,
        above: u64,
        limit: usize,
    },
    MoveJob {
        id: JobId,
        tube: Box<[u8]>,
        pri: Priority,
        delay: Span,
    },
    MoveTube {
        from: Box<[u8]>,
        to: Box<[u8]>,
        state: State,
        bound: u64,
    },
    LimitTube {
        tube: Box<[u8]>,
        /// By priority class, the highest first; `None` for any number of jobs.
        most: [Option<u32>; 3],
    },
    /// Keys that outlive their jobs, from this number on.
    ListKeys {
        from: u32,
    },
    /// Connections with numbers above this one.
    ListConnections {
        above: u32,
        limit: usize,
    },
    Name(Box<[u8]>),
    Revoke(JobId, Priority),
    SetTube {
        tube: Box<[u8]>,
        settings: Box<TubeSettings>,
    },
    Fail {
        id: JobId,
        pri: Priority,
        reason: Body,
    },
    ReserveMode(ReserveMode),
    /// The SHA-256 of the token, which itself is kept nowhere.
    Auth(Digest),
    Quit,
    BadFormat,
    UnknownCommand,
}

impl Command {
    /// The most bytes that its records take in the binlog; for a kick of many jobs, those of the first.
    pub fn log_size(&self) -> u64 {
        match self {
            Command::Put { job, tags } => {
                let tags = tags.as_ref().map_or(0, |tags| tags_size(tags));
                job.body.len() as u64 + PUT_OVERHEAD + tags
            }
            Command::PutInPlace { job } => job.body.length as u64 + PUT_OVERHEAD,
            Command::Delete(_) => 1,
            Command::Bury { dead_from: Some(from), .. } => 2 * (from.len() as u64 + CHANGE_OVERHEAD),
            Command::Release { .. } | Command::Bury { .. } | Command::KickJob(_) | Command::Kick(_) => CHANGE_OVERHEAD,
            Command::Revoke(..) => 3 * CHANGE_OVERHEAD,
            Command::PauseTube { tube, .. } | Command::LimitTube { tube, .. } | Command::MoveJob { tube, .. } => {
                tube.len() as u64 + CHANGE_OVERHEAD
            }
            Command::SetTube { tube, settings } => (tube.len() + settings.dead_length()) as u64 + 2 * CHANGE_OVERHEAD,
            Command::Fail { reason, .. } => reason.len().min(LONGEST_REASON) as u64 + 3 * CHANGE_OVERHEAD,
            Command::MoveTube { to, .. } => to.len() as u64 + CHANGE_OVERHEAD,
            Command::DeleteBatch(_) | Command::Flush { .. } => 1,
            _ => 0,
        }
    }
}
