//! Decoder for HTTP requests. Refuses ambiguous input and closes the connection, to prevent request smuggling.

use super::action::{HttpAction, HttpTarget, Method, RequestTarget};
use super::reply::{self, Failure, RequestHead};
use super::routes::{parse, Route, Routed, ROUTES};
use crate::access::{Denied, Digest, Need};
use crate::engine::{Body, LongCommand, Tags};
use crate::protocol::counters::FIRST_HTTP;
use crate::protocol::guard::Subject;
use crate::protocol::text::{past, upto};
use crate::protocol::upload::Upload;
use crate::protocol::{CommandId, Context, DecodeLimits, Decoded, Flow, LogSubject, Output, ProtocolCommand};

/// The maximum size of the request line and the headers in bytes.
pub const MAX_HEAD: usize = 8 * 1024;
/// The maximum size of a JSON body in bytes. Larger jobs require another protocol.
pub const MAX_BODY: usize = 1 << 20;
/// A body of at most this many bytes is accepted even if no memory is free, because the request may free memory.
const SHORT_BODY: u64 = 4 * 1024;
const MAX_HEADERS: usize = 64;

#[derive(Debug)]
pub struct Request {
    pub head: Box<RequestHead>,
    /// `Ok(None)` if the body has not been read, and an error if the request is invalid.
    pub action: Result<Option<Box<dyn HttpAction>>, Failure>,
    route: Option<usize>,
    target: HttpTarget,
    need: Need,
    /// The size of the body in bytes.
    size: usize,
    /// `true` if the server must call [`Decoder::accept_body`] for an unread body.
    pub awaits_body: bool,
    /// `true` if the end of the request is unknown, so the connection must close.
    pub is_last: bool,
}

impl Request {
    pub fn route(&self) -> Option<&'static Route> {
        self.route.and_then(|index| ROUTES.get(index))
    }

    pub fn changes(&self) -> bool {
        self.route().is_some_and(|route| route.method == Method::Post)
    }

    fn action(&self) -> Option<&dyn HttpAction> {
        self.action.as_ref().ok()?.as_deref()
    }

    fn new(head: RequestHead, parsed: Result<Routed, Failure>, size: usize) -> Request {
        let (route, target, need, action) = match parsed {
            Ok(Routed { route, target, need, action }) => (Some(route), target, need, Ok(action)),
            Err(failure) => (None, HttpTarget::default(), Need::OPEN, Err(failure)),
        };
        Request { head: head.into(), action, route, target, need, size, awaits_body: false, is_last: false }
    }
}

impl ProtocolCommand for Request {
    fn subject(&self, _: &Context) -> Subject<'_> {
        self.target.subject()
    }

    fn need(&self, _: Option<CommandId>) -> Need {
        self.need
    }

    fn deny(&self, denied: Denied, out: &mut Output) -> Flow {
        reply::denied(out, denied, self.need, self.awaits_body, &self.head)
    }

    fn is_logged(&self) -> bool {
        self.changes() && matches!(self.action, Ok(Some(_)))
    }

    fn footprint(&self) -> u64 {
        let size = (size_of::<RequestHead>() + self.head.size + self.size) as u64;
        size + self.action().map_or(0, |action| size_of_val(action) as u64 + action.footprint())
    }

    fn log_subject(&self) -> LogSubject {
        LogSubject { size: self.job_body().map(|body| body.len()), ..LogSubject::of(self.target.subject()) }
    }

    fn job_body(&self) -> Option<&Body> {
        self.action()?.job_body()
    }

    fn tags(&self) -> Option<&Tags> {
        self.action()?.tags()
    }

    /// `true` for a public path, and for a request whose end is unknown, because its reply is always an error.
    fn allows_anonymous(&self) -> bool {
        self.is_last || self.route().is_some_and(|route| route.need == Need::OPEN)
    }

    fn into_operation(self) -> Option<LongCommand> {
        self.action.ok()??.into_operation()
    }
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    RequestHead,
    Body(Box<(RequestHead, RequestTarget, Upload)>),
    /// Waits for the server to accept or refuse a body.
    BeforeBody(Box<BeforeBody>),
    /// Discards the rest of a refused body.
    Refused(Upload),
    /// Discards all input until the connection closes.
    Closing,
}

