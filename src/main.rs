//! The program: reads the command line, starts the server, waits for signals, and sets the exit code.
//!
//! Owns the output before the log starts. The library does everything else.

#![deny(missing_docs, unsafe_code)]

mod process;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use beanpole::internals::binlog::SyncMode;
use beanpole::internals::gearmand::{self, Gearmand, GearmandAction};
use beanpole::internals::options::{parse, usage, Action, Cluster, Settings, BAD_USAGE};
use beanpole::internals::server::{host, log as server_log, logfile, signals, systemd};
use beanpole::internals::{cluster, ctl, machine, system};
use beanpole::{Server, StartError};
use logfile::Target;
use process::daemon::{PidFile, Side};
use process::standby::Turn;
use process::starter::{Parent, PortFile, ReadyFile};
use process::{allocator, daemon, standby};
use signal_hook::iterator::Signals;
use signals::{SignalAction, StopRequests};

/// Stack size of the thread that waits for a client to shut the server down, in bytes.
const WATCH_STACK: usize = 64 * 1024;

fn main() -> ExitCode {
    allocator::configure(machine::is_address_space_limited());
    // Before the options are read, because the default number of connections depends on it.
    machine::raise_file_limit();
    let mut given = std::env::args_os();
    let is_gearmand = given.next().is_some_and(|name| gearmand::is_meant(&name));
    let arguments: Result<Vec<String>, _> = given.map(|word| word.into_string()).collect();
    let arguments = arguments.map_err(|word| format!("argument that is no text: {}", word.to_string_lossy()));
    if is_gearmand {
        return as_gearmand(arguments);
    }
    if let Ok(arguments) = &arguments {
        if let Some(code) = ctl::run(arguments) {
            return ExitCode::from(code);
        }
    }
    match arguments.and_then(|arguments| parse(&arguments)) {
        Ok(Action::Version) => print(&format!("beanpole {}\n", env!("CARGO_PKG_VERSION"))),
        Ok(Action::Help) => print(&format!("{}\n{}", usage(), ctl::usage())),
        Ok(Action::Run(settings)) => {
            let level = server_log::level(settings.verbosity);
            let form = if settings.json_log { server_log::LogForm::Json } else { server_log::LogForm::Text };
            return with_log(level, form, None, || run(*settings, false, |_| {}));
        }
        Err(problem) => {
            complain(&format!("beanpole: {problem} (beanpole -h lists the options)\n"));
            return ExitCode::from(BAD_USAGE);
        }
    }
    ExitCode::SUCCESS
}

// A failed write is no reason to panic: the reader may be gone.

fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn complain(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Runs the program under the name of gearmand.
fn as_gearmand(arguments: Result<Vec<String>, String>) -> ExitCode {
    let port = std::env::var("GEARMAND_PORT").ok();
    match arguments.and_then(|arguments| gearmand::parse(&arguments, port.as_deref())) {
        Ok(GearmandAction::Version) => print(&format!("beanpole {} as gearmand\n", env!("CARGO_PKG_VERSION"))),
        Ok(GearmandAction::Help) => print(&gearmand::usage()),
        Ok(GearmandAction::Checked) => {}
        Ok(GearmandAction::Run(wanted)) => return run_gearmand(*wanted),
        Err(problem) => {
            complain(&format!("gearmand: {problem} (gearmand -h lists the options)\n"));
            return ExitCode::from(gearmand::BAD_USAGE);
        }
    }
    ExitCode::SUCCESS
}

fn run_gearmand(wanted: Gearmand) -> ExitCode {
    let mut ready = None;
    if wanted.daemon {
        match daemon::detach() {
            Ok(Side::Background(side)) => ready = Some(side),
            Ok(Side::Foreground(code)) => return code,
            Err(error) => {
                complain(&format!("gearmand: cannot go into the background: {error}\n"));
                return ExitCode::from(1);
            }
        }
    }
    let user = wanted.settings.config.user.clone();
    let target = match wanted.log {
        gearmand::Log::Stderr => None,
        gearmand::Log::File(path) => Some(Target::File(path, host::user_id(user.as_deref()))),
        gearmand::Log::Syslog => Some(Target::Syslog("gearmand".to_owned())),
        gearmand::Log::Nowhere => Some(Target::Nowhere),
    };
    let keeps_stderr = target.is_none();
    with_log(wanted.level, server_log::LogForm::Text, target, || {
        let pid_file = wanted.pid_file.as_deref().map(|path| PidFile::open(path).map_err(|error| (path, error)));
        let mut pid_file = match pid_file.transpose() {
            Ok(pid_file) => pid_file,
            Err((path, error)) => {
                complain(&format!("gearmand: cannot write {}: {error}\n", path.display()));
                return ExitCode::from(1);
            }
        };
        run(wanted.settings, true, |problem| match problem {
            // The parent process may not read the log.
            Some(problem) if !keeps_stderr => complain(&format!("gearmand: {problem}\n")),
            Some(_) => {}
            None => {
                if let Some(Err(error)) = pid_file.as_mut().map(PidFile::write) {
                    log::error!("the number of the process cannot be written: {error}");
                }
                if let Some(Err(error)) = ready.take().map(|ready| ready.tell(keeps_stderr)) {
                    log::error!("cannot notify the parent process: {error}");
                }
            }
        })
    })
}

fn with_log(
    level: log::LevelFilter,
    form: server_log::LogForm,
    target: Option<Target>,
    work: impl FnOnce() -> ExitCode,
) -> ExitCode {
    if let Err(error) = server_log::start(level, form, target) {
        complain(&format!("gearmand: the log cannot be opened: {error}\n"));
        return ExitCode::from(1);
    }
    work()
}

/// Runs the server to its end. Calls `told` with the problem if it does not start, or with nothing when it listens.
/// With `reopens`, a hang-up signal reopens the log instead of ending the program.
fn run(settings: Settings, reopens: bool, mut told: impl FnMut(Option<&str>)) -> ExitCode {
    // First of all, because a file that is opened later might get the number.
    let ready_file = settings.starter.ready_fd.map(ReadyFile::claim).transpose();
    let starter = settings.starter.clone();
    for notice in &settings.notices {
        log::warn!("{notice}");
    }
    host::harden();
    let config = &settings.config;
    let reloads = config.access.is_some() || config.tls.is_some() || config.tubes.is_some();
    let signals = match signals::catch(reopens || reloads) {
        Ok(signals) => signals,
        Err(error) => {
            log::error!("signals cannot be caught: {error}");
            return ExitCode::from(1);
        }
    };
    if let Some(cluster) = settings.cluster.clone() {
        return run_one_of_several(&cluster, settings, signals, reloads);
    }
    let watched = settings.config.protocols.allow_shutdown || settings.config.ends_when_drained;
    let mut fail = |code: u8, problem: String| {
        log::error!("{problem}");
        told(Some(&problem));
        ExitCode::from(code)
    };
    let (parent, ready_file) = match (starter.exit_with_parent.then(Parent::find), ready_file) {
        (parent, Ok(file)) => (parent, file),
        (_, Err(error)) => return fail(BAD_USAGE, format!("--ready-fd: {error}")),
    };
    let folder = settings.config.log_folder.clone();
    if let Some(Err(error)) = folder.as_deref().map(cluster::restore_aside) {
        return fail(10, format!("the folder of the binlog: {error}"));
    }
    let server = match start(settings) {
        Ok(server) => server,
        Err((code, problem)) => return fail(code, problem),
    };
    if let Some(Err(error)) = folder.as_deref().map(cluster::go_alone) {
        return fail(10, format!("the folder of the binlog: {error}"));
    }
    let _port_file = match tie(&server, starter.port_file, parent) {
        Ok(file) => file,
        Err(problem) => return fail(1, problem),
    };
    log::info!("beanpole {} is listening on {}", env!("CARGO_PKG_VERSION"), server.names().join(" and "));
    told(None);
    systemd::notify("READY=1");
    if let Some(Err(error)) = ready_file.map(|file| file.tell(&server.names())) {
        log::warn!("cannot report the addresses (--ready-fd): {error}");
    }
    serve(&server, signals, watched, HangUp { reopens, reloads }, || systemd::notify("STOPPING=1"))
}

/// Fulfills the requests of the parent process, now that the server listens.
fn tie(server: &Server, path: Option<PathBuf>, parent: Option<Parent>) -> Result<Option<PortFile>, String> {
    let file = path.map(|path| {
        let file = PortFile::write(&path, server.first_address());
        file.map_err(|error| format!("cannot write {} (--port-file): {error}", path.display()))
    });
    let tied = parent.map_or(Ok(()), Parent::tie);
    tied.map_err(|error| format!("cannot wait for the end of the parent (--exit-with-parent): {error}"))?;
    file.transpose()
}

/// Runs as one of several servers: as a standby, and as the active server when it takes over.
fn run_one_of_several(cluster: &Cluster, mut settings: Settings, mut signals: Signals, reloads: bool) -> ExitCode {
    let stops = match StopRequests::watch() {
        Ok(stops) => Arc::new(stops),
        Err(error) => {
            log::error!("signals cannot be caught: {error}");
            return ExitCode::from(1);
        }
    };
    let active = match standby::stand_by(cluster, &settings, &mut signals, reloads) {
        Turn::Active(active) => active,
        Turn::Ended(code) => return code,
    };
    // A confirmed change must be in the shared log.
    settings.config.log.mode = SyncMode::Always;
    settings.config.lease = active.lease.clone();
    settings.config.role = Some(active.board().clone());
    let watched = settings.config.protocols.allow_shutdown;
    let watching = standby::watch(&active, signals.handle(), &stops).map_err(|error| error.to_string());
    let begun = watching.and_then(|switching| {
        let server = Server::with_storage(settings.config, active.storage.clone());
        server.map(|server| (server, switching)).map_err(|error| error.to_string())
    });
    let (server, switching) = match begun {
        Ok(begun) => begun,
        Err(problem) => {
            log::error!("{problem}");
            let _ = active.release();
            return ExitCode::from(1);
        }
    };
    log::info!("beanpole {} is listening on {}", env!("CARGO_PKG_VERSION"), server.names().join(" and "));
    serve(&server, signals, watched, HangUp { reopens: false, reloads }, || standby::leave(&active, &switching));
    standby::hand_over(&active, &switching, &stops)
}

/// Runs until a signal, or an authorized client, stops the server; `leaving` announces that to other servers.
fn serve(server: &Server, mut signals: Signals, watched: bool, hang_up: HangUp, leaving: impl FnOnce()) -> ExitCode {
    let handle = signals.handle();
    std::thread::scope(|scope| {
        if watched {
            let watch = || {
                server.wait();
                handle.close();
            };
            if let Err(error) = std::thread::Builder::new().stack_size(WATCH_STACK).spawn_scoped(scope, watch) {
                log::error!("cannot start: {error}");
                return ExitCode::from(1);
            }
        }
        loop {
            match signals::next(&mut signals) {
                SignalAction::Drain => {
                    server.drain();
                    log::info!("draining: no more jobs are taken");
                }
                SignalAction::HangUp if hang_up.reopens || hang_up.reloads => hang_up.carry_out(server),
                SignalAction::HangUp if systemd::is_managed() => log::info!("SIGHUP ignored: nothing to read again"),
                SignalAction::HangUp | SignalAction::Stop => break,
            }
        }
        log::info!("stopping");
        leaving();
        server.stop();
        ExitCode::SUCCESS
    })
}

/// The action of a hang-up signal instead of ending the program.
struct HangUp {
    reopens: bool,
    reloads: bool,
}

impl HangUp {
    fn carry_out(&self, server: &Server) {
        match self.reopens.then(logfile::reopen) {
            Some(Ok(())) => log::info!("the log is opened again"),
            Some(Err(error)) => log::error!("the log cannot be opened again: {error}"),
            None => {}
        }
        match self.reloads.then(|| server.reload()) {
            Some(Ok(())) => log::info!("configuration files read again"),
            Some(Err(problem)) => log::error!("{problem}; what was read before still counts"),
            None => {}
        }
    }
}

fn start(settings: Settings) -> Result<Server, (u8, String)> {
    let inherited = systemd::inherited().map_err(|error| (111, format!("inherited sockets: {error}")))?;
    if !inherited.is_empty() {
        for option in &settings.listen_options {
            log::warn!("listening on inherited sockets; ignoring {option}");
        }
    }
    let resident: Option<fn() -> u64> = Some(system::resident_memory);
    let config = settings.config.with(|config| {
        config.give_back = allocator::GIVE_BACK;
        config.resident = resident;
    });
    let started = Server::with_inherited(config, inherited);
    started.map_err(|error: StartError| (error.code, error.to_string()))
}
