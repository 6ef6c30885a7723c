//! Idle connections of one pool thread: which ones to close, and when to check.
//!
//! Owns the time when each was last active. Connections are checked in batches, each of them [`LOOKS`] times per idle
//! timeout, so that a million connections cause no stall. A command only sets a flag; the time is taken at the next
//! check. So a connection is closed late, by up to the time between four checks, and never early. Must not know sockets
//! or the engine: the thread reports their state.

use std::ops::Range;
use std::time::Duration;

use super::clock::Clock;
use crate::engine::{Span, Time};

/// Number of checks per connection and timeout.
const LOOKS: u64 = 12;

/// Number of connections checked per batch.
const PORTION: usize = 256;

/// Number of connections closed per batch; each takes about 40 µs.
pub const CLOSINGS: usize = 16;

/// Minimum time between two batches.
const LEAST_STEP: Span = Span::from_millis(1);

#[derive(Clone, Copy, Debug)]
struct Silence {
    /// When the connection was last known to be active.
    since: Time,
    unread: usize,
    /// The client has sent something since the last check.
    heard: bool,
    /// The client was engaged at the last check, or may have become so since; its timeout starts when that ends.
    engaged: bool,
}

/// The result of a detailed check of a connection that may have been idle for too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientActivity {
    /// The client is waiting, sleeping or holding a job, or something that the server owes it is not ready to be sent.
    Engaged,
    /// This many bytes of replies are unread.
    Unread(usize),
}

#[derive(Debug)]
pub struct Idle {
    timeout: Span,
    connections: Vec<Silence>,
    cursor: usize,
    next: Time,
    /// The time of the last turn seen.
    last_turn: Time,
}

impl Idle {
    /// Enforces the idle `timeout`. Returns `None` without an idle timeout or with a manual clock.
    pub fn new(timeout: Option<u32>, clock: &Clock) -> Option<Idle> {
        let timeout = Span::from_secs(timeout.filter(|_| !clock.is_manual())?.into());
        Some(Idle { timeout, connections: Vec::new(), cursor: 0, next: clock.now(), last_turn: Time::default() })
    }

    pub fn timeout_secs(&self) -> u64 {
        self.timeout.secs()
    }

    pub fn enter(&mut self, number: usize) {
        let new = Silence { since: Time::default(), unread: 0, heard: true, engaged: false };
        if self.connections.len() <= number {
            self.connections.resize(number + 1, new);
        }
        self.connections[number] = new;
    }

    /// Records that the client has sent or read something.
    pub fn heard(&mut self, number: usize) {
        if let Some(silence) = self.connections.get_mut(number) {
            silence.heard = true;
        }
    }

    /// Returns the time with sufficient precision: that of the thread's last turn, if there was one since the last
    /// call.
    pub fn now(&mut self, turn: Time, clock: &Clock) -> Time {
        if turn == self.last_turn {
            return clock.now();
        }
        self.last_turn = turn;
        turn
    }

    /// Time until the next batch, or `None` if there is no connection.
    pub fn wait(&self, now: Time) -> Option<Duration> {
        (now < self.next).then(|| Duration::from_nanos(self.next.since(now).nanos()))
    }

    /// Returns the numbers of the next batch, some of which may be unused.
    pub fn portion(&mut self, now: Time) -> Range<usize> {
        let count = self.connections.len();
        let portions = count.div_ceil(PORTION).max(1) as u64;
        self.next = now + Span::from_nanos(self.timeout.nanos() / LOOKS / portions).max(LEAST_STEP);
        let start = if self.cursor < count { self.cursor } else { 0 };
        self.cursor = (start + PORTION).min(count);
        start..self.cursor
    }

    /// Schedules the next batch soon, starting with this connection: there are more connections to close than one batch
    /// handles.
    pub fn come_back(&mut self, number: usize, now: Time) {
        self.cursor = number;
        self.next = now + LEAST_STEP;
    }

    /// Returns `true` if this connection needs a detailed check. `busy`: the thread has work to do for it.
    pub fn is_suspect(&mut self, number: usize, busy: bool, now: Time) -> bool {
        let silence = &mut self.connections[number];
        if std::mem::take(&mut silence.heard) || busy {
            silence.since = now;
            // Only a client that sent something can have started to wait; the next check determines whether this one
            // has.
            silence.engaged = true;
            return false;
        }
        silence.engaged || now.since(silence.since) >= self.timeout
    }

