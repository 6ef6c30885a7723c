//! The protocols: bytes to verbs of the engine, and its answers to bytes.
//!
//! Owns everything about wires and nothing about queues. Each protocol is incremental (it takes whatever bytes have
//! arrived), never blocks, and no input can make it panic. Must not know sockets, threads, locks or the clock: the
//! server brings bytes in and out and says what time it is.

// What a peer sends is never a reason to stop: each exception has its proof.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod buffer;
mod client_registry;
mod connections;
mod counters;
mod dialogue;
mod guard;
#[cfg(test)]
mod pieces;
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
pub use counters::{CommandCounters, CommandPlace};
pub use dialogue::{hang_up, tell, Begun, Dialogue, Request};
pub use guard::needs;

use crate::access::ClientAccess;
use crate::engine::{ClientId, Engine, Fingerprints, Histogram, Span, Stats, Time};
use crate::shared::log_figures::LogFigures;
use crate::shared::role::RoleFigures;

/// The protocol that the clients of a listener speak.
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

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Wire::Beanstalk => "beanstalk",
            Wire::Gearman => "gearman",
            Wire::Workq => "workq",
            Wire::Http => "http",
        }
    }
}

/// Settings of the protocols.
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
    /// Settings of HTTP.
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

/// What the protocols tell about the process that they run in, and the engine cannot know.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub pid: u32,
    pub version: String,
    /// Sixteen hexadecimal digits that tell this process from every other; not readable as a number.
    pub id: String,
    /// Network name of the machine.
    pub hostname: String,
    /// What the handles of Gearman's jobs begin with, up to the last colon.
    pub handle_prefix: Box<[u8]>,
    /// Version of the operating system.
    pub os: String,
    pub platform: String,
    /// When the server was started.
    pub started: Time,
    /// Largest body that is taken, in bytes.
    pub max_job_size: u32,
    /// How many connections are held at a time.
    pub max_connections: usize,
    /// How many files the process may have open.
    pub max_files: usize,
}

/// What changes while the process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// CPU time spent in the program, in microseconds.
    pub user_micros: u64,
    /// CPU time spent in the kernel for it, in microseconds.
    pub system_micros: u64,
    /// Connections turned away because there were too many.
    pub rejected_connections: u64,
    /// Resident memory in bytes, as it was read last; zero if never.
    pub resident: u64,
    /// Open files, as they were counted last; zero if never.
    pub open_files: u64,
    pub failed_auths: u64,
    /// Connections dropped because memory was short.
    pub dropped_connections: u64,
}

/// How long things take that the engine does not measure; none if nobody wants to know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Latencies {
    pub turns: Option<Histogram>,
    pub syncs: Option<Histogram>,
}

/// The process around the protocols.
pub trait Host: Send + Sync {
    /// Facts that never change while the process runs.
    fn facts(&self) -> &Facts;
    /// What does; asked for only when a client wants to know.
    fn usage(&self) -> Usage;
    /// How long things take; asked for as seldom.
    fn latencies(&self) -> Latencies {
        Latencies::default()
    }
    /// Its part, if it is one of several.
    fn role(&self) -> Option<RoleFigures> {
        None
    }
}

/// Where clients come from.
pub trait Peers {
    /// The address of a client, in words.
    fn address(&self, client: ClientId) -> Option<String>;
}

/// Nobody comes from anywhere.
impl Peers for () {
    fn address(&self, _: ClientId) -> Option<String> {
        None
    }
}

/// Everything a command may touch. Put together by the server under its lock.
pub struct Context<'a> {
    pub engine: &'a mut Engine,
    /// How often each command was given.
    pub counters: &'a mut CommandCounters,
    pub registry: &'a mut ClientRegistry,
    /// What the protocols are told to do.
    pub settings: &'a ProtocolSettings,
    pub host: &'a dyn Host,
    pub peers: &'a dyn Peers,
    /// The log, if there is one.
    pub log: Option<LogFigures>,
    /// What the client may do; none if everybody may do everything.
    pub access: Option<&'a mut ClientAccess>,
    /// The time of the command, which never goes back.
    pub now: Time,
    /// The client that gives the command.
    pub client: ClientId,
    /// The client has shut down its sending side, so it can be made to wait no more.
    pub half_closed: bool,
    /// The input of the turn, which the bodies of some requests are part of.
    pub input: &'a [u8],
}

impl<'a> Context<'a> {
    /// Without a log or an access file, of a client that can be made to wait.
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

    /// The engine's figures without the clients of HTTP, who are operators and no clients of the queue.
    pub fn stats(&self) -> Stats {
        let mut stats = self.engine.stats();
        stats.connections = stats.connections.saturating_sub(self.registry.count(Wire::Http));
        stats.total_connections = stats.total_connections.saturating_sub(self.registry.operators());
        stats
    }

    /// How long the client waits that wants to wait so long: a half-closed one is not made to.
    pub fn patience(&self, wait: Span) -> Span {
        if self.half_closed {
            Span::ZERO
        } else {
            wait
        }
    }

    /// Whether the client may see the jobs and figures of every tube.
    pub fn sees_all(&self) -> bool {
        self.access.as_ref().is_none_or(|access| access.sees_all())
    }
}

/// What a request is about, for the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogSubject {
    /// The number of a job.
    pub id: Option<u64>,
    /// The name of a tube.
    pub tube: Option<Vec<u8>>,
    /// It is about the tube that the client uses, if it names none.
    pub uses_tube: bool,
    /// Bytes of the body that came with it.
    pub size: Option<usize>,
    /// The other arguments of the command, by their names; times in seconds.
    pub numbers: Vec<(&'static str, u64)>,
}

impl LogSubject {
    /// What a guard looks at: of two tubes the first, of many nothing.
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

/// Whether a client may see the jobs and figures of this tube.
pub fn sees(access: &Option<&mut ClientAccess>, tube: &[u8]) -> bool {
    access.as_ref().is_none_or(|access| access.sees(tube))
}

/// What happens after a command.
#[derive(Debug)]
pub enum Flow {
    /// Carry out the next command.
    Next,
    /// Nothing, until an event ends the client's wait.
    Wait,
    /// The same, but the wait also ends when the client sends anything.
    WaitForInput,
    /// Close the connection when its replies are sent.
    Close,
    /// Carry out this request again in another turn, before any other of this client: it was too much for one.
    Continue(Box<Begun>),
    /// The server stops: at once, or when no job is left.
    Stop {
        /// When no job is left.
        graceful: bool,
    },
}

impl Flow {
    /// Carries out a request again, which remembers its progress.
    fn again(request: Request) -> Flow {
        Flow::Continue(Box::new(Begun { request, unchecked: None }))
    }
}

/// What a decoder must know of the server while it reads.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Takes the fingerprints of bodies that are told apart by them.
    pub fingerprints: Fingerprints,
    /// Largest body that is taken, in bytes.
    pub max_job_size: u32,
    /// What beanstalk's clients are offered beyond beanstalkd.
    pub extensions: beanstalk::Extensions,
    /// Bytes that are left for bodies still to come, by the account of memory.
    pub room: u64,
    /// Largest packet that a Gearman client may send, in bytes beside its header.
    pub max_packet: u32,
}

#[cfg(test)]
mod tests;
