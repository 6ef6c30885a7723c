//! The decoder from bytes to requests.
//!
//! Owns the framing of packets and of lines of text, which the first byte of each distinguishes, as in gearmand.
//! Arguments are searched only within the packet's own body, so a wrong length cannot make the decoder read the
//! following packets. Must not access the queue: `session` looks up the jobs of a request.

use super::admin::{self, AdminCommand};
use super::command::Command;
use super::names::{job_of, MAX_LINE};
use super::packets::{packet, Packet};
use super::reply::{self, Fault};
use crate::access::Need;
use crate::engine::{Body, Fingerprint, JobId};
use crate::protocol::guard::Subject;
use crate::protocol::text::{past, upto};
use crate::protocol::upload::{swallow, Upload};
use crate::protocol::{CommandPlace, Context, DecodeLimits};

/// Maximum size of a packet's arguments, without its data (gearmand: its receive buffer).
pub const MAX_HEAD: usize = 8192;

/// The size of a packet's header: magic, number and length, four bytes each.
const HEADER: usize = 12;

/// The maximum number of arguments of a packet.
const MAX_ARGUMENTS: usize = 7;

/// A packet or a line, as received from the client.
#[derive(Debug)]
pub struct Request {
    /// The parsed packet or line.
    pub command: Command,
    /// The command under which the request is counted; `None` if it is invalid.
    pub place: Option<CommandPlace>,
}

impl Request {
    /// Returns the tube or job named by the request.
    pub fn subject(&self, context: &Context) -> Subject<'_> {
        let job = |handle: &[u8]| Subject::Job(job_of(handle, &context.host.facts().handle_prefix));
        match &self.command {
            Command::CanDo { function, .. } | Command::CantDo(function) => Subject::Tube(function),
            Command::Submit(submission) => Subject::Tube(&submission.function),
            Command::Work(work) => job(&work.handle),
            Command::GetStatus(handle) => job(handle),
            Command::GetStatusUnique(unique) => Subject::Job(find_unique(unique, context)),
            Command::Text(AdminCommand::CancelJob(handle)) => job(handle),
            Command::Text(
                AdminCommand::CreateFunction(name) | AdminCommand::DropFunction(name) | AdminCommand::Maxqueue(name, _),
            ) => Subject::Tube(name),
            _ => Subject::Nothing,
        }
    }
}

/// Returns the oldest job with this unique ID that the client may query.
pub fn find_unique(unique: &[u8], context: &Context) -> Option<JobId> {
    let sees = |tube: &[u8]| context.access.as_ref().is_none_or(|it| it.check(Need::FOLLOW_JOB, Some(tube)).is_ok());
    context.engine.find_name(unique, sees)
}

/// The parser's state for one connection. It stores only data: the caller passes an unfinished line, or unfinished
/// arguments, again with more bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    state: Reading,
    /// The packet or line that is being read, if it is known.
    place: Option<CommandPlace>,
}

#[derive(Debug, Default)]
enum Reading {
    /// At the first byte of a packet or a line.
    #[default]
    Start,
    /// In the data of a packet.
    Data(Box<Arriving>),
    /// In the rest of a refused packet, with the error to send after it.
    Skip { left: u64, fault: Fault },
    /// Out of sync with the stream: input is dropped until the connection closes.
    Lost,
}

#[derive(Debug)]
struct Arriving {
    command: Command,
    body: Upload,
}

/// The arguments of a packet, and the start of its data.
struct Head<'a> {
    args: [&'a [u8]; MAX_ARGUMENTS],
    used: usize,
}

impl Decoder {
    /// Takes the next complete request from the front of `input`. Returns `None` if it has not arrived completely: then
    /// the rest of `input`, if any, is the beginning of a packet or a line.
    pub fn next(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        loop {
            match &mut self.state {
                Reading::Start => {
                    let command = match input.first()? {
                        0 => self.packet(input, limits)?,
                        _ => Some(self.line(input)?),
                    };
                    if let Some(command) = command {
                        return Some(self.request(command));
                    }
                }
                Reading::Data(arriving) => {
                    arriving.body.take(input, limits.room)?;
                    let Reading::Data(arriving) = std::mem::take(&mut self.state) else { unreachable!() };
                    let fingerprint = arriving.body.fingerprint();
                    let command = self.whole(arriving.command, arriving.body.finish(), fingerprint);
                    return Some(self.request(command));
                }
                Reading::Skip { left, fault } => {
                    swallow(left, input)?;
                    let command = Command::Refused(*fault);
                    self.state = Reading::Start;
                    return Some(self.request(command));
                }
                Reading::Lost => {
                    *input = &[];
                    return None;
                }
            }
        }
    }

    fn request(&self, command: Command) -> Request {
        let place = self.place.filter(|_| !matches!(command, Command::Refused(_) | Command::Lost));
        Request { command, place }
    }

    /// Gives up the stream, whose rest cannot be parsed.
    fn lose(&mut self, command: Command) -> Option<Option<Command>> {
        self.state = Reading::Lost;
        Some(Some(command))
    }

