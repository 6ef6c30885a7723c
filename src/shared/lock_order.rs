//! Locks that are taken in one order only, which debug builds assert.
//!
//! Owns the ranks. A thread that holds a lock may take locks of higher ranks only, so no two threads can wait for each
//! other, and never two of one rank. Release builds compile to plain parking_lot locks. Must not know what the locks
//! guard.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// Starting and stopping a server (`Running`).
pub const SERVER: u8 = 1;

/// Creating segments in advance, removing them, or retrying a failed disk (`Wal`).
pub const MAINTENANCE: u8 = 2;

/// One sync at a time (`Wal`).
pub const SYNCING: u8 = 3;

/// Open files, and the bytes that are not durable yet (`Wal`).
pub const WRITER: u8 = 4;

/// The queue and everything that changes with it (`Hub`).
pub const ENGINE: u8 = 5;

/// The output of one connection (`Outbox`).
pub const OUTPUT: u8 = 6;

/// The time at which a thread of the log wakes up (`Bell`).
pub const WAKE_UP: u8 = 7;

/// The queue of replies that wait for the log (`Durability`).
pub const HELD_REPLIES: u8 = 8;

/// Reporting the state of this server to the others (`Active`).
pub const REPORTING: u8 = 9;

/// The position of the next entry of the shared log (`Shipper`).
pub const SHIPPING: u8 = 10;

/// A connection to etcd (`Etcd`).
pub const GATEWAY: u8 = 11;

/// The destination of log lines, which may be written under any lock except a leaf.
pub const LOG_LINES: u8 = 12;

/// The highest rank: a thread that holds such a lock acquires no other.
const LEAF: u8 = 13;

/// A lock that is released before another one is acquired.
pub type LeafMutex<T> = Mutex<T, LEAF>;

/// A lock of the given rank.
#[derive(Debug, Default)]
pub struct Mutex<T, const RANK: u8>(parking_lot::Mutex<T>);

/// Access to what a [`Mutex`] guards, until it is dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    guard: parking_lot::MutexGuard<'a, T>,
    rank: HeldRank,
}

impl<T, const RANK: u8> Mutex<T, RANK> {
    pub const fn new(value: T) -> Mutex<T, RANK> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Waits for the lock. Debug builds panic if the thread holds one of this rank or a higher one.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let rank = HeldRank::take(RANK);
        MutexGuard { guard: self.0.lock(), rank }
    }

    /// Like `lock`, but waits at most `time`.
    pub fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        let rank = HeldRank::take(RANK);
        Some(MutexGuard { guard: self.0.try_lock_for(time)?, rank })
    }

    /// Takes the lock if no other thread has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.try_lock_for(Duration::ZERO)
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T> MutexGuard<'_, T> {
    /// Gives the lock to the thread that has waited longest, if one waits.
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

/// Threads that wait for a change of what a [`Mutex`] guards. A waiting thread takes no other lock, so it keeps the
/// rank.
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

    /// Waits until `at` at the latest. Returns `true` if the time has come.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, at: Instant) -> bool {
        self.0.wait_until(&mut guard.guard, at).timed_out()
    }
}

/// The record that this thread holds a lock.
#[derive(Debug)]
struct HeldRank {
    #[cfg(debug_assertions)]
    rank: u8,
}

#[cfg(not(debug_assertions))]
impl HeldRank {
    #[inline]
    fn take(_: u8) -> HeldRank {
        HeldRank {}
    }
}

#[cfg(debug_assertions)]
thread_local! {
    /// One bit for each rank that the thread holds.
    static HELD: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(debug_assertions)]
impl HeldRank {
    fn take(rank: u8) -> HeldRank {
        let held = HELD.get();
        assert!(held >> rank == 0, "a lock of rank {rank} is taken by a thread that holds ranks {held:#b}");
        HELD.set(held | 1 << rank);
        HeldRank { rank }
    }
}

#[cfg(debug_assertions)]
impl Drop for HeldRank {
    fn drop(&mut self) {
        HELD.set(HELD.get() & !(1 << self.rank));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_their_order_again_and_again() {
        let (engine, output) = (Mutex::<_, ENGINE>::new(1), Mutex::<_, OUTPUT>::new(2));
        for _ in 0..2 {
            let first = engine.lock();
            let second = output.try_lock_for(Duration::from_secs(1)).expect("nobody has it");
            assert_eq!(*first + *second, 3);
            first.unlock_fair();
        }
        assert_eq!(*engine.lock(), 1);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn the_other_order_and_two_of_one_rank_are_refused() {
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
