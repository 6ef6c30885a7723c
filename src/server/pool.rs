//! The threads that serve all connections. A connection stays with one thread, unless the disk blocks that thread and a
//! spare thread takes over that thread's state. Each socket is registered once, with edge-triggered readiness, so idle
//! clients, clients that do not read, and urgent data cost no system calls. Must not interpret requests.

use std::time::{Duration, Instant};
use std::{collections::VecDeque, io, ops::ControlFlow, os::fd::AsRawFd, sync::atomic::Ordering, sync::Arc};

use crossbeam_channel::{unbounded, Receiver, Sender};
use log::Level;
use mio::{Events, Poll, Token, Waker};
use slab::Slab;

use super::connection::{Connection, Next, Readiness, ThreadScratch, MAX_SHARES};
use super::delivery::{Message, Outbox, ThreadHandle};
use super::durability::{Bell, Durability};
use super::gate::LogLimit;
use super::hub::{Core, Hub, TurnScratch};
use super::listener::{Arrival, Arrivals};
use super::timeouts::{AwaitedPart, HttpConnections, Idle, Probation, MAX_CLOSED};
#[cfg(feature = "tls")]
use super::tls::TlsSession;
use crate::access::AccessTable;
use crate::protocol::{Output, Wire};
use crate::shared::lock_order::LeafMutex;

/// The token of the waker. The token of a connection is its file descriptor, which is smaller.
const WAKER: Token = Token(usize::MAX);

const VACANT: u32 = u32::MAX;

pub(super) const EVENTS: usize = 256;

/// The initial capacity of a thread's table. malloc maps tables of this size separately, so heaps do not fragment.
const FIRST_CONNECTIONS: usize = 4096;

/// The number of queued connections that are served before changes are written to the log.
const ROUNDS_PER_COMMIT: u32 = 8;

/// If N connections are active, the step budget of a turn is divided by N / `MANY_ACTIVE`, rounded down.
const MANY_ACTIVE: usize = 32;

/// While memory is short, connections that have been silent for `INACTIVE` are dropped at this interval.
const DROP_INTERVAL: Duration = Duration::from_millis(20);
const INACTIVE: Duration = Duration::from_secs(1);

/// After a shortage of this length, active connections can be dropped as well.
const MAX_SHORTAGE: Duration = Duration::from_secs(5);

/// A new access file is applied to this many connections before other work continues.
const RENEWALS: usize = 1024;

/// The maximum number of connections dropped in one batch.
const DROPPED: usize = 64;

/// A thread builds at most this many long lists at once, because each list can use much memory.
const LISTS: usize = 4;

/// Connections that use at most this many bytes are not dropped when memory is short.
const MIN_DROPPED: u64 = 4 * 1024;

/// The time limit for sending pending replies when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Limits for log lines that any client can cause: missing authentication, and too many HTTP clients.
static LATE: LogLimit = LogLimit::new();
static EXTRA: LogLimit = LogLimit::new();

/// Interval between checks for unsent replies.
const STOP_STEP: Duration = Duration::from_millis(20);

pub struct PoolThread {
    hub: Arc<Hub>,
    number: usize,
    poll: Poll,
    pub(super) owner: Arc<ThreadHandle>,
    pub(super) inbox: Receiver<Message>,
    pub(super) arrivals: Arc<Arrivals>,
    pub(super) connections: Slab<Connection>,
    /// Maps file descriptors to keys in `connections`, or [`VACANT`].
    numbers: Vec<u32>,
    pub(super) queue: VecDeque<usize>,
    /// The connections with a long list. The first [`LISTS`] are in `queue`, and the others wait.
    lists: VecDeque<usize>,
    rounds: u32,
    scratch: ThreadScratch,
    relieved: Option<Instant>,
    tight_since: Option<Instant>,
    quiescing: Vec<Sender<()>>,
    idle: Option<Idle>,
    http: HttpConnections,
    probation: Probation,
    /// The new access file, and the key of the next connection to which it will be applied.
    renewal: Option<(Arc<AccessTable>, usize)>,
}

impl PoolThread {
    pub fn new(hub: Arc<Hub>, number: usize) -> io::Result<PoolThread> {
        let poll = Poll::new()?;
        let (sender, inbox) = unbounded();
        let arrivals = Arc::new(Arrivals::new(poll.registry().try_clone()?));
        let waker = Waker::new(poll.registry(), WAKER)?;
        let owner = Arc::new(ThreadHandle::new(sender, waker, hub.memory.clone(), hub.config.lease.clone()));
        Ok(PoolThread {
            idle: Idle::new(hub.config.idle_timeout, &hub.clock),
            hub,
            number,
            poll,
            owner,
            inbox,
            arrivals,
            connections: Slab::with_capacity(FIRST_CONNECTIONS),
            numbers: Vec::new(),
            queue: VecDeque::new(),
            lists: VecDeque::new(),
            rounds: 0,
            scratch: ThreadScratch::new(),
            relieved: None,
            tight_since: None,
            http: HttpConnections::default(),
            probation: Probation::default(),
            renewal: None,
            quiescing: Vec::new(),
        })
    }

    /// Serves one queued connection between polls, so a client with one command waits for only one queued connection.
    pub fn run(mut self: Box<Self>, relief: &Relief) {
        let (mut events, mut spare) = (Events::with_capacity(EVENTS), Output::new());
        loop {
            // Commit only now, so that one write contains the changes of many commands on all connections.
            if self.queue.is_empty() || self.rounds >= ROUNDS_PER_COMMIT {
                self.rounds = 0;
                match self.commit(relief, &mut spare) {
                    Some(thread) => self = thread,
                    None => return,
                }
            }
            let http = self.close_http(Instant::now);
            let due = [self.close_idle(), self.drop_heavy(), http, self.close_unauthenticated(), self.renew()];
            let patience = due.into_iter().flatten().min();
            self.owner.will_sleep();
            let rests = self.queue.is_empty() && self.inbox.is_empty();
            let wait = if rests && self.quiescing.is_empty() { patience } else { Some(Duration::ZERO) };
            self.wait(&mut events, wait);
            self.owner.is_awake();
            if rests && events.is_empty() {
                self.quiescing.clear();
            }
            if self.serve(&events, !rests).is_break() {
                return self.stop(&mut events);
            }
        }
    }

