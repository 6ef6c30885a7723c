//! The output side of one connection, which several threads share, and the inbox of the pool thread that owns it.
//!
//! A thread appends a reply while it holds the engine's lock, to keep the replies in order, and sends the reply without
//! the lock. Only one thread at a time writes to the socket, so a reply never overtakes an earlier reply.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use mio::Waker;

use super::memory::{Memory, CONNECTION_COST};
use super::socket::{PeerAddress, Stream, MAX_SENT};
#[cfg(feature = "tls")]
use super::tls::{TlsSession, SESSION_COST};
use crate::access::AccessTable;
use crate::protocol::text::upto;
use crate::protocol::Output;
use crate::shared::atomic::{AtomicBool, Ordering};
#[cfg(feature = "tls")]
use crate::shared::lock_order::LeafMutex;
use crate::shared::lock_order::{Mutex, MutexGuard, OUTPUT};
use crate::shared::role::Lease;

const SLICES: usize = 16;

/// The maximum number of sends in a flush. The owner sends the remaining output, so that no other thread is delayed.
const ROUNDS: usize = 4;

/// Buffers up to this size in bytes are reused: allocating a buffer costs more than executing a batch's commands.
const KEEP_BUFFER: usize = 512 * 1024;

/// An outbox that uses more bytes than this is freed on another thread.
const DISCARDED: u64 = 64 * 1024;

/// Limits on a client's unread output in bytes. A client above its limit is disconnected at the next event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventLimits {
    /// The limit for a socket that accepts data.
    pub reading: usize,
    /// The limit for a socket that was full at the last write.
    pub stuck: usize,
}

pub struct Outbox {
    pub stream: Stream,
    pub peer: PeerAddress,
    owner: Arc<ThreadHandle>,
    pub token: u32,
    state: Mutex<OutboxState, OUTPUT>,
    /// Reads also need the lock, because they change the TLS state.
    #[cfg(feature = "tls")]
    pub tls: Option<LeafMutex<TlsSession>>,
}

