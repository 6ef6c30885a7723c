//! Decoder for packets and text commands. The first byte distinguishes packets from lines of text, as in gearmand. The
//! search for arguments stops at the end of the packet, so missing arguments are never read from the next packet.

use std::num::NonZeroU64;

use super::admin;
use super::command::{Command, Submission, When, Work};
use super::kind::{packet, Kind, Packet};
use super::reply::{self, Fault, MAX_CLIENT_ID, MAX_FUNCTION, MAX_LINE, MAX_UNIQUE};
use crate::engine::{Body, DedupKey, Fingerprint, Minutes, NameSearch, Priority, Span, Time, PRIORITY_CLASSES};
use crate::protocol::counters::{FIRST_PACKET, FIRST_TEXT};
use crate::protocol::text::{past, strtoll, upto, whole_number};
use crate::protocol::upload::Upload;
use crate::protocol::{CommandId, DecodeLimits, Decoded, ProtocolCommand};

/// The maximum total length of the arguments in bytes: the size of gearmand's receive buffer.
pub const MAX_HEAD: usize = 8192;
/// The magic, the type and the length, of 4 bytes each.
const HEADER: usize = 12;
const MAX_ARGUMENTS: usize = 7;

/// Stores packet data, but the caller must pass an incomplete line or incomplete arguments again with more bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    state: Reading,
    id: Option<CommandId>,
}

#[derive(Debug, Default)]
enum Reading {
    #[default]
    Start,
    /// Receives the data of a packet, or discards the rest of a refused packet.
    Data(Box<(Command, Upload)>),
    /// Discards all input until the connection closes.
    OutOfSync,
}

/// `None` if more input is needed, and `Some(None)` if decoding continues in the new `state`.
type Decoding = Option<Option<Command>>;
/// The arguments of a packet, and their total length in bytes.
type Head<'a> = ([&'a [u8]; MAX_ARGUMENTS], usize);

