//! The server's side of the account of memory: what connections take, and how much more there may be.
//!
//! Owns the bounds. The engine counts what it holds itself; connections count here what they have sent and is not done,
//! and what they have not read. The sum is at most `--max-memory`. Must not know connections: each asks for itself.

use crate::shared::atomic::{AtomicBool, AtomicU64, Ordering};

pub use crate::settings::config::CONNECTION_COST;

/// The part of all memory that is kept for replies and for commands that give memory back, and its most.
const KEPT: u64 = 16;
const KEPT_MOST: u64 = 64 << 20;

/// The part of all memory that buffers may take, but for bodies that are arriving: those need only find room.
const BUFFERS: u64 = 4;

/// The part of what is left for buffers that one connection may take. So many connections can take it all, but each
/// finds something left.
const SHARE: u64 = 8;

/// However short memory is, a connection may read this many bytes at a time, since a command that gives memory back has
/// to be read first.
pub const LEAST_READ: usize = 4 * 1024;

/// When the account has grown by this much, it is tried whether the system has memory for more: limits of the process
/// are not always known.
const TRIAL: u64 = 2 << 20;

/// When the system has no more, and clients have given back this much, it may be taken again.
const LEAST_TRIAL: u64 = 128 * 1024;

/// Bytes that are worth a walk of the allocator through its heaps, if they are half of what was taken.
const MUCH: u64 = 8 << 20;

/// Bytes that are worth it in any case: for more at a time, it would hold up the others for too long.
const MOST: u64 = 32 << 20;

/// Bytes by which the process may be larger than the account: the program itself, its threads, the holes between
/// pieces of memory in use. Beyond that, there is no room, whatever the account says.
const BEYOND: u64 = 24 << 20;

/// Whether it is, is looked at when the account has grown by so many bytes.
const LOOK: u64 = 4 << 20;

/// Turns between two trials while the system has no more.
const TURNS_BETWEEN: u64 = 64;

/// With less room than this for what asks for more, memory is short.
const LEAST_ROOM: u64 = 128 * 1024;

/// What must be there for a connection when that has failed.
const CONNECTION_TRIAL: usize = 1 << 20;

/// What must be there beside that: a quarter of what is taken, since some tables double, and not more than this.
const SPARE: u64 = 4 << 20;
const SPARE_MOST: u64 = 256 << 20;

#[derive(Debug, Default)]
pub struct Memory {
    max: u64,
    /// What the engine holds, as of the last turn.
    engine: AtomicU64,
    /// Bytes of it that replies alone still share.
    shared: AtomicU64,
    /// What connections take but for bodies that are arriving.
    buffers: AtomicU64,
    /// Those, as far as they have come.
    uploads: AtomicU64,
    /// Bytes of `buffers` whose connections are given up: they will soon be no more.
    leaving: AtomicU64,
    /// The most that was taken since the allocator last let go of what was free.
    peak: AtomicU64,
    /// Up to here, in bytes of account, the system had memory.
    tried: AtomicU64,
    /// The system has no more.
    exhausted: AtomicBool,
    /// Turns since the system was last asked.
    turns: AtomicU64,
    /// From this on, in bytes of account, it must be looked at how large the process is.
    look_at: AtomicU64,
    /// The process is too large, whatever the account says.
    swollen: AtomicBool,
}

impl Memory {
    /// Of at most `max` bytes.
    pub fn new(max: u64) -> Memory {
        Memory { max, ..Memory::default() }
    }

    /// Bytes of `max` that are kept for what gives memory back.
    pub fn kept(max: u64) -> u64 {
        (max / KEPT).min(KEPT_MOST)
    }

