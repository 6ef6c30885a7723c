//! The state of a shutdown: requested and completed.
//!
//! Owns both flags, and waiting for them. Must not stop anything.

use crate::shared::lock_order::{Condvar, LeafMutex};

/// The state of a shutdown: requested, complete.
#[derive(Debug, Default)]
pub struct Shutdown {
    state: LeafMutex<ShutdownState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct ShutdownState {
    /// A client has requested the shutdown.
    requested: bool,
    stopped: bool,
}

impl Shutdown {
    /// Requests the shutdown on behalf of a client.
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

    /// Waits until a client requests the shutdown, or until it completes for another reason; `true` in the first case.
    pub fn wait_for_request(&self) -> bool {
        let mut state = self.state.lock();
        while !state.requested && !state.stopped {
            self.changed.wait(&mut state);
        }
        !state.stopped
    }

    /// Notifies all waiting threads that the server has stopped.
    pub fn complete(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}
