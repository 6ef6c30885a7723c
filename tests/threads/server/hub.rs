//! The engine's lock with nothing behind it but a journal that counts, and the clock, which stands still.
//!
//! Owns what the real files ask of the hub.

use std::time::Instant;

use beanpole::internals::engine::Time;

use super::alarm::Alarm;
use super::durability::Durability;
use super::memory::Memory;
use crate::binlog::{Journal, JournalAccess, Wal};
use crate::shared::lock_order::{Mutex, ENGINE};
use crate::shims::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct TurnScratch;

/// Behind the lock.
#[derive(Debug, Default)]
pub struct Core {
    pub journal: Journal,
    /// When something is due next; `NEVER` after a turn has seen to it.
    pub due: Option<Time>,
}

/// What is behind the lock of the real one besides: it never puts anything off.
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

/// A clock that stands at this time.
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
    clock: Clock,
    pub alarm: Alarm,
    memory: Memory,
    /// Positions, as bits, whose replies acknowledge no put: they may leave while the disk fails.
    pub lesser: AtomicU64,
    /// Turns of the timer that found something due.
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

    /// As the real one: what is due is done, and the alarm set to what comes next.
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

    pub fn log(&self) -> &Durability {
        &self.log
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
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
