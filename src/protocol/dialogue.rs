//! A connection's state in its protocol.
//!
//! Owns the dispatch to the protocols: the server uses only this interface. Must not know the words of any protocol.

use super::guard;
use super::text::MAX_QUOTED_NAME;
use super::upload::Upload;
use super::{
    beanstalk, gearman, http, workq, ClientRegistry, CommandPlace, Context, DecodeLimits, Flow, Host, LogSubject,
    Output, Wire,
};
use crate::engine::{ClientId, Engine, Event, LongCommand, NoJob, ReservePolicy};

/// Upper bound of the size of a request's log records besides its memory, in bytes: a tube name, and numbers.
const RECORD_OVERHEAD: u64 = MAX_QUOTED_NAME as u64 + 100;

/// The protocol state of a connection.
#[derive(Debug)]
pub enum Dialogue {
    Beanstalk(beanstalk::Decoder),
    /// Gearman's state, boxed, so that connections of other protocols need no room for it.
    Gearman(Box<(gearman::Decoder, gearman::Session)>),
    Workq(Box<workq::Decoder>),
    /// HTTP's state, boxed for the same reason.
    Http(Box<http::Decoder>),
}

/// A request of any protocol.
#[derive(Debug)]
pub enum Request {
    Beanstalk(beanstalk::Request),
    Gearman(gearman::Request),
    Workq(Box<workq::Request>),
    Http(Box<http::Request>),
    /// A request that has begun in an earlier turn.
    Continue(Box<Begun>),
}

/// A request that needs another turn.
#[derive(Debug)]
pub struct Begun {
    pub request: Request,
    /// The position of its unchecked names, if the client's permission has not been fully checked.
    pub unchecked: Option<usize>,
}

impl Begun {
    /// Returns the command to complete although the client has hung up, if there is one.
    pub fn into_operation(self) -> Option<LongCommand> {
        match self.request {
            _ if self.unchecked.is_some() => None,
            Request::Beanstalk(request) => request.into_operation(),
            Request::Http(request) => request.into_operation(),
            _ => None,
        }
    }
}

impl Wire {
    /// Returns how the protocol's clients reserve jobs.
    pub fn reserve_policy(self) -> ReservePolicy {
        match self {
            Wire::Beanstalk | Wire::Http => ReservePolicy::PerConnection,
            Wire::Gearman => ReservePolicy::Notified,
            Wire::Workq => ReservePolicy::Lease,
        }
    }

    /// Returns a function that counts how many of these bytes of replies need a TLS record of their own. Some Gearman
    /// libraries ignore a second packet in a record until more data arrive.
    #[cfg(feature = "tls")]
    pub fn unit(self) -> fn(&[u8]) -> usize {
        match self {
            Wire::Gearman => gearman::packet_length,
            Wire::Beanstalk | Wire::Workq | Wire::Http => <[u8]>::len,
        }
    }

    /// Returns the reply to a client that connects when the server is full.
    pub fn too_many_connections(self) -> &'static [u8] {
        match self {
            Wire::Beanstalk => beanstalk::TOO_MANY_CONNECTIONS,
            Wire::Gearman => gearman::TOO_MANY_CONNECTIONS,
            Wire::Workq => workq::TOO_MANY_CONNECTIONS,
            Wire::Http => http::TOO_MANY_CONNECTIONS,
        }
    }
}

impl Dialogue {
    pub fn new(wire: Wire) -> Dialogue {
        match wire {
            Wire::Beanstalk => Dialogue::Beanstalk(beanstalk::Decoder::default()),
            Wire::Gearman => Dialogue::Gearman(Box::default()),
            Wire::Workq => Dialogue::Workq(Box::default()),
            Wire::Http => Dialogue::Http(Box::default()),
        }
    }

    /// Takes the next request from the front of `bytes`. Returns `None` if it has not arrived completely.
    pub fn next(&mut self, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        match self {
            Dialogue::Beanstalk(decoder) => decoder.next(bytes, limits).map(Request::Beanstalk),
            Dialogue::Gearman(both) => both.0.next(bytes, limits).map(Request::Gearman),
            Dialogue::Workq(decoder) => decoder.next(bytes, limits).map(|request| Request::Workq(request.into())),
            Dialogue::Http(decoder) => decoder.next(bytes, limits).map(|request| Request::Http(request.into())),
        }
    }

