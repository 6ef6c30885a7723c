//! The state shared by the threads of `work`: the stop request, and a notification of ended commands.
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
    /// Counts the ended commands of all threads.
    bells: u64,
    /// The connections of threads that wait for a job.
    idle: Vec<(usize, Closer)>,
    left: usize,
}

#[derive(Debug, Default)]
pub struct Bench {
    state: Mutex<State>,
    bell: Condvar,
}

impl Bench {
    /// Handles a stop signal; a second one is more urgent.
    pub fn stop(&self) {
        self.change(|stop| if stop == Stop::No { Stop::Soon } else { Stop::Now });
    }

    /// Stops reserving jobs, and lets running commands finish.
    pub fn finish(&self) {
        self.change(|stop| stop.max(Stop::Soon));
    }

    fn change(&self, wish: fn(Stop) -> Stop) {
        let mut state = self.state.lock();
        state.stop = wish(state.stop);
        state.idle.iter().for_each(|(_, closer)| closer.close());
        self.bell.notify_all();
    }

    pub fn wake(&self) {
        self.state.lock().bells += 1;
        self.bell.notify_all();
    }

    pub fn wish(&self) -> Stop {
        self.state.lock().stop
    }

    /// Returns the number of ended commands, for [`Bench::sleep`].
    pub fn bells(&self) -> u64 {
        self.state.lock().bells
    }

    /// Sleeps until this time, until a command ends that is not counted in `bells`, or until the stop request changes.
    pub fn sleep(&self, until: Option<Instant>, bells: u64, wish: Stop) {
        let mut state = self.state.lock();
        while state.bells == bells && state.stop == wish {
            match until {
                None => self.bell.wait(&mut state),
                Some(until) => {
                    if self.bell.wait_until(&mut state, until).timed_out() {
                        return;
                    }
                }
            }
        }
    }

    /// Sleeps for this time, or until a stop request.
    pub fn pause(&self, length: Duration) {
        let until = Instant::now() + length;
        let mut state = self.state.lock();
        while state.stop == Stop::No && !self.bell.wait_until(&mut state, until).timed_out() {}
    }

    /// Registers a thread that is about to wait for a job. Returns `false` if it must not wait.
    pub fn begin_waiting(&self, place: usize, closer: Closer) -> bool {
        let mut state = self.state.lock();
        if state.stop != Stop::No {
            return false;
        }
        state.idle.push((place, closer));
        true
    }

    /// Unregisters a waiting thread. Returns `false` if its connection was closed by a stop request.
    pub fn end_waiting(&self, place: usize) -> bool {
        let mut state = self.state.lock();
        state.idle.retain(|(waiting, _)| *waiting != place);
        state.stop == Stop::No
    }

    /// Records the end of a thread. Returns the number of ended threads.
    pub fn leave(&self) -> usize {
        let mut state = self.state.lock();
        state.left += 1;
        state.left
    }
}
