//! Signals: the only way to talk to a running server from outside its sockets.
//!
//! Owns their meaning: TERM, INT and HUP end the server in order, USR1 makes it refuse new jobs for good.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Take no more jobs.
    Drain,
    /// End.
    Stop,
}

/// Catches the signals from now on, so that none that comes during the start is lost.
pub fn catch() -> io::Result<Signals> {
    Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])
}

/// Waits for the next one.
pub fn next(signals: &mut Signals) -> Wish {
    match signals.forever().next() {
        Some(SIGUSR1) => Wish::Drain,
        _ => Wish::Stop,
    }
}
