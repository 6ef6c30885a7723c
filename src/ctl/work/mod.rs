//! The subcommand `work`, which runs a command or sends an HTTP request for each job. After the first signal, running
//! attempts finish; the second signal aborts them. Never pass untrusted job data to a shell or as an argument.

mod attempt;
mod endpoint;
mod shared;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::{access, AccessFlags};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::prelude::*;
use attempt::MAX_BACKOFF;
use endpoint::Endpoint;
use shared::SharedState;
use worker::Worker;

enum Action {
    Run(PathBuf, Vec<String>),
    Post(Arc<Endpoint>),
}

struct Plan {
    target: ServerTarget,
    tubes: Vec<String>,
    action: Action,
    once: bool,
    /// The worker exits after this many seconds without a job.
    wait: Option<u64>,
    retries: u64,
    backoff: u64,
    max_time: Option<u64>,
    quiet: bool,
}

impl Action {
    fn of(call: &Call) -> Result<Action> {
        let authority = call.value(&AUTHORITY).map(PathBuf::from);
        match (call.value(&TO_URL), call.command.split_first()) {
            (Some(url), None) => Ok(Action::Post(Arc::new(Endpoint::parse(&url, authority)?))),
            (None, Some((name, rest))) => Ok(Action::Run(find(name)?, rest.to_vec())),
            (Some(_), Some(_)) => Err(Problem::usage("work: --url and a command exclude each other")),
            (None, None) => Err(Problem::usage("work: no command behind --, and no --url")),
        }
    }
}

pub fn run(call: &Call, _: &mut Out) -> Result<u8> {
    let jobs = if call.has(&ONCE) { 1 } else { call.number(&JOBS, 1, 256)?.unwrap_or(1) } as usize;
    let plan = Plan {
        action: Action::of(call)?,
        target: ServerTarget::of(call)?,
        tubes: call.tubes()?,
        once: call.has(&ONCE),
        wait: call.short_number(&WAIT)?.map(u64::from),
        retries: call.number(&RETRIES, 0, u32::MAX.into())?.unwrap_or(3),
        backoff: call.number(&BACKOFF, 0, MAX_BACKOFF)?.unwrap_or(1),
        max_time: call.number(&MAX_TIME, 1, u32::MAX.into())?,
        quiet: call.has(&QUIET),
    };
    let plan = Arc::new(plan);
    let shared = Arc::new(SharedState::new(jobs));
    let fail = |error: std::io::Error| Problem::refused(format!("work: {}", plain(&error)));
    // SIGCHLD reports the end of a command, so install the handlers before the first command starts.
    let mut signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM]).map_err(fail)?;
    let handle = signals.handle();
    // Do not retry the first connection, because the cause of an initial failure is probably a wrong address.
    let mut first = Some(Worker::connect(&plan)?);
    if let Action::Post(endpoint) = &plan.action {
        endpoint.probe()?;
    }
    let mut threads = Vec::new();
    for index in 0..jobs {
        let worker = Worker::new(plan.clone(), shared.clone(), index, first.take());
        let (shared, handle) = (shared.clone(), handle.clone());
        let thread = std::thread::Builder::new().spawn(move || {
            let ended = worker.run();
            // The last thread ends the signal loop.
            if shared.leave() == jobs {
                handle.close();
            }
            ended
        });
        threads.push(thread.map_err(fail)?);
    }
    signals.forever().for_each(|signal| if signal == SIGCHLD { shared.notify_all() } else { shared.stop() });
    threads.into_iter().try_fold(DONE, |code, thread| {
        Ok(code.max(thread.join().map_err(|_| Problem::refused("work: a thread has failed"))??))
    })
}

/// Finds a program. Called before any job is reserved, so that a missing command is reported first.
fn find(name: &str) -> Result<PathBuf> {
    let missing =
        || Problem::usage(format!("work: {}: no such command, or no permission to execute it", name.escape_debug()));
    let is_program = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if name.contains('/') {
        let path = PathBuf::from(name);
        return if is_program(&path) { Ok(path) } else { Err(missing()) };
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_program(path)).ok_or_else(missing)
}
