//! The way out of one connection, open to every thread that has a reply for it.
//!
//! Owns the order of replies. Whoever has one appends it here while it holds the engine's lock, which fixes the order,
//! and flushes after letting go of that lock. One thread flushes at a time; another that comes meanwhile leaves its
//! bytes behind and goes on. So a reply can never overtake the one before it, a producer that hands a job to a waiting
//! worker writes it out itself, without waking the worker's thread, and no lock is held during a write.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Instant;

#[cfg(feature = "tls")]
use parking_lot::Mutex as LeafMutex;

use super::handle::ThreadHandle;
use super::memory::{Memory, CONNECTION_COST};
use super::message::Message;
use super::socket::Stream;
#[cfg(feature = "tls")]
use super::tls::{TlsSession, SESSION_COST};
use crate::protocol::Output;
use crate::shared::lease::Lease;
use crate::shared::lock_order::{Mutex, MutexGuard, OUTPUT};

/// Stretches of output handed to the kernel in one write.
const SLICES: usize = 16;

/// Writes in a row that one thread makes for a connection before its owner goes on: another's connection must not hold
/// up the timer, or a thread that has its own.
const ROUNDS: usize = 4;

/// A buffer above this capacity is given back rather than kept for the next replies. Those of pipelined commands must
/// be kept: to have the system map so much memory for each turn costs more than the commands.
const KEEP_BUFFER: usize = 512 * 1024;

/// An outbox with more than this to free when it ends is dropped where nobody waits for it.
const DISCARDED: u64 = 64 * 1024;

/// Bytes that a client may have to read already when it is told something unasked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewsLimits {
    /// As long as its socket takes what there is.
    pub reading: usize,
    /// When its socket took nothing more, when it was last tried.
    pub stuck: usize,
}

#[derive(Debug)]
pub struct Outbox {
    stream: Stream,
    owner: Arc<ThreadHandle>,
    /// The connection's number with its owner.
    token: usize,
    state: Mutex<OutboxState, OUTPUT>,
    /// If the peer speaks TLS. Locked alone, or under nothing but itself; a write and a read wait for each other, for
    /// both change it.
    #[cfg(feature = "tls")]
    tls: Option<LeafMutex<TlsSession>>,
}

#[derive(Debug, Default)]
struct OutboxState {
    output: Output,
    /// The client waits for an event; its commands stay unread until it has come.
    waiting: bool,
    /// Promises that the log has not kept yet. Until it has, nothing leaves and no command is read.
    holds: u32,
    /// The next command waits for space in the log.
    awaiting_space: bool,
    /// The owner wants to be told when the wait ends, or when another thread has sent everything.
    resume: bool,
    /// A thread writes to the socket with the lock released.
    flushing: bool,
    /// Another thread wanted to flush meanwhile: the one that writes looks again.
    again: bool,
    /// The peer is gone, or is given up: nothing is sent any more.
    broken: bool,
    /// Because it did not read its news.
    overflown: bool,
    /// Bytes of output that are on account, and how many of those will not be any more, for it was given up.
    charged: u64,
    leaving: u64,
    /// When the socket took no more, and has taken nothing since.
    stuck: Option<Instant>,
}

impl OutboxState {
    /// Takes the output on account as it is, unless a thread is writing: it charges when it has finished. Up to what
    /// every connection is counted for anyway, nothing is.
    fn charge(&mut self, memory: &Memory) {
        if self.flushing || self.charged == 0 && self.output.is_empty() {
            return;
        }
        let mut footprint = self.output.footprint();
        if footprint > CONNECTION_COST && footprint / 4 > self.output.len() as u64 {
            // A thread's large buffer, which came with a short reply.
            self.output.shrink();
            footprint = self.output.footprint();
        }
        let charged = footprint.saturating_sub(CONNECTION_COST);
        memory.charge(self.charged, charged);
        self.charged = charged;
    }

    /// The socket takes no more for now, after it took some of it or not.
    fn block(&mut self, some: bool) {
        if some || self.stuck.is_none() {
            self.stuck = Some(Instant::now());
        }
    }

