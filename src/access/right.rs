//! Rights, tube name patterns, and the rights that a command requires ([`Need`]). Must not depend on commands.
//!
//! A pattern is a tube name in which `%` and two hexadecimal digits represent a byte. A final star matches any suffix.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    Put,
    /// Permits a client to watch tubes and reserve jobs, and to complete, delete, release, bury and touch those jobs.
    Take,
    Look,
    /// Permits a client to kick, revoke and move jobs, delete unreserved jobs, change tubes, and stop the server.
    Admin,
}

impl Right {
    pub const ALL: [Right; 4] = [Right::Put, Right::Take, Right::Look, Right::Admin];

    pub fn name(self) -> &'static str {
        ["put", "take", "look", "admin"][self as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// Every client in the access file can execute the command.
    Open,
    /// The right to at least one tube suffices, because the command affects only tubes to which the client has rights.
    AnyTube,
    #[default]
    AllTubes,
    Used,
    Named,
    /// The tube of the job. If the job does not exist, the right to at least one tube suffices.
    Job,
    /// Like `Job`, but `Right::Take` also suffices for the client that has reserved the job.
    OwnJob,
    Watched,
}

/// The rights that a command requires. The default, [`Scope::AllTubes`] with an empty list, permits no client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// One of these rights is sufficient.
    pub rights: &'static [Right],
    pub scope: Scope,
}

impl Need {
    pub const OPEN: Need = Need { rights: &[], scope: Scope::Open };

    pub const PUT_USED: Need = Need::any_of(&[Right::Put], Scope::Used);
    pub const PUT_NAMED: Need = Need::any_of(&[Right::Put], Scope::Named);
    /// For commands that only select a tube. Later commands that access this tube require their own rights.
    pub const USE_NAMED: Need = Need::any_of(&[Right::Put, Right::Look, Right::Admin], Scope::Named);
    /// The right to one tube suffices: to watch a tube or reserve its jobs by ID, a client needs the right to the tube.
    pub const TAKE_ANY: Need = Need::any_of(&[Right::Take], Scope::AnyTube);
    pub const TAKE_NAMED: Need = Need::any_of(&[Right::Take], Scope::Named);
    pub const TAKE_WATCHED: Need = Need::any_of(&[Right::Take], Scope::Watched);
    pub const TAKE_JOB: Need = Need::any_of(&[Right::Take], Scope::Job);
    pub const LOOK_ANY: Need = Need::any_of(&[Right::Look], Scope::AnyTube);
    pub const LOOK_ALL: Need = Need::any_of(&[Right::Look], Scope::AllTubes);
    pub const LOOK_USED: Need = Need::any_of(&[Right::Look], Scope::Used);
    pub const LOOK_NAMED: Need = Need::any_of(&[Right::Look], Scope::Named);
    pub const LOOK_OWN_JOB: Need = Need::any_of(&[Right::Look], Scope::OwnJob);
    pub const LOOK_JOB: Need = Need::any_of(&[Right::Look], Scope::Job);
    pub const FOLLOW_JOB: Need = Need::any_of(&[Right::Put, Right::Look], Scope::Job);
    pub const ADMIN_ALL: Need = Need::any_of(&[Right::Admin], Scope::AllTubes);
    pub const ADMIN_USED: Need = Need::any_of(&[Right::Admin], Scope::Used);
    pub const ADMIN_NAMED: Need = Need::any_of(&[Right::Admin], Scope::Named);
    pub const ADMIN_JOB: Need = Need::any_of(&[Right::Admin], Scope::Job);
    pub const DELETE_JOB: Need = Need::any_of(&[Right::Admin], Scope::OwnJob);

    pub const fn any_of(rights: &'static [Right], scope: Scope) -> Need {
        Need { rights, scope }
    }
}

/// The tube patterns of each right, in sorted order. No pattern covers another. Therefore, only the last pattern that
/// is not greater than a name can match the name: an earlier pattern that matches the name would cover the last one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights([Vec<Pattern>; 4]);

