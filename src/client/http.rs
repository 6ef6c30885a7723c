//! One HTTP/1.1 request over a connection, and its response. An incomplete or malformed response is an error.

use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

use httparse::{Header, Status, EMPTY_HEADER};

use super::Transport;

const MAX_HEAD: usize = 32 * 1024;

/// The maximum length of a line in a chunked body, in bytes.
const MAX_LINE: usize = 1024;

#[derive(Clone, Copy)]
pub enum Keep {
    /// Keeps the whole body. A body that exceeds this many bytes or ends only when the connection closes is an error.
    All(usize),
    /// Keeps at most this many bytes from the start of the body, and discards the rest.
    Start(usize),
}

pub struct Response {
    pub status: u16,
    /// The lowercase value of the header `Retry-After`.
    pub retry_after: Option<String>,
    pub body: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Frame {
    Length(u64),
    Chunked,
    Close,
}

/// The head of a response, the way in which the body ends, and `true` if the connection can be reused after the body.
type Head = (Response, Frame, bool);

pub struct Exchange {
    stream: Transport,
    end: Instant,
    bytes: Vec<u8>,
    /// `true` after the first byte of a response has arrived.
    pub has_begun: bool,
    is_reusable: bool,
}

impl Exchange {
    pub fn new(stream: Transport, end: Instant) -> Exchange {
        Exchange { stream, end, bytes: Vec::new(), has_begun: false, is_reusable: false }
    }

    pub fn into_stream(self) -> Option<Transport> {
        Some(self.stream).filter(|_| self.is_reusable)
    }

    /// Sends a request whose `head` ends with an empty line. After an error, the server may have executed the request.
    pub fn run(&mut self, head: &str, body: &[u8], keep: Keep) -> io::Result<Response> {
        self.try_run(head, body, keep).map_err(|error| match error.kind() {
            // A socket reports a timeout as WouldBlock.
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })
    }

    fn try_run(&mut self, head: &str, body: &[u8], keep: Keep) -> io::Result<Response> {
        // Send the head with the start of the body, so that a small request needs only one packet.
        let (start, rest) = body.split_at(body.len().min(MAX_HEAD));
        let is_sent = self.send(&[head.as_bytes(), start].concat())? && self.send(rest)?;
        let (mut response, frame, keeps_alive) = self.head()?;
        response.body = self.body(frame, keep)?;
        self.is_reusable = is_sent && keeps_alive && frame != Frame::Close && self.bytes.is_empty();
        Ok(response)
    }

    fn limit(&self, max: Duration) -> io::Result<()> {
        let left = self.end.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), ErrorKind::TimedOut);
        self.stream.set_timeout(Some(left.min(max)))
    }

    /// Returns `false` if the server responds or closes the connection before all bytes are sent.
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            // Interrupt a blocked write regularly, because the server may respond without reading the whole request.
            self.limit(Duration::from_millis(50))?;
            match self.stream.write(bytes) {
                Ok(0) => return Ok(false),
                Ok(count) => bytes = &bytes[count..],
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => return Ok(false),
                    _ => return Err(error),
                },
            }
            if !bytes.is_empty() && self.stream.has_input() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn receive(&mut self) -> io::Result<()> {
        self.limit(Duration::MAX)?;
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        self.has_begun |= !self.bytes.is_empty();
        Ok(())
    }

    fn head(&mut self) -> io::Result<Head> {
        loop {
            let mut headers = [EMPTY_HEADER; 100];
            let mut response = httparse::Response::new(&mut headers);
            match response.parse(&self.bytes) {
                Ok(Status::Complete(length)) if length <= MAX_HEAD => {
                    let head = read_head(&response)?;
                    self.bytes.drain(..length);
                    // Informational responses precede the final one. Status 101 is final, because HTTP ends with it.
                    if !matches!(head.0.status, 100 | 102..=199) {
                        return Ok(head);
                    }
                }
                Ok(Status::Partial) if self.bytes.len() < MAX_HEAD => self.receive()?,
                _ => return Err(malformed()),
            }
        }
    }

    fn body(&mut self, frame: Frame, keep: Keep) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        match (frame, keep) {
            (Frame::Length(length), Keep::All(max)) if length > max as u64 => return Err(malformed()),
            (Frame::Close, Keep::All(_)) => return Err(malformed()),
            (Frame::Length(length), _) => self.take(length, &mut body, keep)?,
            (Frame::Chunked, _) => self.chunks(&mut body, keep)?,
            (Frame::Close, _) => match self.take(u64::MAX, &mut body, keep) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
                ended => ended?,
            },
        }
        Ok(body)
    }

    /// Takes the next `length` bytes of the response, and receives more bytes if necessary. Appends to `body` the bytes
    /// that `keep` selects. Fails if the body exceeds the limit of [`Keep::All`].
    fn take(&mut self, mut length: u64, body: &mut Vec<u8>, keep: Keep) -> io::Result<()> {
        loop {
            let count = length.min(self.bytes.len() as u64);
            let bytes = self.bytes.drain(..count as usize);
            match keep {
                Keep::All(max) if body.len() + bytes.len() > max => return Err(malformed()),
                Keep::All(_) => body.extend(bytes),
                Keep::Start(max) => body.extend(bytes.take(max - body.len().min(max))),
            }
            length -= count;
            if length == 0 {
                return Ok(());
            }
            self.receive()?;
        }
    }

    fn chunks(&mut self, body: &mut Vec<u8>, keep: Keep) -> io::Result<()> {
        loop {
            let line = self.line()?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let length = u64::from_str_radix(digits, 16).ok().filter(|_| is_hex).ok_or_else(malformed)?;
            if length == 0 {
                while !self.line()?.is_empty() {}
                return Ok(());
            }
            self.take(length, body, keep)?;
            ensure!(self.line()?.is_empty(), malformed());
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.bytes.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).map_err(|_| malformed());
            }
            ensure!(self.bytes.len() <= MAX_LINE, malformed());
            self.receive()?;
        }
    }
}

