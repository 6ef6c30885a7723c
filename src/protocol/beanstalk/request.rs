//! The decoder from bytes to requests.
//!
//! Owns the framing: lines, bodies, and resynchronization after errors in either. A line ends at its first CR LF pair,
//! nowhere else. Must not access the queue: `session` looks up the jobs of a request.

use memchr::memchr;

use super::command::{tags_size, Command, InPlace};
use super::commands::{row_of, secs, CommandName, MAX_LINE};
use super::extensions::Extensions;
use super::long::Long;
use super::reply;
use super::tags::{self, Tagging, MAX_SCHEDULE};
use crate::access::Need;
use crate::engine::{Body, GroupTag, JobId, LongCommand, NewJob, Priority, Span, Tags, PAGED_MAX};
use crate::protocol::guard::Subject;
use crate::protocol::text::{number, number32, past, upto};
use crate::protocol::upload::{swallow, BodyEnd, Upload};
use crate::protocol::{CommandPlace, DecodeLimits, LogSubject};

/// A command as received from the client.
#[derive(Debug)]
pub struct Request {
    /// The command under which the request is counted.
    pub counts: Option<CommandName>,
    pub command: Command,
}

impl Request {
    /// Returns the subject of the request for the log.
    pub fn log_subject(&self) -> LogSubject {
        let size = match &self.command {
            Command::Put { job, .. } => Some(job.body.len()),
            Command::PutInPlace { job } => Some(job.body.length),
            Command::Fail { reason, .. } => Some(reason.len()),
            _ => None,
        };
        let uses_tube = match &self.command {
            Command::Put { .. } | Command::PutInPlace { .. } | Command::PeekNext(_) => true,
            Command::Long(long) => matches!(**long, Long::Kick(_)),
            _ => false,
        };
        LogSubject { uses_tube, size, numbers: self.numbers(), ..LogSubject::of(self.subject()) }
    }

    /// Returns the numbers on its line with their names, except IDs and sizes.
    fn numbers(&self) -> Vec<(&'static str, u64)> {
        match self.command {
            Command::Put { job: NewJob { pri, delay, ttr, .. }, .. }
            | Command::PutInPlace { job: NewJob { pri, delay, ttr, .. } } => {
                vec![("pri", pri.into()), ("delay", delay.secs()), ("ttr", ttr.secs())]
            }
            Command::Release { pri, delay, .. } | Command::MoveJob { pri, delay, .. } => {
                vec![("pri", pri.into()), ("delay", delay.secs())]
            }
            Command::Bury { pri, .. } | Command::Fail { pri, .. } => vec![("pri", pri.into())],
            Command::Long(ref long) => match &**long {
                Long::Kick(kick) => vec![("bound", kick.left)],
                Long::DeleteBatch { ids, .. } => vec![("jobs", ids.len() as u64)],
                Long::MoveTube(moving) => vec![("bound", moving.left)],
                _ => Vec::new(),
            },
            Command::Reserve(Some(timeout)) | Command::Wait(_, timeout) => vec![("timeout", timeout.secs())],
            Command::PauseTube { length, .. } => vec![("pause", length.secs())],
            _ => Vec::new(),
        }
    }

    /// Returns the rights that the request requires.
    pub fn need(&self) -> Need {
        match (&self.command, self.counts) {
            (Command::BadFormat | Command::UnknownCommand, _) | (_, None) => Need::OPEN,
            (Command::Put { tags: Some(tags), .. }, _) if tags.tube.is_some() => Need::PUT_NAMED,
            (_, Some(name)) => name.row().need,
        }
    }

    /// Returns the place in the statistics where the request is counted.
    pub fn place(&self) -> Option<CommandPlace> {
        self.counts.map(CommandPlace::beanstalk)
    }

