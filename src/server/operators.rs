//! Connections of HTTP that take too long: which of one pool thread's are to be closed, and when to look.
//!
//! Owns the limits. There are few such connections, so each look sees all of them. Must not know sockets: the thread
//! tells how each stands.

use std::time::{Duration, Instant};

/// How long a connection may take until the first byte of its first request, and a request's head from its first byte
/// on.
const HEAD: Duration = Duration::from_secs(10);

/// How long anything else may take as a whole: a body to come, a reply to be read, the next request.
const REST: Duration = Duration::from_secs(60);

/// A long reply has a second more for each so many bytes.
const LEAST_RATE: usize = 16 * 1024;

/// How long one that asks for nothing keeps its place before those that never end what they ask for.
const FRESH: Duration = Duration::from_secs(1);

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(500);

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// For the server, which has something to do for it.
    Server,
    /// For the rest of a head.
    Head,
    /// For the rest of a body.
    Body,
    /// For its next request, or until the client has read this many more bytes of replies.
    Client(usize),
}

#[derive(Clone, Copy, Debug)]
struct Operator {
    number: usize,
    /// How many requests it had made, and how it stands.
    seen: (u64, Standing),
    /// Since when it has waited for the same thing, and how long it may. Progress within a body or a reply does not
    /// count: it could go on forever.
    since: Instant,
    most: Duration,
}

impl Operator {
    /// Takes note of how it stands now.
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

    /// Whether the server waits for it.
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
    /// One has come under this number.
    pub fn enter(&mut self, number: usize) {
        self.all.push(Operator { number, seen: (0, Standing::Client(0)), since: Instant::now(), most: HEAD });
        // It may be one more than there should be.
        self.looked = None;
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// It is gone, if it was one.
    pub fn leave(&mut self, number: usize) {
        self.all.retain(|operator| operator.number != number);
    }

    /// Returns the connections in the order in which they are closed: those whose time is over, which is `true` for
    /// them, then those that may make room for others: first those that wait for their next request, the longest
    /// first, and last those that have just come. Also returns how long the thread may sleep until the next look. `ask`
    /// returns how many requests each has made and how it stands.
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
            // It has just come, or was answered at some time since the last look.
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

    /// The numbers of those whose time is over.
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
        // A request has its time again, a part of a reply has not.
        let reads = |left| move |_| (2, Standing::Client(left));
        assert_eq!(over(&mut operators, at(62), reads(5)), []);
        assert_eq!(over(&mut operators, at(121), reads(1)), []);
        assert_eq!(over(&mut operators, at(122), reads(1)).len(), 5);
        // A long reply has longer.
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