impl Decoder {
    pub fn next(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Decoded<Command>> {
        loop {
            match &mut self.state {
                Reading::Start => {
                    let command = if *input.first()? == 0 { self.packet(input, limits) } else { self.line(input) };
                    if let Some(command) = command? {
                        return Some(self.decoded(command));
                    }
                }
                Reading::Data(arriving) => {
                    arriving.1.take(input, limits.room)?;
                    let Reading::Data(arriving) = std::mem::take(&mut self.state) else { unreachable!() };
                    let (command, body) = *arriving;
                    let fingerprint = body.fingerprint();
                    let command = self.with_data(command, body.finish(), fingerprint);
                    return Some(self.decoded(command));
                }
                Reading::OutOfSync => {
                    *input = &[];
                    return None;
                }
            }
        }
    }

    fn decoded(&self, command: Command) -> Decoded<Command> {
        (self.id.filter(|_| !matches!(command, Command::Refused(_) | Command::OutOfSync)), command)
    }

    /// Returns `command`, and discards all later input.
    fn last(&mut self, command: Command) -> Decoding {
        self.state = Reading::OutOfSync;
        Some(Some(command))
    }

    fn line(&mut self, input: &mut &[u8]) -> Decoding {
        let window = upto(input, MAX_LINE);
        let Some(length) = window.iter().position(|&byte| byte == b'\n') else {
            if window.len() < MAX_LINE {
                return None;
            }
            return self.last(Command::OutOfSync);
        };
        let line = upto(window, length);
        *input = past(input, length + 1);
        let (command, index) = admin::parse(line.strip_suffix(b"\r").unwrap_or(line));
        self.id = index.map(|index| CommandId::new(FIRST_TEXT, index));
        Some(Some(Command::Text(command)))
    }

    fn packet(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Decoding {
        let magic = upto(input, 4);
        if !b"\0REQ".starts_with(magic) && !b"\0RES".starts_with(magic) {
            return self.last(Command::OutOfSync);
        }
        let ([_, _, _, magic, k0, k1, k2, k3, l0, l1, l2, l3], behind) = input.split_first_chunk::<HEADER>()?;
        let (kind, length) = (u32::from_be_bytes([*k0, *k1, *k2, *k3]), u32::from_be_bytes([*l0, *l1, *l2, *l3]));
        let Some(row) = packet(kind) else { return self.last(Command::Refused(reply::UNKNOWN_KIND)) };
        self.id = Some(CommandId::new(FIRST_PACKET, kind as usize - 1));
        if length > limits.max_packet {
            return self.last(Command::Refused(reply::LARGE_PACKET));
        }
        if *magic == b'S' || !row.is_request {
            *input = behind;
            let fault = if *magic == b'S' { reply::RESPONSE_MAGIC } else { reply::NOT_A_REQUEST };
            return self.skip(length.into(), fault);
        }
        let length = length as usize;
        let (args, used) = match head(row, behind, length)? {
            Ok(head) => head,
            Err(fault) => return self.last(Command::Refused(fault)),
        };
        let command = parse_packet(row.kind, upto(&args, row.arguments.len()));
        *input = past(behind, used);
        match command {
            Ok(command) if row.data => self.data(command, length - used, input, limits),
            Ok(command) => Some(Some(command)),
            Err(fault) => self.skip((length - used) as u64, fault),
        }
    }

    fn skip(&mut self, left: u64, fault: Fault) -> Decoding {
        self.state = Reading::Data(Box::new((Command::Refused(fault), Upload::skip(left))));
        Some(None)
    }

    fn data(&mut self, command: Command, size: usize, input: &mut &[u8], limits: &DecodeLimits) -> Decoding {
        if let Some((data, rest)) = input.split_at_checked(size) {
            *input = rest;
            let fingerprint = command.is_unique_by_body().then(|| limits.fingerprints.of(data));
            return Some(Some(self.with_data(command, Body::copy(data), fingerprint)));
        }
        if let Some(mut body) = Upload::begin(size, limits.room) {
            if command.is_unique_by_body() {
                body = body.with_fingerprint(limits.fingerprints);
            }
            self.state = Reading::Data(Box::new((command, body)));
            return Some(None);
        }
        match command {
            Command::Submit(_) => self.skip(size as u64, reply::QUEUE_MEMORY),
            // If there is no memory for WORK_* data, disconnect the worker, so that its job becomes ready again.
            _ => self.last(Command::Refused(reply::NO_MEMORY)),
        }
    }

    /// `data` is `None` if the packet was refused or memory was exhausted.
    fn with_data(&mut self, mut command: Command, data: Option<Body>, fingerprint: Option<Fingerprint>) -> Command {
        match (data, &command) {
            (Some(data), _) => {
                command.set_body(data, fingerprint);
                command
            }
            (None, Command::Refused(_)) => command,
            (None, Command::Submit(_)) => Command::Refused(reply::QUEUE_MEMORY),
            (None, _) => {
                self.state = Reading::OutOfSync;
                Command::Refused(reply::NO_MEMORY)
            }
        }
    }

    pub fn upload(&mut self) -> Option<&mut Upload> {
        let Reading::Data(arriving) = &mut self.state else { return None };
        arriving.1.kept()
    }

    pub fn uploading(&self) -> u64 {
        let Reading::Data(arriving) = &self.state else { return 0 };
        arriving.0.footprint() + arriving.1.footprint()
    }
}

/// Returns the arguments at the start of a packet body of `length` bytes, or `None` if more input is needed.
fn head<'a>(row: &Packet, bytes: &'a [u8], length: usize) -> Option<Result<Head<'a>, Fault>> {
    let here = upto(bytes, length);
    let mut args: [&[u8]; MAX_ARGUMENTS] = [b""; MAX_ARGUMENTS];
    if !row.data {
        if length > MAX_HEAD {
            return Some(Err(reply::LARGE_ARGUMENTS));
        }
        if here.len() < length {
            return None;
        }
    }
    let head = upto(here, MAX_HEAD);
    let ends = if row.data { row.arguments.len() } else { row.arguments.len().saturating_sub(1) };
    let mut used = 0;
    for arg in args.iter_mut().take(ends) {
        let Some(end) = past(head, used).iter().position(|&byte| byte == 0) else {
            return match head.len() {
                whole if whole == length => Some(Err(reply::FEW_ARGUMENTS)),
                MAX_HEAD => Some(Err(reply::LARGE_ARGUMENTS)),
                _ => None,
            };
        };
        *arg = upto(past(head, used), end);
        used += end + 1;
    }
    if !row.data {
        if let Some(last) = args.get_mut(ends) {
            *last = past(head, used);
        }
        used = length;
    }
    Some(Ok((args, used)))
}

const HIGH: Priority = PRIORITY_CLASSES[0];
const NORMAL: Priority = PRIORITY_CLASSES[1];
const LOW: Priority = PRIORITY_CLASSES[2];

