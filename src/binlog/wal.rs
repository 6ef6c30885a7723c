//! Keeping the log: who writes and syncs it, what happens when the disk fails, and what is done between.
//!
//! Owns the meeting of the journal, which is under the engine's lock, and the writer, which must not be: it takes bytes
//! under the lock and brings them to the disk without it. Lock order: maintenance, syncing, writer, engine. Must not
//! know connections: its callers ask [`Wal::durable`] which promises hold.
//!
//! Every call that touches the disk may take as long as the disk likes, but for the two with `promptly` in their names:
//! those give up when the disk is slow or busy, and somebody else must do what they have left undone.
//!
//! Promises: P12, P17.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::journal::{Journal, LARGE};
use super::segment::{segment_name, segment_number};
use super::storage::Storage;
use super::writer::{SyncMode, Writer};
use crate::engine::{Engine, Histogram, Span, Time};
use crate::shared::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::shared::lock_order::{LeafMutex, Mutex, MutexGuard, MAINTENANCE, SYNCING, WRITER};
use crate::shared::log_figures::Health;

/// A disk on which a write or a sync takes longer than this is slow: then only the log's own threads wait for it.
const SLOW: Duration = Duration::from_millis(2);

/// Upper bounds of the counted lengths of syncs, in nanoseconds: from 0.1 ms to a second.
const SYNC_BOUNDS: [u64; 12] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
];

/// So often [`Wal::reserve`] tries to keep the log within its bound, before it lets it grow.
const ROUNDS: usize = 8;

/// The engine and its journal, behind whatever lock they are.
pub trait JournalAccess {
    fn with<R>(&self, work: impl FnOnce(&mut Journal, &mut Engine) -> R) -> R;
}

pub struct Wal {
    storage: Arc<dyn Storage>,
    mode: SyncMode,
    writer: Mutex<Writer, WRITER>,
    /// Held during a sync, unless several may be under way at a time.
    syncing: Mutex<(), SYNCING>,
    /// One at a time looks after the segments: they must be begun and removed in the order of their numbers. Holds the
    /// reason why the directory could not be used, as it was last logged.
    tidying: Mutex<String, MAINTENANCE>,
    safe: AtomicU64,
    failing: AtomicBool,
    full: AtomicBool,
    /// A segment that is needed no longer could not be removed.
    stuck: AtomicBool,
    writes: Latency,
    syncs: Latency,
    /// How long they took, for those who want to know; locked alone.
    sync_times: Arc<LeafMutex<Histogram>>,
}

/// How long one kind of operation takes, of which one is under way at a time.
struct Latency {
    /// A moving average, in nanoseconds.
    average: AtomicU64,
    /// When the one that is under way began, in nanoseconds since `start`; zero if there is none.
    began: AtomicU64,
    start: Instant,
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
}

impl Latency {
    fn new(first: Duration, clock: impl Fn() -> Instant + Send + Sync + 'static) -> Latency {
        let start = clock();
        let average = AtomicU64::new(first.as_nanos() as u64);
        Latency { average, began: AtomicU64::new(0), start, clock: Box::new(clock) }
    }

    fn now(&self) -> u64 {
        ((self.clock)().duration_since(self.start).as_nanos() as u64).max(1)
    }

    /// Does it, and takes the time, of which one part in `parts` counts.
    fn measure<R>(&self, parts: u64, work: impl FnOnce() -> R) -> R {
        let began = self.now();
        self.began.store(began, Ordering::Relaxed);
        let result = work();
        self.began.store(0, Ordering::Relaxed);
        let average = self.average.load(Ordering::Relaxed) / 8 * 7 + (self.now() - began) / parts / 8;
        self.average.store(average, Ordering::Relaxed);
        result
    }

    /// Whether one is under way for longer than this.
    fn hangs_for(&self, length: Duration) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        began != 0 && self.now() > began + length.as_nanos() as u64
    }

    /// Whether they take longer than [`SLOW`], as far as the last few and the one that is under way tell.
    fn is_slow(&self) -> bool {
        self.average.load(Ordering::Relaxed) > SLOW.as_nanos() as u64 || self.hangs_for(SLOW)
    }
}