    /// Evaluates a detailed check. Returns `true` if the connection must be closed.
    pub fn is_over(&mut self, number: usize, found: ClientActivity, now: Time) -> bool {
        let silence = &mut self.connections[number];
        let was_engaged = std::mem::replace(&mut silence.engaged, found == ClientActivity::Engaged);
        match found {
            ClientActivity::Engaged => {
                silence.since = now;
                silence.unread = 0;
                false
            }
            ClientActivity::Unread(unread) => {
                // Fewer than before, or none before: another client's command may have caused them.
                let before = std::mem::replace(&mut silence.unread, unread);
                let goes_on = was_engaged || unread < before || (before == 0 && unread > 0);
                if goes_on {
                    silence.since = now;
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
    fn without_a_limit_or_with_a_clock_moved_by_hand_nobody_is_looked_at() {
        assert!(Idle::new(None, &Clock::system()).is_none() && Idle::new(Some(1), &Clock::manual()).is_none());
    }

    #[test]
    fn all_are_looked_at_in_portions_spread_over_the_time() {
        let mut idle = idle(3 * PORTION - 1);
        let mut now = at(0);
        let portions: Vec<_> = (0..4)
            .map(|_| {
                let portion = idle.portion(now);
                let wait = idle.wait(now).expect("a time until the next one");
                assert!(wait <= Duration::from_secs(10) / 3 && wait > Duration::from_secs(3), "{wait:?}");
                now = now + Span::from_secs(10);
                assert_eq!(idle.wait(now), None);
                portion
            })
            .collect();
        assert_eq!(portions, [0..256, 256..512, 512..767, 0..256]);
        idle.come_back(7, now);
        assert!(idle.wait(now) == Some(Duration::from_millis(1)) && idle.portion(now) == (7..263));
        assert_eq!(super::Idle { connections: Vec::new(), ..idle }.portion(now), 0..0);
    }

    #[test]
    fn the_silent_are_closed_when_their_time_is_up() {
        let mut idle = idle(1);
        assert!(!idle.is_suspect(0, false, at(0)), "it has come just now");
        assert!(idle.is_suspect(0, false, at(10)) && !idle.is_over(0, ClientActivity::Unread(0), at(10)));
        assert!(!idle.is_suspect(0, false, at(129)));
        assert!(idle.is_suspect(0, false, at(130)) && idle.is_over(0, ClientActivity::Unread(0), at(130)));
        idle.heard(0);
        assert!(!idle.is_suspect(0, false, at(131)) && !idle.is_suspect(0, true, at(141)));
        assert!(idle.is_suspect(0, false, at(151)) && !idle.is_over(0, ClientActivity::Unread(0), at(151)));
        assert!(!idle.is_suspect(0, false, at(270)) && idle.is_suspect(0, false, at(271)));
    }

    #[test]
    fn after_a_wait_all_the_time_is_there_again() {
        let mut idle = idle(1);
        assert!(!idle.is_suspect(0, false, at(0)));
        for secs in [10, 20, 200] {
            assert!(idle.is_suspect(0, false, at(secs)) && !idle.is_over(0, ClientActivity::Engaged, at(secs)));
        }
        assert!(idle.is_suspect(0, false, at(210)) && !idle.is_over(0, ClientActivity::Unread(0), at(210)));
        assert!(!idle.is_suspect(0, false, at(329)));
        assert!(idle.is_suspect(0, false, at(330)) && idle.is_over(0, ClientActivity::Unread(0), at(330)));
    }

    #[test]
    fn who_reads_is_not_silent() {
        let mut idle = idle(1);
        assert!(!idle.is_suspect(0, false, at(0)) && idle.is_suspect(0, false, at(10)));
        assert!(!idle.is_over(0, ClientActivity::Unread(1000), at(10)));
        assert!(idle.is_suspect(0, false, at(130)) && !idle.is_over(0, ClientActivity::Unread(999), at(130)));
        assert!(!idle.is_suspect(0, false, at(249)) && idle.is_suspect(0, false, at(250)));
        assert!(idle.is_over(0, ClientActivity::Unread(999), at(250)), "nothing was read");
    }
}
