//! The protocols: from bytes to verbs of the engine, and from results to bytes.
//!
//! Owns everything about wire formats and nothing about queues. Each protocol is incremental (it accepts any number of
//! bytes), never blocks, and does not panic on any input. Must not know sockets, threads, locks or the clock: the
//! server passes bytes and the time.

// Input from a peer must never cause a panic: each exception to these lints has its proof.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[macro_use]
mod table;

mod buffer;
mod client_registry;
mod connections;
mod counters;
mod dialogue;
mod guard;
mod history;
mod sorted;
mod sums;
pub(crate) mod text;
mod upload;

pub mod beanstalk;
pub mod gearman;
pub mod http;
pub mod notes;
pub mod workq;

pub use buffer::{Chunk, Output};
pub use client_registry::{ClientInfo, ClientRegistry};
pub use counters::{CommandCounters, CommandId, CommandInfo};
pub use dialogue::{end_wait, notify, Dialogue, Request};
pub use guard::needs;

use crate::access::{ClientAccess, Denied, Need};
use crate::engine::{ClientId, Engine, Fingerprints, Histogram, LongCommand, Span, Stats, Tags, Time};
use crate::shared::log_figures::LogFigures;
use crate::shared::role::RoleFigures;

/// The protocol of a listener's clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wire {
    /// The beanstalk protocol, on port 11300 by default.
    Beanstalk,
    /// The Gearman protocol, on port 4730 by default.
    Gearman,
    /// The Workq protocol, on port 9922 by default.
    Workq,
    /// HTTP, for operators, on port 11380 by default.
    Http,
}

impl Wire {
    pub const ALL: [Wire; 4] = [Wire::Beanstalk, Wire::Gearman, Wire::Workq, Wire::Http];

    /// The name of the protocol, in lowercase.
    pub fn name(self) -> &'static str {
        match self {
            Wire::Beanstalk => "beanstalk",
            Wire::Gearman => "gearman",
            Wire::Workq => "workq",
            Wire::Http => "http",
        }
    }
}

/// The settings that apply to all clients of a protocol.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProtocolSettings {
    /// The largest packet of a Gearman client, in bytes without its header.
    pub max_packet: u32,
    /// Allows Gearman clients to shut the server down.
    pub allow_shutdown: bool,
    /// Reads the timeouts in `CAN_DO_TIMEOUT` as seconds instead of milliseconds.
    pub timeouts_in_seconds: bool,
    /// Sends the reasons of failures to all Gearman clients, not only to those that request them.
    pub exceptions: bool,
    /// Settings that concern HTTP only.
    pub http: http::HttpSettings,
    /// The extensions of the beanstalk protocol that clients can use.
    pub extensions: beanstalk::Extensions,
    /// The size in bytes at which the reply to a batch ends, as [`crate::Config::max_output`].
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

/// Data about the process that never change.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub pid: u32,
    pub version: String,
    /// Sixteen hexadecimal digits that identify this process; not readable as a number.
    pub id: String,
    /// The network name of the machine.
    pub hostname: String,
    /// The prefix of Gearman's job handles, up to the last colon.
    pub handle_prefix: Box<[u8]>,
    pub os: String,
    pub platform: String,
    pub started: Time,
    /// The maximum size of a body, in bytes.
    pub max_job_size: u32,
    pub max_connections: usize,
    pub max_files: usize,
}

/// Data about the process that change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// CPU time in user mode, in microseconds.
    pub user_micros: u64,
    /// CPU time in kernel mode, in microseconds.
    pub system_micros: u64,
    /// The number of connections refused because there were too many.
    pub rejected_connections: u64,
    /// Resident memory in bytes, when last measured; zero if never.
    pub resident: u64,
    /// The number of open files, when last counted; zero if never.
    pub open_files: u64,
    pub failed_auths: u64,
    /// The number of connections dropped because memory was low.
    pub dropped_connections: u64,
}

/// Latencies that the server measures, if it does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Latencies {
    pub turns: Option<Histogram>,
    pub syncs: Option<Histogram>,
}

/// The process around the protocols.
pub trait Host: Send + Sync {
    fn facts(&self) -> &Facts;
    /// Measures; called only if a reply needs the data.
    fn usage(&self) -> Usage;
    /// Like [`Host::usage`], called only if a reply needs the data.
    fn latencies(&self) -> Latencies {
        Latencies::default()
    }
    /// Returns the server's role in its cluster, if it has one.
    fn role(&self) -> Option<RoleFigures> {
        None
    }
}

pub trait Peers {
    /// Returns the address of a client, as text.
    fn address(&self, client: ClientId) -> Option<String>;
}

/// Clients without addresses, for tests.
impl Peers for () {
    fn address(&self, _: ClientId) -> Option<String> {
        None
    }
}

/// The environment of a command. The server creates it with the engine locked.
pub struct Context<'a> {
    pub engine: &'a mut Engine,
    pub counters: &'a mut CommandCounters,
    pub registry: &'a mut ClientRegistry,
    pub settings: &'a ProtocolSettings,
    pub host: &'a dyn Host,
    pub peers: &'a dyn Peers,
    /// The figures of the log, if there is one.
    pub log: Option<LogFigures>,
    /// The rights of the client; `None` if everyone may do everything.
    pub access: Option<&'a mut ClientAccess>,
    /// The time of the command, which never decreases.
    pub now: Time,
    pub client: ClientId,
    /// The client has half-closed its connection, so it must not wait any longer.
    pub half_closed: bool,
    /// The input of the turn, which contains the bodies of some requests.
    pub input: &'a [u8],
}

