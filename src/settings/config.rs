//! What a server is told to do, and every limit with its reason.
//!
//! Owns the defaults. Must not read a command line; that is the options' business.

use std::path::PathBuf;

use crate::binlog::{BinlogSettings, SyncMode};
pub use crate::protocol::beanstalk::Extensions;
use crate::shared::machine;

/// Where to listen unless told otherwise: on this machine only. beanstalkd listens on all its addresses; without a
/// password in the protocol, nobody should be let in unasked.
pub const DEFAULT_HOST: &str = "127.0.0.1";

/// The port of the beanstalk protocol.
pub const DEFAULT_PORT: u16 = 11300;

/// The port of the Gearman protocol.
pub const GEARMAN_PORT: u16 = 4730;

/// The longest prefix of the handles of Gearman's jobs, in bytes.
pub const MAX_HANDLE_PREFIX: usize = crate::protocol::gearman::MAX_PREFIX;

/// The port of the Workq protocol.
pub const WORKQ_PORT: u16 = 9922;

/// The port of HTTP, for operators.
pub const HTTP_PORT: u16 = 11380;

/// Bodies are taken up to this size unless told otherwise; beanstalkd's figure, which clients know.
pub const DEFAULT_MAX_JOB_SIZE: u32 = 65_535;

/// No body may be larger than this, whatever the option says; beanstalkd's figure.
pub const MAX_JOB_SIZE_CEILING: u32 = 1 << 30;

/// The size of a segment of the log; beanstalkd's figure for its files.
pub const DEFAULT_SEGMENT_SIZE: u64 = 10_485_760;

/// How long a write may go unsynced; beanstalkd's figure.
pub const DEFAULT_SYNC_MILLIS: u64 = 50;

/// Files kept back from connections: listeners, pollers, the log, a library's short needs, and [`LOCAL_CONNECTIONS`].
/// If the limit is so low that this would be more than half of it, half is kept back.
pub const SPARE_FILES: usize = 64;

/// Connections beyond `max_connections` that are kept for Unix sockets and for peers at a loopback address, so that an
/// operator can look when others have taken all. They come out of [`SPARE_FILES`].
pub const LOCAL_CONNECTIONS: usize = 8;

/// The least that `max_memory` may be, in bytes: less is a typing error, since no queue can work in it.
pub const LEAST_MEMORY: u64 = 1 << 20;

/// More connections than this are not held by default, even if the system would: each costs memory in the kernel.
pub const MAX_DEFAULT_CONNECTIONS: usize = 1_000_000;

/// The part of the memory at hand that jobs and tubes may take by default. The rest is for connections, the allocator's
/// waste and the neighbours; the kernel would end the whole process, which is worse than refusing one job.
pub const MEMORY_SHARE: (u64, u64) = (3, 4);

/// Bytes of account of a connection, and bytes of output that it may have beside that without being counted for more.
pub const CONNECTION_COST: u64 = 1024;

/// An address to listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Address {
    /// A host name or number, or none for the default, and a port if it has its own.
    Tcp(Option<String>, Option<u16>),
    /// The same as for `Tcp`, with TLS.
    Tls(Option<String>, Option<u16>),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The files that TLS needs, all in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The server's certificate, and behind it those that lead to an authority.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities that sign the certificates of clients, which must show one then.
    pub client_authority: Option<PathBuf>,
}

impl TlsFiles {
    /// A certificate with its key. Clients need no certificate.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsFiles {
        TlsFiles { certificate: certificate.into(), key: key.into(), client_authority: None }
    }
}

/// When the system asks whether a silent TCP peer is still there, and gives it up. A peer is gone that has acknowledged
/// nothing for `idle + interval * count` seconds, whether it was silent or owes the acknowledgement of replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// Seconds of silence before the first probe, at most 32767; with 0, no peer is ever asked.
    pub idle: u32,
    /// Seconds between probes, 1 to 32767.
    pub interval: u32,
    /// Probes without an answer after which the peer is gone, 1 to 127.
    pub count: u32,
}

