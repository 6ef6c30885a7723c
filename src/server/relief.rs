//! Relief of pool threads that the disk blocks: a spare thread takes over their connections.
//!
//! Owns the state of each pool thread while that thread writes to the log and syncs it. If this takes long, the spare
//! thread continues with the state, and the blocked thread becomes the spare one. Must not know what the state
//! contains.

use std::time::{Duration, Instant};

use super::durability::{Bell, Durability};
use crate::shared::lock_order::LeafMutex;

/// Interval of checks while threads write. A sync is known to be slow before the second check.
const CHECK: Duration = Duration::from_millis(10);

pub struct Relief<T> {
    /// The state of each thread that writes to the log.
    lent: LeafMutex<Vec<Option<Box<T>>>>,
    check: Bell,
}

impl<T> std::fmt::Debug for Relief<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.debug_struct("Relief").finish_non_exhaustive()
    }
}

impl<T> Relief<T> {
    /// Relieves that many threads, numbered from zero.
    pub fn new(threads: usize) -> Relief<T> {
        Relief { lent: LeafMutex::new((0..threads).map(|_| None).collect()), check: Bell::default() }
    }

    /// Lends the state of a thread that is about to write.
    pub fn lend(&self, thread: usize, state: Box<T>) {
        self.lent.lock()[thread] = Some(state);
        if !self.check.is_armed() {
            self.check.ring_by(Instant::now() + CHECK);
        }
    }

    /// Takes back the state of a thread that has written. `None` if the spare thread has taken over.
    pub fn take_back(&self, thread: usize) -> Option<Box<T>> {
        self.lent.lock()[thread].take()
    }

    /// Waits until the disk blocks a thread, and returns its state. `None` if the server stops.
    pub fn wait(&self, log: &Durability) -> Option<Box<T>> {
        while self.check.wait(|| true) {
            let mut lent = self.lent.lock();
            let Some(state) = lent.iter_mut().find(|state| state.is_some()) else { continue };
            if log.wal().is_blocked() {
                return state.take();
            }
            drop(lent);
            // The thread may lend nothing more before the disk blocks it.
            self.check.ring_by(Instant::now() + CHECK);
        }
        None
    }

    pub fn stop(&self) {
        self.check.stop();
    }
}
