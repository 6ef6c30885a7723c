//! Signals: the only way to talk to a running server from outside its sockets.
//!
//! Owns their meaning: TERM and INT end the server in order. HUP opens and reads files again; without any, it
//! ends a server that was started by hand, and a service ignores it. USR1 makes it refuse new jobs for good.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalAction {
    /// Refuse new jobs from now on (SIGUSR1).
    Drain,
    /// Open the log again, if it is a file, and read files again that say who is let in; else end.
    HangUp,
    /// Stop in order (SIGTERM, SIGINT).
    Stop,
}

/// Catches the signals from now on, so that none that comes during the start is lost. A server that `reopens` its log
/// at a hang-up does so even if it was started to ignore that signal, which would not end it.
pub fn catch(reopens: bool) -> io::Result<Signals> {
    let ignored = ignored();
    // A file that may not grow is an error of the write, not the end.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let wanted = |signal: &i32| ignored >> (signal - 1) & 1 == 0 || *signal == SIGHUP && reopens;
    let optional = [SIGINT, SIGHUP].into_iter().filter(wanted);
    Signals::new([SIGTERM, SIGUSR1].into_iter().chain(optional))
}

/// Remembers whether this process was told to stop, for a process that is about to replace itself by a fresh one: the
/// fresh one does not see the signals that this one has received.
#[derive(Debug, Default)]
pub struct StopRequests {
    received: Arc<AtomicBool>,
    replacing: Arc<AtomicBool>,
}

impl StopRequests {
    /// Remembers SIGTERM and SIGINT from now on; to be called beside [`catch`].
    pub fn watch() -> io::Result<StopRequests> {
        let requests = StopRequests::default();
        let ignored = ignored();
        for signal in [SIGTERM, SIGINT].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
            // Both run within the signal handler, so no signal falls between them and the check.
            signal_hook::flag::register(signal, requests.received.clone())?;
            signal_hook::flag::register_conditional_default(signal, requests.replacing.clone())?;
        }
        Ok(requests)
    }

    /// Returns `true` if this process was told to stop. If not, a signal that arrives from now on ends it at once.
    pub fn last_check(&self) -> bool {
        self.replacing.store(true, Ordering::SeqCst);
        self.received.load(Ordering::SeqCst)
    }
}

/// The signals, one bit each, that this process was started to ignore: under nohup, or in the background of a script.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether this one ends a server that has nothing to do.
pub fn is_end(signal: i32) -> bool {
    matches!(signal, SIGTERM | SIGINT | SIGHUP)
}

/// Waits for the next one, or until their handle is closed, which means the end as well.
pub fn next(signals: &mut Signals) -> SignalAction {
    match signals.forever().next() {
        Some(SIGUSR1) => SignalAction::Drain,
        Some(SIGHUP) => SignalAction::HangUp,
        _ => SignalAction::Stop,
    }
}