impl Wal {
    /// Of a log that was just opened. `first_sync`: how long the disk took for the first sync; none if it failed.
    pub fn new(writer: Writer, mode: SyncMode, first_sync: Option<Duration>) -> Wal {
        let storage = writer.storage();
        let [clock, other] = [(); 2].map(|()| storage.clone()).map(|storage| move || storage.now());
        Wal {
            writes: Latency::new(Duration::ZERO, clock),
            syncs: Latency::new(first_sync.unwrap_or_default(), other),
            sync_times: Arc::new(LeafMutex::new(Histogram::new(&SYNC_BOUNDS))),
            storage,
            mode,
            safe: AtomicU64::new(writer.safe()),
            writer: Mutex::new(writer),
            syncing: Mutex::new(()),
            tidying: Mutex::default(),
            failing: AtomicBool::new(first_sync.is_none()),
            full: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
        }
    }

    /// How long syncs took, updated by each sync.
    pub fn sync_times(&self) -> Arc<LeafMutex<Histogram>> {
        self.sync_times.clone()
    }

    /// When the log is synced.
    pub fn mode(&self) -> SyncMode {
        self.mode
    }

    /// The position up to which promises hold.
    pub fn durable(&self) -> u64 {
        self.safe.load(Ordering::Acquire)
    }

    /// The position up to which the log would survive a power cut.
    pub fn synced(&self) -> u64 {
        self.writer.lock().synced_to().position
    }

    /// The position up to which the log is written.
    pub fn written(&self) -> u64 {
        self.writer.lock().written()
    }

    /// Whether the disk refuses the log.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// How many syncs may be under way at a time.
    pub fn syncs_at_once(&self) -> usize {
        self.storage.syncs_at_once()
    }

    fn is_parallel(&self) -> bool {
        self.syncs_at_once() > 1
    }

    /// Whether syncs take long enough that they should not delay commands that need none.
    pub fn is_slow(&self) -> bool {
        self.is_parallel() || self.syncs.is_slow()
    }

    /// Whether a write or sync in progress, as threads other than the log's own perform them, takes long.
    pub fn is_blocked(&self) -> bool {
        let syncs = self.mode == SyncMode::Always && !self.is_parallel();
        self.writes.hangs_for(SLOW) || syncs && self.syncs.hangs_for(SLOW)
    }

    /// Whether something is written and not synced, and should be.
    pub fn is_unsynced(&self) -> bool {
        self.writer.lock().is_unsynced()
    }

    /// Writes all that was appended; false if the disk fails.
    pub fn write(&self, access: &impl JournalAccess) -> bool {
        // Before the lock as well: a thread that tries a failing disk holds it for long.
        !self.is_failing() && self.write_with(self.writer.lock(), access, |_| false)
    }

    /// The same for who must not wait for a slow disk, or long for a fast one; false also if the write is left to
    /// others.
    pub fn write_promptly(&self, access: &impl JournalAccess) -> bool {
        // A write may have to wait for a sync that is under way, and nobody knows yet for how long.
        if self.is_failing() || self.writes.is_slow() || self.syncs.hangs_for(Duration::ZERO) {
            return false;
        }
        self.writer.try_lock_for(SLOW).is_some_and(|writer| self.write_with(writer, access, Journal::is_large))
    }

    fn write_with(
        &self,
        mut writer: MutexGuard<Writer>,
        access: &impl JournalAccess,
        leave: impl FnOnce(&Journal) -> bool,
    ) -> bool {
        if self.is_failing() {
            return false;
        }
        let take = |journal: &mut Journal| (!leave(journal)).then(|| journal.take(writer.spare(), writer.synced_to()));
        let Some(batch) = access.with(|journal, _| take(journal)) else { return false };
        // Of many bytes, only the share that a pool thread would write counts.
        let share = 1 + batch.bytes.len() as u64 / LARGE as u64;
        match self.writes.measure(share, || writer.write(batch)) {
            Ok(()) => {
                self.safe.store(writer.safe(), Ordering::Release);
                true
            }
            Err(error) => {
                self.fail(access, &error);
                false
            }
        }
    }

