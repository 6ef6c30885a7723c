//! A standby: follows the active server, decides when to claim the journal, and rejects the journal of another queue.
//! The order of entries protects acknowledged changes; the time limits prevent two servers from assigning the same job.
//! Enforces promise P38 of beanpole-promises(7).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{collections::VecDeque, io, ops::Range, sync::Arc};

use super::active::{Active, SAVE};
use super::entry::{unfold, EntryKind, Head, STAGE};
use super::mirror::{allow_full, damaged, Mirror, Origin, Position, ASIDE};
use super::relay::Services;
use super::shared_log::{Entries, Fail, Member, Seq, SharedLog, Tail};
use super::shipping::{find, ShippedFolder, Shipper, LEASE};
use crate::binlog::{Folder, Storage};
use crate::shared::role::{Moment, Role, RoleBoard};

/// A standby may replace an active server that has shown no sign of life for this long.
///
/// A standby measures this time up to the start of its last read. The read returned all renewals that the log had
/// confirmed by then. A renewal extends the lease only if the log confirms the renewal before the lease expires, so the
/// lease expires at most [`LEASE`] after the standby saw the last renewal. The extra 200 ms compensate for clocks that
/// run at different speeds, and for a thread that is delayed between checking the lease and writing to a socket.
const SILENCE: Duration = LEASE.saturating_add(Duration::from_millis(200));
/// Up to this many milliseconds, chosen at random, are added to [`SILENCE`] to prevent simultaneous claims.
const SPREAD: u64 = 200;
/// The additional time that a standby waits if an operator has requested that another server become active.
const PRECEDENCE: Duration = Duration::from_secs(1);
pub const POLL: Duration = Duration::from_millis(100);
const FIRST_READ: usize = 32;
const MAX_READ: usize = 1024;

/// The intended size of a response in bytes, and the maximum response time. They limit the number of entries per read.
const RESPONSE_SIZE: Range<usize> = 256 * 1024..1024 * 1024;
const RESPONSE_TIME: Duration = Duration::from_millis(350);
/// Clock differences above this many milliseconds cause a warning. Heartbeats are up to a few tenths of a second late.
pub const MAX_CLOCK_DIFFERENCE: u64 = 1000;
/// The clock difference is estimated from this many heartbeats, because a single heartbeat can be late.
const BEATS: usize = 10;

/// If a standby has seen no activity of the active server for this long, it verifies its copy, to prepare for a claim.
const VERIFY: Duration = Duration::from_secs(1);
const COMPACTION: Duration = Duration::from_secs(10);

pub enum Step {
    /// The value is `true` if more entries can be read immediately.
    Standby(bool),
    Active(Active),
}

pub struct Node {
    pub member: Arc<Member>,
    path: PathBuf,
    folder: Arc<Folder>,
    pub mirror: Mirror,
    pub tail: Tail,
    last_activity: Instant,
    last_read: Instant,
    is_released: bool,
    /// `true` until the copy has been compared with the journal.
    is_new: bool,
    is_importing: bool,
    /// The last entry that this server has read but not applied, because the directory contains an unrelated binlog.
    skipped: Seq,
    limit: usize,
    saved: Instant,
    max_silence: Duration,
    compacted: Option<Instant>,
    /// The queue's time in each recent heartbeat minus the local time when the heartbeat arrived, in milliseconds.
    differences: VecDeque<i64>,
    clocks_differ: bool,
}

impl Node {
    pub fn new(log: Arc<dyn SharedLog>, path: &Path, name: &str, address: &str, served: &Services) -> io::Result<Node> {
        let folder = Arc::new(Folder::new(path));
        folder.lock()?;
        let (name, address, id) = (name.to_owned(), address.to_owned(), folder.random_number());
        let services = served.iter().map(|(protocol, address)| format!(" {protocol}={address}")).collect();
        let board = Arc::<RoleBoard>::default();
        board.note(|figures| figures.complete = Some(Moment::now()));
        let (has_reported, is_space_hidden) = Default::default();
        Ok(Node {
            member: Arc::new(Member { log, board, name, address, services, id, has_reported, is_space_hidden }),
            path: path.to_owned(),
            mirror: Mirror::open(path)?,
            folder,
            tail: Tail::default(),
            last_activity: Instant::now(),
            last_read: Instant::now(),
            is_released: false,
            is_new: true,
            is_importing: false,
            skipped: 0,
            limit: FIRST_READ,
            saved: Instant::now(),
            max_silence: SILENCE + Duration::from_millis(id % SPREAD),
            compacted: None,
            differences: VecDeque::new(),
            clocks_differ: false,
        })
    }

