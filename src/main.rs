//! The program: reads the command line, starts the server, waits for signals, ends with the right exit code.
//!
//! Owns what is printed before the log starts. Everything else is the library's.

#![deny(missing_docs, unsafe_code)]

mod allocator;
#[cfg(target_os = "linux")]
mod standard_files;

use std::io::Write;
use std::process::ExitCode;

use beanpole::options::{parse, usage, Command, Settings, BAD_USAGE};
use beanpole::server::{log as server_log, signals, systemd};
use beanpole::{machine, Config, Server, StartError};
use signal_hook::iterator::Signals;
use signals::Wish;

/// Bytes of stack of the thread that waits for a client to shut the server down.
const WATCH_STACK: usize = 64 * 1024;

fn main() -> ExitCode {
    allocator::configure(machine::is_address_space_limited());
    // Before the options are read: the default number of connections depends on it.
    machine::raise_file_limit();
    let arguments: Result<Vec<String>, _> = std::env::args_os().skip(1).map(|word| word.into_string()).collect();
    let parsed = arguments.map_err(|word| format!("argument that is no text: {}", word.to_string_lossy()));
    // What cannot be written is no reason to panic: who reads it may be gone.
    match parsed.and_then(|arguments| parse(&arguments)) {
        Ok(Command::Version) => {
            let _ = writeln!(std::io::stdout(), "beanpole {}", env!("CARGO_PKG_VERSION"));
        }
        // To stderr, as beanstalkd does.
        Ok(Command::Help) => {
            let _ = std::io::stderr().write_all(usage().as_bytes());
        }
        Ok(Command::Run(settings)) => return run(*settings),
        Err(problem) => {
            let _ = writeln!(std::io::stderr(), "beanpole: {problem} (beanpole -h lists the options)");
            return ExitCode::from(BAD_USAGE);
        }
    }
    ExitCode::SUCCESS
}

fn run(settings: Settings) -> ExitCode {
    server_log::start(settings.verbosity);
    for notice in &settings.notices {
        log::warn!("{notice}");
    }
    let signals = match signals::catch() {
        Ok(signals) => signals,
        Err(error) => {
            log::error!("signals cannot be caught: {error}");
            return ExitCode::from(1);
        }
    };
    let allow_shutdown = settings.config.protocols.allow_shutdown;
    let server = match start(settings) {
        Ok(server) => server,
        Err((code, problem)) => {
            log::error!("{problem}");
            return ExitCode::from(code);
        }
    };
    log::info!("beanpole {} is listening on {}", env!("CARGO_PKG_VERSION"), server.names().join(" and "));
    systemd::notify("READY=1");
    serve(&server, signals, allow_shutdown)
}

/// Until a signal, or a client that may, ends the server.
fn serve(server: &Server, mut signals: Signals, allow_shutdown: bool) -> ExitCode {
    let handle = signals.handle();
    std::thread::scope(|scope| {
        if allow_shutdown {
            let watch = || {
                server.wait();
                handle.close();
            };
            if let Err(error) = std::thread::Builder::new().stack_size(WATCH_STACK).spawn_scoped(scope, watch) {
                log::error!("cannot start: {error}");
                return ExitCode::from(1);
            }
        }
        while signals::next(&mut signals) == Wish::Drain {
            server.drain();
            log::info!("draining: no more jobs are taken");
        }
        log::info!("stopping");
        systemd::notify("STOPPING=1");
        server.stop();
        ExitCode::SUCCESS
    })
}

fn start(settings: Settings) -> Result<Server, (u8, String)> {
    let inherited = systemd::inherited().map_err(|error| (111, format!("inherited sockets: {error}")))?;
    if !inherited.is_empty() {
        for option in &settings.listen_options {
            log::warn!("listening on inherited sockets; ignoring {option}");
        }
    }
    let config = Config { give_back: allocator::GIVE_BACK, ..settings.config };
    let started = Server::with_inherited(config, inherited);
    started.map_err(|error: StartError| (error.code, error.to_string()))
}
