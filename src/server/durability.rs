//! The log in the server: replies that wait for it, and the threads that write and sync it.
//!
//! Owns the holding back of replies: one that promises durability stays in its connection's output until the log is
//! safe up to the records that it depends on. One write (and with `-f0` one sync) at the end of a round of a pool
//! thread serves all connections of that round; on a slow disk the log's own threads do it, so that commands which need
//! no disk are answered meanwhile. Must not know the format of the log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::command_log::Held;
use super::delivery::Outbox;
use super::space::Space;
use crate::binlog::{Journal, JournalAccess, Required, SyncMode, Wal};
use crate::protocol::Output;
use crate::shared::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::shared::lock_order::{self, HELD_REPLIES};

/// How long may stay unsynced what no reply depends on.
const UNHURRIED: Duration = Duration::from_millis(50);

/// What a reply promises of the log.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The log must be durable up to this byte.
    position: u64,
    /// A job was put, which must not be acknowledged while the disk fails. Other replies then go out with a lesser
    /// promise.
    is_put: bool,
}

/// A connection whose replies wait.
struct Hold {
    promise: Promise,
    outbox: Arc<Outbox>,
    /// If slow commands are told of.
    held: Option<Held>,
}

pub struct Durability {
    wal: Wal,
    /// In the order of their positions.
    holds: lock_order::Mutex<VecDeque<Hold>, HELD_REPLIES>,
    /// The position behind all that was appended, as of the last turn.
    appended: AtomicU64,
    /// The one up to which somebody has written, or asked for it.
    committed: AtomicU64,
    /// There is work beside writing.
    maintain: AtomicBool,
    space: Space,
    /// Wakes the writer thread, which writes what a pool thread did not.
    writer: Bell,
    syncer: Bell,
}

/// Wakes one thread at a time that is agreed upon.
#[derive(Default)]
struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
    /// A time is agreed upon; for a look without the lock.
    armed: AtomicBool,
}

#[derive(Default)]
struct BellState {
    at: Option<Instant>,
    stop: bool,
}

impl std::fmt::Debug for Durability {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.debug_struct("Durability").field("safe", &self.wal.durable()).finish_non_exhaustive()
    }
}

impl Durability {
    /// Of a log that was just opened.
    pub fn new(wal: Wal) -> Durability {
        Durability {
            wal,
            holds: lock_order::Mutex::default(),
            appended: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            maintain: AtomicBool::new(true),
            space: Space::default(),
            writer: Bell::default(),
            syncer: Bell::default(),
        }
    }

    /// Those who wait for space.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The write-ahead log, which does not know of replies.
    pub fn wal(&self) -> &Wal {
        &self.wal
    }

    /// After a turn, with the engine locked: how far the log goes, and whether there is work beside writing.
    pub fn appended(&self, position: u64, maintain: bool) {
        self.appended.store(position, Ordering::Release);
        if maintain {
            self.maintain.store(true, Ordering::Relaxed);
        }
    }

    /// What the replies of commands promise that moved the required positions from `before` to `after`; none if they
    /// need not wait. With the engine locked.
    pub fn promise(&self, before: Required, after: Required) -> Option<Promise> {
        let is_put = after.put_count > before.put_count;
        let must_wait =
            after.count != before.count && after.any > self.wal.durable() && (is_put || !self.wal.is_failing());
        must_wait.then_some(Promise { position: after.any, is_put })
    }

    /// Appends replies to `outbox`, where they and all that follows stay until the log has kept `promise`. `waits`: the
    /// client waits behind them. True if something can be sent at once. With the engine locked.
    pub fn hold(
        &self,
        promise: Promise,
        outbox: &Arc<Outbox>,
        out: &mut Output,
        waits: bool,
        held: Option<Held>,
    ) -> bool {
        // First the outbox: whoever sees the disk fail may release it as soon as it stands in the queue.
        let has_output = outbox.reply(out, waits, true);
        self.holds.lock().push_back(Hold { promise, outbox: outbox.clone(), held });
        has_output
    }

    /// Holds back what `outbox` sends next, the news that a job has ended, until the log has everything up to
    /// `required`. `is_result`: the news is a result that the server keeps, which is not sent while the disk fails.
    /// Call with the engine locked.
    pub fn hold_news(&self, required: Required, is_result: bool, outbox: &Arc<Outbox>) {
        let position = if is_result { required.puts } else { required.any };
        if position > self.wal.durable() && (is_result || !self.wal.is_failing()) {
            outbox.hold();
            let promise = Promise { position, is_put: is_result };
            let mut holds = self.holds.lock();
            let place = holds.partition_point(|other| other.promise.position <= promise.position);
            holds.insert(place, Hold { promise, outbox: outbox.clone(), held: None });
        }
    }

