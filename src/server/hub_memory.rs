//! What all threads share about memory: the account, what connections may take of it, and the way back to the system.
//!
//! Owns the limits that follow from how much is left, and the queue of what takes long to free. Must not drop anybody:
//! the pool does.

use std::sync::Arc;

use super::delivery::NewsLimits;
use super::hub::Hub;
use super::memory::Memory;
use crate::engine::{Span, Time};

/// A client that is told things unasked may have this many times the usual output waiting before it is dropped: what is
/// sent to it cannot wait until it reads.
const NEWS: usize = 16;

/// Bytes of it that it may have waiting when all memory is taken.
const LEAST_NEWS: usize = 16 << 10;

/// The same when what waits to be read takes more than its part of memory, and its socket is full already.
const LEAST_STUCK: usize = 4 << 10;

/// Things that are dropped between two turns of the timer's thread, for each may take long.
const DROPPED: usize = 16;

/// When clients have given back much memory, this long afterwards the allocator is told, unless it was told in that
/// time; and the same when it must be told soon.
const GIVE_BACK: Span = Span::from_secs(1);
const GIVE_BACK_SOON: Span = Span::from_millis(20);

impl Hub {
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Bytes of unread replies at which the server stops reading a client.
    pub fn max_output(&self) -> usize {
        self.config().max_output.min(self.memory.allowance())
    }

    /// Bytes of news that a client may have waiting, however much memory there is.
    pub fn most_news(&self) -> usize {
        self.config().max_output.saturating_mul(NEWS)
    }

    /// Bytes that clients may have to read already when they are told something.
    pub fn news_limits(&self) -> NewsLimits {
        let most = self.most_news();
        let reading = if self.memory.is_full() { most.min(LEAST_NEWS) } else { most };
        let stuck = if self.memory.is_crowded() { reading.min(LEAST_STUCK) } else { reading };
        NewsLimits { reading, stuck }
    }

    /// Looks how large the process is, if the account has grown.
    pub fn look_at_resident(&self) {
        if let Some(resident) = self.config().resident.filter(|_| self.memory.wants_look()) {
            self.memory.set_resident(resident());
        }
    }

    /// When the timer should call [`Hub::give_back`], if clients have freed much memory.
    pub fn next_give_back(&self, now: Time) -> Time {
        match self.memory.has_fallen() {
            true if self.memory.must_let_go() => now + GIVE_BACK_SOON,
            true => now + GIVE_BACK,
            false => Time::NEVER,
        }
    }

    /// Has it do so, outside a turn.
    pub fn give_back_soon(&self) {
        self.alarm.advance(self.next_give_back(self.clock().now()));
    }

    /// Lets the allocator give back to the system what clients have given back, if that is much; takes a while.
    pub fn give_back(&self) {
        if self.memory.has_fallen() {
            self.memory.let_go();
            self.config().give_back.iter().for_each(|give_back| give_back());
            self.config().resident.iter().for_each(|resident| self.memory.set_resident(resident()));
        }
    }

    /// Drops something large on the timer's thread. With a manual clock there is none, and it is dropped here.
    pub fn discard(&self, thing: impl Send + 'static) {
        if self.clock().is_manual() {
            return;
        }
        self.discarded.lock().push(Box::new(thing));
        self.alarm.advance(Time::default());
    }

    /// Drops some of what [`Hub::discard`] collected; may take long. If there is more, the alarm rings again.
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
