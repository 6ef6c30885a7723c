//! Space in the log: the commands that wait for it, and when it is made.
//!
//! Owns the list of connections whose next command needs more space than the log has on the disk, first come first
//! served, and what the thread that makes segments has to do next. Such a connection is not read, and its pool thread
//! serves the others, so that a disk which takes long to make a file holds up nobody else. Must not know the commands,
//! nor how space is counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::delivery::Outbox;
use crate::binlog::Journal;
use crate::shared::atomic::{AtomicU64, Ordering};

/// How often a failing or full disk is tried.
pub const RETRY: Duration = Duration::from_millis(250);

/// How often the thread checks that all segments are still in place.
pub const CHECK: Duration = Duration::from_millis(500);

/// How long space is kept for a connection that waited for it: it may be busy with a client that does not read.
const KEPT: Duration = Duration::from_millis(100);

/// How often one command waits, if what was made for it is used up by work that cannot wait, such as compaction; then
/// it is carried out as it is, and refused if there is no space.
const WAITS: u8 = 64;

/// What a connection waits for, or has waited for and not used yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claim {
    bytes: u64,
    /// How often it has waited for the same command.
    waits: u8,
}

#[derive(Default)]
pub struct Space {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes kept for connections that were told to go on and have not done so. Changed with `state` locked.
    kept: AtomicU64,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Until then, nobody else is told to go on.
    kept_until: Option<Instant>,
    maintain: bool,
    stop: bool,
}

struct Waiting {
    bytes: u64,
    outbox: Arc<Outbox>,
}

/// What the thread has to do next.
pub enum SpaceTask {
    /// Make space of so many bytes for so many connections.
    Make(u64, usize),
    Maintain,
    Stop,
}

impl Space {
    /// Whether a command that takes so many bytes in the log may be carried out; if not, [`Space::wait`]. `first`: it
    /// is the first of its turn. With the engine locked.
    pub fn admits(&self, claim: &mut Claim, journal: &Journal, bytes: u64, first: bool) -> bool {
        let waited = claim.waits > 0;
        let kept = if waited { 0 } else { self.kept.load(Ordering::Relaxed) };
        // Who makes work waits for compaction, if it has not kept up, but not twice.
        let lacks = journal.is_short(bytes + kept) || (first && !waited && journal.is_behind());
        if !waited && !lacks {
            return true;
        }
        self.give_back(claim.bytes);
        let admits = !lacks || claim.waits == WAITS;
        *claim = Claim { bytes: 0, waits: if admits { 0 } else { claim.waits + 1 } };
        admits
    }

    /// Has `outbox` wait until there is space for so many bytes. With the engine locked.
    pub fn wait(&self, claim: &mut Claim, bytes: u64, outbox: &Arc<Outbox>) {
        // First the outbox: it may be told to go on as soon as it stands in the queue.
        outbox.await_space();
        *claim = Claim { bytes, waits: claim.waits.max(1) };
        self.state.lock().waiting.push_back(Waiting { bytes, outbox: outbox.clone() });
        self.changed.notify_one();
    }

    /// The connection of `outbox` is gone.
    pub fn forget(&self, claim: Claim, outbox: &Arc<Outbox>) {
        if claim.bytes > 0 {
            let mut state = self.state.lock();
            let count = state.waiting.len();
            state.waiting.retain(|waiting| !Arc::ptr_eq(&waiting.outbox, outbox));
            let still_waits = state.waiting.len() < count;
            drop(state);
            if !still_waits {
                self.give_back(claim.bytes);
            }
        }
    }

    /// So many of the bytes that are kept need not be any longer.
    fn give_back(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let state = self.state.lock();
        let kept = self.kept.load(Ordering::Relaxed).saturating_sub(bytes);
        self.kept.store(kept, Ordering::Relaxed);
        if kept == 0 && !state.waiting.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Whether some connection waits for space in the log.
    #[cfg(any(test, feature = "test-support"))]
    pub fn is_awaited(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    /// There is work that is not urgent.
    pub fn maintain(&self) {
        if !std::mem::replace(&mut self.state.lock().maintain, true) {
            self.changed.notify_one();
        }
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    /// Tells the first `count` of those who wait to go on. They find out by themselves whether there is space; if the
    /// disk is full or fails, their commands are refused.
    pub fn go_on(&self, count: usize) {
        let mut state = self.state.lock();
        let count = count.min(state.waiting.len());
        let some: Vec<Waiting> = state.waiting.drain(..count).collect();
        if !some.is_empty() {
            self.kept.fetch_add(some.iter().map(|waiting| waiting.bytes).sum(), Ordering::Relaxed);
            state.kept_until = Some(Instant::now() + KEPT);
        }
        drop(state);
        some.into_iter().for_each(|waiting| waiting.outbox.has_space());
    }

    /// Waits until there is something to do; `retry`: the disk must be tried again soon. A portion of those who wait is
    /// as much as fits into a segment, so that nobody waits until there is space for all of them.
    pub fn next(&self, retry: bool, portion: u64) -> SpaceTask {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return SpaceTask::Stop;
            }
            if self.is_urgent(&state) {
                self.kept.store(0, Ordering::Relaxed);
                return next_portion(&state, portion);
            }
            if std::mem::take(&mut state.maintain) {
                return SpaceTask::Maintain;
            }
            match state.kept_until.filter(|_| !state.waiting.is_empty()) {
                Some(until) => drop(self.changed.wait_until(&mut state, until)),
                None => {
                    let pause = if retry { RETRY } else { CHECK };
                    state.maintain |= self.changed.wait_for(&mut state, pause).timed_out();
                }
            }
        }
    }

    /// Returns what there is to do, for a server without threads, where nobody keeps space from others.
    #[cfg(any(test, feature = "test-support"))]
    pub fn next_at_once(&self, portion: u64) -> SpaceTask {
        let state = self.state.lock();
        self.kept.store(0, Ordering::Relaxed);
        if state.waiting.is_empty() {
            SpaceTask::Maintain
        } else {
            next_portion(&state, portion)
        }
    }

    /// Rests, unless something urgent comes.
    pub fn rest(&self, length: Duration) {
        let end = Instant::now() + length;
        let mut state = self.state.lock();
        while !state.stop && !self.is_urgent(&state) && !self.changed.wait_until(&mut state, end).timed_out() {}
    }

    /// Whether space must be made now: somebody waits, and nobody has yet to use what is kept.
    fn is_urgent(&self, state: &State) -> bool {
        let is_over = || state.kept_until.is_none_or(|until| until <= Instant::now());
        !state.waiting.is_empty() && (self.kept.load(Ordering::Relaxed) == 0 || is_over())
    }
}

fn next_portion(state: &State, most: u64) -> SpaceTask {
    let (mut bytes, mut count) = (0, 0);
    for waiting in &state.waiting {
        if count > 0 && bytes + waiting.bytes > most {
            break;
        }
        bytes += waiting.bytes;
        count += 1;
    }
    SpaceTask::Make(bytes, count)
}