    /// The client does not read its news. True if its owner must be told. What waits stays until the connection is
    /// dropped, for to free it takes long.
    fn overflow(&mut self, memory: &Memory) -> bool {
        self.overflown |= !self.broken;
        self.leave(memory);
        !std::mem::replace(&mut self.broken, true)
    }

    /// What is on account will soon be no more.
    fn leave(&mut self, memory: &Memory) {
        memory.leave(self.leaving, self.charged);
        self.leaving = self.charged;
    }
}

/// What the owner may do with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteState {
    /// The owner may read, and replies through the outbox.
    Open,
    /// The same, and nothing waits here, neither bytes nor the client: until the owner says otherwise, nobody else
    /// touches the output, and the owner may [`Outbox::send`] without asking again.
    Clear,
    /// The client waits for an event.
    Waiting,
    /// Its replies wait for the log.
    AwaitingDurability,
    /// Its next command waits for space in the log.
    AwaitingSpace,
    /// Too much output waits for the client to read it.
    Full,
    /// All there was to send is sent; only asked for when closing.
    Drained,
    /// Nothing more can be sent.
    Broken,
}

/// What a flush came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    Done,
    /// Something is left, which the socket or another thread will take later.
    Later,
    Broken,
}

impl Outbox {
    /// Of a new connection, number `token` of `owner`.
    pub fn new(stream: Stream, owner: Arc<ThreadHandle>, token: usize) -> Arc<Outbox> {
        Arc::new(Outbox {
            stream,
            owner,
            token,
            state: Mutex::default(),
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// The same for a peer that speaks TLS.
    #[cfg(feature = "tls")]
    pub fn with_tls(stream: Stream, owner: Arc<ThreadHandle>, token: usize, session: TlsSession) -> Arc<Outbox> {
        owner.memory.charge(0, SESSION_COST);
        Arc::new(Outbox { stream, owner, token, state: Mutex::default(), tls: Some(LeafMutex::new(session)) })
    }

    /// The state of its encryption, if the peer speaks TLS.
    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<&LeafMutex<TlsSession>> {
        self.tls.as_ref()
    }

    /// Bytes that the peer's TLS takes beside what every session takes; 0 without TLS.
    pub fn encryption(&self) -> u64 {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.lock().footprint();
        }
        0
    }

    /// Sends what is encrypted and not gone; false if the peer is gone.
    pub fn push(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return match tls.lock().push(&self.stream) {
                Err(error) => error.kind() == ErrorKind::WouldBlock,
                Ok(()) => true,
            };
        }
        true
    }

    /// The last words, if the socket takes them.
    pub fn say_end(&self) {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            tls.lock().close(&self.stream);
        }
    }

