//! One connection's side of its protocol, whichever that is.
//!
//! Owns the choice of the room: what the server does with a connection, it does with this. Must not know any protocol's
//! words.

use super::guard;
use super::text::MAX_QUOTED_NAME;
use super::upload::Upload;
use super::{
    beanstalk, gearman, http, workq, ClientRegistry, CommandPlace, Context, DecodeLimits, Flow, Host, LogSubject,
    Output, Wire,
};
use crate::engine::{ClientId, Engine, Event, LongCommand, NoJob, ReservePolicy};

/// Upper bound of the bytes of log that a request takes beside what it takes of memory: a name of a tube, and numbers.
const RECORD_OVERHEAD: u64 = MAX_QUOTED_NAME as u64 + 100;

/// What a connection remembers of what it was told.
#[derive(Debug)]
pub enum Dialogue {
    Beanstalk(beanstalk::Decoder),
    /// In the Gearman protocol; apart, so that those who speak another need no room for it.
    Gearman(Box<(gearman::Decoder, gearman::Session)>),
    Workq(Box<workq::Decoder>),
    /// In HTTP; apart for the same reason.
    Http(Box<http::Decoder>),
}

/// Something that a client asks for.
#[derive(Debug)]
pub enum Request {
    Beanstalk(beanstalk::Request),
    Gearman(gearman::Request),
    Workq(Box<workq::Request>),
    Http(Box<http::Request>),
    /// One that has begun in an earlier turn.
    Continue(Box<Begun>),
}

/// A request that needs another turn.
#[derive(Debug)]
pub struct Begun {
    pub request: Request,
    /// If it has not been decided whether the client may give it: where its unchecked names begin.
    pub unchecked: Option<usize>,
}

impl Begun {
    /// Returns the command to complete although the client has hung up, if it is one.
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
    /// How its clients take jobs.
    pub fn reserve_policy(self) -> ReservePolicy {
        match self {
            Wire::Beanstalk | Wire::Http => ReservePolicy::PerConnection,
            Wire::Gearman => ReservePolicy::Notified,
            Wire::Workq => ReservePolicy::Lease,
        }
    }

    /// Tells how many of these bytes of replies go into a record of TLS without others. Some libraries for Gearman see
    /// a second packet in a record only when more comes.
    #[cfg(feature = "tls")]
    pub fn unit(self) -> fn(&[u8]) -> usize {
        match self {
            Wire::Gearman => gearman::packet_length,
            Wire::Beanstalk | Wire::Workq | Wire::Http => <[u8]>::len,
        }
    }

    /// What a client is told that connects when there is no room for it.
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

    /// Understands the next request, of which it takes the bytes; none if it is not all there.
    pub fn next(&mut self, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        match self {
            Dialogue::Beanstalk(decoder) => decoder.next(bytes, limits).map(Request::Beanstalk),
            Dialogue::Gearman(both) => both.0.next(bytes, limits).map(Request::Gearman),
            Dialogue::Workq(decoder) => decoder.next(bytes, limits).map(|request| Request::Workq(request.into())),
            Dialogue::Http(decoder) => decoder.next(bytes, limits).map(|request| Request::Http(request.into())),
        }
    }

    /// The same for the most frequent requests alone, of which [`Request::own`] copies what is left in `bytes`.
    pub fn next_plain(&mut self, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        match self {
            Dialogue::Beanstalk(decoder) => decoder.next_plain(bytes, limits).map(Request::Beanstalk),
            _ => None,
        }
    }

    /// The part of an arriving body that is still to come, to be read in place; there are `room` bytes of memory for
    /// it.
    pub fn gap(&mut self, room: u64) -> Option<&mut [u8]> {
        match self {
            Dialogue::Http(decoder) => decoder.gap(room),
            _ => self.upload()?.gap(room),
        }
    }

    /// So many bytes of the gap have come.
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

    /// Whether a part of a body has come and the rest has not.
    pub fn is_uploading(&mut self) -> bool {
        self.upload().is_some()
    }

