//! Connections whose next command waits until the log has space, or until a shared log has stored a large body. While
//! the command waits, the pool thread serves other connections, so a slow disk does not block them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::delivery::Outbox;
use crate::binlog::{Journal, Storage};
use crate::shared::atomic::{AtomicU64, Ordering};
use crate::shared::lock_order::{Condvar, LeafMutex};

/// The interval between attempts to write to a failing or full disk.
pub const RETRY: Duration = Duration::from_millis(250);

/// The interval at which the existence of all segments is checked.
pub const CHECK: Duration = Duration::from_millis(500);
const _: () = assert!(CHECK.as_millis() < 1000, "a removal must be detected within a second");

/// The time for which space stays reserved for connections that waited for it. The time is limited, because a client
/// that does not read replies may never use the space.
const RESERVED_FOR: Duration = Duration::from_millis(100);

/// The maximum number of waits, in case compaction uses up the space. Afterwards, the command is executed or refused.
const WAITS: u8 = 64;

/// The space that a connection waits for or has not used yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceRequest {
    bytes: u64,
    waits: u8,
}

#[derive(Default)]
pub struct Space {
    pub(super) state: LeafMutex<SpaceState>,
    changed: Condvar,
    /// Bytes reserved for resumed connections that have not used them yet. Changed only while `state` is locked.
    pub(super) reserved: AtomicU64,
}

#[derive(Default)]
pub struct SpaceState {
    /// Connections, and the bytes for which they wait.
    pub waiting: VecDeque<(u64, Arc<Outbox>)>,
    /// Bytes that a schedule needs to put a copy of its job.
    requested: u64,
    reserved_until: Option<Instant>,
    maintain: bool,
    stop: bool,
}

pub enum SpaceTask {
    /// The number of bytes of log space to create, and the number of connections that wait for this space.
    Make(u64, usize),
    Maintain,
    Stop,
}

impl Space {
    /// Returns `false` (at most [`WAITS`] times per command) if the caller must call [`Space::wait`]. If compaction is
    /// behind, the `first` command of a batch also waits once. The engine must be locked.
    pub fn admits(&self, request: &mut SpaceRequest, journal: &Journal, bytes: u64, first: bool) -> bool {
        let waited = request.waits > 0;
        let reserved = if waited { 0 } else { self.reserved.load(Ordering::Relaxed) };
        let lacks = journal.is_short(bytes + reserved) || (first && !waited && journal.is_behind());
        if !waited && !lacks {
            return true;
        }
        self.give_back(request.bytes);
        let admits = !lacks || request.waits == WAITS;
        *request = SpaceRequest { bytes: 0, waits: if admits { 0 } else { request.waits + 1 } };
        admits
    }

    /// The engine must be locked.
    pub fn wait(&self, request: &mut SpaceRequest, bytes: u64, outbox: &Arc<Outbox>) {
        // Another thread can resume any outbox in the queue, so update the outbox first.
        outbox.await_space();
        *request = SpaceRequest { bytes, waits: request.waits.max(1) };
        self.state.lock().waiting.push_back((bytes, outbox.clone()));
        self.changed.notify_one();
    }

    pub fn cancel(&self, request: SpaceRequest, outbox: &Arc<Outbox>) {
        if request.bytes > 0 {
            let mut state = self.state.lock();
            let count = state.waiting.len();
            state.waiting.retain(|(_, waiting)| !Arc::ptr_eq(waiting, outbox));
            let is_resumed = state.waiting.len() == count;
            drop(state);
            if is_resumed {
                self.give_back(request.bytes);
            }
        }
    }

    fn give_back(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let state = self.state.lock();
        let reserved = self.reserved.load(Ordering::Relaxed).saturating_sub(bytes);
        self.reserved.store(reserved, Ordering::Relaxed);
        if reserved == 0 && state.wants_space() {
            self.changed.notify_one();
        }
    }

    pub fn request(&self, bytes: u64) {
        self.state.lock().requested = bytes;
        self.changed.notify_one();
    }

