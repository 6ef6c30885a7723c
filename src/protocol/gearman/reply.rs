//! Encoding of replies: packets, the codes and texts of errors, names in lines of text, and job handles.

use super::kind::Kind;
use crate::engine::{BodyRef, JobId};
use crate::protocol::text::{hex_pair, past, push_number, upto, whole_number};
use crate::protocol::Output;

/// Returns the length of the first packet, or of all `bytes` if they are text.
#[cfg(feature = "tls")]
pub fn packet_length(bytes: &[u8]) -> usize {
    match bytes.first_chunk::<12>() {
        Some([b'\0', b'R', b'E', b'S', _, _, _, _, length @ ..]) => 12 + u32::from_be_bytes(*length) as usize,
        _ => bytes.len(),
    }
}

/// The code is libgearman's error name without the prefix `GEARMAN_`, if libgearman has a name for the error.
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

// Errors with the codes and texts of gearmand.
pub const RESPONSE_MAGIC: Fault = fault("INVALID_MAGIC", "Request magic expected");
pub const NOT_A_REQUEST: Fault = fault("INVALID_COMMAND", "Command not expected");
pub const LARGE_UNIQUE: Fault = fault("ARGUMENT_TOO_LARGE", "Unique value too large");
pub const UNKNOWN_OPTION: Fault = fault("UNKNOWN_OPTION", "Server does not recognize given option");
pub const QUEUE_FULL: Fault = fault("QUEUE_ERROR", "Job queue is full");
pub const NO_RESULT_JOB: Fault = fault("JOB_NOT_FOUND", "Job given in work result not found");
pub const NO_DATA_JOB: Fault = fault("JOB_NOT_FOUND", "Job does not exist on server");
pub const NO_EXCEPTION_JOB: Fault = fault("JOB_NOT_FOUND", "An exception was received for a job that does not exist");

// Errors in cases in which gearmand closes the connection without a reply, hangs, or continues silently.
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
    // The cast cannot truncate: data are at most 1 GiB, and the other parts are short.
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

/// `figures`: 1 if the job is known, 1 if it runs, numerator, denominator, waiting clients (only STATUS_RES_UNIQUE).
pub fn status(out: &mut Output, kind: Kind, name: &[u8], figures: [u64; 5]) {
    let mut text = Vec::with_capacity(32);
    for number in upto(&figures, if kind == Kind::StatusResUnique { 5 } else { 4 }) {
        text.push(0);
        push_number(&mut text, *number);
    }
    packet(out, kind, &[name, &text], None);
}

/// The maximum length of the name of a function or reducer in bytes: libgearman's `GEARMAN_FUNCTION_MAX_SIZE`.
pub const MAX_FUNCTION: usize = 512;
/// The maximum length of a unique ID in bytes: `GEARMAN_MAX_UNIQUE_SIZE`. gearmand itself allows one byte less.
pub const MAX_UNIQUE: usize = 64;
/// The maximum length of a client ID in bytes: gearmand's `GEARMAND_SERVER_CON_ID_SIZE` without the NUL byte.
pub const MAX_CLIENT_ID: usize = 127;
/// The maximum length of a host name in bytes. It limits a handle (`H:`, host name, colon, 20 digits) to 63 bytes.
const MAX_HOST: usize = 40;
pub const MAX_PREFIX: usize = MAX_HOST + 2;
/// The maximum length of a line in bytes, including the line ending: the size of gearmand's receive buffer.
pub const MAX_LINE: usize = 8192;

fn is_special(byte: u8) -> bool {
    byte < b' ' || byte == 0x7f || byte == b'%'
}

/// Appends a name. Each control character or `%` is written as `%` followed by two hexadecimal digits.
pub fn push_name(text: &mut Vec<u8>, name: &[u8]) {
    push_escaped(text, name, is_special);
}

/// Appends a name on its own line. The name `.` is escaped, because a line with a single period ends a list.
pub fn push_line(text: &mut Vec<u8>, name: &[u8]) {
    push_escaped(text, name, |byte| is_special(byte) || name == b".");
}

/// Appends a name as one word. Escapes the name `:`, because a colon precedes functions in lists of workers.
pub fn push_word(text: &mut Vec<u8>, name: &[u8]) {
    push_escaped(text, name, |byte| is_special(byte) || byte == b' ' || name == b":");
}

