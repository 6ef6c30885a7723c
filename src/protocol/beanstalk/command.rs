//! Parsed beanstalk requests.
//!
//! Owns the parsed form, and its memory costs. Must not know the framing.

use super::long::Long;
use crate::access::Digest;
use crate::engine::{Body, JobId, NewJob, Priority, ReserveMode, Span, State, Tags, TubeSettings};
use crate::protocol::text::{past, upto, MAX_QUOTED_NAME};

/// Upper bound of the additional size of a job's tags, in bytes.
pub const TAGS_OVERHEAD: u64 = 400 + MAX_QUOTED_NAME as u64;

/// Returns the maximum size of the tags of a put in memory or in a log, in bytes.
pub fn tags_size(tags: &Tags) -> u64 {
    let groups: usize = tags.groups.iter().map(|tag| tag.logged_size()).sum();
    TAGS_OVERHEAD + groups as u64 + tags.reason.as_ref().map_or(0, |reason| reason.len() as u64)
}

/// A body within the input of a turn.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// The number of bytes from the start of the body to the end of the input.
    pub before_end: usize,
    pub length: usize,
}

impl InPlace {
    /// Returns the bytes of the body in its input.
    pub fn bytes(self, input: &[u8]) -> &[u8] {
        upto(past(input, input.len() - self.before_end), self.length)
    }
}

/// A parsed request with its arguments.
#[derive(Debug)]
#[allow(missing_docs)] // each is the command of its name, with the arguments of its name
pub enum Command {
    Put {
        job: NewJob,
        tags: Option<Box<Tags>>,
    },
    /// A put without tags, whose body is still in the input.
    PutInPlace {
        job: NewJob<InPlace>,
    },
    /// An invalid put; `counts_producer` follows beanstalkd.
    PutRefused {
        answer: &'static [u8],
        counts_producer: bool,
    },
    Peek(JobId),
    PeekNext(State),
    Reserve(Option<Span>),
    /// A reserve that stops waiting as soon as the client sends anything.
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
        /// The tube from which the job is a dead letter.
        dead_from: Option<Box<[u8]>>,
    },
    KickJob(JobId),
    /// With the progress reported by its worker.
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
        /// By priority class, the highest first; `None` means no limit.
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
    /// The SHA-256 of the token, which itself is not stored.
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
    /// Returns `true` if the command may have records in the log.
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
