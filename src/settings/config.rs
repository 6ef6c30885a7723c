//! The settings of a server, with their defaults, their limits, and the reasons for many limits.

use std::io;
use std::path::{Path, PathBuf};

use crate::binlog::{BinlogSettings, SyncMode};
pub use crate::protocol::beanstalk::Extensions;
pub use crate::protocol::gearman::MAX_PREFIX as MAX_HANDLE_PREFIX;
use crate::protocol::Wire;
use crate::shared::system;

/// The default address to listen on. Unlike the default of beanstalkd, this default is a loopback address: without an
/// access file, every client that can connect has all rights, so remote access must be enabled explicitly.
pub const DEFAULT_HOST: &str = "127.0.0.1";
/// The default port of the Gearman protocol.
pub const GEARMAN_PORT: u16 = 4730;
/// The upper limit on `max_job_size`, in bytes, as in beanstalkd.
pub const MAX_JOB_SIZE_CEILING: u32 = 1 << 30;

/// The number of open files that are reserved for listeners, pollers, the binlog, and [`LOCAL_CONNECTIONS`]. At most
/// half of the open-file limit is reserved.
pub const SPARE_FILES: usize = 64;

/// Connections for Unix sockets and loopback addresses beyond `max_connections`, so that an operator can connect.
pub const LOCAL_CONNECTIONS: usize = 8;
/// The minimum of `max_memory`, in bytes. A smaller queue could hardly store any jobs.
pub const MIN_MEMORY: u64 = 1 << 20;
/// The maximum default of `max_connections`, because each connection uses kernel memory.
pub const MAX_DEFAULT_CONNECTIONS: usize = 1_000_000;
/// The bytes charged for each connection, which cover up to 1024 bytes of unread replies.
pub const CONNECTION_COST: u64 = 1024;

/// An address to listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Address {
    /// A host name or IP address, and a port. `None` means the default host, or the port setting of the protocol.
    Tcp(Option<String>, Option<u16>),
    /// Like `Tcp`, but clients must use TLS.
    Tls(Option<String>, Option<u16>),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The PEM files for TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The server's certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities that sign client certificates. If set, clients must present a certificate.
    pub client_authority: Option<PathBuf>,
}

impl TlsFiles {
    /// Returns the settings of a server that does not require client certificates.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsFiles {
        TlsFiles { certificate: certificate.into(), key: key.into(), client_authority: None }
    }
}

#[doc(hidden)]
/// The destination of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogTarget {
    Stderr,
    File(PathBuf),
    Syslog,
    Nowhere,
}

/// TCP keepalive, which closes a connection if the peer acknowledges nothing for `idle + interval * count` seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Keepalive {
    /// Seconds of silence before the first probe, at most 32767. 0 disables probes.
    pub idle: u32,
    /// Seconds between two probes, from 1 to 32767.
    pub interval: u32,
    /// The number of unanswered probes after which the connection is closed, from 1 to 127.
    pub count: u32,
}

