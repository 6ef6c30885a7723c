//! Decoder for Workq requests: lines, the data after some lines, and the search for the next line after an error.

use super::commands::{read, Command, CommandName, Request};
use super::fields::{self, MAX_DATA};
use super::reply::{self, Words};
use crate::engine::Body;
use crate::protocol::counters::FIRST_WORKQ;
use crate::protocol::upload::{Arriving, Upload};
use crate::protocol::{CommandId, DecodeLimits, Decoded};

/// The maximum length of a line in bytes, including CR LF: the original server's limit for a whole command.
pub const MAX_LINE: usize = 1_058_576;
/// The decoder leaves an incomplete line of at most this many bytes to the caller, and stores a longer line itself.
const MAX_REPEATED: usize = 4 * 1024;

#[derive(Debug, Default)]
pub struct Decoder {
    state: Reading,
}

#[derive(Debug, Default)]
enum Reading {
    #[default]
    Line,
    /// The received part of a line that is longer than `MAX_REPEATED`.
    LongLine(Vec<u8>),
    /// Discards the data if the line is invalid or memory is exhausted.
    Data(Box<Arriving<WithData>>),
    /// Discards all input until the connection closes.
    Closing,
}

#[derive(Debug)]
struct WithData {
    name: CommandName,
    command: Command,
    /// The reply if CR LF does not follow the data.
    error: Words,
}

fn request(name: CommandName, command: Command, data: Body) -> Decoded<Request> {
    let is_valid = !matches!(command, Command::Refused(_));
    (is_valid.then(|| CommandId::new(FIRST_WORKQ, name as usize)), Request { command, data })
}

impl WithData {
    /// `is_whole` is `true` if CR LF follows the data. `data` is `None` if data was skipped or memory was exhausted.
    fn with_data(self, is_whole: bool, data: Option<Body>) -> Decoded<Request> {
        let command = match (self.command, &data) {
            _ if !is_whole => Command::Refused(self.error),
            (Command::Refused(answer), _) => Command::Refused(answer),
            (_, None) => Command::Refused(reply::OUT_OF_MEMORY),
            (command, Some(_)) => command,
        };
        request(self.name, command, data.unwrap_or_default())
    }
}

