//! How many jobs of a tube may be reserved at a time, and how often: the settings `max` and `rate`.
//!
//! Owns whether a tube is closed. A closed tube is like a paused one: no client that requests any job gets one of this
//! tube, and its jobs keep their order. Must not hand out jobs.
//!
//! Promises: P28.
//! Touches: store, tubes.

use crate::engine::data::{ReservePolicy, Time};
use crate::engine::Engine;

impl Engine {
    /// Updates whether a tube is closed, by a pause or by its settings.
    pub(in crate::engine) fn reclose(&mut self, number: u32) {
        let tube = self.tubes.get_mut(number);
        let reserved = tube.counts.reserved;
        tube.closed = tube.pause.is_some() || tube.rules.as_ref().is_some_and(|rules| rules.is_spent(reserved));
    }

    #[inline(never)] // few tubes have settings
    pub(in crate::engine) fn count_reservation(&mut self, number: u32, now: Time) {
        if let Some(rules) = &mut self.tubes.get_mut(number).rules {
            rules.take(now);
        }
        self.reclose(number);
        self.retime_tube(number);
    }

    /// Counts the end of a reservation in a tube with settings, and serves its waiting clients at the end of the verb.
    #[inline(never)] // few tubes have settings
    pub(in crate::engine) fn count_end(&mut self, number: u32) {
        let was_closed = self.tubes.get(number).closed;
        self.reclose(number);
        let tube = self.tubes.get(number);
        if was_closed && !tube.closed && tube.first(ReservePolicy::PerConnection, &self.store.jobs).is_some() {
            self.serve_at_end(number);
        }
    }

    /// Reopens a tube whose rate allows reservations again.
    pub(in crate::engine) fn reopen(&mut self, number: u32) {
        if let Some(rules) = &mut self.tubes.get_mut(number).rules {
            rules.open();
        }
        self.reclose(number);
        self.retime_tube(number);
    }

    /// Returns `true` if the settings of a tube allow no reservation now.
    pub(in crate::engine) fn is_exhausted(&self, number: u32) -> bool {
        let tube = self.tubes.get(number);
        tube.rules.as_ref().is_some_and(|rules| rules.is_spent(tube.counts.reserved))
    }
}