    /// Syncs all that was written; false if the disk fails.
    pub fn sync(&self, access: &impl JournalAccess) -> bool {
        let _turn = (!self.is_parallel()).then(|| self.syncing.lock());
        self.sync_with(|| Some(self.writer.lock()), access)
    }

    /// The same for who must not wait for a slow disk; false also if the sync is left to others.
    pub fn sync_promptly(&self, access: &impl JournalAccess) -> bool {
        let turn = if self.is_slow() { None } else { self.syncing.try_lock_for(SLOW) };
        turn.is_some_and(|_turn| self.sync_with(|| self.writer.try_lock_for(SLOW), access))
    }

    /// If the writer is not available after the sync, nobody learns of the sync, and the next one repeats it.
    fn sync_with<'a>(
        &self,
        lock_writer: impl Fn() -> Option<MutexGuard<'a, Writer>>,
        access: &impl JournalAccess,
    ) -> bool {
        if self.is_failing() {
            return false;
        }
        let task = {
            let Some(mut writer) = lock_writer() else { return false };
            if self.is_failing() {
                return false;
            }
            if !writer.is_unsynced() {
                return true;
            }
            writer.sync_task()
        };
        let began = self.syncs.now();
        let result = self.syncs.measure(1, || task.run());
        self.sync_times.lock().observe(Span::from_nanos(self.syncs.now() - began));
        if let Err(error) = result {
            self.fail(access, &error);
            return false;
        }
        let Some(mut writer) = lock_writer() else { return false };
        writer.synced(&task);
        self.safe.store(writer.safe(), Ordering::Release);
        true
    }

    /// Checks that the folder and all segments are still in place. What lived in a segment that was removed is written
    /// again; if the log cannot go on in the files that it has open, it fails, and recovers with new ones. Does nothing
    /// while another thread makes or removes segments.
    pub fn check(&self, access: &impl JournalAccess) {
        let Some(_turn) = self.tidying.try_lock_for(Duration::ZERO) else { return };
        if self.is_failing() {
            return;
        }
        let not_found = |problem| io::Error::new(io::ErrorKind::NotFound, problem);
        if let Ok(false) = self.storage.is_in_place() {
            return self.fail(access, &not_found("the directory was removed or replaced under the server"));
        }
        let Ok(Some(names)) = self.storage.list_if_changed() else { return };
        if let Some(lost) = self.evacuate_missing(access, &names) {
            let unsynced = self.writer.lock().first_unsynced();
            if lost >= unsynced {
                self.fail(access, &not_found("a segment was removed under the server"));
            }
        }
    }

    /// Has what lived in missing segments written again; returns the newest of them.
    fn evacuate_missing(&self, access: &impl JournalAccess, names: &[String]) -> Option<u64> {
        let numbers: HashSet<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
        let lost = access.with(|journal, _| journal.evacuate_missing(|number| numbers.contains(&number)));
        if let Some(lost) = lost {
            let name = segment_name(lost);
            log::error!("{name}: it was removed under the server; the jobs of missing segments are written again");
        }
        lost
    }

    /// Shuts the log down cleanly at `now`. Nothing may be appended afterwards.
    pub fn close(&self, access: &impl JournalAccess, now: Time) {
        // In any mode: the last record says that everything before it is synced.
        self.demand_sync();
        if !(self.write(access) && self.sync(access)) {
            return;
        }
        access.with(|journal, _| journal.append_closed(now));
        if !(self.write(access) && self.sync(access)) {
            log::warn!("binlog: it was not shut down cleanly");
        }
    }

    fn demand_sync(&self) {
        self.writer.lock().demand_sync();
    }

    /// The only way into [`Health::Failing`] while the server runs.
    fn fail(&self, access: &impl JournalAccess, error: &io::Error) {
        // First: a failing log lets replies go, which a storage shared with other servers must prevent.
        self.storage.give_up(error);
        let was = access.with(|journal, _| {
            journal.set_health(Health::Failing);
            self.failing.swap(true, Ordering::AcqRel)
        });
        if !was {
            log::error!("binlog: the disk fails: {error}; new jobs are refused until it is back");
        }
    }

    /// Does what is to be done beside writing; true if there is more of it.
    pub fn maintain(&self, access: &impl JournalAccess) -> bool {
        self.maintain_and(access, true)
    }

    /// The same, but a full disk is only tried again if something was removed from it: each try fills it with zero
    /// bytes.
    pub fn maintain_sparingly(&self, access: &impl JournalAccess) -> bool {
        self.maintain_and(access, false)
    }

    fn maintain_and(&self, access: &impl JournalAccess, try_full: bool) -> bool {
        let mut refusal = self.tidying.lock();
        if self.is_failing() && !self.recover(access, &mut refusal) {
            return false;
        }
        let removed = self.drop_retired(access);
        if removed || try_full || !self.is_full() {
            self.prepare(access);
        }
        self.note_full(access);
        access.with(|journal, engine| journal.compact(engine))
    }

    fn note_full(&self, access: &impl JournalAccess) {
        self.full.store(access.with(|journal, _| journal.health() == Health::Full), Ordering::Release);
    }

    /// Tries whether the disk is back: everything that is not safe goes into a new segment.
    fn recover(&self, access: &impl JournalAccess, refusal: &mut String) -> bool {
        if self.is_parallel() {
            // Syncs may still be under way, and the server stops.
            return false;
        }
        let _turn = self.syncing.lock();
        if let Err(error) = self.storage.lock() {
            let error = error.to_string();
            if *refusal != error {
                log::error!("binlog: cannot use the directory: {error}");
                *refusal = error;
            }
            return false;
        }
        refusal.clear();
        access.with(|journal, _| journal.abandon_prepared());
        self.drop_retired(access);
        let Ok(names) = self.storage.list() else { return false };
        self.evacuate_missing(access, &names);
        let again = self.writer.lock().unsynced_bytes();
        let (number, size) = access.with(|journal, _| (journal.claim_number(), journal.take_over_size(again)));
        let Ok(file) = self.storage.create(&segment_name(number), size) else { return false };
        let mut writer = self.writer.lock();
        let rely = self.mode != SyncMode::Never;
        let (first, again, end) = (writer.first_unsynced(), writer.unsynced_bytes(), writer.durable_end());
        let (pending, header) = access.with(|journal, _| journal.take_over((number, size), first, again, end, rely));
        if writer.take_over(pending, &header, file).is_err() {
            drop(writer);
            // It never counted, and each try would leave one.
            let _ = self.storage.remove(&segment_name(number));
            return false;
        }
        self.safe.store(writer.safe(), Ordering::Release);
        access.with(|journal, _| journal.set_health(Health::Ok));
        self.failing.store(false, Ordering::Release);
        log::info!("binlog: the disk is back; jobs are taken again");
        true
    }

    /// Removes what nothing needs. Returns `true` if there was something.
    fn drop_retired(&self, access: &impl JournalAccess) -> bool {
        let mut removed = false;
        // Whatever the mode: what was written again must be there before its first place goes.
        let synced = self.writer.lock().synced_to().position;
        while let Some(retired) = access.with(|journal, _| journal.next_retired(synced)) {
            match Writer::drop_segment(&*self.storage, retired) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    // Those behind it hold the deletes of its jobs, so they must not go before it does.
                    if !self.stuck.swap(true, Ordering::Relaxed) {
                        log::warn!("{}: cannot be removed: {error}", segment_name(retired.number));
                    }
                    return removed;
                }
                _ => {
                    self.stuck.store(false, Ordering::Relaxed);
                    access.with(|journal, _| journal.gone(retired));
                    removed = true;
                }
            }
        }
        removed
    }

    /// Makes space for the records of a turn, before the turn. The engine refuses the job that finds no space, so that
    /// what is kept for deletes is never taken. If compaction has not kept up with deletes, it does so now: the thread
    /// that causes the work waits for it. Returns with less only if others have taken it, or if the disk is full or
    /// fails.
    pub fn reserve(&self, access: &impl JournalAccess, bytes: u64) {
        let lacks = || access.with(|journal, _| journal.is_short(bytes) || journal.is_behind());
        for _ in 0..ROUNDS {
            if self.is_failing() || !lacks() {
                return;
            }
            self.maintain(access);
            if lacks() && !access.with(|journal, _| journal.can_shrink()) {
                break;
            }
            if lacks() && !(self.write(access) && self.sync(access)) {
                return;
            }
        }
        let _turn = self.tidying.lock();
        if access.with(|journal, _| journal.is_short(bytes)) {
            access.with(|journal, _| journal.request_space(bytes));
            self.prepare(access);
            self.note_full(access);
        }
    }

    fn prepare(&self, access: &impl JournalAccess) {
        let wanted = |journal: &mut Journal| journal.wanted().then(|| (journal.claim_number(), journal.wanted_size()));
        while let Some((number, size)) = access.with(|journal, _| wanted(journal)) {
            match self.storage.create(&segment_name(number), size) {
                Ok(file) => {
                    self.writer.lock().add_prepared(number, file);
                    let was = access.with(|journal, _| {
                        journal.prepared(number, size);
                        journal.change_health(Health::Full, Health::Ok)
                    });
                    if was {
                        log::info!("binlog: there is space again; jobs are taken again");
                    }
                }
                Err(error) if !is_no_space(&error) => return self.fail(access, &error),
                Err(error) => {
                    access.with(|journal, _| journal.request_space(0));
                    if access.with(|journal, _| journal.change_health(Health::Ok, Health::Full)) {
                        log::error!(
                            "binlog: no space for another segment: {error}; new jobs are refused when the rest is used"
                        );
                    }
                    return;
                }
            }
        }
        access.with(|journal, _| journal.request_space(0));
        if access.with(|journal, _| journal.change_health(Health::Full, Health::Ok)) {
            log::info!("binlog: there is space enough; jobs are taken again");
        }
    }
}