/// The settings of a server. [`Config::default`] returns the defaults of the program, [`Config::embedded`] returns the
/// defaults for tests, and [`Config::with`] changes individual settings.
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
    /// Addresses to listen on for Gearman clients.
    pub gearman: Vec<Address>,
    /// Addresses to listen on for Workq clients.
    pub workq: Vec<Address>,
    /// The port for addresses in `gearman` that specify no port. 0 means any free port.
    pub gearman_port: u16,
    /// The port for addresses in `workq` that specify no port. 0 means any free port.
    pub workq_port: u16,
    /// Addresses to listen on for HTTP.
    pub http: Vec<Address>,
    /// The port for addresses in `http` that specify no port. 0 means any free port.
    pub http_port: u16,
    /// A file whose first line is the token that HTTP clients must send. If `None`, only `access` can require tokens.
    pub http_token: Option<PathBuf>,
    /// Settings of individual protocols, such as the maximum size of a Gearman packet.
    pub protocols: crate::protocol::ProtocolSettings,
    /// Stops the server when no ready, delayed or reserved jobs are left after a call to [`crate::Server::drain`].
    pub ends_when_drained: bool,
    /// The prefix of Gearman job handles. `None` means `H:` and the host name.
    pub handle_prefix: Option<String>,
    /// The maximum number of tries of a Gearman job whose workers disconnect, at least 1. `None` means no limit.
    pub job_retries: Option<u32>,
    /// The maximum lease of a Workq job without a time to run, in seconds. A job whose lease expires is ready again.
    pub lease_limit: u32,
    /// The number of sleeping Gearman workers that a new job wakes. 0 means all.
    pub worker_wakeup: u32,
    /// The port for addresses in `listen` that specify no port. 0 means any free port.
    pub port: u16,
    /// The mode of Unix socket files, such as `0o666`.
    pub socket_mode: u32,
    /// The access file, described in beanpole-access(7). `None` means that every client has all rights.
    pub access: Option<PathBuf>,
    /// A file with the settings of tubes, which is read at startup and by [`Server::reload`](crate::Server::reload).
    pub tubes: Option<PathBuf>,
    /// The PEM files for addresses with TLS.
    pub tls: Option<TlsFiles>,
    /// The user to switch to after the addresses are bound: a name, a number, or `UID:GID`.
    pub user: Option<String>,
    /// The number of threads that serve connections, at least 1.
    pub threads: usize,
    /// The directory of the binlog. `None` means that jobs exist only in memory.
    pub log_folder: Option<PathBuf>,
    /// The segment size and the sync mode of the binlog, and the treatment of damaged records.
    pub log: BinlogSettings,
    #[doc(hidden)]
    /// In a cluster, the lease that permits the server to reply to clients.
    pub lease: std::sync::Arc<crate::shared::role::Lease>,
    #[doc(hidden)]
    /// In a cluster, the role of the server.
    pub role: Option<std::sync::Arc<crate::shared::role::RoleBoard>>,
    /// The maximum size of a body, in bytes.
    pub max_job_size: u32,
    /// The maximum number of connections. Additional clients receive an error and are disconnected.
    pub max_connections: usize,
    /// The maximum number of TCP connections from one IP address, at least 1. `None` means no limit. Additional clients
    /// receive an error, such as `OUT_OF_MEMORY`, and are disconnected.
    pub max_connections_per_address: Option<usize>,
    /// The number of seconds after which a client is disconnected if it neither sends nor reads anything. `None` means
    /// never. A client is exempt while it waits for a job or a result, or holds a job. A manual clock exempts all.
    pub idle_timeout: Option<u32>,
    /// The settings of TCP keepalive, for the detection of lost peers.
    pub keepalive: Keepalive,
    /// The limit, in bytes, on the memory of jobs, tubes, watches, the history, received commands and unread replies.
    /// At the limit, the server refuses commands that need more memory, does not read from clients with large buffers,
    /// and disconnects clients that do not read.
    pub max_memory: u64,
    /// The maximum size of a client's unread replies, in bytes. The server does not read from a client above the limit.
    pub max_output: usize,
    #[doc(hidden)]
    /// A function that gives some unused memory of the allocator back to the system, and returns `true` if no more is
    /// left. The server calls the function until then after clients have freed much memory, at most once a second
    /// unless they freed over 32 MiB or the process is too large.
    pub give_back: Option<fn() -> bool>,
    #[doc(hidden)]
    /// A function that returns the resident memory of the process in bytes. While the result exceeds `max_memory` plus
    /// a margin, the server refuses commands that need memory. `None` if only a part of the process is the server.
    pub resident: Option<fn() -> u64>,
    #[doc(hidden)]
    /// A function that prepares the binlog directory. Runs as the user `user`, before the server opens the binlog.
    pub prepare_log: Option<fn(&Path) -> io::Result<()>>,
    #[doc(hidden)]
    /// The number of engine steps, about 0.1 µs each, after which a long command is interrupted to serve other
    /// connections. Tests use a small number to interrupt commands often.
    pub turn_steps: u64,
    /// The minimum duration, in milliseconds, at which a command or a wait for the binlog is logged. `None` disables
    /// the logging of slow commands.
    pub slow: Option<u32>,
    /// The maximum number of tubes. The limit prevents a program that creates tubes from exhausting the memory.
    pub max_tubes: usize,
    /// The maximum number of tubes that a client can watch. Each watched tube makes waiting for a job more expensive.
    pub max_watched: usize,
    /// The maximum number of ended and buried jobs in the history. 1000 jobs use about 150 kB. The history never uses
    /// more than a sixteenth of `max_memory`.
    pub history: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: vec![Address::Tcp(None, None)],
            gearman: Vec::new(),
            workq: Vec::new(),
            gearman_port: GEARMAN_PORT,
            workq_port: 9922,
            http: Vec::new(),
            http_port: 11380,
            http_token: None,
            protocols: crate::protocol::ProtocolSettings::default(),
            ends_when_drained: false,
            handle_prefix: None,
            job_retries: None,
            lease_limit: 3600,
            worker_wakeup: 1,
            port: 11300,
            socket_mode: 0o666,
            access: None,
            tubes: None,
            tls: None,
            user: None,
            threads: (std::thread::available_parallelism().map_or(1, usize::from) / 2).clamp(1, 4),
            log_folder: None,
            // The segment size and the sync mode are the defaults of beanstalkd.
            log: BinlogSettings { segment_size: 10_485_760, mode: SyncMode::Every(50), strict: false },
            lease: std::sync::Arc::default(),
            role: None,
            max_job_size: 65_535,
            max_connections: connection_limit(system::file_limit()).min(MAX_DEFAULT_CONNECTIONS),
            max_connections_per_address: None,
            idle_timeout: None,
            keepalive: Keepalive { idle: 60, interval: 10, count: 3 },
            // Connections, the allocator and other processes need the rest.
            max_memory: system::memory() / 4 * 3,
            max_output: 1 << 20,
            give_back: None,
            resident: None,
            prepare_log: None,
            turn_steps: 1024,
            slow: None,
            max_tubes: 1_000_000,
            max_watched: 100_000,
            history: 1000,
        }
    }
}

