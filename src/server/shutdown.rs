//! The state of a shutdown: requested and completed.
//!
//! Owns both flags, and waiting for them. Must not stop anything.

use parking_lot::{Condvar, Mutex};

/// Whether a shutdown was requested, and whether it is complete.
#[derive(Debug, Default)]
pub struct Shutdown {
    state: Mutex<ShutdownState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct ShutdownState {
    /// A client has requested the shutdown.
    asked: bool,
    stopped: bool,
}

impl Shutdown {
    /// Requests the shutdown on behalf of a client.
    pub fn ask(&self) {
        self.state.lock().asked = true;
        self.changed.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    pub fn wait(&self) {
        self.changed.wait_while(&mut self.state.lock(), |state| !state.stopped);
    }

    /// Waits until a client requests the shutdown, or until it completes for another reason; `true` in the first case.
    pub fn is_asked(&self) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| !state.asked && !state.stopped);
        !state.stopped
    }

    /// Notifies all waiting threads that the server has stopped.
    pub fn has_come(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}
