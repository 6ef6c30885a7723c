//! One of several servers: how it follows the active one, takes over, and leaves.
//!
//! Owns the decision to claim, and the refusal of a journal that the copy does not belong to. Time only keeps two
//! servers from handing out the same jobs; acknowledged changes are safe because of the shared log's own order. Must
//! not serve clients.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::active::{Active, Member, SAVE};
use super::entry::{unfold, EntryKind, Head};
use super::mirror::{Mirror, Origin};
use super::relay::Services;
use super::shared_log::{Entries, Epoch, Fail, Seq, SharedLog, Tail};
use super::shipping::{ShippedFolder, Shipper, LEASE};
use crate::binlog::{Folder, Storage};
use crate::shared::lease::{Lease, Moment};
use crate::shared::role::{Role, RoleBoard};

/// Silence of the active server after which a standby may take its place. The silence ends when a read is sent that
/// finds nothing new, so every renewal confirmed up to that moment is known to the standby. A renewal extends the lease
/// only if it is confirmed while the previous one still counts, which ends at most one lease after the standby saw it.
/// After one lease of silence, the lease is therefore over, whatever is still under way. The rest allows for clocks of
/// different speeds, and for a thread that is delayed between its look at the lease and the write to a socket.
const SILENCE: Duration = LEASE.saturating_add(Duration::from_millis(200));

/// Standbys wait for different times, up to this many milliseconds longer, so that they do not all claim at once.
const SPREAD: u64 = 200;

/// How long a standby that was not requested waits for the one that was.
const PRECEDENCE: Duration = Duration::from_secs(1);

/// The interval between two reads of the shared log.
const LOOK: Duration = Duration::from_millis(100);

/// The number of entries read at a time: initially, and at most.
const FEW: usize = 32;
const MOST: usize = 1024;

/// A standby asks for more entries at a time if it gets fewer bytes, and for fewer if it gets more or waits longer. A
/// large answer over a slow network would not arrive in time.
const ENOUGH: Range<usize> = 256 * 1024..1024 * 1024;
const SLOW: Duration = Duration::from_millis(350);

/// The largest difference in milliseconds between two clocks that count as equal: a heartbeat is seen some tenths of a
/// second late.
const APART: u64 = 1000;

/// Of this many heartbeats, at least one is seen soon after it was written.
const BEATS: usize = 10;

/// Silence of the active server after which a standby verifies its copy, so that this is done before it may claim.
const VERIFY: Duration = Duration::from_secs(1);

/// The interval between two attempts to free space in a full shared log.
const SPACE: Duration = Duration::from_secs(10);

/// The result of a look at the shared log.
pub enum Step {
    /// This server stands by; `true` if there is more to read at once.
    Standby(bool),
    /// This server has become the active one.
    Active(Active),
}

/// A server that stands by.
pub struct Node {
    member: Arc<Member>,
    path: PathBuf,
    folder: Arc<Folder>,
    mirror: Mirror,
    writer: u64,
    tail: Tail,
    /// When the active server last showed activity.
    heard: Instant,
    /// When the last read was sent.
    asked: Instant,
    released: bool,
    /// It has not read anything yet.
    is_new: bool,
    /// The last entry belongs to a binlog that was not imported completely.
    importing: bool,
    /// The last entry that was read and not applied, because the directory contains its own binlog.
    passed: Seq,
    /// The number of entries it requests at a time.
    most: usize,
    saved: Instant,
    patience: Duration,
    /// The last attempt to free space in a full shared log.
    tidied: Option<Instant>,
    /// The times in the last heartbeats, minus the milliseconds since this machine was started.
    differences: VecDeque<i64>,
    /// The clocks differ by much.
    is_apart: bool,
}

