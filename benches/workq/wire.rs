//! The Workq protocol from a client's side, optimized for speed.
//!
//! Owns the form of requests and the recognition of replies. Independent of the server's own codec, so that a mistake
//! there is not hidden here. Must not know which reply is correct; the load does.

/// A request that is always allowed.
pub const QUESTION: &[u8] = b"?\r\n";

/// The length of the reply to it.
pub const ANSWER: usize = b"-CLIENT-ERROR Unknown command\r\n".len();

/// A line and the bytes after it.
type Cut<'a> = (&'a [u8], &'a [u8]);

/// A complete reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// The command succeeded.
    Ok,
    /// A job was leased: its ID and data.
    Leased(&'a [u8], &'a [u8]),
    /// Any other reply, without its CR LF.
    Other(&'a [u8]),
}

/// Requests that will be sent to one connection, and the number of expected replies.
#[derive(Debug, Default)]
pub struct Out {
    /// The requests.
    pub bytes: Vec<u8>,
    /// The replies.
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

    /// Adds a job.
    pub fn add(&mut self, id: &str, data: &[u8]) {
        self.line(&format!("add {id} work 600000 3600000 {}", data.len()), Some(data));
    }

    /// Requests a job.
    pub fn lease(&mut self) {
        self.line("lease work 20000", None);
    }

    /// Reports that a job is done.
    pub fn complete(&mut self, id: &str, result: &[u8]) {
        self.line(&format!("complete {id} {}", result.len()), Some(result));
    }

    /// Deletes a job.
    pub fn delete(&mut self, id: &str) {
        self.line(&format!("delete {id}"), None);
    }
}

fn line(bytes: &[u8]) -> Option<Cut<'_>> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], &bytes[end + 2..]))
}

/// Takes the next complete reply from the front of `input`, or returns `None` if it is incomplete.
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

/// Parses the rest of a reply with a leased job.
fn leased(bytes: &[u8]) -> Result<Option<(Reply<'_>, &[u8])>, String> {
    let Some((head, rest)) = line(bytes) else { return Ok(None) };
    let mut words = head.split(|byte| *byte == b' ');
    let (id, length) = (words.next().unwrap_or_default(), words.nth(2).unwrap_or_default());
    let length = std::str::from_utf8(length).ok().and_then(|text| text.parse::<usize>().ok());
    let length = length.ok_or_else(|| format!("a lease is {}", head.escape_ascii()))?;
    let Some((data, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    match rest.split_first_chunk::<2>() {
        None => Ok(None),
        Some((b"\r\n", rest)) => Ok(Some((Reply::Leased(id, data), rest))),
        Some((other, _)) => Err(format!("data ends in {other:?}")),
    }
}

/// Returns the message about an unexpected reply.
pub fn unexpected(reply: Reply) -> String {
    match reply {
        Reply::Other(line) => format!("the server answered {}", line.escape_ascii()),
        other => format!("an unexpected {other:?}"),
    }
}
