//! The state of a shutdown.
//!
//! Owns the flags for a requested and a completed shutdown, and the functions that wait for the flags. Must not stop
//! the server.

use crate::shared::lock_order::{Condvar, LeafMutex};

#[derive(Debug, Default)]
pub struct Shutdown {
    state: LeafMutex<ShutdownState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct ShutdownState {
    requested: bool,
    stopped: bool,
}

impl Shutdown {
    pub fn request(&self) {
        self.state.lock().requested = true;
        self.changed.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    pub fn wait(&self) {
        let mut state = self.state.lock();
        while !state.stopped {
            self.changed.wait(&mut state);
        }
    }

    /// Returns `false` if the server has stopped without a request.
    pub fn wait_for_request(&self) -> bool {
        let mut state = self.state.lock();
        while !state.requested && !state.stopped {
            self.changed.wait(&mut state);
        }
        !state.stopped
    }

    pub fn complete(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}
