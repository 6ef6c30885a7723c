//! One connection, which belongs to a single pool thread. The thread lends its buffers to a connection that has work,
//! so an idle connection uses little memory. Must not write to the socket, because only the `Outbox` writes.
//! Enforces promise P24 of beanpole-promises(7).

mod account;
#[cfg(feature = "tls")]
mod secure;
mod shared;

use std::io::{Error, ErrorKind, IoSliceMut};
use std::{collections::VecDeque, ops::Range, sync::Arc, time::Instant};

use self::account::Backlog;
use super::delivery::{Outbox, WriteState};
use super::hub::{Core, Hub, TurnScratch};
use super::memory::MIN_READ;
use super::reports::TurnLog;
use super::timeouts::{AwaitedPart, HttpState};
use crate::access::ClientAccess;
use crate::binlog::Required;
use crate::engine::{ClientId, Time};
use crate::protocol::{end_wait, Dialogue, Flow, Output, Request, Wire};

/// The maximum number of commands that are executed before the engine is unlocked.
const BATCH: usize = 128;

/// The engine steps charged for a command. [`BATCH`] commands use up the default step budget.
const COMMAND: u64 = 8;

/// The approximate number of bytes read from one connection before the thread serves the next connection.
const READ_IN_A_ROW: usize = 512 * 1024;

/// The maximum number of consecutive turns of a connection, and the maximum if other connections have queued work.
const TURNS_PER_ROUND: usize = 4;
const TURNS_BESIDE_OTHERS: usize = 1;

const READ_BESIDE_OTHERS: usize = 16 * 1024;

/// A connection is light if its last input had at most this many bytes. Light connections are served first.
const LIGHT: usize = 1024;

/// Initial size of a thread's buffer, which fits into the L1 cache.
const FIRST_BUFFER: usize = 4 * 1024;

/// Maximum size of a thread's buffer. Larger reads go directly into the body of a job.
const LAST_BUFFER: usize = 256 * 1024;

/// Limits the commands in a shared turn, because the first reply is sent only after the last command.
pub const MAX_SHARES: usize = 8;

#[derive(Default)]
pub struct ThreadScratch {
    pub turn: TurnScratch,
    buffer: Vec<u8>,
    backlog: Option<Box<Backlog>>,
    /// An empty queue, whose capacity the connections share.
    pending: VecDeque<Request>,
    /// `true` if other connections have queued work.
    pub others: bool,
    is_turn_spent: bool,
    /// `true` while each connection with a single small command joins the shared turn.
    pub is_shared: bool,
    /// The connections in the shared turn, their commands, and the ends of their inputs in `shared_input`.
    pub joined: Vec<(usize, Option<Request>, usize)>,
    shared_input: Vec<u8>,
    replies: [Output; MAX_SHARES],
    /// The connections of the pool thread during a shared turn.
    lent: slab::Slab<Connection>,
}

impl ThreadScratch {
    pub fn new() -> ThreadScratch {
        ThreadScratch { buffer: vec![0; FIRST_BUFFER], ..ThreadScratch::default() }
    }
}

