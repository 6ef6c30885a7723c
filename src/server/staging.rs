//! Large bodies that a shared log stores before the commands that contain them.
//!
//! Owns the queue of connections whose next command has such a body. Must not depend on commands.

use std::collections::VecDeque;
use std::sync::Arc;

use super::delivery::Outbox;
use crate::binlog::Storage;
use crate::shared::lock_order::{Condvar, LeafMutex};

#[derive(Default)]
pub struct Staging {
    state: LeafMutex<StagingState>,
    changed: Condvar,
}

type Waiter = (Arc<Box<[u8]>>, Arc<Outbox>);

#[derive(Default)]
struct StagingState {
    waiting: VecDeque<Waiter>,
    stop: bool,
}

impl Staging {
    /// Makes the connection wait until `body` is stored. Call with the engine locked.
    pub fn wait(&self, body: Arc<Box<[u8]>>, outbox: &Arc<Outbox>) {
        outbox.await_space();
        self.state.lock().waiting.push_back((body, outbox.clone()));
        self.changed.notify_one();
    }

    pub fn cancel(&self, outbox: &Arc<Outbox>) {
        self.state.lock().waiting.retain(|(_, other)| !Arc::ptr_eq(other, outbox));
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    pub fn run(&self, storage: &dyn Storage) {
        loop {
            let mut state = self.state.lock();
            while state.waiting.is_empty() && !state.stop {
                self.changed.wait(&mut state);
            }
            let Some((body, outbox)) = state.waiting.pop_front().filter(|_| !state.stop) else { return };
            drop(state);
            // Only this thread refers to the body of a client that has disconnected.
            storage.stage(&body, &|| Arc::strong_count(&body) > 1 && !self.state.lock().stop);
            drop(body);
            outbox.has_space();
        }
    }
}