#[derive(Debug)]
struct BeforeBody {
    head: RequestHead,
    target: RequestTarget,
    size: usize,
    is_accepted: bool,
}

#[derive(Debug, Default)]
pub struct Decoder {
    stage: Stage,
    count: u64,
}

struct Found {
    length: usize,
    head: RequestHead,
    target: Result<RequestTarget, Failure>,
    body: Option<usize>,
}

impl Decoder {
    pub fn gap(&mut self, room: u64) -> Option<&mut [u8]> {
        self.upload()?.gap(room.max(SHORT_BODY))
    }

    pub fn upload(&mut self) -> Option<&mut Upload> {
        let Stage::Body(parts) = &mut self.stage else { return None };
        parts.2.kept()
    }

    pub fn uploading(&self) -> u64 {
        let (head, body) = match &self.stage {
            Stage::Body(parts) => (&parts.0, parts.2.footprint()),
            Stage::BeforeBody(parts) => (&parts.head, 0),
            _ => return 0,
        };
        body + (size_of::<(RequestHead, RequestTarget, Upload)>() + head.size) as u64
    }

    pub fn progress(&self) -> (u64, bool) {
        (self.count, matches!(self.stage, Stage::Body(_) | Stage::BeforeBody(_) | Stage::Refused(_)))
    }

    /// Accepts or refuses the body. Discards a refused body, or all later input if the client waits for `100 Continue`.
    pub fn accept_body(&mut self, is_accepted: bool) {
        let Stage::BeforeBody(parts) = &mut self.stage else { return };
        if is_accepted {
            parts.is_accepted = true;
        } else if parts.head.expects_continue {
            self.stage = Stage::Closing;
        } else {
            self.stage = Stage::Refused(Upload::skip(parts.size as u64));
        }
    }

