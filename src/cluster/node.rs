//! One server of several: how it follows the active one, takes its place, and leaves it.
//!
//! Owns the decision to claim, and the threads that keep the lease while it is active. Time only keeps two servers from
//! handing out the same jobs; what is acknowledged is safe by the shared log's own order. Must not serve clients.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::entry::{EntryKind, Head};
use super::mirror::{self, Mirror};
use super::shared_log::{Epoch, Fail, Room, Seq, SharedLog, Tail};
use super::shipping::{ShippedFolder, Shipper, LEASE};
use crate::binlog::{Folder, Storage};
use crate::shared::lease::{Lease, Moment};
use crate::shared::role::{Role, RoleBoard};

/// How long the active server may be silent before another takes its place: its lease, and as much for one that was cut
/// off while its last renewal was under way.
const SILENCE: Duration = Duration::from_secs(2);

/// Standbys wait for different times, up to this, lest all claim at once.
const SPREAD: u64 = 300;

/// A standby that was not asked for waits for so long for the one that was.
const PRECEDENCE: Duration = Duration::from_secs(1);

/// Between two looks at the shared log.
const LOOK: Duration = Duration::from_millis(100);

/// Entries read at a time.
const MOST: usize = 32;

/// Between two renewals of the lease in one way.
const PULSE: Duration = Duration::from_millis(300);

/// Two clocks agree that are no further apart than this, in milliseconds: a beat is seen some tenths of a second late.
const APART: u64 = 1000;

/// Of so many beats one at least is seen soon after it was written.
const BEATS: usize = 10;

/// Between two looks whether the lease is over.
const WATCH: Duration = Duration::from_millis(20);

/// How often what a standby has applied is brought to its disk, and how often an active server purges.
const SAVE: Duration = Duration::from_secs(2);

/// How often an active server has etcd give back the space of purged entries.
const TIDY: Duration = Duration::from_secs(300);

/// Between two tries to make space in a shared log that is full.
const SPACE: Duration = Duration::from_secs(10);

/// What a look at the shared log has led to.
pub enum Step {
    /// This server stands by; whether there is more to read at once.
    Standby(bool),
    /// It is the active one.
    Active(Active),
}

/// What the others and operators know this server by.
struct Member {
    log: Arc<dyn SharedLog>,
    board: Arc<RoleBoard>,
    name: String,
    /// Where clients find this server when it is active.
    address: String,
}

impl Member {
    /// Tells operators what this server does, and its last entry. That nobody hears it changes nothing.
    fn tell(&self, role: &str, entry: Seq) {
        let _ = self.log.tell(&self.name, &format!("{role} {entry} {}", self.address));
    }

    /// Asks how much space the shared log has, and notes it.
    fn look_at_room(&self) -> io::Result<Room> {
        let room = self.log.room()?;
        self.board.note(|figures| (figures.used, figures.quota) = (room.used, room.quota));
        Ok(room)
    }
}

/// A server that stands by.
pub struct Node {
    member: Arc<Member>,
    path: PathBuf,
    folder: Arc<Folder>,
    mirror: Mirror,
    writer: u64,
    tail: Tail,
    /// When the active server was heard of last.
    heard: Instant,
    released: bool,
    /// It has not read anything yet.
    is_new: bool,
    /// The last entry is of a binlog that was not taken in to its end.
    importing: bool,
    /// The last entry that was read and not applied, since the folder holds a binlog of its own.
    passed: Seq,
    saved: Instant,
    patience: Duration,
    /// When it was tried last to make space in a shared log that is full.
    tidied: Option<Instant>,
    /// The times in the last beats, minus the milliseconds since this machine was started.
    differences: VecDeque<i64>,
    /// They are so by much.
    is_apart: bool,
}

/// What a server that has just become active needs.
pub struct Active {
    /// The binlog's folder, whose changes go into the shared log.
    pub storage: Arc<dyn Storage>,
    /// Until when it may answer.
    pub lease: Arc<Lease>,
    path: PathBuf,
    state: Arc<ActiveState>,
}

/// What the threads of an active server share.
struct ActiveState {
    epoch: Epoch,
    member: Arc<Member>,
    lease: Arc<Lease>,
    shipper: Arc<Shipper>,
    ended: AtomicBool,
    /// Somebody has asked for another server.
    wanted: AtomicBool,
    /// Held while operators are told the state: the last word is that of the end.
    telling: Mutex<()>,
    /// A renewal of the lease failed, and none has succeeded since.
    troubled: AtomicBool,
}

