//! What the threads of `work` share: whether to stop, and a bell for the ends of commands.
//!
//! Owns the one race that matters: a thread that waits for a job is ended by closing its connection, one that has a
//! job is not. A job that arrives in that moment is ready again when its connection has ended.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::client::Closer;

/// How much is left to do.
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
    /// Counts the ends of commands, of whichever thread.
    bells: u64,
    /// Of threads that wait for a job.
    idle: Vec<(usize, Closer)>,
    left: usize,
}

#[derive(Debug, Default)]
pub struct Bench {
    state: Mutex<State>,
    bell: Condvar,
}

impl Bench {
    /// A signal that asks for the end, once more.
    pub fn stop(&self) {
        self.change(|stop| if stop == Stop::No { Stop::Soon } else { Stop::Now });
    }

    /// No more jobs are to be taken, and what runs may finish.
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

    /// How many ends of commands there were; to be handed to [`Bench::sleep`].
    pub fn bells(&self) -> u64 {
        self.state.lock().bells
    }

    /// Sleeps until then, or until a command ends that is not in `bells` yet, or the wish changes.
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

    /// Sleeps so long, or until it is to stop.
    pub fn pause(&self, length: Duration) {
        let until = Instant::now() + length;
        let mut state = self.state.lock();
        while state.stop == Stop::No && !self.bell.wait_until(&mut state, until).timed_out() {}
    }

    /// A thread is about to wait for a job; false if it must not.
    pub fn begin_waiting(&self, place: usize, closer: Closer) -> bool {
        let mut state = self.state.lock();
        if state.stop != Stop::No {
            return false;
        }
        state.idle.push((place, closer));
        true
    }

    /// It waits no more; false if its connection was closed for it.
    pub fn end_waiting(&self, place: usize) -> bool {
        let mut state = self.state.lock();
        state.idle.retain(|(waiting, _)| *waiting != place);
        state.stop == Stop::No
    }

    /// A thread ends; how many have.
    pub fn leave(&self) -> usize {
        let mut state = self.state.lock();
        state.left += 1;
        state.left
    }
}