    pub fn active(&self) -> (String, String) {
        let note = String::from_utf8_lossy(&self.tail.note);
        let mut words = note.split(' ').map(str::to_owned);
        words.next().zip(words.next()).unwrap_or_default()
    }

    pub fn services(&self) -> Services {
        let note = String::from_utf8_lossy(&self.tail.note);
        let pairs = note.split(' ').skip(3).filter_map(|word| word.split_once('='));
        pairs.map(|(protocol, address)| (protocol.to_owned(), address.to_owned())).collect()
    }

    /// Syncs the copy and saves its position. Does nothing without a valid copy.
    pub fn save(&mut self) -> io::Result<()> {
        if self.mirror.is_foreign || self.mirror.is_stale {
            return Ok(());
        }
        self.mirror.save()
    }

    pub fn poll(&mut self) -> io::Result<Step> {
        // The first read includes the copy's last entry, to check that the copy belongs to the journal.
        let from = self.mirror.position.done.max(self.skipped) + u64::from(!self.is_new);
        let limit = self.limit;
        let (entries, tail) = match self.read(from.max(1)) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && self.may_claim() => return self.free_space(),
            read => read?,
        };
        if !self.mirror.is_foreign && (self.is_new || (tail.epoch, &tail.note) != (self.tail.epoch, &self.tail.note)) {
            if !std::mem::replace(&mut self.is_new, true) {
                // The journal may have been replaced, so compare the copy's last entry again.
                return self.poll();
            }
            self.check_origin(&self.mirror, &entries, &tail)?;
            if self.mirror.is_stale {
                self.mirror.start_over(0)?;
                return self.poll();
            }
            self.mirror.position.origin.journal = journal_of(&tail);
        }
        // An ended server cannot be promoted, so replace the status "ended" of the previous run.
        if std::mem::replace(&mut self.is_new, false) && !self.mirror.is_foreign {
            self.member.report("standby", self.mirror.position.done);
        }
        let more = entries.len() == limit;
        self.note_tail(tail, !entries.is_empty());
        for (seq, entry) in entries {
            // After a failure of the disk, read only one entry per attempt.
            self.apply(seq, &entry).inspect_err(|_| self.limit = 1)?;
        }
        // A complete copy can be used even if a full disk has no space for its position.
        let saved = self.report();
        if more {
            return Ok(Step::Standby(true));
        }
        self.member.board.note(|figures| figures.complete = Some(Moment::now()));
        self.check_import()?;
        let is_copied = self.mirror.has_aside && !self.is_importing;
        if is_copied {
            // The new copy replaces the old one only if the journal contains all entries of the old one.
            let old = Mirror::open(&self.path.join(ASIDE))?;
            let (entries, tail) = self.member.log.read(old.position.done.max(1), 1)?;
            self.check_origin(&old, &entries, &tail)?;
        }
        let must_verify = is_copied || self.last_activity.elapsed() >= VERIFY || self.may_claim();
        if let Some(name) = must_verify.then(|| self.mirror.verify()).flatten() {
            log::error!("journal: {name} in {} is damaged; copying the journal again", self.path.display());
            self.mirror.start_over(0)?;
            self.is_new = true;
            return Ok(Step::Standby(true));
        }
        if is_copied {
            self.mirror.drop_aside()?;
        }
        if !self.may_claim() {
            return saved.map(|()| Step::Standby(false));
        }
        self.claim()
    }

    fn read(&mut self, from: Seq) -> io::Result<(Entries, Tail)> {
        let (sent, limit) = (Instant::now(), self.limit);
        self.last_read = sent;
        // After an error, files may be damaged before the next activity, which might be a claim of this server.
        let read = self.member.log.read(from, limit);
        let (entries, tail) =
            read.inspect_err(|_| (self.limit, self.mirror.is_verified) = ((limit / 8).max(1), false))?;
        let bytes: usize = entries.iter().map(|(_, entry)| entry.len()).sum();
        if bytes > RESPONSE_SIZE.end || sent.elapsed() > RESPONSE_TIME {
            self.limit = (limit / 2).max(1);
        } else if entries.len() == limit && bytes < RESPONSE_SIZE.start {
            self.limit = (limit * 2).min(MAX_READ);
        }
        Ok((entries, tail))
    }

    fn note_tail(&mut self, tail: Tail, has_entries: bool) {
        let is_same = tail.epoch == self.tail.epoch;
        if has_entries || !is_same || tail.beat != self.tail.beat {
            (self.last_activity, self.mirror.is_verified) = (Instant::now(), false);
        }
        if !is_same {
            self.differences.clear();
        } else if let (true, Some(theirs)) = (self.tail.beat > 0 && tail.beat != self.tail.beat, tail.clock) {
            self.compare_clocks(theirs);
        }
        self.tail = tail;
    }

    /// Updates the status. At most once per `SAVE` interval, also saves and publishes the position, except when a claim
    /// may follow soon.
    fn report(&mut self) -> io::Result<()> {
        let done = self.mirror.position.done;
        self.member.board.note(|figures| (figures.epoch, figures.entry) = (self.tail.epoch, done));
        let may_claim_soon = (LEASE / 2..2 * SILENCE).contains(&self.last_activity.elapsed());
        if self.saved.elapsed() >= SAVE && !self.mirror.is_foreign && !may_claim_soon {
            self.save()?;
            self.saved = Instant::now();
            self.member.report("standby", done);
            let _ = self.member.query_space();
        }
        Ok(())
    }

    /// Fails if `copy` belongs to another journal, or if etcd has lost entries that `copy` contains. `entries` start
    /// with the last entry of `copy`, unless that entry was purged.
    fn check_origin(&self, copy: &Mirror, entries: &Entries, tail: &Tail) -> io::Result<()> {
        let Mirror { position, is_stale, .. } = copy;
        let (origin, done, journal) = (&position.origin, position.done, journal_of(tail));
        let is_other = journal != origin.journal && journal != 0 && origin.journal != 0;
        let is_behind = tail.epoch < origin.epoch || (*is_stale && tail.epoch == 0) || (done > 0 && entries.is_empty());
        let found = entries.first().and_then(|(seq, entry)| {
            let (head, operations) = Head::open(entry)?;
            // The copy's last entry may have been merged with later entries.
            let behind = seq.checked_sub(done).filter(|behind| *behind < unfold(&head, operations).0)?;
            Some((head.writer, head.number.wrapping_sub(behind)))
        });
        let differs = found.is_some_and(|found| origin.last.is_some_and(|last| last != found));
        if !(is_other || is_behind || differs || done > self.mirror.position.done) {
            return Ok(());
        }
        let (path, epoch) = (self.path.display(), tail.epoch);
        let problem = format!(
            "{path} has entry {done}, epoch {} of journal {:016x}, but etcd, with epoch {epoch} of journal \
             {journal:016x}, does not: etcd was wiped or restored; see \"Loss of etcd\" in beanpole-cluster(7), or \
             move the directory away to use what etcd has",
            origin.epoch, origin.journal
        );
        Err(io::Error::new(io::ErrorKind::AlreadyExists, problem))
    }

    /// Estimates the queue's time. Heartbeats are late by varying amounts, so the largest difference from the local
    /// clock is the most accurate. The wall clock is used only for a warning.
    fn compare_clocks(&mut self, theirs: u64) {
        self.differences.truncate(BEATS - 1);
        self.differences.push_front((theirs as i64).saturating_sub(Moment::now().millis() as i64));
        self.member.board.note(|figures| figures.clock = self.differences.iter().copied().max());
        let ahead = self.member.board.ahead();
        let apart = ahead.unsigned_abs() > MAX_CLOCK_DIFFERENCE;
        // A single late heartbeat must not cause a warning.
        if self.differences.len() < BEATS || apart == std::mem::replace(&mut self.clocks_differ, apart) {
            return;
        }
        let (name, seconds) = (self.active().0, ahead as f64 / 1000.0);
        if apart {
            log::warn!("journal: the queue's time at {name} is {seconds:.1} s ahead of this server's clock");
        } else {
            log::info!("journal: the queue's time at {name} is that of this server's clock again");
        }
    }

    /// Returns `true` if the directory was removed or replaced, so that this server could never take over.
    pub fn is_displaced(&self) -> bool {
        matches!(self.folder.is_in_place(), Ok(false))
    }

    pub fn pause(&self) -> Duration {
        let is_silent = self.last_activity.elapsed() >= LEASE && self.tail.epoch > 0;
        POLL / if is_silent { 5 } else { 1 }
    }

    /// Fails if the directory contains an unrelated binlog, or if the server that imports its binlog is silent.
    fn check_import(&self) -> io::Result<()> {
        let is_blocked = self.is_importing && self.last_activity.elapsed() >= self.max_silence;
        if self.is_own_import() || !(is_blocked || (self.mirror.is_foreign && self.tail.epoch > 0)) {
            return Ok(());
        }
        let (path, (name, _)) = (self.path.display(), self.active());
        let problem = match self.is_importing {
            true => format!("{name} has not completed its import; start it with --node {name} and its directory"),
            false => format!("{path} holds a binlog that is not of this journal; move it away"),
        };
        Err(io::Error::new(io::ErrorKind::AlreadyExists, problem + ", or use a new queue name"))
    }

    fn is_own_import(&self) -> bool {
        self.is_importing && self.mirror.is_foreign && self.active().0 == self.member.name
    }

    fn apply(&mut self, seq: Seq, entry: &[u8]) -> io::Result<()> {
        if self.mirror.is_foreign {
            // The directory must not receive entries of another binlog.
            self.is_importing = Head::open(entry).is_some_and(|(head, _)| head.kind == EntryKind::Import);
            self.skipped = seq;
            return Ok(());
        }
        let Some((head, operations)) = Head::open(entry) else { return Err(damaged(seq)) };
        self.is_released = head.kind == EntryKind::Release;
        self.is_importing = head.kind == EntryKind::Import;
        if seq == self.mirror.position.done {
            return Ok(());
        }
        let (count, operations) = unfold(&head, operations);
        // The copy may already contain some of the merged entries, but repeating their file operations is harmless.
        let done = self.mirror.position.done;
        if done == 0 || seq.saturating_sub(done) > count {
            if done > 0 {
                // Entries that the copy lacks have been purged, along with all earlier entries.
                let (oldest, _) = self.member.log.read(1, 1)?;
                if oldest.first().is_some_and(|(oldest, _)| *oldest <= done) {
                    let (from, to) = (done + 1, seq - count);
                    let problem =
                        format!("etcd has lost entries {from} to {to}; see \"Loss of etcd\" in beanpole-cluster(7)");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
                }
                log::warn!("journal: this copy is too old; it is made again from entry {seq}");
            }
            self.mirror.start_over(seq - 1)?;
        }
        self.mirror.apply(seq, &head, operations)
    }

    fn may_claim(&self) -> bool {
        if self.is_importing && !self.is_own_import() {
            return false;
        }
        let is_wanted = self.tail.requested == self.member.name.as_bytes();
        let precedence = if self.tail.requested.is_empty() || is_wanted { Duration::ZERO } else { PRECEDENCE };
        let silence = self.last_read.saturating_duration_since(self.last_activity);
        let is_unclaimed = self.is_released || self.tail.epoch == 0;
        silence >= precedence + if is_unclaimed { Duration::ZERO } else { self.max_silence }
    }

    fn claim(&mut self) -> io::Result<Step> {
        let (after, is_foreign) = (self.mirror.position.done.max(self.skipped), self.mirror.is_foreign);
        if after == 0 && self.tail.epoch > 0 {
            return Ok(Step::Standby(false));
        }
        if is_foreign {
            self.check_space()?;
        } else {
            self.mirror.sync()?;
            self.mirror.save().or_else(allow_full)?;
        }
        let kind = if is_foreign { EntryKind::Import } else { EntryKind::Claim };
        let head = Head { kind, epoch: self.tail.epoch, writer: self.member.id, number: self.tail.epoch };
        let Member { log, board, name, address, services, id, .. } = &*self.member;
        let journal = Some(journal_of(&self.tail)).filter(|journal| *journal != 0).unwrap_or(*id);
        let note = format!("{name} {address} {journal:016x}{services}");
        let (mut sent, next) = (Moment::now(), self.tail.epoch + 1);
        let mut claimed = log.claim(self.tail.epoch, after, note.as_bytes(), &head.seal(b""));
        if matches!(claimed, Err(Fail::Unknown(_))) && find(&**log, after + 1) == Some(head) {
            // The response was lost, and the lease may have expired since the request, so start it with a renewal.
            sent = Moment::now();
            claimed = log.renew(0, next, board.queue_time()).map(|_| next);
        }
        let epoch = match claimed {
            Ok(epoch) => epoch,
            Err(Fail::Unknown(error)) => return Err(error),
            Err(Fail::Full) => return self.free_space(),
            Err(_) => {
                // The next poll shows whether another server has claimed the log or etcd has lost entries.
                self.is_new = !is_foreign;
                return Ok(Step::Standby(false));
            }
        };
        // If this server fails before it is active, another server must be able to claim the log first.
        self.max_silence = (self.max_silence + PRECEDENCE).min(5 * SILENCE);
        let origin = Origin { journal, epoch, last: Some((head.writer, head.number)) };
        self.member.board.note(|figures| (figures.epoch, figures.entry) = (epoch, after + 1));
        let copy = Position { done: after + 1, ..self.mirror.position.clone() };
        let shipper = Arc::new(Shipper::new(&self.member, sent + LEASE, epoch, copy, self.path.clone()));
        let storage = Arc::new(ShippedFolder { folder: self.folder.clone(), shipper });
        // Renewals must not wait for a slow disk. If a later step fails, dropping the `Active` ends the renewals.
        let active = Active::begin(self.member.clone(), storage.clone(), origin)?;
        if is_foreign {
            log::info!("journal: empty; importing the binlog of {}", self.path.display());
            storage.ship_all()?;
        }
        // The directory is a valid copy, because an import, if any, is complete.
        self.mirror.save_active(after + 1, origin)?;
        // Remove bodies for which the previous server wrote no record. A missing local file is not an error.
        for name in self.mirror.position.created.keys().filter(|name| name.starts_with(STAGE)) {
            let _ = storage.remove(name);
        }
        self.member.board.note(|figures| figures.role = Role::Active);
        Ok(Step::Active(active))
    }

    fn check_space(&self) -> io::Result<()> {
        let needed = self.mirror.size()?;
        // This server's etcd user may lack the permission to query the space.
        let Ok(space) = self.member.query_space() else { return Ok(()) };
        let free = space.for_segments().saturating_sub(space.used);
        let path = self.path.display();
        let problem = format!(
            "the binlog in {path} needs {needed} bytes, but etcd's quota leaves {free}; increase the quota of etcd and \
             quota= of --journal"
        );
        (needed <= free).then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::StorageFull, problem))
    }

    /// Compacts a shared log that is full and therefore rejects claims. Does so at most once per `COMPACTION` interval.
    fn free_space(&mut self) -> io::Result<Step> {
        if self.compacted.is_some_and(|compacted| compacted.elapsed() < COMPACTION) {
            return Ok(Step::Standby(false));
        }
        // Damage can occur before the log has space.
        (self.compacted, self.mirror.is_verified) = (Some(Instant::now()), false);
        log::error!("journal: etcd has reached its quota and rejects writes; compacting and defragmenting it");
        self.member.log.compact()?;
        Ok(Step::Standby(true))
    }
}

/// Returns the journal ID from the note of the last claim, or 0.
fn journal_of(tail: &Tail) -> u64 {
    let number = std::str::from_utf8(&tail.note).ok().and_then(|note| note.split(' ').nth(2));
    number.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

#[cfg(test)]
#[path = "tests/node.rs"]
mod tests;
