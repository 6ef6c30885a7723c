//! The server: sockets, threads, locks and a clock around the engine. Must not implement commands or queue rules.

mod admission;
mod alarm;
mod background;
mod clock;
mod connection;
mod delivery;
mod durability;
mod embedded;
mod gate;
mod hub;
mod hub_memory;
mod listener;
mod memory;
mod pool;
mod reports;
mod running;
#[allow(missing_docs)]
mod socket;
mod space;
#[cfg(any(test, feature = "test-support"))]
#[path = "tests/stepped.rs"]
mod stepped;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod tube_file;

#[allow(missing_docs)]
pub mod host;
#[allow(missing_docs)]
pub mod log;
#[allow(missing_docs)]
pub mod signals;
#[allow(missing_docs)]
pub mod systemd;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clock::Clock;
pub use embedded::{JobInfo, JobTotals, ServerStats, TubeInfo};
use gate::Gate;
use hub::{Hub, ShutdownStage};
use running::Running;
use socket::Bound;
pub use socket::Listener;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub use stepped::Stepped;

use crate::access::Digest;
use crate::binlog::{Folder, OpenError, Storage};
use crate::engine::Span;
use crate::protocol::Wire;
use crate::settings::config::{Address, Config};
use crate::shared::files;
use crate::shared::lock_order::{Mutex, SERVER};
use crate::shared::system;

/// An error that prevented a server from starting.
#[derive(Debug)]
#[non_exhaustive]
pub struct StartError {
    /// The exit code, which is that of beanstalkd if beanstalkd has a code for this error.
    pub code: u8,
    message: String,
}

impl std::fmt::Display for StartError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for StartError {}

/// The number of descriptors for files that are opened after startup, by the binlog and by reloads.
const LOG_DESCRIPTORS: usize = 8;

/// The maximum number of attempts to count descriptors not used by connections. New connections can distort a count.
const COUNTS: usize = 20;
const COUNT_AGAIN: Duration = Duration::from_millis(5);

/// The maximum number of pauses in which the pool threads replace the access table of all connections.
const RENEWALS: usize = 200;

impl StartError {
    fn address(name: &str, wire: Wire, error: &io::Error) -> StartError {
        let is_unix = name.starts_with("unix:");
        let another = match wire {
            Wire::Beanstalk if is_unix => "-l ADDR".to_owned(),
            Wire::Beanstalk => "-p PORT or -l ADDR".to_owned(),
            other => format!("--{}=ADDR:PORT", other.name()),
        };
        let hint = match error.kind() {
            ErrorKind::AddrInUse => format!("; choose another with {another}, or end what listens there"),
            ErrorKind::PermissionDenied if !is_unix => "; ports below 1024 need root: run as root with -u USER".into(),
            ErrorKind::AddrNotAvailable if error.get_ref().is_none() => "; no interface has this address (yet)".into(),
            _ => String::new(),
        };
        // EX_TEMPFAIL of sysexits(3): a later start with the same settings may succeed.
        let code = if error.kind() == ErrorKind::AddrNotAvailable { 75 } else { 111 };
        StartError { code, message: format!("cannot listen on {name}: {error}{hint}") }
    }

    fn log(folder: Option<&std::path::Path>, error: &OpenError) -> StartError {
        let name = folder.map_or("the binlog".to_owned(), |path| path.display().to_string());
        let code = if matches!(error, OpenError::Folder(_)) { 10 } else { 1 };
        StartError { code, message: format!("cannot keep a binlog in {name} (-b): {error}") }
    }

    fn settings(message: String) -> StartError {
        StartError { code: 1, message }
    }
}

/// A running server. Dropping the server stops it like [`Server::stop`]. A Gearman client can also stop the server if
/// `allow_shutdown` in [`Config::protocols`] is set. The program that contains the server continues to run.
///
/// ```
/// use beanpole::{Client, Server};
///
/// let server = Server::start()?;
/// let mut client = Client::connect(server.address())?;
/// let id = client.put(b"hello", 0, 0, 60)?;
/// let job = client.reserve(Some(1))?.expect("a job");
/// assert_eq!((job.id, job.body.as_slice()), (id, b"hello".as_slice()));
/// client.delete(id)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    hub: Arc<Hub>,
    places: Vec<ListenerInfo>,
    running: Arc<Mutex<Running, SERVER>>,
    /// Stops the server at a client's request, or when the queue becomes empty in drain mode.
    stopper: Option<JoinHandle<()>>,
}

struct ListenerInfo {
    name: String,
    address: Option<SocketAddr>,
    wire: Wire,
}

