//! Authentication deadlines and delayed replies of one pool thread.
//!
//! Owns the deadlines of unauthenticated clients, and the delays of replies to wrong tokens, which slow down guessing.
//! All entries of a list have the same delay, so the lists stay sorted. Must not close connections.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::delivery::Outbox;
use super::gate::{AUTH_TIMEOUT, FAILED_AUTH_DELAY};

#[derive(Debug, Default)]
pub struct Probation {
    /// The deadline and number of each unauthenticated connection, which another may have replaced.
    unauthenticated: VecDeque<(Instant, usize)>,
    delayed: VecDeque<(Instant, Arc<Outbox>)>,
}

impl Probation {
    pub fn enter(&mut self, number: usize) -> Instant {
        let until = Instant::now() + AUTH_TIMEOUT;
        self.unauthenticated.push_back((until, number));
        until
    }

    pub fn delay(&mut self, outbox: Arc<Outbox>) {
        self.delayed.push_back((Instant::now() + FAILED_AUTH_DELAY, outbox));
    }

    pub fn overdue(&mut self) -> Option<(Instant, usize)> {
        pop_due(&mut self.unauthenticated)
    }

    pub fn next_released(&mut self) -> Option<Arc<Outbox>> {
        pop_due(&mut self.delayed).map(|(_, outbox)| outbox)
    }

    pub fn wait(&self) -> Option<Duration> {
        let next = [self.unauthenticated.front().map(|it| it.0), self.delayed.front().map(|it| it.0)];
        Some(next.into_iter().flatten().min()?.saturating_duration_since(Instant::now()))
    }
}

fn pop_due<T>(list: &mut VecDeque<(Instant, T)>) -> Option<(Instant, T)> {
    if list.front()?.0 > Instant::now() {
        return None;
    }
    list.pop_front()
}