impl Decoder {
    pub fn next(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Decoded<Request>> {
        loop {
            match &mut self.state {
                Reading::Line => {
                    let Some(length) = input.iter().position(|byte| *byte == b'\n') else {
                        if input.len() > MAX_REPEATED {
                            self.state = Reading::LongLine(Vec::new());
                            continue;
                        }
                        return None;
                    };
                    let (line, rest) = input.split_at(length + 1);
                    *input = rest;
                    if let Some(request) = self.line(line, input, limits) {
                        return Some(request);
                    }
                }
                Reading::LongLine(long) => {
                    let end = input.iter().position(|byte| *byte == b'\n').map(|length| length + 1);
                    let (more, rest) = input.split_at(end.unwrap_or(input.len()));
                    *input = rest;
                    if long.len() + more.len() > MAX_LINE {
                        return Some(self.close(Some(reply::LINE_TOO_LONG)));
                    }
                    if more.len() as u64 > limits.room || long.try_reserve(more.len()).is_err() {
                        return Some(self.close(Some(reply::OUT_OF_MEMORY)));
                    }
                    long.extend_from_slice(more);
                    end?;
                    let Reading::LongLine(line) = std::mem::take(&mut self.state) else { unreachable!() };
                    if let Some(request) = self.line(&line, input, limits) {
                        return Some(request);
                    }
                }
                Reading::Data(arriving) => {
                    let is_whole = arriving.take(input, limits.room)?;
                    let Reading::Data(arriving) = std::mem::take(&mut self.state) else { unreachable!() };
                    return Some(arriving.command.with_data(is_whole, arriving.body.finish()));
                }
                Reading::Closing => {
                    *input = &[];
                    return None;
                }
            }
        }
    }

    fn close(&mut self, answer: Option<Words>) -> Decoded<Request> {
        self.state = Reading::Closing;
        (None, Request { command: Command::Close(answer), data: Body::default() })
    }

    /// `line` ends with LF. Returns `None` if decoding continues in the new `state`.
    fn line(&mut self, line: &[u8], input: &mut &[u8], limits: &DecodeLimits) -> Option<Decoded<Request>> {
        if line.len() > MAX_LINE {
            return Some(self.close(Some(reply::LINE_TOO_LONG)));
        }
        // LF alone closes the connection, as in the original server: the end of data in another protocol is unknown.
        let Some(line) = line.strip_suffix(b"\r\n") else { return Some(self.close(None)) };
        let (row, line) = match read(line) {
            Ok(found) => found,
            Err(answer) => return Some((None, Request { command: Command::Refused(answer), data: Body::default() })),
        };
        let plain = |command| Some(request(row.name, command, Body::default()));
        let Some(error) = row.data else { return plain(row.parse(&line).unwrap_or_else(Command::Refused)) };
        let size = line.arguments.last().and_then(|size| fields::size(size));
        let Some(size) = size else { return plain(Command::Refused(error)) };
        let command = match row.parse(&line) {
            _ if size > MAX_DATA => Command::Refused(error),
            parsed => parsed.unwrap_or_else(Command::Refused),
        };
        let with_data = WithData { name: row.name, command, error };
        let body = match &with_data.command {
            Command::Refused(_) => Upload::skip(size),
            _ => {
                if let Some(([data @ .., b'\r', b'\n'], rest)) = input.split_at_checked(size as usize + 2) {
                    *input = rest;
                    return Some(with_data.with_data(true, Body::copy(data)));
                }
                Upload::begin(size as usize, limits.room).unwrap_or_else(|| Upload::skip(size))
            }
        };
        self.state = Reading::Data(Box::new(Arriving::new(with_data, body)));
        None
    }

    pub fn upload(&mut self) -> Option<&mut Upload> {
        let Reading::Data(arriving) = &mut self.state else { return None };
        arriving.body.kept()
    }

    pub fn uploading(&self) -> u64 {
        match &self.state {
            Reading::Data(arriving) => arriving.body.footprint() + arriving.command.command.heap_size() as u64,
            Reading::LongLine(line) => line.capacity() as u64,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::tests::pieces::{self, in_pieces};

    const INTAKE: DecodeLimits = DecodeLimits { room: 1 << 30, ..pieces::LIMITS };

    fn decode(stream: &[u8], step: usize, limits: &DecodeLimits) -> Vec<String> {
        let mut decoder = Decoder::default();
        in_pieces(stream, step, |input| {
            let Some((_, request)) = decoder.next(input, limits) else {
                assert!(input.len() <= MAX_REPEATED);
                return None;
            };
            Some(match &request.command {
                Command::Refused(answer) => String::from_utf8_lossy(answer).trim_end().to_owned(),
                command => format!("{command:?} {:?}", request.data.bytes()),
            })
        })
    }

    const ID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c4";

    #[test]
    fn decoding_does_not_depend_on_the_pieces_of_the_stream() {
        let mut stream = Vec::new();
        for line in [
            format!("add {ID} ping 1000 60000 4\r\npong\r\n"),
            format!("add {ID} ping 1000 60000 6 -priority=x\r\na\r\nb\r\n\r\n"),
            format!("add {ID} ping 1000 60000 0\r\n\r\n"),
            format!("complete {ID} 1048577\r\n{}\r\n", "x".repeat(1_048_577)),
            format!("fail {ID} 3\r\nabcde"),
            format!("delete {ID}\r\n\r\ndelete\r\n"),
            format!("fail {ID} x\r\nabc\r\n"),
            format!("lease {}q 10\r\n", "name ".repeat(1000)),
            format!("delete{}\r\n", " ".repeat(MAX_LINE - 8)),
            "inspect server\r\ninspect server\nand the rest is ignored\r\n".to_owned(),
        ] {
            stream.extend_from_slice(line.as_bytes());
        }
        let whole = decode(&stream, stream.len(), &INTAKE);
        assert_eq!(whole.len(), 14, "{whole:?}");
        assert_eq!(whole[3], "-CLIENT-ERROR Invalid payload size");
        assert_eq!(whole[4], "-CLIENT-ERROR Invalid result size");
        assert_eq!(whole[11], "-CLIENT-ERROR Invalid command args");
        assert_eq!(whole[13], "Close(None) []");
        for step in [1, 2, 3, 7, 64, 4095, 4096, 4097, 100_000] {
            assert_eq!(decode(&stream, step, &INTAKE), whole, "in pieces of {step}");
        }
    }

    #[test]
    fn long_line_closes_the_connection() {
        let line = |length: usize| [vec![b'a'; length - 2], b"\r\n".to_vec()].concat();
        for step in [5000, MAX_LINE, 2 * MAX_LINE] {
            assert_eq!(decode(&line(MAX_LINE), step, &INTAKE), ["-CLIENT-ERROR Unknown command"]);
            let closed = decode(&line(MAX_LINE + 1), step, &INTAKE);
            assert!(closed.len() == 1 && closed[0].starts_with("Close(Some("), "{closed:?}");
        }
    }

    #[test]
    fn data_are_read_in_place() {
        let mut decoder = Decoder::default();
        let line = format!("complete {ID} 6\r\nab");
        let mut input = line.as_bytes();
        assert!(decoder.next(&mut input, &INTAKE).is_none());
        assert_eq!(decoder.uploading(), 6);
        let upload = decoder.upload().expect("four bytes are missing");
        upload.gap(1000).expect("free space").copy_from_slice(b"cdef");
        upload.filled(4);
        assert!(decoder.next(&mut b"\r".as_slice(), &INTAKE).is_none());
        let (_, request) = decoder.next(&mut b"\n".as_slice(), &INTAKE).expect("a complete request");
        assert_eq!(request.data.bytes(), b"abcdef");
        assert_eq!(decoder.uploading(), 0);
    }

    #[test]
    fn data_without_memory_are_skipped() {
        let stream = format!("add {ID} ping 1000 60000 6\r\nabcdef\r\ninspect server\r\n");
        let out = decode(stream.as_bytes(), 20, &DecodeLimits { room: 5, ..INTAKE });
        assert_eq!(out[0], "-SERVER-ERROR Out of memory");
        assert_eq!(out.len(), 2);
    }
}
