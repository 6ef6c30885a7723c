//! The protocol state of a connection. Connections use the protocols only through the functions in this file.

use super::guard::Decision;
use super::text::{upto, MAX_QUOTED_NAME};
use super::upload::Upload;
use super::{
    beanstalk, gearman, http, workq, ClientRegistry, CommandId, Context, DecodeLimits, Decoded, Flow, Host, LogSubject,
    Output, ProtocolCommand, Wire,
};
use crate::engine::{Body, ClientId, Engine, Event, JobId, LongCommand, NoJob, ReservePolicy};

/// The maximum number of bytes by which a request's binlog records exceed the request's size in memory.
const RECORD_OVERHEAD: u64 = MAX_QUOTED_NAME as u64 + 100;

/// Large decoders are boxed to keep idle beanstalk connections small.
#[derive(Debug)]
pub enum Dialogue {
    Beanstalk(beanstalk::Decoder),
    Gearman(Box<gearman::Decoder>),
    Workq(Box<workq::Decoder>),
    Http(Box<http::Decoder>),
}

#[derive(Debug)]
pub(super) enum Command {
    Beanstalk(beanstalk::Command),
    Gearman(gearman::Command),
    Workq(Box<workq::Request>),
    Http(Box<http::Request>),
}

#[derive(Debug)]
pub struct Request {
    /// `None` if the request must not be counted.
    pub(super) id: Option<CommandId>,
    pub(super) stage: Stage,
    pub(super) command: Command,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    New,
    /// The permission check continues at the name or job with this index.
    Checking(usize),
    Begun,
}

macro_rules! for_each_protocol {
    ($value:expr, $type:ident, $it:ident => $result:expr) => {
        match $value {
            $type::Beanstalk($it) => $result,
            $type::Gearman($it) => $result,
            $type::Workq($it) => $result,
            $type::Http($it) => $result,
        }
    };
}

impl Wire {
    #[doc(hidden)]
    pub fn reserve_policy(self) -> ReservePolicy {
        match self {
            Wire::Beanstalk | Wire::Http => ReservePolicy::PerConnection,
            Wire::Gearman => ReservePolicy::Notified,
            Wire::Workq => ReservePolicy::Lease,
        }
    }

    /// Returns a function that computes how many reply bytes the next TLS record contains. Each Gearman packet gets its
    /// own record, because some Gearman libraries process a second packet of a record only when more data arrives.
    #[cfg(feature = "tls")]
    pub(crate) fn unit(self) -> fn(&[u8]) -> usize {
        match self {
            Wire::Gearman => gearman::packet_length,
            Wire::Beanstalk | Wire::Workq | Wire::Http => <[u8]>::len,
        }
    }

    pub(crate) fn too_many_connections(self) -> &'static [u8] {
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

    /// Returns `None` if the request is incomplete.
    pub fn next(&mut self, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        Some(match self {
            Dialogue::Beanstalk(decoder) => Request::new(decoder.next(bytes, limits)?, Command::Beanstalk),
            Dialogue::Gearman(decoder) => Request::new(decoder.next(bytes, limits)?, Command::Gearman),
            Dialogue::Workq(decoder) => Request::new(decoder.next(bytes, limits)?, |it| Command::Workq(it.into())),
            Dialogue::Http(decoder) => Request::new(decoder.next(bytes, limits)?, |it| Command::Http(it.into())),
        })
    }

    /// Decodes only frequent beanstalk requests. A body can stay in `bytes` until [`Request::own`] copies the body.
    pub fn next_plain(&mut self, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        let Dialogue::Beanstalk(decoder) = self else { return None };
        decoder.next_plain(bytes, limits).map(|it| Request::new(it, Command::Beanstalk))
    }

    /// Returns a buffer into which the server can read more bytes of a body. `room` is the available memory in bytes.
    pub fn gap(&mut self, room: u64) -> Option<&mut [u8]> {
        match self {
            Dialogue::Http(decoder) => decoder.gap(room),
            _ => self.upload()?.gap(room),
        }
    }

    pub fn filled(&mut self, count: usize) {
        self.upload().into_iter().for_each(|upload| upload.filled(count));
    }

