//! The output side of one connection, shared by all threads that have a reply for it.
//!
//! Owns the order of replies. A thread with a reply appends it here while holding the engine's lock, which fixes the
//! order, and flushes after releasing that lock. One thread flushes at a time; another thread adds its bytes and
//! continues. So a reply can never overtake the previous one, a producer that hands a job to a waiting worker writes to
//! the worker's socket itself without waking the worker's thread, and no lock is held during a write.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Instant;

use super::handle::ThreadHandle;
use super::memory::{Memory, CONNECTION_COST};
use super::message::Message;
use super::socket::{PeerAddress, Stream};
#[cfg(feature = "tls")]
use super::tls::{TlsSession, SESSION_COST};
use crate::protocol::Output;
use crate::shared::lease::Lease;
#[cfg(feature = "tls")]
use crate::shared::lock_order::LeafMutex;
use crate::shared::lock_order::{Mutex, MutexGuard, OUTPUT};

/// Maximum number of slices passed to one write call.
const SLICES: usize = 16;

/// Consecutive writes by a thread that does not own the connection, before it leaves the rest to the owner: one
/// connection must not delay the timer thread or other pool threads.
const ROUNDS: usize = 4;

/// Buffers above this capacity are released rather than kept for later replies. The buffers of pipelined commands must
/// be kept: mapping that much memory in every turn costs more than the commands.
const KEEP_BUFFER: usize = 512 * 1024;

/// An outbox that has more than this to free is freed on another thread.
const DISCARDED: u64 = 64 * 1024;

/// Limits of unread output at which a client that receives events is dropped, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventLimits {
    /// Limit while its socket accepts data.
    pub reading: usize,
    /// Limit when its socket accepted nothing at the last attempt.
    pub stuck: usize,
}

#[derive(Debug)]
pub struct Outbox {
    stream: Stream,
    /// The address of the peer.
    pub peer: PeerAddress,
    owner: Arc<ThreadHandle>,
    /// The owner's number for this connection.
    token: usize,
    state: Mutex<OutboxState, OUTPUT>,
    /// The TLS state, if the peer speaks TLS. Locked for reads and writes, because both change the state.
    #[cfg(feature = "tls")]
    tls: Option<LeafMutex<TlsSession>>,
}

#[derive(Debug, Default)]
struct OutboxState {
    /// `None` while nothing is pending, as it mostly is.
    unsent: Option<Box<Unsent>>,
    /// The client waits for an event; its commands stay unread until then.
    waiting: bool,
    /// Number of promises that the log does not fulfill yet. Until it is 0, nothing is sent and no command is read.
    holds: u32,
    /// The next command waits for space in the log.
    awaiting_space: bool,
    /// The owner wants a notification when the wait ends, or when another thread has sent everything.
    resume: bool,
    /// A thread is writing to the socket with the lock released.
    flushing: bool,
    /// Another thread tried to flush during the write: the writing thread checks again.
    again: bool,
    /// The peer is gone or was dropped; nothing is sent any more.
    broken: bool,
    /// The connection was dropped because the client did not read its events.
    overflown: bool,
}

#[derive(Debug, Default)]
struct Unsent {
    output: Output,
    /// Bytes of output that are charged, and how many of them are being freed because the connection was dropped.
    charged: u64,
    leaving: u64,
    /// Since when the socket has accepted nothing.
    stuck: Option<Instant>,
}

impl Unsent {
    /// Bytes of the output, including shared ones.
    fn burden(&self) -> u64 {
        self.charged + self.output.shared() as u64
    }

    /// Marks the charged bytes as about to be freed.
    fn leave(&mut self, memory: &Memory) {
        memory.leave(self.leaving, self.charged);
        self.leaving = self.charged;
    }
}

impl OutboxState {
    fn unsent(&mut self) -> &mut Unsent {
        self.unsent.get_or_insert_default()
    }

