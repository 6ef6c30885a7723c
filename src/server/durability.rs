//! Durability of replies: replies that wait for the log, and when its threads write and sync.
//!
//! Owns the holding of replies: one that promises durability stays in its connection's output until the log is safe up
//! to the records it depends on. One write (and with `-f0` one sync) at the end of a pool thread's round serves all
//! connections of that round; on a slow disk the log's own threads do it, so that commands that do not need the disk
//! are not delayed. Must not know the format of the log.
//!
//! Promises: P12, P14.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::command_log::SlowReply;
use super::delivery::Outbox;
use super::space::Space;
use crate::binlog::{Journal, JournalAccess, Required, SyncMode, Wal};
use crate::engine::Time;
use crate::protocol::Output;
use crate::shared::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::shared::lock_order::{Condvar, Mutex, HELD_REPLIES, WAKE_UP};

/// How long records that no reply depends on may stay unsynced.
const UNHURRIED: Duration = Duration::from_millis(50);

/// Bytes of the log that justify another sync while others are under way.
const MUCH: u64 = 32 * 1024;

/// What a reply promises about the log.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The log must be durable up to this byte offset.
    position: u64,
    /// A job was put, which must not be acknowledged while the disk fails. Other replies are then sent with a weaker
    /// promise.
    is_put: bool,
}

/// A connection whose replies wait for the log.
struct Hold {
    promise: Promise,
    outbox: Arc<Outbox>,
    /// Set if slow commands are logged.
    slow_reply: Option<SlowReply>,
}

pub struct Durability {
    wal: Wal,
    /// The replies that wait for the log, ordered by the log position they need.
    holds: Mutex<VecDeque<Hold>, HELD_REPLIES>,
    /// The end of the log as of the last turn.
    appended: AtomicU64,
    /// The position up to which a thread has written, or has requested a write.
    committed: AtomicU64,
    /// The position up to which a syncer thread has begun to sync, and how many such threads do so.
    begun: AtomicU64,
    under_way: AtomicU64,
    /// Maintenance of the log is due.
    maintain: AtomicBool,
    space: Space,
    /// Wakes the writer thread, which writes what a pool thread did not write.
    writer: Bell,
    syncer: Bell,
}

/// Wakes one thread at an agreed time.
#[derive(Default)]
pub struct Bell {
    state: Mutex<BellState, WAKE_UP>,
    rung: Condvar,
    /// A time is set; can be read without the lock.
    armed: AtomicBool,
}

#[derive(Default)]
struct BellState {
    at: Option<Instant>,
    /// The time has come, but no thread may continue yet.
    is_late: bool,
    stop: bool,
}

impl std::fmt::Debug for Durability {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.debug_struct("Durability").field("safe", &self.wal.durable()).finish_non_exhaustive()
    }
}

