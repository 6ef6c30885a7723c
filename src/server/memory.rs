//! The server's memory account: the memory of connections, and how much more is available.
//!
//! Owns the limits. The engine counts its own memory; connections add unprocessed input and unread output. The sum is
//! at most `--max-memory`. Must not know connections: each one asks for itself.
//!
//! Promises: P21.

use crate::shared::atomic::{AtomicBool, AtomicU64, Ordering};

pub use crate::settings::config::CONNECTION_COST;

/// Reciprocal of the share of memory reserved for replies and for commands that free memory, and its maximum.
const KEPT: u64 = 16;
const KEPT_MOST: u64 = 64 << 20;

/// Reciprocal of the share of memory for buffers, not counting bodies that are being received: these only need to fit.
const BUFFERS: u64 = 4;

/// Reciprocal of the share of the remaining buffer space that one connection may take: a few connections can take
/// nearly all of it, but each finds some left.
const SHARE: u64 = 8;

/// Bytes that a connection may always read at a time, since a command that frees memory has to be read first.
pub const LEAST_READ: usize = 4 * 1024;

/// When the account has grown by this much, the server checks whether the system has more memory: the limits of a
/// process are not always known.
const TRIAL: u64 = 2 << 20;

/// After the system ran out, clients must have freed this much before memory is used again.
const LEAST_TRIAL: u64 = 128 * 1024;

/// Freed bytes that are worth an allocator walk through its heaps, if they are half of the peak.
const MUCH: u64 = 8 << 20;

/// Freed bytes that are worth it in any case: a walk that returns more would block other threads for too long.
const MOST: u64 = 32 << 20;

/// Bytes by which the process may exceed the account: the program itself, its threads, and fragmentation. Beyond that
/// there is no room, even if the account has some.
const BEYOND: u64 = 24 << 20;

/// The size of the process is checked when the account has grown by this many bytes.
const RESIDENT_STEP: u64 = 4 << 20;

/// Turns between two attempts while the system is out of memory.
const TURNS_BETWEEN: u64 = 64;

/// Memory is short if less than this is available to new requests.
const LEAST_ROOM: u64 = 128 * 1024;

/// Bytes that must be available for a new connection after an attempt has failed.
const CONNECTION_TRIAL: usize = 1 << 20;

/// Upper limit of the spare memory that must be available as well: a quarter of what is in use, because some tables
/// double.
const SPARE: u64 = 4 << 20;
const SPARE_MOST: u64 = 256 << 20;

#[derive(Debug, Default)]
pub struct Memory {
    max: u64,
    /// Memory held by the engine, as of the last turn.
    engine: AtomicU64,
    /// Bytes of it that only replies still reference.
    shared: AtomicU64,
    /// Memory held by connections, not counting bodies that are being received.
    buffers: AtomicU64,
    /// The received parts of these bodies.
    uploads: AtomicU64,
    /// Bytes of `buffers` whose connections were dropped and which are about to be freed.
    leaving: AtomicU64,
    /// The peak since the allocator last returned free memory.
    peak: AtomicU64,
    /// The system had memory up to this size of the account.
    tried: AtomicU64,
    /// The system is out of memory.
    exhausted: AtomicBool,
    /// Turns since the system was last asked.
    turns: AtomicU64,
    /// The size of the account at which the size of the process must be checked.
    check_at: AtomicU64,
    /// The process is too large, even if the account has room.
    too_large: AtomicBool,
}

impl Memory {
    /// Creates an account of at most `max` bytes.
    pub fn new(max: u64) -> Memory {
        Memory { max, ..Memory::default() }
    }

    /// Bytes of `max` reserved for commands that free memory.
    pub fn kept(max: u64) -> u64 {
        (max / KEPT).min(KEPT_MOST)
    }

    /// Sets the memory held by the engine after a turn, and the part that only replies still reference.
    pub fn set_engine(&self, bytes: u64, shared: u64) {
        self.engine.store(bytes, Ordering::Relaxed);
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// Replaces a charge of `before` bytes by `after`.
    pub fn charge(&self, before: u64, after: u64) {
        change(&self.buffers, before, after);
    }

    /// Replaces `before` bytes by `after` in the part that belongs to dropped connections.
    pub fn leave(&self, before: u64, after: u64) {
        change(&self.leaving, before, after);
    }

    /// Replaces a charge for a body that is being received.
    pub fn charge_upload(&self, before: u64, after: u64) {
        change(&self.uploads, before, after);
    }

    /// Bytes that connections buffer in both directions.
    pub fn buffers(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed) + self.uploads.load(Ordering::Relaxed)
    }

