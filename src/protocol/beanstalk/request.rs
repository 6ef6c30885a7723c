//! The decoder of beanstalk requests: the framing of lines and bodies, and the resynchronization after errors.
//! A line ends only at the first CR LF.

use memchr::memchr;

use super::command::{tags_size, Command, InPlace, PARSED_TAGS};
use super::commands::{row_of, CommandName, MAX_LINE};
use super::extensions::{read_tags, Tagging, MAX_SCHEDULE};
use super::reply;
use crate::engine::{Body, JobId, NewJob, Priority, Span, Tags, PAGED_MAX};
use crate::protocol::text::{number, number32, past, upto};
use crate::protocol::upload::{Arriving, Upload};
use crate::protocol::{CommandId, DecodeLimits, Decoded};

/// Does not store lines: the caller must pass an incomplete line again with more bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    state: Reading,
}

#[derive(Debug, Default)]
enum Reading {
    #[default]
    Line,
    /// `cr` is `true` if the last skipped byte was a CR.
    LongLine { cr: bool },
    /// Receives a body, or skips the body of a refused command.
    Body(Box<Arriving<Line>>),
}

#[derive(Debug)]
enum Line {
    Put(NewJob<()>, Option<Box<Tags>>),
    Fail(JobId, Priority),
    Refused(Decoded<Command>),
}

fn counted(name: CommandName, command: Command) -> Decoded<Command> {
    (Some(CommandId::new(0, name as usize)), command)
}

fn refused(name: CommandName, reply: &'static [u8], is_producer: bool) -> Decoded<Command> {
    counted(name, Command::Refused { reply, is_producer })
}

/// `None` if more input is needed.
type Decoding = Option<Decoded<Command>>;

