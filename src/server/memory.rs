//! The server's memory account. The engine counts its own memory, and connections charge unprocessed input and unread
//! output. The sum is at most `--max-memory`.
//! Enforces promise P21 of beanpole-promises(7).

use crate::shared::atomic::{AtomicBool, AtomicU64, Ordering};

pub use crate::settings::config::CONNECTION_COST;

/// The reserve for replies and for commands that free memory is 1/`KEPT` of the limit, at most `MAX_KEPT` bytes.
const KEPT: u64 = 16;
const MAX_KEPT: u64 = 64 << 20;

/// Buffers, excluding incomplete bodies, can use 1/`BUFFERS` of the limit.
const BUFFERS: u64 = 4;

/// One connection can use 1/`SHARE` of the remaining buffer space, so that some space is left for others.
const SHARE: u64 = 8;

/// This many bytes can be read even if no memory is free, because a command that frees memory must be read first.
pub const MIN_READ: usize = 4 * 1024;

/// After each growth by this many bytes, a trial allocation checks for system limits that the server does not know.
const TRIAL: u64 = 2 << 20;

/// After the system runs out of memory, no more is used until this many bytes are freed or a trial allocation succeeds.
const MIN_TRIAL: u64 = 128 * 1024;

/// Freed bytes are returned to the system if they exceed both this number and half of the peak.
const MIN_FREED: u64 = 8 << 20;

/// If more bytes than this are freed, they are always returned: a later, larger return would block others for too long.
const MAX_FREED: u64 = 32 << 20;

/// The process can exceed the limit by this many bytes, which the program, its threads, and fragmentation need.
const BEYOND: u64 = 24 << 20;

/// The growth of the account, in bytes, between two checks of the process size.
const RESIDENT_STEP: u64 = 4 << 20;

/// While the system lacks memory, only one of this many turns checks whether memory is available again.
const TURNS_BETWEEN: u64 = 64;

/// Memory is short if new requests can use fewer bytes than this.
const MIN_ROOM: u64 = 128 * 1024;

/// While memory counts as exhausted, a new connection is accepted only if the system can allocate this many bytes.
const CONNECTION_TRIAL: usize = 1 << 20;

/// A growing table doubles its size, so the system must be able to provide `SPARE` bytes, plus a quarter of the account
/// or `MAX_SPARE` bytes, whichever is less.
const SPARE: u64 = 4 << 20;
const MAX_SPARE: u64 = 256 << 20;

#[derive(Default)]
pub struct Memory {
    max: u64,
    /// The engine's memory in bytes at the end of the last turn.
    engine: AtomicU64,
    /// Bytes of `engine` that only unsent replies reference.
    shared: AtomicU64,
    /// Excludes the bytes of incomplete bodies.
    buffers: AtomicU64,
    uploads: AtomicU64,
    /// Bytes of `buffers` that belong to dropped or closed connections.
    leaving: AtomicU64,
    /// The peak of the account since the allocator last returned memory.
    peak: AtomicU64,
    /// The system is known to have enough memory for the account to grow to this size.
    tried: AtomicU64,
    exhausted: AtomicBool,
    turns: AtomicU64,
    /// The accounted memory, in bytes, at which the resident size must be checked.
    check_at: AtomicU64,
    too_large: AtomicBool,
}

impl Memory {
    pub fn new(max: u64) -> Memory {
        Memory { max, ..Memory::default() }
    }

    pub fn kept(max: u64) -> u64 {
        (max / KEPT).min(MAX_KEPT)
    }

    pub fn set_engine(&self, (bytes, shared): (u64, u64)) {
        self.engine.store(bytes, Ordering::Relaxed);
        self.shared.store(shared, Ordering::Relaxed);
    }

    pub fn charge(&self, before: u64, after: u64) {
        change(&self.buffers, before, after);
    }

    pub fn leave(&self, before: u64, after: u64) {
        change(&self.leaving, before, after);
    }

