//! The engine's lock with a simulated journal, and a clock that does not advance.
//!
//! Owns the parts of the hub that the server's files use.

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

#[derive(Debug, Default)]
pub struct Core {
    pub journal: Journal,
    pub engine: Engine,
    /// The next deadline, or `None` after a turn has handled it.
    pub due: Option<Time>,
}

/// A stub of the engine, which never defers work.
#[derive(Debug, Default)]
pub struct Engine;

impl Engine {
    pub fn has_deferred(&self) -> bool {
        false
    }
}

/// A clock that always returns the same time.
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

/// A stub of the configuration, with the size of a segment.
pub struct Config {
    pub log: LogConfig,
}

pub struct LogConfig {
    pub segment_size: u64,
}

pub struct Hub {
    pub config: Config,
    pub core: Mutex<Core, ENGINE>,
    pub log: Option<Durability>,
    pub clock: Clock,
    pub alarm: Alarm,
    pub memory: Memory,
    /// A bit set of log positions. Replies with these positions do not acknowledge a put, so they can be sent while the
    /// disk is failing.
    pub lesser: AtomicU64,
    /// The number of due deadlines that turns of all threads have handled.
    pub served: AtomicU64,
}

impl Hub {
    pub fn new(refuses_pool_threads: bool) -> Hub {
        Hub {
            config: Config { log: LogConfig { segment_size: 4096 } },
            core: Mutex::default(),
            log: Some(Durability::new(Wal::new(refuses_pool_threads))),
            clock: Clock(Time::from_nanos(1000)),
            alarm: Alarm::new(),
            memory: Memory,
            lesser: AtomicU64::new(0),
            served: AtomicU64::new(0),
        }
    }

    /// Like the server's `Hub::turn`: runs `work` and due timers under the lock, and sets the alarm to the next
    /// deadline.
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

    pub fn durability(&self) -> &Durability {
        self.log.as_ref().expect("a log")
    }

    pub fn commit(&self, _: &mut TurnScratch) {}
    pub fn clear_discarded(&self) {}
    pub fn give_back(&self, _: bool) -> bool {
        false
    }
}

impl JournalAccess for Hub {
    fn with<R>(&self, work: impl FnOnce(&mut Journal, &mut ()) -> R) -> R {
        work(&mut self.core.lock().journal, &mut ())
    }
}