impl Decoder {
    pub fn next(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Decoding {
        loop {
            match &mut self.state {
                Reading::Line => {
                    if let Some(found) = self.line(input, limits)? {
                        return Some(found);
                    }
                }
                Reading::LongLine { cr } => {
                    if !skip_line(input, cr) {
                        return None;
                    }
                    self.state = Reading::Line;
                    return Some((None, Command::BadFormat));
                }
                Reading::Body(arriving) => {
                    let is_whole = arriving.take(input, limits.room)?;
                    let Reading::Body(arriving) = std::mem::take(&mut self.state) else { unreachable!() };
                    return Some(arriving.command.with_body(is_whole, arriving.body.finish()));
                }
            }
        }
    }

    /// Decodes a complete reserve, delete, or short untagged put without copying the body. Leaves other input unread.
    pub fn next_plain(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Decoding {
        let Reading::Line = self.state else { return None };
        // Additional spaces between the numbers can make the line too long.
        let whole = input.len();
        let fits = |after_line: &[u8]| whole - after_line.len() <= MAX_LINE;
        match input {
            [b'p', ..] => {
                let (job, size, rest) = put_numbers(input.strip_prefix(b"put ")?)?;
                let body = rest.strip_prefix(b"\r\n").filter(|body| fits(body))?;
                let length = size as usize;
                let rest = body.get(length..).filter(|_| length <= PAGED_MAX && size <= limits.max_job_size)?;
                *input = rest.strip_prefix(b"\r\n")?;
                let job = with_body(job, InPlace { before_end: body.len(), length });
                Some(counted(CommandName::Put, Command::PutInPlace { job }))
            }
            [b'd', ..] => {
                let (id, rest) = number(input.strip_prefix(b"delete ")?)?;
                *input = rest.strip_prefix(b"\r\n").filter(|rest| fits(rest))?;
                Some(counted(CommandName::Delete, Command::Delete(JobId(id))))
            }
            _ => {
                *input = input.strip_prefix(b"reserve\r\n")?;
                Some(counted(CommandName::Reserve, Command::Reserve(None)))
            }
        }
    }

    /// Returns `None` if the line is incomplete, and `Some(None)` if decoding continues in the new `state`.
    fn line(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Decoding> {
        // No command word contains CR LF, so a match lies within the first line, even if the line is still incomplete.
        let row = row_of(input, limits.extensions);
        let max_length = row.map_or(MAX_LINE, |row| row.longest(limits.extensions));
        let window = upto(input, max_length);
        let Some(length) = find_crlf(window) else {
            if window.len() < max_length {
                return None;
            }
            *input = past(input, max_length);
            self.state = Reading::LongLine { cr: window.ends_with(b"\r") };
            return Some(None);
        };
        let (line, is_long) = (upto(window, length), length + 2 > MAX_LINE);
        *input = past(input, length + 2);
        let is_text = memchr(0, line).is_none();
        let Some(row) = row.filter(|_| is_text) else {
            let problem = if is_text && !is_long { Command::UnknownCommand } else { Command::BadFormat };
            return Some(Some((None, problem)));
        };
        let args = past(line, row.word.len());
        Some(match row.name {
            CommandName::Put => self.put(args, is_long, input, limits),
            CommandName::Fail => self.fail(args, is_long, limits),
            name => {
                let command = row.parse(args, is_long, limits.extensions);
                Some(command.map_or((None, Command::BadFormat), |command| counted(name, command)))
            }
        })
    }

    fn put(&mut self, args: &[u8], is_long: bool, input: &mut &[u8], limits: &DecodeLimits) -> Decoding {
        let Some((job, size, rest)) = put_numbers(args) else { return Some((None, Command::BadFormat)) };
        let tags = match read_tags(rest, limits.extensions) {
            Tagging::Plain | Tagging::Garbage if is_long => return Some((None, Command::BadFormat)),
            Tagging::Malformed => Err(reply::BAD_FORMAT),
            Tagging::Tagged(tags) if tags.recurs.is_some() && size > MAX_SCHEDULE => Err(reply::JOB_TOO_BIG),
            _ if size > limits.max_job_size => Err(reply::JOB_TOO_BIG),
            Tagging::Garbage => return Some(counted(CommandName::Put, Command::BadFormat)),
            Tagging::Tagged(tags) => Ok(Some(tags)),
            Tagging::Plain => Ok(None),
        };
        let refusal = |reply| Line::Refused(refused(CommandName::Put, reply, false));
        let line = tags.map_or_else(refusal, |tags| Line::Put(job, tags));
        if let (Line::Put(..), Some((whole, rest))) = (&line, input.split_at_checked(size as usize + 2)) {
            *input = rest;
            let body = whole.strip_suffix(b"\r\n");
            return Some(line.with_body(body.is_some(), body.and_then(Body::copy)));
        }
        self.receive(line, size, limits)
    }

    fn fail(&mut self, args: &[u8], is_long: bool, limits: &DecodeLimits) -> Decoding {
        let Some((id, pri, size)) = fail_args(args).filter(|_| !is_long) else {
            return Some((None, Command::BadFormat));
        };
        let too_big = || Line::Refused(refused(CommandName::Fail, reply::JOB_TOO_BIG, false));
        let line = if size > limits.max_job_size { too_big() } else { Line::Fail(id, pri) };
        self.receive(line, size, limits)
    }

    fn receive(&mut self, line: Line, size: u32, limits: &DecodeLimits) -> Decoding {
        let (line, body) = match (line, Upload::begin(size as usize, limits.room)) {
            (line @ (Line::Put(..) | Line::Fail(..)), Some(body)) => (line, body),
            // If there is no memory for the reason, report the failure without the reason.
            (line @ Line::Fail(..), None) => (line, Upload::skip(size.into())),
            (line, _) => (Line::Refused(line.refuse(reply::OUT_OF_MEMORY)), Upload::skip(size.into())),
        };
        self.state = Reading::Body(Box::new(Arriving::new(line, body)));
        None
    }

    pub fn upload(&mut self) -> Option<&mut Upload> {
        let Reading::Body(arriving) = &mut self.state else { return None };
        arriving.body.kept()
    }

    #[inline]
    pub fn uploading(&self) -> u64 {
        let Reading::Body(arriving) = &self.state else { return 0 };
        arriving.body.footprint() + arriving.command.heap_size()
    }
}

impl Line {
    #[cold]
    fn heap_size(&self) -> u64 {
        let Line::Put(_, Some(tags)) = self else { return 0 };
        tags_size(tags) + PARSED_TAGS
    }

    fn refuse(self, reply: &'static [u8]) -> Decoded<Command> {
        match self {
            Line::Put(..) => refused(CommandName::Put, reply, true),
            Line::Fail(..) => refused(CommandName::Fail, reply, false),
            Line::Refused(refused) => refused,
        }
    }

    /// `is_whole` is `true` if CR LF follows the body. `body` is `None` if it was skipped or memory was exhausted.
    fn with_body(self, is_whole: bool, body: Option<Body>) -> Decoded<Command> {
        match (self, body) {
            (line, _) if !is_whole => line.refuse(reply::EXPECTED_CRLF),
            (Line::Put(job, tags), Some(body)) => {
                counted(CommandName::Put, Command::Put { job: with_body(job, body), tags })
            }
            (Line::Fail(id, pri), reason) => {
                counted(CommandName::Fail, Command::Fail { id, pri, reason: reason.unwrap_or_default() })
            }
            (line, _) => line.refuse(reply::OUT_OF_MEMORY),
        }
    }
}

fn with_body<B>(NewJob { pri, delay, ttr, .. }: NewJob<()>, body: B) -> NewJob<B> {
    NewJob { pri, delay, ttr, body }
}

#[inline(always)] // for speed: a put has four numbers
fn put_numbers(args: &[u8]) -> Option<(NewJob<()>, u32, &[u8])> {
    let (pri, args) = number32(args)?;
    let (delay, args) = number32(args)?;
    let (ttr, args) = number32(args)?;
    let (size, rest) = number32(args)?;
    let secs = |count: u32| Span::from_secs(count.into());
    // As in beanstalkd, the time to run is at least one second.
    Some((NewJob { pri, delay: secs(delay), ttr: secs(ttr.max(1)), body: () }, size, rest))
}

fn fail_args(args: &[u8]) -> Option<(JobId, Priority, u32)> {
    let (id, args) = number(args)?;
    let (pri, args) = number32(args)?;
    let (size, rest) = number32(args)?;
    rest.is_empty().then_some((JobId(id), pri, size))
}

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

/// Returns `false` if CR LF is missing. `cr` is `true` if the last skipped byte was a CR.
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
    use super::super::command::TAGS_OVERHEAD;
    use super::*;
    use crate::protocol::tests::pieces::{in_pieces, LIMITS};
    use crate::protocol::ProtocolCommand;

    fn decode(stream: &[u8], step: usize) -> Vec<String> {
        let mut decoder = Decoder::default();
        in_pieces(stream, step, |input| decoder.next(input, &LIMITS).map(|(_, command)| format!("{command:?}")))
    }

    #[test]
    fn decoding_does_not_depend_on_the_pieces_of_the_stream() {
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
    fn log_subject_contains_the_named_tube() {
        let mut decoder = Decoder::default();
        for (line, id, tube, uses_tube) in [
            ("put 0 0 1 1 tub:mail\r\nx\r\n", None, Some("mail"), true),
            ("put 0 0 1 1\r\nx\r\n", None, None, true),
            ("move-job 7 mail 0 0\r\n", Some(7), Some("mail"), false),
            ("move-tube a b ready 9\r\n", None, Some("a"), false),
            ("bury 7 1\r\n", Some(7), None, false),
            ("stats\r\n", None, None, false),
        ] {
            let (_, command) = decoder.next(&mut line.as_bytes(), &LIMITS).expect("a command");
            let subject = command.log_subject();
            let found = subject.tube.as_deref().map(String::from_utf8_lossy);
            assert_eq!((subject.id, found.as_deref(), subject.uses_tube), (id, tube, uses_tube), "{line}");
        }
    }

    #[test]
    fn line_of_225_bytes_is_too_long() {
        let line = |length: usize| [vec![b'a'; length - 2], b"\r\n".to_vec()].concat();
        assert_eq!(decode(&line(224), 500), ["UnknownCommand"]);
        assert_eq!(decode(&line(225), 500), ["BadFormat"]);
    }

    #[test]
    fn next_plain_agrees_with_next() {
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
                let Some(mut found) = decoder.next_plain(&mut rest, &LIMITS) else {
                    assert_eq!(rest, whole);
                    continue;
                };
                found.1.own(whole);
                let mut other = whole;
                let expected = decoder.next(&mut other, &LIMITS).expect("the same command");
                assert_eq!((format!("{found:?}"), rest), (format!("{expected:?}"), other), "{line:?}");
                plain += usize::from(length == line.len());
            }
        }
        assert_eq!(plain, 7, "only frequent commands are plain");
        let mut uploading = Decoder::default();
        assert!(uploading.next(&mut b"put 1 0 9 9\r\n".as_slice(), &LIMITS).is_none());
        assert!(uploading.next_plain(&mut b"reserve\r\n".as_slice(), &LIMITS).is_none(), "input belongs to the body");
        assert_eq!(uploading.uploading(), 0, "a put without tags has nothing on the heap before its body");
    }

    #[test]
    fn body_is_read_in_place() {
        let mut decoder = Decoder::default();
        let mut input = b"put 0 0 1 6\r\nab".as_slice();
        assert!(decoder.next(&mut input, &LIMITS).is_none());
        assert_eq!(decoder.upload().map(|upload| upload.footprint()), Some(6));
        let upload = decoder.upload().expect("four bytes are missing");
        upload.gap(1000).expect("free space").copy_from_slice(b"cdef");
        upload.filled(4);
        let mut input = b"\r\n".as_slice();
        let (_, command) = decoder.next(&mut input, &LIMITS).expect("a complete command");
        assert!(matches!(command, Command::Put { job, .. } if job.body.bytes() == b"abcdef"));
        assert!(decoder.upload().is_none());
    }

    #[test]
    fn body_without_memory_is_skipped() {
        let mut decoder = Decoder::default();
        let mut input = b"put 0 0 1 6\r\nabc".as_slice();
        assert!(decoder.next(&mut input, &DecodeLimits { room: 5, ..LIMITS }).is_none());
        assert!(decoder.upload().is_none() && input.is_empty());
        let mut input = b"defxxstats".as_slice();
        let (_, command) = decoder.next(&mut input, &LIMITS).expect("a complete command");
        assert!(matches!(command, Command::Refused { reply: reply::OUT_OF_MEMORY, .. }));
        assert_eq!(input, b"stats");
    }

    #[test]
    fn failure_without_memory_for_its_reason_is_reported() {
        for (end, expected) in [("\r\n", "Fail { id: JobId(7), pri: 2, reason: "), ("xx", "Refused { reply: [69, ")] {
            let mut decoder = Decoder::default();
            assert!(decoder.next(&mut b"fail 7 2 6\r\nabc".as_slice(), &DecodeLimits { room: 5, ..LIMITS }).is_none());
            let rest = format!("def{end}");
            let (_, command) = decoder.next(&mut rest.as_bytes(), &LIMITS).expect("a complete command");
            assert!(format!("{command:?}").starts_with(expected), "{command:?}");
            if let Command::Fail { reason, .. } = command {
                assert!(reason.bytes().is_empty());
            }
        }
    }

    #[test]
    fn log_numbers_and_footprints() {
        let read = |line: &str| Decoder::default().next(&mut line.as_bytes(), &LIMITS).expect("a complete command").1;
        for (line, numbers) in [
            ("pause-tube t 7\r\n", vec![("pause", 7)]),
            ("reserve-with-timeout 3\r\n", vec![("timeout", 3)]),
            ("release 1 2 4\r\n", vec![("pri", 2), ("delay", 4)]),
            ("delete-batch 1 2\r\n", vec![("jobs", 2)]),
            ("touch 1\r\n", vec![]),
        ] {
            assert_eq!(read(line).log_subject().numbers, numbers, "{line}");
        }
        for (line, bytes) in [
            ("put 1 0 9 3\r\nabc\r\n", 3),
            ("put 1 0 9 3 idp:x\r\nabc\r\n", 3 + TAGS_OVERHEAD + PARSED_TAGS),
            ("pause-tube t 7\r\n", 1),
        ] {
            assert_eq!(read(line).footprint(), bytes, "{line}");
        }
    }
}