pub struct Connection {
    pub(super) outbox: Arc<Outbox>,
    pub client: ClientId,
    dialogue: Dialogue,
    /// Unprocessed input. `None` only while the connection is not being served.
    backlog: Option<Box<Backlog>>,
    pub(super) ready: Readiness,
    pub(super) stage: Stage,
    pub(super) access: Option<Box<ClientAccess>>,
    /// The deadline for authentication, if the client has not authenticated yet, and the reference that counts it.
    pub probation: Option<Box<(Instant, Arc<()>)>>,
    wrong_token: WrongToken,
    pub queued: bool,
    pub light: bool,
    /// `true` if `Admission` counts the connection as HTTP.
    pub is_http: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Open,
    /// Like `Open`, while the write state is known to be [`WriteState::Clear`].
    Clear,
    /// Like `Open`, but input from the client ends its wait.
    Abortable,
    /// Accepts no more requests, and closes when all output has been sent.
    Closing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WrongToken {
    None,
    /// The last reply is delayed, and the pool thread has not scheduled the end of the delay.
    Last,
    Earlier,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    pub readable: bool,
    pub writable: bool,
    /// `true` if the peer has sent urgent data. A read that stops at the urgent mark is short even if data follows.
    pub urgent: bool,
    /// `true` if the peer has closed its sending side. The server might not have read all earlier bytes yet.
    pub half_closed: bool,
    /// `true` if no reply can be delivered, because the peer has closed or reset the connection.
    pub gone: bool,
}

impl Readiness {
    pub fn ended(self) -> bool {
        self.half_closed && !self.readable
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    Wait,
    Again,
    Close,
}

struct Batch {
    flow: Flow,
    /// The log space in bytes that the next request waits for; 0 if no request waits.
    lacking: u64,
    body: Option<Arc<Box<[u8]>>>,
    is_spent: bool,
}

/// The undecoded part of the thread's buffer.
type Input = Range<usize>;

impl Connection {
    pub fn new(outbox: Arc<Outbox>, client: ClientId, wire: Wire) -> Connection {
        Connection {
            outbox,
            client,
            dialogue: Dialogue::new(wire),
            backlog: None,
            ready: Readiness::default(),
            stage: Stage::Open,
            access: None,
            probation: None,
            wrong_token: WrongToken::None,
            queued: false,
            light: false,
            is_http: wire == Wire::Http,
        }
    }

    pub fn set_ready(&mut self, readiness: Readiness) {
        self.ready.readable |= readiness.readable || readiness.urgent || readiness.half_closed;
        self.ready.urgent |= readiness.urgent;
        self.ready.half_closed |= readiness.half_closed;
        self.ready.gone |= readiness.gone;
    }

    pub fn awaited(&self) -> HttpState {
        let (count, has_body) = self.dialogue.progress().unwrap_or_default();
        let awaited = match self.outbox.unread() {
            _ if self.queued => AwaitedPart::Server,
            None if self.wrong_token != WrongToken::None => AwaitedPart::Delay,
            None => AwaitedPart::Server,
            // With unread replies, the next request waits until the client reads them.
            Some(0) if self.has_pending() => AwaitedPart::Server,
            Some(0) if has_body => AwaitedPart::Body,
            Some(0) if self.has_rest() => AwaitedPart::Head,
            Some(unread) => AwaitedPart::Client(unread),
        };
        (count, awaited)
    }

    /// Returns `false` if the connection is broken.
    pub fn flush(&self, thread: &mut ThreadScratch) -> bool {
        self.outbox.flush_tls() && (self.stage == Stage::Clear || self.outbox.flush(&mut thread.turn.out))
    }

    pub fn is_drained(&self) -> bool {
        matches!(self.outbox.write_state(0, true, true), WriteState::Ended | WriteState::Waiting)
    }

    pub fn work(&mut self, hub: &Hub, thread: &mut ThreadScratch) -> Next {
        if self.dialogue.progress().is_some() {
            hub.process.refresh();
        }
        let mut input = self.load_input(thread);
        let next = self.work_through(&mut input, hub, thread);
        if input.start < input.end {
            self.backlog().rest = thread.buffer[input.clone()].into();
        }
        let backlog = self.backlog();
        let pending = if backlog.pending.is_empty() { 0 } else { backlog.pending.iter().map(Request::footprint).sum() };
        let rest = backlog.rest.len() as u64;
        self.charge(rest + pending + self.outbox.encryption(), hub);
        let backlog = self.backlog();
        if backlog.is_empty() {
            (backlog.received, backlog.last_received) = (false, None);
            thread.backlog = self.backlog.take();
        } else {
            backlog.leave_spare_space(&mut thread.pending);
        }
        next
    }