    pub fn charge_upload(&self, before: u64, after: u64) {
        change(&self.uploads, before, after);
    }

    pub fn buffers(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed) + self.uploads.load(Ordering::Relaxed)
    }

    fn taken(&self) -> u64 {
        self.engine.load(Ordering::Relaxed) + self.buffers()
    }

    /// Excludes the bytes of dropped or closed connections.
    pub fn waiting(&self) -> u64 {
        let waiting = self.buffers.load(Ordering::Relaxed) + self.shared.load(Ordering::Relaxed);
        waiting.saturating_sub(self.leaving.load(Ordering::Relaxed))
    }

    pub fn room(&self) -> u64 {
        if self.is_exhausted() {
            return 0;
        }
        (self.max - Memory::kept(self.max)).saturating_sub(self.taken())
    }

    pub fn allowance(&self) -> usize {
        if self.is_exhausted() {
            return 0;
        }
        let left = (self.max / BUFFERS).saturating_sub(self.waiting()).min(self.max.saturating_sub(self.taken()));
        usize::try_from(left / SHARE).unwrap_or(usize::MAX)
    }

    pub fn is_full(&self) -> bool {
        self.taken() >= self.max
    }

    pub fn is_tight(&self) -> bool {
        let kept = Memory::kept(self.max);
        let taken = self.taken().saturating_sub(self.leaving.load(Ordering::Relaxed));
        self.has_droppable() && (self.is_crowded() || taken + MIN_ROOM > self.max - kept || self.is_exhausted())
    }

    pub fn is_crowded(&self) -> bool {
        self.waiting() > self.max / BUFFERS
    }

    pub fn exceeds_buffers(&self) -> bool {
        self.waiting() + self.uploads.load(Ordering::Relaxed) > self.max / BUFFERS
    }

    pub fn has_droppable(&self) -> bool {
        self.waiting() + self.uploads.load(Ordering::Relaxed) > Memory::kept(self.max) / 2
    }

    pub fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed) || self.too_large.load(Ordering::Relaxed)
    }

    pub fn needs_resident(&self) -> bool {
        let taken = self.taken();
        let at = self.check_at.load(Ordering::Relaxed);
        if taken + RESIDENT_STEP < at {
            // Check again soon, because reusing freed memory can fragment the heap.
            self.check_at.store(taken + RESIDENT_STEP, Ordering::Relaxed);
        }
        let is_retried = self.too_large.load(Ordering::Relaxed) && self.is_due();
        taken >= at || is_retried
    }

    pub fn set_resident(&self, bytes: u64) {
        self.too_large.store(bytes > self.max.saturating_add(BEYOND), Ordering::Relaxed);
        self.check_at.store(self.taken() + RESIDENT_STEP, Ordering::Relaxed);
    }

    fn is_due(&self) -> bool {
        self.turns.fetch_add(1, Ordering::Relaxed) % TURNS_BETWEEN == 0
    }

    fn freed(&self) -> u64 {
        let taken = self.taken();
        let peak = self.peak.load(Ordering::Relaxed);
        if taken > peak {
            self.peak.store(taken, Ordering::Relaxed);
        }
        peak.saturating_sub(taken)
    }

    pub fn has_freed_much(&self) -> bool {
        let freed = self.freed();
        self.must_give_back() || freed > MIN_FREED && freed > self.taken() || self.too_large.load(Ordering::Relaxed)
    }

    /// `true` if clients have freed so much memory that it should be returned soon, or if the process is too large.
    pub fn must_give_back(&self) -> bool {
        let freed = self.freed();
        freed > MAX_FREED || freed > MIN_TRIAL && self.too_large.load(Ordering::Relaxed)
    }

    pub fn gave_back(&self) {
        self.peak.store(self.taken(), Ordering::Relaxed);
    }

    /// New connections can use the reserve for commands that free memory, because a worker must connect to delete jobs.
    pub fn has_for_connection(&self) -> bool {
        let mut trial: Vec<u8> = Vec::new();
        self.taken() < self.max && (!self.is_exhausted() || trial.try_reserve_exact(CONNECTION_TRIAL).is_ok())
    }

    /// Checks that the process can grow until the next check, with a reserve left. Must not be called concurrently.
    pub fn try_system(&self) {
        let taken = self.taken();
        let tried = self.tried.load(Ordering::Relaxed);
        if taken + MIN_TRIAL < tried {
            self.exhausted.store(false, Ordering::Relaxed);
            return;
        }
        // Other programs may have freed memory, so check again, but only from time to time.
        if self.exhausted.load(Ordering::Relaxed) && !self.is_due() {
            return;
        }
        let spare = SPARE + (taken / 4).min(MAX_SPARE);
        let mut trial: Vec<u8> = Vec::new();
        let has_more = trial.try_reserve_exact(usize::try_from(spare + TRIAL).unwrap_or(usize::MAX)).is_ok();
        self.exhausted.store(!has_more, Ordering::Relaxed);
        self.tried.store(if has_more { taken + TRIAL } else { taken.max(tried) }, Ordering::Relaxed);
    }
}

