//! The tube settings `max` and `rate`, which limit the reservations of a tube.
//!
//! Owns the flag `closed` of tubes. A closed tube is like a paused tube: its jobs can only be reserved by ID. Must not
//! assign jobs to clients.
//!
//! Enforces promise P28 of beanpole-promises(7).
//! Touches: store, tubes.

use crate::engine::data::{ReservePolicy, Time};
use crate::engine::Engine;

impl Engine {
    pub(in crate::engine) fn update_closed(&mut self, number: u32) {
        let tube = self.tubes.get_mut(number);
        let reserved = tube.counts.reserved;
        tube.closed = tube.pause.is_some() || tube.rules.as_ref().is_some_and(|rules| rules.is_spent(reserved));
        self.retime_tube(number);
    }

    #[inline(never)] // cold: few tubes have settings
    pub(in crate::engine) fn count_reservation(&mut self, number: u32, now: Time) {
        if let Some(rules) = &mut self.tubes.get_mut(number).rules {
            rules.take(now);
        }
        self.update_closed(number);
    }

    /// Called when a reservation ends. If the tube opens, it is served at the end of the current call.
    #[inline(never)] // cold: few tubes have settings
    pub(in crate::engine) fn count_end(&mut self, number: u32) {
        let was_closed = self.tubes.get(number).closed;
        self.update_closed(number);
        let tube = self.tubes.get(number);
        if was_closed && !tube.closed && tube.first(ReservePolicy::PerConnection, &self.store.jobs).is_some() {
            self.serve_at_end(number);
        }
    }

    pub(in crate::engine) fn reopen(&mut self, number: u32) {
        if let Some(rules) = &mut self.tubes.get_mut(number).rules {
            rules.taken = 0;
        }
        self.update_closed(number);
    }

    pub(in crate::engine) fn is_exhausted(&self, number: u32) -> bool {
        let tube = self.tubes.get(number);
        tube.rules.as_ref().is_some_and(|rules| rules.is_spent(tube.counts.reserved))
    }
}
