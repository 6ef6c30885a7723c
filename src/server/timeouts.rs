//! The time limits for one pool thread's connections, and the order in which connections are evicted. Must not access
//! sockets or the engine: the thread reports the state of its connections.

use std::time::{Duration, Instant};
use std::{collections::VecDeque, ops::Range, sync::Arc, sync::Weak};

use super::clock::Clock;
use super::delivery::Outbox;
use super::gate::{AUTH_TIMEOUT, FAILED_AUTH_DELAY, MAX_UNAUTHENTICATED};
use super::socket::PeerAddress;
use crate::engine::{Span, Time};

/// The time limit for the first byte on a connection, and for the rest of a request head.
const HTTP_HEAD: Duration = Duration::from_secs(10);

/// The time limit for receiving a body, for sending a reply, and for the pause before the next request.
const HTTP_REST: Duration = Duration::from_secs(60);

/// The time limit for a reply is one second longer for each `MIN_RATE` unread bytes.
const MIN_RATE: usize = 16 * 1024;

/// For this long after a connection was opened or received a reply, the server evicts it only as a last resort.
const FRESH: Duration = Duration::from_secs(1);

const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The rank (see [`HttpConnection::rank`]) of a connection that waits for the server.
pub const BUSY: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AwaitedPart {
    Server,
    Head,
    Body,
    /// The client must read this many bytes of replies, or send a request if the number is 0.
    Client(usize),
    /// The client has sent a wrong token, and the delay before the reply has not expired.
    Delay,
}

/// The number of HTTP requests on a connection, and what the connection waits for.
pub type HttpState = (u64, AwaitedPart);

#[derive(Clone, Copy, Debug)]
pub struct HttpConnection {
    pub number: usize,
    seen: HttpState,
    /// The start of the wait. Parts of a body or reply do not restart the wait, so slow clients cannot stay forever.
    since: Instant,
    limit: Duration,
}

impl HttpConnection {
    fn update(&mut self, (requests, awaited): HttpState, now: Instant) {
        let (requests_before, before) = std::mem::replace(&mut self.seen, (requests, awaited));
        let is_same = match (before, awaited) {
            // The client has read a part of the same reply.
            (AwaitedPart::Client(more), AwaitedPart::Client(less)) => less > 0 && less <= more || less == more,
            (one, other) => one == other,
        };
        if is_same && requests_before == requests {
            return;
        }
        self.since = now;
        self.limit = match awaited {
            AwaitedPart::Head => HTTP_HEAD,
            AwaitedPart::Client(0) if requests == 0 => HTTP_HEAD,
            AwaitedPart::Client(unread) => HTTP_REST + Duration::from_secs((unread / MIN_RATE) as u64),
            AwaitedPart::Body | AwaitedPart::Server | AwaitedPart::Delay => HTTP_REST,
        };
    }

    /// `true` if the client has sent a request, but no wrong token.
    pub fn is_used(&self) -> bool {
        self.seen.0 > 0 && self.seen.1 != AwaitedPart::Delay
    }

    /// Connections with lower ranks are evicted first.
    pub fn rank(&self, now: Instant) -> (usize, Instant) {
        let is_fresh = now.saturating_duration_since(self.since) < FRESH;
        let rank = match self.seen {
            (_, AwaitedPart::Server) => BUSY,
            (_, AwaitedPart::Delay) => 0,
            (0, AwaitedPart::Client(0) | AwaitedPart::Head) if !is_fresh => 1,
            (_, AwaitedPart::Client(0)) if !is_fresh => 2,
            // The connection is new, or its client has recently received a complete reply.
            (0, AwaitedPart::Client(0)) => 6,
            (_, AwaitedPart::Client(0)) => 5,
            _ => 3,
        };
        (rank, self.since)
    }
}

#[derive(Default)]
pub struct HttpConnections {
    pub all: Vec<HttpConnection>,
    checked: Option<Instant>,
}

impl HttpConnections {
    pub fn enter(&mut self, number: usize, since: Instant) {
        self.all.push(HttpConnection { number, seen: (0, AwaitedPart::Client(0)), since, limit: HTTP_HEAD });
        self.checked = None;
    }