fn push_escaped(text: &mut Vec<u8>, name: &[u8], must_escape: impl Fn(u8) -> bool) {
    for &byte in name {
        if must_escape(byte) {
            text.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            text.push(byte);
        }
    }
}

/// Decodes a name in a text command. Keeps invalid escapes unchanged.
pub fn from_word(word: &[u8]) -> Box<[u8]> {
    let mut name = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some(&byte) = rest.first() {
        let escaped = rest.strip_prefix(b"%").and_then(hex_pair);
        name.push(escaped.unwrap_or(byte));
        rest = past(rest, if escaped.is_some() { 3 } else { 1 });
    }
    name.into_boxed_slice()
}

pub fn handle_prefix(given: Option<&str>, host: &str) -> Box<[u8]> {
    match given {
        Some(prefix) => upto(prefix.as_bytes(), MAX_PREFIX).into(),
        None => [b"H:", upto(host.as_bytes(), MAX_HOST)].concat().into(),
    }
}

pub fn push_handle(text: &mut Vec<u8>, prefix: &[u8], id: JobId) {
    text.extend_from_slice(prefix);
    text.push(b':');
    push_number(text, id.0);
}

/// Returns `None` if this server cannot have created the handle.
pub fn job_of(handle: &[u8], prefix: &[u8]) -> Option<JobId> {
    let number = handle.strip_prefix(prefix)?.strip_prefix(b":")?;
    whole_number(number).filter(|_| !number.starts_with(b"0")).map(JobId)
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

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut text = Vec::new();
        write(&mut text);
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn ordinary_names_are_unchanged() {
        for name in ["reverse", "Image::resize", "a.b-c_d/e", "größe", "two words"] {
            assert_eq!(written(|text| push_name(text, name.as_bytes())), name);
        }
        assert_eq!(written(|text| push_line(text, b"..")), "..");
        assert_eq!(written(|text| push_word(text, b"a:b")), "a:b");
    }

    #[test]
    fn names_cannot_forge_lines_or_columns() {
        assert_eq!(written(|text| push_name(text, b"a\n.\r\t\0\x7f%41")), "a%0A.%0D%09%00%7F%2541");
        assert_eq!(written(|text| push_line(text, b".")), "%2E");
        assert_eq!(written(|text| push_word(text, b"a b")), "a%20b");
        assert_eq!(written(|text| push_word(text, b":")), "%3A");
    }

    #[test]
    fn escaped_names_are_parsed() {
        let name: Vec<u8> = (0..=255).collect();
        let mut text = Vec::new();
        push_word(&mut text, &name);
        assert_eq!(*from_word(&text), *name);
        assert_eq!(*from_word(b"100%"), *b"100%");
        assert_eq!(*from_word(b"%zz%4"), *b"%zz%4");
    }

    #[test]
    fn only_handles_of_this_server_are_parsed() {
        assert_eq!(written(|text| push_handle(text, b"H:box", JobId(7))), "H:box:7");
        assert_eq!(job_of(b"H:box:7", b"H:box"), Some(JobId(7)));
        assert_eq!(job_of(b"H:box:18446744073709551615", b"H:box"), Some(JobId(u64::MAX)));
        for wrong in [
            "",
            "H:box:",
            "H:box:07",
            "H:box:+7",
            "H:box:7 ",
            "H:box:7x",
            "h:box:7",
            "H:fox:7",
            "H:box7",
            "7",
            "H:bo:7",
            "H:boxx:7",
            "H:box:18446744073709551616",
        ] {
            assert_eq!(job_of(wrong.as_bytes(), b"H:box"), None, "{wrong}");
        }
    }

    #[test]
    fn handle_has_at_most_63_bytes() {
        let long = "ü".repeat(40);
        for prefix in [handle_prefix(None, &long), handle_prefix(Some(&long), "h")] {
            let mut handle = Vec::new();
            push_handle(&mut handle, &prefix, JobId(u64::MAX));
            assert_eq!(handle.len(), 63);
            assert_eq!(job_of(&handle, &prefix), Some(JobId(u64::MAX)));
        }
    }
}
