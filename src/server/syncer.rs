//! The log in the server: replies that wait for it, and the thread that looks after it.
//!
//! Owns the holding back of replies: one that promises durability stays in its connection's output until the log is safe up
//! to the records that it depends on. One write (and with `-f0` one sync) at the end of a round of a pool thread serves all
//! connections of that round; on a slow disk the syncer thread does it, so that commands which need no disk are answered
//! meanwhile. Must not know the format of the log.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::delivery::Outlet;
use super::hub::Hub;
use crate::binlog::{Keeper, Promised, SyncMode};
use crate::protocol::Output;

/// How often a failing or full disk is tried.
const RETRY: Duration = Duration::from_millis(250);

/// The least time between two rounds of work that is not urgent, so that it is done in portions and others get their turn.
const PORTION: Duration = Duration::from_millis(1);

/// How long may stay unsynced what no reply depends on.
const UNHURRIED: Duration = Duration::from_millis(50);

/// A connection whose replies wait.
struct Hold {
    position: u64,
    /// A job was put: that cannot be promised while the disk fails, while other replies then go out with a lesser promise.
    put: bool,
    outlet: Arc<Outlet>,
}

/// See the module's page.
pub struct Log {
    keeper: Keeper,
    /// In the order of their positions.
    holds: Mutex<VecDeque<Hold>>,
    /// The position behind all that was appended, as of the last turn.
    appended: AtomicU64,
    /// The one up to which somebody has written, or asked for it.
    committed: AtomicU64,
    /// Bytes that new jobs could take after the last turn.
    space: AtomicU64,
    tidy: AtomicBool,
    bell: Bell,
}

/// What the syncer thread is asked to do.
#[derive(Clone, Copy, Debug, Default)]
struct Wishes {
    sync_at: Option<Instant>,
    tidy: bool,
    stop: bool,
}

#[derive(Default)]
struct Bell {
    wishes: Mutex<Wishes>,
    rung: Condvar,
    /// A sync is asked for already; for a look without the lock.
    armed: AtomicBool,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.debug_struct("Log").field("safe", &self.keeper.safe()).finish_non_exhaustive()
    }
}

impl Log {
    /// Of a log that was just opened.
    pub fn new(keeper: Keeper) -> Log {
        Log {
            keeper,
            holds: Mutex::default(),
            appended: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            space: AtomicU64::new(0),
            tidy: AtomicBool::new(true),
            bell: Bell::default(),
        }
    }

    /// After a turn, with the engine locked: how far the log goes, how many bytes new jobs could take, and whether there is
    /// work beside writing.
    pub fn appended(&self, position: u64, space: u64, tidy: bool) {
        self.appended.store(position, Ordering::Release);
        self.space.store(space, Ordering::Relaxed);
        if tidy {
            self.tidy.store(true, Ordering::Relaxed);
        }
    }

    /// Makes space for records of so many bytes, if the syncer thread has not kept up.
    pub fn provide(&self, hub: &Hub, bytes: u64) {
        if bytes > self.space.load(Ordering::Relaxed) {
            self.keeper.provide(hub, bytes);
        }
    }

    /// Whether the replies of commands that moved the promises from `before` to `after` must wait; if so, `outlet` is told
    /// when they need no longer. With the engine locked.
    pub fn must_hold(&self, before: Promised, after: Promised) -> bool {
        after.any != before.any
            && after.any > self.keeper.safe()
            && (after.puts > before.puts || !self.keeper.is_failing())
    }

    /// Has `outlet` told when. With the engine still locked, and after the outlet knows that it is held: it may be told at
    /// once, by whoever has just seen the disk fail.
    pub fn hold(&self, before: Promised, after: Promised, outlet: &Arc<Outlet>) {
        let hold = Hold { position: after.any, put: after.puts > before.puts, outlet: outlet.clone() };
        self.holds.lock().push_back(hold);
    }