    pub fn maintain(&self) {
        if !std::mem::replace(&mut self.state.lock().maintain, true) {
            self.changed.notify_one();
        }
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    /// Lets `count` connections check for space again. If the disk is failing or full, their commands wait no longer.
    pub fn resume(&self, count: usize) {
        let mut state = self.state.lock();
        let count = count.min(state.waiting.len());
        let some: Vec<_> = state.waiting.drain(..count).collect();
        if !some.is_empty() {
            self.reserved.fetch_add(some.iter().map(|(bytes, _)| bytes).sum(), Ordering::Relaxed);
            state.reserved_until = Some(Instant::now() + RESERVED_FOR);
        }
        drop(state);
        some.into_iter().for_each(|(_, outbox)| outbox.has_space());
    }

    /// `retry` shortens the interval between maintenance tasks from [`CHECK`] to [`RETRY`]. `portion` limits the bytes
    /// created at once for several commands.
    pub fn next(&self, retry: bool, portion: u64) -> SpaceTask {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return SpaceTask::Stop;
            }
            if self.is_urgent(&state) {
                self.reserved.store(0, Ordering::Relaxed);
                return next_portion(&mut state, portion);
            }
            if std::mem::take(&mut state.maintain) {
                return SpaceTask::Maintain;
            }
            match state.reserved_until.filter(|_| state.wants_space()) {
                Some(until) => drop(self.changed.wait_until(&mut state, until)),
                None => {
                    let pause = if retry { RETRY } else { CHECK };
                    state.maintain |= self.changed.wait_until(&mut state, Instant::now() + pause);
                }
            }
        }
    }

    pub fn pause(&self, length: Duration) {
        let end = Instant::now() + length;
        let mut state = self.state.lock();
        while !state.stop && !self.is_urgent(&state) && !self.changed.wait_until(&mut state, end) {}
    }

    fn is_urgent(&self, state: &SpaceState) -> bool {
        let is_over = || state.reserved_until.is_none_or(|until| until <= Instant::now());
        state.wants_space() && (self.reserved.load(Ordering::Relaxed) == 0 || is_over())
    }
}

impl SpaceState {
    pub fn wants_space(&self) -> bool {
        self.requested > 0 || !self.waiting.is_empty()
    }
}

pub fn next_portion(state: &mut SpaceState, max_bytes: u64) -> SpaceTask {
    let (mut bytes, mut count) = (std::mem::take(&mut state.requested), 0);
    for (more, _) in &state.waiting {
        if bytes > 0 && bytes + more > max_bytes {
            break;
        }
        bytes += more;
        count += 1;
    }
    SpaceTask::Make(bytes, count)
}

#[derive(Default)]
pub struct Staging {
    state: LeafMutex<StagingState>,
    changed: Condvar,
}

type StagedBody = (Arc<Box<[u8]>>, Arc<Outbox>);

#[derive(Default)]
struct StagingState {
    waiting: VecDeque<StagedBody>,
    stop: bool,
}

impl Staging {
    /// Makes the connection wait until `body` is stored. The engine must be locked.
    pub fn wait(&self, body: Arc<Box<[u8]>>, outbox: &Arc<Outbox>) {
        outbox.await_space();
        self.state.lock().waiting.push_back((body, outbox.clone()));
        self.changed.notify_one();
    }

    pub fn cancel(&self, outbox: &Arc<Outbox>) {
        self.state.lock().waiting.retain(|(_, other)| !Arc::ptr_eq(other, outbox));
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    pub fn run(&self, storage: &dyn Storage) {
        loop {
            let mut state = self.state.lock();
            while state.waiting.is_empty() && !state.stop {
                self.changed.wait(&mut state);
            }
            let Some((body, outbox)) = state.waiting.pop_front().filter(|_| !state.stop) else { return };
            drop(state);
            // If this thread has the only reference, the client has disconnected and the body is no longer needed.
            storage.stage(&body, &|| Arc::strong_count(&body) > 1 && !self.state.lock().stop);
            drop(body);
            outbox.has_space();
        }
    }
}
