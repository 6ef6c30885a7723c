//! Signals, which control a running server from outside its sockets.
//!
//! Owns their meaning. TERM and INT stop the server in order. HUP reopens the log and reloads files; if none are
//! configured, it ends a server that was started by hand, and a service ignores it. USR1 makes the server refuse new
//! jobs permanently.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use nix::libc::{sigaction, SIG_IGN};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

/// The action that a signal requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalAction {
    /// Enter drain mode: refuse new jobs, continue with existing ones (SIGUSR1).
    Drain,
    /// Reopen the log if it is a file, and reload the access files; otherwise stop.
    HangUp,
    /// Shut down cleanly (SIGTERM, SIGINT).
    Stop,
}

/// Starts to catch signals, so that none sent during startup is lost. A server that `reopens` its log on a hang-up does
/// so even if it was started with that signal ignored, as its default action does not apply.
pub fn catch(reopens: bool) -> io::Result<Signals> {
    // Exceeding a file size limit is an error of the write, and must not end the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let wanted = |signal: &i32| !is_ignored(*signal) || *signal == SIGHUP && reopens;
    let optional = [SIGINT, SIGHUP].into_iter().filter(wanted);
    Signals::new([SIGTERM, SIGUSR1].into_iter().chain(optional))
}

/// Remembers whether a signal asked this process to stop. For a process that is about to replace itself: its successor
/// does not see signals that were already delivered.
#[derive(Debug, Default)]
pub struct StopRequests {
    received: Arc<AtomicBool>,
    replacing: Arc<AtomicBool>,
}

impl StopRequests {
    /// Starts to remember SIGTERM and SIGINT; use together with [`catch`].
    pub fn watch() -> io::Result<StopRequests> {
        let requests = StopRequests::default();
        for signal in [SIGTERM, SIGINT].into_iter().filter(|signal| !is_ignored(*signal)) {
            // Both run in the signal handler, so no signal is lost between them and the check.
            signal_hook::flag::register(signal, requests.received.clone())?;
            signal_hook::flag::register_conditional_default(signal, requests.replacing.clone())?;
        }
        Ok(requests)
    }

    /// Returns `true` if a signal asked this process to stop. If not, a later signal ends it immediately.
    pub fn last_check(&self) -> bool {
        self.replacing.store(true, Ordering::SeqCst);
        self.received.load(Ordering::SeqCst)
    }
}

/// Returns `true` if this process was started with this signal ignored: under nohup, or in the background of a script.
#[allow(unsafe_code)]
fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<sigaction>::zeroed();
    // SAFETY: the call changes nothing and writes one `sigaction`, which may also be all zeros.
    unsafe {
        sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0 && action.assume_init().sa_sigaction == SIG_IGN
    }
}

/// Returns `true` if this signal ends a server without reloadable files.
pub fn is_end(signal: i32) -> bool {
    matches!(signal, SIGTERM | SIGINT | SIGHUP)
}

/// Waits for the next signal, or until the handle is closed, which also means [`SignalAction::Stop`].
pub fn next(signals: &mut Signals) -> SignalAction {
    match signals.forever().next() {
        Some(SIGUSR1) => SignalAction::Drain,
        Some(SIGHUP) => SignalAction::HangUp,
        _ => SignalAction::Stop,
    }
}
