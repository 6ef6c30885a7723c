//! The time at which the timer thread wakes up. A thread that removes a deadline does not change the alarm, because a
//! spurious wake-up is cheaper than locking once more.

use super::clock::Clock;
use crate::engine::Time;
use crate::shared::atomic::{AtomicU64, Ordering};
use crate::shared::lock_order::{Condvar, LeafMutex};

pub struct Alarm {
    /// In nanoseconds. Changed only while `stop` is locked.
    at: AtomicU64,
    stop: LeafMutex<bool>,
    changed: Condvar,
}

impl Alarm {
    pub fn new() -> Alarm {
        Alarm { at: AtomicU64::new(Time::NEVER.nanos()), stop: LeafMutex::new(false), changed: Condvar::default() }
    }

    pub fn advance(&self, at: Time) {
        let is_earlier = || at.nanos() < self.at.load(Ordering::Acquire);
        if is_earlier() {
            let _stop = self.stop.lock();
            if is_earlier() {
                self.at.store(at.nanos(), Ordering::Release);
                self.changed.notify_one();
            }
        }
    }

    /// Waits for the alarm and clears it. Returns `false` if the alarm was stopped.
    pub fn wait(&self, clock: &Clock) -> bool {
        let mut stop = self.stop.lock();
        while !*stop {
            let at = Time::from_nanos(self.at.load(Ordering::Acquire));
            if at <= clock.now() {
                self.at.store(Time::NEVER.nanos(), Ordering::Release);
                return true;
            }
            match clock.instant(at) {
                Some(instant) => drop(self.changed.wait_until(&mut stop, instant)),
                None => self.changed.wait(&mut stop),
            }
        }
        false
    }

    pub fn stop(&self) {
        *self.stop.lock() = true;
        self.changed.notify_one();
    }
}
