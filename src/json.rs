//! JSON: objects that are written, and those that are read.
//!
//! Owns the quoting; what is no text is in base64. Must not know what a key means.

use std::borrow::Cow;

use hifijson::token::Lex;
use hifijson::value::{parse_bounded, Value};
use hifijson::SliceLexer;

use crate::base64;

/// Depth of lists and objects in each other that is read.
const DEPTH: usize = 16;

/// Appends a text in quotes. Bytes that are no UTF-8 are replaced, and what could break a line, in a terminal, a file
/// or a script, is escaped.
#[inline(never)]
fn quote(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for letter in String::from_utf8_lossy(text).chars() {
        match letter {
            '"' | '\\' => out.extend_from_slice(&[b'\\', letter as u8]),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            letter if letter.is_control() || ['\u{2028}', '\u{2029}'].contains(&letter) => {
                out.extend_from_slice(format!("\\u{:04x}", letter as u32).as_bytes());
            }
            letter => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// An object of its own, with the members that `fill` writes.
pub fn object(fill: impl FnOnce(&mut Members)) -> String {
    let mut out = Vec::new();
    let mut members = Members::begin(&mut out);
    fill(&mut members);
    members.end();
    String::from_utf8_lossy(&out).into_owned()
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

    #[inline(never)]
    fn key(&mut self, key: &str) {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
        quote(self.out, key.as_bytes());
        self.out.push(b':');
    }

    pub fn number(&mut self, key: &str, number: u64) {
        self.raw(key, itoa::Buffer::new().format(number));
    }

    #[inline(never)]
    pub fn text(&mut self, key: &str, text: &[u8]) {
        self.key(key);
        quote(self.out, text);
    }

    /// Something that is JSON already.
    #[inline(never)]
    pub fn raw(&mut self, key: &str, json: &str) {
        self.key(key);
        self.out.extend_from_slice(json.as_bytes());
    }

    pub fn truth(&mut self, key: &str, value: bool) {
        self.raw(key, if value { "true" } else { "false" });
    }

    /// Bytes: as text under `key` if they are UTF-8, else under `key-base64`.
    pub fn bytes(&mut self, key: &str, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(_) => self.text(key, bytes),
            Err(_) => self.raw(&format!("{key}-base64"), &format!("\"{}\"", base64::encode(bytes))),
        }
    }

    pub fn end(self) {
        self.out.push(b'}');
    }
}

/// A key and its value, borrowed from the bytes that they were read from.
type Member<'a> = (Cow<'a, str>, Value<&'a str, Cow<'a, str>>);

/// An object that was read.
#[derive(Debug, Default)]
pub struct Object<'a>(Vec<Member<'a>>);

impl<'a> Object<'a> {
    /// Reads one in UTF-8, in which no key stands twice; the error says what is wrong with it.
    pub fn parse(bytes: &'a [u8]) -> Result<Object<'a>, String> {
        std::str::from_utf8(bytes).map_err(|_| "no JSON: it is not UTF-8")?;
        let mut lexer = SliceLexer::new(bytes);
        let value = lexer.exactly_one(Lex::ws_peek, |next, lexer| parse_bounded(DEPTH, next, lexer));
        let Value::Object(members) = value.map_err(|error| format!("no JSON: {error}"))? else {
            return Err("no object of JSON".to_owned());
        };
        let mut keys: Vec<&str> = members.iter().map(|(key, _)| &**key).collect();
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("the key {} stands twice", pair[0].escape_debug())),
            None => Ok(Object(members)),
        }
    }

    /// A key that is none of these.
    pub fn stray(&self, known: &[&str]) -> Option<&str> {
        self.0.iter().map(|(key, _)| &**key).find(|key| !known.contains(key))
    }

    fn find(&self, key: &str) -> Option<&Value<&'a str, Cow<'a, str>>> {
        self.0.iter().find(|(found, _)| found == key).map(|(_, value)| value)
    }

    /// A member that is a text; an error if it is something else.
    #[inline(never)]
    pub fn text(&self, key: &str) -> Result<Option<&str>, ()> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(()),
        }
    }

    /// A member that is a whole number from 0 up; an error if it is something else.
    #[inline(never)]
    pub fn number(&self, key: &str) -> Result<Option<u64>, ()> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::Number((number, _))) => number.parse().map(Some).map_err(drop),
            Some(_) => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let all: String = (0..0x300).filter_map(char::from_u32).chain("\u{2028}\u{1f980}\u{fffd}".chars()).collect();
        let line = object(|members| {
            members.text("all", all.as_bytes());
            members.number("most", u64::MAX);
            members.truth("yes", true);
            members.bytes("body", b"\xff");
        });
        assert!(!line.chars().any(char::is_control));
        let read = Object::parse(line.as_bytes()).expect("an object");
        assert_eq!(read.text("all"), Ok(Some(all.as_str())));
        assert_eq!(read.text("body-base64"), Ok(Some("/w==")));
        assert_eq!(read.number("most"), Ok(Some(u64::MAX)));
        assert_eq!((read.number("none"), read.number("yes"), read.text("yes")), (Ok(None), Err(()), Err(())));
    }

    #[test]
    fn texts_are_quoted() {
        let mut out = Vec::new();
        quote(&mut out, b"a\"\\\n\x01\xff\xe2\x80\xa8<");
        assert_eq!(String::from_utf8_lossy(&out), "\"a\\\"\\\\\\n\\u0001\u{fffd}\\u2028<\"");
    }

    #[test]
    fn objects_are_read_or_refused() {
        let object = Object::parse(br#" {"a":"\u0041\n","n":12,"f":1.5,"\u0062":"\ud83e\udd80","x":[1,{}]} "#);
        let object = object.expect("an object");
        assert_eq!((object.text("a"), object.text("b")), (Ok(Some("A\n")), Ok(Some("\u{1f980}"))));
        assert_eq!((object.text("n"), object.text("none")), (Err(()), Ok(None)));
        assert_eq!((object.number("n"), object.number("f"), object.number("a")), (Ok(Some(12)), Err(()), Err(())));
        assert_eq!(object.stray(&["a", "n", "b", "x"]), Some("f"));
        for wrong in [
            "",
            "[]",
            "[",
            "{",
            "1",
            "\"x\"",
            "{} {}",
            "{\"a\":1}x",
            "{a:1}",
            "{\"a\":",
            "{\"a\":\"\u{1}",
            "{\"a\":1,\"a\":2}",
            "{\"a\":\"\\ud800\"}",
        ] {
            assert!(Object::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(Object::parse(b"{\"a\":\"\xff\"}").is_err());
        for deep in ["{\"a\":", "["] {
            assert!(Object::parse(deep.repeat(100_000).as_bytes()).is_err());
        }
    }
}