impl Node {
    /// Creates a server with this name and a copy in this directory, which is locked from now on.
    pub fn new(
        log: Arc<dyn SharedLog>,
        path: &Path,
        name: &str,
        address: &str,
        services: &Services,
    ) -> io::Result<Node> {
        let folder = Arc::new(Folder::new(path));
        folder.lock()?;
        let random = folder.random_number();
        let (name, address) = (name.to_owned(), address.to_owned());
        let board = Arc::<RoleBoard>::default();
        board.note(|figures| figures.complete = Some(Moment::now()));
        Ok(Node {
            member: Arc::new(Member {
                log,
                board,
                name,
                address,
                services: services.iter().map(|(protocol, address)| format!(" {protocol}={address}")).collect(),
                id: random,
                has_told: AtomicBool::default(),
            }),
            path: path.to_owned(),
            mirror: Mirror::open(path)?,
            folder,
            writer: random,
            tail: Tail::default(),
            heard: Instant::now(),
            asked: Instant::now(),
            released: false,
            is_new: true,
            importing: false,
            passed: 0,
            most: FEW,
            saved: Instant::now(),
            patience: SILENCE + Duration::from_millis(random % SPREAD),
            tidied: None,
            differences: VecDeque::new(),
            is_apart: false,
        })
    }

    /// Returns the name of the active server, and its address for clients, as it has published them.
    pub fn active(&self) -> (String, String) {
        let note = String::from_utf8_lossy(&self.tail.note);
        let mut words = note.split(' ').map(str::to_owned);
        words.next().zip(words.next()).unwrap_or_default()
    }

    /// Returns the addresses of the active server for each protocol, as it has published them.
    pub fn services(&self) -> Services {
        let note = String::from_utf8_lossy(&self.tail.note);
        let pairs = note.split(' ').skip(3).filter_map(|word| word.split_once('='));
        pairs.map(|(protocol, address)| (protocol.to_owned(), address.to_owned())).collect()
    }

    /// Returns the name of this server.
    pub fn name(&self) -> &str {
        &self.member.name
    }

    /// Returns the current epoch; 0 if there was no active server.
    pub fn epoch(&self) -> Epoch {
        self.tail.epoch
    }

    /// Returns the board on which the server reports its role.
    pub fn board(&self) -> &Arc<RoleBoard> {
        &self.member.board
    }

    /// Returns the last entry in the copy.
    pub fn position(&self) -> Seq {
        self.mirror.position.done
    }

    /// Saves the position of the copy before this server stops.
    pub fn save(&mut self) -> io::Result<()> {
        match self.mirror.is_foreign || self.mirror.is_stale {
            true => Ok(()),
            false => self.mirror.save(),
        }
    }

    /// Reads the shared log once. An error is that of the network or of the directory, and not a reason to give up.
    pub fn look(&mut self) -> io::Result<Step> {
        // The first time, the last entry of the copy is read as well: it shows whether this is the copy's journal.
        let from = self.end() + u64::from(!self.is_new);
        let most = self.most;
        let (entries, tail) = match self.read(from.max(1)) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && self.may_claim() => return self.make_space(),
            read => read?,
        };
        if !self.mirror.is_foreign && (self.is_new || tail.epoch != self.tail.epoch) {
            if !std::mem::replace(&mut self.is_new, true) {
                // Another server has claimed the journal, or this is a different journal: reads the last entry of the
                // copy again.
                return self.look();
            }
            self.check_origin(&entries, &tail)?;
            if self.mirror.is_stale {
                self.mirror.start_over(0)?;
                return self.look();
            }
            self.mirror.position.origin.journal = journal_of(&tail);
        }
        // Before an operator asks whether it may be promoted: its last report may be that it has ended.
        if std::mem::replace(&mut self.is_new, false) && !self.mirror.is_foreign {
            self.member.tell("standby", self.mirror.position.done);
        }
        let more = entries.len() == most;
        self.note_tail(tail, !entries.is_empty());
        for (seq, entry) in entries {
            self.apply(seq, &entry)?;
        }
        self.report()?;
        if more {
            return Ok(Step::Standby(true));
        }
        self.member.board.note(|figures| figures.complete = Some(Moment::now()));
        if self.mirror.has_aside {
            self.mirror.drop_aside()?;
        }
        if self.mirror.is_foreign && self.tail.epoch > 0 && !self.is_own_import() {
            let path = self.path.display();
            let problem =
                format!("{path} holds a binlog that is not of this journal; move it away, or take another folder");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        if self.heard.elapsed() >= VERIFY || self.may_claim() {
            if let Some(name) = self.mirror.verify() {
                let path = self.path.display();
                log::error!("journal: {name} in {path} is damaged; copying the journal again");
                self.mirror.start_over(0)?;
                self.is_new = true;
                return Ok(Step::Standby(true));
            }
        }
        if !self.may_claim() {
            return Ok(Step::Standby(false));
        }
        self.claim()
    }