    pub fn subject(&self) -> Subject<'_> {
        match &self.command {
            Command::Use(tube) | Command::Watch(tube, _) | Command::Ignore(tube) => Subject::Tube(tube),
            // Names of groups are checked like names of tubes.
            Command::StatsGroup(group) => Subject::Tube(group),
            Command::PauseTube { tube, .. } | Command::LimitTube { tube, .. } => Subject::Tube(tube),
            Command::Long(long) => long.subject(),
            Command::SetTube { tube, settings } => match &settings.dead {
                Some(dead) => Subject::TwoTubes(tube, dead),
                None => Subject::Tube(tube),
            },
            Command::MoveJob { id, tube, .. } => Subject::JobAndTube(*id, tube),
            Command::Bury { id, dead_from: Some(from), .. } => Subject::JobAndTube(*id, from),
            Command::Put { tags: Some(tags), .. } => tags.tube.as_deref().map_or(Subject::Nothing, Subject::Tube),
            Command::Peek(id)
            | Command::ReserveJob(id)
            | Command::Delete(id)
            | Command::Release { id, .. }
            | Command::Bury { id, .. }
            | Command::KickJob(id)
            | Command::Touch(id, _)
            | Command::Revoke(id, _)
            | Command::Wait(id, _)
            | Command::Fail { id, .. }
            | Command::StatsJob(id) => Subject::Job(Some(*id)),
            _ => Subject::Nothing,
        }
    }

    /// Returns the groups to which the tags tie the job.
    pub fn groups(&self) -> &[GroupTag] {
        match &self.command {
            Command::Put { tags: Some(tags), .. } => &tags.groups,
            _ => &[],
        }
    }

    /// The memory in use besides the request itself, in bytes.
    pub fn footprint(&self) -> u64 {
        match &self.command {
            Command::Put { job, tags } => job.body.len() as u64 + tags.as_ref().map_or(0, |tags| tags_size(tags)),
            Command::PutInPlace { job } => job.body.length as u64,
            Command::Fail { reason: bytes, .. } => bytes.len() as u64,
            Command::Name(name) => name.len() as u64,
            Command::Long(long) => size_of::<Long>() as u64 + long.footprint(),
            _ => match self.subject() {
                Subject::Tube(tube) | Subject::JobAndTube(_, tube) => tube.len() as u64,
                Subject::TwoTubes(one, other) => (one.len() + other.len()) as u64,
                _ => 0,
            },
        }
    }

    /// Returns the command to complete although the client has hung up, if there is one.
    pub fn into_operation(self) -> Option<LongCommand> {
        match self.command {
            Command::Long(long) => long.into_operation(),
            _ => None,
        }
    }

    /// Copies the body out of the input, which is about to be dropped.
    pub fn own(&mut self, input: &[u8]) {
        if let Command::PutInPlace { job: NewJob { pri, delay, ttr, body } } = self.command {
            *self = put_request(Numbers { pri, delay, ttr }, None, true, Body::copy(body.bytes(input)));
        }
    }

    /// Returns `true` if an unauthenticated client may send the request.
    pub fn is_for_strangers(&self) -> bool {
        matches!(self.command, Command::Auth(_) | Command::Quit)
    }

    /// Returns a request that is answered with an error and not counted.
    pub fn wrong(command: Command) -> Request {
        Request { counts: None, command }
    }
}

/// The parser's state for one connection. It does not store lines: the caller passes an unfinished line again with more
/// bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    state: Reading,
}

#[derive(Debug, Default)]
enum Reading {
    #[default]
    Line,
    /// The rest of a line that is too long; `cr`: the last byte so far was a CR.
    LongLine { cr: bool },
    /// The body of a command.
    Body(Box<Arriving>),
    /// A body to be dropped, with the reply to send after it.
    Skip(Box<Skip>),
}

#[derive(Debug)]
struct Skip {
    left: u64,
    answer: &'static [u8],
    counts_producer: bool,
    name: CommandName,
}

/// The numbers of a put, except the last.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    pri: Priority,
    delay: Span,
    ttr: Span,
}

/// The parsed line of a command with a body.
#[derive(Debug)]
enum Line {
    Put(Numbers, Option<Box<Tags>>),
    Fail(JobId, Priority),
}

#[derive(Debug)]
struct Arriving {
    line: Line,
    body: Upload,
    end: BodyEnd,
}

impl Decoder {
    /// Takes the next complete request from the front of `input`. Returns `None` if it has not arrived completely: then
    /// the rest of `input`, if any, is the beginning of a line.
    pub fn next(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        loop {
            match &mut self.state {
                Reading::Line => {
                    if let Some(request) = self.line(input, limits)? {
                        return Some(request);
                    }
                }
                Reading::LongLine { cr } => {
                    if !skip_line(input, cr) {
                        return None;
                    }
                    self.state = Reading::Line;
                    return Some(Request::wrong(Command::BadFormat));
                }
                Reading::Body(arriving) => {
                    arriving.body.take(input, limits.room)?;
                    let whole = arriving.end.take(input)?;
                    let Reading::Body(arriving) = std::mem::take(&mut self.state) else { unreachable!() };
                    return Some(with_body(arriving.line, whole, arriving.body.finish()));
                }
                Reading::Skip(skip) => {
                    swallow(&mut skip.left, input)?;
                    let Skip { answer, counts_producer, name, .. } = **skip;
                    let (counts, command) = (Some(name), Command::PutRefused { answer, counts_producer });
                    self.state = Reading::Line;
                    return Some(Request { counts, command });
                }
            }
        }
    }