    fn work_through(&mut self, input: &mut Input, hub: &Hub, thread: &mut ThreadScratch) -> Next {
        let mut read = 0;
        let mut turns = if thread.others { TURNS_BESIDE_OTHERS } else { TURNS_PER_ROUND };
        thread.is_turn_spent = false;
        loop {
            match self.write_state(input, hub) {
                WriteState::Open | WriteState::Clear => {}
                WriteState::Waiting
                    if self.ready.half_closed
                        || self.stage == Stage::Abortable && self.has_new_input(input, hub, thread) =>
                {
                    if !self.hang_up(hub, thread) {
                        // An event is already pending, and will end the wait.
                        return Next::Wait;
                    }
                    continue;
                }
                WriteState::Blocked if self.is_abandoned() => return Next::Close,
                WriteState::Waiting | WriteState::Blocked => return Next::Wait,
                WriteState::Ended => return Next::Close,
            }
            if self.ready.gone && self.backlog().pending.front().is_some_and(Request::has_begun) {
                // The client can no longer receive the reply. The engine completes the client's long command later.
                return Next::Close;
            }
            // The poller reports new input, so a connection without more input need not be queued.
            if (turns == 0 || thread.is_turn_spent) && self.has_more(input) {
                return Next::Again;
            }
            if self.run_batch(input, hub, thread) {
                if self.stage == Stage::Clear && !self.has_more(input) {
                    return Next::Wait;
                }
                turns = turns.saturating_sub(1);
                continue;
            }
            if self.ready.ended() {
                self.stage = Stage::Closing;
            } else if !self.ready.readable {
                return Next::Wait;
            } else if read >= READ_IN_A_ROW {
                return Next::Again;
            } else {
                read += self.read(input, hub, thread);
                self.light = read <= LIGHT;
            }
        }
    }

    fn has_new_input(&mut self, input: &mut Input, hub: &Hub, thread: &mut ThreadScratch) -> bool {
        let has_input = |it: &Connection, input: &Input| input.start < input.end || it.has_pending();
        if self.ready.readable && !has_input(self, input) {
            // The input that the poller reported may have been read already.
            self.read(input, hub, thread);
        }
        has_input(self, input) || self.ready.half_closed
    }

    fn write_state(&mut self, input: &Input, hub: &Hub) -> WriteState {
        if self.stage == Stage::Clear {
            return WriteState::Clear;
        }
        let closing = self.stage == Stage::Closing;
        let write_state = self.outbox.write_state(hub.max_output(), closing, closing || self.has_more(input));
        if write_state == WriteState::Clear && !self.dialogue.receives_unsolicited() {
            self.stage = Stage::Clear;
        }
        write_state
    }

    /// `true` if there may be unprocessed input, including the end of the input.
    fn has_more(&self, input: &Input) -> bool {
        input.start < input.end || self.has_pending() || self.ready.readable || self.ready.half_closed
    }

    fn load_input(&mut self, thread: &mut ThreadScratch) -> Input {
        if self.backlog.is_none() {
            self.backlog = thread.backlog.take();
        }
        let backlog = self.backlog();
        if thread.pending.capacity() > 0 && backlog.pending.capacity() == 0 {
            backlog.pending = std::mem::take(&mut thread.pending);
        }
        let rest = std::mem::take(&mut backlog.rest);
        let to = rest.len();
        if thread.buffer.len() < to {
            thread.buffer.resize(LAST_BUFFER, 0);
        }
        thread.buffer[..to].copy_from_slice(&rest);
        0..to
    }