    /// Of an operator's: how many requests it has made, and whether the body of one is arriving.
    pub fn progress(&self) -> Option<(u64, bool)> {
        match self {
            Dialogue::Http(decoder) => Some(decoder.progress()),
            Dialogue::Beanstalk(_) | Dialogue::Gearman(..) | Dialogue::Workq(_) => None,
        }
    }

    /// Bytes taken for what is arriving.
    pub fn uploading(&mut self) -> u64 {
        match self {
            Dialogue::Workq(decoder) => decoder.uploading(),
            Dialogue::Http(decoder) => decoder.uploading(),
            Dialogue::Beanstalk(_) | Dialogue::Gearman(_) => self.upload().map_or(0, |upload| upload.footprint()),
        }
    }

    /// Carries out one request, if the client may give it, and appends the reply.
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

    /// Says whether the body of a request is wanted, if one asked.
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

    /// Whether the client may be told something at any time, and not just while it waits.
    pub fn is_told_unasked(&self) -> bool {
        match self {
            Dialogue::Gearman(..) => true,
            Dialogue::Beanstalk(_) | Dialogue::Workq(_) | Dialogue::Http(_) => false,
        }
    }
}

impl Request {
    /// Copies what it has left in the input of its turn, which is about to go.
    pub fn own(&mut self, input: &[u8]) {
        match self {
            Request::Beanstalk(request) => request.own(input),
            Request::Continue(begun) => begun.request.own(input),
            Request::Gearman(_) | Request::Workq(_) | Request::Http(_) => {}
        }
    }

    /// Upper bound of the bytes that its records take in the log; 0 if it has none.
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

    /// Bytes that its records take in the log if it finds a job there that no log has yet; zero if it finds none.
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

    /// Bytes of memory that it takes while it waits for its turn.
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

    /// What it is about, for the log; of Gearman and Workq, whose commands name their jobs in their own ways, nothing.
    pub fn log_subject(&self) -> LogSubject {
        match self {
            Request::Beanstalk(request) => request.log_subject(),
            Request::Http(request) => request.log_subject(),
            Request::Gearman(_) | Request::Workq(_) | Request::Continue(_) => LogSubject::default(),
        }
    }

    /// As what it is counted; none if it is no command, or the rest of one.
    fn place(&self) -> Option<CommandPlace> {
        match self {
            Request::Beanstalk(request) => request.place(),
            Request::Gearman(request) => request.place,
            Request::Workq(request) => request.place(),
            Request::Http(request) => request.counted().map(CommandPlace::http),
            Request::Continue(_) => None,
        }
    }

    /// Its name in its protocol, for the log.
    pub fn name(&self) -> &'static str {
        match (self, self.place()) {
            (Request::Continue(_), _) => "the rest of a command",
            (_, Some(place)) => place.name().1,
            (_, None) => "no command",
        }
    }
}

/// Ends the wait of a client that has shut down its sending side; tells whether it waited.
pub fn hang_up(context: &mut Context, out: &mut Output) -> bool {
    let Context { engine, registry, host, client, now, .. } = context;
    let waited = !engine.hurry(*client, *now) && engine.cancel_wait(*client);
    if waited {
        let event = Event::NoJob { client: *client, why: NoJob::TimedOut };
        tell(&event, engine, registry, *host, out);
    }
    waited
}

/// Tells the client of an event what it is about, in its own protocol. False if that has no words for it: then a client
/// that waits goes on waiting.
pub fn tell(event: &Event, engine: &Engine, registry: &mut ClientRegistry, host: &dyn Host, out: &mut Output) -> bool {
    let before = out.len();
    match registry.get_mut(event.client()) {
        Some(peer) if peer.wire == Wire::Gearman => gearman::tell(event, peer, host, out),
        Some(peer) if peer.wire == Wire::Workq => workq::tell(event, engine, peer, out),
        // An operator who buries a job has reserved it for that moment, and hears of nothing else.
        Some(peer) if peer.wire == Wire::Http => {}
        _ => beanstalk::tell(event, engine, out),
    }
    out.len() > before
}
