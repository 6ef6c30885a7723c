//! JSON: objects that are written, and those that requests bring.
//!
//! Owns the quoting; what is no text is in base64. Must not know what a key means.

use std::borrow::Cow;

use hifijson::token::Lex;
use hifijson::value::{parse_bounded, Value};
use hifijson::SliceLexer;

use crate::base64;
use crate::protocol::text::push_number;

/// Depth of lists and objects in each other that is read; no request needs more than one.
const DEPTH: usize = 4;

/// Appends a text in quotes. Bytes that are no UTF-8 are replaced.
pub fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for letter in String::from_utf8_lossy(text).chars() {
        match letter {
            '"' | '\\' => out.extend_from_slice(&[b'\\', letter as u8]),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            // Two that end a line in scripts, beside what has no glyph.
            '\u{2028}' | '\u{2029}' => out.extend_from_slice(format!("\\u{:04x}", letter as u32).as_bytes()),
            letter if letter.is_control() => out.extend_from_slice(format!("\\u{:04x}", letter as u32).as_bytes()),
            letter => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// Writes the members of one object, with its braces.
pub struct Members<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Members<'a> {
    /// Begins an object behind what is there.
    pub fn begin(out: &'a mut Vec<u8>) -> Members<'a> {
        out.push(b'{');
        Members { out, first: true }
    }

    fn key(&mut self, key: &str) {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    pub fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        push_number(self.out, number);
    }

    pub fn text(&mut self, key: &str, text: &[u8]) {
        self.key(key);
        push_text(self.out, text);
    }

    /// Something that is JSON already.
    pub fn raw(&mut self, key: &str, json: &[u8]) {
        self.key(key);
        self.out.extend_from_slice(json);
    }

    /// Bytes: as text under `key` if they are UTF-8, else under `key-base64`.
    pub fn bytes(&mut self, key: &str, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(_) => self.text(key, bytes),
            Err(_) => {
                self.key(&format!("{key}-base64"));
                self.out.push(b'"');
                base64::push(self.out, bytes);
                self.out.push(b'"');
            }
        }
    }

    pub fn end(self) {
        self.out.push(b'}');
    }
}

/// A key and its value, borrowed from the bytes that they were read from.
type Member<'a> = (Cow<'a, str>, Value<&'a str, Cow<'a, str>>);

/// An object that a request brought.
#[derive(Debug, Default)]
pub struct JsonObject<'a>(Vec<Member<'a>>);

impl<'a> JsonObject<'a> {
    /// Reads one; none if the bytes are not one object of JSON in UTF-8, or a key stands there twice.
    pub fn parse(bytes: &'a [u8]) -> Option<JsonObject<'a>> {
        std::str::from_utf8(bytes).ok()?;
        let mut lexer = SliceLexer::new(bytes);
        let value = lexer.exactly_one(Lex::ws_peek, |next, lexer| parse_bounded(DEPTH, next, lexer)).ok()?;
        let Value::Object(members) = value else { return None };
        let twice = (1..members.len()).any(|at| members[..at].iter().any(|(key, _)| *key == members[at].0));
        (!twice).then_some(JsonObject(members))
    }

    /// A key that is none of these.
    pub fn stray(&self, known: &[&str]) -> Option<&str> {
        self.0.iter().map(|(key, _)| &**key).find(|key| !known.contains(key))
    }

    /// A member that is a text; an error if it is something else.
    pub fn text(&self, key: &str) -> Result<Option<&str>, ()> {
        match self.0.iter().find(|(found, _)| found == key) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some(_) => Err(()),
        }
    }

    /// A member that is a whole number from 0 up; an error if it is something else.
    pub fn number(&self, key: &str) -> Result<Option<u64>, ()> {
        match self.0.iter().find(|(found, _)| found == key) {
            None => Ok(None),
            Some((_, Value::Number((number, _)))) => number.parse().map(Some).map_err(drop),
            Some(_) => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted() {
        let mut out = Vec::new();
        push_text(&mut out, b"a\"\\\n\x01\xff\xe2\x80\xa8<");
        assert_eq!(String::from_utf8_lossy(&out), "\"a\\\"\\\\\\n\\u0001\u{fffd}\\u2028<\"");
    }

    #[test]
    fn objects_are_read_or_refused() {
        let object = JsonObject::parse(br#" {"a":"\u0041\n","n":12,"f":1.5} "#).expect("an object");
        assert_eq!((object.text("a"), object.text("b"), object.text("n")), (Ok(Some("A\n")), Ok(None), Err(())));
        assert_eq!((object.number("n"), object.number("f"), object.number("a")), (Ok(Some(12)), Err(()), Err(())));
        assert_eq!(object.stray(&["a", "n"]), Some("f"));
        for wrong in ["", "[]", "{} {}", "{\"a\":1,\"a\":2}", "{a:1}", "{\"a\":[[[[[1]]]]]}", "{\"a\":", "\"x\""] {
            assert!(JsonObject::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert!(JsonObject::parse(b"{\"a\":\"\xff\"}").is_none());
        assert!(JsonObject::parse(&[b'['; 100_000]).is_none());
    }
}
