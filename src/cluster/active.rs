//! The active server: its lease, the size of the shared log, and its end.
//!
//! Owns the threads that keep the lease and the shared log while this server is active. Must not decide to become
//! active, nor serve clients.
//!
//! Promises: P33.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::merging::{merge, RUN, SMALL};
use super::mirror::{self, Origin};
use super::shared_log::{Epoch, Fail, Room, Seq, SharedLog};
use super::shipping::{Shipper, LEASE};
use crate::binlog::{is_no_space, Storage};
use crate::shared::lease::{Lease, Moment};
use crate::shared::lock_order::{Mutex, REPORTING};
use crate::shared::role::{Role, RoleBoard};

/// Interval at which a server saves its position, and tidies up if etcd is nearly full.
pub const SAVE: Duration = Duration::from_secs(2);

/// The interval between two renewals of the lease over one connection.
const PULSE: Duration = Duration::from_millis(300);

/// The interval between two checks of the lease.
const WATCH: Duration = Duration::from_millis(20);

/// The interval at which an active server makes etcd return the space of purged entries.
const TIDY: Duration = Duration::from_secs(300);

/// How other servers and operators know this server.
pub struct Member {
    pub log: Arc<dyn SharedLog>,
    pub board: Arc<RoleBoard>,
    pub name: String,
    /// The address of this server for clients when it is active.
    pub address: String,
    /// The address for each protocol: words that begin with a space.
    pub services: String,
    /// A random number that identifies this process.
    pub id: u64,
    /// This server has reported its state before.
    pub has_told: AtomicBool,
}

impl Member {
    /// Reports this server's role and its last entry to operators. A failure of the report changes nothing else.
    pub fn tell(&self, role: &str, entry: Seq) {
        let Member { name, address, id, board, .. } = self;
        let (time, lag, ahead) = (board.queue_time(), board.figures().lag().as_millis(), board.ahead());
        let state = format!("{role} {entry} {address} {id:016x} {time} {lag} {ahead}");
        let Ok(before) = self.log.tell(name, &state) else { return };
        // Between two reports of this server, only another one of the same name changes the state.
        let is_own = before.split(' ').nth(3).is_none_or(|word| u64::from_str_radix(word, 16) == Ok(*id));
        if self.has_told.swap(true, Ordering::Relaxed) && !is_own {
            let other = before.split(' ').nth(2).unwrap_or_default();
            log::error!(
                "journal: the server at {other} is named {name} too; give each server a name of its own (--node)"
            );
        }
    }

    /// Queries and records the space in the shared log.
    pub fn look_at_room(&self) -> io::Result<Room> {
        let room = self.log.room()?;
        self.board.note(|figures| (figures.used, figures.quota) = (room.used, room.quota));
        Ok(room)
    }
}

/// The parts of a server that has just become active.
pub struct Active {
    /// The binlog's directory, whose changes go into the shared log.
    pub storage: Arc<dyn Storage>,
    /// Until when the server may reply.
    pub lease: Arc<Lease>,
    path: PathBuf,
    state: Arc<ActiveState>,
}

/// The shared state of the threads of an active server.
struct ActiveState {
    epoch: Epoch,
    /// The identifier of the journal.
    journal: u64,
    member: Arc<Member>,
    lease: Arc<Lease>,
    shipper: Arc<Shipper>,
    ended: AtomicBool,
    /// A switch to another server was requested.
    wanted: AtomicBool,
    /// Held while the state is reported: the last report is that of the end.
    telling: Mutex<(), REPORTING>,
    /// A renewal of the lease failed, and none has succeeded since.
    troubled: AtomicBool,
}

impl Active {
    /// Starts to renew the lease of this server, which has claimed the journal `origin` and has its binlog in `path`.
    pub fn begin(
        member: Arc<Member>,
        shipper: Arc<Shipper>,
        lease: Arc<Lease>,
        storage: Arc<dyn Storage>,
        path: PathBuf,
        origin: &Origin,
    ) -> io::Result<Active> {
        let state = ActiveState {
            epoch: origin.epoch,
            journal: origin.journal,
            member,
            lease: lease.clone(),
            shipper,
            ended: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            telling: Mutex::new(()),
            troubled: AtomicBool::new(false),
        };
        let active = Active { storage, lease, path, state: Arc::new(state) };
        active.keep_lease()?;
        Ok(active)
    }

    /// Returns the epoch of this server.
    pub fn epoch(&self) -> Epoch {
        self.state.epoch
    }

    /// Returns the board on which the server reports its role.
    pub fn board(&self) -> &Arc<RoleBoard> {
        &self.state.member.board
    }

    /// Reports the beginning of a clean stop.
    pub fn note_closing(&self) {
        self.board().note(|figures| figures.role = Role::Closing);
    }

