//! A server without threads, whose clock stands still: each step is taken when its caller says so, and always the same
//! way.
//!
//! Owns nothing but the order in which the parts have their turns: the engine, the connections, their outputs, the pool
//! thread's rounds and the log are those of every server. For simulations; no address is listened on.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::clock::Clock;
use super::handle::ThreadHandle;
use super::hub::{Hub, TurnScratch};
use super::message::Message;
use super::pool::PoolThread;
use super::segments;
use super::socket::{PeerAddress, Stream};
use crate::binlog::{Journal, JournalAccess, OpenError, Storage, Wal};
use crate::engine::{Engine, Span, Time};
use crate::protocol::{Output, Wire};
use crate::settings::config::Config;
use crate::shared::atomic::AtomicU64;

/// A server whose parts have their turns when its caller says so.
pub struct Stepped {
    hub: Arc<Hub>,
    pool: PoolThread,
    owner: Arc<ThreadHandle>,
    scratch: TurnScratch,
}

impl Stepped {
    /// A server at this time, with a log if there is a storage for it. `whole`: each turn finishes what it begins, and
    /// time passes from deadline to deadline; else turns have their budgets, and what they leave undone waits.
    pub fn start(
        config: Config,
        storage: Option<Arc<dyn Storage>>,
        now: Time,
        whole: bool,
    ) -> Result<Stepped, OpenError> {
        let at = AtomicU64::new(now.nanos());
        let clock = if whole { Clock::Manual(at) } else { Clock::Stepped(at) };
        let hub = Arc::new(Hub::new(config, clock, storage, None, 1)?);
        let (pool, owner) =
            PoolThread::new(hub.clone()).map_err(|error| OpenError::File("a poller".to_owned(), error))?;
        Ok(Stepped { hub, pool, owner, scratch: TurnScratch::default() })
    }

    /// A new connection; the server hears of it in its next round. Returns the client's end, which does not block.
    pub fn connect(&mut self, wire: Wire) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let stream = Stream::Unix(mio::net::UnixStream::from_std(ours));
        let peer = PeerAddress::Unix;
        let permit = self.hub.admission().admit(&peer).map_err(|refusal| io::Error::other(refusal.reason()))?;
        self.owner.send(Message::Adopt(stream, peer, wire, permit));
        Ok(theirs)
    }

    /// One round of the pool thread: who has spoken is served. False if there was nothing to do.
    pub fn round(&mut self) -> bool {
        self.pool.round()
    }

    /// Whether a client has sent commands behind one that waits: who comes first, they or what another client sends, is
    /// open.
    pub fn has_commands_behind(&self) -> bool {
        self.pool.has_commands_behind()
    }

    /// What happens at the end of a round: what was done is brought to the log, if the disk is quick.
    pub fn commit(&mut self) {
        self.hub.commit(&mut self.scratch);
    }

    /// What the timer's thread does when its alarm rings. False if the engine has nothing left to do at this time.
    pub fn timer(&mut self) -> bool {
        let left = self.hub.turn(&mut self.scratch, |core, _, _| core.engine().has_deferred());
        self.hub.clear_discarded();
        left
    }

    /// Lets time pass; with `whole` turns, everything on the way happens at its own moment.
    pub fn pass(&mut self, span: Span) {
        if self.hub.clock().is_manual() {
            return self.hub.pass(span);
        }
        self.hub.clock().set(self.hub.clock().now() + span);
    }

    /// The time, which stands still between two calls of [`Stepped::pass`].
    pub fn now(&self) -> Time {
        self.hub.clock().now()
    }

    /// What the syncer does: writes and syncs, and lets go of the replies that waited for it.
    pub fn sync(&mut self) {
        if let Some(log) = self.hub.log() {
            log.sync(&*self.hub, &mut Output::new());
        }
    }

    /// What the writer does: writes without a sync.
    pub fn write(&mut self) {
        if let Some(log) = self.hub.log() {
            log.wal().write(&*self.hub);
            log.release(&mut Output::new());
        }
    }

    /// One round of the thread that makes and removes segments.
    pub fn segments(&mut self) {
        if let Some(log) = self.hub.log() {
            segments::round(&self.hub, log);
        }
    }

    /// Whether a command waits for space in the log.
    pub fn somebody_lacks_space(&self) -> bool {
        self.hub.log().is_some_and(|log| log.space().is_awaited())
    }

    /// Leaves the log in order, as at the end of a server.
    pub fn close(&mut self) {
        if let Some(log) = self.hub.log() {
            log.close(&*self.hub);
        }
    }

    /// No jobs are taken in any more.
    pub fn drain(&self) {
        self.hub.drain();
    }

    /// Accepts jobs again, as after the command `undrain`.
    pub fn undrain(&self) {
        self.hub.undrain();
    }

    /// What writes and syncs the log; none without one.
    pub fn wal(&self) -> Option<&Wal> {
        self.hub.log().map(|log| log.wal())
    }

    /// The engine, to look at.
    pub fn look<R>(&self, look: impl FnOnce(&Engine) -> R) -> R {
        self.hub.look(|engine, _| look(engine))
    }

    /// The journal and the engine; only with a log.
    pub fn with_journal<R>(&self, work: impl FnOnce(&mut Journal, &mut Engine) -> R) -> R {
        self.hub.with(work)
    }

    /// Panics unless the queue is in order.
    pub fn check(&self) {
        self.hub.check();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;

    use super::*;
    use crate::engine::State;

    /// Jobs, of which a turn deals with few.
    const JOBS: usize = 400;

    fn rounds(server: &mut Stepped) {
        while server.round() || server.timer() {}
    }

    /// How many jobs are left of those that a client flushes who, after one turn, does this with its connection, and
    /// how many connections.
    fn left(end: impl FnOnce(UnixStream) -> Option<UnixStream>) -> (usize, usize) {
        let config = Config { turn_steps: 64, ..Config::default() };
        let mut server = Stepped::start(config, None, Time::from_nanos(1 << 60), false).expect("a server");
        let mut client = server.connect(Wire::Beanstalk).expect("a connection");
        for _ in 0..JOBS {
            client.write_all(b"put 0 0 10 1\r\nx\r\n").expect("room for a job");
            rounds(&mut server);
        }
        let mut replies = vec![0; 64 * 1024];
        assert!(client.read(&mut replies).expect("replies") > 0);
        client.write_all(b"flush-tube default\r\n").expect("room for a command");
        assert!(server.round());
        let ready =
            |server: &Stepped| server.look(|engine| engine.jobs().filter(|job| job.state() == State::Ready).count());
        assert!((1..JOBS).contains(&ready(&server)), "it has begun, and is not done");
        let _client = end(client);
        rounds(&mut server);
        server.check();
        (ready(&server), server.look(|engine| engine.stats().connections))
    }

    #[test]
    fn a_flush_is_completed_whatever_its_client_does() {
        assert_eq!(left(Some), (0, 1));
        assert_eq!(left(|_| None), (0, 0), "its client is gone, and reads no answer");
        let says_no_more = |client: UnixStream| {
            client.shutdown(Shutdown::Write).expect("a client that is there");
            Some(client)
        };
        assert_eq!(left(says_no_more), (0, 0), "it may still read the answer");
    }
}