/// Whether the disk is full, or nearly so for us, and not worse.
pub fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a test's operations take.
    struct Clock(LeafMutex<Instant>);

    impl Clock {
        fn pass(&self, length: Duration) {
            *self.0.lock() += length;
        }
    }

    fn latency() -> (Latency, Arc<Clock>) {
        let clock = Arc::new(Clock(LeafMutex::new(Instant::now())));
        let other = clock.clone();
        let latency = Latency::new(Duration::ZERO, move || *other.0.lock());
        clock.pass(Duration::from_secs(1));
        (latency, clock)
    }

    #[test]
    fn what_is_under_way_hangs_until_it_is_over() {
        let (latency, clock) = latency();
        assert!(!latency.hangs_for(Duration::ZERO), "there was none yet");
        latency.measure(1, || {
            assert!(!latency.hangs_for(Duration::ZERO) && !latency.is_slow());
            clock.pass(SLOW);
            assert!(latency.hangs_for(Duration::ZERO) && !latency.is_slow());
            clock.pass(Duration::from_nanos(1));
            assert!(latency.is_slow());
        });
        clock.pass(Duration::from_secs(1));
        assert!(!latency.hangs_for(Duration::ZERO) && !latency.is_slow(), "it is over");
    }

    #[test]
    fn the_average_follows_the_last_few() {
        let (latency, clock) = latency();
        let average = || Duration::from_nanos(latency.average.load(Ordering::Relaxed));
        latency.measure(1, || clock.pass(8 * SLOW));
        assert_eq!((average(), latency.is_slow()), (SLOW, false));
        latency.measure(2, || clock.pass(32 * SLOW));
        assert_eq!((average(), latency.is_slow()), (SLOW / 8 * 23, true), "half of it counts");
        for _ in 0..8 {
            latency.measure(1, || {});
        }
        assert!(!latency.is_slow());
    }
}
