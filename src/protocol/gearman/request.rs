//! Decoder for packets and text commands. The first byte distinguishes packets from lines of text, as in gearmand.
//! The search for arguments ends with the packet, so a wrong length cannot affect the following packets.

use super::admin;
use super::command::Command;
use super::kind::{packet, Packet};
use super::names::MAX_LINE;
use super::packets;
use super::reply::{self, Fault};
use crate::engine::{Body, Fingerprint};
use crate::protocol::text::{past, upto};
use crate::protocol::upload::Upload;
use crate::protocol::{CommandId, DecodeLimits, Decoded};

/// In bytes, the size of gearmand's receive buffer.
pub const MAX_HEAD: usize = 8192;

/// Magic, type and length of 4 bytes each.
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
    /// Also discards the rest of a refused packet.
    Data(Box<(Command, Upload)>),
    /// Discards all input until the connection closes.
    OutOfSync,
}

struct Head<'a> {
    args: [&'a [u8]; MAX_ARGUMENTS],
    used: usize,
}

impl Decoder {
    pub fn next(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Decoded<Command>> {
        loop {
            match &mut self.state {
                Reading::Start => {
                    let command = match input.first()? {
                        0 => self.packet(input, limits)?,
                        _ => Some(self.line(input)?),
                    };
                    if let Some(command) = command {
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
    fn last(&mut self, command: Command) -> Option<Option<Command>> {
        self.state = Reading::OutOfSync;
        Some(Some(command))
    }

    fn line(&mut self, input: &mut &[u8]) -> Option<Command> {
        let window = upto(input, MAX_LINE);
        let Some(length) = window.iter().position(|&byte| byte == b'\n') else {
            if window.len() < MAX_LINE {
                return None;
            }
            self.state = Reading::OutOfSync;
            return Some(Command::OutOfSync);
        };
        let line = upto(window, length);
        *input = past(input, length + 1);
        let (command, index) = admin::parse(line.strip_suffix(b"\r").unwrap_or(line));
        self.id = index.map(CommandId::text);
        Some(Command::Text(command))
    }

    /// Returns `None` if more input is needed, and `Some(None)` if decoding continues in the new `state`.
    fn packet(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Option<Command>> {
        let magic = upto(input, 4);
        if !b"\0REQ".starts_with(magic) && !b"\0RES".starts_with(magic) {
            return self.last(Command::OutOfSync);
        }
        let ([_, _, _, magic, k0, k1, k2, k3, l0, l1, l2, l3], behind) = input.split_first_chunk::<HEADER>()?;
        let (kind, length) = (u32::from_be_bytes([*k0, *k1, *k2, *k3]), u32::from_be_bytes([*l0, *l1, *l2, *l3]));
        let Some(row) = packet(kind) else { return self.last(Command::Refused(reply::UNKNOWN_KIND)) };
        self.id = Some(CommandId::packet(kind as usize - 1));
        if length > limits.max_packet {
            return self.last(Command::Refused(reply::LARGE_PACKET));
        }
        if *magic == b'S' || !row.is_request {
            *input = behind;
            let fault = if *magic == b'S' { reply::RESPONSE_MAGIC } else { reply::NOT_A_REQUEST };
            return self.skip(length.into(), fault);
        }
        let length = length as usize;
        let head = match head(row, behind, length)? {
            Ok(head) => head,
            Err(fault) => return self.last(Command::Refused(fault)),
        };
        let command = packets::parse(row.kind, upto(&head.args, row.arguments.len()));
        *input = past(behind, head.used);
        match command {
            Ok(command) if row.data => self.data(command, length - head.used, input, limits),
            Ok(command) => Some(Some(command)),
            Err(fault) => self.skip((length - head.used) as u64, fault),
        }
    }

    fn skip(&mut self, left: u64, fault: Fault) -> Option<Option<Command>> {
        self.state = Reading::Data(Box::new((Command::Refused(fault), Upload::skip(left))));
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
            // Without memory for the result, disconnect the worker, so that the job becomes ready again.
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
        match &mut self.state {
            Reading::Data(arriving) => arriving.1.kept(),
            _ => None,
        }
    }
}

/// Splits off the arguments of a packet body of `length` bytes. Returns `None` if more input is needed.
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
    use super::super::kind::PACKETS;
    use super::*;
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
        upload.gap(1000).expect("room for them").copy_from_slice(b"cdef");
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
                panic!("one request")
            };
            assert!(submission.contains(&format!("unique: {kept}")), "{submission}");
        }
    }
}
