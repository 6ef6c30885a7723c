//! Writing JSON objects and reading JSON documents. Malformed input never causes a panic, and the nesting is limited.

use std::{borrow::Cow, ops::RangeInclusive};

use hifijson::str::LexAlloc;
use hifijson::token::Lex;
use hifijson::value::{parse_bounded, Value};
use hifijson::{Expect, SliceLexer};

use crate::shared::base64;

/// The maximum nesting of lists and objects.
const DEPTH: usize = 16;

pub fn is_hostile(letter: char) -> bool {
    letter.is_control() || letter > '\u{a0}' && INVISIBLE.iter().any(|range| range.contains(&letter))
}

/// Unicode's default-ignorable characters (including characters that reorder text), line separators, interlinear
/// annotations, and the empty Braille pattern.
#[rustfmt::skip]
const INVISIBLE: [RangeInclusive<char>; 18] = [
    '\u{ad}'..='\u{ad}', '\u{34f}'..='\u{34f}', '\u{61c}'..='\u{61c}', '\u{115f}'..='\u{1160}', '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}', '\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{206f}',
    '\u{2800}'..='\u{2800}', '\u{3164}'..='\u{3164}', '\u{fe00}'..='\u{fe0f}', '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}', '\u{fff0}'..='\u{fffb}', '\u{1bca0}'..='\u{1bca3}', '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];

fn quote(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for letter in String::from_utf8_lossy(text).chars() {
        match letter {
            '"' | '\\' => out.extend_from_slice(&[b'\\', letter as u8]),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            letter if is_hostile(letter) => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
            letter => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

pub fn object(fill: impl FnOnce(&mut Members)) -> String {
    let mut out = Vec::new();
    push_object(&mut out, fill);
    String::from_utf8_lossy(&out).into_owned()
}

pub fn push_object(out: &mut Vec<u8>, fill: impl FnOnce(&mut Members)) {
    out.push(b'{');
    fill(&mut Members { out, first: true });
    out.push(b'}');
}

pub struct Members<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl Members<'_> {
    fn key(&mut self, key: &str) {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
        quote(self.out, key.as_bytes());
        self.out.push(b':');
    }

    pub fn number(&mut self, key: &str, number: u64) {
        self.raw(key, &number.to_string());
    }

    pub fn text(&mut self, key: &str, text: &[u8]) {
        self.key(key);
        quote(self.out, text);
    }

    pub fn raw(&mut self, key: &str, json: &str) {
        self.key(key);
        self.out.extend_from_slice(json.as_bytes());
    }

    pub fn truth(&mut self, key: &str, value: bool) {
        self.raw(key, if value { "true" } else { "false" });
    }

    /// Valid UTF-8 becomes text under `key`. Other bytes become base64 under `key-base64`.
    pub fn bytes(&mut self, key: &str, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(_) => self.text(key, bytes),
            Err(_) => self.raw(&format!("{key}-base64"), &format!("\"{}\"", base64::encode(bytes))),
        }
    }
}

type Read<'a> = Value<&'a str, Cow<'a, str>>;

pub struct Document<'a>(Read<'a>);

impl<'a> Document<'a> {
    /// Malformed input results in a document without parts.
    pub fn read(bytes: &'a [u8]) -> Document<'a> {
        let parse = |next, lexer: &mut SliceLexer<'a>| parse_bounded(DEPTH, next, lexer);
        let text = std::str::from_utf8(bytes).ok();
        let value = text.and_then(|_| SliceLexer::new(bytes).exactly_one(Lex::ws_peek, parse).ok());
        Document(value.unwrap_or(Value::Null))
    }

    pub fn get(&self, name: &str) -> Part<'_> {
        Part(&self.0).get(name)
    }
}

/// A missing part is equivalent to `null`.
#[derive(Clone, Copy)]
pub struct Part<'d>(&'d Read<'d>);

impl<'d> Part<'d> {
    pub fn get(self, name: &str) -> Part<'d> {
        Part(match self.0 {
            Value::Object(members) => find(members, name).unwrap_or(&Value::Null),
            _ => &Value::Null,
        })
    }

    pub fn elements(self) -> impl ExactSizeIterator<Item = Part<'d>> {
        let Value::Array(elements) = self.0 else { return [].iter().map(Part) };
        elements.iter().map(Part)
    }

    pub fn at(self, index: usize) -> Part<'d> {
        self.elements().nth(index).unwrap_or(Part(&Value::Null))
    }

    pub fn text(self) -> Option<&'d str> {
        let Value::String(text) = self.0 else { return None };
        Some(text)
    }

    pub fn bytes(self) -> Vec<u8> {
        self.text().and_then(|text| base64::decode(text.as_bytes())).unwrap_or_default()
    }

    /// Accepts a nonnegative integer or a string of digits.
    pub fn number(self) -> Option<u64> {
        match self.0 {
            Value::Number((number, _)) => number.parse().ok(),
            _ => self.text()?.parse().ok(),
        }
    }

    pub fn is_true(self) -> bool {
        matches!(self.0, Value::Bool(true))
    }
}