    pub fn leave(&mut self, number: usize) {
        if let Some(index) = self.all.iter().position(|connection| connection.number == number) {
            self.all.swap_remove(index);
            self.checked = None;
        }
    }

    /// Returns `true` if the thread has no HTTP connections, and its last check has reported this to other threads.
    pub fn is_settled(&self) -> bool {
        self.all.is_empty() && self.checked.is_some()
    }

    /// If a check is due, returns the connections whose time limits have expired. Also returns the time until the next
    /// check. `ask` returns a connection's state.
    pub fn check(&mut self, now: Instant, ask: impl Fn(usize) -> HttpState) -> (Option<Vec<usize>>, Duration) {
        let passed = self.checked.map_or(CHECK_INTERVAL, |checked| now.saturating_duration_since(checked));
        if passed < CHECK_INTERVAL {
            return (None, CHECK_INTERVAL - passed);
        }
        self.checked = Some(now);
        self.all.iter_mut().for_each(|connection| connection.update(ask(connection.number), now));
        let is_over = |it: &&HttpConnection| {
            it.seen.1 != AwaitedPart::Server && now.saturating_duration_since(it.since) >= it.limit
        };
        (Some(self.all.iter().filter(is_over).map(|it| it.number).collect()), CHECK_INTERVAL)
    }
}

/// The number of checks per timeout. An idle connection is closed at most four check intervals late.
const CHECKS: u64 = 12;

const BATCH: usize = 256;

/// The maximum number of connections closed per batch. Closing a connection takes about 40 µs.
pub const MAX_CLOSED: usize = 16;

const MIN_INTERVAL: Span = Span::from_millis(1);

#[derive(Clone, Copy, Debug)]
struct IdleState {
    since: Time,
    unread: usize,
    is_active: bool,
    /// `true` if the client waits, sleeps, has a job or a delayed reply, or may have done so since the last check.
    engaged: bool,
}

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

    /// Returns `turn` (the time of the thread's last turn), or the current time if the last call had the same `turn`.
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

    /// Returns the numbers of the connections to check next. Some of the numbers may be unused.
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

    /// `busy` is `true` if the thread has work for the connection.
    pub fn needs_check(&mut self, number: usize, busy: bool, now: Time) -> bool {
        let state = &mut self.connections[number];
        if std::mem::take(&mut state.is_active) || busy {
            state.since = now;
            // The client might already be waiting for a job. The next check detects the wait.
            state.engaged = true;
            return false;
        }
        state.engaged || now.since(state.since) >= self.timeout
    }

    /// `unread` is the number of reply bytes that the client has not acknowledged, or `None` if the client waits,
    /// sleeps, holds a job, or has a delayed reply or command.
    pub fn is_timed_out(&mut self, number: usize, unread: Option<usize>, now: Time) -> bool {
        let state = &mut self.connections[number];
        let was_engaged = std::mem::replace(&mut state.engaged, unread.is_none());
        let before = std::mem::replace(&mut state.unread, unread.unwrap_or_default());
        // Fewer unread bytes mean that the client reads. An increase from 0 may be caused by another client.
        let reads = |unread| was_engaged || unread < before || (before == 0 && unread > 0);
        let goes_on = unread.is_none_or(reads);
        if goes_on {
            state.since = now;
        }
        !goes_on
    }
}

/// A group contains the unauthenticated clients of some addresses, or of Unix sockets. The hub and each client have a
/// reference to the group. If there are too many clients, the largest group must make room, so that the clients of one
/// address rarely affect others.
pub type ClientGroups = [Arc<()>; 32];

/// The number of clients among which the oldest of a group is searched for.
const SEARCHED: usize = 1024;

#[derive(Default)]
pub struct Probation {
    /// The deadline, number and group of each unauthenticated connection. Another connection may now have the number.
    unauthenticated: VecDeque<(Instant, (usize, usize))>,
    /// The references are weak, so that closing a connection closes its descriptor.
    delayed: VecDeque<(Instant, Weak<Outbox>)>,
}

