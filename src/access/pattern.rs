//! Patterns for tube names.
//!
//! Owns their syntax: the bytes of a name, where `%` and two hexadecimal digits represent any byte, and a star at the
//! end matches any suffix. Must not know the tubes.

/// The tubes that a right applies to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// The whole name, or a prefix.
    bytes: Box<[u8]>,
    /// The name may continue after `bytes`.
    open: bool,
}

impl Pattern {
    /// Returns the pattern that matches every tube.
    pub fn all() -> Pattern {
        Pattern { bytes: Box::default(), open: true }
    }

    /// Parses a pattern. The error is the index of the invalid byte, and a message.
    pub fn parse(text: &str) -> Result<Pattern, (usize, &'static str)> {
        let (text, open) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
        if text.is_empty() && !open {
            return Err((0, "missing pattern"));
        }
        let (given, mut bytes, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
        while let Some(&byte) = given.get(at) {
            match byte {
                b'*' => return Err((at, "a star may only be at the end of a pattern")),
                b'%' => {
                    let byte = given.get(at + 1..at + 3).and_then(hex);
                    bytes.push(byte.ok_or((at, "two hexadecimal digits must follow %"))?);
                    at += 3;
                }
                byte => {
                    bytes.push(byte);
                    at += 1;
                }
            }
        }
        Ok(Pattern { bytes: bytes.into(), open })
    }

    pub fn matches(&self, tube: &[u8]) -> bool {
        match self.open {
            true => tube.starts_with(&self.bytes),
            false => *tube == *self.bytes,
        }
    }

    pub fn is_all(&self) -> bool {
        self.open && self.bytes.is_empty()
    }

    /// Returns `true` if the pattern matches every tube that the other one matches.
    pub fn covers(&self, other: &Pattern) -> bool {
        self.matches(&other.bytes) && (self.open || !other.open)
    }
}

/// Returns the byte that two hexadecimal digits represent.
pub fn hex(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0, |byte, digit| Some(byte << 4 | char::from(*digit).to_digit(16)? as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).expect(text)
    }

    #[test]
    fn a_pattern_is_a_name_or_a_prefix() {
        for (text, tube, expected) in [
            ("mail", "mail", true),
            ("mail", "mails", false),
            ("mail", "mai", false),
            ("mail*", "mail", true),
            ("mail*", "mail.out", true),
            ("mail*", "Mail", false),
            ("*", "anything", true),
            ("a%20b*", "a bc", true),
            ("100%25", "100%", true),
            ("%2A", "*", true),
            ("%2a", "a", false),
        ] {
            assert_eq!(pattern(text).matches(tube.as_bytes()), expected, "{text} and {tube}");
        }
        assert!(Pattern::all().is_all() && pattern("*").is_all() && !pattern("a*").is_all());
    }

    #[test]
    fn an_error_has_its_position() {
        assert_eq!(Pattern::parse(""), Err((0, "missing pattern")));
        for (text, at) in [("a*b", 1), ("a**", 1), ("%", 0), ("a%2", 1), ("a%2x", 1), ("%%41", 0)] {
            assert_eq!(Pattern::parse(text).map_err(|(at, _)| at), Err(at), "{text}");
        }
    }

    #[test]
    fn a_pattern_covers_narrower_ones() {
        for (wide, narrow, expected) in [
            ("*", "mail*", true),
            ("mail*", "mail*", true),
            ("mail*", "mail.x", true),
            ("mail*", "mail.*", true),
            ("mail.*", "mail*", false),
            ("mail", "mail", true),
            ("mail", "mail*", false),
            ("mail", "mailx", false),
        ] {
            assert_eq!(pattern(wide).covers(&pattern(narrow)), expected, "{wide} and {narrow}");
        }
    }
}