impl Node {
    /// A server of this name with a copy in this folder, which is locked from now on.
    pub fn new(log: Arc<dyn SharedLog>, path: &Path, name: &str, address: &str) -> io::Result<Node> {
        let folder = Arc::new(Folder::new(path));
        folder.lock()?;
        let random = folder.random_number();
        let (name, address) = (name.to_owned(), address.to_owned());
        Ok(Node {
            member: Arc::new(Member { log, board: Arc::default(), name, address }),
            path: path.to_owned(),
            mirror: Mirror::open(path)?,
            folder,
            writer: random,
            tail: Tail::default(),
            heard: Instant::now(),
            released: false,
            is_new: true,
            importing: false,
            passed: 0,
            saved: Instant::now(),
            patience: SILENCE + Duration::from_millis(random % SPREAD),
            tidied: None,
            differences: VecDeque::new(),
            is_apart: false,
        })
    }

    /// The name of the active server, and where clients find it, as it says itself.
    pub fn active(&self) -> (String, String) {
        let note = String::from_utf8_lossy(&self.tail.note);
        note.split_once(' ').map_or_else(Default::default, |(name, address)| (name.to_owned(), address.to_owned()))
    }

    /// Which turn of an active server this is; 0 if there was none.
    pub fn epoch(&self) -> Epoch {
        self.tail.epoch
    }

    /// Where it tells of its part.
    pub fn board(&self) -> &Arc<RoleBoard> {
        &self.member.board
    }

    /// The last entry that the copy holds.
    pub fn position(&self) -> Seq {
        self.mirror.done
    }

    /// Looks at the shared log once; an error is that of the network or of the folder, and no reason to give up.
    pub fn look(&mut self) -> io::Result<Step> {
        // The first time, the last entry that the copy holds is read as well: it tells how the log stands.
        let from = self.end() + u64::from(!self.is_new);
        let (entries, tail) = match self.member.log.read(from.max(1), MOST) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && self.may_claim() => return self.make_space(),
            read => read?,
        };
        // Before anybody asks whether it may be promoted: what was told last may be that it has ended.
        if std::mem::replace(&mut self.is_new, false) && !self.mirror.is_foreign {
            self.member.tell("standby", self.mirror.done);
        }
        let more = entries.len() == MOST;
        let heard = !entries.is_empty() || tail.beat != self.tail.beat || tail.epoch != self.tail.epoch;
        if heard {
            self.heard = Instant::now();
        }
        let is_fresh = tail.epoch == self.tail.epoch && self.tail.beat > 0 && tail.beat != self.tail.beat;
        if let (true, Some(theirs)) = (is_fresh, tail.clock) {
            self.compare_clocks(theirs);
        }
        if tail.epoch != self.tail.epoch {
            self.differences.clear();
        }
        self.tail = tail;
        for (seq, entry) in entries {
            self.apply(seq, &entry)?;
        }
        self.member.board.note(|figures| (figures.epoch, figures.entry) = (self.tail.epoch, self.mirror.done));
        if self.saved.elapsed() >= SAVE && !self.mirror.is_foreign {
            self.mirror.save()?;
            self.saved = Instant::now();
            self.member.tell("standby", self.mirror.done);
            let _ = self.member.look_at_room();
        }
        if more {
            return Ok(Step::Standby(true));
        }
        if self.mirror.is_foreign && self.tail.epoch > 0 && !self.is_own_import() {
            let path = self.path.display();
            let problem =
                format!("{path} holds a binlog that is not of this journal; move it away, or take another folder");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        if !self.may_claim() {
            return Ok(Step::Standby(false));
        }
        self.claim()
    }

