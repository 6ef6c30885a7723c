//! Connections of HTTP that take too long: which of one pool thread's are to be closed, and when to look.
//!
//! Owns the limits. There are few such connections, so each look sees all of them. Must not know sockets: the thread
//! tells how each stands.

use std::time::{Duration, Instant};

/// How long a request's head may take, from the first byte that was seen of it.
const HEAD: Duration = Duration::from_secs(10);

/// How long anything else may take: a body to come, a reply to be read, the next request.
const REST: Duration = Duration::from_secs(60);

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
    /// How many requests it had made, and how it stood, when that changed last.
    seen: (u64, Standing),
    since: Instant,
}

#[derive(Debug, Default)]
pub struct Operators {
    all: Vec<Operator>,
    looked: Option<Instant>,
}

impl Operators {
    /// One has come under this number.
    pub fn enter(&mut self, number: usize) {
        self.all.push(Operator { number, seen: (0, Standing::Client(0)), since: Instant::now() });
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// It is gone, if it was one.
    pub fn leave(&mut self, number: usize) {
        self.all.retain(|operator| operator.number != number);
    }

    /// Those whose time is over, and how long the thread may sleep until the next look; `ask` tells how many requests
    /// each has made and how it stands.
    pub fn look(&mut self, now: Instant, ask: impl Fn(usize) -> (u64, Standing)) -> (Vec<usize>, Option<Duration>) {
        if self.all.is_empty() {
            return (Vec::new(), None);
        }
        if self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK) {
            return (Vec::new(), Some(LOOK));
        }
        self.looked = Some(now);
        let mut over = Vec::new();
        for operator in &mut self.all {
            let seen = ask(operator.number);
            if seen != operator.seen {
                (operator.seen, operator.since) = (seen, now);
            }
            let most = match seen.1 {
                Standing::Server => continue,
                Standing::Head => HEAD,
                Standing::Body | Standing::Client(_) => REST,
            };
            if now.saturating_duration_since(operator.since) >= most {
                over.push(operator.number);
            }
        }
        (over, Some(LOOK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_ten_seconds_and_the_rest_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut operators = Operators::default();
        assert_eq!(operators.look(at(0), |_| unreachable!()), (vec![], None));
        (0..4).for_each(|number| operators.enter(number));
        let standing = |number: usize| {
            [(1, Standing::Head), (1, Standing::Body), (1, Standing::Client(5)), (1, Standing::Server)][number]
        };
        for (seconds, over) in [(1, vec![]), (10, vec![]), (11, vec![0]), (60, vec![0]), (61, vec![0, 1, 2])] {
            assert_eq!(operators.look(at(seconds), standing).0, over, "after {seconds} s");
        }
        // Who makes requests or reads has its time again.
        assert_eq!(operators.look(at(62), |_| (2, Standing::Client(5))).0, []);
        assert_eq!(operators.look(at(63), |_| (2, Standing::Client(4))).0, []);
        operators.leave(0);
        assert_eq!(operators.look(at(123), |_| (2, Standing::Client(4))).0, [1, 2, 3]);
    }
}
