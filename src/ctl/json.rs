//! JSON: objects to write, and lines to read.
//!
//! Owns the quoting, and bodies that are no text. Must not know what a key means.

use std::borrow::Cow;

use hifijson::token::Lex;
use hifijson::value::{parse_bounded, Value};
use hifijson::SliceLexer;

use crate::base64;

/// Depth of objects and lists in each other that is read.
const DEPTH: usize = 16;

/// An object that is being written.
#[derive(Debug, Default)]
pub struct Json(String);

impl Json {
    pub fn object() -> Json {
        Json("{".to_owned())
    }

    #[inline(never)]
    fn key(&mut self, key: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        quote(key, &mut self.0);
        self.0.push(':');
    }

    /// A member that is a text.
    #[inline(never)]
    pub fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        quote(value, &mut self.0);
    }

    /// A member that is JSON already.
    pub fn raw(&mut self, key: &str, value: &str) {
        self.key(key);
        self.0.push_str(value);
    }

    /// A member that is a number.
    #[inline(never)]
    pub fn number(&mut self, key: &str, value: u64) {
        self.raw(key, itoa::Buffer::new().format(value));
    }

    /// A job's body: `body` if it is text in UTF-8, else `body-base64`.
    #[inline(never)]
    pub fn body(&mut self, body: &[u8]) {
        match std::str::from_utf8(body) {
            Ok(text) => self.text("body", text),
            Err(_) => self.raw("body-base64", &format!("\"{}\"", base64::encode(body))),
        }
    }

    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Quotes a text. What could break a line, in a terminal or a file, is escaped as well.
#[inline(never)]
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", letter as u32)),
            letter if letter.is_control() => out.push_str(&format!("\\u{:04x}", letter as u32)),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

/// A flat object that was read: its members that are texts, numbers, or true and false, as text.
#[derive(Debug)]
pub struct Object<'a>(Vec<(Cow<'a, str>, Cow<'a, str>, bool)>);

impl<'a> Object<'a> {
    /// Reads one from a line; the error says what is wrong with it.
    pub fn parse(line: &'a [u8]) -> Result<Object<'a>, String> {
        let mut lexer = SliceLexer::new(line);
        let value = lexer.exactly_one(Lex::ws_peek, |next, lexer| parse_bounded(DEPTH, next, lexer));
        let Value::Object(members) = value.map_err(|error| format!("no JSON: {error}"))? else {
            return Err("no object of JSON".to_owned());
        };
        let members = members.into_iter().filter_map(|(key, value)| match value {
            Value::String(text) => Some((key, text, true)),
            Value::Number((number, _)) => Some((key, Cow::Borrowed(number), false)),
            Value::Bool(value) => Some((key, Cow::Borrowed(if value { "true" } else { "false" }), false)),
            _ => None,
        });
        Ok(Object(members.collect()))
    }

    /// A member that is a text.
    #[inline(never)]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(found, _, is_text)| found == key && *is_text).map(|(_, value, _)| &**value)
    }

    /// A member that is a whole number from 0 up; what stands there if it is something else.
    #[inline(never)]
    pub fn number(&self, key: &str) -> Result<Option<u64>, &str> {
        match self.0.iter().find(|(found, ..)| found == key) {
            None => Ok(None),
            Some((_, value, _)) => value.parse().map(Some).map_err(|_| &**value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let all: String = (0..0x300).filter_map(char::from_u32).chain("\u{2028}\u{1f980}\u{fffd}".chars()).collect();
        let mut json = Json::object();
        json.text("all", &all);
        json.number("most", u64::MAX);
        json.raw("yes", "true");
        let line = json.end();
        assert!(!line.chars().any(char::is_control));
        let object = Object::parse(line.as_bytes()).expect("an object");
        assert_eq!(object.text("all"), Some(all.as_str()));
        assert_eq!(object.number("most"), Ok(Some(u64::MAX)));
        assert_eq!((object.number("none"), object.number("yes")), (Ok(None), Err("true")));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for wrong in ["", "[]", "{", "{\"a\":1}x", "{\"a\":\"\u{1}", "1", "{\"a\":\"\\ud800\"}"] {
            assert!(Object::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let deep = "{\"a\":".repeat(100_000);
        assert!(Object::parse(deep.as_bytes()).is_err());
        let escaped =
            Object::parse(b" { \"b\\u006fdy\" : \"\\ud83e\\udd80\\n\" , \"x\": [1, {}] } ").expect("an object");
        assert_eq!(escaped.text("body"), Some("\u{1f980}\n"));
    }
}