    /// Notes the queue's time by the time of a beat. A beat is never seen before it is written, so the largest
    /// difference of several is the true one. The wall clock of this server only serves to warn of clocks that are
    /// apart, since it may be set at any moment.
    fn compare_clocks(&mut self, theirs: u64) {
        if self.differences.len() == BEATS {
            self.differences.pop_front();
        }
        self.differences.push_back((theirs as i64).saturating_sub(Moment::now().millis() as i64));
        let clock = self.differences.iter().copied().max();
        self.member.board.note(|figures| figures.clock = clock);
        let ahead = (self.member.board.queue_time() as i64).saturating_sub(wall_clock() as i64);
        let apart = ahead.unsigned_abs() > APART;
        self.member.board.note(|figures| figures.ahead = if apart { ahead } else { 0 });
        // One that was seen late is no reason for a line.
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

    /// How long to wait before the next look.
    pub fn pause(&self) -> Duration {
        LOOK
    }

    /// The last entry that is known.
    fn end(&self) -> Seq {
        self.mirror.done.max(self.passed)
    }

    /// Whether the log ends within the import of the binlog that is in this server's folder.
    fn is_own_import(&self) -> bool {
        self.importing && self.mirror.is_foreign && self.active().0 == self.member.name
    }

    fn apply(&mut self, seq: Seq, entry: &[u8]) -> io::Result<()> {
        if self.mirror.is_foreign {
            // It is another queue's, or was made of what is in the folder: in any case the folder stays as it is.
            self.importing = Head::open(entry).is_some_and(|(head, _)| head.kind == EntryKind::Import);
            self.passed = seq;
            return Ok(());
        }
        let Some((head, operations)) = Head::open(entry) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("entry {seq} of the journal is damaged")));
        };
        self.released = head.kind == EntryKind::Release;
        self.importing = head.kind == EntryKind::Import;
        if seq == self.mirror.done {
            return Ok(());
        }
        if seq != self.mirror.done + 1 {
            // What was before is purged: nothing that lives needs it, so everything there is begins here.
            if self.mirror.done > 0 {
                log::warn!("journal: this copy is too old; it is made again from entry {seq}");
            }
            self.mirror.start_over(seq - 1)?;
        }
        self.mirror.apply(seq, operations)
    }

    fn may_claim(&self) -> bool {
        if self.importing && !self.is_own_import() {
            return false;
        }
        let is_wanted = self.tail.wanted == self.member.name.as_bytes();
        let precedence = if self.tail.wanted.is_empty() || is_wanted { Duration::ZERO } else { PRECEDENCE };
        let silence = self.heard.elapsed();
        // Nobody has ever been active, or the last one has ended in order.
        if self.released || self.tail.epoch == 0 {
            return silence >= precedence;
        }
        silence >= self.patience + precedence
    }

    /// Becomes the active server, unless there is more to read or somebody else was faster.
    fn claim(&mut self) -> io::Result<Step> {
        let (after, is_foreign) = (self.end(), self.mirror.is_foreign);
        if after == 0 && self.tail.epoch > 0 {
            return Ok(Step::Standby(true));
        }
        if !is_foreign {
            self.mirror.save()?;
        }
        let kind = if is_foreign { EntryKind::Import } else { EntryKind::Claim };
        let head = Head { kind, epoch: self.tail.epoch, writer: self.writer, number: self.tail.epoch };
        let note = format!("{} {}", self.member.name, self.member.address);
        let lease = Arc::new(Lease::new(Moment::now() + LEASE));
        let epoch = match self.member.log.claim(self.tail.epoch, after, note.as_bytes(), &head.seal(b"")) {
            Ok(epoch) => epoch,
            Err(Fail::Unknown(error)) => match self.is_mine(after + 1, &head) {
                Some(true) => self.tail.epoch + 1,
                Some(false) => return Ok(Step::Standby(true)),
                None => return Err(error),
            },
            Err(Fail::Full) => return self.make_space(),
            Err(_) => return Ok(Step::Standby(true)),
        };
        if !is_foreign {
            self.mirror.note_active()?;
        }
        self.member.board.note(|figures| {
            (figures.role, figures.epoch, figures.entry) = (Role::Active, epoch, after + 1);
        });
        let head = Head { kind: EntryKind::Operations, epoch, writer: self.writer, number: 0 };
        let created = std::mem::take(&mut self.mirror.created);
        let (log, board) = (self.member.log.clone(), self.member.board.clone());
        let shipper = Arc::new(Shipper::new(log, lease.clone(), head, after + 1, created, board));
        let storage = Arc::new(ShippedFolder::new(self.folder.clone(), shipper.clone()));
        let state = ActiveState {
            epoch,
            member: self.member.clone(),
            lease: lease.clone(),
            shipper,
            ended: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            telling: Mutex::new(()),
            troubled: AtomicBool::new(false),
        };
        let active = Active { storage: storage.clone(), lease, path: self.path.clone(), state: Arc::new(state) };
        active.keep_lease()?;
        if is_foreign {
            log::info!("journal: it is empty; taking in the binlog of {}", self.path.display());
            storage.ship_all()?;
            // Not before: until now the folder was all that there is of the queue.
            self.mirror.note_active()?;
        }
        Ok(Step::Active(active))
    }

    /// Nobody can be active while the shared log is full, so who would be makes space in it.
    fn make_space(&mut self) -> io::Result<Step> {
        if self.tidied.is_some_and(|tidied| tidied.elapsed() < SPACE) {
            return Ok(Step::Standby(false));
        }
        self.tidied = Some(Instant::now());
        log::error!("journal: etcd has reached its quota and takes nothing; it is told to give space back");
        self.member.log.tidy_up()?;
        Ok(Step::Standby(true))
    }

    /// Whether the entry at this place is this server's claim; none if that cannot be told.
    fn is_mine(&self, seq: Seq, head: &Head) -> Option<bool> {
        let (entries, _) = self.member.log.read(seq, 1).ok()?;
        let (found, entry) = entries.first()?;
        Some(*found == seq && Head::open(entry).is_some_and(|(other, _)| other == *head))
    }
}

impl Active {
    /// Which turn of an active server this is.
    pub fn epoch(&self) -> Epoch {
        self.state.epoch
    }

