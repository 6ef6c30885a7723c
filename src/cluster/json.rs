//! The JSON that etcd's gateway speaks, as far as it is needed: values are read by their path, and bytes are base64.
//!
//! Owns the reading of one document at a time, without copies. What is malformed is nothing, never a panic; nesting is
//! bounded, so that no answer can exhaust the stack.

use crate::base64;

/// Values in each other that are read.
const DEEPEST: usize = 32;

/// A value: the text of it, which begins at its first byte.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a>(&'a [u8]);

impl<'a> Document<'a> {
    /// The document in these bytes.
    pub fn new(text: &'a [u8]) -> Document<'a> {
        Document(skip_spaces(text))
    }

    /// The member of an object with this name.
    #[inline(never)]
    pub fn get(self, name: &str) -> Option<Document<'a>> {
        let mut rest = skip_spaces(self.0.strip_prefix(b"{")?);
        while rest.first() == Some(&b'"') {
            let (key, after) = string(rest)?;
            let value = skip_spaces(skip_spaces(after).strip_prefix(b":")?);
            if key == name.as_bytes() {
                return Some(Document(value));
            }
            rest = skip_spaces(skip_value(value, 0)?);
            rest = skip_spaces(rest.strip_prefix(b",").unwrap_or(rest));
        }
        None
    }

    /// The elements of an array; none if it is no array.
    #[inline(never)]
    pub fn elements(self) -> Vec<Document<'a>> {
        let mut found = Vec::new();
        let Some(mut rest) = self.0.strip_prefix(b"[").map(skip_spaces) else { return found };
        while !rest.is_empty() && rest[0] != b']' {
            let Some(after) = skip_value(rest, 0) else { return found };
            found.push(Document(rest));
            rest = skip_spaces(after);
            rest = skip_spaces(rest.strip_prefix(b",").unwrap_or(rest));
        }
        found
    }

    /// A string without escapes, which are all that etcd sends where it is asked here.
    pub fn text(self) -> Option<&'a [u8]> {
        string(self.0).map(|(text, _)| text)
    }

    /// The bytes that a string has in base64.
    #[inline(never)]
    pub fn bytes(self) -> Option<Vec<u8>> {
        base64::decode(self.text()?)
    }

    /// A number, which etcd writes as a string if it has 64 bits.
    #[inline(never)]
    pub fn number(self) -> Option<u64> {
        let text = self.text().unwrap_or_else(|| {
            let end = self.0.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(self.0.len());
            &self.0[..end]
        });
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    pub fn is_true(self) -> bool {
        self.0.starts_with(b"true")
    }
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    text.trim_ascii_start()
}

/// The inside of the string that the text begins with, and what is behind it.
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = text.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        match inside.get(at)? {
            b'"' => return Some((&inside[..at], &inside[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// What is behind the value that the text begins with.
#[inline(never)]
fn skip_value(text: &[u8], depth: usize) -> Option<&[u8]> {
    let (open, close) = match text.first()? {
        b'"' => return string(text).map(|(_, rest)| rest),
        b'{' => (b'{', b'}'),
        b'[' => (b'[', b']'),
        _ => {
            let end = text.iter().position(|byte| b",]} \t\r\n".contains(byte)).unwrap_or(text.len());
            return (end > 0).then(|| &text[end..]);
        }
    };
    if depth > DEEPEST {
        return None;
    }
    let mut rest = skip_spaces(text.strip_prefix(&[open])?);
    loop {
        if let Some(after) = rest.strip_prefix(&[close]) {
            return Some(after);
        }
        rest = skip_spaces(skip_value(rest, depth + 1)?);
        if let Some(after) = rest.strip_prefix(b",").or_else(|| rest.strip_prefix(b":")) {
            rest = skip_spaces(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_path() {
        let text = br#" {"header":{"revision":"12","x":[1,{"y":null}]}, "succeeded": true,
            "responses":[{"response_range":{"kvs":[{"key":"YQ==","value":"Ymx1ZQ=="}],"count":"1"}},{}]} "#;
        let document = Document::new(text);
        assert_eq!(
            document.get("header").and_then(|header| header.get("revision")).and_then(Document::number),
            Some(12)
        );
        assert!(document.get("succeeded").is_some_and(Document::is_true));
        let responses = document.get("responses").expect("an array").elements();
        assert_eq!(responses.len(), 2);
        let kvs = responses[0].get("response_range").and_then(|range| range.get("kvs")).expect("kvs").elements();
        assert_eq!(kvs[0].get("value").and_then(Document::bytes), Some(b"blue".to_vec()));
        assert!(document.get("missing").is_none() && responses[1].get("kvs").is_none());
    }

    #[test]
    fn no_text_makes_it_panic() {
        let text = br#"{"a":[1,"two",{"b":"c\""}],"d":true}"#;
        for end in 0..text.len() {
            for wrong in [b'"', b'}', b'\\', b'[', 0] {
                let mut broken = text[..end].to_vec();
                broken.push(wrong);
                let document = Document::new(&broken);
                let _ = (document.get("d"), document.get("a").map(Document::elements));
            }
        }
        let deep = [b"{\"a\":".repeat(10_000), b"1".to_vec()].concat();
        assert!(Document::new(&deep).get("b").is_none());
    }
}