    /// What the engine holds, now that a turn is over, and how much of it replies alone still share.
    pub fn set_engine(&self, bytes: u64, shared: u64) {
        self.engine.store(bytes, Ordering::Relaxed);
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// Somebody who took `before` bytes takes `after` now.
    pub fn charge(&self, before: u64, after: u64) {
        change(&self.buffers, before, after);
    }

    /// Of what was charged, so many bytes instead of `before` belong to connections that are given up.
    pub fn leave(&self, before: u64, after: u64) {
        change(&self.leaving, before, after);
    }

    /// The same of a body that is arriving.
    pub fn charge_upload(&self, before: u64, after: u64) {
        change(&self.uploads, before, after);
    }

    /// Bytes that connections buffer, in both directions.
    pub fn buffers(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed) + self.uploads.load(Ordering::Relaxed)
    }

    fn taken(&self) -> u64 {
        self.engine.load(Ordering::Relaxed) + self.buffers()
    }

    /// Bytes on their way back, which nobody need be dropped for.
    fn leaving(&self) -> u64 {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Bytes that wait to be read or to be carried out, by connections that stay.
    pub fn waiting(&self) -> u64 {
        let waiting = self.buffers.load(Ordering::Relaxed) + self.shared.load(Ordering::Relaxed);
        waiting.saturating_sub(self.leaving())
    }

    /// Bytes left for what asks for more.
    pub fn room(&self) -> u64 {
        if self.is_exhausted() {
            return 0;
        }
        (self.max - Memory::kept(self.max)).saturating_sub(self.taken())
    }

    /// Bytes that one connection may have in its buffers before it is not read any more.
    pub fn allowance(&self) -> usize {
        if self.is_exhausted() {
            return 0;
        }
        let left = (self.max / BUFFERS).saturating_sub(self.waiting()).min(self.max.saturating_sub(self.taken()));
        usize::try_from(left / SHARE).unwrap_or(usize::MAX)
    }

    /// Whether all is taken, also what is kept for replies.
    pub fn is_full(&self) -> bool {
        self.taken() >= self.max
    }

    /// Whether so little is left that somebody who does not read must go.
    pub fn is_tight(&self) -> bool {
        let kept = Memory::kept(self.max);
        let taken = self.taken().saturating_sub(self.leaving());
        self.has_burden() && (self.is_crowded() || taken + LEAST_ROOM > self.max - kept || self.is_exhausted())
    }

    /// Whether what waits to be read or to be carried out takes more than its part.
    pub fn is_crowded(&self) -> bool {
        self.waiting() > self.max / BUFFERS
    }

    /// `true` if what connections hold, arriving bodies included, takes more than the part for buffers.
    pub fn is_overburdened(&self) -> bool {
        self.waiting() + self.uploads.load(Ordering::Relaxed) > self.max / BUFFERS
    }

    /// Whether connections take so much that some may have to go when memory gets short.
    pub fn has_burden(&self) -> bool {
        self.waiting() + self.uploads.load(Ordering::Relaxed) > Memory::kept(self.max) / 2
    }

    /// Whether the system has no memory for more, as of the last trial, or the process has too much as of the last
    /// look.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed) || self.swollen.load(Ordering::Relaxed)
    }

    /// Whether somebody should look how large the process is, and tell [`Memory::set_resident`].
    pub fn wants_look(&self) -> bool {
        let taken = self.taken();
        let at = self.look_at.load(Ordering::Relaxed);
        if taken + LOOK < at {
            // What was given back may leave holes when it is taken again.
            self.look_at.store(taken + LOOK, Ordering::Relaxed);
        }
        let again = self.swollen.load(Ordering::Relaxed) && self.is_due();
        taken >= at || again
    }

    /// How many bytes the process has.
    pub fn set_resident(&self, bytes: u64) {
        self.swollen.store(bytes > self.max.saturating_add(BEYOND), Ordering::Relaxed);
        self.look_at.store(self.taken() + LOOK, Ordering::Relaxed);
    }

    /// One turn of some: how often it is asked again, while there is no memory, whether there is.
    fn is_due(&self) -> bool {
        self.turns.fetch_add(1, Ordering::Relaxed) % TURNS_BETWEEN == 0
    }