/// Controls the time of a server that was started with [`Server::with_manual_clock`].
///
/// ```
/// use beanpole::{Client, Config, Server};
/// use std::time::Duration;
///
/// let (server, clock) = Server::with_manual_clock(Config::embedded())?;
/// let mut client = Client::connect(server.address())?;
/// client.put(b"later", 0, 3600, 60)?;
/// assert!(client.reserve(Some(0))?.is_none());
/// clock.advance(Duration::from_secs(3600));
/// assert!(client.reserve(Some(0))?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ManualClock(Arc<Hub>);

impl std::fmt::Debug for ManualClock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.debug_struct("ManualClock").finish_non_exhaustive()
    }
}

impl ManualClock {
    /// Advances the time. Before returning, processes every deadline up to the new time, in order.
    pub fn advance(&self, time: Duration) {
        self.0.pass(Span::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    }
}

impl Server {
    /// Starts a server on a free port of 127.0.0.1, for use inside a program or test.
    pub fn start() -> Result<Server, StartError> {
        Server::with(Config::embedded())
    }

    /// Starts a server on a Unix socket, for use inside a program or test.
    pub fn start_unix(path: impl Into<std::path::PathBuf>) -> Result<Server, StartError> {
        Server::with(Config { listen: vec![Address::Unix(path.into())], ..Config::embedded() })
    }

    /// Starts a server with the given configuration.
    pub fn with(config: Config) -> Result<Server, StartError> {
        Server::launch(config, Clock::system(), Vec::new(), None)
    }

    /// Starts a server whose log is in `storage`. In a cluster, the queue continues at the cluster's time.
    #[doc(hidden)]
    pub fn with_storage(config: Config, storage: Arc<dyn Storage>) -> Result<Server, StartError> {
        let clock = config.role.as_ref().map_or_else(Clock::system, |board| Clock::starting_at(board.queue_time()));
        let board = config.role.clone();
        let server = Server::launch(config, clock, Vec::new(), Some(storage))?;
        board.iter().for_each(|board| board.set_time(server.hub.clock.now().nanos() / 1_000_000));
        Ok(server)
    }

    /// Starts a server for beanstalk clients on `inherited`, or on the configured addresses if `inherited` is empty.
    #[doc(hidden)]
    pub fn with_inherited(config: Config, inherited: Vec<Listener>) -> Result<Server, StartError> {
        Server::launch(config, Clock::system(), inherited, None)
    }

    /// Starts a server whose time changes only when [`ManualClock::advance`] is called, so tests need not wait.
    ///
    /// Timeouts on this server do not expire by themselves: [`Client::reserve`](crate::Client::reserve) returns when a
    /// job is put or when another thread advances the clock. A single-threaded test must use the timeout `Some(0)`.
    pub fn with_manual_clock(config: Config) -> Result<(Server, ManualClock), StartError> {
        let server = Server::launch(config, Clock::manual(), Vec::new(), None)?;
        let clock = ManualClock(server.hub.clone());
        Ok((server, clock))
    }

    fn launch(
        mut config: Config,
        clock: Clock,
        inherited: Vec<Listener>,
        storage: Option<Arc<dyn Storage>>,
    ) -> Result<Server, StartError> {
        prepare_http(&mut config)?;
        let bound = bind_all(&config, inherited.is_empty())?;
        let folder = config.log_folder.clone();
        host::settle(config.user.as_deref(), folder.as_deref())
            .map_err(|(code, message)| StartError { code, message })?;
        if let (Some(prepare), Some(path)) = (config.prepare_log, &folder) {
            prepare(path).map_err(|error| StartError::log(Some(path), &OpenError::Folder(error)))?;
        }
        let storage = storage.or_else(|| folder.as_ref().map(|path| Arc::new(Folder::new(path)) as Arc<dyn Storage>));
        // Open the access file as the new user, because a reload must open the file as this user.
        let gate = config.access.as_deref().map(Gate::open).transpose().map_err(StartError::settings)?;
        #[cfg(feature = "tls")]
        let tls = config.tls.as_ref().map(tls::load).transpose().map_err(StartError::settings)?;
        let hub = Hub::new(config, clock, storage, gate, host::random());
        let hub = Arc::new(hub.map_err(|error| StartError::log(folder.as_deref(), &error))?);
        #[cfg(feature = "tls")]
        hub.tls.lock().clone_from(&tls);
        if let Some(tubes) = &hub.config.tubes {
            tube_file::apply(tubes, &hub).map_err(StartError::settings)?;
        }
        let is_inherited = !inherited.is_empty();
        let mut listeners = Vec::new();
        for listener in inherited {
            let prepared = listener.prepare(&hub.config.keepalive);
            prepared.map_err(|error| StartError::address(&listener.name(), Wire::Beanstalk, &error))?;
            listeners.push((listener, Wire::Beanstalk));
        }
        for (name, bound, wire) in bound {
            let listener = bound.listen(&hub.config.keepalive);
            let listener = listener.map_err(|error| StartError::address(&name, wire, &error))?;
            require_http_token(wire, &name, listener.local_address(), &hub.config)?;
            listeners.push((listener, wire));
        }
        let place = |(listener, wire): &(Listener, Wire)| ListenerInfo {
            name: listener.name(),
            address: listener.local_address(),
            wire: *wire,
        };
        let places = listeners.iter().map(place).collect();
        let running = Arc::new(Mutex::new(Running::new(hub.clone(), listeners, is_inherited)));
        let mut server = Server { hub, places, running, stopper: None };
        server.run().map_err(|error| StartError::settings(format!("cannot start: {error}")))?;
        let limit = system::file_limit();
        // A thread that waits in accept(2) has reserved a descriptor, which is not open yet.
        let spare = server.places.len() + if server.hub.log.is_some() { LOG_DESCRIPTORS } else { 1 };
        let mut needed = 0;
        for _ in 0..COUNTS {
            needed = system::open_files() as usize + spare;
            if server.hub.admission.keep_descriptors(needed, limit) {
                return Ok(server);
            }
            thread::sleep(COUNT_AGAIN);
        }
        Err(StartError::settings(format!(
            "{limit} open files are too few: the server needs at least {needed}, and each client needs one (ulimit -n)"
        )))
    }

