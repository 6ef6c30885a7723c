//! A server without threads and with a manual clock. The caller takes every step, so that runs are reproducible.
//!
//! Owns the order of the steps. The engine, the connections and the log are those of a real server. Must not listen on
//! an address.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use mio::Events;

use super::background;
use super::clock::Clock;
use super::connection::{Connection, Stage};
use super::delivery::WriteState;
use super::durability::Durability;
use super::hub::{Hub, TurnScratch};
use super::listener::Arrival;
use super::pool::{PoolThread, EVENTS};
use super::socket::{PeerAddress, Stream};
use super::space::{next_portion, SpaceTask};
use super::Server;
use crate::binlog::{Journal, JournalAccess, OpenError, Storage, Wal};
use crate::engine::{Engine, Span, Time};
use crate::protocol::{Output, Wire};
use crate::settings::config::Config;
use crate::shared::atomic::{AtomicU64, Ordering};

impl Server {
    #[doc(hidden)]
    pub fn check(&self) {
        self.hub.with_engine(|engine, _| engine.check());
    }
}

/// A server whose caller takes every step.
pub struct Stepped {
    hub: Arc<Hub>,
    pool: PoolThread,
    scratch: TurnScratch,
}

impl PoolThread {
    /// Polls once and serves connections. Returns `false` if there was nothing to do.
    pub fn round(&mut self) -> bool {
        let mut events = Events::with_capacity(EVENTS);
        self.owner.is_awake();
        let idle = self.queue.is_empty() && self.inbox.is_empty();
        self.wait(&mut events, Some(Duration::ZERO));
        let _ = self.serve(&events, true);
        !(idle && events.is_empty())
    }
}

impl Stepped {
    /// Starts a server at `now`, with a log in `storage`, if any. With `whole`, all due work is completed before the
    /// next command, and the time advances from deadline to deadline. Otherwise, long work is interrupted and continued
    /// after other commands.
    pub fn start(
        config: Config,
        storage: Option<Arc<dyn Storage>>,
        now: Time,
        whole: bool,
    ) -> Result<Stepped, OpenError> {
        let at = AtomicU64::new(now.nanos());
        let clock = if whole { Clock::Manual(at) } else { Clock::Stepped(at) };
        let hub = Arc::new(Hub::new(config, clock, storage, None, 1)?);
        let pool = PoolThread::new(hub.clone(), 0).map_err(|error| OpenError::File("a poller".to_owned(), error))?;
        Ok(Stepped { hub, pool, scratch: TurnScratch::default() })
    }

