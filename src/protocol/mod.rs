//! The client protocols: translation of bytes into engine operations, and of results into bytes.
//! Decoders accept input in parts of any size, never block, and never panic. Sockets, threads, locks and the clock
//! belong to the server, which passes the input and the time.

// Client input must never cause a panic. Every exception to these lints states why it cannot panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[macro_use]
mod counters;

mod buffer;
mod connections;
mod dialogue;
mod guard;
mod pages;
#[cfg(any(test, feature = "test-support"))]
#[path = "tests/support.rs"]
mod support;
pub(crate) mod text;
mod upload;

pub mod beanstalk;
pub mod gearman;
pub mod http;
pub mod workq;

pub use buffer::{Chunk, Output};
pub use connections::{ClientInfo, ClientRegistry};
pub use counters::{CommandCounters, CommandId, CommandInfo};
pub use dialogue::{end_wait, noted_job, notify, reply_note, Dialogue, Request};
pub use guard::needs;

use crate::access::{ClientAccess, Denied, Need};
use crate::engine::{Body, ClientId, Engine, Fingerprints, Histogram, LongCommand, Span, Stats, Tags, Time};
use crate::shared::log_figures::LogFigures;
use crate::shared::role::RoleFigures;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FigureValue<'a> {
    Number(u64),
    Micros(u64),
    Truth(bool),
    /// Text that never needs quotes.
    Word(&'a [u8]),
    /// Quoted if beanstalkd does not allow the name.
    Name(&'a [u8]),
    Text(&'a [u8]),
}

/// Calls `show` if the figure has a value.
pub fn show_optional(key: &'static str, value: Option<FigureValue>, show: &mut dyn FnMut(&'static str, FigureValue)) {
    if let Some(value) = value {
        show(key, value);
    }
}

/// A protocol for client connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wire {
    /// The beanstalk protocol. The default port is 11300.
    Beanstalk,
    /// The Gearman protocol. The default port is 4730.
    Gearman,
    /// The Workq protocol. The default port is 9922.
    Workq,
    /// HTTP for operators and monitoring. The default port is 11380.
    Http,
}

impl Wire {
    pub(crate) const ALL: [Wire; 4] = [Wire::Beanstalk, Wire::Gearman, Wire::Workq, Wire::Http];

    /// Returns the name of the protocol in lowercase.
    #[expect(clippy::indexing_slicing, reason = "each protocol has a name")]
    pub fn name(self) -> &'static str {
        ["beanstalk", "gearman", "workq", "http"][self as usize]
    }
}

/// Protocol settings, which are the same for all clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProtocolSettings {
    /// Maximum size of a packet from a Gearman client in bytes, excluding the header.
    pub max_packet: u32,
    /// Allows Gearman clients to shut down the server.
    pub allow_shutdown: bool,
    /// Interprets the timeouts in `CAN_DO_TIMEOUT` packets as seconds instead of milliseconds.
    pub timeouts_in_seconds: bool,
    /// Sends failure reasons to all Gearman clients, including clients that have not set the option `exceptions`.
    pub exceptions: bool,
    /// The settings of the HTTP interface.
    pub http: http::HttpSettings,
    /// The extensions of the beanstalk protocol that clients can use.
    pub extensions: beanstalk::Extensions,
    /// The size of a batch reply, in bytes, at which the server stops adding jobs. See [`crate::Config::max_output`].
    pub max_output: usize,
}

impl Default for ProtocolSettings {
    fn default() -> ProtocolSettings {
        ProtocolSettings {
            max_packet: 64 << 20,
            allow_shutdown: false,
            timeouts_in_seconds: false,
            exceptions: false,
            http: http::HttpSettings::default(),
            extensions: beanstalk::Extensions::ALL,
            max_output: 1 << 20,
        }
    }
}

/// Constant properties of the server process and the machine.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub pid: u32,
    pub version: String,
    /// Sixteen random hexadecimal digits that do not form a decimal number.
    pub id: String,
    pub hostname: String,
    /// The prefix of Gearman job handles, without the colon before the job ID.
    pub handle_prefix: Box<[u8]>,
    pub os: String,
    pub platform: String,
    pub started: Time,
    pub max_job_size: u32,
    pub max_connections: usize,
    pub max_files: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub user_micros: u64,
    pub system_micros: u64,
    pub rejected_connections: u64,
    /// Resident memory in bytes at the last measurement, or 0 before the first measurement.
    pub resident: u64,
    pub open_files: u64,
    pub failed_auths: u64,
    pub dropped_connections: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Latencies {
    pub turns: Option<Histogram>,
    pub syncs: Option<Histogram>,
}

pub trait Host: Send + Sync {
    fn facts(&self) -> &Facts;
    /// Called only for replies that contain usage statistics.
    fn usage(&self) -> Usage;
    fn latencies(&self) -> Latencies {
        Latencies::default()
    }
    fn role(&self) -> Option<RoleFigures> {
        None
    }
}

