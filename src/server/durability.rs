//! Decides which replies wait for the log, and when the log's threads write and sync. After a pool thread has served
//! several connections, a single write (with `-f0`, also a sync) makes all their changes durable. On a slow disk, the
//! log's threads write and sync instead, so that commands that do not need the disk are not delayed.
//! Enforces promises P12 and P14 of beanpole-promises(7).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::delivery::Outbox;
use super::reports::SlowReply;
use super::space::{Space, Staging};
use crate::binlog::{Journal, JournalAccess, Required, SyncMode, Wal};
use crate::engine::{BodyRef, Time};
use crate::protocol::{Output, Request};
use crate::shared::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::shared::lock_order::{Condvar, Mutex, HELD_REPLIES, WAKE_UP};

/// With `-f0`, records on which no reply depends are synced after at most this time.
const MAX_UNSYNCED: Duration = Duration::from_millis(50);

/// While syncs are running, another sync begins if they leave at least this number of bytes unsynced.
const EARLY_SYNC_BYTES: u64 = 32 * 1024;

#[derive(Clone, Copy, Debug)]
pub struct Promise {
    position: u64,
    /// `true` if the reply acknowledges a new job or a result. If the disk is failing, only these replies are withheld.
    is_put: bool,
}

struct HeldReply {
    promise: Promise,
    outbox: Arc<Outbox>,
    slow: Option<SlowReply>,
}

pub struct Durability {
    pub wal: Wal,
    /// Replies in the order of log positions.
    held: Mutex<VecDeque<HeldReply>, HELD_REPLIES>,
    /// The log's end position when the engine was last unlocked.
    appended: AtomicU64,
    /// The log position up to which a write has been done or requested.
    committed: AtomicU64,
    /// The log position up to which a sync has begun. `under_way` syncs are running.
    begun: AtomicU64,
    under_way: AtomicU64,
    maintain: AtomicBool,
    pub space: Space,
    pub staging: Staging,
    pub writer: Bell,
    syncer: Bell,
}

#[derive(Default)]
pub struct Bell {
    state: Mutex<BellState, WAKE_UP>,
    rung: Condvar,
    armed: AtomicBool,
}

#[derive(Default)]
struct BellState {
    at: Option<Instant>,
    /// `true` if the time `at` has passed but no waiting thread could continue.
    is_late: bool,
    stop: bool,
}

impl Durability {
    pub fn new(wal: Wal) -> Durability {
        let (held, space, staging, writer, syncer) = Default::default();
        let [appended, committed, begun, under_way] = std::array::from_fn(|_| AtomicU64::new(0));
        let maintain = AtomicBool::new(true);
        Durability { wal, held, appended, committed, begun, under_way, maintain, space, staging, writer, syncer }
    }

    /// The engine must be locked.
    pub fn appended(&self, position: u64, maintain: bool) {
        self.appended.store(position, Ordering::Release);
        if maintain {
            self.maintain.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `None` if the replies to commands need not wait. `before` and `after` are the required positions before
    /// and after the commands. The engine must be locked.
    pub fn promise(&self, before: Required, after: Required) -> Option<Promise> {
        let is_put = after.put_count > before.put_count;
        let must_wait =
            after.count != before.count && after.any > self.wal.durable() && (is_put || !self.wal.is_failing());
        must_wait.then_some(Promise { position: after.any, is_put })
    }

    /// `waits`: the last command blocks the client. Returns `true` if output can be sent. The engine must be locked.
    pub fn hold(
        &self,
        promise: Promise,
        outbox: &Arc<Outbox>,
        out: &mut Output,
        waits: bool,
        slow: Option<SlowReply>,
    ) -> bool {
        // Another thread can release the replies as soon as they are in the queue, so update the outbox first.
        let has_output = outbox.reply(out, waits, true);
        self.held.lock().push_back(HeldReply { promise, outbox: outbox.clone(), slow });
        has_output
    }

    /// Delays an event until the log is durable up to `required`. `is_result` means that the event reports the end of a
    /// job whose result the server stores. If the disk is failing, only these events wait. The engine must be locked.
    pub fn hold_events(&self, required: Required, is_result: bool, outbox: &Arc<Outbox>) {
        let position = if is_result { required.puts } else { required.any };
        if position > self.wal.durable() && (is_result || !self.wal.is_failing()) {
            outbox.hold();
            let promise = Promise { position, is_put: is_result };
            let mut held = self.held.lock();
            let index = held.partition_point(|other| other.promise.position <= promise.position);
            held.insert(index, HeldReply { promise, outbox: outbox.clone(), slow: None });
        }
    }

    pub fn body_to_stage<'r>(&self, request: &'r Request) -> Option<&'r Arc<Box<[u8]>>> {
        match request.job_body()?.borrow() {
            BodyRef::Large(body) if self.wal.storage.must_stage(body) => Some(body),
            _ => None,
        }
    }

    pub fn is_due(&self) -> bool {
        self.appended.load(Ordering::Acquire) > self.committed.load(Ordering::Acquire)
    }