    /// Takes a request from the front of `input` if it is complete, valid and one of the most frequent: a reserve, a
    /// delete, or a put without tags, whose small body stays in the input. [`Decoder::next`] reads the others.
    pub fn next_plain(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        let Reading::Line = self.state else { return None };
        let (name, command, behind_line, rest) = match input {
            [b'p', ..] => {
                let (pri, rest) = number32(input.strip_prefix(b"put ")?)?;
                let (delay, rest) = number32(rest)?;
                let (ttr, rest) = number32(rest)?;
                let (size, rest) = number32(rest)?;
                let body = rest.strip_prefix(b"\r\n")?;
                let length = size as usize;
                let rest = body.get(length..).filter(|_| length <= PAGED_MAX && size <= limits.max_job_size)?;
                let rest = rest.strip_prefix(b"\r\n")?;
                let place = InPlace { before_end: body.len(), length };
                let job = NewJob { pri, delay: secs(delay), ttr: secs(ttr.max(1)), body: place };
                (CommandName::Put, Command::PutInPlace { job }, body, rest)
            }
            [b'd', ..] => {
                let (id, rest) = number(input.strip_prefix(b"delete ")?)?;
                let rest = rest.strip_prefix(b"\r\n")?;
                (CommandName::Delete, Command::Delete(JobId(id)), rest, rest)
            }
            _ => {
                let rest = input.strip_prefix(b"reserve\r\n")?;
                (CommandName::Reserve, Command::Reserve(None), rest, rest)
            }
        };
        // Any number of spaces may separate the numbers.
        (input.len() - behind_line.len() <= MAX_LINE).then(|| {
            *input = rest;
            Request { counts: Some(name), command }
        })
    }

