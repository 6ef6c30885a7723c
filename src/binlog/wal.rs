//! Writing and syncing of the log, maintenance of its segments, and recovery from disk failures. Lock order:
//! maintenance, syncing, writer, engine. Only [`Wal::write_promptly`] and [`Wal::sync_promptly`] do not wait for a slow
//! disk.
//! Enforces promises P12 and P17 of beanpole-promises(7).

use std::time::{Duration, Instant};
use std::{collections::HashSet, io, sync::Arc};

use super::journal::{Journal, Retired, LARGE};
use super::segment::{segment_name, segment_number};
use super::storage::{is_no_space, Storage};
use super::writer::{remove_unsynced, set_aside, SyncMode, Writer};
use crate::engine::{Engine, Histogram, Span, Time};
use crate::shared::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::shared::lock_order::{LeafMutex, Mutex, MutexGuard, MAINTENANCE, SYNCING, WRITER};
use crate::shared::log_figures::Health;

/// If a write or sync takes longer, only the log's own threads wait for the disk.
const SLOW: Duration = Duration::from_millis(2);

const SYNC_BOUNDS: [u64; 12] =
    [MS / 10, MS / 4, MS / 2, MS, MS * 5 / 2, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 1000 * MS];
const MS: u64 = 1_000_000;
/// Maximum number of attempts by [`Wal::reserve`] to shrink the log. Some rewrite only what fits into a small segment.
const ROUNDS: usize = 64;

/// Accesses the journal and the engine, which are protected by a single lock.
pub trait JournalAccess {
    fn with<R>(&self, work: impl FnOnce(&mut Journal, &mut Engine) -> R) -> R;
}

pub struct Wal {
    pub storage: Arc<dyn Storage>,
    pub mode: SyncMode,
    writer: Mutex<Writer, WRITER>,
    /// Held during a sync, unless the storage allows concurrent syncs.
    syncing: Mutex<(), SYNCING>,
    /// Serializes the creation and removal of segments. Contains the last logged error from locking the directory.
    maintenance: Mutex<String, MAINTENANCE>,
    safe: AtomicU64,
    failing: AtomicBool,
    full: AtomicBool,
    stuck: AtomicBool,
    writes: DiskLatency,
    syncs: DiskLatency,
    pub sync_times: Arc<LeafMutex<Histogram>>,
}

/// Measures the durations of operations. Only syncs overlap, and only if the storage allows concurrent syncs.
struct DiskLatency {
    /// A moving average in nanoseconds.
    average: AtomicU64,
    /// The start of the running operation in nanoseconds since `start`, or 0 if no operation is running.
    began: AtomicU64,
    start: Instant,
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
}

impl DiskLatency {
    fn new(first: Duration, clock: impl Fn() -> Instant + Send + Sync + 'static) -> DiskLatency {
        let start = clock();
        let average = AtomicU64::new(first.as_nanos() as u64);
        DiskLatency { average, began: AtomicU64::new(0), start, clock: Box::new(clock) }
    }

    fn now(&self) -> u64 {
        ((self.clock)().duration_since(self.start).as_nanos() as u64).max(1)
    }

    /// Executes `work`, and averages its duration divided by `parts`. Also returns the duration in nanoseconds.
    fn measure<R>(&self, parts: u64, work: impl FnOnce() -> R) -> (R, u64) {
        let began = self.now();
        self.began.store(began, Ordering::Relaxed);
        let result = work();
        self.began.store(0, Ordering::Relaxed);
        let took = self.now() - began;
        let average = self.average.load(Ordering::Relaxed) / 8 * 7 + took / parts / 8;
        self.average.store(average, Ordering::Relaxed);
        (result, took)
    }

    fn hangs_for(&self, length: Duration) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        began != 0 && self.now() > began + length.as_nanos() as u64
    }

    fn is_slow(&self) -> bool {
        self.average.load(Ordering::Relaxed) > SLOW.as_nanos() as u64 || self.hangs_for(SLOW)
    }
}

