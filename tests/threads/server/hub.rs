//! The engine's lock with only a counting journal behind it, and a clock that stands still.
//!
//! Owns what the real files need of the hub.

use std::time::Instant;

use beanpole::internals::engine::Time;
use beanpole::internals::protocol::Output;

use super::alarm::Alarm;
use super::durability::Durability;
use super::memory::Memory;
use crate::binlog::{Journal, JournalAccess, Wal};
use crate::shared::lock_order::{Mutex, ENGINE};
use crate::shims::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct TurnScratch {
    pub out: Output,
}

/// What the lock protects.
#[derive(Debug, Default)]
pub struct Core {
    pub journal: Journal,
    /// The next deadline; `NEVER` after a turn has handled it.
    pub due: Option<Time>,
}

/// The other data behind the real lock: it never postpones anything.
#[derive(Debug)]
pub struct Engine;

impl Engine {
    pub fn has_deferred(&self) -> bool {
        false
    }
}

impl Core {
    pub fn engine(&self) -> &Engine {
        &Engine
    }
}

/// A clock that stands still at this time.
#[derive(Debug)]
pub struct Clock(pub Time);

impl Clock {
    pub fn now(&self) -> Time {
        self.0
    }

    pub fn instant(&self, _: Time) -> Option<Instant> {
        None
    }
}

#[derive(Debug)]
pub struct Hub {
    pub core: Mutex<Core, ENGINE>,
    log: Durability,
    pub clock: Clock,
    pub alarm: Alarm,
    pub memory: Memory,
    /// Positions, as bits, whose replies acknowledge no put and may be sent while the disk fails.
    pub lesser: AtomicU64,
    /// Turns of the timer in which something was due.
    pub served: AtomicU64,
}

impl Hub {
    pub fn new(moody: bool) -> Hub {
        Hub {
            core: Mutex::default(),
            log: Durability::new(Wal::new(moody)),
            clock: Clock(Time::from_nanos(1000)),
            alarm: Alarm::new(),
            memory: Memory,
            lesser: AtomicU64::new(0),
            served: AtomicU64::new(0),
        }
    }

    /// Like the real one: runs what is due, and sets the alarm to the next deadline.
    pub fn turn<R>(&self, scratch: &mut TurnScratch, work: impl FnOnce(&mut Core, &mut TurnScratch, Time) -> R) -> R {
        let mut core = self.core.lock();
        if core.due.is_some_and(|due| due <= self.clock.now()) {
            core.due = None;
            self.served.fetch_add(1, Ordering::AcqRel);
        }
        let result = work(&mut core, scratch, self.clock.now());
        let next = core.due.unwrap_or(Time::NEVER);
        drop(core);
        self.alarm.advance(next);
        result
    }

    pub fn log(&self) -> Option<&Durability> {
        Some(&self.log)
    }

    pub fn durability(&self) -> &Durability {
        &self.log
    }

    pub fn commit(&self, _: &mut TurnScratch) {}
    pub fn clear_discarded(&self) {}
    pub fn give_back(&self) {}
}

impl JournalAccess for Hub {
    fn with<R>(&self, work: impl FnOnce(&mut Journal, &mut ()) -> R) -> R {
        work(&mut self.core.lock().journal, &mut ())
    }
}
