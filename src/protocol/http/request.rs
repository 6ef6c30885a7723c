//! Bytes to requests: heads, and the bodies behind them.
//!
//! Owns the framing. What could be read in two ways is refused, and the connection closed: nobody may smuggle a request
//! behind another. Must not know the queue.

use super::routes::{self, Command, RequestTarget, Route, Routed, ROUTES};
use super::types::{Failure, Head, Method};
use crate::access::{Digest, Need};
use crate::json::Object;
use crate::protocol::guard::Subject;
use crate::protocol::text::{past, upto};
use crate::protocol::upload::Upload;
use crate::protocol::{DecodeLimits, LogSubject};

/// Bytes of the longest head: request line and headers.
pub const MAX_HEAD: usize = 8 * 1024;

/// Bytes of the longest body that is read, of JSON. Larger jobs come by the other protocols.
pub const MAX_BODY: usize = 1 << 20;

/// Headers that are read; more are refused.
const MAX_HEADERS: usize = 64;

/// What a client asks for.
#[derive(Debug)]
pub struct Request {
    pub head: Box<Head>,
    /// What, or why that is not understood.
    pub command: Result<Command, Failure>,
    /// The place of its row in the table of paths, if that has one.
    pub place: Option<usize>,
    /// Where it stands among the connection's bytes is not known any more: it must close.
    pub is_last: bool,
}

impl Request {
    /// Bytes that it may take in a log.
    pub fn log_size(&self) -> u64 {
        self.command.as_ref().map_or(0, Command::log_size)
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        let head = &self.head;
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let own = size_of::<Head>() + text(&head.host) + text(&head.origin);
        own as u64 + self.command.as_ref().map_or(0, Command::footprint)
    }

    /// What it is about, for the log.
    pub fn log_subject(&self) -> LogSubject {
        self.command.as_ref().map_or_else(|_| LogSubject::default(), Command::log_subject)
    }

    /// Which tubes or job it is about.
    pub fn subject(&self) -> Subject<'_> {
        self.command.as_ref().map_or(Subject::Nothing, Command::subject)
    }

    fn route(&self) -> Option<&'static Route> {
        self.place.and_then(|place| ROUTES.get(place))
    }

    /// Whether it changes the queue.
    pub fn changes(&self) -> bool {
        self.route().is_some_and(|route| route.method == Method::Post)
    }

    /// Whether it is answered whoever sends it: with what everybody may see, or that it cannot be framed.
    pub fn is_for_strangers(&self) -> bool {
        self.is_last || self.route().is_some_and(|route| route.need == Need::OPEN)
    }

    /// What a client must be allowed to do.
    pub fn need(&self) -> Need {
        match (&self.command, self.route()) {
            // The metrics of one tube are its own.
            (Ok(Command::Metrics(_, Some(_))), _) => Need::LOOK_NAMED,
            (_, Some(route)) => route.need,
            (_, None) => Need::OPEN,
        }
    }

    fn new(head: Head, found: Routed) -> Request {
        let place = found.as_ref().ok().map(|(place, _)| *place);
        Request { head: head.into(), command: found.map(|(_, command)| command), place, is_last: false }
    }
}

/// How far the present request has come.
#[derive(Debug, Default)]
enum Stage {
    /// In its head, of which nothing is kept here.
    #[default]
    Head,
    Body(Box<(Head, RequestTarget, Upload)>),
    /// Before a body of this size, while it is asked who sends it.
    Introduced(Box<(Head, RequestTarget, usize)>),
    /// Nothing that comes is understood any more.
    Over,
}

/// Takes bytes and gives requests.
#[derive(Debug, Default)]
pub struct Decoder {
    stage: Stage,
    /// How many requests were understood.
    count: u64,
}

/// A head that was read.
struct Found {
    length: usize,
    head: Head,
    target: Result<RequestTarget, Failure>,
    body: Option<usize>,
    expects: bool,
}

