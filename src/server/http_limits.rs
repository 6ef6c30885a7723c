//! Time limits for HTTP connections of one pool thread.
//!
//! Owns the time limits, and the order in which connections are closed. Every check covers all HTTP connections,
//! because their number is limited. Must not access sockets: the thread reports the state of each connection.

use std::time::{Duration, Instant};

/// For the first byte of a connection, and for the rest of a request head.
const HEAD: Duration = Duration::from_secs(10);

/// For receiving a body, for sending a reply, and for the pause before the next request.
const REST: Duration = Duration::from_secs(60);

/// This many unread reply bytes extend the limit by one second.
const MIN_RATE: usize = 16 * 1024;

/// A new connection without a request is not evicted for this long.
const FRESH: Duration = Duration::from_secs(1);

const CHECK_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AwaitedPart {
    Server,
    Head,
    Body,
    /// The client must read this many bytes of replies, or send a request if the number is 0.
    Client(usize),
    /// The client has sent a wrong token, and the delay before the reply has not ended.
    Delay,
}

#[derive(Clone, Copy, Debug)]
struct HttpConnection {
    number: usize,
    seen: (u64, AwaitedPart),
    /// The current wait. Progress within a body or a reply does not start a new wait, because a slow client could
    /// continue forever.
    since: Instant,
    limit: Duration,
}

impl HttpConnection {
    fn update(&mut self, seen: (u64, AwaitedPart), now: Instant) {
        let before = std::mem::replace(&mut self.seen, seen);
        let is_same = match (before.1, seen.1) {
            // The client has read a part of the same reply.
            (AwaitedPart::Client(more), AwaitedPart::Client(less)) => less > 0 && less <= more || less == more,
            (one, other) => one == other,
        };
        if is_same && before.0 == seen.0 {
            return;
        }
        self.since = now;
        self.limit = match seen.1 {
            AwaitedPart::Head => HEAD,
            AwaitedPart::Client(0) if seen.0 == 0 => HEAD,
            AwaitedPart::Client(unread) => REST + Duration::from_secs((unread / MIN_RATE) as u64),
            AwaitedPart::Body | AwaitedPart::Server | AwaitedPart::Delay => REST,
        };
    }
}

#[derive(Debug, Default)]
pub struct HttpConnections {
    all: Vec<HttpConnection>,
    checked: Option<Instant>,
}

impl HttpConnections {
    pub fn enter(&mut self, number: usize) {
        self.all.push(HttpConnection { number, seen: (0, AwaitedPart::Client(0)), since: Instant::now(), limit: HEAD });
        // The limit may be exceeded now.
        self.checked = None;
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn leave(&mut self, number: usize) {
        self.all.retain(|connection| connection.number != number);
    }

    /// Returns the connections that can be closed, in the order of closing, and the time until the next check.
    /// Connections past their time limit come first and are marked `true`. Then come those with a wrong token, those
    /// that have waited longest for their next request, and new connections. `ask` returns the state of a connection.
    pub fn check(
        &mut self,
        now: Instant,
        ask: impl Fn(usize) -> (u64, AwaitedPart),
    ) -> (Vec<(usize, bool)>, Option<Duration>) {
        if self.all.is_empty() {
            return (Vec::new(), None);
        }
        if self.checked.is_some_and(|checked| now.duration_since(checked) < CHECK_INTERVAL) {
            return (Vec::new(), Some(CHECK_INTERVAL));
        }
        self.checked = Some(now);
        self.all.iter_mut().for_each(|connection| connection.update(ask(connection.number), now));
        let is_awaited = |connection: &&HttpConnection| connection.seen.1 != AwaitedPart::Server;
        let mut awaited: Vec<&HttpConnection> = self.all.iter().filter(is_awaited).collect();
        let is_over = |connection: &HttpConnection| now.saturating_duration_since(connection.since) >= connection.limit;
        let rank = |connection: &HttpConnection| match connection.seen.1 {
            AwaitedPart::Delay => 0,
            AwaitedPart::Client(0) if now.saturating_duration_since(connection.since) >= FRESH => 1,
            // The connection is new, or was answered since the last check.
            AwaitedPart::Client(0) if connection.seen.0 == 0 => 4,
            AwaitedPart::Client(0) => 3,
            _ => 2,
        };
        awaited.sort_unstable_by_key(|connection| (!is_over(connection), rank(connection), connection.since));
        (awaited.iter().map(|connection| (connection.number, is_over(connection))).collect(), Some(CHECK_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(connections: &mut HttpConnections, now: Instant, ask: impl Fn(usize) -> (u64, AwaitedPart)) -> Vec<usize> {
        connections.check(now, ask).0.into_iter().filter(|(_, is_over)| *is_over).map(|(number, _)| number).collect()
    }

    #[test]
    fn a_head_has_ten_seconds_and_the_rest_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut connections = HttpConnections::default();
        assert_eq!(connections.check(at(0), |_| unreachable!()), (vec![], None));
        (0..5).for_each(|number| connections.enter(number));
        let awaited = |number: usize| {
            let all = [
                AwaitedPart::Head,
                AwaitedPart::Body,
                AwaitedPart::Client(5),
                AwaitedPart::Server,
                AwaitedPart::Client(0),
            ];
            (u64::from(number != 4), all[number])
        };
        for (seconds, expected) in [(1, vec![]), (12, vec![0, 4]), (60, vec![0, 4]), (61, vec![0, 4, 1, 2])] {
            let mut found = over(&mut connections, at(seconds), awaited);
            found.sort_by_key(|number| expected.iter().position(|other| other == number));
            assert_eq!(found, expected, "after {seconds} s");
        }
        // The time limit restarts with each request, but not with each part of a reply.
        let reads = |left| move |_| (2, AwaitedPart::Client(left));
        assert_eq!(over(&mut connections, at(62), reads(5)), []);
        assert_eq!(over(&mut connections, at(121), reads(1)), []);
        assert_eq!(over(&mut connections, at(122), reads(1)).len(), 5);
        // A longer reply has a longer time limit.
        assert_eq!(over(&mut connections, at(123), |_| (3, AwaitedPart::Client(10 * MIN_RATE))), []);
        assert_eq!(over(&mut connections, at(192), |_| (3, AwaitedPart::Client(MIN_RATE))), []);
        assert_eq!(over(&mut connections, at(193), |_| (3, AwaitedPart::Client(MIN_RATE))).len(), 5);
    }

    #[test]
    fn the_longest_idle_ones_go_when_there_are_too_many() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut connections = HttpConnections::default();
        (0..4).for_each(|number| connections.enter(number));
        let busy = |number: usize| {
            [AwaitedPart::Body, AwaitedPart::Client(0), AwaitedPart::Client(0), AwaitedPart::Server][number]
        };
        let mut order = |seconds, requests: fn(usize) -> u64| -> Vec<usize> {
            let found = connections.check(at(seconds), |number| (requests(number), busy(number))).0;
            found.into_iter().map(|(number, _)| number).collect()
        };
        order(1, |number| u64::from(number == 1));
        order(2, |_| 1);
        assert_eq!(order(5, |_| 1), [1, 2, 0]);
        let refused = |number| (1, if number == 3 { AwaitedPart::Delay } else { busy(number) });
        assert_eq!(connections.check(at(6), refused).0, [3, 1, 2, 0].map(|number| (number, false)));
    }
}