    /// Like [`Dialogue::next`], only for the most frequent requests, whose bodies may stay in `bytes` until
    /// [`Request::own`] copies them.
    pub fn next_plain(&mut self, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        match self {
            Dialogue::Beanstalk(decoder) => decoder.next_plain(bytes, limits).map(Request::Beanstalk),
            _ => None,
        }
    }

    /// Returns the missing part of an arriving body, to be read in place, with at most `room` bytes of memory.
    pub fn gap(&mut self, room: u64) -> Option<&mut [u8]> {
        match self {
            Dialogue::Http(decoder) => decoder.gap(room),
            _ => self.upload()?.gap(room),
        }
    }

    /// Records that this many bytes of the gap have arrived.
    pub fn filled(&mut self, count: usize) {
        if let Some(upload) = self.upload() {
            upload.filled(count);
        }
    }

    fn upload(&mut self) -> Option<&mut Upload> {
        match self {
            Dialogue::Beanstalk(decoder) => decoder.upload(),
            Dialogue::Gearman(both) => both.0.upload(),
            Dialogue::Workq(decoder) => decoder.upload(),
            Dialogue::Http(decoder) => decoder.upload(),
        }
    }

    /// Returns `true` if only a part of a body has arrived.
    pub fn is_uploading(&mut self) -> bool {
        self.upload().is_some()
    }

    /// For HTTP, returns the number of requests so far, and whether the body of one is arriving.
    pub fn progress(&self) -> Option<(u64, bool)> {
        match self {
            Dialogue::Http(decoder) => Some(decoder.progress()),
            Dialogue::Beanstalk(_) | Dialogue::Gearman(..) | Dialogue::Workq(_) => None,
        }
    }

    /// Returns the memory in use for arriving data, in bytes.
    pub fn uploading(&mut self) -> u64 {
        match self {
            Dialogue::Workq(decoder) => decoder.uploading(),
            Dialogue::Http(decoder) => decoder.uploading(),
            Dialogue::Beanstalk(_) | Dialogue::Gearman(_) => self.upload().map_or(0, |upload| upload.footprint()),
        }
    }

    /// Executes one request, if the client has the permission, and appends the reply.
    pub fn execute(&mut self, request: Request, context: &mut Context, out: &mut Output) -> Flow {
        if context.access.is_none() {
            return self.carry_out(request, context, out);
        }
        let introduces = matches!(&request, Request::Http(request) if request.introduces);
        match guard::check(request, context, out) {
            Ok(request) => self.carry_out(request, context, out),
            Err(flow) => {
                if introduces {
                    self.answer(false);
                }
                flow
            }
        }
    }

    /// Accepts or refuses the body of a request that waits for permission.
    pub fn answer(&mut self, is_wanted: bool) {
        if let Dialogue::Http(decoder) = self {
            decoder.answer(is_wanted);
        }
    }

    fn carry_out(&mut self, request: Request, context: &mut Context, out: &mut Output) -> Flow {
        if let Some(place) = request.place() {
            context.counters.count(place);
        }
        let request = match request {
            Request::Continue(begun) => begun.request,
            request => request,
        };
        match (self, request) {
            (Dialogue::Beanstalk(_), Request::Beanstalk(request)) => beanstalk::execute(request, context, out),
            (Dialogue::Gearman(both), Request::Gearman(request)) => {
                gearman::execute(request, &mut both.1, context, out)
            }
            (Dialogue::Workq(_), Request::Workq(request)) => workq::execute(*request, context, out),
            (Dialogue::Http(decoder), Request::Http(request)) => http::execute(*request, decoder, context, out),
            (dialogue, request) => unreachable!("{request:?} in {dialogue:?}"),
        }
    }

    /// Returns `true` if the client accepts messages at any time, and not only while it waits.
    pub fn is_told_unasked(&self) -> bool {
        match self {
            Dialogue::Gearman(..) => true,
            Dialogue::Beanstalk(_) | Dialogue::Workq(_) | Dialogue::Http(_) => false,
        }
    }
}

impl Request {
    /// Copies a body in the input of the turn, which is about to be dropped.
    pub fn own(&mut self, input: &[u8]) {
        match self {
            Request::Beanstalk(request) => request.own(input),
            Request::Continue(begun) => begun.request.own(input),
            Request::Gearman(_) | Request::Workq(_) | Request::Http(_) => {}
        }
    }