    /// Brings what was appended to the disk, or has it brought, and lets go of the replies that are safe.
    pub fn commit(&self, hub: &Hub, spare: &mut Output) {
        let appended = self.appended.load(Ordering::Acquire);
        if appended > self.committed.load(Ordering::Acquire) {
            self.committed.fetch_max(appended, Ordering::AcqRel);
            match self.keeper.mode() {
                // What nobody waits for, such as that a job was reserved, is synced with what comes next.
                SyncMode::Always if self.holds.lock().is_empty() => {
                    if !self.keeper.is_slow() {
                        self.keeper.write(hub);
                    }
                    self.bell.sync_by(Instant::now() + UNHURRIED);
                }
                SyncMode::Always if self.keeper.is_slow() => self.bell.sync_by(Instant::now()),
                SyncMode::Always => {
                    let _ = self.keeper.write(hub) && self.keeper.sync(hub);
                }
                SyncMode::Every(_) | SyncMode::Never => {
                    self.keeper.write(hub);
                }
            }
            // For the sync, if one is owed, and for a look whether the log is still there.
            if !self.bell.armed.load(Ordering::Acquire) {
                let within = match self.keeper.mode() {
                    SyncMode::Every(millis) => Duration::from_millis(millis),
                    SyncMode::Always | SyncMode::Never => UNHURRIED,
                };
                self.bell.sync_by(Instant::now() + within);
            }
        }
        self.release(spare);
        if self.tidy.swap(false, Ordering::Relaxed) || self.keeper.is_failing() {
            self.bell.tidy();
        }
    }

    /// Lets go of the replies that need wait no longer.
    fn release(&self, spare: &mut Output) {
        let mut free;
        {
            let mut holds = self.holds.lock();
            if holds.is_empty() {
                return;
            }
            free = Vec::with_capacity(holds.len());
            let safe = self.keeper.safe();
            while holds.front().is_some_and(|hold| hold.position <= safe) {
                free.extend(holds.pop_front().map(|hold| hold.outlet));
            }
            if self.keeper.is_failing() {
                // What was done is true as long as the server runs, and durable when the disk is back; only a new job must
                // not be acknowledged before it is.
                let (keep, go) = std::mem::take(&mut *holds).into_iter().partition(|hold| hold.put);
                let go: VecDeque<Hold> = go;
                *holds = keep;
                free.extend(go.into_iter().map(|hold| hold.outlet));
            }
        }
        free.into_iter().for_each(|outlet| outlet.release(spare));
    }

    /// Has the syncer thread write and sync everything, and end.
    pub fn stop(&self) {
        self.bell.wishes.lock().stop = true;
        self.bell.rung.notify_one();
    }
}

impl Bell {
    fn sync_by(&self, at: Instant) {
        self.armed.store(true, Ordering::Release);
        let mut wishes = self.wishes.lock();
        if wishes.sync_at.is_none_or(|other| at < other) {
            wishes.sync_at = Some(at);
            self.rung.notify_one();
        }
    }

    fn tidy(&self) {
        let mut wishes = self.wishes.lock();
        if !std::mem::replace(&mut wishes.tidy, true) {
            self.rung.notify_one();
        }
    }

    /// Waits until there is something to do, and takes it; `retry`: the disk must be tried again soon.
    fn wait(&self, retry: bool) -> Wishes {
        let mut wishes = self.wishes.lock();
        loop {
            let now = Instant::now();
            let due = wishes.sync_at.is_some_and(|at| at <= now);
            if due || wishes.tidy || wishes.stop {
                let taken = Wishes { sync_at: wishes.sync_at.filter(|_| due), ..*wishes };
                wishes.tidy = false;
                if due {
                    wishes.sync_at = None;
                    self.armed.store(false, Ordering::Release);
                }
                return taken;
            }
            if retry {
                self.rung.wait_for(&mut wishes, RETRY);
                wishes.tidy = true;
            } else if let Some(at) = wishes.sync_at {
                self.rung.wait_until(&mut wishes, at);
            } else {
                self.rung.wait(&mut wishes);
            }
        }
    }
}

/// The syncer thread: runs until [`Log::stop`].
pub fn run(hub: &Hub, log: &Log) {
    let mut spare = Output::new();
    let mut tidied = Instant::now();
    loop {
        let wishes = log.bell.wait(log.keeper.is_failing() || log.keeper.is_full());
        if log.keeper.is_failing() && !wishes.stop {
            std::thread::sleep(RETRY);
        }
        if wishes.stop {
            log.keeper.close(hub);
            return log.release(&mut spare);
        }
        if wishes.sync_at.is_some() {
            let _ = log.keeper.write(hub) && log.keeper.sync(hub);
            log.keeper.check(hub);
            log.release(&mut spare);
        }
        let more = if tidied.elapsed() < RETRY {
            log.keeper.tidy_sparingly(hub)
        } else {
            tidied = Instant::now();
            log.keeper.tidy(hub)
        };
        log.keeper.write(hub);
        if log.keeper.is_unsynced() {
            match log.keeper.mode() {
                SyncMode::Every(millis) => log.bell.sync_by(Instant::now() + Duration::from_millis(millis)),
                SyncMode::Always => {
                    log.keeper.sync(hub);
                }
                SyncMode::Never => {}
            }
        }
        log.release(&mut spare);
        std::thread::sleep(PORTION);
        if more {
            log.bell.tidy();
        }
    }
}