    pub fn next(&mut self, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Decoded<Request>> {
        let request = self.read(bytes, limits)?;
        self.count += 1;
        // If a request awaits its body, the statistics do not count the request until the body is complete.
        let id = request.route.filter(|_| !request.awaits_body).map(|route| CommandId::new(FIRST_HTTP, route));
        Some((id, request))
    }

    fn read(&mut self, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        let body_limits = DecodeLimits { room: limits.room.max(SHORT_BODY), ..*limits };
        match &mut self.stage {
            Stage::Closing => {
                *bytes = &[];
                None
            }
            Stage::RequestHead => {
                // Some clients send line breaks between requests.
                while let [b'\r' | b'\n', rest @ ..] = bytes {
                    *bytes = rest;
                }
                match read_head(bytes) {
                    Ok(None) => None,
                    Ok(Some(found)) => {
                        *bytes = past(bytes, found.length);
                        self.begin(found, limits)
                    }
                    Err(failure) => Some(self.close(RequestHead::default(), failure)),
                }
            }
            Stage::Body(parts) => {
                parts.2.take(bytes, body_limits.room)?;
                let Stage::Body(parts) = std::mem::take(&mut self.stage) else { unreachable!() };
                let (head, target, upload) = *parts;
                let (parsed, size) = match upload.finish() {
                    None => (Err(Failure::new(503, "there is no memory for this")), 0),
                    Some(body) => (parse(&target, Some(body.bytes()), &body_limits), body.len()),
                };
                Some(Request::new(head, parsed, size))
            }
            Stage::BeforeBody(parts) if !parts.is_accepted => None,
            Stage::BeforeBody(_) => {
                let Stage::BeforeBody(parts) = std::mem::take(&mut self.stage) else { unreachable!() };
                let BeforeBody { head, target, size, .. } = *parts;
                let Some(upload) = Upload::begin(size, body_limits.room) else {
                    return Some(self.close(head, Failure::new(503, "there is no memory for this")));
                };
                self.stage = Stage::Body(Box::new((head, target, upload)));
                self.read(bytes, limits)
            }
            Stage::Refused(body) => {
                body.take(bytes, 0)?;
                self.stage = Stage::RequestHead;
                self.read(bytes, limits)
            }
        }
    }

    fn begin(&mut self, found: Found, limits: &DecodeLimits) -> Option<Request> {
        let Found { head, target, body, .. } = found;
        let target = match (target, body) {
            // Close the connection instead of reading and discarding the body.
            (Err(failure), Some(_)) => return Some(self.close(head, failure)),
            (Err(failure), None) => return Some(Request::new(head, Err(failure), 0)),
            (Ok(target), _) => target,
        };
        let (status, text) = match (target.method, body) {
            (Method::Get, None | Some(0)) | (Method::Post, Some(0)) => {
                return Some(Request::new(head, parse(&target, Some(b""), limits), 0));
            }
            (Method::Post, Some(size)) if size <= MAX_BODY => {
                // After `Expect: 100-continue`, a client can omit a refused body, so the connection must close.
                let closing_head = RequestHead { close: head.close || head.expects_continue, ..head.clone() };
                let parsed = parse(&target, None, limits);
                // The parts of an invalid target can use much memory, and are not needed to skip the body.
                let target = if parsed.is_ok() { target } else { RequestTarget::default() };
                let request = Request::new(closing_head, parsed, 0);
                self.stage = Stage::BeforeBody(Box::new(BeforeBody { head, target, size, is_accepted: false }));
                return Some(Request { awaits_body: true, ..request });
            }
            (Method::Get, Some(_)) => (400, "a GET has no body"),
            (Method::Post, None) => (411, "a POST needs a Content-Length"),
            (Method::Post, Some(_)) => (413, "the body is too long: larger jobs come by the other protocols"),
        };
        Some(self.close(head, Failure::new(status, text)))
    }

    fn close(&mut self, mut head: RequestHead, failure: Failure) -> Request {
        self.stage = Stage::Closing;
        head.close = true;
        Request { is_last: true, ..Request::new(head, Err(failure), 0) }
    }
}

/// After an error, the connection must close, because the start of the next request is unknown.
fn read_head(bytes: &[u8]) -> Result<Option<Found>, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let long = || Failure::new(431, "the head is too long");
    let length = match request.parse(upto(bytes, MAX_HEAD)) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD => return Err(long()),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(long()),
        Err(httparse::Error::Version) => return Err(Failure::new(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")),
        Err(error) => return Err(Failure::new(400, format!("no request of HTTP: {error}"))),
    };
    let (head, body) = read_headers(request.headers, request.version == Some(0))?;
    let is_head = request.method == Some("HEAD");
    let method = match request.method {
        Some("GET" | "HEAD") => Ok(Method::Get),
        Some("POST") => Ok(Method::Post),
        _ => Err(Failure::new(405, "only GET, HEAD and POST are known")),
    };
    let (path, unknown) = (request.path.unwrap_or_default(), || Failure::new(400, "no path of this server"));
    let target = method.and_then(|method| RequestTarget::parse(method, path).ok_or_else(unknown));
    Ok(Some(Found { length, head: RequestHead { size: length, is_head, ..head }, target, body }))
}

/// `old` is `true` for HTTP/1.0. Returns the parsed headers, and the value of `Content-Length`, if any.
fn read_headers(headers: &[httparse::Header], old: bool) -> Result<(RequestHead, Option<usize>), Failure> {
    let wrong = |text: &str| Failure::new(400, text);
    let mut head = RequestHead::default();
    let (mut closes, mut keeps, mut authorized) = (false, false, false);
    let (mut hosts, mut length, mut coded) = (0, None, false);
    for httparse::Header { name, value } in headers {
        let text = std::str::from_utf8(value).map_err(|_| wrong("a header is no text"))?.trim();
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("host") {
            hosts += 1;
            head.host = Some(text.into());
        } else if is("origin") {
            head.origin = Some(text.into());
        } else if is("x-beanpole") {
            head.is_marked = true;
        } else if is("content-type") {
            head.is_json =
                text.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
        } else if is("authorization") {
            let is_first = !std::mem::replace(&mut authorized, true);
            Failure::check(is_first, 400, "there is more than one Authorization header")?;
            let token = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            head.token = token.map(|(_, token)| Digest::of(token.trim().as_bytes()));
        } else if is("connection") {
            let names = |wanted: &str| text.split(',').any(|word| word.trim().eq_ignore_ascii_case(wanted));
            closes |= names("close");
            keeps |= names("keep-alive");
        } else if is("transfer-encoding") {
            coded = true;
        } else if is("content-length") {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let size = digits.then(|| text.parse::<usize>().ok()).flatten();
            let is_valid = size.is_some() && length.is_none();
            Failure::check(is_valid, 400, "the Content-Length is no number, or there are two")?;
            length = size;
        } else if is("expect") {
            head.expects_continue = text.eq_ignore_ascii_case("100-continue");
            Failure::check(head.expects_continue, 417, "only 100-continue can be expected")?;
        }
    }
    // `close` takes precedence over `keep-alive`.
    head.close = closes || old && !keeps;
    if coded {
        return Err(match length {
            Some(_) => wrong("a Content-Length and a Transfer-Encoding contradict each other"),
            None => Failure::new(411, "a body needs a Content-Length, and may not come in chunks"),
        });
    }
    if hosts != 1 {
        // Health checks of some load balancers use HTTP/1.0 without a Host header. Browsers always send the header.
        head.host = (hosts == 0 && old).then(|| "localhost".into());
    }
    Ok((head, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::tests::pieces::LIMITS;

    #[test]
    fn short_body_is_accepted_without_memory() {
        let limits = DecodeLimits { room: 0, ..LIMITS };
        for (size, expected) in [(2, Ok(())), (SHORT_BODY, Ok(())), (SHORT_BODY + 1, Err(503))] {
            let head = format!("POST /api/tubes/t/kick HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
            let body = format!("{{{}}}", " ".repeat(size as usize - 2));
            for (in_place, bytes) in [(true, head.clone()), (false, format!("{head}{body}"))] {
                let (mut decoder, mut bytes) = (Decoder::default(), bytes.as_bytes());
                decoder.next(&mut bytes, &limits).expect("a head");
                decoder.accept_body(true);
                let mut found = decoder.next(&mut bytes, &limits);
                if let (true, Some(gap)) = (in_place, decoder.gap(0)) {
                    gap.copy_from_slice(body.as_bytes());
                    decoder.upload().expect("a body").filled(body.len());
                    found = decoder.next(&mut bytes, &limits);
                }
                let found = found.expect("a request").1.action;
                assert_eq!(found.map(drop).map_err(|failure| failure.status), expected, "{size} bytes");
            }
        }
    }

    #[test]
    fn only_valid_commands_are_logged() {
        let is_logged = |body: &str, path: &str| {
            let head = "Host: a\r\nContent-Type: application/json\r\nContent-Length";
            let bytes = format!("POST {path} HTTP/1.1\r\n{head}: {}\r\n\r\n{body}", body.len());
            let (mut decoder, mut bytes) = (Decoder::default(), bytes.as_bytes());
            let (_, head) = decoder.next(&mut bytes, &LIMITS).expect("a complete head");
            assert!(head.awaits_body && !head.is_logged());
            assert!(decoder.next(&mut bytes, &LIMITS).is_none(), "nothing is read before the body is accepted");
            decoder.accept_body(head.action.is_ok());
            decoder.next(&mut bytes, &LIMITS).is_some_and(|(_, request)| request.is_logged())
        };
        assert!(is_logged(r#"{"body":"abc"}"#, "/api/tubes/t/put"));
        assert!(!is_logged(r#"{"body":7}"#, "/api/tubes/t/put"));
        assert!(!is_logged(r#"{"body":"abc"}"#, "/api/tubes/t/nothing"));
    }

    #[test]
    fn query_of_a_post_is_refused_before_the_body() {
        let query = "a&".repeat(3000);
        let bytes = format!("POST /api/tubes/t/kick?{query} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{{");
        let (mut decoder, mut bytes) = (Decoder::default(), bytes.as_bytes());
        let (_, head) = decoder.next(&mut bytes, &LIMITS).expect("a complete head");
        assert_eq!(head.action.expect_err("an invalid request").status, 400);
        assert!((6000..8000).contains(&decoder.uploading()), "the head must be charged: {}", decoder.uploading());
        decoder.accept_body(false);
        assert_eq!(decoder.uploading(), 0);
    }
}