pub trait Peers {
    fn address(&self, client: ClientId) -> Option<String>;
}

/// The parts of the server that a command can access. The engine stays locked while a context exists.
pub struct Context<'a> {
    pub engine: &'a mut Engine,
    pub counters: &'a mut CommandCounters,
    pub registry: &'a mut ClientRegistry,
    pub settings: &'a ProtocolSettings,
    pub host: &'a dyn Host,
    pub peers: &'a dyn Peers,
    pub log: Option<LogFigures>,
    /// `None` without an access file.
    pub access: Option<&'a mut ClientAccess>,
    /// Never decreases from one command to the next.
    pub now: Time,
    pub client: ClientId,
    /// `true` if commands must not wait, because the client has half-closed its connection.
    pub half_closed: bool,
    /// The input, which still contains the bodies of some requests.
    pub input: &'a [u8],
}

impl Context<'_> {
    pub fn stats(&self) -> Stats {
        let mut stats = self.engine.stats();
        let [.., http] = self.registry.counts;
        stats.connections = stats.connections.saturating_sub(http);
        stats.total_connections = stats.total_connections.saturating_sub(self.registry.http_total);
        stats
    }

    pub fn effective_wait(&self, wait: Span) -> Span {
        Some(wait).filter(|_| !self.half_closed).unwrap_or(Span::ZERO)
    }

    pub fn sees_all(&self) -> bool {
        self.access.as_ref().is_none_or(|access| access.sees_all())
    }
}

/// The properties of a command that a verbose server logs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogSubject {
    pub id: Option<u64>,
    pub tube: Option<Vec<u8>>,
    /// `true` if the command applies to the used tube. Ignored if `tube` is set.
    pub uses_tube: bool,
    pub size: Option<usize>,
    /// The remaining arguments. Times are in seconds.
    pub numbers: Vec<(&'static str, u64)>,
}

impl LogSubject {
    /// Omits lists, and the second tube if there are two.
    fn of(subject: guard::Subject) -> LogSubject {
        let (id, tube) = match subject {
            guard::Subject::Job(id) => (id, None),
            guard::Subject::Tube(tube) | guard::Subject::TwoTubes(tube, _) => (None, Some(tube)),
            guard::Subject::JobAndTube(id, tube) => (Some(id), Some(tube)),
            guard::Subject::Nothing | guard::Subject::Tubes(_) | guard::Subject::Jobs(_) => (None, None),
        };
        LogSubject { id: id.map(|id| id.0), tube: tube.map(<[u8]>::to_vec), ..LogSubject::default() }
    }
}

/// Commands without an ID are not counted. Most invalid commands have no ID.
type Decoded<C> = (Option<CommandId>, C);

trait ProtocolCommand: Sized {
    fn subject(&self, context: &Context) -> guard::Subject<'_>;

    fn need(&self, id: Option<CommandId>) -> Need {
        id.map_or(Need::OPEN, |id| id.entry().need)
    }

    fn check(&self, id: Option<CommandId>, from: &mut usize, context: &mut Context) -> guard::Decision {
        guard::check(self, id, from, context)
    }

    fn deny(&self, denied: Denied, out: &mut Output) -> Flow;

    /// `true` if the command can write to the binlog.
    fn is_logged(&self) -> bool;

    fn footprint(&self) -> u64;

    fn log_subject(&self) -> LogSubject {
        LogSubject::default()
    }

    fn job_body(&self) -> Option<&Body> {
        None
    }

    fn tags(&self) -> Option<&Tags> {
        None
    }

    fn allows_anonymous(&self) -> bool {
        false
    }

    /// Returns the rest of an operation that must continue after a disconnect.
    fn into_operation(self) -> Option<LongCommand> {
        None
    }
}

pub fn sees(access: &Option<&mut ClientAccess>, tube: &[u8]) -> bool {
    access.as_ref().is_none_or(|access| access.sees(tube))
}

#[derive(Debug)]
pub enum Flow {
    /// Execute the client's next command.
    Next,
    /// Wait for an event before the client's next command.
    Wait,
    /// Like `Wait`, but stop waiting when the client sends data.
    WaitForInput,
    /// Close the connection after sending all replies.
    Close,
    /// Like `Close`, but send the replies after a delay, because the token was wrong.
    WrongToken,
    /// Serve other clients before continuing the request. The client's later requests must wait.
    Continue(Box<Request>),
    /// Stop the server. If `graceful`, refuse new jobs, and stop only when no jobs are left.
    Stop { graceful: bool },
}

impl Flow {
    fn denied(denied: Denied) -> Flow {
        match denied {
            Denied::Unknown => Flow::Close,
            Denied::Forbidden => Flow::Next,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Computes fingerprints of bodies that serve as unique IDs.
    pub fingerprints: Fingerprints,
    pub max_job_size: u32,
    pub extensions: beanstalk::Extensions,
    /// The memory available for incomplete bodies, in bytes.
    pub room: u64,
    pub max_packet: u32,
}

#[cfg(test)]
mod tests;