    /// Checks that a server with this configuration could start: TCP addresses can be bound and files can be read.
    #[doc(hidden)]
    pub fn try_start(config: &Config) -> Result<(), StartError> {
        let mut config = config.clone();
        prepare_http(&mut config)?;
        let places = [&mut config.listen, &mut config.gearman, &mut config.workq, &mut config.http];
        // Binding a Unix socket would replace its file.
        places.into_iter().for_each(|places| places.retain(|address| !matches!(address, Address::Unix(_))));
        for (name, bound, wire) in bind_all(&config, true)? {
            require_http_token(wire, &name, bound.address(), &config)?;
        }
        config.access.as_deref().map(Gate::open).transpose().map_err(StartError::settings)?;
        #[cfg(feature = "tls")]
        config.tls.as_ref().map(tls::load).transpose().map_err(StartError::settings)?;
        config.tubes.as_deref().map(tube_file::read).transpose().map_err(StartError::settings)?;
        Ok(())
    }

    fn run(&mut self) -> io::Result<()> {
        self.running.lock().start()?;
        let config = &self.hub.config;
        if config.protocols.allow_shutdown || config.ends_when_drained {
            self.stopper = Some(running::stop_on_request(self.hub.clone(), self.running.clone())?);
        }
        Ok(())
    }

    /// Returns the address of the first TCP listener for beanstalk clients. Panics if there is no such listener.
    pub fn address(&self) -> SocketAddr {
        self.address_of(Wire::Beanstalk).expect("a server that listens on TCP")
    }

    /// Returns the address of the first TCP listener for the protocol `wire`, or `None` if there is no such listener.
    pub fn address_of(&self, wire: Wire) -> Option<SocketAddr> {
        self.places.iter().filter(|place| place.wire == wire).find_map(|place| place.address)
    }

    /// Returns the address of the first TCP listener of any protocol, or `None` if there are only Unix sockets.
    pub fn first_address(&self) -> Option<SocketAddr> {
        self.places.iter().find_map(|place| place.address)
    }

    /// Returns the names of all listeners, for messages.
    pub fn names(&self) -> Vec<String> {
        let name = |ListenerInfo { name, wire, .. }: &ListenerInfo| match wire {
            Wire::Beanstalk => name.clone(),
            Wire::Gearman => format!("{name} (Gearman)"),
            Wire::Workq => format!("{name} (Workq)"),
            Wire::Http if name.starts_with("unix:") => format!("{name} (HTTP)"),
            Wire::Http => {
                name.strip_prefix("tls:").map_or_else(|| format!("http://{name}/"), |it| format!("https://{it}/"))
            }
        };
        self.places.iter().map(name).collect()
    }

    /// Starts drain mode: until a client sends `undrain`, the server refuses new jobs but serves everything else.
    /// With [`Config::ends_when_drained`], the server stops when no ready, delayed or reserved jobs are left.
    pub fn drain(&self) {
        self.hub.drain();
    }

    /// Reloads the configured tube, access and certificate files. Existing connections keep their certificate. Clients
    /// that lose their name, their credential or a right are disconnected; others get their new rights soon afterwards.
    ///
    /// Returns a one-line error message on failure. If the certificate or access file is invalid, nothing changes. If
    /// the tube file is invalid, the other files, and possibly some of the tube settings, have already been applied.
    pub fn reload(&self) -> Result<(), String> {
        #[cfg(feature = "tls")]
        let tls = self.hub.config.tls.as_ref().map(tls::load).transpose()?;
        if let Some(gate) = &self.hub.gate {
            let [old, table] = gate.reload()?;
            self.running.lock().renew(&table);
            // The last thread that uses a table frees it, which is slow. Clients do not wait for this thread.
            (0..RENEWALS).take_while(|_| Arc::strong_count(&old) > 1).for_each(|_| thread::sleep(COUNT_AGAIN));
        }
        #[cfg(feature = "tls")]
        self.hub.tls.lock().clone_from(&tls);
        self.hub.config.tubes.as_ref().map_or(Ok(()), |tubes| tube_file::apply(tubes, &self.hub))
    }

