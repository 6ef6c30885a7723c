//! Patterns for tube names.
//!
//! Owns their syntax: the bytes of a name, in which `%` and two hexadecimal digits are any byte, and a star at the end
//! matches any suffix.

/// The tubes that a right applies to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// The whole name, or a prefix.
    bytes: Box<[u8]>,
    /// The name may continue after `bytes`.
    open: bool,
}

/// An error in a pattern, and the index of its byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatternError {
    Empty,
    /// A star is not at the end.
    Star(usize),
    /// `%` is not followed by two hexadecimal digits.
    Escape(usize),
}

impl Pattern {
    pub fn all() -> Pattern {
        Pattern { bytes: Box::default(), open: true }
    }

    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let (text, open) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
        if text.is_empty() && !open {
            return Err(PatternError::Empty);
        }
        let (given, mut bytes, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
        while let Some(&byte) = given.get(at) {
            match byte {
                b'*' => return Err(PatternError::Star(at)),
                b'%' => {
                    let byte = given.get(at + 1..at + 3).and_then(hex);
                    bytes.push(byte.ok_or(PatternError::Escape(at))?);
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

    /// Returns `true` if the pattern matches this tube.
    pub fn matches(&self, tube: &[u8]) -> bool {
        if self.open {
            tube.starts_with(&self.bytes)
        } else {
            *tube == *self.bytes
        }
    }

    /// Returns `true` if the pattern matches every tube.
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
    fn a_pattern_is_a_name_or_the_beginning_of_one() {
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
    fn what_is_wrong_has_its_place() {
        assert_eq!(Pattern::parse(""), Err(PatternError::Empty));
        assert_eq!(Pattern::parse("a*b"), Err(PatternError::Star(1)));
        assert_eq!(Pattern::parse("a**"), Err(PatternError::Star(1)));
        for (text, at) in [("%", 0), ("a%2", 1), ("a%2x", 1), ("%%41", 0)] {
            assert_eq!(Pattern::parse(text), Err(PatternError::Escape(at)), "{text}");
        }
    }

    #[test]
    fn a_pattern_covers_what_it_is_for() {
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
