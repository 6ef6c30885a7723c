//! The active server: its lease, the size of the shared log, and its end.
//!
//! Owns the threads that renew the lease and keep the shared log small. Must not decide to become active, nor serve
//! clients.
//!
//! Promises: P33.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::merging::{merge, RUN, SMALL};
use super::mirror::{self, Origin};
use super::shared_log::{Epoch, Fail, Seq, SharedLog, SharedSpace};
use super::shipping::{Shipper, LEASE};
use crate::binlog::{is_no_space, Storage};
use crate::shared::lease::{Lease, Moment};
use crate::shared::lock_order::{Mutex, REPORTING};
use crate::shared::role::RoleBoard;

/// The interval at which a server saves its position, and at which a nearly full etcd is compacted.
pub const SAVE: Duration = Duration::from_secs(2);

/// The interval between two renewals of the lease over one connection.
const RENEWAL: Duration = Duration::from_millis(300);

/// The interval between two checks of the lease.
const WATCH: Duration = Duration::from_millis(20);

/// The interval at which etcd is compacted otherwise.
const COMPACTION: Duration = Duration::from_secs(300);

/// This server as other servers and operators know it.
pub struct Member {
    pub log: Arc<dyn SharedLog>,
    pub board: Arc<RoleBoard>,
    pub name: String,
    /// The address of this server for clients when it is active.
    pub address: String,
    /// The address for each protocol, as words that begin with a space.
    pub services: String,
    /// A random number that identifies this process.
    pub id: u64,
    /// `true` after the first report.
    pub has_reported: AtomicBool,
}

impl Member {
    /// Reports this server's role and its last entry to operators. A failure of the report has no effect.
    pub fn report(&self, role: &str, entry: Seq) {
        let Member { name, address, id, board, .. } = self;
        let (time, lag, ahead) = (board.queue_time(), board.figures().lag().as_millis(), board.ahead());
        let state = format!("{role} {entry} {address} {id:016x} {time} {lag} {ahead}");
        let Ok(before) = self.log.publish(name, &state) else { return };
        // Between two reports of this server, only another server with the same name changes the state.
        let is_own = before.split(' ').nth(3).is_none_or(|word| u64::from_str_radix(word, 16) == Ok(*id));
        if self.has_reported.swap(true, Ordering::Relaxed) && !is_own {
            let other = before.split(' ').nth(2).unwrap_or_default();
            log::error!("journal: the server at {other} is named {name} too; set different names (--node)");
        }
    }

    /// Queries the space in the shared log, and publishes it on the board.
    pub fn query_space(&self) -> io::Result<SharedSpace> {
        let space = self.log.space()?;
        self.board.note(|figures| (figures.used, figures.quota) = (space.used, space.quota));
        Ok(space)
    }
}

/// A server that has become active.
pub struct Active {
    /// The directory of the binlog. Its changes go into the shared log.
    pub storage: Arc<dyn Storage>,
    pub lease: Arc<Lease>,
    state: Arc<ActiveState>,
}

struct ActiveState {
    /// The journal that this server has claimed.
    origin: Origin,
    path: PathBuf,
    member: Arc<Member>,
    lease: Arc<Lease>,
    shipper: Arc<Shipper>,
    ended: AtomicBool,
    /// An operator has requested a switch to another server.
    switch_requested: AtomicBool,
    /// Held during each report, so that the report of the end is the last one.
    reporting: Mutex<(), REPORTING>,
    /// The last renewal of the lease failed.
    is_failing: AtomicBool,
}

impl Active {
    /// Starts to renew the lease. This server has claimed the journal `origin`, and its binlog is in `path`.
    pub fn begin(
        member: Arc<Member>,
        shipper: Arc<Shipper>,
        lease: Arc<Lease>,
        storage: Arc<dyn Storage>,
        path: PathBuf,
        origin: Origin,
    ) -> io::Result<Active> {
        let state = ActiveState {
            origin,
            path,
            member,
            lease: lease.clone(),
            shipper,
            ended: AtomicBool::new(false),
            switch_requested: AtomicBool::new(false),
            reporting: Mutex::new(()),
            is_failing: AtomicBool::new(false),
        };
        let active = Active { storage, lease, state: Arc::new(state) };
        active.keep_lease()?;
        Ok(active)
    }

    pub fn epoch(&self) -> Epoch {
        self.state.origin.epoch
    }

    pub fn board(&self) -> &Arc<RoleBoard> {
        &self.state.member.board
    }

    /// Starts the threads that renew the lease, one for each connection, because a connection may hang.
    fn keep_lease(&self) -> io::Result<()> {
        // A later change of the wall clock has no effect.
        let (start, anchor) = (self.board().queue_time(), Instant::now());
        for way in 0..self.state.member.log.ways() {
            let state = self.state.clone();
            spawn("journal-lease", move || state.renew_lease(way, start, anchor))?;
        }
        Ok(())
    }

