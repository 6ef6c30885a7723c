//! The program: parses the command line, starts the server, waits for signals, and sets the exit code.

#![deny(missing_docs, unsafe_code)]

mod process;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{path::Path, process::ExitCode, sync::Arc};

use beanpole::internals::binlog::SyncMode;
use beanpole::internals::config::LogTarget;
use beanpole::internals::gearmand::{self, Gearmand, GearmandAction};
use beanpole::internals::options::{parse, usage, Action, Cluster, Settings, BAD_USAGE};
use beanpole::internals::server::{host, log as server_log, signals, systemd};
use beanpole::internals::{cluster, ctl, system};
use beanpole::{Server, StartError};
use process::parent::{self, Parent, PidFile, PortFile, ReadyFile, Side};
use process::{allocator, standby};
use server_log::LogForm;
use signal_hook::consts::{SIGHUP, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use signals::StopRequests;

/// An exit code and a message to log.
type Failure = (u8, String);
type Outcome = Result<ExitCode, Failure>;

fn main() -> ExitCode {
    allocator::configure();
    system::avoid_modules();
    // The default connection limit depends on the limit on open files.
    system::raise_file_limit();
    let mut arguments = std::env::args_os();
    let is_gearmand = arguments.next().is_some_and(|name| gearmand::is_gearmand(&name));
    let arguments: Result<Vec<String>, _> = arguments.map(|word| word.into_string()).collect();
    let arguments = arguments.map_err(|word| format!("argument is not UTF-8: {}", word.to_string_lossy()));
    if is_gearmand {
        return run_as_gearmand(arguments);
    }
    if let Some(code) = arguments.as_ref().ok().and_then(|arguments| ctl::run(arguments)) {
        return ExitCode::from(code);
    }
    match arguments.and_then(|arguments| parse(&arguments)) {
        Ok(Action::Version) => print("beanpole", &format!("beanpole {}\n", env!("CARGO_PKG_VERSION"))),
        Ok(Action::Help) => print("beanpole", &format!("{}\n{}", usage(), ctl::usage())),
        Ok(Action::Run(settings)) => {
            let level = server_log::level(settings.verbosity);
            let form = if settings.json_log { LogForm::Json } else { LogForm::Text };
            let started = server_log::start(level, form, LogTarget::Stderr, None);
            with_log("beanpole", started, || run(*settings, false, |_| {}))
        }
        Err(problem) => exit_with("beanpole", BAD_USAGE, &format!("{problem} (see beanpole -h)")),
    }
}

/// Succeeds even if the reader of the output has exited.
fn print(program: &str, text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            exit_with(program, 1, &format!("cannot write: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn print_error(program: &str, problem: &str) {
    let _ = std::io::stderr().write_all(format!("{program}: {problem}\n").as_bytes());
}

fn exit_with(program: &str, code: u8, problem: &str) -> ExitCode {
    print_error(program, problem);
    ExitCode::from(code)
}

fn run_as_gearmand(arguments: Result<Vec<String>, String>) -> ExitCode {
    let port = std::env::var("GEARMAND_PORT").ok();
    match arguments.and_then(|arguments| gearmand::parse(&arguments, port.as_deref())) {
        Ok(GearmandAction::Version) => {
            print("gearmand", &format!("beanpole {} as gearmand\n", env!("CARGO_PKG_VERSION")))
        }
        Ok(GearmandAction::Help) => print("gearmand", &gearmand::usage()),
        Ok(GearmandAction::Checked) => ExitCode::SUCCESS,
        Ok(GearmandAction::Run(gearmand)) => run_gearmand(*gearmand),
        Err(problem) => exit_with("gearmand", gearmand::BAD_USAGE, &format!("{problem} (see gearmand -h)")),
    }
}

fn run_gearmand(gearmand: Gearmand) -> ExitCode {
    let mut ready = None;
    if gearmand.daemon && !systemd::is_managed() {
        match parent::detach() {
            Ok(Side::Background(side)) => ready = Some(side),
            Ok(Side::Foreground(code)) => return code,
            Err(error) => return exit_with("gearmand", 1, &format!("cannot run in the background: {error}")),
        }
    }
    let owner = host::user_id(gearmand.settings.config.user.as_deref());
    let keeps_stderr = gearmand.log == LogTarget::Stderr;
    with_log("gearmand", server_log::start(gearmand.level, LogForm::Text, gearmand.log, owner), || {
        let path = gearmand.pid_file.as_deref();
        let mut pid_file = match path.map(PidFile::open).transpose() {
            Ok(pid_file) => pid_file,
            Err(error) => {
                let path = path.unwrap_or(Path::new("")).display();
                return exit_with("gearmand", 1, &format!("cannot write PID file {path}: {error}"));
            }
        };
        run(gearmand.settings, true, |problem| match problem {
            // Print the error to stderr too, because the parent process may not read the log.
            Some(problem) if !keeps_stderr => print_error("gearmand", problem),
            Some(_) => {}
            None => {
                if let Some(Err(error)) = pid_file.as_mut().map(PidFile::write) {
                    log::error!("cannot write the PID file: {error}");
                }
                if let Some(Err(error)) = ready.take().map(|ready| ready.announce(keeps_stderr)) {
                    log::error!("cannot notify the parent process: {error}");
                }
            }
        })
    })
}

fn with_log(program: &str, started: io::Result<()>, work: impl FnOnce() -> ExitCode) -> ExitCode {
    started.map_or_else(|error| exit_with(program, 1, &format!("cannot open the log: {error}")), |()| work())
}

/// Calls `report` with a message on failure. Outside a cluster, also calls `report` with `None` once the server is
/// listening. With `reopens`, SIGHUP reopens the log instead of stopping the server.
fn run(settings: Settings, reopens: bool, mut report: impl FnMut(Option<&str>)) -> ExitCode {
    start_and_serve(settings, reopens, &mut report).unwrap_or_else(|(code, problem)| {
        log::error!("{problem}");
        report(Some(&problem));
        ExitCode::from(code)
    })
}

fn start_and_serve(settings: Settings, reopens: bool, report: &mut dyn FnMut(Option<&str>)) -> Outcome {
    // Claim the descriptor before this process opens a file that could get the same number.
    let ready_file = settings.starter.ready_fd.map(ReadyFile::claim).transpose();
    let starter = settings.starter.clone();
    settings.notices.iter().for_each(|notice| log::warn!("{notice}"));
    host::harden();
    let config = &settings.config;
    let reloads = config.access.is_some() || config.tls.is_some() || config.tubes.is_some();
    let signals = signals::catch(reopens || reloads).map_err(no_signals)?;
    if let Some(cluster) = settings.cluster.clone() {
        return run_in_cluster(&cluster, settings, signals, reloads);
    }
    let can_end = config.protocols.allow_shutdown || config.ends_when_drained;
    let parent = starter.exit_with_parent.then(Parent::find);
    let ready_file = ready_file.map_err(|error| (BAD_USAGE, format!("--ready-fd: {error}")))?;
    let folder = config.log_folder.clone();
    // Reading a large binlog can take minutes. An immediate exit loses nothing.
    let starts = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_shutdown(SIGTERM, 0, starts.clone()).map_err(no_signals)?;
    let server = start(settings)?;
    starts.store(false, Ordering::SeqCst);
    if let Some(path) = &folder {
        let left = cluster::leave_cluster(path);
        left.map_err(|error| (10, format!("binlog directory {}: {error}", path.display())))?;
    }
    let port_file = starter.port_file.as_deref().map(|path| {
        let file = PortFile::write(path, server.first_address());
        file.map_err(|error| (1, format!("cannot write {} (--port-file): {error}", path.display())))
    });
    let tied = parent.map_or(Ok(()), Parent::tie);
    tied.map_err(|error| (1, format!("cannot wait for the end of the parent (--exit-with-parent): {error}")))?;
    let _port_file = port_file.transpose()?;
    log_addresses(&server);
    report(None);
    systemd::notify("READY=1");
    if let Some(Err(error)) = ready_file.map(|file| file.announce(&server.names())) {
        log::warn!("cannot report the addresses (--ready-fd): {error}");
    }
    serve(&server, signals, can_end, (reopens, reloads), || systemd::notify("STOPPING=1"))
}

fn no_signals(error: io::Error) -> Failure {
    (1, format!("cannot catch signals: {error}"))
}

fn log_addresses(server: &Server) {
    log::info!("beanpole {} is listening on {}", env!("CARGO_PKG_VERSION"), server.names().join(" and "));
}

fn run_in_cluster(cluster: &Cluster, mut settings: Settings, mut signals: Signals, reloads: bool) -> Outcome {
    let stops = Arc::new(StopRequests::watch().map_err(no_signals)?);
    let Some(active) = standby::stand_by(cluster, &settings, (&mut signals, &stops), reloads)? else {
        return Ok(ExitCode::SUCCESS);
    };
    // Each sync appends to the shared log, which must contain every acknowledged change.
    settings.config.log.mode = SyncMode::Always;
    settings.config.lease = active.lease.clone();
    settings.config.role = Some(active.board().clone());
    let can_end = settings.config.protocols.allow_shutdown;
    let watching = standby::watch(&active, signals.handle(), &stops).map_err(|error| error.to_string());
    let started = watching.and_then(|switching| {
        let server = Server::with_storage(settings.config, active.storage.clone());
        server.map(|server| (server, switching)).map_err(|error| error.to_string())
    });
    let (server, switching) = started.map_err(|problem| {
        if active.lease.is_over() {
            log::error!("journal: {problem}");
            standby::restart(active.board(), &stops);
        }
        let _ = active.release();
        (1, problem)
    })?;
    log_addresses(&server);
    serve(&server, signals, can_end, (false, reloads), || standby::leave(&active, &switching))?;
    Ok(standby::hand_over(&active, &switching, &stops))
}

/// Serves until a signal stops the server. With `can_end`, a client or the end of the last job can also stop the
/// server. With `reopens`, SIGHUP reopens the log; with `reloads`, SIGHUP reloads files. Without these flags, SIGHUP
/// stops a server that has no service manager. `leaving` is called when the server begins to stop.
fn serve(
    server: &Server,
    mut signals: Signals,
    can_end: bool,
    (reopens, reloads): (bool, bool),
    leaving: impl FnOnce(),
) -> Outcome {
    let handle = signals.handle();
    std::thread::scope(|scope| {
        if can_end {
            let wait = || {
                server.wait();
                handle.close();
            };
            let started = std::thread::Builder::new().stack_size(64 * 1024).spawn_scoped(scope, wait);
            started.map_err(|error| (1, format!("cannot start a thread: {error}")))?;
        }
        loop {
            match signals.forever().next() {
                Some(SIGUSR1) => {
                    server.drain();
                    log::info!("draining: refusing new jobs");
                }
                Some(SIGHUP) if reopens || reloads => hang_up(server, reopens, reloads),
                Some(SIGHUP) if systemd::is_managed() => log::info!("SIGHUP ignored: no files to reload"),
                _ => break,
            }
        }
        log::info!("stopping");
        leaving();
        server.stop();
        Ok(ExitCode::SUCCESS)
    })
}

fn hang_up(server: &Server, reopens: bool, reloads: bool) {
    match reopens.then(server_log::reopen) {
        Some(Ok(())) => log::info!("log reopened"),
        Some(Err(error)) => log::error!("cannot reopen the log: {error}"),
        None => {}
    }
    match reloads.then(|| server.reload()) {
        Some(Ok(())) => log::info!("configuration files reloaded"),
        Some(Err(problem)) => log::error!("{problem}; keeping the previous configuration"),
        None => {}
    }
}

fn start(settings: Settings) -> Result<Server, Failure> {
    let inherited = systemd::inherited().map_err(|error| (111, format!("inherited sockets: {error}")))?;
    for option in settings.listen_options.iter().filter(|_| !inherited.is_empty()) {
        log::warn!("listening on inherited sockets; ignoring {option}");
    }
    let config = settings.config.with(|config| {
        config.give_back = allocator::GIVE_BACK;
        config.resident = Some(system::resident_memory);
        config.prepare_log = Some(cluster::restore_aside);
    });
    Server::with_inherited(config, inherited).map_err(|error: StartError| (error.code, error.to_string()))
}
