//! Idle connections of one pool thread.
//!
//! Owns the time of the last activity of each connection, and the order of checks. Connections are checked in batches,
//! [`CHECKS`] times per idle timeout, so that a million connections cause no stall. Commands only set a flag, and the
//! next check reads the clock, so a connection is never closed early, and at most four check intervals late. Must not
//! access sockets or the engine: the thread reports the state of its connections.

use std::ops::Range;
use std::time::Duration;

use super::clock::Clock;
use crate::engine::{Span, Time};

const CHECKS: u64 = 12;

const BATCH: usize = 256;

/// Maximum connections closed per batch. Closing one takes about 40 µs.
pub const MAX_CLOSED: usize = 16;

const MIN_INTERVAL: Span = Span::from_millis(1);

#[derive(Clone, Copy, Debug)]
struct IdleState {
    since: Time,
    unread: usize,
    is_active: bool,
    /// `true` if the client was engaged at the last check, or may have become engaged since then. The timeout starts
    /// when the client is no longer engaged.
    engaged: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientActivity {
    /// The client waits, sleeps, holds a job, or has a delayed reply.
    Engaged,
    Unread(usize),
}

#[derive(Debug)]
pub struct Idle {
    pub timeout: Span,
    connections: Vec<IdleState>,
    cursor: usize,
    next: Time,
    last_turn: Time,
}

impl Idle {
    pub fn new(timeout: Option<u32>, clock: &Clock) -> Option<Idle> {
        let timeout = Span::from_secs(timeout.filter(|_| !clock.is_manual())?.into());
        Some(Idle { timeout, connections: Vec::new(), cursor: 0, next: clock.now(), last_turn: Time::default() })
    }

    pub fn enter(&mut self, number: usize) {
        let new = IdleState { since: Time::default(), unread: 0, is_active: true, engaged: false };
        if self.connections.len() <= number {
            self.connections.resize(number + 1, new);
        }
        self.connections[number] = new;
    }

    pub fn mark_active(&mut self, number: usize) {
        if let Some(state) = self.connections.get_mut(number) {
            state.is_active = true;
        }
    }

    /// Reads the clock only if `turn`, the time of the thread's last turn, has not changed since the last call.
    pub fn now(&mut self, turn: Time, clock: &Clock) -> Time {
        if turn == self.last_turn {
            return clock.now();
        }
        self.last_turn = turn;
        turn
    }

    pub fn wait(&self, now: Time) -> Option<Duration> {
        (now < self.next).then(|| Duration::from_nanos(self.next.since(now).nanos()))
    }

    /// Some of the numbers may be unused.
    pub fn next_batch(&mut self, now: Time) -> Range<usize> {
        let count = self.connections.len();
        let batches = count.div_ceil(BATCH).max(1) as u64;
        self.next = now + Span::from_nanos(self.timeout.nanos() / CHECKS / batches).max(MIN_INTERVAL);
        let start = if self.cursor < count { self.cursor } else { 0 };
        self.cursor = (start + BATCH).min(count);
        start..self.cursor
    }

    /// Schedules the next batch soon, starting with this connection, because [`MAX_CLOSED`] ended a batch early.
    pub fn resume_at(&mut self, number: usize, now: Time) {
        self.cursor = number;
        self.next = now + MIN_INTERVAL;
    }

    /// `busy` means that the thread has work for the connection.
    pub fn needs_check(&mut self, number: usize, busy: bool, now: Time) -> bool {
        let state = &mut self.connections[number];
        if std::mem::take(&mut state.is_active) || busy {
            state.since = now;
            // The client may wait for a job by now. The next check detects this.
            state.engaged = true;
            return false;
        }
        state.engaged || now.since(state.since) >= self.timeout
    }