    fn commit(self: Box<Self>, relief: &Relief, spare: &mut Output) -> Option<Box<Self>> {
        if !self.hub.log.as_ref().is_some_and(Durability::is_due) {
            self.hub.commit(spare);
            return Some(self);
        }
        let (hub, number) = (self.hub.clone(), self.number);
        relief.lent.lock()[number] = Some(self);
        if !relief.check.is_armed() {
            relief.check.ring_by(Instant::now() + RELIEF_CHECK);
        }
        hub.commit(spare);
        // The slot is empty if the write was slow and the spare thread has taken over.
        relief.lent.lock()[number].take()
    }

    /// Returns `Break` on [`Message::Stop`]. `has_messages` is `true` if the inbox may contain messages without an
    /// event from the waker, because senders do not wake a thread that is awake.
    pub(super) fn serve(&mut self, events: &Events, mut has_messages: bool) -> ControlFlow<()> {
        // If many connections are active, give each connection fewer steps to limit the delay of the last one.
        let count = events.iter().count();
        self.scratch.turn.step_divisor = (count / MANY_ACTIVE) as u64;
        // Connections do not share turns if slow commands are logged, because the log measures each connection's turns.
        self.scratch.is_shared = count > 1 && self.hub.config.threads > 2 && self.hub.config.slow.is_none();
        for event in events {
            if event.token() == WAKER {
                has_messages = true;
                continue;
            }
            if let Some(number) = self.number_of(event.token()) {
                let closed = event.is_read_closed() || event.is_write_closed() || event.is_error();
                let readiness = Readiness {
                    readable: event.is_readable(),
                    writable: event.is_writable() || closed,
                    urgent: event.is_priority(),
                    half_closed: closed,
                    gone: event.is_read_closed() && event.is_write_closed() || event.is_error(),
                };
                if let Some(idle) = &mut self.idle {
                    idle.mark_active(number);
                }
                self.on_ready(number, readiness, count > MANY_ACTIVE);
            }
        }
        if std::mem::take(&mut self.scratch.is_shared) && !self.scratch.joined.is_empty() {
            self.run_shared();
        }
        // Postpone messages beyond the first `MANY_ACTIVE`, so that connections can be served and changes written.
        let messages = if has_messages { self.inbox.len() } else { 0 };
        self.scratch.turn.step_divisor = (messages / MANY_ACTIVE) as u64;
        for _ in 0..messages.min(MANY_ACTIVE) {
            let Ok(message) = self.inbox.try_recv() else { break };
            match message {
                Message::Resume(number) => {
                    self.on_ready(number, Readiness { writable: true, ..Readiness::default() }, false);
                }
                Message::Renew(table) => self.renewal = Some((table, 0)),
                Message::Quiesce(waiting) => self.quiescing.push(waiting),
                Message::Stop => return ControlFlow::Break(()),
            }
        }
        self.scratch.turn.step_divisor = 0;
        if let Some(number) = self.queue.pop_front() {
            self.rounds += 1;
            if let Some(connection) = self.connections.get_mut(number) {
                connection.queued = false;
                self.work(number);
            }
        }
        ControlFlow::Continue(())
    }

    /// If memory is short, drops unauthenticated connections first, and then the heaviest connections. Drops active
    /// connections only if the shortage persists and buffers exceed their share. Returns the time until the next check.
    fn drop_heavy(&mut self) -> Option<Duration> {
        if !self.hub.memory.is_tight() {
            self.tight_since = None;
            // Other threads can cause a shortage while this thread sleeps.
            return self.hub.memory.has_droppable().then_some(INACTIVE);
        }
        let memory = self.hub.memory.clone();
        let now = Instant::now();
        if self.relieved.is_some_and(|at| now.duration_since(at) < DROP_INTERVAL) {
            return Some(DROP_INTERVAL);
        }
        let tight_since = *self.tight_since.get_or_insert(now);
        let is_over = now.duration_since(tight_since) >= MAX_SHORTAGE && memory.exceeds_buffers();
        let heavy = self.heavy(now, if is_over { Duration::ZERO } else { INACTIVE });
        // Dropping one active connection may be enough.
        for &(_, bytes, still, number) in heavy.iter().take(if is_over { 1 } else { DROPPED }) {
            if !memory.is_tight() {
                break;
            }
            let peer = self.connections[number].outbox.peer;
            log::warn!(
                "{peer}: dropped, since memory is short: it holds {bytes} bytes, and was last active {} s ago",
                still.as_secs()
            );
            self.hub.process.dropped.fetch_add(1, Ordering::Relaxed);
            self.close(number);
        }
        // Serve other connections before the next batch.
        let has_more = !is_over && heavy.len() > DROPPED && memory.is_tight();
        self.relieved = (!has_more).then_some(now);
        Some(if has_more { Duration::ZERO } else { DROP_INTERVAL })
    }

    /// Returns the connections in the order in which to drop them, as (unauthenticated, bytes, idle time, key).
    fn heavy(&self, now: Instant, patience: Duration) -> Vec<(bool, u64, Duration, usize)> {
        let mut heavy = Vec::new();
        for (number, connection) in &self.connections {
            let (bytes, since) = connection.memory_used();
            let still = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            if bytes > MIN_DROPPED && still >= patience && !connection.outbox.is_overflown() {
                heavy.push((connection.probation.is_some(), bytes, still, number));
            }
        }
        heavy.sort_unstable_by(|one, other| other.cmp(one));
        heavy
    }

