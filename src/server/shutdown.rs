//! Whether the server is to stop, and whether it has.
//!
//! Owns both facts, and the waiting for them. Must not stop anything.

use parking_lot::{Condvar, Mutex};

/// Whether the server is to stop, and whether it has.
#[derive(Debug, Default)]
pub struct Shutdown {
    state: Mutex<ShutdownState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct ShutdownState {
    /// A client has asked for it.
    asked: bool,
    stopped: bool,
}

impl Shutdown {
    /// A client wants the server to stop.
    pub fn ask(&self) {
        self.state.lock().asked = true;
        self.changed.notify_all();
    }

    /// Whether the server has stopped.
    pub fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Waits until the server has stopped.
    pub fn wait(&self) {
        self.changed.wait_while(&mut self.state.lock(), |state| !state.stopped);
    }

    /// Waits until a client asks for it, or it comes otherwise; true in the first case.
    pub fn is_asked(&self) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| !state.asked && !state.stopped);
        !state.stopped
    }

    /// Tells everybody that the server has stopped.
    pub fn has_come(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}
