//! A server in a cluster: standby, activation and restart. A server that must no longer reply replaces itself with a
//! new process, to close all connections and drop all state.

use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, os::unix::process::CommandExt, sync::Arc};

use beanpole::internals::cluster::{Active, Etcd, Node, Relay, Services, Step, HTTP};
use beanpole::internals::config::DEFAULT_HOST;
use beanpole::internals::options::{host_and_port, Cluster, Settings, BAD_USAGE};
use beanpole::internals::protocol::Wire;
use beanpole::internals::server::signals::StopRequests;
use beanpole::internals::server::{host, systemd};
use beanpole::internals::system;
use beanpole::{Address, Role, RoleBoard, Server, StartError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// The environment variable in which [`restart`] passes [`beanpole::RoleFigures::clock`] to the new process.
const CLOCK: &str = "BEANPOLE_CLOCK";

/// Returns `None` if a signal asks the process to exit. An error consists of an exit code and a message. A
/// standby ignores SIGHUP under a service manager, or if SIGHUP reloads files of an active server (`reloads`).
pub fn stand_by(
    cluster: &Cluster,
    settings: &Settings,
    (signals, stops): (&mut Signals, &StopRequests),
    reloads: bool,
) -> Result<Option<Active>, (u8, String)> {
    let no_folder = || (BAD_USAGE, "--journal needs a folder for this server's copy: -b DIR".to_owned());
    let folder = settings.config.log_folder.as_deref().ok_or_else(no_folder)?;
    // First, switch to the configured user, who must own the directory and create its files.
    host::settle(settings.config.user.as_deref(), Some(folder))?;
    // Detect problems before this server must become active.
    Server::try_start(&settings.config).map_err(|error| (error.code, error.to_string()))?;
    let is_beanstalk = |protocol: &str| protocol.trim_end_matches(WITH_TLS) == Wire::Beanstalk.name();
    let first = tcp_addresses(settings).into_iter().find(|(protocol, _)| is_beanstalk(protocol));
    let own = || first.map_or_else(|| host_and_port(DEFAULT_HOST, settings.config.port), |(_, address)| address);
    let address = cluster.advertise.clone().unwrap_or_else(own);
    let journal = Etcd::new(&cluster.location).map_err(|problem| (1, format!("--journal: {problem}")))?;
    let services = services(settings, cluster.advertise.as_deref());
    let mut node = Node::new(Arc::new(journal), folder, &cluster.node, &address, &services)
        .map_err(|error| (10, format!("{}: {error}", folder.display())))?;
    let clock = std::env::var(CLOCK).ok().and_then(|millis| millis.parse().ok());
    node.member.board.note(|figures| figures.clock = clock);
    let status =
        serve_status(settings, &node.member.board, cluster.relay).map_err(|error| (error.code, error.to_string()))?;
    let relay = cluster.relay.then(|| start_relay(settings, status.as_ref())).transpose();
    let relay = relay.map_err(|error| (111, error.to_string()))?;
    log::info!("standing by as {}; the copy is at entry {}", cluster.node, node.mirror.position.done);
    systemd::notify("READY=1\nSTATUS=standing by");
    let mut follower = Follower { relay, epoch: 0, problems: Vec::new() };
    loop {
        let ends = |signal| match signal {
            SIGHUP => !reloads && !systemd::is_managed(),
            other => matches!(other, SIGTERM | SIGINT),
        };
        if signals.pending().any(ends) {
            systemd::notify("STOPPING=1");
            if let Err(error) = node.save() {
                log::error!("{}: cannot save the position of the copy: {error}", folder.display());
            }
            return Ok(None);
        }
        if node.is_displaced() {
            log::error!("journal: {} was removed or replaced; the journal is copied again", folder.display());
            restart(&node.member.board, stops);
        }
        let step = node.poll();
        if let Ok(Step::Active(active)) = step {
            // Free the addresses on which the server will listen.
            drop((follower, status));
            log::info!("active as {}, epoch {}", cluster.node, active.epoch());
            systemd::notify(&format!("STATUS=active, epoch {}", active.epoch()));
            return Ok(Some(active));
        }
        // A failed poll may still have found another active server.
        follower.note(&node, step.as_ref().err());
        if !matches!(step, Ok(Step::Standby(true))) {
            std::thread::sleep(node.pause());
        }
    }
}

struct Follower {
    relay: Option<Relay>,
    epoch: u64,
    /// Problems that were logged after the last response from the shared log.
    problems: Vec<io::ErrorKind>,
}

impl Follower {
    fn note(&mut self, node: &Node, error: Option<&io::Error>) {
        match error {
            Some(error) if !self.problems.contains(&error.kind()) => {
                self.problems.push(error.kind());
                log::warn!("journal: {error}");
            }
            None if !std::mem::take(&mut self.problems).is_empty() => log::info!("journal: it answers again"),
            _ => {}
        }
        if node.tail.epoch == self.epoch {
            return;
        }
        self.epoch = node.tail.epoch;
        let (name, address) = node.active();
        let targets = if name == node.member.name { Services::new() } else { node.services() };
        self.relay.iter().for_each(|relay| relay.point_to(targets.clone()));
        log::info!("journal: {name} at {address} is the active server, epoch {}", self.epoch);
        systemd::notify(&format!("STATUS=standing by; {name} is active, epoch {}", self.epoch));
    }
}

/// If there are HTTP addresses, starts the status server, which has no queue and reports the standby role. A relay, if
/// any, listens on the TCP addresses, and forwards requests about this server to a separate port of the status server.
fn serve_status(settings: &Settings, board: &Arc<RoleBoard>, relays: bool) -> Result<Option<Server>, StartError> {
    if settings.config.http.is_empty() {
        return Ok(None);
    }
    let mut config = settings.config.clone().with(|config| {
        config.role = Some(board.clone());
        config.threads = 1;
    });
    config.protocols.http.admin = false;
    [&mut config.listen, &mut config.gearman, &mut config.workq].into_iter().for_each(Vec::clear);
    (config.log_folder, config.tls) = (None, None);
    if relays {
        config.http.retain(|address| !matches!(address, Address::Tcp(..)));
        config.http.insert(0, Address::Tcp(None, Some(0)));
    }
    Server::with(config).map(Some)
}

fn start_relay(settings: &Settings, status_server: Option<&Server>) -> io::Result<Relay> {
    let mut addresses = tcp_addresses(settings);
    // A relay cannot read encrypted requests, so the status server itself listens on the HTTP addresses with TLS.
    addresses.retain(|(protocol, _)| *protocol != format!("{HTTP}{WITH_TLS}"));
    let connections = settings.config.max_connections / 2;
    Relay::start(&addresses, connections, status_server.and_then(|server| server.address_of(Wire::Http)))
}

const WITH_TLS: &str = "+tls";

fn tcp_addresses(settings: &Settings) -> Vec<(String, String)> {
    let named = |(wire, address, usual): (Wire, &Address, u16)| {
        let (suffix, host, port) = match address {
            Address::Tcp(host, port) => ("", host, port),
            Address::Tls(host, port) => (WITH_TLS, host, port),
            _ => return None,
        };
        let host = host.as_deref().unwrap_or(DEFAULT_HOST);
        Some((format!("{}{suffix}", wire.name()), host_and_port(host, port.unwrap_or(usual))))
    };
    settings.config.places().filter_map(named).collect()
}

/// Returns the first address of each protocol, to which the relays of other servers connect. `advertise`, if given,
/// replaces the beanstalk address and the host of the other addresses.
fn services(settings: &Settings, advertise: Option<&str>) -> Services {
    let mut services = Services::new();
    for (protocol, address) in tcp_addresses(settings) {
        let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
        let host = advertise.and_then(|advertise| advertise.rsplit_once(':')).map_or(host, |(host, _)| host);
        services.entry(protocol).or_insert(format!("{host}:{port}"));
    }
    services.extend(advertise.map(|advertise| (Wire::Beanstalk.name().to_owned(), advertise.to_owned())));
    services
}

/// Restarts the process when the lease ends. To let another server take over, sets the returned flag and stops cleanly.
pub fn watch(active: &Active, handle: Handle, stops: &Arc<StopRequests>) -> io::Result<Arc<AtomicBool>> {
    let switching = Arc::new(AtomicBool::new(false));
    let (asked, is_switching, board, stops) =
        (switching.clone(), switching.clone(), active.board().clone(), stops.clone());
    active.watch(
        move || {
            log::error!("journal: no longer active");
            // A server that is stopping must not start again, unless another server takes over.
            if board.figures().role == Role::Closing && !is_switching.load(Ordering::Acquire) {
                std::process::exit(0);
            }
            restart(&board, &stops);
        },
        move || {
            log::info!("journal: another server is to take over");
            asked.store(true, Ordering::Release);
            handle.close();
        },
    )?;
    Ok(switching)
}

/// Reports that the server stops. If another server takes over, the process does not exit, but becomes a standby.
pub fn leave(active: &Active, switching: &AtomicBool) {
    active.board().note(|figures| figures.role = Role::Closing);
    let stopping = if switching.load(Ordering::Acquire) { "" } else { "STOPPING=1\n" };
    systemd::notify(&format!("{stopping}STATUS=closing, epoch {}", active.epoch()));
}

/// Releases the journal of a server that has stopped cleanly. Restarts the process if another server takes over.
pub fn hand_over(active: &Active, switching: &AtomicBool, stops: &StopRequests) -> ExitCode {
    match active.release() {
        Ok(()) => log::info!("journal: released"),
        Err(error) => log::error!("cannot release the journal: {error}"),
    }
    if switching.load(Ordering::Acquire) {
        restart(active.board(), stops);
    }
    ExitCode::SUCCESS
}

/// The new process continues the queue's clock, in case it becomes active before another server does.
pub fn restart(board: &RoleBoard, stops: &StopRequests) -> ! {
    if stops.last_check() {
        std::process::exit(0);
    }
    log::info!("restarting the process");
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_else(|| "beanpole".into());
    let clock = board.figures().clock.map(|millis| (CLOCK, millis.to_string()));
    let error = Command::new(system::own_program()).arg0(name).args(words).envs(clock).exec();
    log::error!("cannot restart the process: {error}");
    std::process::exit(1);
}