    /// Writes until nothing is left or an error, which may be that the socket is full.
    fn transmit(&self, output: &mut Output) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.lock().send(&self.stream, output);
        }
        send(&self.stream, &self.owner.lease, output)
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Appends the owner's own replies, with the engine locked. `waits`: the last command has no reply yet, and the
    /// client waits for it. `held`: nothing leaves before [`Outbox::release`]. True if there is something to send.
    pub fn reply(&self, out: &mut Output, waits: bool, held: bool) -> bool {
        let mut state = self.state.lock();
        if state.broken {
            // Something in front of it is missing, so it must not be sent.
            *out = Output::new();
        }
        // Else the thread's buffer would stay behind with a client that waits.
        if !out.is_empty() {
            state.output.append(out);
        }
        state.waiting = waits;
        state.holds += u32::from(held);
        state.charge(&self.owner.memory);
        !state.output.is_empty() && state.holds == 0
    }

    /// Bytes that wait to be read, shared ones too, and since when none of them was sent.
    pub fn burden(&self) -> (u64, Option<Instant>) {
        let state = self.state.lock();
        (state.charged + state.output.shared() as u64, state.stuck)
    }

    /// Nobody will send any more: what is on account counts as on its way back. True if it is so much that to free it
    /// takes long.
    pub fn leave(&self) -> bool {
        let mut state = self.state.lock();
        state.leave(&self.owner.memory);
        state.charged + state.output.shared() as u64 > DISCARDED
    }

    /// News that come next promise what the log does not hold yet: nothing leaves before [`Outbox::release`]. With the
    /// engine locked.
    pub fn hold(&self) {
        self.state.lock().holds += 1;
    }

    /// The log holds what the output promises.
    pub fn release(&self, spare: &mut Output) {
        let mut state = self.state.lock();
        state.holds -= 1;
        // Also while the client waits: its owner may have seen a half-close that it could not act upon.
        let resume = std::mem::take(&mut state.resume);
        self.flush_locked(state, spare);
        if resume {
            self.wake_owner();
        }
    }

    /// The owner's next command waits for space in the log until [`Outbox::has_space`]. With the engine locked.
    pub fn await_space(&self) {
        self.state.lock().awaiting_space = true;
    }

    /// There is space in the log.
    pub fn has_space(&self) {
        let mut state = self.state.lock();
        state.awaiting_space = false;
        let resume = std::mem::take(&mut state.resume);
        drop(state);
        if resume {
            self.wake_owner();
        }
    }

    /// Appends news, which end the client's wait if it waits, with the engine locked. True if its owner must be told. A
    /// client that has more to read already than the limits say is given up: news come whether it reads or not.
    pub fn tell(&self, out: &mut Output, limits: NewsLimits) -> bool {
        let mut state = self.state.lock();
        let most = if state.stuck.is_some() { limits.stuck } else { limits.reading };
        if state.broken || state.output.len() > most {
            *out = Output::new();
            return state.overflow(&self.owner.memory);
        }
        state.output.append(out);
        state.charge(&self.owner.memory);
        state.waiting = false;
        std::mem::take(&mut state.resume)
    }

    /// The same for more news than that which came of the client's own command.
    pub fn give_up(&self) -> bool {
        self.state.lock().overflow(&self.owner.memory)
    }

    /// Whether it was given up because it did not read its news.
    pub fn is_overflown(&self) -> bool {
        self.state.lock().overflown
    }

    /// Bytes of replies that the peer has not taken yet; none if it is the log that keeps the peer waiting.
    pub fn unread(&self) -> Option<usize> {
        let state = self.state.lock();
        (state.holds == 0 && !state.awaiting_space).then(|| state.output.len() + self.stream.unsent())
    }

    /// Has the owner look at the connection again.
    pub fn wake_owner(&self) {
        self.owner.send(Message::Resume(self.token));
    }

    /// Asks, for the owner, what to do next. `more`: it has things to do behind what may be forbidden now, and wants to
    /// be told when it no longer is. If not, a hand-off to this client wakes nobody.
    pub fn write_state(&self, max_output: usize, closing: bool, more: bool) -> WriteState {
        let mut state = self.state.lock();
        let write_state = if state.broken {
            WriteState::Broken
        } else if state.holds > 0 {
            WriteState::AwaitingDurability
        } else if state.waiting && !(closing && (state.flushing || !state.output.is_empty())) {
            WriteState::Waiting
        } else if closing && state.output.is_empty() && !state.flushing {
            WriteState::Drained
        } else if closing || state.output.len() > max_output {
            WriteState::Full
        } else if state.awaiting_space {
            WriteState::AwaitingSpace
        } else if state.flushing || !state.output.is_empty() {
            WriteState::Open
        } else {
            WriteState::Clear
        };
        state.resume = matches!(
            write_state,
            WriteState::Waiting | WriteState::AwaitingDurability | WriteState::AwaitingSpace | WriteState::Full
        ) && more;
        write_state
    }

    /// Sends the owner's own replies at once, which takes no lock; only while the write state is [`WriteState::Clear`].
    /// False if it no longer is: the socket is full, and the rest waits, or the peer is gone.
    pub fn send(&self, out: &mut Output) -> bool {
        let Err(error) = self.transmit(out) else {
            if out.capacity() > KEEP_BUFFER {
                *out = Output::new();
            }
            return true;
        };
        let mut state = self.state.lock();
        debug_assert!(state.output.is_empty() && !state.flushing, "somebody else has something to send");
        let rest = std::mem::take(out);
        if error.kind() == ErrorKind::WouldBlock {
            state.output = rest;
            state.block(true);
            state.charge(&self.owner.memory);
        } else {
            state.broken = true;
        }
        false
    }

    /// Sends news, unless the socket took nothing when it was last tried: then the poller tells the owner when it does.
    pub fn flush_news(&self, spare: &mut Output) {
        let state = self.state.lock();
        if state.stuck.is_none() || state.flushing {
            self.flush_locked(state, spare);
        }
    }

    /// Sends what waits, as far as the socket takes it. Gives a used-up buffer to `spare`.
    pub fn flush(&self, spare: &mut Output) -> Flushed {
        self.flush_locked(self.state.lock(), spare)
    }

    /// The peer is gone. What was to be sent stays until the connection is dropped, for to free it takes long.
    fn break_off(&self, mut state: MutexGuard<'_, OutboxState>, output: Output) -> Flushed {
        (state.output, state.broken, state.flushing) = (output, true, false);
        state.charge(&self.owner.memory);
        drop(state);
        self.wake_owner();
        Flushed::Broken
    }

    /// The same for who has taken the lock, which is let go of during each write and at the end.
    fn flush_locked<'a>(&'a self, mut state: MutexGuard<'a, OutboxState>, spare: &mut Output) -> Flushed {
        if state.holds > 0 {
            return Flushed::Later;
        }
        if state.flushing {
            state.again = true;
            return Flushed::Later;
        }
        if state.broken || state.output.is_empty() {
            return if state.broken { Flushed::Broken } else { Flushed::Done };
        }
        state.flushing = true;
        for _ in 0..ROUNDS {
            let mut output = std::mem::take(&mut state.output);
            drop(state);
            let before = output.len();
            let sent = self.transmit(&mut output);
            state = self.state.lock();
            let some = output.len() < before;
            let again = std::mem::take(&mut state.again);
            if sent.is_ok() {
                state.stuck = None;
            }
            match sent {
                Ok(()) if state.output.is_empty() => {
                    state.flushing = false;
                    state.charge(&self.owner.memory);
                    let resume = !state.waiting && std::mem::take(&mut state.resume);
                    drop(state);
                    if resume {
                        self.wake_owner();
                    }
                    if output.capacity() <= KEEP_BUFFER && spare.capacity() == 0 {
                        *spare = output;
                    }
                    return Flushed::Done;
                }
                // What came meanwhile may have to wait for the log; whoever lets go of it sends it.
                Ok(()) if state.holds > 0 => {
                    state.flushing = false;
                    state.charge(&self.owner.memory);
                    return Flushed::Later;
                }
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    output.append(&mut state.output);
                    state.output = output;
                    state.block(some);
                    if !again || state.holds > 0 {
                        state.flushing = false;
                        state.charge(&self.owner.memory);
                        return Flushed::Later;
                    }
                }
                Err(_) => {
                    output.append(&mut state.output);
                    return self.break_off(state, output);
                }
            }
        }
        state.flushing = false;
        state.charge(&self.owner.memory);
        drop(state);
        self.wake_owner();
        Flushed::Later
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.owner.memory.charge(state.charged, 0);
        self.owner.memory.leave(state.leaving, 0);
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            self.owner.memory.charge(SESSION_COST, 0);
        }
    }
}