    /// Returns the number of bytes read, but at least 1. The missing part of a body is read directly into the body.
    fn read(&mut self, input: &mut Input, hub: &Hub, thread: &mut ThreadScratch) -> usize {
        let max_bytes = if thread.others { READ_BESIDE_OTHERS } else { usize::MAX };
        let max_bytes = max_bytes.min(hub.memory.allowance()).max(MIN_READ);
        let buffer = &mut thread.buffer;
        buffer.copy_within(input.clone(), 0);
        *input = 0..input.len();
        if input.end > buffer.len() / 2 && buffer.len() < LAST_BUFFER {
            buffer.resize(buffer.len() * 2, 0);
        }
        #[cfg(feature = "tls")]
        if self.outbox.tls.is_some() {
            return self.read_tls(input, max_bytes, hub, thread);
        }
        let end = buffer.len().min(input.end.saturating_add(max_bytes));
        let gap = self.dialogue.gap(hub.memory.room()).unwrap_or_default();
        let gap_length = gap.len();
        let room = gap_length + end - input.end;
        let mut slices = [IoSliceMut::new(gap), IoSliceMut::new(&mut buffer[input.end..end])];
        let slices = if gap_length == 0 { &mut slices[1..] } else { &mut slices[..] };
        let result = self.outbox.stream.read(slices);
        let read = *result.as_ref().unwrap_or(&1);
        match result {
            Ok(0) => self.end_input(),
            Ok(count) => {
                self.backlog().received = true;
                if gap_length > 0 {
                    self.dialogue.filled(count.min(gap_length));
                }
                input.end += count.saturating_sub(gap_length);
                if count < room {
                    // A short read means that the socket is empty. The poller will report more data or the end.
                    self.ready.readable = self.ready.half_closed || self.ready.urgent;
                } else if buffer.len() < LAST_BUFFER && !thread.others {
                    buffer.resize(buffer.len() * 2, 0);
                }
            }
            Err(error) => self.fail_to_read(&error),
        }
        read.max(1)
    }

    fn fail_to_read(&mut self, error: &Error) {
        match error.kind() {
            ErrorKind::WouldBlock => self.ready.readable = false,
            ErrorKind::Interrupted => {}
            _ => {
                log::debug!("{}: {error}", self.client.0);
                self.end_input();
            }
        }
    }

    fn end_input(&mut self) {
        (self.ready.readable, self.ready.half_closed) = (false, true);
    }

    fn decode(&mut self, input: &mut Input, hub: &Hub, thread: &ThreadScratch) -> Option<Request> {
        let mut first = self.backlog().pending.pop_front();
        // Without new input, only an upload can complete a request, because its bytes bypass the buffer.
        if input.start == input.end && !self.dialogue.is_uploading() {
            return first;
        }
        let mut limits = hub.limits();
        // Before authentication, decode only one request, because a token changes the limits for later requests.
        let is_unauthenticated = self.is_unauthenticated();
        if is_unauthenticated {
            limits.room = 0;
        }
        let mut bytes = &thread.buffer[input.clone()];
        while self.backlog().pending.len() + 1 < BATCH {
            // Frequent requests have a separate branch, to save a copy.
            if let Some(request) = self.dialogue.next_plain(&mut bytes, &limits) {
                self.store(&mut first, request);
            } else if let Some(request) = self.dialogue.next(&mut bytes, &limits) {
                self.store(&mut first, request);
            } else {
                break;
            }
            if bytes.is_empty() || is_unauthenticated {
                break;
            }
        }
        input.start = input.end - bytes.len();
        first
    }

    #[inline(always)] // for speed: builds the request directly in its destination
    fn store(&mut self, first: &mut Option<Request>, request: Request) {
        match first {
            None => *first = Some(request),
            Some(_) => self.backlog().pending.push_back(request),
        }
    }