#[derive(Default)]
struct OutboxState {
    /// `None` without pending output, to save memory for idle connections.
    unsent: Option<Box<Unsent>>,
    /// `true` while the client waits for an event. Its later commands are not executed before the event.
    waiting: bool,
    /// If not 0, nothing is sent and no command is executed, for example because records are not durable yet.
    delay_reasons: u32,
    awaiting_space: bool,
    /// `true` if the owner must be notified when it can continue: after a wait or delay, or when all output is sent.
    resume: bool,
    writer: Writer,
    peer: Peer,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Writer {
    #[default]
    None,
    Writing,
    /// Another thread tried to flush during the write. The writing thread then checks for more output.
    WriteAgain,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Peer {
    #[default]
    Connected,
    Gone,
    /// Like `Gone`, but the server dropped the client because the client did not read its events.
    Dropped,
}

#[derive(Default)]
struct Unsent {
    output: Output,
    /// Bytes charged to the memory account. `leaving` is the part to be freed soon with a dropped or closed connection.
    charged: u64,
    leaving: u64,
    /// The time at which the socket last became full, or `None` if the socket is not full.
    stuck: Option<Instant>,
}

impl Unsent {
    fn memory_used(&self) -> u64 {
        self.charged + self.output.shared() as u64
    }

    fn leave(&mut self, memory: &Memory) {
        memory.leave(self.leaving, self.charged);
        self.leaving = self.charged;
    }
}

impl OutboxState {
    fn is_broken(&self) -> bool {
        self.peer != Peer::Connected
    }

    fn unsent(&mut self) -> &mut Unsent {
        self.unsent.get_or_insert_default()
    }

    fn length(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| unsent.output.len())
    }

    fn stuck(&self) -> Option<Instant> {
        self.unsent.as_ref().and_then(|unsent| unsent.stuck)
    }

    /// Charges output above `CONNECTION_COST`, except during a write, after which the writing thread charges it.
    fn charge(&mut self, memory: &Memory) {
        let Some(unsent) = self.unsent.as_mut().filter(|_| self.writer == Writer::None) else { return };
        let mut footprint = unsent.output.footprint();
        if footprint > CONNECTION_COST && footprint / 4 > unsent.output.len() as u64 {
            // Appending has moved the thread's buffer into `unsent`. This buffer may be large even for a short reply.
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

    /// Records that the socket is full. `some` is `true` if the last write sent part of the output.
    fn block(&mut self, some: bool) {
        let stuck = &mut self.unsent().stuck;
        if some || stuck.is_none() {
            *stuck = Some(Instant::now());
        }
    }

    /// Drops the client. Returns `true` if the owner must be notified. Keeps the output until the connection is freed,
    /// because freeing the output may be slow.
    fn overflow(&mut self, memory: &Memory) -> bool {
        self.unsent.iter_mut().for_each(|unsent| unsent.leave(memory));
        self.give_up(Peer::Dropped)
    }

    fn give_up(&mut self, peer: Peer) -> bool {
        let is_new = !self.is_broken();
        if is_new {
            self.peer = peer;
        }
        is_new
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteState {
    Open,
    /// Like `Open`, but the outbox is empty, so the owner can call [`Outbox::send`] if no other thread adds output.
    Clear,
    Waiting,
    /// The owner waits until a delay has ended, the log has space, or the client has read more output.
    Blocked,
    Ended,
}

impl Outbox {
    pub fn new(stream: Stream, peer: PeerAddress, owner: Arc<ThreadHandle>, token: usize) -> Outbox {
        Outbox {
            stream,
            peer,
            owner,
            token: token as u32,
            state: Mutex::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    #[cfg(feature = "tls")]
    pub fn with_tls(mut self, session: TlsSession) -> Outbox {
        self.owner.memory.charge(0, SESSION_COST);
        self.tls = Some(LeafMutex::new(session));
        self
    }

    pub fn encryption(&self) -> u64 {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.lock().footprint();
        }
        0
    }

    pub fn flush_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return !tls.lock().push(&self.stream).is_err_and(|error| error.kind() != ErrorKind::WouldBlock);
        }
        true
    }

    pub fn close_tls(&self) {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            tls.lock().close(&self.stream);
        }
    }

    /// Writes until all output is sent (returns `true`), or about [`MAX_SENT`] bytes, or an error occurs, such as
    /// `WouldBlock` for a full socket.
    fn transmit(&self, output: &mut Output) -> io::Result<bool> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.lock().send(&self.stream, output);
        }
        send(&self.stream, &self.owner.lease, output)
    }

    /// The engine must be locked. `waits` means that the last command has no reply yet and blocks the client. `held`
    /// delays all output until [`Outbox::release`]. Returns `true` if output can be sent now.
    pub fn reply(&self, out: &mut Output, waits: bool, held: bool) -> bool {
        let mut state = self.state.lock();
        if state.is_broken() {
            // Earlier output may have been discarded, so the client would misinterpret later output.
            *out = Output::new();
        }
        // Append nothing for a waiting client without replies: appending would move the thread's buffer.
        if !out.is_empty() {
            state.unsent().output.append(out);
        }
        state.waiting = waits;
        state.delay_reasons += u32::from(held);
        state.charge(&self.owner.memory);
        state.length() > 0 && state.delay_reasons == 0
    }

    /// Returns the number of bytes that pending output uses, and the time at which the socket last became full.
    pub fn memory_used(&self) -> (u64, Option<Instant>) {
        let state = self.state.lock();
        state.unsent.as_ref().map_or((0, None), |unsent| (unsent.memory_used(), unsent.stuck))
    }

    /// Marks the charged bytes as about to be freed. Returns `true` if freeing them may be slow.
    pub fn leave(&self) -> bool {
        let mut state = self.state.lock();
        let Some(unsent) = &mut state.unsent else { return false };
        unsent.leave(&self.owner.memory);
        unsent.memory_used() > DISCARDED
    }

    /// The engine must be locked.
    pub fn hold(&self) {
        self.state.lock().delay_reasons += 1;
    }

    pub fn release(&self, spare: &mut Output) {
        let mut state = self.state.lock();
        state.delay_reasons -= 1;
        // The owner may have postponed work during the delay, such as ending the wait of a half-closed client.
        let resume = std::mem::take(&mut state.resume);
        self.flush_locked(state, spare);
        if resume {
            self.wake_owner();
        }
    }

    /// The engine must be locked.
    pub fn await_space(&self) {
        self.state.lock().awaiting_space = true;
    }

    pub fn has_space(&self) {
        let mut state = self.state.lock();
        state.awaiting_space = false;
        let resume = std::mem::take(&mut state.resume);
        drop(state);
        if resume {
            self.wake_owner();
        }
    }

    /// The engine must be locked. Returns `true` if the owner must be notified. A client with more unread output than
    /// `limits` allow is dropped, because events cannot wait until the client reads.
    pub fn push_events(&self, out: &mut Output, limits: EventLimits) -> bool {
        let mut state = self.state.lock();
        let limit = if state.stuck().is_some() { limits.stuck } else { limits.reading };
        if state.is_broken() || state.length() > limit {
            *out = Output::new();
            return state.overflow(&self.owner.memory);
        }
        state.unsent().output.append(out);
        state.charge(&self.owner.memory);
        state.waiting = false;
        std::mem::take(&mut state.resume)
    }

    /// Drops a client that does not read the events of its own commands. Returns `true` if the owner must be notified.
    pub fn drop_client(&self) -> bool {
        self.state.lock().overflow(&self.owner.memory)
    }

    pub fn is_overflown(&self) -> bool {
        self.state.lock().peer == Peer::Dropped
    }

    /// Returns the number of unacknowledged output bytes, or `None` if output is delayed or a command lacks log space.
    pub fn unread(&self) -> Option<usize> {
        let state = self.state.lock();
        (state.delay_reasons == 0 && !state.awaiting_space).then(|| state.length() + self.stream.unsent())
    }

    pub fn wake_owner(&self) {
        self.owner.send(Message::Resume(self.token as usize));
    }

    /// `more` means that the owner has more work. Only in this case is the owner notified when it can continue.
    pub fn write_state(&self, max_output: usize, closing: bool, more: bool) -> WriteState {
        let mut state = self.state.lock();
        let has_output = state.writer != Writer::None || state.length() > 0;
        let write_state = if state.is_broken() {
            WriteState::Ended
        } else if state.delay_reasons > 0 {
            WriteState::Blocked
        } else if state.waiting && !(closing && has_output) {
            WriteState::Waiting
        } else if closing && !has_output {
            WriteState::Ended
        } else if closing || state.length() > max_output || state.awaiting_space {
            WriteState::Blocked
        } else if has_output {
            WriteState::Open
        } else {
            WriteState::Clear
        };
        state.resume = more && matches!(write_state, WriteState::Waiting | WriteState::Blocked);
        write_state
    }

    /// Sends replies without a lock. Requires [`WriteState::Clear`]. Returns `false` if the state has changed.
    #[inline(always)] // for speed
    pub fn send(&self, out: &mut Output) -> bool {
        let sent = self.transmit(out);
        if matches!(sent, Ok(true)) {
            if out.capacity() > KEEP_BUFFER {
                *out = Output::new();
            }
            return true;
        }
        let mut state = self.state.lock();
        debug_assert!(state.length() == 0 && state.writer == Writer::None, "another thread has pending output");
        let rest = std::mem::take(out);
        if sent.as_ref().is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
            state.give_up(Peer::Gone);
            return false;
        }
        state.unsent().output = rest;
        if sent.is_err() {
            state.block(true);
        }
        state.charge(&self.owner.memory);
        drop(state);
        if sent.is_ok() {
            self.wake_owner();
        }
        false
    }