impl Decoder {
    /// The body that is arriving.
    pub fn upload(&mut self) -> Option<&mut Upload> {
        match &mut self.stage {
            Stage::Body(parts) => Some(&mut parts.2),
            Stage::Introduced(_) | Stage::Head | Stage::Over => None,
        }
    }

    pub fn uploading(&self) -> u64 {
        match &self.stage {
            Stage::Body(parts) => parts.2.footprint() + size_of::<(Head, RequestTarget, Upload)>() as u64,
            Stage::Introduced(_) => size_of::<(Head, RequestTarget, usize)>() as u64,
            Stage::Head | Stage::Over => 0,
        }
    }

    /// How many requests were understood, and whether the body of one is arriving.
    pub fn progress(&self) -> (u64, bool) {
        (self.count, matches!(self.stage, Stage::Body(_) | Stage::Introduced(_)))
    }

    /// Understands the next request, of which it takes the bytes; none if it is not all there.
    pub fn next(&mut self, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        let request = self.read(bytes, limits);
        self.count += u64::from(request.is_some());
        request
    }

    fn read(&mut self, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        match &mut self.stage {
            Stage::Over => {
                *bytes = &[];
                None
            }
            Stage::Head => {
                // Empty lines in front of a request are from clients that end the last one with too many.
                while let [b'\r' | b'\n', rest @ ..] = bytes {
                    *bytes = rest;
                }
                match read_head(bytes) {
                    Ok(None) => None,
                    Ok(Some(found)) => {
                        *bytes = past(bytes, found.length);
                        self.begin(found, bytes, limits)
                    }
                    Err(failure) => Some(self.give_up(Head::default(), failure)),
                }
            }
            Stage::Body(parts) => {
                parts.2.take(bytes, limits.room)?;
                let Stage::Body(parts) = std::mem::take(&mut self.stage) else { unreachable!("it was there") };
                let (head, target, upload) = *parts;
                let found = match upload.finish() {
                    None => Err(Failure::new(503, "there is no memory for this")),
                    Some(body) => read_body(&head, target, body.bytes(), limits),
                };
                Some(Request::new(head, found))
            }
            Stage::Introduced(_) => {
                let Stage::Introduced(parts) = std::mem::take(&mut self.stage) else { unreachable!("it was there") };
                let (head, target, size) = *parts;
                self.begin_body(head, target, size, limits).or_else(|| self.read(bytes, limits))
            }
        }
    }

    fn begin(&mut self, found: Found, bytes: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        let Found { head, target, body, expects, .. } = found;
        let target = match (target, body) {
            // Its body, if there is one, is not read.
            (Err(failure), Some(_)) => return Some(self.give_up(head, failure)),
            (Err(failure), None) => return Some(Request::new(head, Err(failure))),
            (Ok(target), _) => target,
        };
        let size = match (target.method, body) {
            (Method::Get, None | Some(0)) => {
                let found = routes::find(&target, &Object::default(), limits);
                return Some(Request::new(head, found));
            }
            (Method::Get, Some(_)) => {
                return Some(self.give_up(head, Failure::new(400, "a GET has no body")));
            }
            (Method::Post, None) => {
                return Some(self.give_up(head, Failure::new(411, "a POST needs a Content-Length")));
            }
            (Method::Post, Some(size)) => size,
        };
        if size > MAX_BODY {
            let failure = Failure::new(413, "the body is too long: larger jobs come by the other protocols");
            return Some(self.give_up(head, failure));
        }
        let first = match (expects, limits.is_stranger) {
            (true, _) => Some(Command::GoAhead),
            (false, true) => Some(Command::Introduction),
            (false, false) => None,
        };
        let first = first.map(|command| Request {
            head: head.clone().into(),
            command: Ok(command),
            place: None,
            is_last: false,
        });
        if limits.is_stranger {
            self.stage = Stage::Introduced(Box::new((head, target, size)));
            return first;
        }
        self.begin_body(head, target, size, limits).or(first).or_else(|| self.read(bytes, limits))
    }

