//! Replacements for items of other crates. They use shuttle, which can switch threads at each access.
//!
//! Owns the subset that the server's files use: the locks and condition variables of parking_lot, an unbounded channel,
//! and a waker.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A mutex without poisoning.
#[derive(Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// The guard of a locked [`Mutex`]. The inner guard is `None` only while a condition variable waits.
pub struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>, &'a Mutex<T>);

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Mutex")
    }
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("an unpoisoned lock")), self)
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("an unpoisoned lock")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("the lock")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the lock")
    }
}

/// A condition variable that counts its notifications.
#[derive(Default)]
pub struct Condvar(shuttle::sync::Condvar, AtomicU64);

impl fmt::Debug for Condvar {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Condvar")
    }
}

impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    pub fn notify_one(&self) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.notify_all();
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().expect("the lock");
        guard.0 = Some(self.0.wait(inner).expect("an unpoisoned lock"));
    }

    /// Waits for a notification or until `at`. A schedule takes little real time: without the notification, it exceeds
    /// its maximum number of steps before the real clock reaches `at`.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, at: Instant) {
        let met = self.1.load(Ordering::SeqCst);
        drop(guard.0.take());
        while self.1.load(Ordering::SeqCst) == met && Instant::now() < at {
            shuttle::thread::yield_now();
        }
        *guard = guard.1.lock();
    }
}

pub struct Sender<T>(Arc<Mutex<VecDeque<T>>>);

pub struct Receiver<T>(Arc<Mutex<VecDeque<T>>>);

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Sender")
    }
}

impl<T> Sender<T> {
    pub fn send(&self, value: T) -> Result<(), T> {
        self.0.lock().push_back(value);
        Ok(())
    }
}

impl<T> Receiver<T> {
    pub fn try_recv(&self) -> Option<T> {
        self.0.lock().pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(Mutex::new(VecDeque::new()));
    (Sender(queue.clone()), Receiver(queue))
}

#[derive(Clone, Debug, Default)]
pub struct Waker(Arc<(Mutex<bool>, Condvar)>);

impl Waker {
    pub fn wake(&self) -> io::Result<()> {
        *self.0 .0.lock() = true;
        self.0 .1.notify_one();
        Ok(())
    }

    /// Waits for a wake-up, as the poller does, but without a timeout.
    pub fn wait(&self) {
        let mut woken = self.0 .0.lock();
        while !*woken {
            self.0 .1.wait(&mut woken);
        }
        *woken = false;
    }
}