    /// Stops the server unless it has already stopped. Closes the listeners, sends pending replies for at most one
    /// second, closes all connections, and then returns.
    pub fn stop(&self) {
        self.running.lock().stop();
    }

    /// Returns `true` if the server has stopped, for example because a client requested a shutdown.
    pub fn is_stopped(&self) -> bool {
        self.hub.shutdown.is_complete()
    }

    /// Waits until the server has stopped, for example because of a client's request or [`Server::stop`].
    pub fn wait(&self) {
        self.hub.shutdown.wait_for(ShutdownStage::Complete);
    }

    /// Waits until the server has accepted `connections` connections since startup and has processed all input that
    /// clients sent before this call. A test with a manual clock calls this function before it advances the clock.
    #[doc(hidden)]
    pub fn quiesce(&self, connections: u64) {
        self.running.lock().quiesce(connections);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.debug_struct("Server").field("listeners", &self.names()).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = self.stopper.take().map(JoinHandle::join);
    }
}

fn bind_all(config: &Config, beanstalk: bool) -> Result<Vec<(String, Bound, Wire)>, StartError> {
    let places = config.places().filter(|(wire, ..)| beanstalk || *wire != Wire::Beanstalk);
    let bind_one = |(wire, address, port)| {
        let (name, bound) = bind(address, port, config);
        let bound = bound.map_err(|error| StartError::address(&name, wire, &error))?;
        Ok((name, bound, wire))
    };
    places.map(bind_one).collect()
}

fn bind(address: &Address, port_otherwise: u16, config: &Config) -> (String, io::Result<Bound>) {
    match address {
        Address::Unix(path) => (format!("unix:{}", path.display()), Bound::unix(path, config.socket_mode)),
        Address::Tcp(host, port) | Address::Tls(host, port) => {
            let is_tls = matches!(address, Address::Tls(..));
            let host = host.as_deref().unwrap_or(crate::settings::config::DEFAULT_HOST);
            let port = port.unwrap_or(port_otherwise);
            let scheme = if is_tls { "tls:" } else { "" };
            let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
            (format!("{scheme}{name}"), bind_first((host, port), is_tls))
        }
    }
}

fn bind_first(name: (&str, u16), tls: bool) -> io::Result<Bound> {
    let mut failed = None;
    // During boot, name servers might not be reachable yet. The inner error prevents the hint about interfaces.
    let addresses = name.to_socket_addrs().map_err(|error| io::Error::new(ErrorKind::AddrNotAvailable, error))?;
    for address in addresses {
        match Bound::tcp(address, tls) {
            Ok(bound) => return Ok(bound),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into()))
}

/// The minimum length of a token, in bytes.
const MIN_HTTP_TOKEN: usize = 16;

/// Reads the HTTP token and collects the enabled protocols. Must be called before switching to another user.
fn prepare_http(config: &mut Config) -> Result<(), StartError> {
    let mut spoken = vec![Wire::Beanstalk];
    spoken.extend(config.places().map(|(wire, ..)| wire));
    spoken.dedup();
    config.protocols.http.spoken = spoken;
    let message = "--http-token cannot be used with --access, whose file has the tokens";
    ensure!(config.access.is_none() || config.http_token.is_none(), StartError::settings(message.to_owned()));
    let Some(path) = &config.http_token else { return Ok(()) };
    files::check_secret(path);
    let fail = |problem: String| StartError::settings(format!("{}: {problem}", path.display()));
    let text = files::read(path).map_err(|error| fail(format!("cannot read the token: {error}")))?;
    let text = String::from_utf8_lossy(&text);
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < MIN_HTTP_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let problem = format!("the first line must be a token of at least {MIN_HTTP_TOKEN} visible ASCII characters");
        return Err(fail(problem));
    }
    config.protocols.http.token = Some(Digest::of(token.as_bytes()));
    Ok(())
}

fn require_http_token(wire: Wire, name: &str, address: Option<SocketAddr>, config: &Config) -> Result<(), StartError> {
    let is_open = address.is_some_and(|address| !address.ip().is_loopback());
    let is_guarded = config.protocols.http.token.is_some() || config.access.is_some();
    let message = || format!("HTTP on {name} needs a token, since others can reach it: --http-token FILE");
    ensure!(wire != Wire::Http || !is_open || is_guarded, StartError::settings(message()));
    Ok(())
}
