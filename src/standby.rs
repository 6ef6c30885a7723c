//! The program as one of several servers: standing by, becoming active, and beginning anew.
//!
//! Owns the order: follow the shared log until it is this server's turn, serve, and hand over. A server that must not
//! answer any more replaces itself by a fresh process: then all its connections are closed at once, and nothing it knew
//! is left.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use beanpole::internals::cluster::{Active, Etcd, Node, Relay, Step};
use beanpole::internals::options::{Cluster, Settings};
use beanpole::internals::server::{signals, systemd};
use beanpole::Address;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

/// What standing by has led to.
pub enum Turn {
    /// This server is active from now on.
    Active(Box<Active>),
    /// A signal has ended it, or it cannot go on.
    Ended(ExitCode),
}

/// Follows the shared log until it is this server's turn. If it `reloads` files at a hang-up, there are none to read
/// yet, and it goes on.
pub fn stand_by(cluster: &Cluster, settings: &Settings, signals: &mut Signals, reloads: bool) -> Turn {
    let Some(folder) = &settings.config.log_folder else {
        log::error!("--journal needs a folder for this server's copy: -b DIR");
        return Turn::Ended(ExitCode::from(beanpole::internals::options::BAD_USAGE));
    };
    let address = cluster.advertise.clone().unwrap_or_else(|| own_address(settings));
    let journal = Arc::new(Etcd::new(&cluster.location));
    let mut node = match Node::new(journal, folder, &cluster.node, &address) {
        Ok(node) => node,
        Err(error) => {
            log::error!("{}: {error}", folder.display());
            return Turn::Ended(ExitCode::from(10));
        }
    };
    let mut relay = None;
    if cluster.relay {
        match Relay::start(own_address(settings).as_str()) {
            Ok(started) => relay = Some(started),
            Err(error) => log::error!("{}: {error}", own_address(settings)),
        }
    }
    log::info!("standing by as {}; the copy is at entry {}", cluster.node, node.position());
    systemd::notify("READY=1\nSTATUS=standing by");
    let mut troubled = false;
    loop {
        if signals.pending().any(|signal| signals::is_end(signal) && !(reloads && signal == SIGHUP)) {
            systemd::notify("STOPPING=1");
            return Turn::Ended(ExitCode::SUCCESS);
        }
        match node.look() {
            Ok(Step::Standby(more)) => {
                if std::mem::take(&mut troubled) {
                    log::info!("journal: it answers again");
                }
                if let Some(relay) = &relay {
                    relay.point_to(&node.active_address());
                }
                if !more {
                    std::thread::sleep(node.pause());
                }
            }
            Ok(Step::Active(active)) => {
                // The server is about to listen there.
                drop(relay);
                log::info!("active as {}, epoch {}", cluster.node, active.epoch());
                systemd::notify(&format!("STATUS=active, epoch {}", active.epoch()));
                return Turn::Active(Box::new(active));
            }
            Err(error) => {
                if !std::mem::replace(&mut troubled, true) {
                    log::warn!("journal: {error}");
                }
                std::thread::sleep(node.pause());
            }
        }
    }
}

/// Has this process begin anew when it must not answer any more, and end in order when another is to take its place.
/// The flag tells the second.
pub fn watch(active: &Active, handle: signal_hook::iterator::Handle) -> std::io::Result<Arc<AtomicBool>> {
    let switching = Arc::new(AtomicBool::new(false));
    let asked = switching.clone();
    active.watch(
        || {
            log::error!("journal: no longer active; beginning anew");
            begin_anew();
        },
        move || {
            log::info!("journal: another server is to take over");
            asked.store(true, Ordering::Release);
            handle.close();
        },
    )?;
    Ok(switching)
}

/// After the server has stopped in order: lets another take its place.
pub fn hand_over(active: &Active, switching: &AtomicBool) -> ExitCode {
    match active.release() {
        Ok(()) => log::info!("journal: released"),
        Err(error) => log::error!("journal: it could not be released: {error}"),
    }
    if switching.load(Ordering::Acquire) {
        begin_anew();
    }
    ExitCode::SUCCESS
}

/// Replaces this process by a fresh one with the same command line. Sockets and files are closed by that.
fn begin_anew() -> ! {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_else(|| "beanpole".into());
    let error = Command::new("/proc/self/exe").arg0(name).args(words).exec();
    log::error!("cannot begin anew: {error}");
    std::process::exit(1);
}

/// Host and port of the first TCP address for beanstalk clients.
fn own_address(settings: &Settings) -> String {
    let tcp = settings.config.listen.iter().find_map(|address| match address {
        Address::Tcp(host, port) | Address::Tls(host, port) => Some((host.clone(), *port)),
        Address::Unix(_) => None,
    });
    let (host, port) = tcp.unwrap_or_default();
    let host = host.unwrap_or_else(|| beanpole::internals::config::DEFAULT_HOST.to_owned());
    let port = port.unwrap_or(settings.config.port);
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