    /// Closes unauthenticated connections, and sends delayed replies. Returns the time until the next check.
    fn close_unauthenticated(&mut self) -> Option<Duration> {
        while let Some((until, number)) =
            self.probation.overdue(|| self.hub.admission.spared(), &self.hub.unauthenticated)
        {
            let probation = self.connections.get(number).and_then(|connection| connection.probation.as_ref());
            if probation.is_some_and(|probation| probation.0 == until) {
                let peer = self.connections[number].outbox.peer;
                let is_evicted = until > Instant::now();
                let reason = if is_evicted { "dropped: too many connections, and it" } else { "closed: it" };
                LATE.log(Level::Info, format_args!("{peer}: {reason} has not authenticated in time"));
                self.hub.process.dropped.fetch_add(u64::from(is_evicted), Ordering::Relaxed);
                self.close(number);
            }
        }
        while let Some(outbox) = self.probation.next_released() {
            outbox.upgrade().into_iter().for_each(|outbox| outbox.release(&mut self.scratch.turn.out));
        }
        self.probation.wait()
    }

    /// Continues to apply a new access file. Returns the time until the next batch.
    fn renew(&mut self) -> Option<Duration> {
        let (table, from) = self.renewal.take()?;
        let end = from.saturating_add(RENEWALS);
        for number in from..end.min(self.connections.capacity()) {
            let Some(connection) = self.connections.get_mut(number) else { continue };
            if connection.access.as_mut().is_some_and(|access| !access.renew(&table)) {
                log::info!("{}: closed: the access file has changed", connection.outbox.peer);
                self.close(number);
            }
        }
        if end >= self.connections.capacity() {
            return None;
        }
        self.renewal = Some((table, end));
        Some(Duration::ZERO)
    }