    /// Executes requests in one turn. Returns `false` if no request is complete, or after joining the shared turn.
    fn run_batch(&mut self, input: &mut Input, hub: &Hub, thread: &mut ThreadScratch) -> bool {
        let Some(first) = self.decode(input, hub, thread) else { return false };
        // A complete body is charged to its new job, so release the charge for its input first.
        self.charge(0, hub);
        let bytes = &thread.buffer[..input.end];
        let joins =
            thread.is_shared && self.stage == Stage::Clear && !self.has_more(input) && !self.dialogue.is_uploading();
        if joins && (1..=LIGHT).contains(&input.end) && first.footprint() <= MIN_READ as u64 {
            thread.shared_input.extend_from_slice(bytes);
            thread.joined.push((self.outbox.token as usize, Some(first), thread.shared_input.len()));
            return false;
        }
        let mut out = std::mem::take(&mut thread.turn.out);
        let (mut is_spent, mut has_output) = (false, false);
        let mut turn_log = TurnLog::begin(self.client, &first, hub.config.slow);
        hub.turn(&mut thread.turn, |core, scratch, mut now| {
            let (mut it, mut request, mut reply, mut count) = (&mut *self, (first, bytes), &mut out, 0);
            loop {
                let before = core.required();
                let mut batch = it.execute(request, (core, scratch), hub, now, reply, &mut turn_log);
                is_spent = batch.is_spent;
                core.record();
                batch.lacking = core.engine.take_lacking().max(batch.lacking);
                has_output |= it.hand_over(batch, before, core, hub, reply, &turn_log);
                let Some((number, command, end)) = thread.joined.get_mut(count) else { break };
                core.deliver_events(hub, scratch, None);
                let backlog = it.backlog.take_if(|backlog| backlog.is_empty());
                let is_over = is_spent || core.engine.has_deferred();
                let Some(next) = thread.lent.get_mut(*number).filter(|_| !is_over) else { break };
                let Some(command) = command.take() else { break };
                (it, request, reply) = (next, (command, &thread.shared_input[..*end]), &mut thread.replies[count]);
                it.backlog = it.backlog.take().or(backlog);
                turn_log.client = it.client;
                now = hub.clock.after(now);
                count += 1;
            }
        });
        turn_log.log_if_slow(thread.turn.locked);
        thread.is_turn_spent = is_spent;
        self.finish(bytes, &mut out, has_output, hub);
        thread.turn.out = out;
        true
    }

    /// Sends the replies of a turn. Pending requests copy their bodies before the caller overwrites the input.
    #[inline(always)] // for speed
    fn finish(&mut self, input: &[u8], out: &mut Output, has_output: bool, hub: &Hub) {
        if self.has_pending() {
            self.backlog().pending.iter_mut().for_each(|request| request.own(input));
        }
        self.notice_access(hub);
        if self.stage == Stage::Clear {
            if !self.outbox.send(out) {
                self.stage = Stage::Open;
            }
        } else if has_output {
            self.outbox.flush(out);
        }
    }

    fn execute(
        &mut self,
        (mut request, input): (Request, &[u8]),
        (core, scratch): (&mut Core, &mut TurnScratch),
        hub: &Hub,
        mut now: Time,
        out: &mut Output,
        turn_log: &mut TurnLog,
    ) -> Batch {
        let mut is_first = true;
        loop {
            let client = self.client;
            let body = hub.log.as_ref().and_then(|log| log.body_to_stage(&request)).cloned().filter(|_| {
                let mut context = core.context(hub, client, now, self.ready.half_closed);
                context.access = self.access.as_deref_mut();
                request.is_permitted(&mut context)
            });
            if body.is_some() || !core.admits(hub, &mut self.backlog().space_request, &request, client, is_first) {
                // Request space only for this command: the maximum for all commands usually far exceeds what they need.
                let lacking = core.log_size(&request, self.client);
                self.backlog().pending.push_front(request);
                return Batch { flow: Flow::Next, lacking, body, is_spent: false };
            }
            let mut context = core.context(hub, self.client, now, self.ready.half_closed);
            (context.access, context.input) = (self.access.as_deref_mut(), input);
            turn_log.before(&request, &context, out);
            let flow = self.dialogue.execute(request, &mut context, out);
            turn_log.after(&flow, &context, out, &mut scratch.notes);
            core.engine.take_steps(COMMAND);
            let is_spent = core.engine.steps().are_used_up();
            let goes_on = matches!(flow, Flow::Next) && !is_spent && self.has_pending();
            let next = if goes_on && out.len() <= hub.max_output() { self.backlog().pending.pop_front() } else { None };
            let Some(next) = next else { return Batch { flow, lacking: 0, body: None, is_spent } };
            now = hub.clock.after(now);
            is_first = false;
            core.deliver_events(hub, scratch, Some((self.client, &mut *out)));
            request = next;
        }
    }

