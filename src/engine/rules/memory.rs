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
    /// Returns the bytes used on behalf of clients. Removed bodies that replies still share count as buffers. Freed job
    /// memory counts until jobs of any size can use it, except for the first 8 MiB.
    pub fn memory(&self) -> Account {
        Account {
            jobs: self.store.memory(),
            tubes: self.tubes.table.memory,
            watches: self.clients.memory(),
            history: self.past.memory,
            buffers: self.buffers + self.store.jobs.bodies.in_flight_bytes,
        }
    }

    /// Returns the total bytes, excluding buffers outside the engine.
    pub fn memory_held(&self) -> u64 {
        self.memory().total() - self.buffers
    }

    /// Returns the total length of removed bodies that replies still share.
    pub fn memory_in_flight(&self) -> u64 {
        self.store.jobs.bodies.in_flight_bytes
    }

    /// Records that `bytes` are used outside the engine. `exhausted` is `true` if the system has no free memory.
    pub fn set_buffers(&mut self, bytes: u64, exhausted: bool) {
        self.buffers = bytes;
        self.exhausted = exhausted;
    }

    /// Counts `body` while replies share it, even if no job contains it.
    pub fn reply_shares(&mut self, body: &Body) {
        self.store.jobs.bodies.note_in_flight(body);
    }

    /// Stops counting bodies that replies no longer share. Must be called regularly, because a call checks only some
    /// bodies.
    #[inline]
    pub fn check_in_flight(&mut self) {
        self.store.jobs.bodies.check_in_flight();
    }

    /// Takes the large bodies of removed jobs. Freeing them takes milliseconds per 100 MB, so the caller must use a
    /// thread that delays no client.
    pub fn take_released(&mut self) -> Vec<Body> {
        self.store.jobs.bodies.take_released()
    }

    /// Returns `true` if a request may use this many more bytes.
    pub fn has_memory(&self, bytes: u64) -> bool {
        let limit = self.limits.max_memory.saturating_sub(self.limits.kept_memory);
        !self.exhausted && self.memory().total() + bytes <= limit
    }
}