    /// Reads one line. Returns `None` if it has not arrived completely, and `Some(None)` if a body follows, which the
    /// state describes.
    fn line(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Option<Request>> {
        // A word contains no CR LF, so the row is known even before the end of the line arrives.
        let row = row_of(input, limits.extensions);
        let most = row.map_or(MAX_LINE, |row| row.longest(limits.extensions));
        let window = upto(input, most);
        let Some(length) = find_crlf(window) else {
            if window.len() < most {
                return None;
            }
            *input = past(input, most);
            self.state = Reading::LongLine { cr: window.ends_with(b"\r") };
            return Some(None);
        };
        let (line, is_long) = (upto(window, length), length + 2 > MAX_LINE);
        *input = past(input, length + 2);
        let is_text = memchr(0, line).is_none();
        let Some(row) = row.filter(|_| is_text) else {
            let problem = if is_text && !is_long { Command::UnknownCommand } else { Command::BadFormat };
            return Some(Some(Request::wrong(problem)));
        };
        let args = past(line, row.word.len());
        let Some(parse) = row.parse else {
            return Some(match row.name {
                CommandName::Put => self.put_line(args, is_long, input, limits),
                _ => self.fail_line(args, is_long, limits),
            });
        };
        Some(Some(match parse(args, limits.extensions) {
            Some(command) if !is_long || row.may_be_long(args) => Request { counts: Some(row.name), command },
            _ => Request::wrong(Command::BadFormat),
        }))
    }

    fn put_line(&mut self, args: &[u8], is_long: bool, input: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        let (numbers, size, tagging) = match put_args(args, limits.extensions) {
            Some((.., Tagging::Plain | Tagging::Garbage)) if is_long => {
                return Some(Request::wrong(Command::BadFormat))
            }
            Some(args) => args,
            None => return Some(Request::wrong(Command::BadFormat)),
        };
        let refusal = match tagging {
            Tagging::Malformed => Some(reply::BAD_FORMAT),
            Tagging::Tagged(ref tags) if tags.recurs.is_some() && size > MAX_SCHEDULE => Some(reply::JOB_TOO_BIG),
            _ if size > limits.max_job_size => Some(reply::JOB_TOO_BIG),
            _ => None,
        };
        if let Some(answer) = refusal {
            return self.skip(size, answer, false, CommandName::Put);
        }
        let tags = match tagging {
            Tagging::Plain => None,
            Tagging::Tagged(tags) => Some(tags),
            Tagging::Malformed | Tagging::Garbage => {
                return Some(Request { counts: Some(CommandName::Put), command: Command::BadFormat });
            }
        };
        let length = size as usize;
        if let Some((whole, rest)) = input.split_at_checked(length + 2) {
            *input = rest;
            let body = whole.strip_suffix(b"\r\n");
            return Some(put_request(numbers, tags, body.is_some(), body.and_then(Body::copy)));
        }
        self.begin_body(Line::Put(numbers, tags), size, limits)
    }

    fn fail_line(&mut self, args: &[u8], is_long: bool, limits: &DecodeLimits) -> Option<Request> {
        let Some((id, pri, size)) = fail_args(args).filter(|_| !is_long) else {
            return Some(Request::wrong(Command::BadFormat));
        };
        if size > limits.max_job_size {
            return self.skip(size, reply::JOB_TOO_BIG, false, CommandName::Fail);
        }
        self.begin_body(Line::Fail(id, pri), size, limits)
    }

    /// Starts to receive the body that follows a line.
    fn begin_body(&mut self, line: Line, size: u32, limits: &DecodeLimits) -> Option<Request> {
        let (is_put, name) = (matches!(line, Line::Put(..)), line.name());
        match Upload::begin(size as usize, limits.room) {
            Some(body) => self.state = Reading::Body(Box::new(Arriving { line, body, end: BodyEnd::default() })),
            None => return self.skip(size, reply::OUT_OF_MEMORY, is_put, name),
        }
        None
    }

    /// Skips the body that follows, and then sends this reply.
    fn skip(&mut self, size: u32, answer: &'static [u8], counts_producer: bool, name: CommandName) -> Option<Request> {
        self.state = Reading::Skip(Box::new(Skip { left: u64::from(size) + 2, answer, counts_producer, name }));
        None
    }

    /// Returns the body that is arriving, if any.
    pub fn upload(&mut self) -> Option<&mut Upload> {
        match &mut self.state {
            Reading::Body(arriving) => Some(&mut arriving.body),
            _ => None,
        }
    }
}

/// Parses the numbers of a put, the size of its body, and the rest of the line.
fn put_args(args: &[u8], extensions: Extensions) -> Option<(Numbers, u32, Tagging)> {
    let (pri, args) = number32(args)?;
    let (delay, args) = number32(args)?;
    let (ttr, args) = number32(args)?;
    let (size, rest) = number32(args)?;
    // The minimum time to run in the protocol is one second.
    let numbers = Numbers { pri, delay: secs(delay), ttr: secs(ttr.max(1)) };
    Some((numbers, size, tags::read(rest, extensions)))
}

/// Parses the numbers of a `fail`, the last of which is the size of the reason.
fn fail_args(args: &[u8]) -> Option<(JobId, Priority, u32)> {
    let (id, args) = number(args)?;
    let (pri, args) = number32(args)?;
    let (size, rest) = number32(args)?;
    rest.is_empty().then_some((JobId(id), pri, size))
}

impl Line {
    fn name(&self) -> CommandName {
        match self {
            Line::Put(..) => CommandName::Put,
            Line::Fail(..) => CommandName::Fail,
        }
    }
}

/// Returns the request of a put. `whole`: the body ends in CR LF. `body` is `None` if memory was exhausted.
fn put_request(numbers: Numbers, tags: Option<Box<Tags>>, whole: bool, body: Option<Body>) -> Request {
    let Numbers { pri, delay, ttr } = numbers;
    let command = match body {
        _ if !whole => Command::PutRefused { answer: reply::EXPECTED_CRLF, counts_producer: true },
        Some(body) => Command::Put { job: NewJob { pri, delay, ttr, body }, tags },
        None => Command::PutRefused { answer: reply::OUT_OF_MEMORY, counts_producer: true },
    };
    Request { counts: Some(CommandName::Put), command }
}

/// Like [`put_request`], for any command with a body.
fn with_body(line: Line, whole: bool, body: Option<Body>) -> Request {
    let (id, pri) = match line {
        Line::Put(numbers, tags) => return put_request(numbers, tags, whole, body),
        Line::Fail(id, pri) => (id, pri),
    };
    let command = match body {
        _ if !whole => Command::PutRefused { answer: reply::EXPECTED_CRLF, counts_producer: false },
        Some(reason) => Command::Fail { id, pri, reason },
        None => Command::PutRefused { answer: reply::OUT_OF_MEMORY, counts_producer: false },
    };
    Request { counts: Some(CommandName::Fail), command }
}

/// Returns the position of the first CR LF.
fn find_crlf(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let lf = from + memchr(b'\n', past(bytes, from))?;
        if let Some(cr) = lf.checked_sub(1).filter(|cr| bytes.get(*cr) == Some(&b'\r')) {
            return Some(cr);
        }
        from = lf + 1;
    }
}