    /// Brings what was appended to the disk, or has it brought, and lets go of the replies that are safe.
    pub fn commit(&self, access: &impl JournalAccess, spare: &mut Output) {
        let appended = self.appended.load(Ordering::Acquire);
        if appended > self.committed.load(Ordering::Acquire) {
            self.committed.fetch_max(appended, Ordering::AcqRel);
            self.bring(access);
            // For the sync, if one is owed, and for a look whether the log is still there.
            if !self.syncer.armed.load(Ordering::Acquire) {
                let within = match self.wal.mode() {
                    SyncMode::Every(millis) => Duration::from_millis(millis),
                    SyncMode::Always | SyncMode::Never => UNHURRIED,
                };
                self.syncer.ring_by(Instant::now() + within);
            }
        }
        self.release(spare);
        if self.maintain.swap(false, Ordering::Relaxed) || self.wal.is_failing() {
            self.space.maintain();
        }
    }

    fn bring(&self, access: &impl JournalAccess) {
        let wal = &self.wal;
        match wal.mode() {
            // What nobody waits for, such as that a job was reserved, is synced with what comes next.
            SyncMode::Always if self.holds.lock().is_empty() => {
                if !wal.is_slow() {
                    wal.write_promptly(access);
                }
                self.syncer.ring_by(Instant::now() + UNHURRIED);
            }
            SyncMode::Always => {
                if wal.is_slow() || !wal.write_promptly(access) || !wal.sync_promptly(access) {
                    self.syncer.ring_by(Instant::now());
                }
            }
            SyncMode::Every(_) | SyncMode::Never => {
                if !wal.write_promptly(access) {
                    self.writer.ring_by(Instant::now());
                }
            }
        }
    }

    /// Writes what compaction has appended, and sees to it that it is synced.
    pub fn write_compacted(&self, access: &impl JournalAccess) {
        self.wal.write(access);
        if self.wal.is_unsynced() {
            match self.wal.mode() {
                SyncMode::Every(millis) => self.syncer.ring_by(Instant::now() + Duration::from_millis(millis)),
                SyncMode::Always => self.syncer.ring_by(Instant::now()),
                SyncMode::Never => {}
            }
        }
    }

    /// Lets go of the replies that need wait no longer, and, if the disk fails, of the commands that wait for space on
    /// it.
    pub fn release(&self, spare: &mut Output) {
        if self.wal.is_failing() {
            self.space.go_on(usize::MAX);
        }
        let mut free;
        {
            let mut holds = self.holds.lock();
            if holds.is_empty() {
                return;
            }
            free = Vec::with_capacity(holds.len());
            let durable = self.wal.durable();
            while holds.front().is_some_and(|hold| hold.promise.position <= durable) {
                free.extend(holds.pop_front());
            }
            if self.wal.is_failing() {
                // What was done is true as long as the server runs, and durable when the disk is back; only a new job
                // must not be acknowledged before it is.
                let (keep, go) = std::mem::take(&mut *holds).into_iter().partition(|hold| hold.promise.is_put);
                let go: VecDeque<Hold> = go;
                *holds = keep;
                free.extend(go);
            }
        }
        for hold in free {
            hold.outbox.release(spare);
            if let Some(held) = hold.held {
                held.end();
            }
        }
    }

    /// Waits until it is time to sync; false if the syncer is to end.
    pub fn wait_to_sync(&self) -> bool {
        self.syncer.wait()
    }

    /// Waits until somebody must write what a pool thread did not; false if the writer is to end.
    pub fn wait_to_write(&self) -> bool {
        self.writer.wait()
    }

    /// What the syncer does each time.
    pub fn sync(&self, access: &impl JournalAccess, spare: &mut Output) {
        let _ = self.wal.write(access) && self.wal.sync(access);
        self.wal.check(access);
        self.release(spare);
        // Segments that waited for this sync may go; a disk that has failed is tried again, also if nobody says
        // anything.
        if access.with(|journal: &mut Journal, _| journal.needs_maintenance()) || self.wal.is_failing() {
            self.space.maintain();
        }
    }

    pub fn stop(&self) {
        self.space.stop();
        self.writer.stop();
        self.syncer.stop();
    }

    /// When they have ended: writes and syncs everything.
    pub fn close(&self, access: &impl JournalAccess) {
        self.wal.close(access);
        self.release(&mut Output::new());
        self.space.go_on(usize::MAX);
    }
}

impl Bell {
    fn ring_by(&self, at: Instant) {
        self.armed.store(true, Ordering::Release);
        let mut state = self.state.lock();
        if state.at.is_none_or(|other| at < other) {
            state.at = Some(at);
            self.rung.notify_one();
        }
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.rung.notify_one();
    }

    /// Waits until the time that was agreed upon; false if it is to end.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return false;
            }
            match state.at {
                Some(at) if at <= Instant::now() => {
                    state.at = None;
                    self.armed.store(false, Ordering::Release);
                    return true;
                }
                Some(at) => drop(self.rung.wait_until(&mut state, at)),
                None => self.rung.wait(&mut state),
            }
        }
    }
}