impl Config {
    /// Returns the settings of a server that runs inside a program or test and listens on a free loopback port.
    pub fn embedded() -> Config {
        Config { port: 0, gearman_port: 0, workq_port: 0, http_port: 0, ..Config::default() }
    }

    /// Applies `change` to the settings, and returns the settings.
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Config {
        change(&mut self);
        self
    }

    /// Returns the addresses to listen on by protocol, each with the port to use if the address specifies no port.
    #[doc(hidden)]
    pub fn places(&self) -> impl Iterator<Item = (Wire, &Address, u16)> {
        let all = [
            (Wire::Beanstalk, &self.listen, self.port),
            (Wire::Gearman, &self.gearman, self.gearman_port),
            (Wire::Workq, &self.workq, self.workq_port),
            (Wire::Http, &self.http, self.http_port),
        ];
        all.into_iter().flat_map(|(wire, places, port)| places.iter().map(move |address| (wire, address, port)))
    }
}

/// Returns the maximum number of connections if the process can open `files` files, some of which are reserved.
pub fn connection_limit(files: usize) -> usize {
    files.saturating_sub(SPARE_FILES.min(files / 2)).max(1)
}

/// Returns [`LOCAL_CONNECTIONS`], or fewer if the number of `files` that the process can open is small.
pub fn local_connections(files: usize) -> usize {
    LOCAL_CONNECTIONS.min(files / 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_are_always_reserved() {
        assert_eq!((connection_limit(1024), local_connections(1024)), (1024 - SPARE_FILES, LOCAL_CONNECTIONS));
        assert_eq!((connection_limit(100), local_connections(100)), (50, 6));
        assert_eq!((connection_limit(20), local_connections(20)), (10, 1));
        assert_eq!((connection_limit(0), local_connections(0)), (1, 0));
        assert!(Config::default().max_connections <= MAX_DEFAULT_CONNECTIONS);
    }
}