    /// The number of pending bytes.
    fn length(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| unsent.output.len())
    }

    fn stuck(&self) -> Option<Instant> {
        self.unsent.as_ref().and_then(|unsent| unsent.stuck)
    }

    /// Charges the current output, unless a thread is writing: that thread charges when it has finished. Nothing is
    /// charged up to the base amount that is counted for every connection.
    fn charge(&mut self, memory: &Memory) {
        let Some(unsent) = self.unsent.as_mut().filter(|_| !self.flushing) else { return };
        let mut footprint = unsent.output.footprint();
        if footprint > CONNECTION_COST && footprint / 4 > unsent.output.len() as u64 {
            // A thread's large buffer, passed on with a short reply.
            unsent.output.shrink();
            footprint = unsent.output.footprint();
        }
        let charged = footprint.saturating_sub(CONNECTION_COST);
        memory.charge(unsent.charged, charged);
        unsent.charged = charged;
        if unsent.output.is_empty() && unsent.charged + unsent.leaving == 0 {
            self.unsent = None;
        }
    }

    /// Records that the socket is full. `some`: it accepted part of the output before.
    fn block(&mut self, some: bool) {
        let stuck = &mut self.unsent().stuck;
        if some || stuck.is_none() {
            *stuck = Some(Instant::now());
        }
    }

    /// Drops a client that does not read its events. Returns `true` if its owner must be notified. Pending output is
    /// freed with the connection, since this takes long.
    fn overflow(&mut self, memory: &Memory) -> bool {
        self.overflown |= !self.broken;
        self.unsent.iter_mut().for_each(|unsent| unsent.leave(memory));
        !std::mem::replace(&mut self.broken, true)
    }
}

/// What the owner may do with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteState {
    /// Read, and reply through the outbox.
    Open,
    /// Like `Open`, with no pending bytes and no waiting client: no other thread accesses the output until the owner
    /// changes the state, and the owner may call [`Outbox::send`].
    Clear,
    /// The client waits for an event.
    Waiting,
    /// Replies wait for the log.
    AwaitingDurability,
    /// The next command waits for space in the log.
    AwaitingSpace,
    /// The client must read pending output first.
    Full,
    /// All output has been sent; only reported when closing.
    Drained,
    /// Nothing more can be sent.
    Broken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    Done,
    /// Some output is left for later.
    Later,
    Broken,
}

impl Outbox {
    /// Creates the outbox of connection `token` of `owner`.
    pub fn new(stream: Stream, peer: PeerAddress, owner: Arc<ThreadHandle>, token: usize) -> Outbox {
        let state = Mutex::default();
        #[cfg(feature = "tls")]
        return Outbox { stream, peer, owner, token, state, tls: None };
        #[cfg(not(feature = "tls"))]
        return Outbox { stream, peer, owner, token, state };
    }

    /// Makes the connection use TLS.
    #[cfg(feature = "tls")]
    pub fn with_tls(mut self, session: TlsSession) -> Outbox {
        self.owner.memory.charge(0, SESSION_COST);
        self.tls = Some(LeafMutex::new(session));
        self
    }

    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<&LeafMutex<TlsSession>> {
        self.tls.as_ref()
    }