/// Drops bytes up to and including the next CR LF. Returns `false` if it has not arrived. `cr`: the last dropped byte
/// was a CR.
fn skip_line(input: &mut &[u8], cr: &mut bool) -> bool {
    let end = match input.first() {
        Some(b'\n') if *cr => Some(1),
        _ => find_crlf(input).map(|at| at + 2),
    };
    if end.is_none() {
        *cr = input.last().map_or(*cr, |&byte| byte == b'\r');
    }
    *input = past(input, end.unwrap_or(input.len()));
    end.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pieces::{in_pieces, LIMITS};

    fn decode(stream: &[u8], step: usize) -> Vec<String> {
        let mut decoder = Decoder::default();
        in_pieces(stream, step, |input| decoder.next(input, &LIMITS).map(|request| format!("{:?}", request.command)))
    }

    #[test]
    fn the_pieces_in_which_a_stream_arrives_do_not_matter() {
        let mut stream =
            b"put 1 0 9 3\r\nab\n\r\nput 0 0 0 11\r\n0123456789a\r\nx\ry\r\nput 1 0 0 1\r\nabc\r\n".to_vec();
        for length in [222, 223, 224, 225, 447, 448, 449, 673] {
            stream.extend(vec![b'a'; length]);
            stream.extend(b"\r\nstats\r\n");
        }
        let whole = decode(&stream, stream.len());
        assert_eq!(whole.len(), 5 + 2 * 8);
        for step in 1..40 {
            assert_eq!(decode(&stream, step), whole, "in pieces of {step}");
        }
    }

    #[test]
    fn the_log_is_told_of_the_tube_that_a_command_names() {
        let mut decoder = Decoder::default();
        for (line, id, tube, uses_tube) in [
            ("put 0 0 1 1 tub:mail\r\nx\r\n", None, Some("mail"), true),
            ("put 0 0 1 1\r\nx\r\n", None, None, true),
            ("move-job 7 mail 0 0\r\n", Some(7), Some("mail"), false),
            ("move-tube a b ready 9\r\n", None, Some("a"), false),
            ("bury 7 1\r\n", Some(7), None, false),
            ("stats\r\n", None, None, false),
        ] {
            let request = decoder.next(&mut line.as_bytes(), &LIMITS).expect("a request");
            let subject = request.log_subject();
            let told = subject.tube.as_deref().map(String::from_utf8_lossy);
            assert_eq!((subject.id, told.as_deref(), subject.uses_tube), (id, tube, uses_tube), "{line}");
        }
    }

    #[test]
    fn a_line_of_224_bytes_is_read_and_one_of_225_is_not() {
        let line = |length: usize| [vec![b'a'; length - 2], b"\r\n".to_vec()].concat();
        assert_eq!(decode(&line(224), 500), ["UnknownCommand"]);
        assert_eq!(decode(&line(225), 500), ["BadFormat"]);
    }

    /// Both parsers read all lines alike, and leave the same rest.
    #[test]
    fn plain_requests_are_read_as_all_others() {
        let spaces = " ".repeat(MAX_LINE - 13);
        let mut lines: Vec<String> = [
            "put 1 0 9 3\r\nabc\r\n",
            "put  1  0 0  0\r\n\r\nput",
            "put 4294967295 1 2 3\r\na\r\n\r\ndelete 1\r\n",
            "put 4294967296 1 2 0\r\n\r\n",
            "put 1 0 9 3\r\nabcd\r\n",
            "put 1 0 9 3 \r\nabc\r\n",
            "put 1 0 9\r\nabc\r\n",
            "put 1 0 9 3 ttl:1\r\nabc\r\n",
            "put 1 0 9 11\r\n12345678901\r\n",
            "put 1 0 9 -1\r\n",
            "put\r\n",
            "putt 1 0 9 0\r\n",
            "delete 7\r\nx",
            "delete  18446744073709551615\r\n",
            "delete 18446744073709551616\r\n",
            "delete 7 \r\n",
            "delete\r\n",
            "delete-batch 7\r\n",
            "reserve\r\nreserve\r\n",
            "reserve \r\n",
            "reserve-with-timeout 0\r\n",
            "reserve\n",
            "",
        ]
        .map(String::from)
        .into();
        lines.extend([" ", "  "].map(|more| format!("put{more}{spaces}1 0 9 0\r\n\r\n")));
        let mut plain = 0;
        for line in &lines {
            for length in 0..=line.len() {
                let whole = &line.as_bytes()[..length];
                let (mut rest, mut decoder) = (whole, Decoder::default());
                let Some(mut request) = decoder.next_plain(&mut rest, &LIMITS) else {
                    assert_eq!(rest, whole);
                    continue;
                };
                request.own(whole);
                let mut other = whole;
                let expected = decoder.next(&mut other, &LIMITS).expect("the same request");
                assert_eq!((format!("{request:?}"), rest), (format!("{expected:?}"), other), "{line:?}");
                plain += usize::from(length == line.len());
            }
        }
        assert_eq!(plain, 7, "others are left");
        let mut uploading = Decoder::default();
        assert!(uploading.next(&mut b"put 1 0 9 9\r\n".as_slice(), &LIMITS).is_none());
        assert!(uploading.next_plain(&mut b"reserve\r\n".as_slice(), &LIMITS).is_none(), "it belongs to the body");
    }

    #[test]
    fn a_body_is_read_in_place() {
        let mut decoder = Decoder::default();
        let mut input = b"put 0 0 1 6\r\nab".as_slice();
        assert!(decoder.next(&mut input, &LIMITS).is_none());
        assert_eq!(decoder.upload().map(|upload| upload.footprint()), Some(6));
        let upload = decoder.upload().expect("four bytes are missing");
        upload.gap(1000).expect("room for them").copy_from_slice(b"cdef");
        upload.filled(4);
        let mut input = b"\r\n".as_slice();
        let request = decoder.next(&mut input, &LIMITS).expect("all there");
        assert!(matches!(request.command, Command::Put { job, .. } if job.body.bytes() == b"abcdef"));
        assert!(decoder.upload().is_none());
    }

    #[test]
    fn a_body_without_room_is_swallowed() {
        let mut decoder = Decoder::default();
        let mut input = b"put 0 0 1 6\r\nabc".as_slice();
        assert!(decoder.next(&mut input, &DecodeLimits { room: 5, ..LIMITS }).is_none());
        assert!(decoder.upload().is_none() && input.is_empty());
        let mut input = b"defxxstats".as_slice();
        let request = decoder.next(&mut input, &LIMITS).expect("all there");
        assert!(matches!(request.command, Command::PutRefused { answer: reply::OUT_OF_MEMORY, .. }));
        assert_eq!(input, b"stats");
    }

    #[test]
    fn a_request_tells_the_numbers_of_its_line_and_its_memory() {
        let read = |line: &str| Decoder::default().next(&mut line.as_bytes(), &LIMITS).expect("a whole request");
        for (line, numbers) in [
            ("pause-tube t 7\r\n", vec![("pause", 7)]),
            ("reserve-with-timeout 3\r\n", vec![("timeout", 3)]),
            ("release 1 2 4\r\n", vec![("pri", 2), ("delay", 4)]),
            ("delete-batch 1 2\r\n", vec![("jobs", 2)]),
            ("touch 1\r\n", vec![]),
        ] {
            assert_eq!(read(line).numbers(), numbers, "{line}");
        }
        for (line, bytes) in [
            ("put 1 0 9 3\r\nabc\r\n", 3),
            ("put 1 0 9 3 idp:x\r\nabc\r\n", 3 + super::super::command::TAGS_OVERHEAD),
            ("pause-tube t 7\r\n", 1),
        ] {
            assert_eq!(read(line).footprint(), bytes, "{line}");
        }
    }
}
