//! The alarm of the timer thread.
//!
//! Owns the time at which the timer thread wakes up. A thread that adds an earlier deadline advances the alarm. A
//! thread that removes a deadline does not change the alarm, because a spurious wake-up is cheaper than another lock.
//! Must not depend on the work that is due.

use super::clock::Clock;
use crate::engine::Time;
use crate::shared::atomic::{AtomicU64, Ordering};
use crate::shared::lock_order::{Condvar, LeafMutex};

#[derive(Debug)]
pub struct Alarm {
    state: LeafMutex<AlarmState>,
    changed: Condvar,
    /// A copy of [`AlarmState::at`] that needs no lock.
    at: AtomicU64,
}

#[derive(Debug)]
struct AlarmState {
    at: Time,
    stop: bool,
}

impl Alarm {
    pub fn new() -> Alarm {
        let state = AlarmState { at: Time::NEVER, stop: false };
        Alarm { state: LeafMutex::new(state), changed: Condvar::default(), at: AtomicU64::new(Time::NEVER.nanos()) }
    }

    pub fn advance(&self, at: Time) {
        if at.nanos() < self.at.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            if at < state.at {
                self.set(&mut state, at);
                self.changed.notify_one();
            }
        }
    }

    /// Waits for the alarm and clears it. Returns `false` if the alarm was stopped.
    pub fn wait(&self, clock: &Clock) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return false;
            }
            if state.at <= clock.now() {
                self.set(&mut state, Time::NEVER);
                return true;
            }
            match clock.instant(state.at) {
                Some(instant) => {
                    self.changed.wait_until(&mut state, instant);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    fn set(&self, state: &mut AlarmState, at: Time) {
        state.at = at;
        self.at.store(at.nanos(), Ordering::Release);
    }
}