/// The decoder has checked the number of arguments, and adds the data later.
fn parse_packet(kind: Kind, args: &[&[u8]]) -> Result<Command, Fault> {
    match kind {
        Kind::CanDo => function(arg(args, 0)).map(|function| Command::CanDo { function, limit: None }),
        Kind::CantDo => function(arg(args, 0)).map(Command::CantDo),
        Kind::ResetAbilities => Ok(Command::ResetAbilities),
        Kind::PreSleep => Ok(Command::PreSleep),
        Kind::SubmitJob => submission(args, NORMAL, false).map(Command::Submit),
        Kind::GrabJob => Ok(Command::Grab(Kind::JobAssign)),
        Kind::WorkStatus => {
            // The body contains both numbers as sent.
            let body = [arg(args, 1), last(args)].join(&0).into();
            Ok(Command::Work(Work { kind, handle: arg(args, 0).into(), body }))
        }
        Kind::WorkComplete | Kind::WorkFail | Kind::WorkException | Kind::WorkData | Kind::WorkWarning => {
            Ok(Command::Work(Work { kind, handle: last(args).into(), body: Body::default() }))
        }
        Kind::GetStatus => Ok(Command::GetStatus(last(args).into())),
        Kind::EchoReq => Ok(Command::Echo(Body::default())),
        Kind::SubmitJobBg => submission(args, NORMAL, true).map(Command::Submit),
        Kind::SubmitJobHigh => submission(args, HIGH, false).map(Command::Submit),
        Kind::SetClientId => Ok(Command::SetClientId(upto(last(args), MAX_CLIENT_ID).into())),
        Kind::CanDoTimeout => Ok(Command::CanDo { function: function(arg(args, 0))?, limit: limit(arg(args, 1)) }),
        Kind::OptionReq => Ok(Command::Option(last(args).into())),
        Kind::GrabJobUniq => Ok(Command::Grab(Kind::JobAssignUniq)),
        Kind::SubmitJobHighBg => submission(args, HIGH, true).map(Command::Submit),
        Kind::SubmitJobLow => submission(args, LOW, false).map(Command::Submit),
        Kind::SubmitJobLowBg => submission(args, LOW, true).map(Command::Submit),
        Kind::SubmitJobSched => scheduled(args),
        Kind::SubmitJobEpoch => epoch(args),
        Kind::SubmitReduceJob => reduce(args, false),
        Kind::SubmitReduceJobBackground => reduce(args, true),
        Kind::GrabJobAll => Ok(Command::Grab(Kind::JobAssignAll)),
        Kind::GetStatusUnique => Ok(Command::GetStatusUnique(last(args).into(), NameSearch::default())),
        _ => Err(reply::NOT_A_REQUEST),
    }
}

fn arg<'a>(args: &[&'a [u8]], index: usize) -> &'a [u8] {
    args.get(index).copied().unwrap_or_default()
}

/// Omits a trailing NUL byte, which some clients add.
fn last<'a>(args: &[&'a [u8]]) -> &'a [u8] {
    let last = args.last().copied().unwrap_or_default();
    last.strip_suffix(b"\0").unwrap_or(last)
}

fn function(name: &[u8]) -> Result<Box<[u8]>, Fault> {
    let name = name.strip_suffix(b"\0").unwrap_or(name);
    match name {
        name if name.is_empty() || name.contains(&0) => Err(reply::WRONG_FUNCTION),
        name if name.len() > MAX_FUNCTION => Err(reply::LARGE_FUNCTION),
        name => Ok(name.into()),
    }
}

/// Returns `None`, which means no time limit, if the number is 0, negative or invalid.
fn limit(text: &[u8]) -> Option<NonZeroU64> {
    strtoll(text).filter(|number| *number > 0).and_then(|number| NonZeroU64::new(number as u64))
}

fn submission(args: &[&[u8]], pri: Priority, background: bool) -> Result<Box<Submission>, Fault> {
    let unique = match arg(args, 1) {
        b"" => DedupKey::None,
        b"-" => DedupKey::Body(None),
        name if name.len() > MAX_UNIQUE => return Err(reply::LARGE_UNIQUE),
        name => DedupKey::Name(name.into()),
    };
    let (function, when, body) = (function(arg(args, 0))?, When::Now, Body::default());
    Ok(Submission { function, unique, pri, background, when, reducer: None, body }.into())
}