    fn line(&mut self, input: &mut &[u8]) -> Option<Command> {
        let window = upto(input, MAX_LINE);
        let Some(length) = window.iter().position(|&byte| byte == b'\n') else {
            if window.len() < MAX_LINE {
                return None;
            }
            self.state = Reading::Lost;
            return Some(Command::Lost);
        };
        let line = upto(window, length);
        *input = past(input, length + 1);
        let (command, place) = admin::parse(line.strip_suffix(b"\r").unwrap_or(line));
        self.place = place.map(CommandPlace::text);
        Some(Command::Text(command))
    }

    /// Reads one packet up to its data. Returns `None` if it has not arrived completely, and `Some(None)` if the state
    /// describes what follows.
    fn packet(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Option<Command>> {
        let magic = upto(input, 4);
        if !b"\0REQ".starts_with(magic) && !b"\0RES".starts_with(magic) {
            return self.lose(Command::Lost);
        }
        let ([_, _, _, magic, k0, k1, k2, k3, l0, l1, l2, l3], behind) = input.split_first_chunk::<HEADER>()?;
        let (kind, length) = (u32::from_be_bytes([*k0, *k1, *k2, *k3]), u32::from_be_bytes([*l0, *l1, *l2, *l3]));
        let Some(row) = packet(kind) else { return self.lose(Command::Refused(reply::UNKNOWN_KIND)) };
        self.place = Some(CommandPlace::packet(kind as usize - 1));
        if length > limits.max_packet {
            return self.lose(Command::Refused(reply::LARGE_PACKET));
        }
        let parse = match row.parse {
            _ if *magic == b'S' => Err(reply::RESPONSE_MAGIC),
            None => Err(reply::NOT_A_REQUEST),
            Some(parse) => Ok(parse),
        };
        let parse = match parse {
            Ok(parse) => parse,
            Err(fault) => {
                *input = behind;
                return self.skip(length.into(), fault);
            }
        };
        let length = length as usize;
        let head = match head(row, behind, length)? {
            Ok(head) => head,
            Err(fault) => return self.lose(Command::Refused(fault)),
        };
        let command = parse(upto(&head.args, row.arguments.len()));
        *input = past(behind, head.used);
        match command {
            Ok(command) if row.data => self.data(command, length - head.used, input, limits),
            Ok(command) => Some(Some(command)),
            Err(fault) => self.skip((length - head.used) as u64, fault),
        }
    }

    fn skip(&mut self, left: u64, fault: Fault) -> Option<Option<Command>> {
        self.state = Reading::Skip { left, fault };
        Some(None)
    }

    fn data(
        &mut self,
        command: Command,
        size: usize,
        input: &mut &[u8],
        limits: &DecodeLimits,
    ) -> Option<Option<Command>> {
        if let Some((data, rest)) = input.split_at_checked(size) {
            *input = rest;
            let fingerprint = command.is_unique_by_body().then(|| limits.fingerprints.of(data));
            return Some(Some(self.whole(command, Body::copy(data), fingerprint)));
        }
        if let Some(mut body) = Upload::begin(size, limits.room) {
            if command.is_unique_by_body() {
                body = body.with_fingerprint(limits.fingerprints);
            }
            self.state = Reading::Data(Box::new(Arriving { command, body }));
            return Some(None);
        }
        match command {
            Command::Submit(_) => self.skip(size as u64, reply::QUEUE_MEMORY),
            // Dropping the result would lose it, so the worker is disconnected: then its job can run again.
            _ => self.lose(Command::Refused(reply::NO_MEMORY)),
        }
    }

    /// Completes a command. All data have arrived, unless memory was exhausted.
    fn whole(&mut self, mut command: Command, data: Option<Body>, fingerprint: Option<Fingerprint>) -> Command {
        match (data, &command) {
            (Some(data), _) => {
                command.set_body(data, fingerprint);
                command
            }
            (None, Command::Submit(_)) => Command::Refused(reply::QUEUE_MEMORY),
            (None, _) => {
                self.state = Reading::Lost;
                Command::Refused(reply::NO_MEMORY)
            }
        }
    }

    /// Returns the data that are arriving, if any.
    pub fn upload(&mut self) -> Option<&mut Upload> {
        match &mut self.state {
            Reading::Data(arriving) => Some(&mut arriving.body),
            _ => None,
        }
    }
}

/// Splits off the arguments of a body of `length` bytes at the beginning of `bytes`. Returns `None` if too little has
/// arrived.
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
    Some(Ok(Head { args, used }))
}

#[cfg(test)]
mod tests {
    use super::super::packets::PACKETS;
    use super::*;
    use crate::protocol::pieces::{in_pieces, LIMITS};

    fn request(kind: u32, body: &[u8]) -> Vec<u8> {
        [b"\0REQ", kind.to_be_bytes().as_slice(), &(body.len() as u32).to_be_bytes(), body].concat()
    }

    fn decode(stream: &[u8], step: usize) -> Vec<String> {
        let mut decoder = Decoder::default();
        in_pieces(stream, step, |input| decoder.next(input, &LIMITS).map(|request| format!("{:?}", request.command)))
    }