    /// Upper bound of the size of the request's log records, in bytes; 0 if it has none.
    pub fn log_size(&self) -> u64 {
        let is_logged = match self {
            Request::Beanstalk(request) => request.command.is_logged(),
            Request::Gearman(request) => request.command.is_logged(),
            Request::Workq(request) => request.command.is_logged(),
            Request::Http(request) => request.is_logged(),
            Request::Continue(begun) => return begun.request.log_size(),
        };
        if is_logged {
            self.footprint() + RECORD_OVERHEAD
        } else {
            0
        }
    }

    /// The size of the log records for a job that the request finds and that is not in a log yet, in bytes; 0 if there
    /// is no such job.
    pub fn adoption_size(&self, engine: &mut Engine, client: ClientId) -> u64 {
        match self {
            Request::Beanstalk(beanstalk::Request {
                command: beanstalk::Command::Put { tags: Some(tags), .. },
                ..
            }) => engine.adoption_of_tagged(client, tags),
            Request::Gearman(gearman::Request { command: gearman::Command::Submit(job), .. }) if job.background => {
                engine.adoption_of(&job.function, &job.unique, job.body.len())
            }
            Request::Continue(begun) => begun.request.adoption_size(engine, client),
            Request::Http(request) => request.tags().map_or(0, |tags| engine.adoption_of_tagged(client, tags)),
            Request::Beanstalk(_) | Request::Gearman(_) | Request::Workq(_) => 0,
        }
    }

    /// The memory in use while the request waits for its turn, in bytes.
    pub fn footprint(&self) -> u64 {
        let own = size_of::<Request>() as u64;
        own + match self {
            Request::Beanstalk(request) => request.footprint(),
            Request::Gearman(request) => request.command.footprint(),
            Request::Workq(request) => request.footprint(),
            Request::Http(request) => request.footprint(),
            Request::Continue(begun) => begun.request.footprint(),
        }
    }

    /// Returns the subject of the request for the log; empty for Gearman and Workq, whose commands identify jobs
    /// differently.
    pub fn log_subject(&self) -> LogSubject {
        match self {
            Request::Beanstalk(request) => request.log_subject(),
            Request::Http(request) => request.log_subject(),
            Request::Gearman(_) | Request::Workq(_) | Request::Continue(_) => LogSubject::default(),
        }
    }

    /// Returns the command under which the request is counted; `None` if it is invalid, or the rest of a command.
    fn place(&self) -> Option<CommandPlace> {
        match self {
            Request::Beanstalk(request) => request.place(),
            Request::Gearman(request) => request.place,
            Request::Workq(request) => request.place(),
            Request::Http(request) => request.counted().map(CommandPlace::http),
            Request::Continue(_) => None,
        }
    }

    /// Returns the command's name in its protocol, for the log.
    pub fn name(&self) -> &'static str {
        match (self, self.place()) {
            (Request::Continue(_), _) => "the rest of a command",
            (_, Some(place)) => place.name().1,
            (_, None) => "no command",
        }
    }
}

/// Ends the wait of a client that has half-closed its connection. Returns `true` if the client was waiting.
pub fn hang_up(context: &mut Context, out: &mut Output) -> bool {
    let Context { engine, registry, host, client, now, .. } = context;
    let waited = !engine.hurry(*client, *now) && engine.cancel_wait(*client);
    if waited {
        let event = Event::NoJob { client: *client, why: NoJob::TimedOut };
        tell(&event, engine, registry, *host, out);
    }
    waited
}

/// Reports an event to the client in its own protocol. Returns `false` if the protocol has no message for the event: a
/// waiting client then continues to wait.
pub fn tell(event: &Event, engine: &Engine, registry: &mut ClientRegistry, host: &dyn Host, out: &mut Output) -> bool {
    let before = out.len();
    match registry.get_mut(event.client()) {
        Some(peer) if peer.wire == Wire::Gearman => gearman::tell(event, peer, host, out),
        Some(peer) if peer.wire == Wire::Workq => workq::tell(event, engine, peer, out),
        // An HTTP client that buries a job has reserved it for that moment, and needs no events.
        Some(peer) if peer.wire == Wire::Http => {}
        _ => beanstalk::tell(event, engine, out),
    }
    out.len() > before
}
