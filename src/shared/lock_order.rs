//! Locks with ranks, which ARCHITECTURE.md lists under "Locks". A thread that holds a lock may only acquire locks of
//! higher ranks, so no deadlock is possible. Debug builds check the order.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

pub const SERVER: u8 = 1;
pub const MAINTENANCE: u8 = 2;
pub const SYNCING: u8 = 3;
pub const WRITER: u8 = 4;
pub const ENGINE: u8 = 5;
pub const OUTPUT: u8 = 6;
pub const WAKE_UP: u8 = 7;
pub const HELD_REPLIES: u8 = 8;
pub const REPORTING: u8 = 9;
pub const SHIPPING: u8 = 10;
pub const GATEWAY: u8 = 11;
// Log lines can be written while any lock except a leaf is held.
pub const LOG_LINES: u8 = 12;
/// A thread with a lock of this rank must not acquire another lock.
const LEAF: u8 = 13;

pub type LeafMutex<T> = Mutex<T, LEAF>;

#[derive(Debug, Default)]
pub struct Mutex<T, const RANK: u8>(parking_lot::Mutex<T>);

#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    guard: parking_lot::MutexGuard<'a, T>,
    rank: HeldRank,
}

impl<T, const RANK: u8> Mutex<T, RANK> {
    pub const fn new(value: T) -> Mutex<T, RANK> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Panics in debug builds if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let rank = HeldRank::take(RANK);
        MutexGuard { guard: self.0.lock(), rank }
    }

    pub fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        let rank = HeldRank::take(RANK);
        Some(MutexGuard { guard: self.0.try_lock_for(time)?, rank })
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.try_lock_for(Duration::ZERO)
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T> MutexGuard<'_, T> {
    /// Passes the lock to the thread that has waited longest.
    pub fn unlock_fair(self) {
        parking_lot::MutexGuard::unlock_fair(self.guard);
        drop(self.rank);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A waiting thread releases its lock, but keeps the lock's rank, because it acquires no other lock while it waits.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.guard);
    }

    /// Waits for a notification, but no longer than until `at`. Returns `true` on timeout.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, at: Instant) -> bool {
        self.0.wait_until(&mut guard.guard, at).timed_out()
    }
}

#[derive(Debug)]
struct HeldRank(u8);

thread_local! {
    static HELD: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl HeldRank {
    #[inline]
    fn take(rank: u8) -> HeldRank {
        if cfg!(debug_assertions) {
            let held = HELD.get();
            assert!(held >> rank == 0, "a lock of rank {rank} is acquired by a thread that holds ranks {held:#b}");
            HELD.set(held | 1 << rank);
        }
        HeldRank(rank)
    }
}

impl Drop for HeldRank {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() & !(1 << self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_can_be_acquired_repeatedly_in_order() {
        let (engine, output) = (Mutex::<_, ENGINE>::new(1), Mutex::<_, OUTPUT>::new(2));
        for _ in 0..2 {
            let first = engine.lock();
            let second = output.try_lock_for(Duration::from_secs(1)).expect("a free lock");
            assert_eq!(*first + *second, 3);
            first.unlock_fair();
        }
        assert_eq!(*engine.lock(), 1);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn the_wrong_order_and_two_locks_of_one_rank_are_refused() {
        let refused = |work: fn()| std::thread::spawn(work).join().is_err();
        assert!(refused(|| {
            let (engine, output) = (Mutex::<_, ENGINE>::new(()), Mutex::<_, OUTPUT>::new(()));
            let _output = output.lock();
            let _engine = engine.lock();
        }));
        assert!(refused(|| {
            let (one, other) = (Mutex::<_, OUTPUT>::new(()), Mutex::<_, OUTPUT>::new(()));
            let _one = one.lock();
            let _other = other.lock();
        }));
    }
}
