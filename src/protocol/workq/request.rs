//! The decoder from bytes to requests.
//!
//! Owns the framing: lines, data after some of them, and resynchronization after errors. Must not access the queue:
//! `session` looks up the jobs of a request.

use super::command::Command;
use super::commands::{read, CommandName, CommandRow, Line};
use super::fields::{self, MAX_DATA};
use super::reply::{self, Words};
use crate::engine::Body;
use crate::protocol::upload::{swallow, BodyEnd, Upload};
use crate::protocol::{CommandPlace, DecodeLimits};

/// Maximum length of a line with its CR LF: that of the original's whole command.
pub const MAX_LINE: usize = 1_058_576;

/// An unfinished line of up to this size remains in the caller's buffer, and the caller passes it again with more data.
/// A longer line, which only `lease` needs, is stored here, to avoid scanning it repeatedly.
const KEEP: usize = 4 * 1024;

/// A command as received from the client.
#[derive(Debug)]
pub struct Request {
    /// The command, if the line names one.
    pub name: Option<CommandName>,
    pub command: Command,
    /// The payload or result, or an empty body.
    pub data: Body,
}

impl Request {
    /// The memory in use besides the request itself, in bytes.
    pub fn footprint(&self) -> u64 {
        (size_of::<Request>() + self.command.footprint() + self.data.len()) as u64
    }

    /// The command under which the request is counted; `None` if it is invalid.
    pub fn place(&self) -> Option<CommandPlace> {
        self.name.filter(|_| !matches!(self.command, Command::Refused(_) | Command::Close(_))).map(CommandPlace::workq)
    }

    fn plain(name: Option<CommandName>, command: Command) -> Request {
        Request { name, command, data: Body::default() }
    }

    fn refused(name: Option<CommandName>, answer: Words) -> Request {
        Request::plain(name, Command::Refused(answer))
    }
}

/// The parser's state for one connection.
#[derive(Debug, Default)]
pub struct Decoder {
    state: Reading,
}

#[derive(Debug, Default)]
enum Reading {
    #[default]
    Line,
    /// The beginning of a long line.
    LongLine(Vec<u8>),
    /// Data that are arriving, and their command.
    Data(Box<Arriving>),
    /// Data to be dropped because their line was invalid or memory is exhausted.
    Skip(Box<Skip>),
    /// The connection is to be closed; further input is ignored.
    Over,
}

#[derive(Debug)]
struct Arriving {
    name: CommandName,
    command: Command,
    error: Words,
    data: Upload,
    end: BodyEnd,
}

#[derive(Debug)]
struct Skip {
    name: CommandName,
    left: u64,
    /// The reply if the data end with CR LF.
    answer: Words,
    /// The reply if the data do not end with CR LF.
    error: Words,
    end: BodyEnd,
}

