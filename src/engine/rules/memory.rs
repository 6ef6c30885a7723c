//! The memory limit.
//!
//! Owns the comparison of the account with its limit. Must not refuse anything: verbs check the limit, and refuse in
//! their own terms.
//!
//! Promises: P21.
//! Touches: clients, limits, store, tubes.

use crate::engine::data::{Account, Body};
use crate::engine::Engine;

impl Engine {
    /// Returns the memory of everything that clients cause, by purpose. The body of a removed job, and a worker's
    /// report, count as buffers while a reply shares them, until [`Engine::check_in_flight`] finds that none does.
    /// Memory that jobs have vacated counts as theirs while no job of another size can use it, except for the first 8
    /// MiB.
    pub fn memory(&self) -> Account {
        Account {
            jobs: self.store.memory(),
            tubes: self.tubes.table.memory,
            watches: self.clients.memory(),
            history: self.past.memory(),
            buffers: self.buffers + self.store.jobs.bodies.in_flight_bytes,
        }
    }

    /// Returns the total memory without that reported by [`Engine::set_buffers`].
    pub fn memory_held(&self) -> u64 {
        self.memory().total() - self.buffers
    }

    /// Returns the bytes of bodies that only replies still share.
    pub fn memory_in_flight(&self) -> u64 {
        self.store.jobs.bodies.in_flight_bytes
    }

    /// Sets the number of bytes used outside the engine by connections and their unprocessed input and unread output,
    /// so that the total is limited, and whether the system has no more memory.
    pub fn set_buffers(&mut self, bytes: u64, exhausted: bool) {
        self.buffers = bytes;
        self.exhausted = exhausted;
    }

    /// Counts a body that no job has while a reply shares it.
    pub fn reply_shares(&mut self, body: &Body) {
        self.store.jobs.bodies.note_in_flight(body);
    }

    /// Stops counting bodies that replies no longer share. Each call checks some of them, so call it now and then.
    #[inline]
    pub fn check_in_flight(&mut self) {
        self.store.jobs.bodies.check_in_flight();
    }

    /// Takes the large bodies of removed jobs, to be freed where no client waits: this takes milliseconds per 100 MB.
    pub fn take_released(&mut self) -> Vec<Body> {
        self.store.jobs.bodies.take_released()
    }

    /// Returns `true` if this many bytes are available for a request that needs memory.
    pub fn has_memory(&self, bytes: u64) -> bool {
        !self.lacks_memory(bytes)
    }

    /// Returns `true` if requests that need memory may not take this many more bytes, or the system has no more.
    pub(in crate::engine) fn lacks_memory(&self, bytes: u64) -> bool {
        let most = self.limits.max_memory.saturating_sub(self.limits.kept_memory);
        self.exhausted || self.memory().total() + bytes > most
    }
}