    fn upload(&mut self) -> Option<&mut Upload> {
        for_each_protocol!(self, Dialogue, decoder => decoder.upload())
    }

    pub fn is_uploading(&mut self) -> bool {
        self.upload().is_some()
    }

    /// Returns the number of HTTP requests, and `true` if a body is incomplete, or `None` for other protocols.
    pub fn progress(&self) -> Option<(u64, bool)> {
        let Dialogue::Http(decoder) = self else { return None };
        Some(decoder.progress())
    }

    /// Returns the size of an incomplete body and of the command that waits for this body on the heap in bytes.
    pub fn uploading(&self) -> u64 {
        for_each_protocol!(self, Dialogue, decoder => decoder.uploading())
    }

    pub fn execute(&mut self, mut request: Request, context: &mut Context, out: &mut Output) -> Flow {
        if context.access.is_some() && request.stage != Stage::Begun {
            match request.check(context) {
                Some(Ok(())) => {}
                None => return Flow::Continue(Box::new(request)),
                Some(Err(denied)) => {
                    match (self, &request.command) {
                        (Dialogue::Http(it), Command::Http(head)) if head.awaits_body => it.accept_body(false),
                        _ => {}
                    }
                    return for_each_protocol!(&request.command, Command, it => it.deny(denied, out));
                }
            }
        }
        if let Some(id) = request.id {
            context.counters.count(id);
        }
        match (self, request.command) {
            (Dialogue::Beanstalk(_), Command::Beanstalk(command)) => beanstalk::execute(command, context, out),
            (Dialogue::Gearman(_), Command::Gearman(command)) => gearman::execute(command, context, out),
            (Dialogue::Workq(_), Command::Workq(request)) => workq::execute(*request, context, out),
            (Dialogue::Http(decoder), Command::Http(request)) => http::execute(*request, decoder, context, out),
            // Formatting the decoder and the command would add 100 KiB of derived `Debug` code to the program.
            _ => unreachable!("a command of another protocol"),
        }
    }

    pub fn receives_unsolicited(&self) -> bool {
        matches!(self, Dialogue::Gearman(_))
    }
}

impl Request {
    fn new<C>((id, command): Decoded<C>, wrap: impl FnOnce(C) -> Command) -> Request {
        Request { id, stage: Stage::New, command: wrap(command) }
    }

    fn check(&mut self, context: &mut Context) -> Decision {
        if let Command::Http(request) = &self.command {
            http::authenticate(request, context);
        }
        let mut from = if let Stage::Checking(from) = self.stage { from } else { 0 };
        let decision = for_each_protocol!(&self.command, Command, it => it.check(self.id, &mut from, context));
        self.stage = Stage::Checking(from);
        decision
    }

    /// Returns `true` if the client may execute the request, and `false` if it is denied or the decision is pending.
    pub fn is_permitted(&mut self, context: &mut Context) -> bool {
        context.access.is_none() || self.stage == Stage::Begun || self.check(context) == Some(Ok(()))
    }

    pub fn has_begun(&self) -> bool {
        self.stage != Stage::New
    }

    pub fn into_operation(self) -> Option<LongCommand> {
        if self.stage != Stage::Begun {
            return None;
        }
        for_each_protocol!(self.command, Command, it => it.into_operation())
    }

    /// Copies the body from `input`, which the caller is about to overwrite.
    pub fn own(&mut self, input: &[u8]) {
        if let Command::Beanstalk(command) = &mut self.command {
            command.own(input);
        }
    }

    /// Returns the maximum size of the request's binlog records in bytes.
    pub fn log_size(&self) -> u64 {
        match for_each_protocol!(&self.command, Command, it => it.is_logged()) {
            true => self.footprint() + RECORD_OVERHEAD,
            false => 0,
        }
    }

    /// Returns the log size of a volatile job that this request makes durable, or of a job that a kicked schedule puts.
    pub fn copied_size(&self, engine: &mut Engine, client: ClientId) -> u64 {
        match &self.command {
            Command::Gearman(gearman::Command::Submit(job)) if job.background => {
                return engine.persist_size_of(&job.function, &job.unique, job.body.len());
            }
            Command::Beanstalk(beanstalk::Command::KickJob(id)) => return engine.run_size(*id),
            Command::Http(request) if self.name() == "kick-job" => {
                return request.log_subject().id.map_or(0, |id| engine.run_size(JobId(id)));
            }
            _ => {}
        }
        let tags = for_each_protocol!(&self.command, Command, it => it.tags());
        tags.map_or(0, |tags| engine.persist_size_of_tagged(client, tags))
    }