    /// Reads the next entries, and adapts the number to request.
    fn read(&mut self, from: Seq) -> io::Result<(Entries, Tail)> {
        let (sent, most) = (Instant::now(), self.most);
        self.asked = sent;
        let (entries, tail) = self.member.log.read(from, most).inspect_err(|_| self.most = (most / 8).max(1))?;
        let bytes: usize = entries.iter().map(|(_, entry)| entry.len()).sum();
        if bytes > ENOUGH.end || sent.elapsed() > SLOW {
            self.most = (most / 2).max(1);
        } else if entries.len() == most && bytes < ENOUGH.start {
            self.most = (most * 2).min(MOST);
        }
        Ok((entries, tail))
    }

    /// Processes the active server's latest state. `has_entries` if there are new entries as well.
    fn note_tail(&mut self, tail: Tail, has_entries: bool) {
        let is_same = tail.epoch == self.tail.epoch;
        if has_entries || !is_same || tail.beat != self.tail.beat {
            self.heard = Instant::now();
        }
        if !is_same {
            self.differences.clear();
        } else if let (true, Some(theirs)) = (self.tail.beat > 0 && tail.beat != self.tail.beat, tail.clock) {
            self.compare_clocks(theirs);
        }
        self.tail = tail;
    }

    /// Reports the position to observers of this server, and saves it every few seconds.
    fn report(&mut self) -> io::Result<()> {
        let done = self.mirror.position.done;
        self.member.board.note(|figures| (figures.epoch, figures.entry) = (self.tail.epoch, done));
        if self.saved.elapsed() >= SAVE && !self.mirror.is_foreign {
            self.save()?;
            self.saved = Instant::now();
            self.member.tell("standby", done);
            let _ = self.member.look_at_room();
        }
        Ok(())
    }

