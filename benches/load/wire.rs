//! The client side of the beanstalk protocol, optimized for speed.
//!
//! Owns the encoding of requests and the parsing of replies. Shares no code with the server, so that an error in the
//! server's codec cannot go unnoticed. Must not check replies, because the loads check them.

/// A request to which the server replies in any state.
pub const QUESTION: &[u8] = b"list-tube-used\r\n";

/// The size of the reply to [`QUESTION`] in bytes.
pub const ANSWER: usize = b"USING default\r\n".len();

const MAX_LINE: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// The ID of a new job.
    Inserted(u64),
    /// The ID and the body of a reserved job.
    Reserved(u64, &'a [u8]),
    Deleted,
    Using,
    Watching,
    /// Any other reply, without its CR LF.
    Other(&'a [u8]),
}

/// The encoded requests of one connection, and the number of expected replies.
#[derive(Debug, Default)]
pub struct Out {
    pub bytes: Vec<u8>,
    pub replies: usize,
}

impl Out {
    /// Appends a request. `line` does not include the CR LF.
    pub fn line(&mut self, line: &str) {
        self.bytes.extend_from_slice(line.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
        self.replies += 1;
    }

    pub fn reserve(&mut self) {
        self.bytes.extend_from_slice(b"reserve\r\n");
        self.replies += 1;
    }

    pub fn delete(&mut self, id: u64) {
        self.bytes.extend_from_slice(b"delete ");
        self.bytes.extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
        self.replies += 1;
    }
}

/// Removes the next reply from `input`. Returns `None` if the reply is incomplete.
pub fn next<'a>(input: &mut &'a [u8]) -> Result<Option<Reply<'a>>, String> {
    let bytes = *input;
    let taken = match bytes.first() {
        None => return Ok(None),
        Some(b'I') => inserted(bytes),
        Some(b'R') if bytes.starts_with(b"RESERVED_") => line(bytes)?,
        Some(b'R') => reserved(bytes)?,
        Some(b'D') if bytes.starts_with(b"DELETED\r\n") => Some((Reply::Deleted, 9)),
        Some(_) => line(bytes)?,
    };
    match taken {
        Some((reply, length)) => {
            *input = &bytes[length..];
            Ok(Some(reply))
        }
        None => line(bytes).map(|_| None),
    }
}

/// Parses the number at offset `at`, and returns the offset after it, or `None` if the input ends within the number.
fn digits(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number: u64 = 0;
    for (place, byte) in bytes.get(at..)?.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Some((number, at + place));
        }
        number = number.wrapping_mul(10).wrapping_add(digit.into());
    }
    None
}

fn inserted(bytes: &[u8]) -> Option<(Reply<'_>, usize)> {
    let word = b"INSERTED ";
    if !bytes.starts_with(word) {
        return None;
    }
    let (id, end) = digits(bytes, word.len())?;
    // If the put created a schedule, a word follows the ID.
    let rest = bytes[end..].iter().position(|byte| *byte == b'\n')?;
    Some((Reply::Inserted(id), end + rest + 1))
}

fn reserved(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
    let word = b"RESERVED ";
    if !bytes.starts_with(word) {
        return Ok(None);
    }
    let Some((id, end)) = digits(bytes, word.len()) else { return Ok(None) };
    let Some((length, end)) = digits(bytes, end + 1) else { return Ok(None) };
    let Some([b'\r', b'\n']) = bytes.get(end..end + 2) else { return Ok(None) };
    let (from, to) = (end + 2, end + 2 + length as usize);
    match bytes.get(to..to + 2) {
        Some(b"\r\n") => Ok(Some((Reply::Reserved(id, &bytes[from..to]), to + 2))),
        Some(other) => Err(format!("the body of job {id} ends in {other:?}")),
        None => Ok(None),
    }
}

/// Parses a reply that consists of one line. Returns `None` if the line is incomplete. Also returns `None` for a
/// `RESERVED` reply, which is incomplete in this case and can be longer than a line, because it contains a body.
fn line(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
    let window = &bytes[..bytes.len().min(MAX_LINE)];
    if bytes.starts_with(b"RESERVED ") {
        return Ok(None);
    }
    let Some(length) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if window.len() < MAX_LINE { Ok(None) } else { Err("a line is too long".to_owned()) };
    };
    let reply = match &window[..length] {
        word if word.starts_with(b"USING ") => Reply::Using,
        word if word.starts_with(b"WATCHING ") => Reply::Watching,
        word => Reply::Other(word),
    };
    Ok(Some((reply, length + 2)))
}

pub fn unexpected(reply: Reply) -> String {
    match reply {
        Reply::Other(line) => format!("an unexpected reply: {}", String::from_utf8_lossy(line)),
        Reply::Reserved(id, body) => format!("an unexpected reply: RESERVED {id} {}", body.len()),
        other => format!("an unexpected reply: {other:?}"),
    }
}