impl Decoder {
    /// Takes the next complete request from the front of `input`. Returns `None` if it has not arrived completely: then
    /// the rest of `input`, if any, is the beginning of a line.
    pub fn next(&mut self, input: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        loop {
            match &mut self.state {
                Reading::Line => {
                    let Some(length) = input.iter().position(|byte| *byte == b'\n') else {
                        if input.len() > KEEP {
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
                    arriving.data.take(input, limits.room)?;
                    let whole = arriving.end.take(input)?;
                    let Reading::Data(arriving) = std::mem::take(&mut self.state) else { unreachable!() };
                    let Arriving { name, command, error, data, .. } = *arriving;
                    return Some(match data.finish() {
                        _ if !whole => Request::refused(Some(name), error),
                        Some(data) => Request { name: Some(name), command, data },
                        None => Request::refused(Some(name), reply::OUT_OF_MEMORY),
                    });
                }
                Reading::Skip(skip) => {
                    let (name, answer) = (skip.name, skip.take(input)?);
                    self.state = Reading::Line;
                    return Some(Request::refused(Some(name), answer));
                }
                Reading::Over => {
                    *input = &[];
                    return None;
                }
            }
        }
    }

    fn close(&mut self, answer: Option<Words>) -> Request {
        self.state = Reading::Over;
        Request::plain(None, Command::Close(answer))
    }

    /// Reads one line, which ends in LF. Returns `None` if data follow, whose handling the state describes.
    fn line(&mut self, line: &[u8], input: &mut &[u8], limits: &DecodeLimits) -> Option<Request> {
        if line.len() > MAX_LINE {
            return Some(self.close(Some(reply::LINE_TOO_LONG)));
        }
        // Like the original, closes the connection if a line ends with LF alone: such a client speaks another protocol,
        // and the limits of its data are unknown.
        let Some(line) = line.strip_suffix(b"\r\n") else { return Some(self.close(None)) };
        let (row, line) = match read(line) {
            Ok(found) => found,
            Err(answer) => return Some(Request::refused(None, answer)),
        };
        match row.data {
            None => Some(match command(row, &line) {
                Ok(command) => Request::plain(Some(row.name), command),
                Err(answer) => Request::refused(Some(row.name), answer),
            }),
            Some(error) => self.data(row, &line, error, input, limits),
        }
    }

    /// Prepares for the data after a line. An invalid field is known before the data arrive, but the error is sent
    /// after them.
    fn data(
        &mut self,
        row: &CommandRow,
        line: &Line,
        error: Words,
        input: &mut &[u8],
        limits: &DecodeLimits,
    ) -> Option<Request> {
        let Some(size) = line.arguments.last().and_then(|size| fields::size(size)) else {
            return Some(Request::refused(Some(row.name), error));
        };
        let name = row.name;
        let skip = |answer| Reading::Skip(Box::new(Skip { name, left: size, answer, error, end: BodyEnd::default() }));
        let command = match command(row, line) {
            _ if size > MAX_DATA => Err(error),
            command => command,
        };
        match command {
            Err(answer) => self.state = skip(answer),
            Ok(command) => {
                let size = size as usize;
                if let Some(([data @ .., b'\r', b'\n'], rest)) = input.split_at_checked(size + 2) {
                    *input = rest;
                    return Some(match Body::copy(data) {
                        Some(data) => Request { name: Some(name), command, data },
                        None => Request::refused(Some(name), reply::OUT_OF_MEMORY),
                    });
                }
                self.state = match Upload::begin(size, limits.room) {
                    Some(data) => {
                        Reading::Data(Box::new(Arriving { name, command, error, data, end: BodyEnd::default() }))
                    }
                    None => skip(reply::OUT_OF_MEMORY),
                };
            }
        }
        None
    }

    /// Returns the data that are arriving, if any.
    pub fn upload(&mut self) -> Option<&mut Upload> {
        match &mut self.state {
            Reading::Data(arriving) => Some(&mut arriving.data),
            _ => None,
        }
    }

    /// The memory in use for incomplete data or a long line, in bytes.
    pub fn uploading(&self) -> u64 {
        match &self.state {
            Reading::Data(arriving) => arriving.data.footprint(),
            Reading::LongLine(line) => line.capacity() as u64,
            _ => 0,
        }
    }
}

/// The fields of a line are checked after the number of its flags.
fn command(row: &CommandRow, line: &Line) -> Result<Command, Words> {
    if line.flags.len() > row.flags {
        return Err(reply::INVALID_ARGS);
    }
    (row.parse)(line)
}

impl Skip {
    fn take(&mut self, input: &mut &[u8]) -> Option<Words> {
        swallow(&mut self.left, input)?;
        Some(if self.end.take(input)? { self.answer } else { self.error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pieces::{self, in_pieces};

    const INTAKE: DecodeLimits = DecodeLimits { room: 1 << 30, ..pieces::LIMITS };

    fn decode(stream: &[u8], step: usize, limits: &DecodeLimits) -> Vec<String> {
        let mut decoder = Decoder::default();
        in_pieces(stream, step, |input| {
            let Some(request) = decoder.next(input, limits) else {
                assert!(input.len() <= KEEP);
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
    fn the_pieces_in_which_a_stream_arrives_do_not_matter() {
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
            "inspect server\r\ninspect server\nand nothing more counts\r\n".to_owned(),
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
    fn a_line_has_an_end() {
        let line = |length: usize| [vec![b'a'; length - 2], b"\r\n".to_vec()].concat();
        for step in [5000, MAX_LINE, 2 * MAX_LINE] {
            assert_eq!(decode(&line(MAX_LINE), step, &INTAKE), ["-CLIENT-ERROR Unknown command"]);
            let closed = decode(&line(MAX_LINE + 1), step, &INTAKE);
            assert!(closed.len() == 1 && closed[0].starts_with("Close(Some("), "{closed:?}");
        }
    }

    #[test]
    fn data_is_read_in_place() {
        let mut decoder = Decoder::default();
        let line = format!("complete {ID} 6\r\nab");
        let mut input = line.as_bytes();
        assert!(decoder.next(&mut input, &INTAKE).is_none());
        assert_eq!(decoder.uploading(), 6);
        let upload = decoder.upload().expect("four bytes are missing");
        upload.gap(1000).expect("room for them").copy_from_slice(b"cdef");
        upload.filled(4);
        assert!(decoder.next(&mut b"\r".as_slice(), &INTAKE).is_none());
        let request = decoder.next(&mut b"\n".as_slice(), &INTAKE).expect("all there");
        assert_eq!(request.data.bytes(), b"abcdef");
        assert_eq!(decoder.uploading(), 0);
    }

    #[test]
    fn data_without_room_is_swallowed() {
        let stream = format!("add {ID} ping 1000 60000 6\r\nabcdef\r\ninspect server\r\n");
        let out = decode(stream.as_bytes(), 20, &DecodeLimits { room: 5, ..INTAKE });
        assert_eq!(out[0], "-SERVER-ERROR Out of memory");
        assert_eq!(out.len(), 2);
    }
}