fn read_head(parsed: &httparse::Response) -> io::Result<Head> {
    let status = parsed.code.unwrap_or_default();
    let mut response = Response { status, retry_after: None, body: Vec::new() };
    let (mut length, mut is_chunked) = (None, false);
    let mut keeps_alive = parsed.version == Some(1);
    for Header { name, value } in parsed.headers.iter() {
        let value = String::from_utf8_lossy(value).trim().to_ascii_lowercase();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let number = value.parse::<u64>().ok().filter(|_| is_number).ok_or_else(malformed)?;
                ensure!(length.replace(number).is_none_or(|other| other == number), malformed());
            }
            "transfer-encoding" if value == "chunked" && !is_chunked => is_chunked = true,
            "transfer-encoding" => return Err(malformed()),
            "connection" => {
                let has = |wanted| value.split(',').any(|word| word.trim() == wanted);
                keeps_alive = !has("close") && (keeps_alive || has("keep-alive"));
            }
            "retry-after" => response.retry_after = Some(value),
            _ => {}
        }
    }
    // A chunked response with a `Content-Length` could hide another response, so the connection must not be reused.
    keeps_alive &= !is_chunked || length.is_none();
    let frame = match length {
        _ if matches!(status, 101 | 204 | 304) => Frame::Length(0),
        _ if is_chunked => Frame::Chunked,
        Some(length) => Frame::Length(length),
        None => Frame::Close,
    };
    Ok((response, frame, keeps_alive))
}

fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "malformed HTTP response")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Receives a response whose `pieces` arrive one by one before the connection is closed. Returns the status, the
    /// body, and `true` if the connection can be reused.
    fn receive(pieces: &[&[u8]]) -> Result<(u16, Vec<u8>, bool), ErrorKind> {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let stream = Transport::Plain(OwnedFd::from(ours).into());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for piece in pieces {
                    theirs.write_all(piece).expect("a socket");
                    std::thread::yield_now();
                }
                let _ = theirs.shutdown(std::net::Shutdown::Write);
                // Read the request, so that sending it does not fail.
                let _ = std::io::copy(&mut theirs, &mut std::io::sink());
            });
            let mut exchange = Exchange::new(stream, Instant::now() + Duration::from_secs(20));
            let done = exchange.run("POST / HTTP/1.1\r\n\r\n", b"", Keep::Start(20));
            let done = done.map(|response| (response.status, response.body)).map_err(|error| error.kind());
            let is_reusable = exchange.into_stream().is_some();
            done.map(|(status, body)| (status, body, is_reusable))
        })
    }

    #[test]
    fn a_response_may_arrive_in_any_pieces() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", Ok((200, &b"body"[..], true))),
            (
                "HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\n2;a\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
                Ok((500, b"body", true)),
            ),
            (
                "HTTP/1.1 100 x\r\n\r\nHTTP/1.0 200 OK\r\n\r\nbody until the end",
                Ok((200, b"body until the end", false)),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n0123456789012345678901234567ab",
                Ok((200, b"01234567890123456789", true)),
            ),
            ("HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\n", Ok((200, b"", false))),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbod", Err(ErrorKind::UnexpectedEof)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n0\r\n", Err(ErrorKind::UnexpectedEof)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", Err(ErrorKind::InvalidData)),
        ] {
            let expected = expected.map(|(status, body, is_reusable)| (status, body.to_vec(), is_reusable));
            for cut in 0..text.len() {
                let (start, rest) = text.as_bytes().split_at(cut);
                assert_eq!(receive(&[start, rest]), expected, "{text:?} at {cut}");
            }
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(receive(&bytes), expected, "{text:?} byte by byte");
        }
    }

    /// Randomly damaged responses cause neither a panic nor a timeout.
    #[test]
    fn a_damaged_response_is_a_result_or_an_error() {
        let texts = [
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nRetry-After: 5\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX: y\r\n\r\n",
        ];
        let mut seed = 7_u64;
        let mut random = move |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for round in 0..3000 {
            let mut bytes = texts[round % 2].as_bytes().to_vec();
            for _ in 0..=random(3) {
                let index = random(bytes.len());
                match random(3) {
                    0 => drop(bytes.remove(index)),
                    1 => bytes[index] = b"\r\n :;0f9-\0\xff"[random(11)],
                    _ => bytes.insert(index, b"\r\n :;0f9-\0\xff"[random(11)]),
                }
            }
            let error = receive(&[&bytes]).err();
            let is_timeout = matches!(error, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut));
            assert!(!is_timeout, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
}