    fn whole(stream: &[u8]) -> Vec<String> {
        decode(stream, stream.len().max(1))
    }

    fn refused(fault: &Fault) -> String {
        format!("{:?}", Command::Refused(*fault))
    }

    /// Returns one packet of every kind with valid arguments.
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
    fn the_pieces_in_which_a_stream_arrives_do_not_matter() {
        let stream = all_kinds();
        let expected = whole(&stream);
        assert_eq!(expected.len(), 3 * PACKETS.len());
        for step in 1..60 {
            assert_eq!(decode(&stream, step), expected, "in pieces of {step}");
        }
    }

    #[test]
    fn a_packet_that_is_no_request_costs_nothing_but_itself() {
        for row in PACKETS.iter().filter(|row| row.parse.is_none()) {
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
    fn behind_an_unknown_packet_nothing_is_read() {
        for kind in [0, 43, 44, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let stream = [request(kind, b"x"), request(16, b"hello")].concat();
            assert_eq!(whole(&stream), [refused(&reply::UNKNOWN_KIND)], "{kind:#x}");
        }
        for magic in ["\0RET", "\0\0\0\0", "\0req", "\0A"] {
            assert_eq!(whole(&[magic.as_bytes(), &[0; 20]].concat()), ["Lost"], "{magic:?}");
        }
    }

    #[test]
    fn arguments_are_never_looked_for_in_the_next_packet() {
        for row in PACKETS.iter().filter(|row| row.parse.is_some()) {
            let needed = row.arguments.len() - usize::from(!row.data && !row.arguments.is_empty());
            for there in 0..needed {
                let body = [b"f".as_slice(), &vec![0; there]].concat();
                let stream = [request(row.kind as u32, &body), request(16, b"a\0b\0c\0d\0e\0f\0g\0h")].concat();
                for step in [1, 7, stream.len()] {
                    assert_eq!(decode(&stream, step), [refused(&reply::FEW_ARGUMENTS)], "{} {there}", row.name);
                }
            }
        }
    }

    #[test]
    fn what_is_too_large_is_not_read() {
        let claim = |kind: u32, length: u32| [b"\0REQ", &kind.to_be_bytes()[..], &length.to_be_bytes()[..]].concat();
        assert_eq!(whole(&claim(7, 50_001)), [refused(&reply::LARGE_PACKET)]);
        assert_eq!(whole(&claim(16, u32::MAX)), [refused(&reply::LARGE_PACKET)]);
        assert_eq!(whole(&claim(1, 9000)), [refused(&reply::LARGE_ARGUMENTS)]);
        let submit = request(7, &[b'f'; 9000]);
        assert_eq!(whole(&submit), [refused(&reply::LARGE_ARGUMENTS)]);
        assert_eq!(whole(&[b'x'; MAX_LINE - 1]), Vec::<String>::new());
        assert_eq!(whole(&[b'x'; MAX_LINE]), ["Lost"]);
        assert_eq!(whole(&[vec![b'x'; MAX_LINE - 1], b"\n".to_vec()].concat()).len(), 1);
    }

    #[test]
    fn a_wrong_argument_costs_its_packet_and_no_more() {
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
        upload.gap(1000).expect("room for them").copy_from_slice(b"cdef");
        upload.filled(4);
        let request = decoder.next(&mut b"".as_slice(), &LIMITS).expect("all there");
        assert!(matches!(request.command, Command::Submit(job) if job.body.bytes() == b"abcdef"));
    }

    #[test]
    fn a_job_without_room_is_swallowed_and_a_result_ends_the_connection() {
        let limits = DecodeLimits { room: 5, ..LIMITS };
        let mut decoder = Decoder::default();
        let stream = [request(18, b"f\0\0abcdef"), b"version\n".to_vec()].concat();
        let mut input = &stream[..20];
        assert!(decoder.next(&mut input, &limits).is_none());
        assert!(decoder.upload().is_none() && input.is_empty());
        let mut input = &stream[20..];
        let request_refused = decoder.next(&mut input, &limits).expect("all there");
        assert!(matches!(request_refused.command, Command::Refused(fault) if fault == reply::QUEUE_MEMORY));
        assert_eq!(input, b"version\n");
        let stream = request(13, b"H:h:1\0abcdef");
        let mut input = &stream[..stream.len() - 1];
        let lost = Decoder::default().next(&mut input, &limits).expect("an answer");
        assert!(matches!(lost.command, Command::Refused(fault) if fault == reply::NO_MEMORY));
    }

    /// The holder of the engine's lock must not read a large body for that.
    #[test]
    fn data_that_are_the_unique_id_come_with_their_fingerprint() {
        for (unique, kept) in [("-", "Body(Some("), ("u", "Name("), ("", "None")] {
            let [submission] = &whole(&request(7, format!("f\0{unique}\0data").as_bytes()))[..] else {
                panic!("one request")
            };
            assert!(submission.contains(&format!("unique: {kept}")), "{submission}");
        }
    }
}