impl Rights {
    pub fn grant(&mut self, right: Right, pattern: Pattern) {
        let patterns = &mut self.0[right as usize];
        let end = patterns.partition_point(|other| other.bytes <= pattern.bytes);
        let last = patterns[..end].last();
        if !last.is_some_and(|last| last.covers(&pattern)) {
            let start = end - usize::from(last.is_some_and(|last| pattern.covers(last)));
            let covered = patterns[start..].iter().take_while(|other| pattern.covers(other)).count();
            patterns.splice(start..start + covered, [pattern]);
        }
    }

    /// Returns the only pattern that can match `name`, or that can cover a pattern with the bytes `name`.
    fn candidate(&self, right: Right, name: &[u8]) -> Option<&Pattern> {
        let patterns = &self.0[right as usize];
        patterns[..patterns.partition_point(|pattern| *pattern.bytes <= *name)].last()
    }

    pub fn allow(&self, rights: &[Right], tube: &[u8]) -> bool {
        rights.iter().any(|right| self.candidate(*right, tube).is_some_and(|pattern| pattern.matches(tube)))
    }

    pub fn allow_somewhere(&self, rights: &[Right]) -> bool {
        rights.iter().any(|right| !self.0[*right as usize].is_empty())
    }

    pub fn allow_everywhere(&self, rights: &[Right]) -> bool {
        rights.iter().any(|right| self.0[*right as usize].iter().any(Pattern::is_all))
    }

    /// Returns `true` if each pattern in `other` is covered by a single pattern in `self`. Does not combine patterns.
    pub fn cover(&self, other: &Rights) -> bool {
        let covered =
            |right, narrow: &Pattern| self.candidate(right, &narrow.bytes).is_some_and(|wide| wide.covers(narrow));
        Right::ALL.into_iter().all(|right| other.0[right as usize].iter().all(|narrow| covered(right, narrow)))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// The tube name or, if `open`, the prefix.
    bytes: Box<[u8]>,
    open: bool,
}

impl Pattern {
    pub fn all() -> Pattern {
        Pattern { bytes: Box::default(), open: true }
    }

    /// An error consists of the index of the invalid character and a message.
    pub fn parse(text: &str) -> Result<Pattern, (usize, &'static str)> {
        let (text, open) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
        ensure!(!text.is_empty() || open, (0, "missing pattern"));
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
        tube.starts_with(&self.bytes) && (self.open || tube.len() == self.bytes.len())
    }

    pub fn is_all(&self) -> bool {
        self.open && self.bytes.is_empty()
    }

    pub fn covers(&self, other: &Pattern) -> bool {
        self.matches(&other.bytes) && (self.open || !other.open)
    }
}

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

    /// Compares [`Rights::allow`], which searches sorted patterns, with a check of all patterns.
    #[test]
    fn the_order_of_patterns_does_not_matter() {
        const PATTERNS: [&str; 10] = ["a", "a*", "ab", "ab*", "abc", "abd*", "b", "ba", "c*", "caa*"];
        const NAMES: [&str; 11] = ["", "a", "aa", "ab", "abc", "abcd", "abd", "b", "ba", "c", "caab"];
        for subset in 0..1 << PATTERNS.len() {
            let chosen = |index: &usize| subset >> index & 1 == 1;
            let indexes: Vec<usize> = (0..PATTERNS.len()).filter(chosen).collect();
            let granted = |indexes: &mut dyn Iterator<Item = &usize>| {
                let mut rights = Rights::default();
                indexes.for_each(|index| rights.grant(Right::Look, pattern(PATTERNS[*index])));
                rights
            };
            let rights = granted(&mut indexes.iter());
            assert_eq!(rights, granted(&mut indexes.iter().rev()), "{indexes:?}");
            for name in NAMES.map(str::as_bytes) {
                let is_allowed = indexes.iter().any(|index| pattern(PATTERNS[*index]).matches(name));
                assert_eq!(rights.allow(&[Right::Look], name), is_allowed, "{indexes:?} {name:?}");
            }
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
