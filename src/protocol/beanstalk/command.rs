//! What a line asks for.
//!
//! Owns the parsed form, and what it costs in memory. Must not know how it is framed.

use super::long::Long;
use crate::access::Digest;
use crate::engine::{Body, JobId, NewJob, Priority, ReserveMode, Span, State, Tags, TubeSettings};
use crate::protocol::text::{past, upto, MAX_QUOTED_NAME};

/// Upper bound of the bytes that the tags of a job take beside that.
pub const TAGS_OVERHEAD: u64 = 400 + MAX_QUOTED_NAME as u64;

/// Returns the bytes that the tags of a put occupy at most, in memory or in a log.
pub fn tags_size(tags: &Tags) -> u64 {
    let groups: usize = tags.groups.iter().map(|tag| tag.logged_size()).sum();
    TAGS_OVERHEAD + groups as u64 + tags.reason.as_ref().map_or(0, |reason| reason.len() as u64)
}

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
    KickJob(JobId),
    /// With the progress that its worker reports.
    Touch(JobId, Option<(u32, u32)>),
    StatsJob(JobId),
    StatsGroup(Box<[u8]>),
    Use(Box<[u8]>),
    Watch(Box<[u8]>, Option<u16>),
    Ignore(Box<[u8]>),
    ListTubeUsed,
    PauseTube {
        tube: Box<[u8]>,
        length: Span,
    },
    ReserveBatch(usize, Option<Span>),
    Wait(JobId, Span),
    Drain(bool),
    MoveJob {
        id: JobId,
        tube: Box<[u8]>,
        pri: Priority,
        delay: Span,
    },
    LimitTube {
        tube: Box<[u8]>,
        /// By priority class, the highest first; `None` for any number of jobs.
        most: [Option<u32>; 3],
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
    /// Has no progress before its turn: a client can send thousands in one packet.
    Stats,
    /// A command that may take several turns.
    Long(Box<Long>),
    Quit,
    BadFormat,
    UnknownCommand,
}

impl Command {
    /// Returns `true` if it may have records in the log.
    pub fn is_logged(&self) -> bool {
        use Command::*;
        match self {
            Put { .. }
            | PutInPlace { .. }
            | Delete(_)
            | Release { .. }
            | Bury { .. }
            | KickJob(_)
            | Revoke(..)
            | Fail { .. } => true,
            PauseTube { .. } | LimitTube { .. } | SetTube { .. } | MoveJob { .. } => true,
            Long(long) => long.is_logged(),
            _ => false,
        }
    }
}