    /// Bytes that were given back since the allocator last let go of what was free.
    fn fallen(&self) -> u64 {
        let taken = self.taken();
        let peak = self.peak.load(Ordering::Relaxed);
        if taken > peak {
            self.peak.store(taken, Ordering::Relaxed);
        }
        peak.saturating_sub(taken)
    }

    /// Whether that is so much, of what was taken at a time, that the allocator should let go of it.
    pub fn has_fallen(&self) -> bool {
        let fallen = self.fallen();
        self.must_let_go() || fallen > MUCH && fallen > self.taken()
    }

    /// Whether it should do so soon: more at a time would hold up the others for too long, or it helps at once.
    pub fn must_let_go(&self) -> bool {
        let fallen = self.fallen();
        fallen > MOST || fallen > LEAST_TRIAL && self.swollen.load(Ordering::Relaxed)
    }

    /// The allocator was told: counts anew.
    pub fn let_go(&self) {
        self.peak.store(self.taken(), Ordering::Relaxed);
    }

    /// Whether there is memory for one connection more. While it is short, too: a worker has to connect to give some
    /// back.
    pub fn has_for_connection(&self) -> bool {
        let mut trial: Vec<u8> = Vec::new();
        self.taken() < self.max && (!self.is_exhausted() || trial.try_reserve_exact(CONNECTION_TRIAL).is_ok())
    }

    /// Tries whether the system has memory for more, when the account has grown since the last time or there was none.
    /// One caller at a time. What must be there is what clients may take until the next trial, and some spare for the
    /// program itself, which grows with the account, since the allocator's waste does.
    pub fn try_system(&self) {
        let taken = self.taken();
        let tried = self.tried.load(Ordering::Relaxed);
        if taken + LEAST_TRIAL < tried {
            // What was given back can be taken again.
            self.exhausted.store(false, Ordering::Relaxed);
            return;
        }
        // The system may have some again, though clients have given nothing back.
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

/// Counts in a sum that somebody who took `before` bytes takes `after` now.
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
    fn what_is_kept_is_not_given_to_what_asks_for_more() {
        let memory = Memory::new(64 << 20);
        memory.set_engine(61 << 20, 0);
        assert_eq!(memory.room(), 0);
        assert!(memory.allowance() > 0 && !memory.is_tight(), "nobody is dropped for what jobs take");
        memory.charge(0, 3 << 20);
        assert!(memory.is_tight());
    }

    #[test]
    fn a_process_that_is_too_large_has_no_room_whatever_the_account_says() {
        let memory = Memory::new(64 << 20);
        assert!(memory.wants_look());
        memory.set_resident(6 << 20);
        memory.set_engine(LOOK - 1, 0);
        assert!(!memory.wants_look(), "only when the account has grown");
        memory.set_engine(40 << 20, 0);
        assert!(memory.wants_look() && !memory.has_fallen());
        memory.set_resident(46 << 20);
        // Most of it goes and leaves holes; as much comes again.
        memory.set_engine(10 << 20, 0);
        assert!(!memory.wants_look() && memory.has_fallen());
        memory.let_go();
        memory.set_engine(14 << 20, 0);
        assert!(memory.wants_look(), "though there was as much before");
        memory.set_resident(89 << 20);
        assert!(memory.is_exhausted() && memory.room() == 0 && memory.allowance() == 0);
        memory.set_engine(13 << 20, 0);
        assert!(!memory.has_fallen(), "it was no higher since the allocator let go");
        memory.set_engine(14 << 20, 0);
        assert!(!memory.has_fallen());
        memory.set_engine(13 << 20, 0);
        assert!(memory.has_fallen(), "whatever is given back may help now");
        let looks = (0..10 * TURNS_BETWEEN).filter(|_| memory.wants_look()).count();
        assert_eq!(looks, 10, "somebody else may have given some back");
        memory.set_resident(80 << 20);
        assert!(!memory.is_exhausted() && memory.room() > 0);
    }
}