    /// Sends events, unless the socket was full at the last attempt. In that case, the poller notifies the owner.
    pub fn flush_events(&self, spare: &mut Output) {
        let state = self.state.lock();
        if state.stuck().is_none() || state.writer != Writer::None {
            self.flush_locked(state, spare);
        }
    }

    /// Sends output. Moves an emptied small buffer to an empty `spare`. Returns `false` if the connection is broken.
    pub fn flush(&self, spare: &mut Output) -> bool {
        self.flush_locked(self.state.lock(), spare)
    }

    /// Releases the lock during each write and before returning.
    fn flush_locked<'a>(&'a self, mut state: MutexGuard<'a, OutboxState>, spare: &mut Output) -> bool {
        if state.delay_reasons > 0 {
            return true;
        }
        if state.writer != Writer::None {
            state.writer = Writer::WriteAgain;
            return true;
        }
        if state.is_broken() || state.length() == 0 {
            return !state.is_broken();
        }
        state.writer = Writer::Writing;
        let (mut is_connected, mut wakes) = (true, true);
        for _ in 0..ROUNDS {
            let mut output = std::mem::take(&mut state.unsent().output);
            drop(state);
            let before = output.len();
            let sent = self.transmit(&mut output);
            state = self.state.lock();
            let some = output.len() < before;
            let send_again = std::mem::replace(&mut state.writer, Writer::Writing) == Writer::WriteAgain;
            if sent.is_ok() {
                state.unsent().stuck = None;
            }
            if !matches!(sent, Ok(true)) {
                let unsent = state.unsent();
                output.append(&mut unsent.output);
                unsent.output = std::mem::take(&mut output);
            }
            match sent {
                Ok(true) if state.length() == 0 => {
                    wakes = !state.waiting && std::mem::take(&mut state.resume);
                    if output.capacity() <= KEEP_BUFFER && spare.capacity() == 0 {
                        *spare = output;
                    }
                    break;
                }
                // New output may have to wait for the log. The thread that ends the delay sends the output.
                Ok(_) if state.delay_reasons > 0 => {
                    wakes = false;
                    break;
                }
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        state.give_up(Peer::Gone);
                        is_connected = false;
                        break;
                    }
                    state.block(some);
                    if !send_again || state.delay_reasons > 0 {
                        wakes = false;
                        break;
                    }
                }
            }
        }
        state.writer = Writer::None;
        state.charge(&self.owner.memory);
        drop(state);
        if wakes {
            self.wake_owner();
        }
        is_connected
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

