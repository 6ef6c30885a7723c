//! The background threads of the active server: lease renewal, status reports, and cleanup of the shared log (removal
//! of old entries, merging, compaction). Must not decide when a server becomes active.
//! Enforces promise P33 of beanpole-promises(7).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, sync::Arc};

use super::entry::{merge, RUN};
use super::mirror::{self, Origin, Position};
use super::shared_log::{Epoch, Fail, Member, Seq};
use super::shipping::{ShippedFolder, Shipper, LEASE};
use crate::binlog::Storage;
use crate::shared::lock_order::{Mutex, REPORTING};
use crate::shared::role::{Lease, Moment, RoleBoard};

/// The interval for saving the position, and for compacting etcd while more than half of etcd's quota is used.
pub const SAVE: Duration = Duration::from_secs(2);
const RENEWAL: Duration = Duration::from_millis(300);
const WATCH: Duration = Duration::from_millis(20);
/// The interval for compacting etcd while at most half of its quota is used.
const COMPACTION: Duration = Duration::from_secs(300);
/// The minimum number of entries that are worth a request to etcd.
const MIN_RUN: Seq = 8;

pub struct Active {
    /// The background threads have no reference to the storage, so dropping the `Active` unlocks the directory.
    pub storage: Arc<dyn Storage>,
    pub lease: Arc<Lease>,
    state: Arc<ActiveState>,
}

struct ActiveState {
    origin: Origin,
    member: Arc<Member>,
    shipper: Arc<Shipper>,
    ended: AtomicBool,
    switch_requested: AtomicBool,
    /// Locked during each status report, so that no report follows the final status "ended".
    reporting: Mutex<(), REPORTING>,
    is_failing: AtomicBool,
}

impl Active {
    pub fn begin(member: Arc<Member>, storage: Arc<ShippedFolder>, origin: Origin) -> io::Result<Active> {
        let (ended, switch_requested, is_failing) = Default::default();
        let (lease, shipper, reporting) = (storage.shipper.lease.clone(), storage.shipper.clone(), Mutex::new(()));
        let state = ActiveState { origin, member, shipper, ended, switch_requested, reporting, is_failing };
        let active = Active { storage, lease, state: Arc::new(state) };
        // Each connection has its own thread, so that a hanging connection does not block renewals over the others.
        for connection in 0..active.state.member.log.renewal_connections() {
            let state = active.state.clone();
            spawn("journal-lease", move || state.renew_lease(connection))?;
        }
        Ok(active)
    }

    pub fn epoch(&self) -> Epoch {
        self.state.origin.epoch
    }

    pub fn board(&self) -> &Arc<RoleBoard> {
        &self.state.member.board
    }

    /// Starts the cleanup. Calls `lost` when the lease ends, and `requested` when an operator selects another server.
    pub fn watch(&self, lost: impl Fn() + Send + 'static, requested: impl Fn() + Send + 'static) -> io::Result<()> {
        let state = self.state.clone();
        spawn("journal-watch", move || {
            let mut is_reported = false;
            let mut last = Moment::now();
            while !state.has_ended() {
                // Otherwise, a stop between the two checks would end the lease without a message.
                let is_over = state.shipper.lease.is_over();
                let gap = Moment::now().since(last);
                last = last + gap;
                if gap > LEASE {
                    log::warn!("journal: this machine or process was stopped for {:.1} s", gap.as_secs_f64());
                }
                if is_over {
                    let _reporting = state.reporting.lock();
                    (!state.has_ended()).then(|| state.save());
                    return lost();
                }
                if state.switch_requested.load(Ordering::Acquire) && !std::mem::replace(&mut is_reported, true) {
                    requested();
                }
                std::thread::sleep(WATCH);
            }
        })?;
        // Entries that are written before the thread runs must be merged too.
        let (state, merged) = (self.state.clone(), self.state.shipper.last().0);
        spawn("journal-purge", move || state.keep_small(merged))
    }

