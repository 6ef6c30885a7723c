//! Tube names in subcommands: raw bytes, or quoted if they contain special characters.

use crate::protocol::text::{is_any_name, push_tube_name, unquote};

pub fn written(name: &[u8]) -> String {
    let mut text = Vec::with_capacity(name.len());
    push_tube_name(&mut text, name);
    String::from_utf8_lossy(&text).into_owned()
}

pub fn bytes(written: &str) -> Vec<u8> {
    quoted(written.as_bytes()).unwrap_or_else(|| written.into())
}

/// Returns `None` if the text is not a single quoted name.
pub fn quoted(text: &[u8]) -> Option<Vec<u8>> {
    unquote(text).filter(|(_, rest)| rest.is_empty()).map(|(name, _)| name)
}

/// Malformed quotes become part of the name.
pub fn read(text: &[u8]) -> String {
    written(&quoted(text).unwrap_or_else(|| text.to_vec()))
}

/// Returns `true` for a quoted name, for which a server needs the extension `quote`.
pub fn is_foreign(written: &str) -> bool {
    written.starts_with('"')
}

pub fn is_legal(written: &str) -> bool {
    is_any_name(&bytes(written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_name_reads_back() {
        for (name, expected) in [
            (&b"mail"[..], "mail"),
            (b"My::Func", "\"My::Func\""),
            (b"-x", "\"-x\""),
            (b"\"a\"", "\"\\\"a\\\"\""),
            (b"\x1b[2J\xff", "\"\\x1b[2J\\xff\""),
        ] {
            assert_eq!(written(name), expected);
            assert_eq!((read(expected.as_bytes()), bytes(expected)), (expected.to_owned(), name.to_vec()));
        }
        assert_eq!((read(b"My::Func"), read(b"\"a")), (written(b"My::Func"), written(b"\"a")));
        assert_eq!(read(b"\"mail\""), "mail");
        assert!(!is_legal("\"\"") && !is_legal("\"a\\x00\"") && is_legal("\"\\xff\""));
    }
}