    /// Makes ready for a body; what is answered if it cannot be taken.
    fn begin_body(&mut self, head: Head, target: RequestTarget, size: usize, limits: &DecodeLimits) -> Option<Request> {
        let Some(upload) = Upload::begin(size, limits.room) else {
            return Some(self.give_up(head, Failure::new(503, "there is no memory for this")));
        };
        self.stage = Stage::Body(Box::new((head, target, upload)));
        None
    }

    fn give_up(&mut self, mut head: Head, failure: Failure) -> Request {
        self.stage = Stage::Over;
        head.close = true;
        Request { is_last: true, ..Request::new(head, Err(failure)) }
    }
}

fn read_body(head: &Head, target: RequestTarget, body: &[u8], limits: &DecodeLimits) -> Routed {
    if !head.is_json {
        // A guard says so; nothing is parsed that is not said to be JSON.
        return routes::unread(&target);
    }
    let object = if body.is_empty() { Ok(Object::default()) } else { Object::parse(body) };
    let object = object.map_err(|wrong| Failure::new(400, wrong))?;
    routes::find(&target, &object, limits)
}

/// Reads a head; none if it is not all there. After an error nobody knows where the next one begins.
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
    let old = request.version == Some(0);
    let (head, body, expects) = read_headers(request.headers, old)?;
    let is_head = request.method == Some("HEAD");
    let method = match request.method {
        Some("GET" | "HEAD") => Ok(Method::Get),
        Some("POST") => Ok(Method::Post),
        _ => Err(Failure::new(405, "only GET, HEAD and POST are known")),
    };
    let target = method.and_then(|method| {
        RequestTarget::read(method, request.path.unwrap_or_default())
            .ok_or_else(|| Failure::new(400, "no path of this server"))
    });
    Ok(Some(Found { length, head: Head { is_head, ..head }, target, body, expects }))
}

/// What the headers say: to whom and from where, how long the body is, and whether the client wants a word before it.
fn read_headers(headers: &[httparse::Header], old: bool) -> Result<(Head, Option<usize>, bool), Failure> {
    let wrong = |text: &str| Failure::new(400, text);
    let mut head = Head { close: old, ..Head::default() };
    let (mut hosts, mut length, mut coded, mut expects) = (0, None, false, false);
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
            let token = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            head.token = token.map(|(_, token)| Digest::of(token.trim().as_bytes()));
        } else if is("connection") {
            let mut words = text.split(',').map(str::trim);
            head.close = words.clone().any(|word| word.eq_ignore_ascii_case("close"))
                || old && !words.any(|word| word.eq_ignore_ascii_case("keep-alive"));
        } else if is("transfer-encoding") {
            coded = true;
        } else if is("content-length") {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let size = digits.then(|| text.parse::<usize>().ok()).flatten();
            if size.is_none() || length.is_some() {
                return Err(wrong("the Content-Length is no number, or there are two"));
            }
            length = size;
        } else if is("expect") {
            expects = text.eq_ignore_ascii_case("100-continue");
            if !expects {
                return Err(Failure::new(417, "only 100-continue can be expected"));
            }
        }
    }
    if coded {
        return Err(match length {
            Some(_) => wrong("a Content-Length and a Transfer-Encoding contradict each other"),
            None => Failure::new(411, "a body needs a Content-Length, and may not come in chunks"),
        });
    }
    if hosts != 1 {
        head.host = None;
    }
    Ok((head, length, expects))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pieces::LIMITS;

    #[test]
    fn only_a_command_that_is_understood_takes_space_in_the_log() {
        let size = |body: &str, path: &str| {
            let head = "Host: a\r\nContent-Type: application/json\r\nContent-Length";
            let bytes = format!("POST {path} HTTP/1.1\r\n{head}: {}\r\n\r\n{body}", body.len());
            Decoder::default().next(&mut bytes.as_bytes(), &LIMITS).expect("a whole request").log_size()
        };
        assert_eq!(size(r#"{"body":"abc"}"#, "/api/tubes/t/put"), 304);
        assert_eq!(size(r#"{"body":"abc"}"#, "/api/tubes/t/nothing"), 0);
    }
}
