//! The client side of the Gearman protocol, optimized for speed.
//!
//! Owns the encoding of requests and the parsing of replies. Shares no code with the server, so that an error in the
//! server's codec cannot go unnoticed. Must not check replies, because the loads check them.

/// An ECHO_REQ without data, to which the server replies in any state.
pub const QUESTION: &[u8] = b"\0REQ\0\0\0\x10\0\0\0\0";

/// The size of the reply to [`QUESTION`] in bytes.
pub const ANSWER: usize = HEAD;

const HEAD: usize = 12;

const CAN_DO: u32 = 1;
const PRE_SLEEP: u32 = 4;
const NOOP: u32 = 6;
const SUBMIT_JOB: u32 = 7;
const JOB_CREATED: u32 = 8;
const GRAB_JOB: u32 = 9;
const NO_JOB: u32 = 10;
const JOB_ASSIGN: u32 = 11;
const WORK_COMPLETE: u32 = 13;
const SUBMIT_JOB_BG: u32 = 18;

const FUNCTION: &[u8] = b"work";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// The handle of a submitted job.
    Created(&'a [u8]),
    /// The handle and the data of an assigned job.
    Assigned(&'a [u8], &'a [u8]),
    /// The reply to GRAB_JOB if there is no job.
    NoJob,
    /// The packet that wakes a sleeping worker.
    Noop,
    /// The handle and the result of a completed job.
    Complete(&'a [u8], &'a [u8]),
    /// The type and the body of any other packet.
    Other((u32, &'a [u8])),
}

/// The encoded requests of one connection, and the number of expected replies.
#[derive(Debug, Default)]
pub struct Out {
    pub bytes: Vec<u8>,
    pub replies: usize,
}

impl Out {
    fn packet(&mut self, kind: u32, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes.extend_from_slice(b"\0REQ");
        self.bytes.extend_from_slice(&kind.to_be_bytes());
        self.bytes.extend_from_slice(&(length as u32).to_be_bytes());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }

    /// Appends CAN_DO, to which the server does not reply.
    pub fn can_do(&mut self) {
        self.packet(CAN_DO, &[FUNCTION]);
    }

    /// Appends SUBMIT_JOB. The server replies when it creates the job, and again when the job is complete.
    pub fn submit(&mut self, data: &[u8]) {
        self.packet(SUBMIT_JOB, &[FUNCTION, b"\0\0", data]);
        self.replies += 2;
    }

    pub fn submit_background(&mut self, unique: &[u8], data: &[u8]) {
        self.packet(SUBMIT_JOB_BG, &[FUNCTION, b"\0", unique, b"\0", data]);
        self.replies += 1;
    }

    pub fn grab(&mut self) {
        self.packet(GRAB_JOB, &[]);
        self.replies += 1;
    }

    /// Appends WORK_COMPLETE, to which the server does not reply.
    pub fn complete(&mut self, handle: &[u8], result: &[u8]) {
        self.packet(WORK_COMPLETE, &[handle, b"\0", result]);
    }

    /// Appends PRE_SLEEP. The server replies when a job is available.
    pub fn sleep(&mut self) {
        self.packet(PRE_SLEEP, &[]);
        self.replies += 1;
    }
}

/// Removes the next reply from `input`. Returns `None` if the reply is incomplete.
pub fn next<'a>(input: &mut &'a [u8]) -> Result<Option<Reply<'a>>, String> {
    let bytes = *input;
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if head[..4] != *b"\0RES" {
        return Err(format!("a packet begins with {:?}", &head[..4]));
    }
    let Some((body, rest)) = rest.split_at_checked(word(8) as usize) else { return Ok(None) };
    *input = rest;
    let cut = |body: &'a [u8]| {
        let end = body.iter().position(|byte| *byte == 0)?;
        Some((&body[..end], &body[end + 1..]))
    };
    let reply = match word(4) {
        JOB_CREATED => Some(Reply::Created(body)),
        NO_JOB if body.is_empty() => Some(Reply::NoJob),
        NOOP if body.is_empty() => Some(Reply::Noop),
        WORK_COMPLETE => cut(body).map(|(handle, result)| Reply::Complete(handle, result)),
        JOB_ASSIGN => cut(body).and_then(|(handle, rest)| {
            let (function, data) = cut(rest)?;
            (function == FUNCTION).then_some(Reply::Assigned(handle, data))
        }),
        _ => None,
    };
    Ok(Some(reply.unwrap_or(Reply::Other((word(4), body)))))
}

pub fn unexpected(reply: Reply) -> String {
    match reply {
        Reply::Other((kind, body)) => format!("the server sent a packet of type {kind}: {}", body.escape_ascii()),
        other => format!("an unexpected reply: {other:?}"),
    }
}