impl Wal {
    /// `first_sync` is the duration of the first sync, or `None` if that sync failed.
    pub fn new(writer: Writer, mode: SyncMode, first_sync: Option<Duration>) -> Wal {
        let storage = writer.storage.clone();
        let [clock, other] = [(); 2].map(|()| storage.clone()).map(|storage| move || storage.now());
        Wal {
            writes: DiskLatency::new(Duration::ZERO, clock),
            syncs: DiskLatency::new(first_sync.unwrap_or_default(), other),
            sync_times: Arc::new(LeafMutex::new(Histogram::new(&SYNC_BOUNDS))),
            storage,
            mode,
            safe: AtomicU64::new(writer.safe()),
            writer: Mutex::new(writer),
            syncing: Mutex::new(()),
            maintenance: Mutex::default(),
            failing: AtomicBool::new(first_sync.is_none()),
            full: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
        }
    }

    /// Returns the log position up to which replies may be sent.
    pub fn durable(&self) -> u64 {
        self.safe.load(Ordering::Acquire)
    }

    pub fn synced(&self) -> u64 {
        self.writer.lock().synced.position
    }

    pub fn written(&self) -> u64 {
        self.writer.lock().written.position
    }

    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    pub fn syncs_at_once(&self) -> usize {
        self.storage.syncs_at_once()
    }

    /// Returns `true` if only the log's own threads should sync.
    pub fn is_slow(&self) -> bool {
        self.syncs_at_once() > 1 || self.syncs.is_slow()
    }

    /// Returns `true` if a running write or sync has blocked other threads for longer than [`SLOW`].
    pub fn is_blocked(&self) -> bool {
        let syncs = self.mode == SyncMode::Always && self.syncs_at_once() == 1;
        self.writes.hangs_for(SLOW) || syncs && self.syncs.hangs_for(SLOW)
    }

    pub fn is_unsynced(&self) -> bool {
        self.writer.lock().is_unsynced()
    }

    pub fn write(&self, access: &impl JournalAccess) -> bool {
        // A thread that retries a failing disk holds the writer's lock for a long time.
        !self.is_failing() && self.write_with(self.writer.lock(), access, false)
    }

    /// Returns `false` if another thread must write: more than [`LARGE`] bytes, or the disk is slow, busy or failing.
    pub fn write_promptly(&self, access: &impl JournalAccess) -> bool {
        // The operating system may delay a write until the running sync ends.
        if self.is_failing() || self.writes.is_slow() || self.syncs.hangs_for(Duration::ZERO) {
            return false;
        }
        self.writer.try_lock_for(SLOW).is_some_and(|writer| self.write_with(writer, access, true))
    }

    fn write_with(&self, mut writer: MutexGuard<Writer>, access: &impl JournalAccess, promptly: bool) -> bool {
        let batch = access.with(|journal, _| {
            let is_left = self.is_failing() || promptly && journal.is_large();
            (!is_left).then(|| journal.take(std::mem::take(&mut writer.spare), writer.synced))
        });
        let Some(batch) = batch else { return false };
        // `write_promptly` writes at most `LARGE` bytes, so measure the time for this size.
        let share = 1 + batch.bytes.len() as u64 / LARGE as u64;
        if let (Err(error), _) = self.writes.measure(share, || writer.write(batch)) {
            self.fail(access, &error);
            return false;
        }
        self.safe.store(writer.safe(), Ordering::Release);
        true
    }

    pub fn sync(&self, access: &impl JournalAccess) -> bool {
        let _guard = (self.syncs_at_once() == 1).then(|| self.syncing.lock());
        self.sync_with(|| Some(self.writer.lock()), access)
    }

    /// Does not wait for a slow or busy disk. Returns `false` if another thread must sync.
    pub fn sync_promptly(&self, access: &impl JournalAccess) -> bool {
        let guard = if self.is_slow() { None } else { self.syncing.try_lock_for(SLOW) };
        guard.is_some_and(|_guard| self.sync_with(|| self.writer.try_lock_for(SLOW), access))
    }