/// Sends up to [`MAX_SENT`] bytes. Returns `true` if all output was sent. Fails with `WouldBlock` if the socket is
/// full, and with `ConnectionAborted` if the lease has ended.
fn send(stream: &Stream, lease: &Lease, output: &mut Output) -> io::Result<bool> {
    let mut left = MAX_SENT;
    while left > 0 {
        if lease.is_over() {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let written = match output.only() {
            Some([]) => return Ok(true),
            Some(bytes) => stream.write(&[IoSlice::new(upto(bytes, left))]),
            None => {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let (mut count, mut room) = (0, left);
                for (slice, chunk) in slices.iter_mut().zip(output.chunks().filter(|chunk| !chunk.is_empty())) {
                    *slice = IoSlice::new(upto(chunk, room));
                    room -= slice.len();
                    count += 1;
                }
                if count == 0 {
                    return Ok(true);
                }
                stream.write(&slices[..count])
            }
        };
        match written {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(sent) => {
                output.consume(sent);
                if output.is_empty() {
                    return Ok(true);
                }
                left = left.saturating_sub(sent);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

pub enum Message {
    /// The connection with this number can continue. Harmless if the number now belongs to another connection.
    Resume(usize),
    Renew(Arc<AccessTable>),
    /// Drop the sender when all earlier input and messages have been processed.
    Quiesce(Sender<()>),
    Stop,
}

pub struct ThreadHandle {
    inbox: Sender<Message>,
    waker: Waker,
    /// Set before the thread sleeps. Another thread that clears the flag must wake the sleeping thread.
    asleep: AtomicBool,
    pub memory: Arc<Memory>,
    /// Replies may be sent until this lease ends.
    pub lease: Arc<Lease>,
}

impl ThreadHandle {
    pub fn new(inbox: Sender<Message>, waker: Waker, memory: Arc<Memory>, lease: Arc<Lease>) -> ThreadHandle {
        ThreadHandle { inbox, waker, asleep: AtomicBool::new(false), memory, lease }
    }

    pub fn send(&self, message: Message) {
        // The channel and the waker fail only after the thread has ended.
        let _ = self.inbox.send(message);
        // Sequential consistency prevents a lost wake-up: this thread sees `asleep`, or the pool thread the message.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            let _ = self.waker.wake();
        }
    }

    /// Must be called before the thread checks its inbox one last time and sleeps.
    pub fn will_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    pub fn is_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn pair() -> (Arc<Outbox>, mio::net::UnixStream) {
        let poll = mio::Poll::new().expect("a poller");
        let (inbox, _) = crossbeam_channel::unbounded();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        let (ours, theirs) = mio::net::UnixStream::pair().expect("two sockets");
        (
            Arc::new(Outbox::new(
                Stream::new(ours),
                PeerAddress::UNIX,
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
        while read.len() < sent + 6 {
            outbox.flush(&mut out);
            let mut buffer = [0; 65_536];
            let count = peer.read(&mut buffer).expect("more to read");
            read.extend_from_slice(&buffer[..count]);
        }
        assert!(read[..sent].iter().enumerate().all(|(index, &byte)| byte == index as u8));
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
        let (large, small) = (1 << 30, 4 << 10);
        let limits = EventLimits { reading: large, stuck: large };
        while outbox.memory_used().1.is_none() {
            assert!(news(10_000, limits));
        }
        while outbox.memory_used().0 < 50_000 {
            assert!(news(10_000, limits));
        }
        assert!(news(10_000, limits), "the socket is full, but memory is available");
        let before = memory.buffers();
        assert!(!news(10_000, EventLimits { reading: large, stuck: small }));
        // The output is freed with the connection, not while the lock is held.
        assert_eq!((memory.buffers(), memory.waiting()), (before, 0));
        assert_eq!(outbox.write_state(0, false, false), WriteState::Ended);
        assert!(!outbox.flush(&mut out));
        drop((outbox, peer));
        assert_eq!((memory.buffers(), memory.waiting()), (0, 0));
    }

    #[test]
    fn a_send_to_a_client_that_reads_at_once_is_limited() {
        let (outbox, mut peer) = pair();
        let body: Vec<u8> = (0..8 << 20).map(|index| (index / 251) as u8).collect();
        let mut out = Output::new();
        out.text().extend_from_slice(&body);
        let mut left = body.len();
        let reader = std::thread::spawn(move || {
            let mut received = Vec::new();
            while received.len() < 8 << 20 {
                let _ = peer.read_to_end(&mut received);
            }
            received
        });
        outbox.send(&mut out);
        while left > 0 {
            let now = outbox.state.lock().length();
            assert!(left - now <= MAX_SENT, "{left} to {now}");
            left = now;
            outbox.flush(&mut out);
        }
        assert!(reader.join().expect("a reader") == body);
        assert_eq!(outbox.write_state(0, false, false), WriteState::Clear);
    }

    #[test]
    fn a_disconnected_peer_is_noticed_by_the_owner_s_send() {
        let (outbox, peer) = pair();
        drop(peer);
        let mut out = Output::new();
        out.text().extend_from_slice(b"x");
        assert!(!outbox.send(&mut out));
        assert_eq!(outbox.write_state(0, false, false), WriteState::Ended);
    }
}