impl Durability {
    /// Creates the state for a log that was just opened.
    pub fn new(wal: Wal) -> Durability {
        Durability {
            wal,
            holds: Mutex::default(),
            appended: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            maintain: AtomicBool::new(true),
            space: Space::default(),
            writer: Bell::default(),
            syncer: Bell::default(),
        }
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The write-ahead log, which does not know about replies.
    pub fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Records the end of the log and whether there is maintenance work, after a turn, with the engine locked.
    pub fn appended(&self, position: u64, maintain: bool) {
        self.appended.store(position, Ordering::Release);
        if maintain {
            self.maintain.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the promise made by commands that moved the required positions from `before` to `after`, or `None` if
    /// their replies need not wait. Call with the engine locked.
    pub fn promise(&self, before: Required, after: Required) -> Option<Promise> {
        let is_put = after.put_count > before.put_count;
        let must_wait =
            after.count != before.count && after.any > self.wal.durable() && (is_put || !self.wal.is_failing());
        must_wait.then_some(Promise { position: after.any, is_put })
    }

    /// Appends replies to `outbox`, which are held there, with everything after them, until the log fulfills `promise`.
    /// `waits`: the client waits after them. Returns `true` if something can be sent immediately. Call with the engine
    /// locked.
    pub fn hold(
        &self,
        promise: Promise,
        outbox: &Arc<Outbox>,
        out: &mut Output,
        waits: bool,
        slow_reply: Option<SlowReply>,
    ) -> bool {
        // The outbox comes first, because a thread that detects a disk failure may release it as soon as it is in the
        // queue.
        let has_output = outbox.reply(out, waits, true);
        self.holds.lock().push_back(Hold { promise, outbox: outbox.clone(), slow_reply });
        has_output
    }

    /// Holds the next output of `outbox`, the notification that a job has ended, until the log is durable up to
    /// `required`. `is_result`: the notification is a result that the server stores, which is not sent while the disk
    /// fails. Call with the engine locked.
    pub fn hold_events(&self, required: Required, is_result: bool, outbox: &Arc<Outbox>) {
        let position = if is_result { required.puts } else { required.any };
        if position > self.wal.durable() && (is_result || !self.wal.is_failing()) {
            outbox.hold();
            let promise = Promise { position, is_put: is_result };
            let mut holds = self.holds.lock();
            let place = holds.partition_point(|other| other.promise.position <= promise.position);
            holds.insert(place, Hold { promise, outbox: outbox.clone(), slow_reply: None });
        }
    }

    /// Returns `true` if [`Durability::commit`] may have to write.
    pub fn is_due(&self) -> bool {
        self.appended.load(Ordering::Acquire) > self.committed.load(Ordering::Acquire)
    }

    /// Writes what was appended, or requests the write, and releases the replies that are durable. `may_sync`: if the
    /// disk is fast, this thread also syncs.
    pub fn commit(&self, access: &impl JournalAccess, may_sync: bool, spare: &mut Output) {
        let appended = self.appended.load(Ordering::Acquire);
        if appended > self.committed.load(Ordering::Acquire) {
            self.committed.fetch_max(appended, Ordering::AcqRel);
            self.write_or_request(access, may_sync);
            // For the sync, if one is due, and to check that the log still exists.
            if !self.syncer.is_armed() {
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

    fn write_or_request(&self, access: &impl JournalAccess, may_sync: bool) {
        let wal = &self.wal;
        match wal.mode() {
            // Records on which no reply depends, such as reservations, are synced together with later ones.
            SyncMode::Always if self.holds.lock().is_empty() => {
                if !wal.is_slow() {
                    wal.write_promptly(access);
                }
                self.syncer.ring_by(Instant::now() + UNHURRIED);
            }
            SyncMode::Always => {
                if wal.is_slow() || !wal.write_promptly(access) || !may_sync || !wal.sync_promptly(access) {
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

    /// Writes what compaction has appended, and arranges for a sync.
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

    /// Releases the replies that no longer have to wait and, if the disk fails, the commands that wait for space on it.
    /// Returns the number of replies.
    pub fn release(&self, spare: &mut Output) -> usize {
        if self.wal.is_failing() {
            self.space.resume(usize::MAX);
        }
        let mut free;
        {
            let mut holds = self.holds.lock();
            if holds.is_empty() {
                return 0;
            }
            free = Vec::with_capacity(holds.len());
            let durable = self.wal.durable();
            while holds.front().is_some_and(|hold| hold.promise.position <= durable) {
                free.extend(holds.pop_front());
            }
            if self.wal.is_failing() {
                // What was done is valid while the server runs, and becomes durable when the disk recovers; only a new
                // job must not be acknowledged before that.
                let (keep, go) = std::mem::take(&mut *holds).into_iter().partition(|hold| hold.promise.is_put);
                let go: VecDeque<Hold> = go;
                *holds = keep;
                free.extend(go);
            }
        }
        let count = free.len();
        for hold in free {
            hold.outbox.release(spare);
            if let Some(slow_reply) = hold.slow_reply {
                slow_reply.log();
            }
        }
        count
    }

    /// Waits until a sync is due. Returns `false` if the syncer must end. Otherwise call [`Durability::synced`] later.
    pub fn wait_to_sync(&self) -> bool {
        let is_due = self.syncer.wait(|| self.may_sync());
        self.under_way.fetch_add(is_due.into(), Ordering::AcqRel);
        is_due
    }

    /// Returns `true` if another sync should begin now. While others are under way, more replies must depend on it than
    /// on them: fewer and larger syncs serve more clients.
    fn may_sync(&self) -> bool {
        let under_way = self.under_way.load(Ordering::Acquire);
        if under_way == 0 || under_way >= self.wal.syncs_at_once() as u64 {
            return under_way == 0;
        }
        let begun = self.begun.load(Ordering::Acquire);
        if self.appended.load(Ordering::Acquire).saturating_sub(begun) >= MUCH {
            return true;
        }
        let holds = self.holds.lock();
        let before = holds.partition_point(|hold| hold.promise.position <= begun);
        before > 0 && holds.len() - before > before
    }

    /// Returns `true` if as many replies wait again as a sync has released.
    pub fn has_gathered(&self, released: usize) -> bool {
        let waiting = self.holds.lock().len();
        waiting > 0 && waiting >= released
    }

    /// Records the end of a sync, after which another may begin.
    pub fn synced(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        self.syncer.remind();
    }

    /// Waits until the writer thread has to write. Returns `false` if it must end.
    pub fn wait_to_write(&self) -> bool {
        self.writer.wait(|| true)
    }

    /// Runs one round of a syncer thread. Returns the number of replies that it has released.
    pub fn sync(&self, access: &impl JournalAccess, spare: &mut Output) -> usize {
        let is_written = self.wal.write(access);
        // Others may have appended records since this sync became due.
        self.begun.fetch_max(self.wal.written(), Ordering::AcqRel);
        let _ = is_written && self.wal.sync(access);
        self.wal.check(access);
        let released = self.release(spare);
        // Segments that waited for this sync can be removed, and a failed disk is retried even without client activity.
        if access.with(|journal: &mut Journal, _| journal.needs_maintenance()) || self.wal.is_failing() {
            self.space.maintain();
        }
        released
    }

    pub fn stop(&self) {
        self.space.stop();
        self.writer.stop();
        self.syncer.stop();
    }

    /// Writes and syncs everything, after the threads have ended.
    pub fn close(&self, access: &impl JournalAccess, now: Time) {
        self.wal.close(access, now);
        self.release(&mut Output::new());
        self.space.resume(usize::MAX);
    }
}

impl Bell {
    /// Returns `true` if a time is set.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire)
    }

    /// Wakes the thread at this time, or earlier if an earlier time is set.
    pub fn ring_by(&self, at: Instant) {
        self.armed.store(true, Ordering::Release);
        let mut state = self.state.lock();
        if state.at.is_none_or(|other| at < other) {
            state.at = Some(at);
        } else if !state.is_late {
            return;
        }
        self.rung.notify_one();
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.rung.notify_all();
    }

    /// Makes a thread check again whether it may continue.
    fn remind(&self) {
        if self.state.lock().is_late {
            self.rung.notify_one();
        }
    }

    /// Waits until the agreed time, and then until `may_continue`, which is called whenever the bell is rung. Returns
    /// `false` if the thread must end.
    pub fn wait(&self, may_continue: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return false;
            }
            match state.at {
                Some(at) if at > Instant::now() => {
                    self.rung.wait_until(&mut state, at);
                }
                Some(_) if may_continue() => {
                    (state.at, state.is_late) = (None, false);
                    self.armed.store(false, Ordering::Release);
                    return true;
                }
                at => {
                    state.is_late = at.is_some();
                    self.rung.wait(&mut state);
                }
            }
        }
    }
}