    /// Where it tells of its part.
    pub fn board(&self) -> &Arc<RoleBoard> {
        &self.state.member.board
    }

    /// It begins to end in order.
    pub fn note_closing(&self) {
        self.board().note(|figures| figures.role = Role::Closing);
    }

    /// Starts the threads that renew the lease, which may hang with the network.
    fn keep_lease(&self) -> io::Result<()> {
        // As in the server, a wall clock that is set later moves nothing.
        let (start, anchor) = (self.board().queue_time(), Instant::now());
        for way in 0..self.state.member.log.ways() {
            let state = self.state.clone();
            spawn("journal-lease", Box::new(move || state.renew_lease(way, start, anchor)))?;
        }
        Ok(())
    }

    /// Starts the other threads. `lost` is called when this server must not answer any more, by a thread that waits for
    /// nothing; `wanted` when another server is to take its place.
    pub fn watch(&self, lost: impl Fn() + Send + 'static, wanted: impl Fn() + Send + 'static) -> io::Result<()> {
        let state = self.state.clone();
        spawn(
            "journal-watch",
            Box::new(move || {
                let mut told = false;
                let mut last = Moment::now();
                while !state.has_ended() {
                    let gap = Moment::now().since(last);
                    last = last + gap;
                    if gap > LEASE {
                        log::warn!("journal: this machine or process was stopped for {:.1} s", gap.as_secs_f64());
                    }
                    if state.lease.is_over() {
                        return lost();
                    }
                    if state.wanted.load(Ordering::Acquire) && !std::mem::replace(&mut told, true) {
                        wanted();
                    }
                    std::thread::sleep(WATCH);
                }
            }),
        )?;
        let state = self.state.clone();
        spawn("journal-purge", Box::new(move || state.keep_small()))
    }

    /// Ends in order, after the server has stopped: another may take its place at once.
    pub fn release(&self) -> io::Result<()> {
        let ActiveState { member, shipper, ended, telling, .. } = &*self.state;
        let released = shipper.release();
        ended.store(true, Ordering::Release);
        released?;
        let (done, created) = shipper.position();
        let _telling = telling.lock();
        member.tell("ended", done);
        mirror::note_ended(&self.path, done, &created)
    }
}

impl ActiveState {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Renews the lease in one of the ways, again and again. The queue's time was `start` at the moment `anchor`.
    fn renew_lease(&self, way: usize, start: u64, anchor: Instant) {
        let ActiveState { epoch, member, lease, troubled, .. } = self;
        while !self.has_ended() && !lease.is_over() {
            let sent = Moment::now();
            match member.log.renew(way, *epoch, start + anchor.elapsed().as_millis() as u64) {
                Ok(other) => {
                    lease.extend(sent + LEASE);
                    self.wanted.store(!other.is_empty() && other != member.name.as_bytes(), Ordering::Release);
                    if troubled.swap(false, Ordering::AcqRel) {
                        log::info!("journal: the lease is renewed");
                    }
                }
                Err(_) if self.has_ended() => return,
                Err(Fail::Fenced) => {
                    log::error!("journal: another server has taken over");
                    lease.end();
                }
                Err(fail) if !troubled.swap(true, Ordering::AcqRel) => {
                    log::warn!("journal: a renewal of the lease failed: {fail}");
                }
                Err(_) => {}
            }
            std::thread::sleep(PULSE.saturating_sub(Moment::now().since(sent)));
        }
    }

    /// Keeps the shared log small while this server is active, and tells how far it is.
    fn keep_small(&self) {
        // Entries before this one were purged.
        let mut purged = 0;
        let mut tidied = Instant::now();
        // The shared log could not be told to give space back.
        let mut troubled = false;
        while !self.has_ended() {
            std::thread::sleep(SAVE / 4);
            let (end, _) = self.shipper.position();
            {
                let _telling = self.telling.lock();
                if self.has_ended() {
                    return;
                }
                self.member.tell("active", end);
            }
            let oldest = self.shipper.oldest_needed();
            if oldest > purged && self.member.log.purge(oldest).is_ok() {
                purged = oldest;
            }
            let Ok(room) = self.member.look_at_room() else { continue };
            let is_tight = room.used > room.quota / 2;
            if tidied.elapsed() < if is_tight { SAVE } else { TIDY } {
                continue;
            }
            tidied = Instant::now();
            match self.member.log.tidy_up() {
                Ok(()) => troubled = false,
                Err(error) if !std::mem::replace(&mut troubled, true) => {
                    log::warn!("journal: etcd could not be told to give space back: {error}");
                }
                Err(_) => {}
            }
        }
    }
}

/// What the wall clock says, in milliseconds since 1970.
fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// The closure is boxed: the code that starts a thread is large, and not worth a copy for each.
fn spawn(name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
