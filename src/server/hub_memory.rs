//! Limits that depend on the available memory, values that are slow to free, and the return of memory to the system.

use super::delivery::EventLimits;
use super::hub::Hub;
use crate::engine::{Span, Time};

/// Unread events can exceed the output limit by this factor, because events cannot wait until the client reads.
const EVENTS_FACTOR: usize = 16;

/// Bytes of unread events that are allowed when all memory is used.
const MIN_EVENTS: usize = 16 << 10;

/// Like `MIN_EVENTS`, for a client whose socket is full while the buffers together exceed their share of memory.
const MIN_STUCK_EVENTS: usize = 4 << 10;

/// The maximum number of values that the timer thread frees between two checks for deadlines. Freeing may be slow.
const DROPPED: usize = 16;

/// The delay before freed memory is returned to the system. An urgent return has the delay `GIVE_BACK_SOON`.
const GIVE_BACK: Span = Span::from_secs(1);
const GIVE_BACK_SOON: Span = Span::from_millis(20);

impl Hub {
    pub fn max_output(&self) -> usize {
        self.config.max_output.min(self.memory.allowance())
    }

    pub fn max_event_bytes(&self) -> usize {
        self.config.max_output.saturating_mul(EVENTS_FACTOR)
    }

    pub fn event_limits(&self) -> EventLimits {
        let max_bytes = self.max_event_bytes();
        let reading = if self.memory.is_full() { max_bytes.min(MIN_EVENTS) } else { max_bytes };
        let stuck = if self.memory.is_crowded() { reading.min(MIN_STUCK_EVENTS) } else { reading };
        EventLimits { reading, stuck }
    }

    pub fn next_give_back(&self, now: Time) -> Time {
        match self.memory.has_freed_much() {
            true if self.memory.must_give_back() => now + GIVE_BACK_SOON,
            true => now + GIVE_BACK,
            false => Time::NEVER,
        }
    }

    /// Begins or continues the return of freed memory to the system. Returns `true` if it must be continued.
    pub fn give_back(&self, has_begun: bool) -> bool {
        if !has_begun {
            if !self.memory.has_freed_much() {
                return false;
            }
            self.memory.gave_back();
        }
        let continues = self.config.give_back.is_some_and(|give_back| !give_back());
        if continues {
            self.alarm.advance(Time::default());
        }
        self.config.resident.iter().for_each(|resident| self.memory.set_resident(resident()));
        continues
    }

    /// Frees a large value on the timer thread or, with a manual clock, immediately, because no timer thread runs.
    pub fn discard(&self, thing: impl Send + 'static) {
        if self.clock.is_manual() {
            return;
        }
        self.discarded.lock().push(Box::new(thing));
        self.alarm.advance(Time::default());
    }

    pub fn clear_discarded(&self) {
        let mut discarded = self.discarded.lock();
        let count = discarded.len().min(DROPPED);
        let rest = discarded.split_off(count);
        let has_more = !rest.is_empty();
        let dropped = std::mem::replace(&mut *discarded, rest);
        drop(discarded);
        drop(dropped);
        if has_more {
            self.alarm.advance(Time::default());
        }
    }
}
