//! Slow HTTP connections of one pool thread: which ones to close, and when to check.
//!
//! Owns the limits. There are few such connections, so each check covers all of them. Must not know sockets: the thread
//! reports the state of each.

use std::time::{Duration, Instant};

/// Time limit for the first byte of the first request, and for a request's head from its first byte.
const HEAD: Duration = Duration::from_secs(10);

/// Time limit for anything else as a whole: receiving a body, sending a reply, waiting for the next request.
const REST: Duration = Duration::from_secs(60);

/// A long reply gets an extra second for each of this many bytes.
const LEAST_RATE: usize = 16 * 1024;

/// How long a new connection without a request keeps its place when others have requests that never end.
const FRESH: Duration = Duration::from_secs(1);

const LOOK: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The server, which has work to do for it.
    Server,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// Its next request, or the client, which has this many bytes of replies left to read.
    Client(usize),
}

#[derive(Clone, Copy, Debug)]
struct Operator {
    number: usize,
    /// Number of requests made, and the current state.
    seen: (u64, Standing),
    /// Since when it has waited for the same thing, and the limit. Progress within a body or a reply does not count: it
    /// could go on forever.
    since: Instant,
    most: Duration,
}

impl Operator {
    fn update(&mut self, seen: (u64, Standing), now: Instant) {
        let before = std::mem::replace(&mut self.seen, seen);
        let is_same = match (before.1, seen.1) {
            // Less of the same reply is left.
            (Standing::Client(more), Standing::Client(less)) => less > 0 && less <= more || less == more,
            (one, other) => one == other,
        };
        if is_same && before.0 == seen.0 {
            return;
        }
        self.since = now;
        self.most = match seen.1 {
            Standing::Head => HEAD,
            Standing::Client(0) if seen.0 == 0 => HEAD,
            Standing::Client(unread) => REST + Duration::from_secs((unread / LEAST_RATE) as u64),
            Standing::Body | Standing::Server => REST,
        };
    }

    /// Returns `true` if the server is waiting for the client.
    fn is_awaited(&self) -> bool {
        self.seen.1 != Standing::Server
    }
}

#[derive(Debug, Default)]
pub struct Operators {
    all: Vec<Operator>,
    looked: Option<Instant>,
}

impl Operators {
    pub fn enter(&mut self, number: usize) {
        self.all.push(Operator { number, seen: (0, Standing::Client(0)), since: Instant::now(), most: HEAD });
        // There may be one too many now.
        self.looked = None;
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn leave(&mut self, number: usize) {
        self.all.retain(|operator| operator.number != number);
    }

    /// Returns the connections in the order in which they are closed: those past their limit, marked `true`, then those
    /// that can make room for others: connections waiting for their next request, longest wait first, and finally new
    /// ones. Also returns how long the thread may sleep until the next check. `ask` returns the number of requests and
    /// the state of a connection.
    pub fn look(
        &mut self,
        now: Instant,
        ask: impl Fn(usize) -> (u64, Standing),
    ) -> (Vec<(usize, bool)>, Option<Duration>) {
        if self.all.is_empty() {
            return (Vec::new(), None);
        }
        if self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK) {
            return (Vec::new(), Some(LOOK));
        }
        self.looked = Some(now);
        self.all.iter_mut().for_each(|operator| operator.update(ask(operator.number), now));
        let mut awaited: Vec<&Operator> = self.all.iter().filter(|operator| operator.is_awaited()).collect();
        let is_over = |operator: &Operator| now.saturating_duration_since(operator.since) >= operator.most;
        let rank = |operator: &Operator| match operator.seen.1 {
            Standing::Client(0) if now.saturating_duration_since(operator.since) >= FRESH => 0,
            // It is new, or was answered since the last check.
            Standing::Client(0) if operator.seen.0 == 0 => 3,
            Standing::Client(0) => 2,
            _ => 1,
        };
        awaited.sort_by_key(|operator| (!is_over(operator), rank(operator), operator.since));
        (awaited.iter().map(|operator| (operator.number, is_over(operator))).collect(), Some(LOOK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of connections past their limit.
    fn over(operators: &mut Operators, now: Instant, ask: impl Fn(usize) -> (u64, Standing)) -> Vec<usize> {
        operators.look(now, ask).0.into_iter().filter(|(_, is_over)| *is_over).map(|(number, _)| number).collect()
    }

    #[test]
    fn a_head_has_ten_seconds_and_the_rest_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut operators = Operators::default();
        assert_eq!(operators.look(at(0), |_| unreachable!()), (vec![], None));
        (0..5).for_each(|number| operators.enter(number));
        let standing = |number: usize| {
            let all = [Standing::Head, Standing::Body, Standing::Client(5), Standing::Server, Standing::Client(0)];
            (u64::from(number != 4), all[number])
        };
        for (seconds, expected) in [(1, vec![]), (12, vec![0, 4]), (60, vec![0, 4]), (61, vec![0, 4, 1, 2])] {
            let mut found = over(&mut operators, at(seconds), standing);
            found.sort_by_key(|number| expected.iter().position(|other| other == number));
            assert_eq!(found, expected, "after {seconds} s");
        }
        // The limit restarts with each request, not with each part of a reply.
        let reads = |left| move |_| (2, Standing::Client(left));
        assert_eq!(over(&mut operators, at(62), reads(5)), []);
        assert_eq!(over(&mut operators, at(121), reads(1)), []);
        assert_eq!(over(&mut operators, at(122), reads(1)).len(), 5);
        // A longer reply has a longer limit.
        assert_eq!(over(&mut operators, at(123), |_| (3, Standing::Client(10 * LEAST_RATE))), []);
        assert_eq!(over(&mut operators, at(192), |_| (3, Standing::Client(LEAST_RATE))), []);
        assert_eq!(over(&mut operators, at(193), |_| (3, Standing::Client(LEAST_RATE))).len(), 5);
    }

    #[test]
    fn the_longest_idle_ones_go_when_there_are_too_many() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut operators = Operators::default();
        (0..4).for_each(|number| operators.enter(number));
        let busy = |number: usize| [Standing::Body, Standing::Client(0), Standing::Client(0), Standing::Server][number];
        let mut order = |seconds, requests: fn(usize) -> u64| -> Vec<usize> {
            let found = operators.look(at(seconds), |number| (requests(number), busy(number))).0;
            found.into_iter().map(|(number, _)| number).collect()
        };
        order(1, |number| u64::from(number == 1));
        order(2, |_| 1);
        assert_eq!(order(5, |_| 1), [1, 2, 0]);
    }
}