impl Probation {
    /// Returns the deadline, and the reference that counts the client until it has authenticated.
    pub fn enter(&mut self, number: usize, peer: &PeerAddress, groups: &ClientGroups) -> Box<(Instant, Arc<()>)> {
        let (until, group) = (Instant::now() + AUTH_TIMEOUT, peer.hash() as usize % groups.len());
        self.unauthenticated.push_back((until, (number, group)));
        Box::new((until, groups[group].clone()))
    }

    pub fn delay(&mut self, outbox: &Arc<Outbox>) {
        self.delayed.push_back((Instant::now() + FAILED_AUTH_DELAY, Arc::downgrade(outbox)));
    }

    /// Returns the deadline and number of a connection to close if it has not authenticated: the deadline has passed,
    /// or the oldest of the largest group must make room. If connections run short, `spared` returns how many of these
    /// clients stay although they are fresh.
    pub fn overdue(&mut self, spared: impl Fn() -> Option<usize>, groups: &ClientGroups) -> Option<(Instant, usize)> {
        self.unauthenticated.front()?;
        let spared = spared();
        let counts = groups.each_ref().map(|group| Arc::strong_count(group) - 1);
        let max = spared.unwrap_or(MAX_UNAUTHENTICATED);
        let is_crowd = self.unauthenticated.len() > 1 && counts.iter().sum::<usize>() > max;
        let largest = (0..counts.len()).max_by_key(|group| counts[*group]).filter(|_| is_crowd);
        let place = largest.and_then(|largest| {
            let place = self.unauthenticated.iter().take(SEARCHED).position(|(_, (_, group))| *group == largest);
            // If the list is short, all clients of the group belong to other threads.
            place.or((self.unauthenticated.len() > SEARCHED).then_some(0))
        });
        let found = match place {
            Some(place) => self.unauthenticated.remove(place),
            None => pop_due(&mut self.unauthenticated, spared.map_or(Duration::ZERO, |_| AUTH_TIMEOUT - FRESH)),
        };
        found.map(|(until, (number, _))| (until, number))
    }

    pub fn next_released(&mut self) -> Option<Weak<Outbox>> {
        pop_due(&mut self.delayed, Duration::ZERO).map(|(_, outbox)| outbox)
    }

    pub fn wait(&self) -> Option<Duration> {
        let check = self.unauthenticated.front().map(|(due, _)| (*due).min(Instant::now() + CHECK_INTERVAL));
        let next = [check, self.delayed.front().map(|(due, _)| *due)];
        Some(next.into_iter().flatten().min()?.saturating_duration_since(Instant::now()))
    }
}

