//! Encoding of the packets that the server sends, and the codes and texts of errors.

use super::kind::Kind;
use super::names::push_handle;
use crate::engine::{BodyRef, JobId};
use crate::protocol::text::{push_number, upto};
use crate::protocol::Output;

/// Returns the length of the first packet, or of all `bytes` if they are text.
#[cfg(feature = "tls")]
pub fn packet_length(bytes: &[u8]) -> usize {
    match bytes.first_chunk::<12>() {
        Some([b'\0', b'R', b'E', b'S', _, _, _, _, length @ ..]) => 12 + u32::from_be_bytes(*length) as usize,
        _ => bytes.len(),
    }
}

/// The code is libgearman's error name without the prefix `GEARMAN_`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    pub code: &'static str,
    pub text: &'static str,
    /// `true` if the rest of the stream cannot be parsed or must not be executed.
    pub closes: bool,
}

const fn fault(code: &'static str, text: &'static str) -> Fault {
    Fault { code, text, closes: false }
}

const fn fatal(code: &'static str, text: &'static str) -> Fault {
    Fault { code, text, closes: true }
}

// Codes and texts as in gearmand.
pub const RESPONSE_MAGIC: Fault = fault("INVALID_MAGIC", "Request magic expected");
pub const NOT_A_REQUEST: Fault = fault("INVALID_COMMAND", "Command not expected");
pub const LARGE_UNIQUE: Fault = fault("ARGUMENT_TOO_LARGE", "Unique value too large");
pub const UNKNOWN_OPTION: Fault = fault("UNKNOWN_OPTION", "Server does not recognize given option");
pub const QUEUE_FULL: Fault = fault("QUEUE_ERROR", "Job queue is full");
pub const NO_RESULT_JOB: Fault = fault("JOB_NOT_FOUND", "Job given in work result not found");
pub const NO_DATA_JOB: Fault = fault("JOB_NOT_FOUND", "Job does not exist on server");
pub const NO_EXCEPTION_JOB: Fault = fault("JOB_NOT_FOUND", "An exception was received for a job that does not exist");

// For input on which gearmand closes the connection without a reply, hangs, or continues silently.
pub const UNKNOWN_KIND: Fault = fatal("INVALID_COMMAND", "Unknown packet type");
pub const FEW_ARGUMENTS: Fault = fatal("INVALID_PACKET", "Not enough arguments");
pub const LARGE_PACKET: Fault = fatal("ARGUMENT_TOO_LARGE", "Packet is larger than the server takes");
pub const LARGE_ARGUMENTS: Fault = fatal("ARGUMENT_TOO_LARGE", "Arguments are too large");
pub const NO_MEMORY: Fault = fatal("MEMORY_ALLOCATION_FAILURE", "Server is out of memory");
pub const LARGE_FUNCTION: Fault = fault("ARGUMENT_TOO_LARGE", "Function name too large");
pub const LARGE_REDUCER: Fault = fault("ARGUMENT_TOO_LARGE", "Reducer name too large");
pub const WRONG_FUNCTION: Fault = fault("INVALID_FUNCTION_NAME", "Function name is empty or holds a NUL");
pub const WRONG_SCHEDULE: Fault = fault("INVALID_ARGUMENT", "Schedule never comes");
pub const QUEUE_MEMORY: Fault = fault("QUEUE_ERROR", "Server is out of memory");
pub const DRAINING: Fault = fault("QUEUE_ERROR", "Server is draining");
// Errors that gearmand does not have.
pub const UNAUTHORIZED: Fault = fatal("UNAUTHORIZED", "Client is not known");
pub const FORBIDDEN: Fault = fault("FORBIDDEN", "Client may not do this");
pub const MANY_FUNCTIONS: Fault = fault("QUEUE_ERROR", "Too many functions");

pub fn packet(out: &mut Output, kind: Kind, parts: &[&[u8]], data: Option<BodyRef>) {
    let length = parts.iter().map(|part| part.len()).sum::<usize>() + data.map_or(0, BodyRef::len);
    let text = out.text();
    text.extend_from_slice(b"\0RES");
    text.extend_from_slice(&(kind as u32).to_be_bytes());
    // Cannot truncate: data are at most 1 GiB, and the other parts are short.
    text.extend_from_slice(&(length as u32).to_be_bytes());
    for part in parts {
        text.extend_from_slice(part);
    }
    if let Some(data) = data {
        out.body(data);
    }
}

pub fn error(out: &mut Output, fault: &Fault) {
    packet(out, Kind::Error, &[fault.code.as_bytes(), b"\0", fault.text.as_bytes()], None);
}

pub fn handle(prefix: &[u8], id: JobId) -> Vec<u8> {
    let mut handle = Vec::with_capacity(63);
    push_handle(&mut handle, prefix, id);
    handle
}

/// `figures` are known, running, numerator, denominator and waiting clients. Only STATUS_RES_UNIQUE contains the last.
pub fn status(out: &mut Output, kind: Kind, name: &[u8], figures: [u64; 5]) {
    let mut text = Vec::with_capacity(32);
    for number in upto(&figures, if kind == Kind::StatusResUnique { 5 } else { 4 }) {
        text.push(0);
        push_number(&mut text, *number);
    }
    packet(out, kind, &[name, &text], None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Body;

    fn sent(write: impl FnOnce(&mut Output)) -> Vec<u8> {
        let mut out = Output::new();
        write(&mut out);
        out.chunks().flatten().copied().collect()
    }

    #[test]
    fn packet_length_includes_all_parts() {
        let large = Body::from(vec![b'x'; 70_000]);
        let bytes = sent(|out| packet(out, Kind::WorkData, &[b"H:h:1", b"\0"], Some(large.borrow())));
        assert_eq!(bytes[..12], *b"\0RES\0\0\0\x1c\0\x01\x11\x76");
        assert_eq!(bytes.len(), 12 + 6 + 70_000);
    }

    #[test]
    fn error_does_not_end_with_nul() {
        let bytes = sent(|out| error(out, &QUEUE_FULL));
        assert_eq!(bytes, b"\0RES\0\0\0\x13\0\0\0\x1dQUEUE_ERROR\0Job queue is full");
    }

    #[test]
    fn only_unique_status_has_the_number_of_clients() {
        let bytes = sent(|out| status(out, Kind::StatusRes, b"H:h:1", [1, 1, 3, 10, 2]));
        assert_eq!(bytes[12..], *b"H:h:1\x001\x001\x003\x0010");
        let bytes = sent(|out| status(out, Kind::StatusResUnique, b"u", [1, 1, 3, 10, 2]));
        assert_eq!(bytes[12..], *b"u\x001\x001\x003\x0010\x002");
    }
}