    pub fn is_timed_out(&mut self, number: usize, found: ClientActivity, now: Time) -> bool {
        let state = &mut self.connections[number];
        let was_engaged = std::mem::replace(&mut state.engaged, found == ClientActivity::Engaged);
        match found {
            ClientActivity::Engaged => {
                state.since = now;
                state.unread = 0;
                false
            }
            ClientActivity::Unread(unread) => {
                // Fewer unread bytes mean that the client reads. An increase from 0 may be caused by another client.
                let before = std::mem::replace(&mut state.unread, unread);
                let goes_on = was_engaged || unread < before || (before == 0 && unread > 0);
                if goes_on {
                    state.since = now;
                }
                !goes_on
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: u32 = 120;

    fn at(secs: u64) -> Time {
        Time::default() + Span::from_secs(1_000_000 + secs)
    }

    fn idle(connections: usize) -> Idle {
        let mut idle = Idle::new(Some(TIMEOUT), &Clock::system()).expect("a limit");
        (0..connections).for_each(|number| idle.enter(number));
        idle
    }

    #[test]
    fn idle_connections_are_not_checked_without_a_timeout_or_with_a_manual_clock() {
        assert!(Idle::new(None, &Clock::system()).is_none() && Idle::new(Some(1), &Clock::manual()).is_none());
    }

    #[test]
    fn connections_are_checked_in_batches_spread_over_the_timeout() {
        let mut idle = idle(3 * BATCH - 1);
        let mut now = at(0);
        let batches: Vec<_> = (0..4)
            .map(|_| {
                let next_batch = idle.next_batch(now);
                let wait = idle.wait(now).expect("a time until the next one");
                assert!(wait <= Duration::from_secs(10) / 3 && wait > Duration::from_secs(3), "{wait:?}");
                now = now + Span::from_secs(10);
                assert_eq!(idle.wait(now), None);
                next_batch
            })
            .collect();
        assert_eq!(batches, [0..256, 256..512, 512..767, 0..256]);
        idle.resume_at(7, now);
        assert!(idle.wait(now) == Some(Duration::from_millis(1)) && idle.next_batch(now) == (7..263));
        assert_eq!(super::Idle { connections: Vec::new(), ..idle }.next_batch(now), 0..0);
    }

    #[test]
    fn idle_connections_are_closed_after_the_timeout() {
        let mut idle = idle(1);
        assert!(!idle.needs_check(0, false, at(0)), "it has come just now");
        assert!(idle.needs_check(0, false, at(10)) && !idle.is_timed_out(0, ClientActivity::Unread(0), at(10)));
        assert!(!idle.needs_check(0, false, at(129)));
        assert!(idle.needs_check(0, false, at(130)) && idle.is_timed_out(0, ClientActivity::Unread(0), at(130)));
        idle.mark_active(0);
        assert!(!idle.needs_check(0, false, at(131)) && !idle.needs_check(0, true, at(141)));
        assert!(idle.needs_check(0, false, at(151)) && !idle.is_timed_out(0, ClientActivity::Unread(0), at(151)));
        assert!(!idle.needs_check(0, false, at(270)) && idle.needs_check(0, false, at(271)));
    }

    #[test]
    fn the_timeout_restarts_after_a_wait() {
        let mut idle = idle(1);
        assert!(!idle.needs_check(0, false, at(0)));
        for secs in [10, 20, 200] {
            assert!(idle.needs_check(0, false, at(secs)) && !idle.is_timed_out(0, ClientActivity::Engaged, at(secs)));
        }
        assert!(idle.needs_check(0, false, at(210)) && !idle.is_timed_out(0, ClientActivity::Unread(0), at(210)));
        assert!(!idle.needs_check(0, false, at(329)));
        assert!(idle.needs_check(0, false, at(330)) && idle.is_timed_out(0, ClientActivity::Unread(0), at(330)));
    }

    #[test]
    fn a_client_that_reads_is_not_idle() {
        let mut idle = idle(1);
        assert!(!idle.needs_check(0, false, at(0)) && idle.needs_check(0, false, at(10)));
        assert!(!idle.is_timed_out(0, ClientActivity::Unread(1000), at(10)));
        assert!(idle.needs_check(0, false, at(130)) && !idle.is_timed_out(0, ClientActivity::Unread(999), at(130)));
        assert!(!idle.needs_check(0, false, at(249)) && idle.needs_check(0, false, at(250)));
        assert!(idle.is_timed_out(0, ClientActivity::Unread(999), at(250)), "nothing was read");
    }
}