    pub fn job_body(&self) -> Option<&Body> {
        for_each_protocol!(&self.command, Command, it => it.job_body())
    }

    pub fn footprint(&self) -> u64 {
        size_of::<Request>() as u64 + for_each_protocol!(&self.command, Command, it => it.footprint())
    }

    pub fn log_subject(&self) -> LogSubject {
        match self.has_begun() {
            true => LogSubject::default(),
            false => for_each_protocol!(&self.command, Command, it => it.log_subject()),
        }
    }

    pub fn name(&self) -> &'static str {
        match self.id {
            _ if self.has_begun() => "the rest of a command",
            Some(id) => id.entry().name,
            None => "no command",
        }
    }
}

impl Flow {
    pub(super) fn resume(command: Command) -> Flow {
        Flow::Continue(Box::new(Request { id: None, stage: Stage::Begun, command }))
    }
}

/// Ends a client's wait after a half-close or new input. Returns `false` if an event will end the wait instead.
pub fn end_wait(context: &mut Context, out: &mut Output) -> bool {
    let Context { engine, registry, host, client, now, .. } = context;
    let waited = !engine.hurry(*client, *now) && engine.cancel_wait(*client);
    if waited {
        notify(&Event::NoJob { client: *client, why: NoJob::TimedOut }, engine, registry, *host, out);
    }
    waited
}

/// Returns `false` if the protocol has no message for the event. In that case, a waiting client continues to wait.
pub fn notify(event: &Event, engine: &Engine, clients: &mut ClientRegistry, host: &dyn Host, out: &mut Output) -> bool {
    let before = out.len();
    match clients.get_mut(event.client()) {
        Some(info) if info.wire == Wire::Gearman => gearman::notify(event, info, host, out),
        Some(info) if info.wire == Wire::Workq => workq::notify(event, engine, info, out),
        // HTTP clients need no events: they reserve a job only to bury it immediately.
        Some(info) if info.wire == Wire::Http => {}
        _ => beanstalk::notify(event, engine, out),
    }
    out.len() > before
}

/// Describes the reply at offset `before` for the log, without its body, which can be confidential.
pub fn reply_note(out: &Output, before: usize) -> String {
    let bytes: Vec<u8> = out.chunks().flatten().skip(before).take(200).copied().collect();
    if let Some(rest) = bytes.strip_prefix(b"\0RES") {
        let kind = rest.first_chunk().map_or(0, |kind| u32::from_be_bytes(*kind));
        return format!("packet {kind}");
    }
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    upto(&bytes, end).iter().map(|byte| if matches!(byte, b' '..=b'~') { *byte as char } else { '.' }).collect()
}

pub fn noted_job(reply: &str) -> Option<JobId> {
    let rest = ["INSERTED ", "RESERVED ", "FOUND "].iter().find_map(|word| reply.strip_prefix(word))?;
    rest.split(' ').next()?.parse().ok().map(JobId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_of_a_reply_is_logged() {
        let mut out = Output::new();
        out.text().extend_from_slice(b"INSERTED 1\r\nRESERVED 2 5\r\nhello\r\n");
        assert_eq!(
            (reply_note(&out, 0), reply_note(&out, 12), reply_note(&out, 33)),
            ("INSERTED 1".into(), "RESERVED 2 5".into(), String::new())
        );
        let mut packet = Output::new();
        packet.text().extend_from_slice(b"\0RES\0\0\0\x08\0\0\0\x05H:h:1");
        assert_eq!(reply_note(&packet, 0), "packet 8");
    }

    #[test]
    fn job_ids_are_parsed_from_replies() {
        assert_eq!(noted_job("RESERVED 12 5"), Some(JobId(12)));
        assert_eq!(noted_job("INSERTED 7"), Some(JobId(7)));
        assert_eq!(noted_job("KICKED 7"), None);
    }
}
