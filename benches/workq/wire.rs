//! The client side of the Workq protocol, optimized for speed.
//!
//! Owns the encoding of requests and the parsing of replies. Shares no code with the server, so that an error in the
//! server's codec cannot go unnoticed. Must not check replies, because the loads check them.

/// A request to which the server replies in any state.
pub const QUESTION: &[u8] = b"?\r\n";

/// The size of the reply to [`QUESTION`] in bytes.
pub const ANSWER: usize = b"-CLIENT-ERROR Unknown command\r\n".len();

/// A line without CR LF, and the remaining input.
type Cut<'a> = (&'a [u8], &'a [u8]);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    Ok,
    /// The ID and the data of a leased job.
    Leased(&'a [u8], &'a [u8]),
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
    fn line(&mut self, line: &str, data: Option<&[u8]>) {
        self.bytes.extend_from_slice(line.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
        for part in data.into_iter().chain(data.map(|_| b"\r\n".as_slice())) {
            self.bytes.extend_from_slice(part);
        }
        self.replies += 1;
    }

    pub fn add(&mut self, id: &str, data: &[u8]) {
        self.line(&format!("add {id} work 600000 3600000 {}", data.len()), Some(data));
    }

    pub fn lease(&mut self) {
        self.line("lease work 20000", None);
    }

    pub fn complete(&mut self, id: &str, result: &[u8]) {
        self.line(&format!("complete {id} {}", result.len()), Some(result));
    }

    pub fn delete(&mut self, id: &str) {
        self.line(&format!("delete {id}"), None);
    }
}

fn line(bytes: &[u8]) -> Option<Cut<'_>> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], &bytes[end + 2..]))
}

/// Removes the next reply from `input`. Returns `None` if the reply is incomplete.
pub fn next<'a>(input: &mut &'a [u8]) -> Result<Option<Reply<'a>>, String> {
    let Some((head, rest)) = line(input) else { return Ok(None) };
    let (reply, rest) = match head {
        b"+OK" => (Reply::Ok, rest),
        b"+OK 1" => match leased(rest)? {
            Some(leased) => leased,
            None => return Ok(None),
        },
        other => (Reply::Other(other), rest),
    };
    *input = rest;
    Ok(Some(reply))
}

fn leased(bytes: &[u8]) -> Result<Option<(Reply<'_>, &[u8])>, String> {
    let Some((head, rest)) = line(bytes) else { return Ok(None) };
    let mut words = head.split(|byte| *byte == b' ');
    let (id, length) = (words.next().unwrap_or_default(), words.nth(2).unwrap_or_default());
    let length = std::str::from_utf8(length).ok().and_then(|text| text.parse::<usize>().ok());
    let length = length.ok_or_else(|| format!("an invalid lease: {}", head.escape_ascii()))?;
    let Some((data, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    match rest.split_first_chunk::<2>() {
        None => Ok(None),
        Some((b"\r\n", rest)) => Ok(Some((Reply::Leased(id, data), rest))),
        Some((other, _)) => Err(format!("data ends in {other:?}")),
    }
}

pub fn unexpected(reply: Reply) -> String {
    match reply {
        Reply::Other(line) => format!("an unexpected reply: {}", line.escape_ascii()),
        other => format!("an unexpected reply: {other:?}"),
    }
}
