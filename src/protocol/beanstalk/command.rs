//! What a line asks for.
//!
//! Owns the parsed form, and what it costs in memory and in the binlog. Must not know how it is framed.

use crate::engine::{Body, JobId, Priority, Span, State};

/// Upper bound of the bytes of a job's record beside its body: the longest name of a tube, and some numbers.
const PUT_OVERHEAD: u64 = 300;

/// Upper bound of the bytes of the record of a change to a job.
pub const CHANGE_OVERHEAD: u64 = 50;

/// What a request asks for.
#[derive(Debug)]
#[allow(missing_docs)] // each is the command of its name, with the arguments of its name
pub enum Command {
    Put {
        pri: Priority,
        delay: Span,
        ttr: Span,
        body: Body,
    },
    /// A put line whose body is still to come; the decoder keeps it to itself.
    PutLine {
        pri: Priority,
        delay: Span,
        ttr: Span,
        size: u32,
        garbage: bool,
    },
    /// A put that was wrong by itself; `counts_producer` as beanstalkd has it.
    PutRefused {
        answer: &'static [u8],
        counts_producer: bool,
    },
    Peek(JobId),
    PeekNext(State),
    Reserve(Option<Span>),
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
    },
    Kick(u32),
    KickJob(JobId),
    Touch(JobId),
    Stats,
    StatsJob(JobId),
    StatsTube(Box<[u8]>),
    Use(Box<[u8]>),
    Watch(Box<[u8]>),
    Ignore(Box<[u8]>),
    ListTubes,
    ListTubeUsed,
    ListTubesWatched,
    PauseTube {
        tube: Box<[u8]>,
        length: Span,
    },
    /// The SHA-256 of the token, which itself is kept nowhere.
    Auth([u8; 32]),
    Quit,
    BadFormat,
    UnknownCommand,
}

impl Command {
    /// The most bytes that its records take in the binlog; for a kick of many jobs, those of the first.
    pub fn log_size(&self) -> u64 {
        match self {
            Command::Put { body, .. } => body.len() as u64 + PUT_OVERHEAD,
            Command::Delete(_) => 1,
            Command::Release { .. } | Command::Bury { .. } | Command::KickJob(_) | Command::Kick(_) => CHANGE_OVERHEAD,
            Command::PauseTube { tube, .. } => tube.len() as u64 + CHANGE_OVERHEAD,
            Command::PutLine { .. }
            | Command::PutRefused { .. }
            | Command::Peek(_)
            | Command::PeekNext(_)
            | Command::Reserve(_)
            | Command::ReserveJob(_)
            | Command::Touch(_)
            | Command::Stats
            | Command::StatsJob(_)
            | Command::StatsTube(_)
            | Command::Use(_)
            | Command::Watch(_)
            | Command::Ignore(_)
            | Command::ListTubes
            | Command::ListTubeUsed
            | Command::ListTubesWatched
            | Command::Auth(_)
            | Command::Quit
            | Command::BadFormat
            | Command::UnknownCommand => 0,
        }
    }

    /// Bytes of memory beside the command itself.
    pub fn footprint(&self) -> u64 {
        match self {
            Command::Put { body, .. } => body.len() as u64,
            Command::StatsTube(tube)
            | Command::Use(tube)
            | Command::Watch(tube)
            | Command::Ignore(tube)
            | Command::PauseTube { tube, .. } => tube.len() as u64,
            _ => 0,
        }
    }
}