    pub(super) fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) {
        if let Err(error) = self.poll.poll(events, timeout) {
            assert_eq!(error.kind(), io::ErrorKind::Interrupted, "waiting for connections: {error}");
            events.clear();
        }
    }

    /// Returns the key of a new or known connection, or `None` if the connection has been closed.
    fn number_of(&mut self, token: Token) -> Option<usize> {
        loop {
            if let Some(number) = self.numbers.get(token.0).filter(|number| **number != VACANT) {
                return Some(*number as usize);
            }
            // The arrivals form a queue, so adopt earlier connections first. Each connection has its own event.
            loop {
                let (arrival, is_match) = self.arrivals.take(token)?;
                self.register(arrival);
                if is_match {
                    break;
                }
            }
        }
    }

    /// Returns `None` if TLS is required but not available.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only TLS depends on the protocol"))]
    fn outbox(&self, Arrival { stream, peer, wire }: Arrival, number: usize) -> Option<Arc<Outbox>> {
        let outbox = Outbox::new(stream, peer, self.owner.clone(), number);
        if !peer.is_tls {
            return Some(Arc::new(outbox));
        }
        #[cfg(feature = "tls")]
        {
            let (config, lease) = (self.hub.tls.lock().clone()?, self.hub.config.lease.clone());
            match TlsSession::new(config, lease, wire.unit()) {
                Ok(session) => return Some(Arc::new(outbox.with_tls(session))),
                Err(error) => log::warn!("a connection with TLS cannot be begun: {error}"),
            }
        }
        None
    }

    fn register(&mut self, arrival: Arrival) {
        let (peer, wire, number) = (arrival.peer, arrival.wire, self.connections.vacant_key());
        let file = arrival.stream.as_raw_fd() as usize;
        // With TLS, the handshake identifies the client.
        let gate = self.hub.gate.as_ref().filter(|_| !peer.is_tls);
        let access = gate.map(|gate| Box::new(gate.client((&arrival.stream, peer), Vec::new())));
        let user = access.as_ref().and_then(|access| access.name());
        let Some(outbox) = self.outbox(arrival, number) else {
            return self.hub.admission.leave(&peer, wire == Wire::Http);
        };
        let connect = |core: &mut Core, _: &mut TurnScratch, now| core.connect(outbox.clone(), wire, user, now);
        let client = self.hub.turn(&mut self.scratch.turn, connect);
        log::debug!("{}: connected from {peer}", client.0);
        let mut connection = Connection::new(outbox, client, wire);
        if peer.is_tls || access.as_ref().is_some_and(|access| access.name().is_none()) {
            connection.probation = Some(self.probation.enter(number, &peer, &self.hub.unauthenticated));
        }
        access.into_iter().for_each(|access| connection.set_access(access));
        self.connections.insert(connection);
        if let Some(idle) = &mut self.idle {
            idle.enter(number);
        }
        if wire == Wire::Http {
            self.http.enter(number, Instant::now());
        }
        if self.numbers.len() <= file {
            self.numbers.resize(file + 1, VACANT);
        }
        self.numbers[file] = number as u32;
    }

    /// If many connections are active, light connections (see [`Connection::light`]) are served first.
    fn on_ready(&mut self, number: usize, readiness: Readiness, many_active: bool) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        connection.set_ready(readiness);
        if readiness.writable && !connection.flush(&mut self.scratch) {
            return self.close(number);
        }
        if connection.queued {
            return;
        }
        // In the queue, an unauthenticated client that has hung up would still count.
        let has_left = readiness.half_closed && connection.probation.is_some();
        if many_active && !connection.light && !has_left {
            connection.queued = true;
            return self.queue.push_back(number);
        }
        self.work(number);
    }

    fn work(&mut self, number: usize) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        self.scratch.others = !self.queue.is_empty() || self.scratch.turn.step_divisor > 1;
        let next = connection.work(&self.hub, &mut self.scratch);
        if let Some(outbox) = connection.take_delayed() {
            self.probation.delay(outbox);
            // Otherwise, a wrong token would protect a client of a server that requires no token.
            let (peer, groups) = (&connection.outbox.peer, &self.hub.unauthenticated);
            connection.probation.get_or_insert_with(|| self.probation.enter(number, peer, groups));
        }
        match next {
            Next::Wait if self.scratch.joined.len() == MAX_SHARES => self.run_shared(),
            Next::Wait => self.end_list(number),
            Next::Again => {
                // A second entry in the queue would double the connection's share of the time.
                if !std::mem::replace(&mut connection.queued, true) {
                    let is_long = connection.has_long_list();
                    self.enqueue(number, is_long);
                }
            }
            Next::Close => {
                connection.discard(&mut self.scratch);
                self.close(number);
            }
        }
    }

    fn enqueue(&mut self, number: usize, is_long: bool) {
        if !is_long {
            self.end_list(number);
        } else if !self.lists.iter().take(LISTS).any(|&other| other == number) {
            self.lists.push_back(number);
            if self.lists.len() > LISTS {
                return;
            }
        }
        self.queue.push_back(number);
    }

    fn end_list(&mut self, number: usize) {
        let Some(index) = self.lists.iter().take(LISTS).position(|&other| other == number) else { return };
        self.lists.remove(index);
        self.queue.extend(self.lists.get(LISTS - 1));
    }

    fn run_shared(&mut self) {
        let is_shared = std::mem::take(&mut self.scratch.is_shared); // Otherwise, shared turns could nest endlessly.
        let numbers: Vec<usize> = self.scratch.joined.iter().map(|(number, ..)| *number).collect();
        self.scratch.run_shared(&mut self.connections, &self.hub);
        numbers.into_iter().for_each(|number| self.work(number));
        self.scratch.is_shared = is_shared;
    }

    fn close_idle(&mut self) -> Option<Duration> {
        let idle = self.idle.as_mut()?;
        let now = idle.now(self.scratch.turn.now, &self.hub.clock);
        if let Some(wait) = idle.wait(now) {
            return Some(wait);
        }
        let mut suspects = Vec::new();
        for number in idle.next_batch(now) {
            let Some(connection) = self.connections.get(number) else { continue };
            if idle.needs_check(number, connection.queued, now) {
                suspects.push((number, connection, false));
            }
        }
        if !suspects.is_empty() {
            self.hub.turn(&mut self.scratch.turn, |core, _, _| {
                for (_, connection, engaged) in &mut suspects {
                    *engaged = core.engine.is_engaged(connection.client);
                }
            });
        }
        let timeout = idle.timeout.secs();
        let mut silent = Vec::new();
        for (number, connection, engaged) in suspects {
            if silent.len() == MAX_CLOSED {
                idle.resume_at(number, now);
                break;
            }
            let unread = if engaged { None } else { connection.outbox.unread() };
            if idle.is_timed_out(number, unread, now) {
                silent.push(number);
            }
        }
        let wait = idle.wait(now);
        for number in silent {
            let connection = &self.connections[number];
            log::info!("{}: closed: it was silent for {timeout} seconds", connection.outbox.peer);
            self.close(number);
        }
        wait
    }

    /// Returns the time until the next check.
    fn close_http(&mut self, now: impl Fn() -> Instant) -> Option<Duration> {
        if self.http.is_settled() {
            // Without HTTP connections, the clock need not be read.
            return None;
        }
        let (now, connections) = (now(), &self.connections);
        let (over, wait) = self.http.check(now, |number| connections[number].awaited());
        let Some(over) = over else { return Some(wait) };
        for number in over {
            let connection = &self.connections[number];
            let is_idle = matches!(connection.awaited(), (1.., AwaitedPart::Client(0)));
            let level = if is_idle { Level::Debug } else { Level::Info };
            log::log!(level, "{}: closed: it took too long", connection.outbox.peer);
            self.close(number);
        }
        for number in self.hub.admission.evict_http(self.number, &self.http.all, now) {
            let connection = &mut self.connections[number];
            connection.is_http = false;
            let peer = connection.outbox.peer;
            EXTRA.log(Level::Warn, format_args!("{peer}: dropped: too many HTTP connections, and the longest idle"));
            self.hub.process.dropped.fetch_add(1, Ordering::Relaxed);
            self.close(number);
        }
        Some(wait)
    }

    fn close(&mut self, number: usize) {
        self.http.leave(number);
        let mut connection = self.connections.remove(number);
        self.numbers[connection.outbox.stream.as_raw_fd() as usize] = VACANT;
        let operation = connection.take_operation();
        self.end_list(number);
        if connection.queued {
            self.queue.retain(|&other| other != number);
            self.lists.retain(|&other| other != number);
        }
        let client = connection.client;
        if connection.outbox.is_overflown() {
            log::warn!("{}: dropped: it does not read the events of its jobs", connection.outbox.peer);
        }
        log::debug!("{}: disconnected", client.0);
        self.hub.turn(&mut self.scratch.turn, |core, _, now| core.disconnect(client, operation, now));
        let (peer, is_http) = (connection.outbox.peer, connection.is_http);
        connection.free(&self.hub, self.poll.registry());
        self.hub.admission.leave(&peer, is_http);
    }

    fn stop(mut self: Box<Self>, events: &mut Events) {
        self.hub.commit(&mut self.scratch.turn.out);
        let end = Instant::now() + STOP_TIMEOUT;
        loop {
            let thread = &mut self.scratch;
            self.connections.retain(|_, connection| {
                let stays = connection.flush(thread) && !connection.is_drained();
                if !stays {
                    connection.discard(thread);
                }
                stays
            });
            let left = end.saturating_duration_since(Instant::now());
            if self.connections.is_empty() || left.is_zero() {
                return;
            }
            // A message means that a send has reached its limit. Nothing reports the end of events, so check regularly.
            let can_send = self.inbox.try_iter().count() > 0;
            self.wait(events, Some(if can_send { Duration::ZERO } else { left.min(STOP_STEP) }));
        }
    }
}