    /// Creates a connection that is served from the next poll on. Returns the client's socket in nonblocking mode.
    pub fn connect(&mut self, wire: Wire) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let (stream, peer) = (Stream::new(ours), PeerAddress::UNIX);
        let admitted = self.hub.admission.admit(&peer, wire == Wire::Http);
        admitted.map_err(|refusal| io::Error::other(refusal.reason()))?;
        self.pool.arrivals.add(Arrival { stream, peer, wire })?;
        Ok(theirs)
    }

    /// Polls once and serves connections, like [`PoolThread::round`].
    pub fn round(&mut self) -> bool {
        self.pool.round()
    }

    /// `true` if a client has sent commands after a command that is waiting. The order of the later commands relative
    /// to the commands of other clients is undefined.
    pub fn has_commands_behind(&self) -> bool {
        let waits = |connection: &Connection| {
            let state = connection.outbox.write_state(usize::MAX, connection.stage == Stage::Closing, true);
            matches!(state, WriteState::Waiting | WriteState::Blocked)
        };
        let sent = |it: &Connection| it.has_pending() || it.has_rest() || it.ready.readable;
        self.pool.connections.iter().any(|(_, it)| sent(it) && waits(it))
    }

    /// If the disk is fast, writes changes and (with `-f0`) syncs them, like a pool thread after serving connections.
    pub fn commit(&mut self) {
        self.hub.commit(&mut self.scratch.out);
    }

    /// Performs one pass of the timer thread. Returns `false` if the engine has no deferred work.
    pub fn timer(&mut self) -> bool {
        let left = self.hub.turn(&mut self.scratch, |core, _, _| core.engine.has_deferred());
        self.hub.clear_discarded();
        left
    }

    /// Advances the time by `span`. On the way, a server started with `whole` stops its clock at every deadline, and
    /// processes the deadline at that time.
    pub fn pass(&mut self, span: Span) {
        if self.hub.clock.is_manual() {
            return self.hub.pass(span);
        }
        self.hub.clock.set(self.hub.clock.now() + span);
    }

    /// Returns the current time, which only [`Stepped::pass`] changes.
    pub fn now(&self) -> Time {
        self.hub.clock.now()
    }

    /// Performs a pass of the syncer thread: writes and syncs the log, and releases replies whose changes are durable.
    pub fn sync(&mut self) {
        if let Some(log) = &self.hub.log {
            log.sync(&*self.hub, &mut Output::new());
        }
    }

    /// Performs one pass of the writer thread, which does not sync the log.
    pub fn write(&mut self) {
        if let Some(log) = &self.hub.log {
            log.wal.write(&*self.hub);
            log.release(&mut Output::new());
        }
    }

    /// Performs one pass of the segment thread.
    pub fn segments(&mut self) {
        if let Some(log) = &self.hub.log {
            self.make_segments(log);
        }
    }

    /// Creates the requested log space, or maintains the segments if no space is requested.
    fn make_segments(&self, log: &Durability) {
        let (space, wal, hub) = (&log.space, &log.wal, &*self.hub);
        space.reserved.store(0, Ordering::Relaxed);
        let task = {
            let mut state = space.state.lock();
            state.wants_space().then(|| next_portion(&mut state, background::portion(hub)))
        };
        if let Some(SpaceTask::Make(bytes, count)) = task {
            wal.reserve(hub, bytes);
            space.resume(count);
        } else {
            wal.maintain(hub, true);
        }
        log.write_compacted(hub);
        log.release(&mut Output::new());
    }

    /// Returns `true` if a command waits for space in the log.
    pub fn somebody_lacks_space(&self) -> bool {
        self.hub.log.as_ref().is_some_and(|log| !log.space.state.lock().waiting.is_empty())
    }

    /// Closes the log as a stopping server does.
    pub fn close(&mut self) {
        if let Some(log) = &self.hub.log {
            log.close(&*self.hub, self.hub.clock.now());
        }
    }

    /// Starts drain mode, in which new jobs are refused.
    pub fn drain(&self) {
        self.hub.drain();
    }

    /// Accepts new jobs again, like the command `undrain`.
    pub fn undrain(&self) {
        self.hub.with_engine(|engine, _| engine.set_draining(false));
    }

    /// Returns the log, or `None` if jobs are kept only in memory.
    pub fn wal(&self) -> Option<&Wal> {
        self.hub.log.as_ref().map(|log| &log.wal)
    }

    /// Calls `look` with read access to the engine.
    pub fn look<R>(&self, look: impl FnOnce(&Engine) -> R) -> R {
        self.hub.with_engine(|engine, _| look(engine))
    }

    /// Panics if the server has no log.
    pub fn with_journal<R>(&self, work: impl FnOnce(&mut Journal, &mut Engine) -> R) -> R {
        self.hub.with(work)
    }

    /// Panics if an invariant of the queue is violated.
    pub fn check(&self) {
        self.hub.with_engine(|engine, _| engine.check());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;

    use super::*;
    use crate::engine::State;

    /// More jobs than the server deletes before it serves other clients.
    const JOBS: usize = 400;

    fn rounds(server: &mut Stepped) {
        while server.round() || server.timer() {}
    }

    /// Starts a flush, and passes the connection to `end` after some deletions. Returns the numbers of remaining jobs
    /// and connections.
    fn left(end: impl FnOnce(UnixStream) -> Option<UnixStream>) -> (usize, usize) {
        let config = Config { turn_steps: 64, ..Config::default() };
        let mut server = Stepped::start(config, None, Time::from_nanos(1 << 60), false).expect("a server");
        let mut client = server.connect(Wire::Beanstalk).expect("a connection");
        for _ in 0..JOBS {
            client.write_all(b"put 0 0 10 1\r\nx\r\n").expect("space in the socket");
            rounds(&mut server);
        }
        let mut replies = vec![0; 64 * 1024];
        assert!(client.read(&mut replies).expect("replies") > 0);
        client.write_all(b"flush-tube default\r\n").expect("space in the socket");
        assert!(server.round());
        let ready =
            |server: &Stepped| server.look(|engine| engine.jobs().filter(|job| job.state() == State::Ready).count());
        assert!((1..JOBS).contains(&ready(&server)), "the flush must be in progress");
        let _client = end(client);
        rounds(&mut server);
        server.check();
        (ready(&server), server.look(|engine| engine.stats().connections))
    }

    #[test]
    fn a_flush_is_completed_whatever_its_client_does() {
        assert_eq!(left(Some), (0, 1));
        assert_eq!(left(|_| None), (0, 0), "the client has left without reading the reply");
        let says_no_more = |client: UnixStream| {
            client.shutdown(Shutdown::Write).expect("a connected client");
            Some(client)
        };
        assert_eq!(left(says_no_more), (0, 0), "the client may still read the reply");
    }
}