fn change(sum: &AtomicU64, before: u64, after: u64) {
    if before != after {
        sum.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_together_stay_within_their_share() {
        let memory = Memory::new(64 << 20);
        let mut sum = 0;
        for _ in 0..800 {
            let mine = memory.allowance() as u64;
            memory.charge(0, mine);
            sum += mine;
        }
        assert!(sum <= 16 << 20 && memory.allowance() < 1024, "{sum} bytes, {} left", memory.allowance());
        assert!(memory.room() > 40 << 20, "memory must remain for other uses");
        memory.charge(sum, 0);
        assert_eq!((memory.buffers(), memory.allowance()), (0, 2 << 20));
    }

    #[test]
    fn the_reserve_is_not_available_to_new_requests() {
        let memory = Memory::new(64 << 20);
        memory.set_engine((61 << 20, 0));
        assert_eq!(memory.room(), 0);
        assert!(memory.allowance() > 0 && !memory.is_tight(), "jobs must not cause dropped clients");
        memory.charge(0, 3 << 20);
        assert!(memory.is_tight());
    }

    #[test]
    fn a_process_that_is_too_large_has_no_free_memory() {
        let memory = Memory::new(64 << 20);
        assert!(memory.needs_resident());
        memory.set_resident(6 << 20);
        memory.set_engine((RESIDENT_STEP - 1, 0));
        assert!(!memory.needs_resident(), "only when the account has grown");
        memory.set_engine((40 << 20, 0));
        assert!(memory.needs_resident() && !memory.has_freed_much());
        memory.set_resident(46 << 20);
        // Most of the memory is freed and allocated again, so the heap may be fragmented.
        memory.set_engine((10 << 20, 0));
        assert!(!memory.needs_resident() && memory.has_freed_much());
        memory.gave_back();
        memory.set_engine((14 << 20, 0));
        assert!(memory.needs_resident(), "although the account was larger before");
        memory.set_resident(89 << 20);
        assert!(memory.is_exhausted() && memory.room() == 0 && memory.allowance() == 0);
        memory.set_engine((13 << 20, 0));
        assert!(memory.has_freed_much(), "a repeated return may help");
        assert!(!memory.must_give_back(), "the account has not grown since memory was given back");
        memory.set_engine((14 << 20, 0));
        assert!(!memory.must_give_back());
        memory.set_engine((13 << 20, 0));
        assert!(memory.must_give_back(), "giving memory back may help now");
        let checks = (0..10 * TURNS_BETWEEN).filter(|_| memory.needs_resident()).count();
        assert_eq!(checks, 10, "another thread may have given memory back");
        memory.set_resident(80 << 20);
        assert!(!memory.is_exhausted() && memory.room() > 0);
    }
}
