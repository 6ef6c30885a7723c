//! The state shared by the threads of `work`: the stop request, pauses, and a notification of ended attempts.
//!
//! Owns the one important race: a thread that waits for a job is stopped by closing its connection, a thread with a job
//! is not. A job that arrives at that moment is ready again when its connection has closed.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::client::Closer;

/// The urgency of the stop request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Stop {
    #[default]
    No,
    Soon,
    Now,
}

#[derive(Debug, Default)]
struct State {
    stop: Stop,
    /// No thread reserves a job before this time.
    rest: Option<Instant>,
    /// Counts the ended attempts of each thread.
    bells: Vec<u64>,
    /// The connections of threads that wait for a job.
    idle: Vec<(usize, Closer)>,
    left: usize,
}

#[derive(Debug)]
pub struct Bench {
    state: Mutex<State>,
    /// By the place of the thread.
    bells: Vec<Condvar>,
}

impl Bench {
    /// Returns the state for this many threads.
    pub fn new(threads: usize) -> Bench {
        let state = State { bells: vec![0; threads], ..State::default() };
        Bench { state: Mutex::new(state), bells: (0..threads).map(|_| Condvar::new()).collect() }
    }

    /// Handles a stop signal; a second one is more urgent.
    pub fn stop(&self) {
        self.change(|state| state.stop = if state.stop == Stop::No { Stop::Soon } else { Stop::Now });
    }

    /// Stops reserving jobs, and lets running attempts finish.
    pub fn finish(&self) {
        self.change(|state| state.stop = state.stop.max(Stop::Soon));
    }

    /// Stops reserving jobs until this time.
    pub fn rest(&self, until: Instant) {
        self.change(|state| state.rest = state.rest.max(Some(until)));
    }

    /// Makes a change that ends all waits for jobs.
    fn change(&self, make: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        make(&mut state);
        state.idle.drain(..).for_each(|(_, closer)| closer.close());
        self.notify_all();
    }

    fn notify_all(&self) {
        self.bells.iter().for_each(|bell| _ = bell.notify_one());
    }

    /// Notifies a thread of the end of its attempt.
    pub fn ring(&self, place: usize) {
        self.state.lock().bells[place] += 1;
        self.bells[place].notify_one();
    }

    /// Notifies all threads: the attempt of one of them has ended.
    pub fn ring_all(&self) {
        self.state.lock().bells.iter_mut().for_each(|count| *count += 1);
        self.notify_all();
    }

    pub fn wish(&self) -> Stop {
        self.state.lock().stop
    }

    /// Returns the number of notifications of a thread, for [`Bench::sleep`].
    pub fn bells(&self, place: usize) -> u64 {
        self.state.lock().bells[place]
    }

    /// Sleeps until this time, until a notification that is not counted in `bells`, or until the stop request changes.
    pub fn sleep(&self, place: usize, until: Option<Instant>, bells: u64, wish: Stop) {
        let mut state = self.state.lock();
        while state.bells[place] == bells && state.stop == wish {
            match until {
                None => self.bells[place].wait(&mut state),
                Some(until) => {
                    if self.bells[place].wait_until(&mut state, until).timed_out() {
                        return;
                    }
                }
            }
        }
    }

    /// Sleeps for this time, or until a stop request.
    pub fn pause(&self, place: usize, length: Duration) {
        let until = Instant::now() + length;
        let mut state = self.state.lock();
        while state.stop == Stop::No && !self.bells[place].wait_until(&mut state, until).timed_out() {}
    }

    /// Sleeps while no jobs are reserved. Returns `false` if the thread must stop.
    pub fn await_rest(&self, place: usize) -> bool {
        let mut state = self.state.lock();
        while let Some(until) = state.rest.filter(|until| state.stop == Stop::No && *until > Instant::now()) {
            self.bells[place].wait_until(&mut state, until);
        }
        state.stop == Stop::No
    }

    /// Registers a thread that is about to wait for a job. Returns `false` if it must not wait.
    pub fn begin_waiting(&self, place: usize, closer: Closer) -> bool {
        let mut state = self.state.lock();
        if state.stop != Stop::No || state.rest.is_some_and(|until| until > Instant::now()) {
            return false;
        }
        state.idle.push((place, closer));
        true
    }

    /// Unregisters a waiting thread. Returns `false` if its connection was closed.
    pub fn end_waiting(&self, place: usize) -> bool {
        let mut state = self.state.lock();
        let found = state.idle.iter().position(|(waiting, _)| *waiting == place);
        found.map(|index| state.idle.swap_remove(index)).is_some()
    }

    /// Records the end of a thread. Returns the number of ended threads.
    pub fn leave(&self) -> usize {
        let mut state = self.state.lock();
        state.left += 1;
        state.left
    }
}
