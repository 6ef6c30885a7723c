//! The state shared by the threads of `work`. To stop or pause a thread that is waiting for a job, `work` closes the
//! connection of the thread. A thread with a job keeps its connection. If a job arrives just before the connection is
//! closed, the server makes the job ready again.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::client::Closer;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Stop {
    #[default]
    No,
    Soon,
    Now,
}

#[derive(Default)]
struct State {
    stop: Stop,
    paused_until: Option<Instant>,
    notifications: Vec<u64>,
    idle: Vec<(usize, Closer)>,
    left: usize,
}

pub struct SharedState {
    state: Mutex<State>,
    wake: Vec<Condvar>,
}

impl SharedState {
    pub fn new(threads: usize) -> SharedState {
        let state = State { notifications: vec![0; threads], ..State::default() };
        SharedState { state: Mutex::new(state), wake: (0..threads).map(|_| Condvar::new()).collect() }
    }

    /// A second request also aborts running attempts.
    pub fn stop(&self) {
        self.change(|state| state.stop = if state.stop == Stop::No { Stop::Soon } else { Stop::Now });
    }

    pub fn finish(&self) {
        self.change(|state| state.stop = state.stop.max(Stop::Soon));
    }

    pub fn pause_reserving(&self, until: Instant) {
        self.change(|state| state.paused_until = state.paused_until.max(Some(until)));
    }

    fn change(&self, make: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        make(&mut state);
        state.idle.drain(..).for_each(|(_, closer)| closer.close());
        self.wake_all();
    }

    fn wake_all(&self) {
        self.wake.iter().for_each(|bell| _ = bell.notify_one());
    }

    pub fn notify(&self, index: usize) {
        self.state.lock().notifications[index] += 1;
        self.wake[index].notify_one();
    }

    /// Notifies all threads, because the thread whose attempt has ended is unknown.
    pub fn notify_all(&self) {
        self.state.lock().notifications.iter_mut().for_each(|count| *count += 1);
        self.wake_all();
    }

    pub fn stop_request(&self) -> Stop {
        self.state.lock().stop
    }

    pub fn notifications(&self, index: usize) -> u64 {
        self.state.lock().notifications[index]
    }

    /// Sleeps until `until`, or until the number of notifications or the stop request differs from the arguments.
    pub fn sleep(&self, index: usize, until: Option<Instant>, notifications: u64, stop: Stop) {
        let mut state = self.state.lock();
        while state.notifications[index] == notifications && state.stop == stop {
            match until {
                None => self.wake[index].wait(&mut state),
                Some(until) if self.wake[index].wait_until(&mut state, until).timed_out() => return,
                Some(_) => {}
            }
        }
    }

    pub fn pause(&self, index: usize, length: Duration) {
        let until = Instant::now() + length;
        let mut state = self.state.lock();
        while state.stop == Stop::No && !self.wake[index].wait_until(&mut state, until).timed_out() {}
    }

    pub fn await_resume(&self, index: usize) -> bool {
        let mut state = self.state.lock();
        while let Some(until) = state.paused_until.filter(|until| state.stop == Stop::No && *until > Instant::now()) {
            self.wake[index].wait_until(&mut state, until);
        }
        state.stop == Stop::No
    }

    pub fn begin_waiting(&self, index: usize, closer: Closer) -> bool {
        let mut state = self.state.lock();
        if state.stop != Stop::No || state.paused_until.is_some_and(|until| until > Instant::now()) {
            return false;
        }
        state.idle.push((index, closer));
        true
    }

    /// Returns `false` if the connection was closed to stop the thread or to pause reservations.
    pub fn end_waiting(&self, index: usize) -> bool {
        let mut state = self.state.lock();
        let found = state.idle.iter().position(|(waiting, _)| *waiting == index);
        found.map(|index| state.idle.swap_remove(index)).is_some()
    }

    pub fn leave(&self) -> usize {
        let mut state = self.state.lock();
        state.left += 1;
        state.left
    }
}
