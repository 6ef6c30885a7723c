//! Authentication deadlines and delayed replies.
//!
//! Owns what one pool thread has to do about them, and when: a client that has not authenticated in time is
//! disconnected, and the reply to a wrong token is delayed, so that guessing is slow. All entries of a list wait
//! equally long, so the lists stay sorted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::gate::{PENALTY, PROVE_WITHIN};

#[derive(Debug)]
pub struct Probation<T> {
    /// The deadline of each unauthenticated connection. The connection may have ended and its number may be reused.
    strangers: VecDeque<(Instant, usize)>,
    /// Outboxes, and until when each holds back its last reply.
    penalties: VecDeque<(Instant, T)>,
}

impl<T> Default for Probation<T> {
    fn default() -> Probation<T> {
        Probation { strangers: VecDeque::new(), penalties: VecDeque::new() }
    }
}

impl<T> Probation<T> {
    /// Adds a connection whose client must authenticate, and returns its deadline.
    pub fn enter(&mut self, number: usize) -> Instant {
        let until = Instant::now() + PROVE_WITHIN;
        self.strangers.push_back((until, number));
        until
    }

    /// Delays the reply that is pending in `outbox`.
    pub fn punish(&mut self, outbox: T) {
        self.penalties.push_back((Instant::now() + PENALTY, outbox));
    }

    /// Returns the next connection past its deadline, and the deadline.
    pub fn overdue(&mut self) -> Option<(Instant, usize)> {
        pop_due(&mut self.strangers)
    }

    /// Returns the next outbox whose reply may be sent.
    pub fn forgiven(&mut self) -> Option<T> {
        pop_due(&mut self.penalties).map(|(_, outbox)| outbox)
    }

    /// Time until the next deadline, or `None` if there is none.
    pub fn wait(&self) -> Option<Duration> {
        let strangers = self.strangers.front().map(|(at, _)| *at);
        let penalties = self.penalties.front().map(|(at, _)| *at);
        let next = strangers.into_iter().chain(penalties).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}

fn pop_due<T>(list: &mut VecDeque<(Instant, T)>) -> Option<(Instant, T)> {
    if list.front()?.0 > Instant::now() {
        return None;
    }
    list.pop_front()
}