    /// Starts the threads that renew the lease, which may hang with the network.
    fn keep_lease(&self) -> io::Result<()> {
        // As in the server, a later change of the wall clock has no effect.
        let (start, anchor) = (self.board().queue_time(), Instant::now());
        for way in 0..self.state.member.log.ways() {
            let state = self.state.clone();
            spawn("journal-lease", Box::new(move || state.renew_lease(way, start, anchor)))?;
        }
        Ok(())
    }

    /// Starts the other threads. `lost` is called when this server must not reply any more, by a thread that waits for
    /// nothing; `wanted` when another server should take over.
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
        let (state, path) = (self.state.clone(), self.path.clone());
        spawn("journal-purge", Box::new(move || state.keep_small(&path)))
    }

    /// Stops cleanly, after the server has stopped: another one may take over at once.
    pub fn release(&self) -> io::Result<()> {
        let ActiveState { epoch, journal, member, shipper, ended, telling, .. } = &*self.state;
        let released = shipper.release();
        ended.store(true, Ordering::Release);
        released?;
        let (done, last) = shipper.last();
        let origin = Origin { journal: *journal, epoch: *epoch, last };
        let _telling = telling.lock();
        member.tell("ended", done);
        mirror::note_ended(&self.path, done, origin, shipper.created())
    }
}

/// How far the shared log was scanned for entries to merge, and the number of bytes written by then.
struct Merging {
    end: Seq,
    bytes: u64,
}

impl ActiveState {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Renews the lease over one connection, again and again. The queue's time was `start` at the time `anchor`.
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
                Err(fail) => {
                    member.board.note(|figures| figures.failed_renewals += 1);
                    if !troubled.swap(true, Ordering::AcqRel) {
                        log::warn!("journal: a renewal of the lease failed: {fail}");
                    }
                }
            }
            std::thread::sleep(PULSE.saturating_sub(Moment::now().since(sent)));
        }
    }

    /// Saves the position, so that after a crash this server recognizes a journal that was restored from a backup.
    fn note_progress(&self, path: &Path, end: Seq, last: Option<(u64, u64)>) {
        let origin = Origin { journal: self.journal, epoch: self.epoch, last };
        if let Err(error) = mirror::note_progress(path, end, origin) {
            if !is_no_space(&error) {
                self.shipper.give_up(&error);
            }
        }
    }

    /// Replaces small entries with larger ones, starting after `merged`, as soon as there are enough of them.
    fn merge(&self, merged: &mut Merging) -> Result<(), Fail> {
        let (end, Some((writer, _))) = self.shipper.last() else { return Ok(()) };
        let (count, bytes) = (end.saturating_sub(merged.end), self.member.board.figures().bytes);
        if count < RUN as u64 {
            return Ok(());
        }
        if (bytes - merged.bytes) / count > SMALL {
            *merged = Merging { end, bytes };
        }
        while merged.end + RUN as u64 <= end {
            let (mut entries, _) = self.member.log.read(merged.end + 1, RUN).map_err(Fail::Unknown)?;
            // The writers of the others still look for them at their positions.
            entries.retain(|(seq, _)| *seq <= end);
            for run in merge(&entries, self.epoch, writer) {
                self.member.log.merge(self.epoch, &run)?;
            }
            *merged = Merging { end: entries.last().map_or(end, |(seq, _)| *seq), bytes };
        }
        Ok(())
    }

    /// Keeps the shared log small while this server is active, and reports its position.
    fn keep_small(&self, path: &Path) {
        // Entries before this one were purged.
        let mut purged = 0;
        let mut merged = Merging { end: self.shipper.last().0, bytes: 0 };
        let mut tidied = Instant::now();
        // The entry that the position on disk names, and when it was saved.
        let mut noted = (0, Instant::now());
        // The shared log could not return space.
        let mut troubled = false;
        while !self.has_ended() {
            std::thread::sleep(SAVE / 4);
            let (end, last) = self.shipper.last();
            {
                let _telling = self.telling.lock();
                if self.has_ended() {
                    return;
                }
                self.member.tell("active", end);
                if noted.0 != end && noted.1.elapsed() >= SAVE {
                    self.note_progress(path, end, last);
                    noted = (end, Instant::now());
                }
            }
            let oldest = self.shipper.oldest_needed();
            if oldest > purged && self.member.log.purge(oldest).is_ok() {
                purged = oldest;
            }
            // After a failure, it is tried again later; nothing waits for it.
            let _ = self.merge(&mut merged);
            let Ok(room) = self.member.look_at_room() else { continue };
            let is_tight = room.used > room.quota / 2;
            if tidied.elapsed() < if is_tight { SAVE } else { TIDY } {
                continue;
            }
            tidied = Instant::now();
            match self.member.log.tidy_up() {
                Ok(()) => troubled = false,
                Err(error) if !std::mem::replace(&mut troubled, true) => {
                    log::warn!("journal: cannot compact or defragment etcd: {error}");
                }
                Err(_) => {}
            }
        }
    }
}

/// The closure is boxed: the code that starts a thread is large, and not worth a copy for each.
fn spawn(name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