fn find<'v, 'a>(members: &'v [(Cow<'a, str>, Read<'a>)], key: &str) -> Option<&'v Read<'a>> {
    members.iter().find(|(found, _)| found == key).map(|(_, value)| value)
}

struct Malformed(String);

impl<E: Into<hifijson::Error>> From<E> for Malformed {
    fn from(error: E) -> Malformed {
        Malformed(format!("no JSON: {}", error.into()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strays {
    Refused,
    Ignored,
}

/// Contains only requested members, whose values are text, numbers, booleans or null.
#[derive(Debug, Default)]
pub struct Object<'a>(Vec<(Cow<'a, str>, Read<'a>)>);

impl<'a> Object<'a> {
    /// Keeps only the members in `known`. Rejects a list, an object or a duplicate key among them immediately, so the
    /// result is never larger than `bytes`. `strays` decides whether other members are an error.
    pub fn parse(bytes: &'a [u8], known: &[&str], strays: Strays) -> Result<Object<'a>, String> {
        std::str::from_utf8(bytes).map_err(|_| "no JSON: it is not UTF-8")?;
        let mut members = Vec::new();
        let read = SliceLexer::new(bytes).exactly_one(Lex::ws_peek, |next, lexer| match next {
            b'{' => lexer
                .discarded()
                .seq(b'}', Lex::ws_peek, |next, lexer| read_member(next, lexer, &mut members, known, strays)),
            _ => Err(Malformed("no JSON object".to_owned())),
        });
        read.map(|()| Object(members)).map_err(|Malformed(text)| text)
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, ()> {
        find(&self.0, key).map(|value| Part(value).text().ok_or(())).transpose()
    }

    pub fn take_text(&mut self, key: &str) -> Result<Option<Cow<'a, str>>, ()> {
        match self.0.iter_mut().find(|(found, _)| found == key) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(std::mem::take(text))),
            Some(_) => Err(()),
        }
    }

    pub fn number(&self, key: &str) -> Result<Option<u64>, ()> {
        match find(&self.0, key) {
            None => Ok(None),
            Some(Value::Number((number, _))) => number.parse().map(Some).map_err(drop),
            Some(_) => Err(()),
        }
    }
}

fn read_member<'a>(
    next: u8,
    lexer: &mut SliceLexer<'a>,
    members: &mut Vec<(Cow<'a, str>, Read<'a>)>,
    known: &[&str],
    strays: Strays,
) -> Result<(), Malformed> {
    lexer.expect(|_| Some(next), b'"').ok_or(Expect::String)?;
    let key = lexer.str_string().map_err(hifijson::Error::Str)?;
    lexer.expect(Lex::ws_peek, b':').ok_or(Expect::Colon)?;
    let value = lexer.ws_peek().ok_or(Expect::Value)?;
    if !known.contains(&&*key) {
        if strays == Strays::Refused {
            let shown: String = key.chars().take(100).collect();
            return Err(Malformed(format!("unknown in the body: {shown}")));
        }
        parse_bounded(DEPTH, value, lexer)?;
        return Ok(());
    }
    ensure!(find(members, &key).is_none(), Malformed(format!("duplicate key {}", key.escape_debug())));
    ensure!(!matches!(value, b'[' | b'{'), Malformed(format!("{key}: neither lists nor objects are read here")));
    members.push((key, parse_bounded(1, value, lexer)?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_can_be_decoded_again() {
        let all: String = (0..0x300).filter_map(char::from_u32).chain("\u{2028}\u{1f980}\u{fffd}".chars()).collect();
        let line = object(|members| {
            members.text("all", all.as_bytes());
            members.number("most", u64::MAX);
            members.truth("yes", true);
            members.bytes("body", b"\xff");
        });
        assert!(!line.chars().any(char::is_control));
        let known = ["all", "most", "yes", "body-base64"];
        let read = Object::parse(line.as_bytes(), &known, Strays::Refused).expect("an object");
        assert_eq!(read.text("all"), Ok(Some(all.as_str())));
        assert_eq!(read.text("body-base64"), Ok(Some("/w==")));
        assert_eq!(read.number("most"), Ok(Some(u64::MAX)));
        assert_eq!((read.number("none"), read.number("yes"), read.text("yes")), (Ok(None), Err(()), Err(())));
    }

    #[test]
    fn parts_are_found_by_their_path() {
        let text = br#" {"header":{"revision":"12","x":[1,{"y":null}]}, "succeeded": true,
            "responses":[{"response_range":{"kvs":[{"key":"YQ==","value":"Ymx1ZQ=="}],"count":1}},{}]} "#;
        let document = Document::read(text);
        assert_eq!(document.get("header").get("revision").number(), Some(12));
        assert!(document.get("succeeded").is_true() && !document.get("header").is_true());
        let responses = document.get("responses");
        assert_eq!((responses.elements().len(), responses.at(2).text()), (2, None));
        let range = responses.at(0).get("response_range");
        assert_eq!(
            (range.get("count").number(), range.get("kvs").at(0).get("value").bytes()),
            (Some(1), b"blue".to_vec())
        );
        assert_eq!(responses.at(1).get("response_range").get("kvs").elements().len(), 0);
        assert_eq!((range.get("kvs").at(0).get("key").number(), document.get("missing").bytes()), (None, Vec::new()));
    }

    #[test]
    fn a_broken_document_has_no_parts() {
        let text = br#"{"a":[1,"two",{"b":"c\""}],"d":true}"#;
        assert!(Document::read(text).get("d").is_true());
        for end in 0..text.len() {
            for wrong in [b'"', b'}', b'\\', b'[', 0] {
                let broken = [&text[..end], &[wrong]].concat();
                assert!(!Document::read(&broken).get("d").is_true() || broken[..] == text[..]);
            }
        }
        let deep = [b"{\"a\":".repeat(10_000), b"1".to_vec()].concat();
        assert!(Document::read(&deep).get("a").text().is_none());
    }

    #[test]
    fn texts_are_quoted() {
        let mut out = Vec::new();
        quote(&mut out, &[b"a\"\\\n\x01\xff", "\u{2028}\u{202e}\u{2066}<".as_bytes()].concat());
        assert_eq!(String::from_utf8_lossy(&out), "\"a\\\"\\\\\\n\\u0001\u{fffd}\\u2028\\u202e\\u2066<\"");
    }

    #[test]
    fn objects_are_read_or_refused() {
        fn parse(bytes: &[u8]) -> Result<Object<'_>, String> {
            Object::parse(bytes, &["a", "b", "n", "f"], Strays::Refused)
        }
        let mut object = parse(br#" {"a":"\u0041\n","n":12,"f":1.5,"\u0062":"\ud83e\udd80"} "#).expect("an object");
        assert_eq!((object.text("a"), object.text("b")), (Ok(Some("A\n")), Ok(Some("\u{1f980}"))));
        assert_eq!((object.text("n"), object.text("none")), (Err(()), Ok(None)));
        assert_eq!((object.number("n"), object.number("f"), object.number("a")), (Ok(Some(12)), Err(()), Err(())));
        assert_eq!((object.take_text("a"), object.take_text("n")), (Ok(Some("A\n".into())), Err(())));
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
            "{\"a\":[]}",
            "{\"a\":{}}",
            "{\"x\":1}",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
        for deep in ["{\"a\":", "["] {
            assert!(parse(deep.repeat(100_000).as_bytes()).is_err());
        }
        let strays = br#"{"x":[1,{"y":[]}],"a":"b"}"#;
        assert_eq!(Object::parse(strays, &["a"], Strays::Ignored).expect("an object").text("a"), Ok(Some("b")));
    }

    #[test]
    fn a_list_ends_the_reading_where_it_begins() {
        // The list never ends. The error is about the list or its key, so parsing stopped where the list begins.
        let text = format!("{{\"a\":[{}", "0,".repeat(500_000));
        for (known, expected) in [(&["a"][..], "a: neither lists"), (&[], "unknown in the body: a")] {
            let error = Object::parse(text.as_bytes(), known, Strays::Refused).expect_err("a list");
            assert!(error.starts_with(expected), "{error}");
        }
        let key = "k".repeat(100_000);
        let error = Object::parse(format!("{{\"{key}\":1}}").as_bytes(), &["a"], Strays::Refused).expect_err("unknown");
        assert!(error.len() < 200, "{} bytes", error.len());
    }
}