/// What a server is told to do. [`Config::default`] has beanstalkd's defaults, [`Config::embedded`] suits tests.
///
/// ```
/// use beanpole::{Config, Server};
///
/// let config = Config::embedded().with(|config| {
///     config.max_memory = 64 << 20;
///     config.max_job_size = 1 << 20;
/// });
/// let server = Server::with(config)?;
/// assert_ne!(server.address().port(), 0);
/// # Ok::<(), beanpole::StartError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Addresses to listen on for beanstalk clients.
    pub listen: Vec<Address>,
    /// Where to listen for Gearman's clients.
    pub gearman: Vec<Address>,
    /// Where to listen for Workq's clients.
    pub workq: Vec<Address>,
    /// The TCP port for addresses of theirs that have none of their own; 0 lets the system choose.
    pub gearman_port: u16,
    /// The TCP port for addresses in `workq` that have none of their own; 0 lets the system choose.
    pub workq_port: u16,
    /// Where to listen for HTTP, for operators.
    pub http: Vec<Address>,
    /// The TCP port for addresses of those that have none of their own.
    pub http_port: u16,
    /// A file whose first line is the token that operators must show.
    pub http_token: Option<PathBuf>,
    /// What the protocols are told to do.
    pub protocols: crate::protocol::ProtocolSettings,
    /// After [`crate::Server::drain`], the server stops when no job is left.
    pub ends_when_drained: bool,
    /// What the handles of Gearman's jobs begin with, instead of `H:` and the name of the host.
    pub handle_prefix: Option<String>,
    /// How often a Gearman job is tried in all when its workers are lost, at least once; none: without end.
    pub job_retries: Option<u32>,
    /// How long the lease of a job lasts that has no time to run, in seconds: nobody notices that its worker is dead.
    pub lease_limit: u32,
    /// Sleeping Gearman workers that are woken for a job; zero: all.
    pub worker_wakeup: u32,
    /// The TCP port for addresses that have none of their own; 0 lets the system choose.
    pub port: u16,
    /// The mode of Unix socket files.
    pub socket_mode: u32,
    /// The file that says who may do what; without one, everybody who can connect may do everything.
    pub access: Option<PathBuf>,
    /// The file with the settings of tubes, which is read at the start and by
    /// [`Server::reload`](crate::Server::reload).
    pub tubes: Option<PathBuf>,
    /// The certificate of addresses with TLS; they need one.
    pub tls: Option<TlsFiles>,
    /// The user to become once the addresses are bound.
    pub user: Option<String>,
    /// Threads that serve connections, at least 1.
    pub threads: usize,
    /// The folder of the log; without one, jobs live in memory only.
    pub log_folder: Option<PathBuf>,
    /// How the log is kept.
    pub log: BinlogSettings,
    #[doc(hidden)]
    /// Until when clients may be answered, if another server may take this one's place.
    pub lease: std::sync::Arc<crate::shared::lease::Lease>,
    #[doc(hidden)]
    /// What it tells of its part, if it is one of several servers.
    pub role: Option<std::sync::Arc<crate::shared::role::RoleBoard>>,
    /// Largest body that is taken, in bytes.
    pub max_job_size: u32,
    /// Connections held at a time. One more is told OUT_OF_MEMORY and closed: an answer beats a silent queue.
    pub max_connections: usize,
    /// TCP connections held at a time from one address, at least 1, if that is limited; more are refused in the same
    /// way.
    pub max_connections_per_address: Option<usize>,
    /// How long a client may say nothing and read nothing before it is dropped, in seconds; none: without end. It does
    /// not concern clients that wait or hold jobs, and nobody is dropped by a clock that is moved by hand.
    pub idle_timeout: Option<u32>,
    /// How TCP peers are noticed that are gone.
    pub keepalive: Keepalive,
    /// Bytes that all that clients cause may take: jobs, tubes, watches, what they have sent and not read. Beyond it,
    /// clients with much of that are not read, what asks for more is refused, and who does not read is dropped.
    pub max_memory: u64,
    /// Bytes of replies that may wait for one client; a client with more is not read until it has read them.
    pub max_output: usize,
    #[doc(hidden)]
    /// Called when clients have given back much memory, at most once a second: lets go of what the allocator keeps.
    /// None if it needs no such word, or the program has its own ways.
    pub give_back: Option<fn()>,
    #[doc(hidden)]
    /// Tells how many bytes of memory the process has, if they are all the server's: beyond `max_memory` and a little
    /// more, what asks for more is refused whatever the account says. None in a process that has others' memory.
    pub resident: Option<fn() -> u64>,
    #[doc(hidden)]
    /// Steps of the engine in one turn, about 0.1 µs each, before other connections have theirs; few in tests, so that
    /// all that may take several turns does.
    pub turn_steps: u64,
    /// Milliseconds from which a turn of a client's commands, or its wait for the log, is told of in the log; none:
    /// never.
    pub slow: Option<u32>,
    /// Tubes at a time; a stray program that makes up names would otherwise eat the memory of jobs.
    pub max_tubes: usize,
    /// Tubes that one client may watch; each costs time whenever it waits for a job.
    pub max_watched: usize,
}

