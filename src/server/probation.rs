//! Authentication deadlines and delayed replies.
//!
//! Owns what one pool thread has to do about them, and when: a client that has not authenticated in time is
//! disconnected, and the reply to a wrong token is delayed, so that guessing is slow. All entries of a list wait
//! equally long, so the lists stay sorted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::gate::{AUTH_TIMEOUT, FAILED_AUTH_DELAY};

#[derive(Debug)]
pub struct Probation<T> {
    /// The deadline of each unauthenticated connection. The connection may have ended and its number may be reused.
    unauthenticated: VecDeque<(Instant, usize)>,
    /// Outboxes, and until when each holds back its last reply.
    delayed: VecDeque<(Instant, T)>,
}

impl<T> Default for Probation<T> {
    fn default() -> Probation<T> {
        Probation { unauthenticated: VecDeque::new(), delayed: VecDeque::new() }
    }
}

impl<T> Probation<T> {
    /// Adds a connection whose client must authenticate, and returns its deadline.
    pub fn enter(&mut self, number: usize) -> Instant {
        let until = Instant::now() + AUTH_TIMEOUT;
        self.unauthenticated.push_back((until, number));
        until
    }

    /// Delays the reply that is pending in `outbox`.
    pub fn delay(&mut self, outbox: T) {
        self.delayed.push_back((Instant::now() + FAILED_AUTH_DELAY, outbox));
    }

    /// Returns the next connection past its deadline, and the deadline.
    pub fn overdue(&mut self) -> Option<(Instant, usize)> {
        pop_due(&mut self.unauthenticated)
    }

    /// Returns the next outbox whose reply may be sent.
    pub fn next_released(&mut self) -> Option<T> {
        pop_due(&mut self.delayed).map(|(_, outbox)| outbox)
    }

    /// Time until the next deadline, or `None` if there is none.
    pub fn wait(&self) -> Option<Duration> {
        let unauthenticated = self.unauthenticated.front().map(|(at, _)| *at);
        let delayed = self.delayed.front().map(|(at, _)| *at);
        let next = unauthenticated.into_iter().chain(delayed).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}

fn pop_due<T>(list: &mut VecDeque<(Instant, T)>) -> Option<(Instant, T)> {
    if list.front()?.0 > Instant::now() {
        return None;
    }
    list.pop_front()
}