    /// Starts the other threads. They call `lost` when this server must not reply any more, without any delay, and
    /// `requested` when another server should take over.
    pub fn watch(&self, lost: impl Fn() + Send + 'static, requested: impl Fn() + Send + 'static) -> io::Result<()> {
        let state = self.state.clone();
        spawn("journal-watch", move || {
            let mut is_reported = false;
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
                if state.switch_requested.load(Ordering::Acquire) && !std::mem::replace(&mut is_reported, true) {
                    requested();
                }
                std::thread::sleep(WATCH);
            }
        })?;
        let state = self.state.clone();
        spawn("journal-purge", move || state.keep_small())
    }

    /// Releases the journal after the server has stopped, so that another server may take over immediately.
    pub fn release(&self) -> io::Result<()> {
        let ActiveState { origin, path, member, shipper, ended, reporting, .. } = &*self.state;
        let released = shipper.release();
        ended.store(true, Ordering::Release);
        released?;
        let (done, last) = shipper.last();
        let _reporting = reporting.lock();
        member.report("ended", done);
        mirror::save_end(path, done, Origin { last, ..*origin }, shipper.created())
    }
}

/// The entry up to which entries were merged, and the number of bytes written by then.
struct Merging {
    end: Seq,
    bytes: u64,
}

impl ActiveState {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Renews the lease periodically over one connection. The queue's time was `start` at the time `anchor`.
    fn renew_lease(&self, way: usize, start: u64, anchor: Instant) {
        let ActiveState { origin, member, lease, is_failing, .. } = self;
        while !self.has_ended() && !lease.is_over() {
            let sent = Moment::now();
            match member.log.renew(way, origin.epoch, start + anchor.elapsed().as_millis() as u64) {
                Ok(other) => {
                    lease.extend(sent + LEASE);
                    self.switch_requested
                        .store(!other.is_empty() && other != member.name.as_bytes(), Ordering::Release);
                    if is_failing.swap(false, Ordering::AcqRel) {
                        log::info!("journal: lease renewed");
                    }
                }
                Err(_) if self.has_ended() => return,
                Err(Fail::Fenced) => {
                    log::error!("journal: lease lost: another server has taken over");
                    lease.end();
                }
                Err(fail) => {
                    member.board.note(|figures| figures.failed_renewals += 1);
                    if !is_failing.swap(true, Ordering::AcqRel) {
                        log::warn!("journal: cannot renew the lease: {fail}; trying again");
                    }
                }
            }
            std::thread::sleep(RENEWAL.saturating_sub(Moment::now().since(sent)));
        }
    }

    /// Saves the position. After a crash, this server can then detect a journal that was restored from a backup.
    fn save_progress(&self, end: Seq, last: Option<(u64, u64)>) {
        if let Err(error) = mirror::save_progress(&self.path, end, Origin { last, ..self.origin }) {
            if !is_no_space(&error) {
                self.shipper.give_up(&error);
            }
        }
    }

    /// Merges the small entries after `merged`, if there are enough of them.
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
            // The later entries may still be checked by their writers.
            entries.retain(|(seq, _)| *seq <= end);
            for run in merge(&entries, self.origin.epoch, writer) {
                self.member.log.merge(self.origin.epoch, &run)?;
            }
            *merged = Merging { end: entries.last().map_or(end, |(seq, _)| *seq), bytes };
        }
        Ok(())
    }

    /// The thread that reports the position, and keeps the shared log small.
    fn keep_small(&self) {
        // The first entry that was not purged, and the entry in the saved position, with its time.
        let (mut purged, mut saved) = (0, (0, Instant::now()));
        let mut merged = Merging { end: self.shipper.last().0, bytes: 0 };
        let (mut compacted, mut is_failing) = (Instant::now(), false);
        while !self.has_ended() {
            std::thread::sleep(SAVE / 4);
            let (end, last) = self.shipper.last();
            {
                let _reporting = self.reporting.lock();
                if self.has_ended() {
                    return;
                }
                self.member.report("active", end);
                if saved.0 != end && saved.1.elapsed() >= SAVE {
                    self.save_progress(end, last);
                    saved = (end, Instant::now());
                }
            }
            let oldest = self.shipper.oldest_needed();
            if oldest > purged && self.member.log.purge(oldest).is_ok() {
                purged = oldest;
            }
            // A failed merge is tried again later.
            let _ = self.merge(&mut merged);
            let Ok(space) = self.member.query_space() else { continue };
            let is_tight = space.used > space.quota / 2;
            if compacted.elapsed() < if is_tight { SAVE } else { COMPACTION } {
                continue;
            }
            compacted = Instant::now();
            match self.member.log.compact() {
                Ok(()) => is_failing = false,
                Err(error) if !std::mem::replace(&mut is_failing, true) => {
                    log::warn!("journal: cannot compact or defragment etcd: {error}");
                }
                Err(_) => {}
            }
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // Boxed, because each instance of the generic code would add much to the program.
    let run: Box<dyn FnOnce() + Send> = Box::new(run);
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