    /// If the stage remains [`Stage::Clear`], the caller sends the replies. Returns `true` if the outbox has output.
    fn hand_over(
        &mut self,
        batch: Batch,
        before: Required,
        core: &mut Core,
        hub: &Hub,
        out: &mut Output,
        turn_log: &TurnLog,
    ) -> bool {
        let waits = matches!(batch.flow, Flow::Wait | Flow::WaitForInput);
        let has_failed = matches!(batch.flow, Flow::WrongToken);
        match batch.flow {
            Flow::Next => {}
            Flow::Wait => self.stage = Stage::Open,
            Flow::WaitForInput => self.stage = Stage::Abortable,
            Flow::Close | Flow::WrongToken => {
                self.stage = Stage::Closing;
                self.backlog().pending.clear();
            }
            Flow::Continue(rest) => self.backlog().pending.push_front(*rest),
            Flow::Stop { graceful } => core.request_stop(graceful),
        }
        let promise =
            hub.log.as_ref().and_then(|log| log.promise(before, core.required()).map(|promise| (log, promise)));
        if has_failed || self.access.as_mut().is_some_and(|access| std::mem::take(&mut access.failed)) {
            self.outbox.hold();
            self.wrong_token = WrongToken::Last;
        }
        if self.stage == Stage::Clear {
            if promise.is_none() && batch.lacking == 0 && self.wrong_token != WrongToken::Last {
                return false;
            }
            self.stage = Stage::Open;
        }
        let has_output = match promise {
            Some((log, promise)) => log.hold(promise, &self.outbox, out, waits, turn_log.slow_reply()),
            None => self.outbox.reply(out, waits, false),
        };
        if let (1.., Some(log)) = (batch.lacking, &hub.log) {
            let request = &mut self.backlog.get_or_insert_default().space_request;
            match batch.body {
                Some(body) => log.staging.wait(body, &self.outbox),
                None => log.space.wait(request, batch.lacking, &self.outbox),
            }
        }
        has_output
    }

    /// Ends the client's wait like [`end_wait`], and sends the reply. Returns `false` if an event will end the wait.
    fn hang_up(&mut self, hub: &Hub, thread: &mut ThreadScratch) -> bool {
        let mut out = std::mem::take(&mut thread.turn.out);
        let ended = hub.turn(&mut thread.turn, |core, _, now| {
            let mut context = core.context(hub, self.client, now, true);
            let ended = end_wait(&mut context, &mut out);
            if ended {
                self.outbox.reply(&mut out, false, false);
            }
            ended
        });
        thread.turn.out = out;
        self.outbox.flush(&mut thread.turn.out);
        ended
    }

    pub fn set_access(&mut self, access: Box<ClientAccess>) {
        if let Some(name) = access.name() {
            log::debug!("{}: is {name}", self.client.0);
        }
        self.access = Some(access);
    }

    /// Returns the outbox if its last reply is delayed until [`Outbox::release`].
    pub fn take_delayed(&mut self) -> Option<&Arc<Outbox>> {
        (self.wrong_token == WrongToken::Last).then_some(())?;
        self.wrong_token = WrongToken::Earlier;
        Some(&self.outbox)
    }

    fn notice_access(&mut self, hub: &Hub) {
        if self.wrong_token == WrongToken::Last {
            hub.process.record_wrong_token(self.outbox.peer);
        }
        if self.access.as_ref().is_some_and(|access| access.name().is_some()) {
            self.probation = None;
        }
    }
}
