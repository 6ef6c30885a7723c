//! How much memory there is, and who may have more of it.
//!
//! Owns the comparison of the account with its bound. Must not refuse anything: verbs ask, and refuse in their own
//! terms.
//!
//! Promises: P21.
//! Touches: clients, limits, store, tubes.

use crate::engine::data::account::Account;
use crate::engine::data::body::Body;
use crate::engine::Engine;

impl Engine {
    /// Bytes of all that clients cause, by what takes them. The body of a job that is gone, and what workers tell about
    /// theirs, counts as a buffer as long as a reply shares it, and until [`Engine::check_in_flight`] has seen that
    /// none does any more. What jobs have left counts as theirs as long as no job of another size can have it, but for
    /// the first 8 MiB.
    pub fn memory(&self) -> Account {
        Account {
            jobs: self.store.memory(),
            tubes: self.tubes.memory(),
            watches: self.clients.memory(),
            buffers: self.buffers + self.store.jobs.bodies.in_flight(),
        }
    }

    /// The same without what [`Engine::set_buffers`] told, in one sum.
    pub fn memory_held(&self) -> u64 {
        self.memory().total() - self.buffers
    }

    /// Bytes of those that replies alone still share.
    pub fn memory_in_flight(&self) -> u64 {
        self.store.jobs.bodies.in_flight()
    }

    /// Tells how many bytes are taken outside of the engine, by connections and what they have sent or not read, so
    /// that the sum of all is bounded; and whether the system has no memory for more.
    pub fn set_buffers(&mut self, bytes: u64, exhausted: bool) {
        self.buffers = bytes;
        self.exhausted = exhausted;
    }

    /// A reply shares a body that no job has: counts it as long as one does.
    pub fn reply_shares(&mut self, body: &Body) {
        self.store.jobs.bodies.note_in_flight(body);
    }

    /// Takes bodies off the account that replies have shared and no longer do; some at a time, so now and then.
    pub fn check_in_flight(&mut self) {
        self.store.jobs.bodies.check_in_flight();
    }

    /// Large bodies of jobs that are gone, to be dropped where nobody waits: that takes milliseconds for each 100 MB.
    pub fn take_released(&mut self) -> Vec<Body> {
        self.store.jobs.bodies.take_released()
    }

    /// Whether there are so many bytes left for what asks for more.
    pub fn has_memory(&self, bytes: u64) -> bool {
        !self.lacks_memory(bytes)
    }

    /// Whether that would be more than all that asks for memory may take together, or the system has no more.
    pub(in crate::engine) fn lacks_memory(&self, bytes: u64) -> bool {
        let most = self.limits.max_memory.saturating_sub(self.limits.kept_memory);
        self.exhausted || self.memory().total() + bytes > most
    }
}
