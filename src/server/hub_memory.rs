//! Memory state shared by all threads: the account, what connections may take of it, and returning memory to the
//! system.
//!
//! Owns the limits that depend on the memory left, and the queue of values that take long to free. Must not close
//! connections: the pool does.

use super::delivery::EventLimits;
use super::hub::Hub;
use crate::engine::{Span, Time};

/// A client that receives events may have this many times the usual output waiting before it is dropped: events cannot
/// be held back until it reads.
const EVENTS_FACTOR: usize = 16;

/// Events in bytes that it may have waiting when all memory is taken.
const MIN_EVENTS: usize = 16 << 10;

/// Events in bytes when unread replies exceed their share of memory, and the client's socket is already full.
const MIN_STUCK_EVENTS: usize = 4 << 10;

/// Values dropped between two turns of the timer thread, since each may take long.
const DROPPED: usize = 16;

/// How long after clients have freed much memory the allocator returns it to the system, and the delay if this is
/// urgent.
const GIVE_BACK: Span = Span::from_secs(1);
const GIVE_BACK_SOON: Span = Span::from_millis(20);

impl Hub {
    /// Bytes of unread replies at which the server stops reading from a client.
    pub fn max_output(&self) -> usize {
        self.config.max_output.min(self.memory.allowance())
    }

    /// Maximum number of bytes of events that a client may have waiting, regardless of available memory.
    pub fn max_event_bytes(&self) -> usize {
        self.config.max_output.saturating_mul(EVENTS_FACTOR)
    }

    /// Returns the unread bytes at which a client that receives events is dropped.
    pub fn event_limits(&self) -> EventLimits {
        let most = self.max_event_bytes();
        let reading = if self.memory.is_full() { most.min(MIN_EVENTS) } else { most };
        let stuck = if self.memory.is_crowded() { reading.min(MIN_STUCK_EVENTS) } else { reading };
        EventLimits { reading, stuck }
    }

    /// Checks the size of the process if the account has grown.
    pub fn check_resident(&self) {
        if let Some(resident) = self.config.resident.filter(|_| self.memory.needs_resident()) {
            self.memory.set_resident(resident());
        }
    }

    /// When the timer should call [`Hub::give_back`], if clients have freed much memory.
    pub fn next_give_back(&self, now: Time) -> Time {
        match self.memory.has_freed_much() {
            true if self.memory.must_give_back() => now + GIVE_BACK_SOON,
            true => now + GIVE_BACK,
            false => Time::NEVER,
        }
    }

    /// Schedules [`Hub::give_back`] on the timer thread; called outside a turn.
    pub fn give_back_soon(&self) {
        self.alarm.advance(self.next_give_back(self.clock.now()));
    }

    /// Makes the allocator return memory to the system if clients have freed much. Takes a few milliseconds.
    pub fn give_back(&self) {
        if self.memory.has_freed_much() {
            self.memory.gave_back();
            self.config.give_back.iter().for_each(|give_back| give_back());
            self.config.resident.iter().for_each(|resident| self.memory.set_resident(resident()));
        }
    }

    /// Drops a large value on the timer thread. With a manual clock there is no timer thread, and it is dropped here.
    pub fn discard(&self, thing: impl Send + 'static) {
        if self.clock.is_manual() {
            return;
        }
        self.discarded.lock().push(Box::new(thing));
        self.alarm.advance(Time::default());
    }

    /// Drops some of the values collected by [`Hub::discard`]; may take long. If there are more, sets the alarm again.
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