/// Returns the first entry if it is due, or becomes due within `early`.
fn pop_due<T>(list: &mut VecDeque<(Instant, T)>, early: Duration) -> Option<(Instant, T)> {
    list.front().filter(|(due, _)| *due <= Instant::now() + early)?;
    list.pop_front()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(connections: &mut HttpConnections, now: Instant, ask: impl Fn(usize) -> (u64, AwaitedPart)) -> Vec<usize> {
        connections.check(now, ask).0.expect("a check")
    }

    #[test]
    fn the_largest_group_of_unauthenticated_clients_makes_room() {
        let (mut probation, groups) = (Probation::default(), ClientGroups::default());
        let [near, far] = ["192.0.2.1:1", "192.0.2.2:1"].map(|text| {
            let peer = PeerAddress::new(text.parse().expect("an address"), false);
            assert_ne!(peer.hash() % 32, PeerAddress::UNIX.hash() % 32);
            peer
        });
        assert_ne!(near.hash() % 32, far.hash() % 32);
        let mut clients: Vec<_> = (0..20).map(|number| probation.enter(number, &near, &groups)).collect();
        clients.extend((20..MAX_UNAUTHENTICATED).map(|number| probation.enter(number, &far, &groups)));
        let mut next = || probation.overdue(|| None, &groups).map(|(_, number)| number);
        assert_eq!(next(), None);
        // These clients belong to another thread.
        let crowd = |peer: &PeerAddress| vec![groups[peer.hash() as usize % 32].clone(); MAX_UNAUTHENTICATED];
        for (peer, expected) in [(&far, Some(20)), (&near, Some(0)), (&PeerAddress::UNIX, None)] {
            let _crowd = crowd(peer);
            assert_eq!(next(), expected);
        }
    }

    #[test]
    fn a_head_has_ten_seconds_and_the_rest_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut connections = HttpConnections::default();
        assert!(!connections.is_settled());
        assert_eq!(connections.check(at(0), |_| unreachable!()), (Some(vec![]), CHECK_INTERVAL));
        assert!(connections.is_settled());
        (0..5).for_each(|number| connections.enter(number, start));
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

    fn ranked(connections: &HttpConnections, now: Instant) -> Vec<(usize, bool)> {
        let mut all: Vec<_> = connections.all.iter().map(|it| (it.rank(now), it.number, it.is_used())).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, number, is_used)| (number, is_used)).collect()
    }

    #[test]
    fn too_many_connections_close_the_longest_idle_ones() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut connections = HttpConnections::default();
        (0..4).for_each(|number| connections.enter(number, start));
        let busy = |number: usize| {
            [AwaitedPart::Body, AwaitedPart::Client(0), AwaitedPart::Client(0), AwaitedPart::Server][number]
        };
        let mut order = |seconds, requests: &dyn Fn(usize) -> u64| -> Vec<usize> {
            connections.check(at(seconds), |number| (requests(number), busy(number)));
            ranked(&connections, at(seconds)).into_iter().map(|it| it.0).collect()
        };
        order(1, &|number| u64::from(number == 1));
        order(2, &|_| 1);
        assert_eq!(order(5, &|_| 1), [1, 2, 0, 3]);
        order(6, &|number| u64::from(number == 1));
        assert_eq!(order(8, &|number| u64::from(number == 1)), [2, 1, 0, 3], "a connection without a request");
        order(9, &|_| 1);
        let refused = |number| (1, if number == 3 { AwaitedPart::Delay } else { busy(number) });
        let half = CHECK_INTERVAL / 2;
        assert_eq!(connections.check(at(11) - half, refused).0, Some(vec![]));
        assert_eq!(connections.check(at(11), |_| unreachable!()), (None, half));
        assert_eq!(ranked(&connections, at(11)), [(3, false), (1, true), (2, true), (0, true)]);
        connections.leave(1);
        assert_eq!(connections.check(at(11), refused).0, Some(vec![]), "other threads must know");
    }

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
                let wait = idle.wait(now).expect("a time until the next batch");
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
        assert!(!idle.needs_check(0, false, at(0)), "the connection was just accepted");
        assert!(idle.needs_check(0, false, at(10)) && !idle.is_timed_out(0, Some(0), at(10)));
        assert!(!idle.needs_check(0, false, at(129)));
        assert!(idle.needs_check(0, false, at(130)) && idle.is_timed_out(0, Some(0), at(130)));
        idle.mark_active(0);
        assert!(!idle.needs_check(0, false, at(131)) && !idle.needs_check(0, true, at(141)));
        assert!(idle.needs_check(0, false, at(151)) && !idle.is_timed_out(0, Some(0), at(151)));
        assert!(!idle.needs_check(0, false, at(270)) && idle.needs_check(0, false, at(271)));
    }

    #[test]
    fn the_timeout_restarts_after_a_wait() {
        let mut idle = idle(1);
        assert!(!idle.needs_check(0, false, at(0)));
        for secs in [10, 20, 200] {
            assert!(idle.needs_check(0, false, at(secs)) && !idle.is_timed_out(0, None, at(secs)));
        }
        assert!(idle.needs_check(0, false, at(210)) && !idle.is_timed_out(0, Some(0), at(210)));
        assert!(!idle.needs_check(0, false, at(329)));
        assert!(idle.needs_check(0, false, at(330)) && idle.is_timed_out(0, Some(0), at(330)));
    }

    #[test]
    fn a_client_that_reads_is_not_idle() {
        let mut idle = idle(1);
        assert!(!idle.needs_check(0, false, at(0)) && idle.needs_check(0, false, at(10)));
        assert!(!idle.is_timed_out(0, Some(1000), at(10)));
        assert!(idle.needs_check(0, false, at(130)) && !idle.is_timed_out(0, Some(999), at(130)));
        assert!(!idle.needs_check(0, false, at(249)) && idle.needs_check(0, false, at(250)));
        assert!(idle.is_timed_out(0, Some(999), at(250)), "nothing was read");
    }
}