    /// Bytes that this TLS session uses above the base amount of a session; 0 without TLS.
    pub fn encryption(&self) -> u64 {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.lock().footprint();
        }
        0
    }

    /// Sends pending encrypted bytes. Returns `false` if the peer is gone.
    pub fn flush_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return match tls.lock().push(&self.stream) {
                Err(error) => error.kind() == ErrorKind::WouldBlock,
                Ok(()) => true,
            };
        }
        true
    }

    /// Sends the TLS closing alert if the socket accepts it immediately.
    pub fn close_tls(&self) {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            tls.lock().close(&self.stream);
        }
    }

    /// Writes until nothing is left or an error occurs, possibly that the socket is full.
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

    /// Appends the owner's own replies, with the engine locked. `waits`: the last command has no reply yet and the
    /// client waits for it. `held`: nothing is sent before [`Outbox::release`]. Returns `true` if there is something to
    /// send.
    pub fn reply(&self, out: &mut Output, waits: bool, held: bool) -> bool {
        let mut state = self.state.lock();
        if state.broken {
            // Earlier output is missing, so this must not be sent.
            *out = Output::new();
        }
        // Otherwise the thread's buffer would stay with a waiting client.
        if !out.is_empty() {
            state.unsent().output.append(out);
        }
        state.waiting = waits;
        state.holds += u32::from(held);
        state.charge(&self.owner.memory);
        state.length() > 0 && state.holds == 0
    }

    /// Returns the bytes of pending output, shared bytes included, and since when none of them was sent.
    pub fn burden(&self) -> (u64, Option<Instant>) {
        let state = self.state.lock();
        state.unsent.as_ref().map_or((0, None), |unsent| (unsent.burden(), unsent.stuck))
    }

    /// Marks the charged bytes as about to be freed, since nothing more is sent. Returns `true` if there are enough
    /// that freeing them takes long.
    pub fn leave(&self) -> bool {
        let mut state = self.state.lock();
        let Some(unsent) = &mut state.unsent else { return false };
        unsent.leave(&self.owner.memory);
        unsent.burden() > DISCARDED
    }

    /// Holds the following events until [`Outbox::release`], because they depend on records that are not durable yet.
    /// Call with the engine locked.
    pub fn hold(&self) {
        self.state.lock().holds += 1;
    }

    /// Ends a hold: the records that the output depends on are durable.
    pub fn release(&self, spare: &mut Output) {
        let mut state = self.state.lock();
        state.holds -= 1;
        // Also while the client waits: its owner may have seen a half-close that it could not act on.
        let resume = std::mem::take(&mut state.resume);
        self.flush_locked(state, spare);
        if resume {
            self.wake_owner();
        }
    }

    /// Makes the owner's next command wait until [`Outbox::has_space`]. Call with the engine locked.
    pub fn await_space(&self) {
        self.state.lock().awaiting_space = true;
    }

    /// Ends the wait for space in the log.
    pub fn has_space(&self) {
        let mut state = self.state.lock();
        state.awaiting_space = false;
        let resume = std::mem::take(&mut state.resume);
        drop(state);
        if resume {
            self.wake_owner();
        }
    }

    /// Appends events, which end the client's wait, with the engine locked. Returns `true` if its owner must be
    /// notified. A client with more unread output than `limits` allow is dropped: events are sent whether it reads them
    /// or not.
    pub fn push_events(&self, out: &mut Output, limits: EventLimits) -> bool {
        let mut state = self.state.lock();
        let most = if state.stuck().is_some() { limits.stuck } else { limits.reading };
        if state.broken || state.length() > most {
            *out = Output::new();
            return state.overflow(&self.owner.memory);
        }
        state.unsent().output.append(out);
        state.charge(&self.owner.memory);
        state.waiting = false;
        std::mem::take(&mut state.resume)
    }

    /// Drops a client that has too many unread events of its own commands.
    pub fn drop_client(&self) -> bool {
        self.state.lock().overflow(&self.owner.memory)
    }

    /// Returns `true` if the client was dropped because it did not read its events.
    pub fn is_overflown(&self) -> bool {
        self.state.lock().overflown
    }

    /// Bytes of replies that the peer has not accepted yet, or `None` if they wait for the log.
    pub fn unread(&self) -> Option<usize> {
        let state = self.state.lock();
        (state.holds == 0 && !state.awaiting_space).then(|| state.length() + self.stream.unsent())
    }

    /// Makes the owner check the connection again.
    pub fn wake_owner(&self) {
        self.owner.send(Message::Resume(self.token));
    }

    /// Returns what the owner may do next. `more`: the owner has work, and wants a notification when it may continue.
    /// Without `more`, events for this client do not wake the owner.
    pub fn write_state(&self, max_output: usize, closing: bool, more: bool) -> WriteState {
        let mut state = self.state.lock();
        let write_state = if state.broken {
            WriteState::Broken
        } else if state.holds > 0 {
            WriteState::AwaitingDurability
        } else if state.waiting && !(closing && (state.flushing || state.length() > 0)) {
            WriteState::Waiting
        } else if closing && state.length() == 0 && !state.flushing {
            WriteState::Drained
        } else if closing || state.length() > max_output {
            WriteState::Full
        } else if state.awaiting_space {
            WriteState::AwaitingSpace
        } else if state.flushing || state.length() > 0 {
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

    /// Sends the owner's own replies without taking a lock; only while the write state is [`WriteState::Clear`].
    /// Returns `false` if that ended: the socket is full and the rest waits, or the peer is gone.
    pub fn send(&self, out: &mut Output) -> bool {
        let Err(error) = self.transmit(out) else {
            if out.capacity() > KEEP_BUFFER {
                *out = Output::new();
            }
            return true;
        };
        let mut state = self.state.lock();
        debug_assert!(state.length() == 0 && !state.flushing, "somebody else has something to send");
        let rest = std::mem::take(out);
        if error.kind() == ErrorKind::WouldBlock {
            state.unsent().output = rest;
            state.block(true);
            state.charge(&self.owner.memory);
        } else {
            state.broken = true;
        }
        false
    }

    /// Sends events, unless the socket accepted nothing at the last attempt: then the poller notifies the owner when it
    /// does.
    pub fn flush_events(&self, spare: &mut Output) {
        let state = self.state.lock();
        if state.stuck().is_none() || state.flushing {
            self.flush_locked(state, spare);
        }
    }

    /// Sends pending output as far as the socket accepts it. Gives a used-up buffer to `spare`.
    pub fn flush(&self, spare: &mut Output) -> Flushed {
        self.flush_locked(self.state.lock(), spare)
    }

    /// Handles a connection that the peer has closed. Pending output is freed with the connection, since this takes
    /// long.
    fn break_off(&self, mut state: MutexGuard<'_, OutboxState>, output: Output) -> Flushed {
        state.unsent().output = output;
        (state.broken, state.flushing) = (true, false);
        state.charge(&self.owner.memory);
        drop(state);
        self.wake_owner();
        Flushed::Broken
    }

    /// Like [`Outbox::flush`] with the lock already taken; the lock is released during each write and at the end.
    fn flush_locked<'a>(&'a self, mut state: MutexGuard<'a, OutboxState>, spare: &mut Output) -> Flushed {
        if state.holds > 0 {
            return Flushed::Later;
        }
        if state.flushing {
            state.again = true;
            return Flushed::Later;
        }
        if state.broken || state.length() == 0 {
            return if state.broken { Flushed::Broken } else { Flushed::Done };
        }
        state.flushing = true;
        for _ in 0..ROUNDS {
            let mut output = std::mem::take(&mut state.unsent().output);
            drop(state);
            let before = output.len();
            let sent = self.transmit(&mut output);
            state = self.state.lock();
            let some = output.len() < before;
            let again = std::mem::take(&mut state.again);
            if sent.is_ok() {
                state.unsent().stuck = None;
            }
            match sent {
                Ok(()) if state.length() == 0 => {
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
                // Output that was added during the write may depend on the log; the thread that releases it sends it.
                Ok(()) if state.holds > 0 => {
                    state.flushing = false;
                    state.charge(&self.owner.memory);
                    return Flushed::Later;
                }
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let unsent = state.unsent();
                    output.append(&mut unsent.output);
                    unsent.output = output;
                    state.block(some);
                    if !again || state.holds > 0 {
                        state.flushing = false;
                        state.charge(&self.owner.memory);
                        return Flushed::Later;
                    }
                }
                Err(_) => {
                    output.append(&mut state.unsent().output);
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
        if let Some(unsent) = &self.state.get_mut().unsent {
            self.owner.memory.charge(unsent.charged, 0);
            self.owner.memory.leave(unsent.leaving, 0);
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            self.owner.memory.charge(SESSION_COST, 0);
        }
    }
}

/// Writes until nothing is left or an error occurs: possibly that the socket is full, or that the lease has expired.
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

    /// Creates an outbox and the socket at its other end.
    fn pair() -> (Arc<Outbox>, mio::net::UnixStream) {
        let poll = mio::Poll::new().expect("a poller");
        let (inbox, _) = crossbeam_channel::unbounded();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        let (ours, theirs) = mio::net::UnixStream::pair().expect("two sockets");
        (
            Arc::new(Outbox::new(
                Stream::Unix(ours),
                PeerAddress::Unix,
                Arc::new(ThreadHandle::new(inbox, waker, Arc::new(Memory::new(1 << 30)), Arc::default())),
                0,
            )),
            theirs,
        )
    }

    #[test]
    fn output_for_a_full_socket_stays_in_order_and_stops_reading() {
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
    fn a_client_that_does_not_read_gets_fewer_events_when_memory_is_short() {
        let (outbox, peer) = pair();
        let memory = outbox.owner.memory.clone();
        let mut out = Output::new();
        let mut news = |length: usize, limits: EventLimits| {
            out.text().extend(std::iter::repeat_n(b'x', length));
            outbox.push_events(&mut out, limits);
            outbox.flush_events(&mut out);
            assert!(out.is_empty());
            !outbox.is_overflown()
        };
        let (much, little) = (1 << 30, 4 << 10);
        let limits = EventLimits { reading: much, stuck: much };
        while outbox.burden().1.is_none() {
            assert!(news(10_000, limits));
        }
        while outbox.burden().0 < 50_000 {
            assert!(news(10_000, limits));
        }
        assert!(news(10_000, limits), "its socket is full, and there is memory");
        let before = memory.buffers();
        assert!(!news(10_000, EventLimits { reading: much, stuck: little }));
        // It is freed with the connection, not under the lock.
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