impl Default for Config {
    fn default() -> Config {
        let (share, whole) = MEMORY_SHARE;
        Config {
            listen: vec![Address::Tcp(None, None)],
            gearman: Vec::new(),
            workq: Vec::new(),
            gearman_port: GEARMAN_PORT,
            workq_port: WORKQ_PORT,
            http: Vec::new(),
            http_port: HTTP_PORT,
            http_token: None,
            protocols: crate::protocol::ProtocolSettings::default(),
            ends_when_drained: false,
            handle_prefix: None,
            job_retries: None,
            lease_limit: 3600,
            worker_wakeup: 1,
            port: DEFAULT_PORT,
            socket_mode: 0o666,
            access: None,
            tubes: None,
            tls: None,
            user: None,
            threads: (machine::cpus() / 2).clamp(1, 4),
            log_folder: None,
            log: BinlogSettings {
                segment_size: DEFAULT_SEGMENT_SIZE,
                mode: SyncMode::Every(DEFAULT_SYNC_MILLIS),
                strict: false,
            },
            lease: std::sync::Arc::default(),
            role: None,
            max_job_size: DEFAULT_MAX_JOB_SIZE,
            max_connections: most_connections(machine::file_limit()).min(MAX_DEFAULT_CONNECTIONS),
            max_connections_per_address: None,
            idle_timeout: None,
            keepalive: Keepalive { idle: 60, interval: 10, count: 3 },
            max_memory: machine::memory() / whole * share,
            max_output: 1 << 20,
            give_back: None,
            resident: None,
            turn_steps: 1024,
            slow: None,
            max_tubes: 1_000_000,
            max_watched: 100_000,
        }
    }
}

impl Config {
    /// For a server inside a program or test: on a free port of this machine.
    pub fn embedded() -> Config {
        Config { port: 0, gearman_port: 0, workq_port: 0, http_port: 0, ..Config::default() }
    }

    /// Returns these settings after a change to some of them.
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Config {
        change(&mut self);
        self
    }
}

/// Connections that so many open files leave room for. More could not be told that they are too many, and would take
/// the files that the log needs.
pub fn most_connections(files: usize) -> usize {
    files.saturating_sub(SPARE_FILES.min(files / 2)).max(1)
}

/// Of [`LOCAL_CONNECTIONS`], as many as the limit of open files leaves room for.
pub fn local_connections() -> usize {
    local_connections_of(machine::file_limit())
}

fn local_connections_of(files: usize) -> usize {
    LOCAL_CONNECTIONS.min(files / 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_are_always_kept_back() {
        assert_eq!((most_connections(1024), local_connections_of(1024)), (1024 - SPARE_FILES, LOCAL_CONNECTIONS));
        assert_eq!((most_connections(100), local_connections_of(100)), (50, 6));
        assert_eq!((most_connections(20), local_connections_of(20)), (10, 1));
        assert_eq!((most_connections(0), local_connections_of(0)), (1, 0));
        assert!(Config::default().max_connections <= MAX_DEFAULT_CONNECTIONS);
    }
}
