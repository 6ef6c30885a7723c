//! Clients that must prove who they are, and answers that are kept back.
//!
//! Owns what one pool thread has to do about them, and when: who has not proven who it is in time goes, and the answer
//! to a wrong token comes late, so that guessing is slow. Everything here waits for the same time, so that lists keep
//! the order.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::gate::{PENALTY, PROVE_WITHIN};

#[derive(Debug)]
pub struct Probation<T> {
    /// Until when the connection of this number must have proven something. It may be gone, and its number another's.
    strangers: VecDeque<(Instant, usize)>,
    /// Ways out of connections, and until when each keeps its last answer back.
    penalties: VecDeque<(Instant, T)>,
}

impl<T> Default for Probation<T> {
    fn default() -> Probation<T> {
        Probation { strangers: VecDeque::new(), penalties: VecDeque::new() }
    }
}

impl<T> Probation<T> {
    /// A connection must prove who its client is; until then.
    pub fn enter(&mut self, number: usize) -> Instant {
        let until = Instant::now() + PROVE_WITHIN;
        self.strangers.push_back((until, number));
        until
    }

    /// The answer that waits in `outbox` is kept back.
    pub fn punish(&mut self, outbox: T) {
        self.penalties.push_back((Instant::now() + PENALTY, outbox));
    }

    /// The next connection whose time is over, and since when.
    pub fn overdue(&mut self) -> Option<(Instant, usize)> {
        pop_due(&mut self.strangers)
    }

    /// The next one whose answer may leave.
    pub fn forgiven(&mut self) -> Option<T> {
        pop_due(&mut self.penalties).map(|(_, outbox)| outbox)
    }

    /// How long there is nothing to do; none if there is nothing at all.
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