    /// Refuses a journal that the copy does not belong to, or that has lost entries that the copy has, because etcd was
    /// wiped or restored from a backup. `entries` start with the last entry of the copy, unless that was purged.
    fn check_origin(&self, entries: &Entries, tail: &Tail) -> io::Result<()> {
        let Mirror { position, is_stale, .. } = &self.mirror;
        let (origin, done, journal) = (&position.origin, position.done, journal_of(tail));
        let is_other = journal != origin.journal && journal != 0 && origin.journal != 0;
        let is_behind = tail.epoch < origin.epoch || (*is_stale && tail.epoch == 0) || (done > 0 && entries.is_empty());
        let found = entries.first().and_then(|(seq, entry)| {
            let (head, operations) = Head::open(entry)?;
            // An entry that was merged with later ones counts as well.
            let behind = seq.checked_sub(done).filter(|behind| *behind < unfold(&head, operations).0)?;
            Some((head.writer, head.number.wrapping_sub(behind)))
        });
        let differs = found.is_some_and(|found| origin.last.is_some_and(|last| last != found));
        if !(is_other || is_behind || differs) {
            return Ok(());
        }
        let (path, epoch) = (self.path.display(), tail.epoch);
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!(
                "{path} has entry {done}, epoch {} of journal {:016x}, but etcd, with epoch {epoch} of journal \
                 {journal:016x}, does not: etcd was wiped or restored; see \"Loss of etcd\" in beanpole-cluster(7), or \
                 move the directory away to use what etcd has",
                origin.epoch, origin.journal
            ),
        ))
    }

    /// Derives the queue's time from the time of a heartbeat. A heartbeat is never seen before it is written, so the
    /// largest difference of several is the true one. The wall clock of this server only serves to warn of differing
    /// clocks, because it may be set at any time.
    fn compare_clocks(&mut self, theirs: u64) {
        if self.differences.len() == BEATS {
            self.differences.pop_front();
        }
        self.differences.push_back((theirs as i64).saturating_sub(Moment::now().millis() as i64));
        let clock = self.differences.iter().copied().max();
        self.member.board.note(|figures| figures.clock = clock);
        let ahead = self.member.board.ahead();
        let apart = ahead.unsigned_abs() > APART;
        // A single late heartbeat is not worth a log line.
        if self.differences.len() < BEATS || apart == std::mem::replace(&mut self.is_apart, apart) {
            return;
        }
        let name = self.active().0;
        if apart {
            let seconds = ahead as f64 / 1000.0;
            log::warn!("journal: the queue's time at {name} is {seconds:.1} s ahead of this server's clock");
        } else {
            log::info!("journal: the queue's time at {name} is that of this server's clock again");
        }
    }

    /// Returns the time to wait before the next read. It is shorter when this server may claim soon.
    pub fn pause(&self) -> Duration {
        if self.heard.elapsed() >= LEASE && self.tail.epoch > 0 {
            LOOK / 5
        } else {
            LOOK
        }
    }

    /// Returns the last known entry.
    fn end(&self) -> Seq {
        self.mirror.position.done.max(self.passed)
    }

    /// Returns `true` if the log ends within the import of the binlog in this server's directory.
    fn is_own_import(&self) -> bool {
        self.importing && self.mirror.is_foreign && self.active().0 == self.member.name
    }

    fn apply(&mut self, seq: Seq, entry: &[u8]) -> io::Result<()> {
        if self.mirror.is_foreign {
            // It is another queue's, or was created from the contents of the directory: in any case, the directory
            // stays unchanged.
            self.importing = Head::open(entry).is_some_and(|(head, _)| head.kind == EntryKind::Import);
            self.passed = seq;
            return Ok(());
        }
        let Some((head, operations)) = Head::open(entry) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("entry {seq} of the journal is damaged")));
        };
        self.released = head.kind == EntryKind::Release;
        self.importing = head.kind == EntryKind::Import;
        if seq == self.mirror.position.done {
            return Ok(());
        }
        let (count, operations) = unfold(&head, operations);
        // A part of the merged entries may be applied already: repeating it leads to the same files.
        if seq > self.mirror.position.done + count {
            // Earlier entries were purged: nothing live needs them, so all existing files begin here.
            if self.mirror.position.done > 0 {
                log::warn!("journal: this copy is too old; it is made again from entry {seq}");
            }
            self.mirror.start_over(seq - 1)?;
        }
        self.mirror.apply(seq, &head, operations)
    }

    fn may_claim(&self) -> bool {
        if self.importing && !self.is_own_import() {
            return false;
        }
        let is_wanted = self.tail.wanted == self.member.name.as_bytes();
        let precedence = if self.tail.wanted.is_empty() || is_wanted { Duration::ZERO } else { PRECEDENCE };
        let silence = self.asked.saturating_duration_since(self.heard);
        // No server has ever been active, or the last one has shut down cleanly.
        if self.released || self.tail.epoch == 0 {
            return silence >= precedence;
        }
        silence >= self.patience + precedence
    }

    /// Becomes the active server, unless there is more to read or another one was faster.
    fn claim(&mut self) -> io::Result<Step> {
        let (after, is_foreign) = (self.end(), self.mirror.is_foreign);
        if after == 0 && self.tail.epoch > 0 {
            return Ok(Step::Standby(false));
        }
        if !is_foreign {
            self.mirror.save()?;
        }
        if is_foreign {
            self.check_room()?;
        }
        let kind = if is_foreign { EntryKind::Import } else { EntryKind::Claim };
        let head = Head { kind, epoch: self.tail.epoch, writer: self.writer, number: self.tail.epoch };
        let known = [journal_of(&self.tail), self.mirror.position.origin.journal];
        let journal = known.into_iter().find(|journal| *journal != 0).unwrap_or(self.writer);
        let Member { name, address, services, .. } = &*self.member;
        let note = format!("{name} {address} {journal:016x}{services}");
        let lease = Arc::new(Lease::new(Moment::now() + LEASE));
        let epoch = match self.member.log.claim(self.tail.epoch, after, note.as_bytes(), &head.seal(b"")) {
            Ok(epoch) => epoch,
            Err(Fail::Unknown(error)) => match self.is_mine(after + 1, &head) {
                Some(true) => self.tail.epoch + 1,
                Some(false) => return Ok(Step::Standby(true)),
                None => return Err(error),
            },
            Err(Fail::Full) => return self.make_space(),
            Err(_) => {
                // Another server was faster, or the journal lacks entries of the copy: the next read determines which.
                self.is_new = !is_foreign;
                return Ok(Step::Standby(false));
            }
        };
        let origin = Origin { journal, epoch, last: Some((head.writer, head.number)) };
        if !is_foreign {
            self.mirror.note_active(after + 1, origin)?;
        }
        self.member.board.note(|figures| {
            (figures.role, figures.epoch, figures.entry) = (Role::Active, epoch, after + 1);
        });
        let head = Head { kind: EntryKind::Operations, epoch, writer: self.writer, number: 0 };
        let created = std::mem::take(&mut self.mirror.position.created);
        let (log, board) = (self.member.log.clone(), self.member.board.clone());
        let shipper = Arc::new(Shipper::new(log, lease.clone(), head, after + 1, created, board));
        let storage = Arc::new(ShippedFolder::new(self.folder.clone(), shipper.clone()));
        let (member, path) = (self.member.clone(), self.path.clone());
        let active = Active::begin(member, shipper, lease, storage.clone(), path, &origin)?;
        if is_foreign {
            log::info!("journal: it is empty; importing the binlog of {}", self.path.display());
            storage.ship_all()?;
            // Not earlier: until now, only the directory had the queue.
            self.mirror.note_active(after + 1, origin)?;
        }
        Ok(Step::Active(active))
    }

    /// Refuses to import a binlog that does not fit into the shared log, before anything is written there.
    fn check_room(&self) -> io::Result<()> {
        // Without the permission to ask, the import has to be tried.
        let Ok(room) = self.member.look_at_room() else { return Ok(()) };
        let (needed, free) = (self.mirror.size()?, room.for_segments().saturating_sub(room.used));
        if needed <= free {
            return Ok(());
        }
        let path = self.path.display();
        let problem = format!(
            "the binlog in {path} needs {needed} bytes, but etcd's quota leaves {free}; increase the quota of etcd and \
             quota= of --journal"
        );
        Err(io::Error::new(io::ErrorKind::StorageFull, problem))
    }

    /// No server can be active while the shared log is full, so a candidate frees space in it.
    fn make_space(&mut self) -> io::Result<Step> {
        if self.tidied.is_some_and(|tidied| tidied.elapsed() < SPACE) {
            return Ok(Step::Standby(false));
        }
        self.tidied = Some(Instant::now());
        log::error!("journal: etcd has reached its quota and accepts nothing; compacting and defragmenting it");
        self.member.log.tidy_up()?;
        Ok(Step::Standby(true))
    }

    /// Returns whether the entry at this position is this server's claim, or `None` if that is unknown.
    fn is_mine(&self, seq: Seq, head: &Head) -> Option<bool> {
        let (entries, _) = self.member.log.read(seq, 1).ok()?;
        let (found, entry) = entries.first()?;
        Some(*found == seq && Head::open(entry).is_some_and(|(other, _)| other == *head))
    }
}

/// Returns the identifier of the journal, the third word in the note of the last claim; 0 if it is missing.
fn journal_of(tail: &Tail) -> u64 {
    let number = std::str::from_utf8(&tail.note).ok().and_then(|note| note.split(' ').nth(2));
    number.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}