/// Writes until nothing is left or an error, which may be that the socket is full, or that nothing may be said any
/// more.
fn send(stream: &Stream, lease: &Lease, output: &mut Output) -> io::Result<()> {
    loop {
        if lease.is_over() {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let written = match output.only() {
            Some([]) => return Ok(()),
            Some(bytes) => stream.write(&[IoSlice::new(bytes)]),
            None => {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let mut count = 0;
                for (slice, chunk) in slices.iter_mut().zip(output.chunks().filter(|chunk| !chunk.is_empty())) {
                    *slice = IoSlice::new(chunk);
                    count += 1;
                }
                if count == 0 {
                    return Ok(());
                }
                stream.write(&slices[..count])
            }
        };
        match written {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(sent) => output.consume(sent),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// An outbox, and the socket at its other end.
    fn pair() -> (Arc<Outbox>, mio::net::UnixStream) {
        let poll = mio::Poll::new().expect("a poller");
        let (inbox, _) = crossbeam_channel::unbounded();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        let (ours, theirs) = mio::net::UnixStream::pair().expect("two sockets");
        (
            Outbox::new(
                Stream::Unix(ours),
                Arc::new(ThreadHandle::new(inbox, waker, Arc::new(Memory::new(1 << 30)), Arc::default())),
                0,
            ),
            theirs,
        )
    }

    #[test]
    fn what_a_full_socket_does_not_take_at_once_stays_in_order_and_shuts_the_gate() {
        let (outbox, mut peer) = pair();
        let mut out = Output::new();
        let mut sent = 0;
        assert_eq!(outbox.write_state(1 << 30, false, false), WriteState::Clear);
        loop {
            out.text().extend((0..100_000).map(|byte| (sent + byte) as u8));
            sent += 100_000;
            if !outbox.send(&mut out) {
                break;
            }
        }
        assert_eq!(outbox.write_state(1 << 30, false, false), WriteState::Open);
        out.text().extend_from_slice(b"behind");
        outbox.reply(&mut out, false, false);
        let mut read = Vec::new();
        while outbox.flush(&mut out) != Flushed::Done || read.len() < sent + 6 {
            let mut buffer = [0; 65_536];
            let count = peer.read(&mut buffer).expect("more to read");
            read.extend_from_slice(&buffer[..count]);
        }
        assert!(read[..sent].iter().enumerate().all(|(place, &byte)| byte == place as u8));
        assert_eq!(&read[sent..], b"behind");
        assert_eq!(outbox.write_state(1 << 30, false, false), WriteState::Clear);
    }

    #[test]
    fn who_does_not_read_is_told_less_when_others_need_the_memory() {
        let (outbox, peer) = pair();
        let memory = outbox.owner.memory.clone();
        let mut out = Output::new();
        let mut news = |length: usize, limits: NewsLimits| {
            out.text().extend(std::iter::repeat_n(b'x', length));
            outbox.tell(&mut out, limits);
            outbox.flush_news(&mut out);
            assert!(out.is_empty());
            !outbox.is_overflown()
        };
        let (much, little) = (1 << 30, 4 << 10);
        let limits = NewsLimits { reading: much, stuck: much };
        while outbox.burden().1.is_none() {
            assert!(news(10_000, limits));
        }
        while outbox.burden().0 < 50_000 {
            assert!(news(10_000, limits));
        }
        assert!(news(10_000, limits), "its socket is full, and there is memory");
        let before = memory.buffers();
        assert!(!news(10_000, NewsLimits { reading: much, stuck: little }));
        // It goes with the connection, not under the lock.
        assert_eq!((memory.buffers(), memory.waiting()), (before, 0));
        assert_eq!(outbox.write_state(0, false, false), WriteState::Broken);
        assert_eq!(outbox.flush(&mut out), Flushed::Broken);
        drop((outbox, peer));
        assert_eq!((memory.buffers(), memory.waiting()), (0, 0));
    }

    #[test]
    fn a_peer_that_is_gone_is_noticed_by_the_owner_s_own_send() {
        let (outbox, peer) = pair();
        drop(peer);
        let mut out = Output::new();
        out.text().extend_from_slice(b"x");
        assert!(!outbox.send(&mut out));
        assert_eq!(outbox.write_state(0, false, false), WriteState::Broken);
    }
}