/// A job with an invalid time starts immediately.
fn epoch(args: &[&[u8]]) -> Result<Command, Fault> {
    let mut submission = submission(args, NORMAL, true)?;
    if let Some(secs) = strtoll(arg(args, 2)).filter(|secs| *secs > 0) {
        submission.when = When::At(Time::from_nanos(0) + Span::from_secs(secs as u64));
    }
    Ok(Command::Submit(submission))
}

fn scheduled(args: &[&[u8]]) -> Result<Command, Fault> {
    let mut submission = submission(args, NORMAL, true)?;
    let fields = [2, 3, 4, 5, 6].map(|index| arg(args, index));
    submission.when = When::On(parse_schedule(fields).ok_or(reply::WRONG_SCHEDULE)?);
    Ok(Command::Submit(submission))
}

/// Ignores the last argument of the packet, the aggregator.
fn reduce(args: &[&[u8]], background: bool) -> Result<Command, Fault> {
    let mut submission = submission(args, NORMAL, background)?;
    ensure!(arg(args, 2).len() <= MAX_FUNCTION, reply::LARGE_REDUCER);
    submission.reducer = Some(arg(args, 2).into());
    Ok(Command::Submit(submission))
}

/// Minute, hour, day of the month, month, and day of the week (0 is Monday). `*` or an empty field matches any value.
fn parse_schedule(fields: [&[u8]; 5]) -> Option<Minutes> {
    let [minute, hour, day, month, weekday] = fields;
    Some(Minutes::at([
        field(minute, 0, 59)?,
        field(hour, 0, 23)?,
        field(day, 1, 31)?,
        field(month, 1, 12)?,
        field(weekday, 0, 6)?.map(|day| (day + 1) % 7),
    ]))
}