    /// If `lock` fails after the sync, the sync must be repeated.
    fn sync_with<'a>(&self, lock: impl Fn() -> Option<MutexGuard<'a, Writer>>, access: &impl JournalAccess) -> bool {
        if self.is_failing() {
            return false;
        }
        let task = {
            let Some(mut writer) = lock().filter(|_| !self.is_failing()) else { return false };
            if !writer.is_unsynced() {
                return true;
            }
            writer.sync_task()
        };
        let (result, took) = self.syncs.measure(1, || task.run());
        self.sync_times.lock().observe(Span::from_nanos(took));
        if let Err(error) = result {
            self.fail(access, &error);
            return false;
        }
        let Some(mut writer) = lock() else { return false };
        writer.synced(&task);
        self.safe.store(writer.safe(), Ordering::Release);
        true
    }

    /// Makes compaction rewrite the live items of segments that another program has removed, replaced or truncated. The
    /// loss of the directory or of an open segment makes the log fail and recover. Does nothing during maintenance.
    pub fn check(&self, access: &impl JournalAccess) {
        let Some(_guard) = self.maintenance.try_lock().filter(|_| !self.is_failing()) else { return };
        let not_found = |problem| io::Error::new(io::ErrorKind::NotFound, problem);
        if let Ok(false) = self.storage.is_in_place() {
            return self.fail(access, &not_found("the directory was removed or replaced under the server"));
        }
        let Ok(Some(names)) = self.storage.list_if_changed() else { return };
        if self.evacuate_missing(access, &names).is_some_and(|lost| lost >= self.writer.lock().first_unsynced()) {
            self.fail(access, &not_found("a segment was removed, replaced or truncated under the server"));
        }
    }

    fn evacuate_missing(&self, access: &impl JournalAccess, names: &[String]) -> Option<u64> {
        let numbers: HashSet<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
        let lost = access.with(|journal, _| journal.evacuate_missing(|number| numbers.contains(&number)));
        if let Some(name) = lost.map(segment_name) {
            log::error!(
                "{name}: removed, replaced or truncated under the server; the jobs of lost segments are rewritten"
            );
        }
        lost
    }

    pub fn close(&self, access: &impl JournalAccess, now: Time) {
        // Jobs of lost segments exist only in memory until compaction, here of at most 8 GiB, has emptied the segments.
        self.check(access);
        let is_left = || self.is_failing() || access.with(|journal, _| journal.evacuating > 0);
        let empty = || self.maintain(access, true) & (self.write(access) && self.sync(access));
        let _ = (0..1 << 16).all(|_| is_left() && empty());
        // The shutdown record states that all earlier records are synced, so sync in every mode.
        self.writer.lock().demanded = u64::MAX;
        let sync_all = || (self.write(access) && self.sync(access)).then(|| self.writer.lock().synced);
        let Some(synced) = sync_all() else { return };
        access.with(|journal, _| journal.append_gone(synced));
        let Some(_) = sync_all() else { return };
        access.with(|journal, _| journal.append_closed(now));
        if sync_all().is_none() {
            log::warn!("binlog: it was not shut down cleanly");
        }
    }

    /// Enters [`Health::Failing`]. No other function does so while the server runs.
    fn fail(&self, access: &impl JournalAccess, error: &io::Error) {
        // A failing log releases replies, but a server with a shared storage must not reply after a disk error.
        self.storage.give_up(error);
        let was = access.with(|journal, _| {
            journal.health = Health::Failing;
            self.failing.swap(true, Ordering::AcqRel)
        });
        if !was {
            log::error!("binlog: the disk fails: {error}; new jobs are refused until it is back");
        }
    }

    /// Returns `true` if more work remains. On a full disk, a segment is created only if `try_full` is `true` or a
    /// segment was removed, because each attempt fills the disk.
    pub fn maintain(&self, access: &impl JournalAccess, try_full: bool) -> bool {
        // A missing segment proves that the log was synced, unless another program has removed the segment.
        if access.with(|journal, _| journal.must_remove()) {
            self.check(access);
        }
        let mut refusal = self.maintenance.lock();
        if self.is_failing() && !self.recover(access, &mut refusal) {
            return false;
        }
        if self.drop_retired(access) || try_full || !self.is_full() {
            self.prepare(access);
        }
        self.full.store(access.with(|journal, _| journal.health == Health::Full), Ordering::Release);
        // Changes that never wait for space can make the current segment exceed the initial size of its file.
        access.with(|journal, _| (journal.health != Health::Failing).then(|| journal.make_room(0)));
        let more = access.with(|journal, engine| journal.compact(engine));
        // Reservations never wait for space, so they could fill up the log before the syncer's next sync.
        let must_sync = access.with(|journal, _| journal.is_behind() && journal.awaits_sync());
        must_sync && self.write(access) && self.sync(access) || more
    }

    fn recover(&self, access: &impl JournalAccess, refusal: &mut String) -> bool {
        if self.syncs_at_once() > 1 {
            // Do not recover: the server will stop, and other syncs may be running.
            return false;
        }
        let _guard = self.syncing.lock();
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
        let (first, again, end) = (writer.first_unsynced(), writer.unsynced_bytes(), writer.durable_end);
        let (pending, header) = access.with(|journal, _| journal.take_over((number, size), first, again, end, rely));
        if writer.take_over(pending, &header, file).is_err() {
            drop(writer);
            // Otherwise, each attempt would leave another unused file.
            let _ = self.storage.remove(&segment_name(number));
            access.with(|journal, _| journal.removed_newest());
            return false;
        }
        self.safe.store(writer.safe(), Ordering::Release);
        access.with(|journal, _| journal.health = Health::Ok);
        self.failing.store(false, Ordering::Release);
        log::info!("binlog: the disk is back; jobs are taken again");
        true
    }

    fn drop_retired(&self, access: &impl JournalAccess) -> bool {
        let (mut removed, mut last) = (false, Ok(()));
        // Rewritten records must be synced in every mode before the original records are removed.
        let synced = self.writer.lock().synced;
        while let Some(retired) = access.with(|journal, _| journal.next_retired(synced, &last)) {
            let name = segment_name(retired.number);
            let dropped = match retired {
                Retired { damaged: true, .. } => set_aside(&*self.storage, &name),
                Retired { after: 0, .. } => remove_unsynced(&*self.storage, &name),
                _ => self.storage.remove(&name),
            };
            last = dropped.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) });
            removed |= last.is_ok();
            // The file may remain, because a removal can fail or be undone by a power failure. Later segments with the
            // deletes of its jobs can be removed anyway: a synced record states that this segment is not needed.
            let stuck = access.with(|journal, _| journal.finish_removal(retired, &last));
            let was_stuck = self.stuck.swap(stuck, Ordering::Relaxed);
            if let (Err(error), false) = (&last, was_stuck) {
                log::warn!("{name}: cannot be removed: {error}");
            }
        }
        removed
    }

    /// Makes space for `bytes` bytes in the log before commands are executed. If compaction has not kept up, the
    /// calling thread compacts the log itself. As a result, the threads that fill the log slow down.
    pub fn reserve(&self, access: &impl JournalAccess, bytes: u64) {
        let lacks = || access.with(|journal, _| journal.is_short(bytes) || journal.is_behind());
        for _ in 0..ROUNDS {
            if self.is_failing() || !lacks() {
                return;
            }
            self.maintain(access, true);
            let (awaits_sync, can_shrink) = access.with(|it, _| (it.awaits_sync(), it.can_shrink()));
            if lacks() && !awaits_sync && !can_shrink {
                break;
            }
            if lacks() && !(self.write(access) && (!awaits_sync || self.sync(access))) {
                return;
            }
        }
        let _guard = self.maintenance.lock();
        if access.with(|journal, _| journal.is_short(bytes)) {
            access.with(|journal, _| journal.requested = bytes);
            self.prepare(access);
            self.full.store(access.with(|journal, _| journal.health == Health::Full), Ordering::Release);
        }
    }

    fn prepare(&self, access: &impl JournalAccess) {
        let wanted = |journal: &mut Journal| journal.wanted().then(|| (journal.claim_number(), journal.wanted_size()));
        while let Some((number, size)) = access.with(|journal, _| wanted(journal)) {
            match self.storage.create(&segment_name(number), size) {
                Ok(file) => {
                    self.writer.lock().add_prepared(number, file);
                    access.with(|journal, _| journal.prepared(number, size));
                    if access.with(|journal, _| journal.change_health(Health::Full, Health::Ok)) {
                        log::info!("binlog: there is space again; jobs are taken again");
                    }
                }
                Err(error) if !is_no_space(&error) => return self.fail(access, &error),
                Err(error) => {
                    access.with(|journal, _| journal.requested = 0);
                    if access.with(|journal, _| journal.change_health(Health::Ok, Health::Full)) {
                        log::error!(
                            "binlog: no space for another segment: {error}; new jobs are refused when the rest is used"
                        );
                    }
                    return self.prepare_rescue(access);
                }
            }
        }
        access.with(|journal, _| journal.requested = 0);
        let must_shrink = |it: &Journal| it.health == Health::Full && it.must_remove() && it.disk() > it.bound();
        if access.with(|journal, _| must_shrink(journal)) {
            self.prepare_rescue(access);
        } else if access.with(|journal, _| !journal.awaits_removal() && journal.change_health(Health::Full, Health::Ok))
        {
            log::info!("binlog: there is space enough; jobs are taken again");
        }
    }

    /// On a full disk, prepares a segment that is just large enough for compaction, if compaction needs a segment.
    fn prepare_rescue(&self, access: &impl JournalAccess) {
        let wanted = |journal: &mut Journal| journal.rescue_size().map(|size| (journal.claim_number(), size));
        let Some((number, size)) = access.with(|journal, _| wanted(journal)) else { return };
        if let Ok(file) = self.storage.create(&segment_name(number), size) {
            self.writer.lock().add_prepared(number, file);
            access.with(|journal, _| journal.prepared(number, size));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Clock(LeafMutex<Instant>);

    impl Clock {
        fn pass(&self, length: Duration) {
            *self.0.lock() += length;
        }
    }

    fn latency() -> (DiskLatency, Arc<Clock>) {
        let clock = Arc::new(Clock(LeafMutex::new(Instant::now())));
        let other = clock.clone();
        let latency = DiskLatency::new(Duration::ZERO, move || *other.0.lock());
        clock.pass(Duration::from_secs(1));
        (latency, clock)
    }

    #[test]
    fn an_operation_hangs_until_it_ends() {
        let (latency, clock) = latency();
        assert!(!latency.hangs_for(Duration::ZERO), "no operation has started");
        latency.measure(1, || {
            assert!(!latency.hangs_for(Duration::ZERO) && !latency.is_slow());
            clock.pass(SLOW);
            assert!(latency.hangs_for(Duration::ZERO) && !latency.is_slow());
            clock.pass(Duration::from_nanos(1));
            assert!(latency.is_slow());
        });
        clock.pass(Duration::from_secs(1));
        assert!(!latency.hangs_for(Duration::ZERO) && !latency.is_slow(), "the operation has ended");
    }

    #[test]
    fn the_average_follows_the_last_few() {
        let (latency, clock) = latency();
        let average = || Duration::from_nanos(latency.average.load(Ordering::Relaxed));
        latency.measure(1, || clock.pass(8 * SLOW));
        assert_eq!((average(), latency.is_slow()), (SLOW, false));
        latency.measure(2, || clock.pass(32 * SLOW));
        assert_eq!((average(), latency.is_slow()), (SLOW / 8 * 23, true), "half of the duration counts");
        for _ in 0..8 {
            latency.measure(1, || {});
        }
        assert!(!latency.is_slow());
    }
}