/// The interval at which the spare thread checks whether a write to the log blocks a pool thread.
const RELIEF_CHECK: Duration = Duration::from_millis(10);

/// The states of pool threads that write to the log. The spare thread takes over a state if the write takes too long.
pub struct Relief {
    lent: LeafMutex<Vec<Option<Box<PoolThread>>>>,
    pub(super) check: Bell,
}

impl Relief {
    pub fn new(threads: usize) -> Relief {
        Relief { lent: LeafMutex::new((0..threads).map(|_| None).collect()), check: Bell::default() }
    }

    pub fn wait(&self, log: &Durability) -> Option<Box<PoolThread>> {
        while self.check.wait(|| true) {
            let mut lent = self.lent.lock();
            let Some(state) = lent.iter_mut().find(|state| state.is_some()) else { continue };
            if log.wal.is_blocked() {
                return state.take();
            }
            drop(lent);
            // The disk may block the thread later in the same write.
            self.check.ring_by(Instant::now() + RELIEF_CHECK);
        }
        None
    }
}

#[path = "tests/shared_turns.rs"]
#[cfg(test)]
mod shared_turns;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::super::admission::MAX_HTTP;
    use super::super::clock::Clock;
    use super::super::gate::{Gate, MAX_UNAUTHENTICATED};
    use super::super::socket::{PeerAddress, Stream};
    use super::*;
    use crate::access::Digest;
    use crate::protocol::Host;
    use crate::settings::config::Config;

    /// The memory limit. Exceeds the memory of the test process, because the limit also applies to the process size.
    const MAX: u64 = 2 << 30;
    const CLIENTS: usize = 270;

    /// Returns a pool thread with an in-memory queue and `count` beanstalk connections, and the clients' sockets.
    fn thread_with_clients(count: usize) -> (PoolThread, Vec<UnixStream>) {
        thread_with(Config::embedded(), count)
    }

    fn thread_with(config: Config, count: usize) -> (PoolThread, Vec<UnixStream>) {
        let mut thread = thread_behind(None, config);
        let clients = (0..count).map(|_| connect(&mut thread, Wire::Beanstalk)).collect();
        (thread, clients)
    }

    fn thread_behind(gate: Option<Gate>, config: Config) -> PoolThread {
        let config = Config { max_memory: MAX, ..config };
        let hub = Arc::new(Hub::new(config, Clock::system(), None, gate, 0).expect("a queue in memory"));
        PoolThread::new(hub, 0).expect("a poller")
    }

    fn connect(thread: &mut PoolThread, wire: Wire) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        ours.set_nonblocking(true).expect("a socket");
        theirs.set_nonblocking(true).expect("a socket");
        thread.hub.admission.admit(&PeerAddress::UNIX, wire == Wire::Http).expect("an admitted connection");
        let arrival = Arrival { stream: Stream::new(ours), peer: PeerAddress::UNIX, wire };
        thread.arrivals.add(arrival).expect("a pollable socket");
        while thread.round() {}
        theirs
    }

    #[test]
    fn a_thread_closes_no_http_connection_before_an_older_one_of_another_thread() {
        let (mut one, _) = thread_with_clients(0);
        let mut other = PoolThread::new(one.hub.clone(), 1).expect("a poller");
        let mut clients: Vec<_> = (0..MAX_HTTP).map(|_| connect(&mut one, Wire::Http)).collect();
        one.close_http(Instant::now);
        clients.push(connect(&mut other, Wire::Http));
        other.close_http(Instant::now);
        assert_eq!((one.connections.len(), other.connections.len()), (MAX_HTTP, 1));
        clients.push(connect(&mut one, Wire::Http));
        one.close_http(Instant::now);
        assert_eq!((one.connections.len(), other.connections.len()), (MAX_HTTP - 1, 1));
    }

    #[test]
    fn an_http_connection_that_exceeds_a_time_limit_is_closed() {
        let body = b"POST /api/tubes/default/kick HTTP/1.1\r\nHost: localhost\r\nX-Beanpole: 1\r\n\
            Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{}";
        for (sent, limit) in [(&b""[..], 10), (b"GET /metr", 10), (body, 60)] {
            let (mut thread, _) = thread_with(Config::embedded().with(|it| it.protocols.http.admin = true), 0);
            let before = Instant::now();
            let mut client = connect(&mut thread, Wire::Http);
            say(&mut client, sent);
            while thread.round() {}
            let after = Instant::now();
            thread.close_http(|| after);
            // The time limit starts with the connection, or with the check that finds a part of a request.
            let start = if sent.is_empty() { before } else { after };
            thread.close_http(|| start + Duration::from_secs(limit - 1));
            assert_eq!(thread.connections.len(), 1, "{limit}");
            thread.close_http(|| after + Duration::from_secs(limit));
            assert!(thread.connections.is_empty(), "{limit}");
            let mut reply = String::new();
            client.read_to_string(&mut reply).expect("the end of the stream");
            assert_eq!(reply, "");
        }
    }

    #[test]
    fn an_http_client_that_reads_no_replies_to_pipelined_requests_is_closed() {
        let (mut thread, _) = thread_with(Config::embedded().with(|it| it.max_output = 1000), 0);
        let mut client = connect(&mut thread, Wire::Http);
        say(&mut client, &b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(400));
        while thread.round() {}
        assert!(thread.connections.iter().all(|(_, connection)| connection.has_pending()), "more requests must wait");
        let now = Instant::now();
        for (seconds, left) in [(0, 1), (59, 1), (600, 0)] {
            thread.close_http(|| now + Duration::from_secs(seconds));
            assert_eq!(thread.connections.len(), left, "after {seconds} s");
        }
    }

    /// Marks a client as unauthenticated from now on.
    fn distrust(thread: &mut PoolThread, number: usize) {
        let (peer, groups) = (thread.connections[number].outbox.peer, &thread.hub.unauthenticated);
        thread.connections[number].probation = Some(thread.probation.enter(number, &peer, groups));
    }

    // Tests promise P23 of beanpole-promises(7).
    #[test]
    fn unauthenticated_clients_leave_a_few_connections_to_others() {
        let (mut thread, _clients) = thread_with(Config::embedded().with(|it| it.max_connections = 8), 8);
        [2, 0].into_iter().for_each(|number| distrust(&mut thread, number));
        let wait = thread.close_unauthenticated().expect("another check");
        assert_eq!(thread.connections.len(), 8, "the clients have a second");
        assert!(wait <= Duration::from_millis(500), "another thread may need the connections");
        std::thread::sleep(Duration::from_secs(1));
        thread.close_unauthenticated();
        assert!(!thread.connections.contains(2), "the oldest must make room");
        assert_eq!(thread.connections.len(), 7, "one connection is enough");
        assert_eq!(thread.hub.process.usage().dropped_connections, 1);
        thread.connections[0].probation = None;
        assert!(thread.hub.admission.admit(&PeerAddress::UNIX, false).is_ok());
        thread.close_unauthenticated();
        assert_eq!(thread.connections.len(), 7, "an authenticated client must stay");
    }

    #[test]
    fn fresh_unauthenticated_clients_keep_at_most_a_quarter_of_few_connections() {
        let (mut thread, _clients) = thread_with(Config::embedded().with(|it| it.max_connections = 40), 40);
        (0..12).for_each(|number| distrust(&mut thread, number));
        thread.close_unauthenticated();
        assert_eq!(thread.connections.len(), 38);
        assert!(!thread.connections.contains(0) && !thread.connections.contains(1), "the oldest must make room");
        assert_eq!(thread.hub.process.usage().dropped_connections, 2);
    }

    // Tests promise P23 of beanpole-promises(7).
    #[test]
    fn a_dropped_client_with_a_wrong_token_has_no_descriptor() {
        let path = std::env::temp_dir().join(format!("beanpole-pool-access-{}", std::process::id()));
        std::fs::write(&path, format!("web token:sha256:{} all\n", "0".repeat(64))).expect("a file");
        let gate = || Some(Gate::open(&path).expect("a valid access file"));
        let head = &b"GET /api/tubes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n"[..];
        let cases =
            [(gate(), Wire::Beanstalk, &b"auth wrong\r\n"[..]), (gate(), Wire::Http, head), (None, Wire::Http, head)];
        std::fs::remove_file(&path).expect("a file");
        for (gate, wire, request) in cases {
            let mut thread = thread_behind(
                gate,
                Config::embedded().with(|it| {
                    it.max_connections = 100;
                    it.protocols.http.token = Some(Digest::of(b"secret"));
                }),
            );
            let (mut clients, mut outboxes) = (Vec::new(), Vec::new());
            for _ in 0..150 {
                let number = thread.connections.vacant_key();
                let mut client = connect(&mut thread, wire);
                say(&mut client, request);
                while thread.round() {}
                let outbox = &thread.connections[number].outbox;
                assert_eq!(outbox.unread(), None, "the refusal must be delayed");
                outboxes.push(Arc::downgrade(outbox));
                clients.push(client);
                thread.close_unauthenticated();
                thread.close_http(Instant::now);
            }
            let open = outboxes.iter().filter(|outbox| outbox.strong_count() > 0).count();
            assert_eq!(open, thread.connections.len());
            assert!(open < 100, "{open} connections");
            while received(&mut clients[0]) > 0 {}
            assert_eq!(clients[0].read(&mut [0]).expect("the end of the stream"), 0);
        }
    }

    #[test]
    fn a_client_that_hangs_up_after_a_wrong_token_frees_its_place() {
        let path = std::env::temp_dir().join(format!("beanpole-pool-hung-up-{}", std::process::id()));
        for anyone in ["", "* none look\n"] {
            std::fs::write(&path, format!("web token:sha256:{} all\n{anyone}", "0".repeat(64))).expect("a file");
            let gate = Gate::open(&path).expect("a valid access file");
            let mut thread = thread_behind(Some(gate), Config::embedded());
            let mut client = connect(&mut thread, Wire::Beanstalk);
            say(&mut client, b"auth wrong\r\n");
            while thread.round() {}
            assert!(thread.connections[0].probation.is_some(), "the client no longer has the rights of anyone");
            drop(client);
            while thread.round() {}
            assert!(thread.connections.is_empty(), "{anyone:?}");
        }
        std::fs::remove_file(&path).expect("a file");
    }

    #[test]
    fn unauthenticated_clients_that_have_hung_up_need_not_wait_for_their_turn() {
        let (mut thread, clients) = thread_with_clients(200);
        (0..200).for_each(|number| distrust(&mut thread, number));
        drop(clients);
        thread.round();
        assert!(thread.connections.is_empty());
    }

    #[test]
    fn new_unauthenticated_clients_replace_the_oldest_if_there_are_too_many() {
        let (mut thread, _clients) = thread_with_clients(3);
        (0..3).for_each(|number| distrust(&mut thread, number));
        let group = &thread.hub.clone().unauthenticated[PeerAddress::UNIX.hash() as usize % 32];
        let mut others: Vec<_> = (3..MAX_UNAUTHENTICATED).map(|_| group.clone()).collect();
        thread.close_unauthenticated();
        assert_eq!(thread.connections.len(), 3);
        others.push(group.clone());
        thread.close_unauthenticated();
        assert_eq!((thread.connections.len(), thread.connections.contains(0)), (2, false));
        others.extend((0..10).map(|_| group.clone()));
        thread.close_unauthenticated();
        assert_eq!((thread.connections.len(), thread.connections.contains(2)), (1, true), "the newest must stay");
        assert_eq!(thread.hub.process.usage().dropped_connections, 2);
    }

    fn say(client: &mut UnixStream, commands: &[u8]) {
        assert_eq!(client.write(commands).expect("space in the socket"), commands.len());
    }

    fn received(client: &mut UnixStream) -> usize {
        client.read(&mut [0; 4096]).unwrap_or(0)
    }

    // Tests promise P22 of beanpole-promises(7).
    #[test]
    fn a_light_client_waits_for_one_of_a_crowd_only() {
        let (mut thread, mut clients) = thread_with_clients(200);
        let mut bystander = clients.pop().expect("a client");
        say(&mut bystander, b"peek 1\r\n");
        while thread.round() {}
        assert_eq!(received(&mut bystander), 11);
        let commands = b"list-tubes\r\n".repeat(1000);
        clients.iter_mut().for_each(|client| say(client, &commands));
        say(&mut bystander, b"peek 1\r\n");
        thread.round();
        assert_eq!(received(&mut bystander), 11);
        let served = clients.iter_mut().map(received).filter(|bytes| *bytes > 0).count();
        assert_eq!(served, 1);
        clients.iter().for_each(|_| assert!(thread.round()));
        assert!(clients.iter_mut().map(received).filter(|bytes| *bytes > 0).count() >= 198);
    }

    #[test]
    fn few_long_lists_are_built_at_once() {
        const LISTERS: usize = 12;
        let (mut thread, mut clients) = thread_with_clients(LISTERS + 1);
        let mut producer = clients.pop().expect("a client");
        for part in 0..100 {
            let puts = |tube| format!("use {tube:0>199}\r\nput 0 0 9 0\r\n\r\n");
            say(&mut producer, (part * 100..part * 100 + 100).map(puts).collect::<String>().as_bytes());
            while thread.round() {}
            while received(&mut producer) > 0 {}
        }
        clients.iter_mut().for_each(|client| say(client, b"list-tubes\r\n"));
        let (mut bytes, mut peak) = ([0; LISTERS], 0);
        // Clients that leave must not keep others waiting.
        let mut leaving = vec![clients.swap_remove(0), clients.swap_remove(LISTERS / 2)];
        while thread.round() {
            peak = peak.max(thread.hub.memory.buffers());
            if thread.lists.len() > LISTERS / 2 {
                leaving.clear();
            }
            for (client, bytes) in clients.iter_mut().zip(&mut bytes) {
                while let count @ 1.. = received(client) {
                    *bytes += count;
                }
            }
        }
        let list = 10_000 * 202;
        assert!(leaving.is_empty() && bytes[..LISTERS - 2].iter().all(|bytes| *bytes > list), "{bytes:?}");
        assert!(peak < (LISTS * list + LISTERS * 768 * 1024) as u64, "{peak}");
        assert!(thread.lists.is_empty());
    }

    #[test]
    fn work_for_a_disconnected_client_stops() {
        const TUBES: usize = 1000;
        for command in ["list-tubes", "peek-reserved"] {
            let (mut thread, mut clients) = thread_with(Config::embedded().with(|it| it.turn_steps = 10), 2);
            let (mut client, mut producer) = (clients.pop().expect("a client"), clients.pop().expect("a client"));
            for tube in 1..=TUBES {
                say(&mut producer, format!("use {tube}\r\nput 0 0 900 0\r\n\r\nreserve-job {tube}\r\n").as_bytes());
                while thread.round() {}
                while received(&mut producer) > 0 {}
            }
            say(&mut client, b"use 1\r\n");
            while thread.round() {}
            assert_eq!(received(&mut client), 9);
            say(&mut client, format!("{command}\r\n").as_bytes());
            thread.round();
            assert_eq!((received(&mut client), thread.connections.len()), (0, 2), "{command} takes several turns");
            drop(client);
            let _ = (thread.round(), thread.round());
            assert_eq!(thread.connections.len(), 1, "{command}");
        }
    }

    fn ready_jobs(thread: &mut PoolThread, client: &mut UnixStream, tube: &str) -> u64 {
        say(client, format!("stats-tube {tube}\r\n").as_bytes());
        while thread.round() {}
        let mut text = [0; 4096];
        let length = client.read(&mut text).expect("a reply");
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        let figure = text.split("current-jobs-ready: ").nth(1).and_then(|rest| rest.lines().next());
        figure.map_or(0, |figure| figure.parse().expect("a number"))
    }

    fn put_jobs(thread: &mut PoolThread, client: &mut UnixStream, count: u64) {
        for _ in 0..count {
            say(client, b"put 0 0 9 0\r\n\r\n");
            while thread.round() {}
            received(client);
        }
    }

    // Tests promise P15 of beanpole-promises(7).
    #[test]
    fn flushes_and_moves_are_completed_after_their_clients_disconnect() {
        const JOBS: u64 = 3000;
        for (command, to) in [("flush-tube default", None), ("move-tube default to ready 2900", Some(2900))] {
            let (mut thread, mut clients) = thread_with_clients(2);
            let (mut bystander, mut client) = (clients.pop().expect("a client"), clients.pop().expect("a client"));
            put_jobs(&mut thread, &mut client, JOBS);
            say(&mut client, format!("{command}\r\n").as_bytes());
            thread.round();
            assert_eq!(received(&mut client), 0, "{command} takes several turns");
            drop(client);
            for _ in 0..JOBS {
                ready_jobs(&mut thread, &mut bystander, "default");
            }
            let left = to.map_or(0, |moved| JOBS - moved);
            assert_eq!(ready_jobs(&mut thread, &mut bystander, "default"), left, "{command}");
            assert_eq!(ready_jobs(&mut thread, &mut bystander, "to"), to.unwrap_or(0), "{command}");
        }
    }

    // Tests promise P22 of beanpole-promises(7).
    #[test]
    fn a_client_is_served_during_a_long_command_of_another_client() {
        const JOBS: u64 = 1000;
        for command in ["flush-tube default", "move-tube default to ready 1000"] {
            let (mut thread, mut clients) = thread_with(Config::embedded().with(|it| it.turn_steps = 10), 2);
            let (mut bystander, mut client) = (clients.pop().expect("a client"), clients.pop().expect("a client"));
            put_jobs(&mut thread, &mut client, JOBS);
            say(&mut client, format!("{command}\r\n").as_bytes());
            thread.round();
            say(&mut bystander, b"list-tube-used\r\n");
            let rounds = (1..=JOBS).find(|_| {
                thread.round();
                received(&mut bystander) > 0
            });
            assert!(rounds.is_some_and(|rounds| rounds <= 3), "{command}: a reply after {rounds:?} rounds");
            assert_eq!(received(&mut client), 0, "{command} must not be complete yet");
            while thread.round() {}
            assert!(received(&mut client) > 0, "{command}");
        }
    }

    #[test]
    fn only_as_many_clients_are_dropped_as_necessary() {
        let (mut thread, mut clients) = thread_with_clients(CLIENTS);
        // The clients request more data than their sockets accept, and read nothing.
        clients.iter_mut().for_each(|client| say(client, &b"stats\r\n".repeat(200)));
        while thread.round() {}
        let memory = thread.hub.memory.clone();
        let heavy = |thread: &PoolThread| {
            let mut all: Vec<u64> =
                thread.connections.iter().map(|(_, connection)| connection.memory_used().0).collect();
            all.sort_unstable();
            all
        };
        let before = heavy(&thread);
        assert!(before[0] > MIN_DROPPED, "{before:?}");
        std::thread::sleep(INACTIVE);
        assert!(!memory.is_tight(), "{} of {}", memory.waiting(), MAX / 4);
        thread.drop_heavy();
        assert_eq!(thread.connections.len(), CLIENTS, "enough memory is available");
        // Charge so much memory that the server must drop exactly the heaviest third of the clients.
        let third: u64 = before[CLIENTS / 3 * 2..].iter().sum();
        let others = MAX / 4 - memory.buffers() + third;
        memory.charge(0, others);
        let mut checks = 0;
        while memory.is_tight() {
            thread.drop_heavy();
            checks += 1;
        }
        assert_eq!(checks, (CLIENTS / 3).div_ceil(DROPPED), "checks without a pause between them");
        assert_eq!(heavy(&thread), before[..CLIENTS / 3 * 2], "the lighter clients must stay");
        // Memory of dropped connections stays charged until it is freed.
        assert!(memory.buffers() > MAX / 4);
        while memory.buffers() > MAX / 4 {
            thread.hub.clear_discarded();
        }
        assert_eq!(thread.hub.process.usage().dropped_connections, CLIENTS as u64 / 3);
        drop(clients);
    }

    /// Returns a thread whose clients read nothing and request more data than their sockets accept. The memory account
    /// is so full that one client must be dropped.
    fn crowded_thread() -> (PoolThread, Vec<UnixStream>) {
        let (mut thread, mut clients) = thread_with_clients(10);
        clients.iter_mut().for_each(|client| say(client, &b"stats\r\n".repeat(200)));
        while thread.round() {}
        let memory = &thread.hub.memory;
        memory.charge(0, MAX / 4 - memory.waiting() + 1);
        assert!(memory.is_tight());
        (thread, clients)
    }

    /// The log must name each dropped client once.
    #[test]
    fn a_client_that_does_not_read_its_events_is_dropped_once() {
        let (thread, _clients) = crowded_thread();
        let heavy = |thread: &PoolThread| thread.heavy(Instant::now(), Duration::ZERO);
        let heaviest = heavy(&thread)[0].3;
        thread.connections[heaviest].outbox.drop_client();
        let left = heavy(&thread);
        assert!(left.len() == 9 && left.iter().all(|(.., number)| *number != heaviest), "{left:?}");
    }

    #[test]
    fn unauthenticated_clients_are_dropped_first() {
        let (mut thread, _clients) = crowded_thread();
        let lightest = thread.connections.iter().min_by_key(|(_, connection)| connection.memory_used().0);
        let number = lightest.expect("a connection").0;
        let counted = thread.hub.unauthenticated[0].clone();
        thread.connections[number].probation = Some(Box::new((Instant::now() + MAX_SHORTAGE, counted)));
        std::thread::sleep(INACTIVE);
        thread.drop_heavy();
        assert!(!thread.connections.contains(number) && thread.connections.len() == 9);
        assert!(!thread.hub.memory.is_tight());
    }

    #[test]
    fn an_active_client_is_dropped_only_after_a_long_shortage() {
        let (mut thread, _clients) = crowded_thread();
        assert!(thread.heavy(Instant::now(), Duration::from_secs(3600)).is_empty());
        thread.tight_since = Instant::now().checked_sub(MAX_SHORTAGE);
        assert!(thread.tight_since.is_some());
        let heaviest = thread.heavy(Instant::now(), Duration::ZERO)[0].3;
        thread.drop_heavy();
        assert!(!thread.connections.contains(heaviest) && thread.connections.len() == 9);
    }
}