    pub fn release(&self) -> io::Result<()> {
        let ActiveState { origin, member, shipper, ended, reporting, .. } = &*self.state;
        let released = shipper.release();
        ended.store(true, Ordering::Release);
        let _reporting = reporting.lock();
        released.inspect_err(|_| self.state.save())?;
        member.report("ended", shipper.last().0);
        if !mirror::is_marked(&shipper.path) {
            return Ok(());
        }
        let (done, last) = shipper.copied();
        // If the disk has no space for the position, the copy stays marked and is made again.
        mirror::save_end(&shipper.path, done, Origin { last, ..*origin }, shipper.files()).or_else(mirror::allow_full)
    }
}

/// A server that fails between its claim and its start must not renew the lease.
impl Drop for Active {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Release);
    }
}

impl ActiveState {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn renew_lease(&self, connection: usize) {
        let (ActiveState { origin, member, is_failing, .. }, lease) = (self, &self.shipper.lease);
        while !self.has_ended() && !lease.is_over() {
            let sent = Moment::now();
            match member.log.renew(connection, origin.epoch, member.board.queue_time()) {
                Ok(node) => {
                    lease.extend(sent + LEASE);
                    self.switch_requested.store(!node.is_empty() && node != member.name.as_bytes(), Ordering::Release);
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

    /// `merged` is the last entry that was merged or skipped.
    fn merge(&self, merged: &mut Seq) -> Result<(), Fail> {
        let (end, Some((writer, _))) = self.shipper.last() else { return Ok(()) };
        // Entries after `end` must not be merged yet, because appending threads still look for them in the log.
        while *merged + RUN <= end {
            let first = *merged + 1;
            let last = self.shipper.next_unmerged(*merged).map_or(Seq::MAX, |next| next - 1).min(*merged + RUN);
            // After an error, the entries stay separate, because another attempt might fail for the same reason.
            *merged = last.max(first);
            if last + 1 >= first + MIN_RUN {
                let count = (last + 1 - first) as usize;
                let (mut entries, _) = self.member.log.read(first, count).map_err(Fail::Unknown)?;
                entries.retain(|(seq, _)| *seq <= last);
                for run in merge(&entries, self.origin.epoch, writer) {
                    self.member.log.merge(self.origin.epoch, &run)?;
                }
            }
        }
        Ok(())
    }

    /// Saves the position, which later reveals whether the journal was restored from an older backup.
    fn save(&self) {
        if !mirror::is_marked(&self.shipper.path) {
            return;
        }
        let (done, last) = self.shipper.copied();
        let origin = Origin { last, ..self.origin };
        let _ = self.shipper.local(Position { done, origin, ..Position::default() }.write(&self.shipper.path));
    }

    fn keep_small(&self, mut merged: Seq) {
        // `purged` is the first entry that still exists. `saved` is the last saved position and the time of saving.
        let (mut purged, mut saved) = (0, (0, Instant::now()));
        let (mut compacted, mut is_failing) = (Instant::now(), false);
        while !self.has_ended() {
            std::thread::sleep(SAVE / 4);
            let (end, _) = self.shipper.last();
            {
                let _reporting = self.reporting.lock();
                if self.has_ended() {
                    return;
                }
                self.member.report("active", end);
                if saved.0 != end && saved.1.elapsed() >= SAVE {
                    self.save();
                    saved = (end, Instant::now());
                }
            }
            self.shipper.complete_checksums();
            let oldest = self.shipper.oldest_needed();
            if oldest > purged && self.member.log.purge(oldest).is_ok() {
                (purged, merged) = (oldest, merged.max(oldest - 1));
            }
            let _ = self.merge(&mut merged);
            let is_tight = self.member.query_space().is_ok_and(|space| space.used > space.quota / 2);
            if compacted.elapsed() < if is_tight { SAVE } else { COMPACTION } {
                continue;
            }
            compacted = Instant::now();
            let failed = self.member.log.compact().err();
            if let (Some(error), false) = (&failed, is_failing) {
                log::warn!("journal: cannot compact or defragment etcd: {error}");
            }
            is_failing = failed.is_some();
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // Boxed, because each instance of the generic code would increase the size of the program.
    let run: Box<dyn FnOnce() + Send> = Box::new(run);
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