    fn taken(&self) -> u64 {
        self.engine.load(Ordering::Relaxed) + self.buffers()
    }

    /// Bytes about to be freed, for which no connection needs to be dropped.
    fn leaving(&self) -> u64 {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Unprocessed and unread bytes of connections that stay.
    pub fn waiting(&self) -> u64 {
        let waiting = self.buffers.load(Ordering::Relaxed) + self.shared.load(Ordering::Relaxed);
        waiting.saturating_sub(self.leaving())
    }

    /// Bytes available to new requests.
    pub fn room(&self) -> u64 {
        if self.is_exhausted() {
            return 0;
        }
        (self.max - Memory::kept(self.max)).saturating_sub(self.taken())
    }

    /// Maximum number of buffered bytes at which one connection is still read.
    pub fn allowance(&self) -> usize {
        if self.is_exhausted() {
            return 0;
        }
        let left = (self.max / BUFFERS).saturating_sub(self.waiting()).min(self.max.saturating_sub(self.taken()));
        usize::try_from(left / SHARE).unwrap_or(usize::MAX)
    }

    /// Returns `true` if all memory is taken, including the reserve for replies.
    pub fn is_full(&self) -> bool {
        self.taken() >= self.max
    }

    /// Returns `true` if so little is left that clients that do not read must be dropped.
    pub fn is_tight(&self) -> bool {
        let kept = Memory::kept(self.max);
        let taken = self.taken().saturating_sub(self.leaving());
        self.has_burden() && (self.is_crowded() || taken + LEAST_ROOM > self.max - kept || self.is_exhausted())
    }

    /// Returns `true` if unread and unprocessed bytes exceed their share.
    pub fn is_crowded(&self) -> bool {
        self.waiting() > self.max / BUFFERS
    }

    /// `true` if what connections hold, including bodies that are being received, exceeds the share for buffers.
    pub fn is_overburdened(&self) -> bool {
        self.waiting() + self.uploads.load(Ordering::Relaxed) > self.max / BUFFERS
    }

    /// Returns `true` if connections use enough memory that some may be dropped in a shortage.
    pub fn has_burden(&self) -> bool {
        self.waiting() + self.uploads.load(Ordering::Relaxed) > Memory::kept(self.max) / 2
    }

    /// Returns `true` if the system was out of memory at the last attempt, or the process was too large at the last
    /// check.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed) || self.too_large.load(Ordering::Relaxed)
    }

    /// Returns `true` if the caller should check the size of the process and call [`Memory::set_resident`].
    pub fn needs_resident(&self) -> bool {
        let taken = self.taken();
        let at = self.check_at.load(Ordering::Relaxed);
        if taken + RESIDENT_STEP < at {
            // Freed memory may be fragmented when it is used again.
            self.check_at.store(taken + RESIDENT_STEP, Ordering::Relaxed);
        }
        let again = self.too_large.load(Ordering::Relaxed) && self.is_due();
        taken >= at || again
    }

    /// Sets the size of the process in bytes.
    pub fn set_resident(&self, bytes: u64) {
        self.too_large.store(bytes > self.max.saturating_add(BEYOND), Ordering::Relaxed);
        self.check_at.store(self.taken() + RESIDENT_STEP, Ordering::Relaxed);
    }

    /// Returns `true` in every n-th turn: the rate at which the system is asked again while it is out of memory.
    fn is_due(&self) -> bool {
        self.turns.fetch_add(1, Ordering::Relaxed) % TURNS_BETWEEN == 0
    }

    /// Bytes freed since the allocator last returned free memory.
    fn freed(&self) -> u64 {
        let taken = self.taken();
        let peak = self.peak.load(Ordering::Relaxed);
        if taken > peak {
            self.peak.store(taken, Ordering::Relaxed);
        }
        peak.saturating_sub(taken)
    }

    /// Returns `true` if that is enough, compared with the peak, for the allocator to return it.
    pub fn has_freed_much(&self) -> bool {
        let freed = self.freed();
        self.must_give_back() || freed > MUCH && freed > self.taken()
    }

    /// Returns `true` if that is urgent: more at a time would block other threads for too long, or it helps
    /// immediately.
    pub fn must_give_back(&self) -> bool {
        let freed = self.freed();
        freed > MOST || freed > LEAST_TRIAL && self.too_large.load(Ordering::Relaxed)
    }

