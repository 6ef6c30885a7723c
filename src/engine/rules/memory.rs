//! The memory limit.
//!
//! Owns the total memory of the engine and its comparison with the limit. Must not refuse requests: the callers of
//! [`Engine::has_memory`] do.
//!
//! Enforces promise P21 of beanpole-promises(7).
//! Touches: clients, limits, store, tubes.

use crate::engine::data::{Account, Body};
use crate::engine::Engine;

impl Engine {
    /// Returns the memory allocated on behalf of clients, in bytes by purpose. Removed bodies that replies still share
    /// count as buffers. Freed job memory counts as job memory until it can be reused for jobs of any size, except for
    /// the first 8 MiB.
    pub fn memory(&self) -> Account {
        Account {
            jobs: self.store.memory(),
            tubes: self.tubes.table.memory,
            watches: self.clients.memory(),
            history: self.past.memory(),
            buffers: self.buffers + self.store.jobs.bodies.in_flight_bytes,
        }
    }

    /// Returns the total memory in bytes, excluding the buffers reported with [`Engine::set_buffers`].
    pub fn memory_held(&self) -> u64 {
        self.memory().total() - self.buffers
    }

    /// Returns the total length in bytes of removed bodies that replies still share.
    pub fn memory_in_flight(&self) -> u64 {
        self.store.jobs.bodies.in_flight_bytes
    }

    /// Sets the bytes of memory outside the engine. `exhausted` is `true` if the system has no free memory.
    pub fn set_buffers(&mut self, bytes: u64, exhausted: bool) {
        self.buffers = bytes;
        self.exhausted = exhausted;
    }

    /// Counts `body` as memory while replies share the body, even if no job contains it.
    pub fn reply_shares(&mut self, body: &Body) {
        self.store.jobs.bodies.note_in_flight(body);
    }

    /// Stops counting bodies that replies no longer share. Must be called regularly, because each call checks only some
    /// bodies.
    #[inline]
    pub fn check_in_flight(&mut self) {
        self.store.jobs.bodies.check_in_flight();
    }

    /// Takes the large bodies of removed jobs. The caller must free the bodies in a thread that delays no client,
    /// because freeing takes milliseconds per 100 MB.
    pub fn take_released(&mut self) -> Vec<Body> {
        self.store.jobs.bodies.take_released()
    }

    /// Returns `true` if a request may use this many more bytes, within the memory limit and the system's free memory.
    pub fn has_memory(&self, bytes: u64) -> bool {
        let limit = self.limits.max_memory.saturating_sub(self.limits.kept_memory);
        !self.exhausted && self.memory().total() + bytes <= limit
    }
}
