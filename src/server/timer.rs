//! The timer thread: sleeps until the engine's next deadline, then lets it tick.
//!
//! Owns one alarm. A thread that brings an earlier deadline into the engine moves the alarm forward; one that removes a
//! deadline leaves it, since a wake-up too many is cheaper than one more lock. Must not know what is due.

use crate::shared::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::hub::{Hub, TurnScratch};
use crate::engine::Time;

/// Between two turns for what others have left: on a machine with few CPUs, clients and pool threads need them too.
const REST: Duration = Duration::from_micros(50);

/// The least time between two looks whether the allocator should give memory back.
const PAUSE: Duration = Duration::from_secs(1);

/// If it must do so soon, it rests as many times as long as it took: it holds up whoever allocates.
const SHARE: u32 = 20;

#[derive(Debug)]
pub struct Alarm {
    state: Mutex<AlarmState>,
    bell: Condvar,
    /// A copy of [`AlarmState::at`], for a look without the lock.
    at: AtomicU64,
}

#[derive(Debug)]
struct AlarmState {
    at: Time,
    stop: bool,
}

impl Alarm {
    /// An alarm that is set to [`Time::NEVER`].
    pub fn new() -> Alarm {
        let state = AlarmState { at: Time::NEVER, stop: false };
        Alarm { state: Mutex::new(state), bell: Condvar::new(), at: AtomicU64::new(Time::NEVER.nanos()) }
    }

    /// Rings at `at`, or earlier if it was set to.
    pub fn advance(&self, at: Time) {
        if at.nanos() < self.at.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            if at < state.at {
                self.set(&mut state, at);
                self.bell.notify_one();
            }
        }
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.bell.notify_one();
    }

    fn set(&self, state: &mut AlarmState, at: Time) {
        state.at = at;
        self.at.store(at.nanos(), Ordering::Release);
    }
}

pub fn run(hub: &Hub) {
    let alarm = &hub.alarm;
    let mut scratch = TurnScratch::default();
    let (mut given_back, mut took) = (Instant::now(), Duration::ZERO);
    loop {
        let mut state = alarm.state.lock();
        if state.stop {
            return;
        }
        if state.at > hub.clock().now() {
            match hub.clock().instant(state.at) {
                Some(instant) => drop(alarm.bell.wait_until(&mut state, instant)),
                None => alarm.bell.wait(&mut state),
            }
            continue;
        }
        // The tick sets the alarm anew, to what is due next.
        alarm.set(&mut state, Time::NEVER);
        drop(state);
        let unfinished = hub.turn(&mut scratch, |core, _, _| core.engine().has_deferred());
        hub.commit(&mut scratch);
        hub.clear_discarded();
        if unfinished {
            std::thread::sleep(REST);
        }
        let pause = if hub.memory().must_let_go() { took * SHARE } else { PAUSE };
        if given_back.elapsed() >= pause {
            let began = Instant::now();
            hub.give_back();
            (given_back, took) = (Instant::now(), began.elapsed());
        }
    }
}