    /// Restarts the count after the allocator has returned memory.
    pub fn gave_back(&self) {
        self.peak.store(self.taken(), Ordering::Relaxed);
    }

    /// Returns `true` if there is memory for another connection. Also while memory is short, since a worker must
    /// connect to free some.
    pub fn has_for_connection(&self) -> bool {
        let mut trial: Vec<u8> = Vec::new();
        self.taken() < self.max && (!self.is_exhausted() || trial.try_reserve_exact(CONNECTION_TRIAL).is_ok())
    }

    /// Checks whether the system has more memory if the account has grown since the last check or there was none. One
    /// caller at a time. Requires as much as clients may take until the next check, plus a reserve for the program
    /// itself, which grows with the account because of the allocator's overhead.
    pub fn try_system(&self) {
        let taken = self.taken();
        let tried = self.tried.load(Ordering::Relaxed);
        if taken + LEAST_TRIAL < tried {
            // Freed memory can be used again.
            self.exhausted.store(false, Ordering::Relaxed);
            return;
        }
        // The system may have memory again although clients have freed nothing.
        if self.exhausted.load(Ordering::Relaxed) && !self.is_due() {
            return;
        }
        let spare = SPARE + (taken / 4).min(SPARE_MOST);
        let mut trial: Vec<u8> = Vec::new();
        let has_more = trial.try_reserve_exact(usize::try_from(spare + TRIAL).unwrap_or(usize::MAX)).is_ok();
        self.exhausted.store(!has_more, Ordering::Relaxed);
        self.tried.store(if has_more { taken + TRIAL } else { taken.max(tried) }, Ordering::Relaxed);
    }
}

/// Replaces `before` bytes by `after` in a sum.
fn change(sum: &AtomicU64, before: u64, after: u64) {
    if before != after {
        sum.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_finds_something_left_and_all_together_stay_within_the_share() {
        let memory = Memory::new(64 << 20);
        let mut sum = 0;
        for _ in 0..800 {
            let mine = memory.allowance() as u64;
            memory.charge(0, mine);
            sum += mine;
        }
        assert!(sum <= 16 << 20 && memory.allowance() < 1024, "{sum} bytes, {} left", memory.allowance());
        assert!(memory.room() > 40 << 20, "others have room");
        memory.charge(sum, 0);
        assert_eq!((memory.buffers(), memory.allowance()), (0, 2 << 20));
    }

    #[test]
    fn the_reserve_is_not_available_to_new_requests() {
        let memory = Memory::new(64 << 20);
        memory.set_engine(61 << 20, 0);
        assert_eq!(memory.room(), 0);
        assert!(memory.allowance() > 0 && !memory.is_tight(), "nobody is dropped for what jobs take");
        memory.charge(0, 3 << 20);
        assert!(memory.is_tight());
    }

    #[test]
    fn a_process_that_is_too_large_has_no_room() {
        let memory = Memory::new(64 << 20);
        assert!(memory.needs_resident());
        memory.set_resident(6 << 20);
        memory.set_engine(RESIDENT_STEP - 1, 0);
        assert!(!memory.needs_resident(), "only when the account has grown");
        memory.set_engine(40 << 20, 0);
        assert!(memory.needs_resident() && !memory.has_freed_much());
        memory.set_resident(46 << 20);
        // Most of it is freed and leaves holes; the same amount is allocated again.
        memory.set_engine(10 << 20, 0);
        assert!(!memory.needs_resident() && memory.has_freed_much());
        memory.gave_back();
        memory.set_engine(14 << 20, 0);
        assert!(memory.needs_resident(), "though there was as much before");
        memory.set_resident(89 << 20);
        assert!(memory.is_exhausted() && memory.room() == 0 && memory.allowance() == 0);
        memory.set_engine(13 << 20, 0);
        assert!(!memory.has_freed_much(), "it was no higher since the allocator let go");
        memory.set_engine(14 << 20, 0);
        assert!(!memory.has_freed_much());
        memory.set_engine(13 << 20, 0);
        assert!(memory.has_freed_much(), "whatever is given back may help now");
        let checks = (0..10 * TURNS_BETWEEN).filter(|_| memory.needs_resident()).count();
        assert_eq!(checks, 10, "somebody else may have given some back");
        memory.set_resident(80 << 20);
        assert!(!memory.is_exhausted() && memory.room() > 0);
    }
}
