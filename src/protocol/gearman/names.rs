//! Function names, unique IDs and job handles in Gearman texts: their lengths, escapes and formats.

use crate::engine::JobId;
use crate::protocol::text::{hex_pair, past, push_number, upto, whole_number};

/// In bytes. libgearman's `GEARMAN_FUNCTION_MAX_SIZE`, also for reducers.
pub const MAX_FUNCTION: usize = 512;

/// In bytes. gearmand's `GEARMAN_MAX_UNIQUE_SIZE`, of which gearmand uses one byte less.
pub const MAX_UNIQUE: usize = 64;

/// In bytes. gearmand's `GEARMAND_SERVER_CON_ID_SIZE` without the NUL byte.
pub const MAX_CLIENT_ID: usize = 127;

/// In bytes. With `H:`, a colon and 20 digits, a handle has at most 63 bytes, the limit in the protocol document.
const MAX_HOST: usize = 40;

/// In bytes, for a job handle.
pub const MAX_PREFIX: usize = MAX_HOST + 2;

/// In bytes, including the line end. The size of gearmand's receive buffer.
pub const MAX_LINE: usize = 8192;

fn is_special(byte: u8) -> bool {
    byte < b' ' || byte == 0x7f || byte == b'%'
}

/// Control characters and `%` become `%` and two hexadecimal digits.
pub fn push_name(text: &mut Vec<u8>, name: &[u8]) {
    push_escaped(text, name, is_special);
}

/// Appends a name on its own line. The name `.` is escaped, because a line with a single period ends a list.
pub fn push_line(text: &mut Vec<u8>, name: &[u8]) {
    push_escaped(text, name, |byte| is_special(byte) || name == b".");
}

/// Appends a name before a space. In the list of workers, a colon separates IDs from functions.
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

/// Decodes a name in a text command. Keeps invalid escapes.
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