    pub fn commit(&self, access: &impl JournalAccess, may_sync: bool, spare: &mut Output) {
        let appended = self.appended.load(Ordering::Acquire);
        if appended > self.committed.load(Ordering::Acquire) {
            self.committed.fetch_max(appended, Ordering::AcqRel);
            self.write_or_request(access, may_sync);
            // The syncer thread runs even if no sync is due, because it also checks that the log's files exist.
            if !self.syncer.is_armed() {
                let within = match self.wal.mode {
                    SyncMode::Every(millis) => Duration::from_millis(millis),
                    SyncMode::Always | SyncMode::Never => MAX_UNSYNCED,
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
        match wal.mode {
            // No reply waits for the new records (of reservations, for example), so sync them together with later ones.
            SyncMode::Always if self.held.lock().is_empty() => {
                if !wal.is_slow() {
                    wal.write_promptly(access);
                }
                self.syncer.ring_by(Instant::now() + MAX_UNSYNCED);
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

    pub fn write_compacted(&self, access: &impl JournalAccess) {
        self.wal.write(access);
        if self.wal.is_unsynced() {
            let millis = if let SyncMode::Every(millis) = self.wal.mode { millis } else { 0 };
            self.syncer.ring_by(Instant::now() + Duration::from_millis(millis));
        }
    }

    /// Returns the number of released replies. If the disk is failing, resumes commands that wait for log space.
    pub fn release(&self, spare: &mut Output) -> usize {
        if self.wal.is_failing() {
            self.space.resume(usize::MAX);
        }
        let mut held = self.held.lock();
        if held.is_empty() {
            return 0;
        }
        let mut released: SmallVec<[HeldReply; 1]> = SmallVec::with_capacity(held.len());
        let durable = self.wal.durable();
        while held.front().is_some_and(|reply| reply.promise.position <= durable) {
            released.extend(held.pop_front());
        }
        if self.wal.is_failing() {
            // All changes are kept. Only acknowledgments of new jobs and of results must wait until the disk recovers.
            let all = std::mem::take(&mut *held).into_iter();
            let (keep, released_now): (_, VecDeque<HeldReply>) = all.partition(|reply| reply.promise.is_put);
            *held = keep;
            released.extend(released_now);
        }
        drop(held);
        let count = released.len();
        for reply in released {
            reply.outbox.release(spare);
            reply.slow.into_iter().for_each(|slow| slow.log());
        }
        count
    }

    /// Returns `false` if the syncer must end. Otherwise, call [`Durability::synced`] after the sync.
    pub fn wait_to_sync(&self) -> bool {
        let is_due = self.syncer.wait(|| self.may_sync());
        self.under_way.fetch_add(is_due.into(), Ordering::AcqRel);
        is_due
    }

    /// Returns `true` if a sync may begin. While some syncs run, but fewer than the maximum, a new sync must write
    /// at least [`EARLY_SYNC_BYTES`] or release more replies than they do: fewer and larger syncs serve more clients.
    fn may_sync(&self) -> bool {
        let under_way = self.under_way.load(Ordering::Acquire);
        if under_way == 0 || under_way >= self.wal.syncs_at_once() as u64 {
            return under_way == 0;
        }
        let begun = self.begun.load(Ordering::Acquire);
        if self.appended.load(Ordering::Acquire).saturating_sub(begun) >= EARLY_SYNC_BYTES {
            return true;
        }
        let held = self.held.lock();
        let before = held.partition_point(|reply| reply.promise.position <= begun);
        before > 0 && held.len() - before > before
    }

    pub fn has_gathered(&self, released: usize) -> bool {
        let waiting = self.held.lock().len();
        waiting > 0 && waiting >= released
    }

    pub fn synced(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        self.syncer.remind();
    }

    pub fn sync(&self, access: &impl JournalAccess, spare: &mut Output) -> usize {
        let is_written = self.wal.write(access);
        // The sync includes records that were appended after the sync became due.
        self.begun.fetch_max(self.wal.written(), Ordering::AcqRel);
        let _ = is_written && self.wal.sync(access);
        self.wal.check(access);
        let released = self.release(spare);
        // Segment maintenance may have waited for this sync. Writes to a failed disk are retried even without clients.
        if access.with(|journal: &mut Journal, _| journal.needs_maintenance()) || self.wal.is_failing() {
            self.space.maintain();
        }
        released
    }

    pub fn stop(&self) {
        self.space.stop();
        self.staging.stop();
        self.writer.stop();
        self.syncer.stop();
    }

    pub fn close(&self, access: &impl JournalAccess, now: Time) {
        self.wal.close(access, now);
        self.release(&mut Output::new());
        self.space.resume(usize::MAX);
    }
}

impl Bell {
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire)
    }

    /// Schedules `at` and wakes a thread. If an earlier time is already scheduled, wakes a thread only if `is_late`.
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

    fn remind(&self) {
        if self.state.lock().is_late {
            self.rung.notify_one();
        }
    }

    /// Returns `false` if the thread must end. After the scheduled time, each wake-up calls `may_continue` again.
    pub fn wait(&self, may_continue: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return false;
            }
            match state.at {
                Some(at) if at > Instant::now() => drop(self.rung.wait_until(&mut state, at)),
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
