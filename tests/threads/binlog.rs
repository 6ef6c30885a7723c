//! A simulated log that consists only of positions: the ends of the appended, the written and the synced parts. The
//! simulated disk can fail.
//!
//! Owns the positions that replies wait for. Other threads can run between any two steps of this code.

use crate::shims::{AtomicBool, AtomicU64, Mutex, Ordering};

pub use beanpole::internals::binlog::Required;
use beanpole::internals::engine::Time;

/// The variants of `beanpole::SyncMode`. Only the crate itself can match that type exhaustively, because it is
/// `#[non_exhaustive]`.
#[allow(dead_code)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMode {
    Always,
    Every(u64),
    Never,
}

/// A stub of the journal. It stores only the position after the last appended record, and the positions for which
/// replies must wait.
#[derive(Debug, Default)]
pub struct Journal {
    pub position: u64,
    pub required: Required,
}

impl Journal {
    pub fn needs_maintenance(&self) -> bool {
        false
    }
}

/// Access to the journal under the engine's lock.
pub trait JournalAccess {
    fn with<R>(&self, work: impl FnOnce(&mut Journal, &mut ()) -> R) -> R;
}

/// A stub of the storage. It never requires that a body is stored before its command is executed.
#[derive(Debug)]
pub struct Storage;

impl Storage {
    pub fn must_stage(&self, _: &[u8]) -> bool {
        false
    }
}

#[derive(Debug)]
pub struct Wal {
    pub storage: Box<Storage>,
    pub mode: SyncMode,
    written: AtomicU64,
    durable: AtomicU64,
    failing: AtomicBool,
    syncing: Mutex<()>,
    /// `true` to refuse some writes and syncs by pool threads, as the log does while the disk is slow.
    refuses_pool_threads: bool,
}

impl Wal {
    pub fn new(refuses_pool_threads: bool) -> Wal {
        let (written, durable) = (AtomicU64::new(0), AtomicU64::new(0));
        let (storage, failing, syncing) = (Box::new(Storage), AtomicBool::new(false), Mutex::default());
        Wal { storage, mode: SyncMode::Always, written, durable, failing, syncing, refuses_pool_threads }
    }

    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    pub fn fail(&self, fails: bool) {
        self.failing.store(fails, Ordering::Release);
    }

    fn refuses(&self) -> bool {
        self.refuses_pool_threads && shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.3)
    }

    pub fn syncs_at_once(&self) -> usize {
        1
    }

    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub fn is_slow(&self) -> bool {
        self.refuses()
    }

    pub fn write(&self, hub: &impl JournalAccess) -> bool {
        let position = hub.with(|journal, ()| journal.position);
        if !self.is_failing() {
            self.written.fetch_max(position, Ordering::AcqRel);
        }
        !self.is_failing()
    }

    pub fn sync(&self, _: &impl JournalAccess) -> bool {
        let _one = self.syncing.lock();
        let written = self.written.load(Ordering::Acquire);
        shuttle::thread::yield_now();
        if self.is_failing() {
            return false;
        }
        self.durable.fetch_max(written, Ordering::AcqRel);
        true
    }

    pub fn write_promptly(&self, hub: &impl JournalAccess) -> bool {
        !self.refuses() && self.write(hub)
    }

    pub fn sync_promptly(&self, hub: &impl JournalAccess) -> bool {
        !self.refuses() && self.sync(hub)
    }

    pub fn is_unsynced(&self) -> bool {
        self.written.load(Ordering::Acquire) > self.durable()
    }

    pub fn is_full(&self) -> bool {
        false
    }

    pub fn check(&self, _: &impl JournalAccess) {}

    pub fn reserve(&self, _: &impl JournalAccess, _: u64) {}

    pub fn maintain(&self, _: &impl JournalAccess, _: bool) -> bool {
        false
    }

    pub fn close(&self, hub: &impl JournalAccess, _: Time) {
        let _ = self.write(hub) && self.sync(hub);
    }
}
