//! Replacement of pool threads that the disk blocks.
//!
//! Owns the state of every pool thread that is writing to the log. If the write takes too long, a spare thread
//! continues with the state, and the blocked thread becomes the new spare thread. Must not depend on the contents of
//! the state.

use std::time::{Duration, Instant};

use super::durability::{Bell, Durability};
use crate::shared::lock_order::LeafMutex;

const CHECK: Duration = Duration::from_millis(10);

pub struct Relief<T> {
    lent: LeafMutex<Vec<Option<Box<T>>>>,
    check: Bell,
}

impl<T> std::fmt::Debug for Relief<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.debug_struct("Relief").finish_non_exhaustive()
    }
}

impl<T> Relief<T> {
    pub fn new(threads: usize) -> Relief<T> {
        Relief { lent: LeafMutex::new((0..threads).map(|_| None).collect()), check: Bell::default() }
    }

    pub fn lend(&self, thread: usize, state: Box<T>) {
        self.lent.lock()[thread] = Some(state);
        if !self.check.is_armed() {
            self.check.ring_by(Instant::now() + CHECK);
        }
    }

    /// Returns `None` if the spare thread has taken over.
    pub fn take_back(&self, thread: usize) -> Option<Box<T>> {
        self.lent.lock()[thread].take()
    }

    /// Returns the state of a blocked thread, or `None` if the server stops.
    pub fn wait(&self, log: &Durability) -> Option<Box<T>> {
        while self.check.wait(|| true) {
            let mut lent = self.lent.lock();
            let Some(state) = lent.iter_mut().find(|state| state.is_some()) else { continue };
            if log.wal.is_blocked() {
                return state.take();
            }
            drop(lent);
            // The disk may block the thread later in the same write.
            self.check.ring_by(Instant::now() + CHECK);
        }
        None
    }

    pub fn stop(&self) {
        self.check.stop();
    }
}