impl<'a> Context<'a> {
    /// Returns a context without a log or an access file, for a client that may wait.
    pub fn plain(
        engine: &'a mut Engine,
        (counters, registry): (&'a mut CommandCounters, &'a mut ClientRegistry),
        (settings, host): (&'a ProtocolSettings, &'a dyn Host),
        client: ClientId,
        now: Time,
    ) -> Context<'a> {
        let (log, access, half_closed, input) = (None, None, false, &[]);
        let peers = &();
        Context { engine, counters, registry, settings, host, peers, log, access, now, client, half_closed, input }
    }

    /// Returns the engine's figures without HTTP clients, who are operators and not clients of the queue.
    pub fn stats(&self) -> Stats {
        let mut stats = self.engine.stats();
        stats.connections = stats.connections.saturating_sub(self.registry.count(Wire::Http));
        stats.total_connections = stats.total_connections.saturating_sub(self.registry.operators());
        stats
    }

    /// Returns the time for which the client waits if it requested `wait`: a half-closed client does not wait.
    pub fn effective_wait(&self, wait: Span) -> Span {
        if self.half_closed {
            Span::ZERO
        } else {
            wait
        }
    }

    /// Returns `true` if the client may see the jobs and figures of every tube.
    pub fn sees_all(&self) -> bool {
        self.access.as_ref().is_none_or(|access| access.sees_all())
    }
}

/// The parts of a command that appear in the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogSubject {
    pub id: Option<u64>,
    pub tube: Option<Vec<u8>>,
    /// `true` if the command concerns the tube that the client uses, unless `tube` is set.
    pub uses_tube: bool,
    /// The size of the body, in bytes.
    pub size: Option<usize>,
    /// The other arguments of the command with their names; times are in seconds.
    pub numbers: Vec<(&'static str, u64)>,
}

impl LogSubject {
    /// Converts the subject of a permission check: of two tubes the first, of many none.
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

/// A decoded command, and the ID under which it is counted; `None` if it is invalid.
type Decoded<C> = (Option<CommandId>, C);

trait ProtocolCommand {
    /// Returns the tubes and jobs that the command concerns.
    fn subject(&self, context: &Context) -> guard::Subject<'_>;

    /// Returns the rights that the command requires if it is counted under `id`.
    fn need(&self, id: Option<CommandId>) -> Need {
        id.map_or(Need::OPEN, |id| id.entry().need)
    }

    /// Checks whether the client may execute the command, counted under `id`; the names up to `from` have been checked.
    fn check(&self, id: Option<CommandId>, from: &mut usize, context: &mut Context) -> guard::Decision
    where
        Self: Sized,
    {
        guard::check(self, id, from, context)
    }

    /// Appends the refusal of a command for which the client has no permission.
    fn deny(&self, denied: Denied, out: &mut Output) -> Flow;

    /// Returns `true` if the command may have records in the log.
    fn is_logged(&self) -> bool;

    /// Returns the memory in use besides the value itself, in bytes.
    fn footprint(&self) -> u64;

    /// Returns the parts of the command that appear in the log.
    fn log_subject(&self) -> LogSubject {
        LogSubject::default()
    }

    /// Returns the tags of the job to put, if it has any.
    fn tags(&self) -> Option<&Tags> {
        None
    }

    fn allows_anonymous(&self) -> bool {
        false
    }

    /// Returns the command to complete even if the client has disconnected, if there is one.
    fn into_operation(self) -> Option<LongCommand>
    where
        Self: Sized,
    {
        None
    }
}

/// Returns `true` if a client may see the jobs and figures of this tube.
pub fn sees(access: &Option<&mut ClientAccess>, tube: &[u8]) -> bool {
    access.as_ref().is_none_or(|access| access.sees(tube))
}

/// The action of the server after a command.
#[derive(Debug)]
pub enum Flow {
    /// Execute the next command of the client.
    Next,
    /// Wait for an event that ends the client's wait.
    Wait,
    /// Like `Wait`, but the wait also ends when the client sends anything.
    WaitForInput,
    /// Close the connection after its replies are sent.
    Close,
    /// Continue this request in another turn, before any other request of the client: it exceeds one turn.
    Continue(Box<Request>),
    /// Stop the server: immediately, or, if `graceful`, when no job is left.
    Stop { graceful: bool },
}

impl Flow {
    /// Returns the flow after a refused command: unauthenticated clients are disconnected.
    fn denied(denied: Denied) -> Flow {
        match denied {
            Denied::Unknown => Flow::Close,
            Denied::Forbidden => Flow::Next,
        }
    }
}

/// The server's limits that a decoder must know.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Computes the fingerprints of bodies that serve as unique IDs.
    pub fingerprints: Fingerprints,
    /// The maximum size of a body, in bytes.
    pub max_job_size: u32,
    pub extensions: beanstalk::Extensions,
    /// The memory available for arriving bodies, in bytes.
    pub room: u64,
    /// The maximum size of a packet from a Gearman client, in bytes without its header.
    pub max_packet: u32,
}

#[cfg(test)]
mod tests;