fn field(text: &[u8], min: u8, max: u8) -> Option<Option<u8>> {
    if matches!(text, b"" | b"*") {
        return Some(None);
    }
    let number = whole_number(text).and_then(|number| u8::try_from(number).ok());
    number.filter(|number| (min..=max).contains(number)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::super::kind::PACKETS;
    use super::*;
    use crate::engine::Time;
    use crate::protocol::tests::pieces::{in_pieces, LIMITS};

    fn request(kind: u32, body: &[u8]) -> Vec<u8> {
        [b"\0REQ", kind.to_be_bytes().as_slice(), &(body.len() as u32).to_be_bytes(), body].concat()
    }

    fn decode(stream: &[u8], step: usize) -> Vec<String> {
        let mut decoder = Decoder::default();
        in_pieces(stream, step, |input| decoder.next(input, &LIMITS).map(|(_, command)| format!("{command:?}")))
    }

    fn whole(stream: &[u8]) -> Vec<String> {
        decode(stream, stream.len().max(1))
    }

    fn refused(fault: &Fault) -> String {
        format!("{:?}", Command::Refused(*fault))
    }

    fn all_kinds() -> Vec<u8> {
        let mut stream = Vec::new();
        for row in &PACKETS {
            let mut body = row.arguments.iter().map(|_| b"7".as_slice()).collect::<Vec<_>>().join(&0);
            if row.data {
                let nul = !row.arguments.is_empty();
                body.extend(nul.then_some(0));
                body.extend(b"data\0with\nanything");
            }
            stream.extend(request(row.kind as u32, &body));
            stream.extend(b"status\r\nversion\n");
        }
        stream
    }

    #[test]
    fn decoding_does_not_depend_on_the_pieces_of_the_stream() {
        let stream = all_kinds();
        let expected = whole(&stream);
        assert_eq!(expected.len(), 3 * PACKETS.len());
        for step in 1..60 {
            assert_eq!(decode(&stream, step), expected, "in pieces of {step}");
        }
    }

    #[test]
    fn packet_that_is_not_a_request_is_skipped() {
        for row in PACKETS.iter().filter(|row| !row.is_request) {
            let stream = [request(row.kind as u32, b"a\0b\0REQ"), b"version\n".to_vec()].concat();
            let expected = [refused(&reply::NOT_A_REQUEST), "Text(Version)".to_owned()];
            assert_eq!(whole(&stream), expected, "{}", row.name);
        }
        let mut response = request(16, b"hello");
        response[3] = b'S';
        response.extend(b"version\n");
        assert_eq!(whole(&response), [refused(&reply::RESPONSE_MAGIC), "Text(Version)".to_owned()]);
    }

    #[test]
    fn unknown_packet_ends_decoding() {
        for kind in [0, 43, 44, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let stream = [request(kind, b"x"), request(16, b"hello")].concat();
            assert_eq!(whole(&stream), [refused(&reply::UNKNOWN_KIND)], "{kind:#x}");
        }
        for magic in ["\0RET", "\0\0\0\0", "\0req", "\0A"] {
            assert_eq!(whole(&[magic.as_bytes(), &[0; 20]].concat()), ["OutOfSync"], "{magic:?}");
        }
    }

    #[test]
    fn arguments_are_not_searched_in_the_next_packet() {
        for row in PACKETS.iter().filter(|row| row.is_request) {
            let needed = row.arguments.len() - usize::from(!row.data && !row.arguments.is_empty());
            for count in 0..needed {
                let body = [b"f".as_slice(), &vec![0; count]].concat();
                let stream = [request(row.kind as u32, &body), request(16, b"a\0b\0c\0d\0e\0f\0g\0h")].concat();
                for step in [1, 7, stream.len()] {
                    assert_eq!(decode(&stream, step), [refused(&reply::FEW_ARGUMENTS)], "{} {count}", row.name);
                }
            }
        }
    }

    #[test]
    fn input_beyond_the_limits_ends_decoding() {
        let claim = |kind: u32, length: u32| [b"\0REQ", &kind.to_be_bytes()[..], &length.to_be_bytes()[..]].concat();
        assert_eq!(whole(&claim(7, 50_001)), [refused(&reply::LARGE_PACKET)]);
        assert_eq!(whole(&claim(16, u32::MAX)), [refused(&reply::LARGE_PACKET)]);
        assert_eq!(whole(&claim(1, 9000)), [refused(&reply::LARGE_ARGUMENTS)]);
        let submit = request(7, &[b'f'; 9000]);
        assert_eq!(whole(&submit), [refused(&reply::LARGE_ARGUMENTS)]);
        assert_eq!(whole(&[b'x'; MAX_LINE - 1]), Vec::<String>::new());
        assert_eq!(whole(&[b'x'; MAX_LINE]), ["OutOfSync"]);
        assert_eq!(whole(&[vec![b'x'; MAX_LINE - 1], b"\n".to_vec()].concat()).len(), 1);
    }

    #[test]
    fn packet_with_an_invalid_argument_is_skipped() {
        let long = [b'u'; 65];
        let submit = [b"f\0", long.as_slice(), &[0], &[b'x'; 300]].concat();
        let stream = [request(7, &submit), request(1, b""), request(16, b"x")].concat();
        for step in [1, 50, stream.len()] {
            let found = decode(&stream, step);
            assert_eq!(found[..2], [refused(&reply::LARGE_UNIQUE), refused(&reply::WRONG_FUNCTION)]);
            assert_eq!(found.len(), 3);
        }
    }

    #[test]
    fn data_are_read_in_place() {
        let mut decoder = Decoder::default();
        let packet = request(7, b"f\0u\0abcdef");
        let mut input = &packet[..packet.len() - 4];
        assert!(decoder.next(&mut input, &LIMITS).is_none());
        assert_eq!((decoder.upload().map(|upload| upload.footprint()), input), (Some(6), b"".as_slice()));
        let upload = decoder.upload().expect("four bytes are missing");
        upload.gap(1000).expect("free space").copy_from_slice(b"cdef");
        upload.filled(4);
        let (_, command) = decoder.next(&mut b"".as_slice(), &LIMITS).expect("a complete packet");
        assert!(matches!(command, Command::Submit(job) if job.body.bytes() == b"abcdef"));
    }

    #[test]
    fn job_without_memory_is_skipped_and_result_ends_decoding() {
        let limits = DecodeLimits { room: 5, ..LIMITS };
        let mut decoder = Decoder::default();
        let stream = [request(18, b"f\0\0abcdef"), b"version\n".to_vec()].concat();
        let mut input = &stream[..20];
        assert!(decoder.next(&mut input, &limits).is_none());
        assert!(decoder.upload().is_none() && input.is_empty());
        let mut input = &stream[20..];
        let (_, command) = decoder.next(&mut input, &limits).expect("a complete packet");
        assert!(matches!(command, Command::Refused(fault) if fault == reply::QUEUE_MEMORY));
        assert_eq!(input, b"version\n");
        let stream = request(13, b"H:h:1\0abcdef");
        let mut input = &stream[..stream.len() - 1];
        let (_, command) = Decoder::default().next(&mut input, &limits).expect("a refusal");
        assert!(matches!(command, Command::Refused(fault) if fault == reply::NO_MEMORY));
    }

    /// The decoder computes the fingerprint, because doing so with the engine locked would delay other clients.
    #[test]
    fn data_that_are_the_unique_id_have_a_fingerprint() {
        for (unique, kept) in [("-", "Body(Some("), ("u", "Name("), ("", "None")] {
            let [submission] = &whole(&request(7, format!("f\0{unique}\0data").as_bytes()))[..] else {
                panic!("expected one request")
            };
            assert!(submission.contains(&format!("unique: {kept}")), "{submission}");
        }
    }

    #[test]
    fn parsers_do_not_panic_on_any_arguments() {
        let odd: [&[u8]; 6] = [b"", b"\0", b"a", b"-1", b"99999999999999999999", &[b'x'; 9000]];
        for row in &PACKETS {
            for text in odd {
                let parsed = parse_packet(row.kind, &vec![text; row.arguments.len()]);
                let is_response = matches!(parsed, Err(reply::NOT_A_REQUEST));
                assert_eq!(is_response, !row.is_request, "{}", row.name);
            }
        }
    }

    #[test]
    fn limit_is_a_positive_number() {
        for (text, number) in [("5", 5), ("1500", 1500), ("1500\0", 1500), ("99999999999999999999", i64::MAX as u64)] {
            assert_eq!(limit(text.as_bytes()), NonZeroU64::new(number), "{text:?}");
        }
        for none in ["0", "-1", "x", ""] {
            assert_eq!(limit(none.as_bytes()), None, "{none:?}");
        }
    }

    #[test]
    fn lengths_of_names_are_limited() {
        assert!(function(&[b'f'; MAX_FUNCTION]).is_ok());
        assert_eq!(function(&[b'f'; MAX_FUNCTION + 1]), Err(reply::LARGE_FUNCTION));
        assert_eq!(function(b""), Err(reply::WRONG_FUNCTION));
        assert_eq!(function(b"a\0b"), Err(reply::WRONG_FUNCTION));
        assert_eq!(function(b"a\0").as_deref(), Ok(b"a".as_slice()));
        let unique = |length| submission(&[b"f", &vec![b'u'; length]], NORMAL, false).map(|it| it.unique);
        assert!(matches!(unique(64), Ok(DedupKey::Name(name)) if name.length() == 64));
        assert_eq!(unique(65), Err(reply::LARGE_UNIQUE));
    }

    /// Tuesday, 14 November 2023, 22:13:20 UTC.
    const NOW: u64 = 1_700_000_000;

    #[test]
    fn all_fields_must_match() {
        let next = |fields: [&str; 5]| {
            let minutes = parse_schedule(fields.map(str::as_bytes)).expect("fields");
            minutes.next(Time::from_nanos(NOW * 1_000_000_000)).map(|time| time.nanos() / 1_000_000_000)
        };
        assert_eq!(next(["", "", "", "", ""]), Some(1_700_000_040), "the next full minute");
        assert_eq!(next(["*", "*", "*", "*", "*"]), Some(1_700_000_040));
        assert_eq!(next(["30", "6", "1", "", ""]), Some(1_701_412_200), "1 December 2023, 06:30");
        assert_eq!(next(["0", "0", "", "", "0"]), Some(1_700_438_400), "Monday, 20 November");
        assert_eq!(next(["0", "0", "", "", "6"]), Some(1_700_352_000), "Sunday, 19 November");
        assert_eq!(next(["0", "0", "13", "", "4"]), Some(1_702_425_600 + 275 * 86_400), "Friday, 13 September 2024");
        assert_eq!(next(["", "", "30", "2", ""]), None);
    }

    #[test]
    fn fields_out_of_range_are_invalid() {
        for wrong in [
            ["60", "", "", "", ""],
            ["", "24", "", "", ""],
            ["", "", "0", "", ""],
            ["", "", "32", "", ""],
            ["", "", "", "13", ""],
            ["", "", "", "0", ""],
            ["", "", "", "", "7"],
            ["-1", "", "", "", ""],
            ["+1", "", "", "", ""],
            ["1 ", "", "", "", ""],
            ["300", "", "", "", ""],
            ["x", "", "", "", ""],
        ] {
            assert_eq!(parse_schedule(wrong.map(str::as_bytes)), None, "{wrong:?}");
        }
    }
}
