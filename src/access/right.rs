//! Rights, the patterns of tube names that they apply to, and the needs of commands.
//!
//! Owns the meaning of the four rights, the syntax of patterns, and the description of what a command needs. Each row
//! in the tables of commands has a [`Need`]. A command whose tube is unknown is refused. In a pattern, `%` and two
//! hexadecimal digits represent any byte, and a star at the end matches any suffix.

/// A right to the jobs of a tube.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    Put,
    /// Reserve jobs, and delete, release, bury or touch them.
    Take,
    Look,
    /// Kick jobs, pause tubes, and delete jobs of other clients.
    Admin,
}

impl Right {
    pub const ALL: [Right; 4] = [Right::Put, Right::Take, Right::Look, Right::Admin];

    pub fn name(self) -> &'static str {
        match self {
            Right::Put => "put",
            Right::Take => "take",
            Right::Look => "look",
            Right::Admin => "admin",
        }
    }
}

/// The tubes on which a command needs a right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// No tube: every admitted client may execute the command.
    Open,
    /// Any tube. The command is limited to the tubes for which the client has the right.
    AnyTube,
    AllTubes,
    Used,
    Named,
    /// The tube of the job that the command names, or any tube if there is no such job.
    Job,
    /// Like `Job`, but the right to take jobs is sufficient for the client that holds the job.
    OwnJob,
    Watched,
}

/// The rights that a command needs. The default is a right that no client has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// One of these rights is sufficient.
    pub rights: &'static [Right],
    pub scope: Scope,
}

impl Need {
    /// No right: for every admitted client.
    pub const OPEN: Need = Need { rights: &[], scope: Scope::Open };

    pub const PUT_USED: Need = Need::any_of(&[Right::Put], Scope::Used);
    pub const PUT_NAMED: Need = Need::any_of(&[Right::Put], Scope::Named);
    /// Using a tube. Each command for it needs its own right.
    pub const USE_NAMED: Need = Need::any_of(&[Right::Put, Right::Look, Right::Admin], Scope::Named);
    /// Taking jobs from any tube, because each tube was checked before.
    pub const TAKE_ANY: Need = Need::any_of(&[Right::Take], Scope::AnyTube);
    pub const TAKE_NAMED: Need = Need::any_of(&[Right::Take], Scope::Named);
    pub const TAKE_WATCHED: Need = Need::any_of(&[Right::Take], Scope::Watched);
    /// Taking a job, or finishing it.
    pub const TAKE_JOB: Need = Need::any_of(&[Right::Take], Scope::Job);
    pub const LOOK_ANY: Need = Need::any_of(&[Right::Look], Scope::AnyTube);
    /// Looking at data that is not separated by tube.
    pub const LOOK_ALL: Need = Need::any_of(&[Right::Look], Scope::AllTubes);
    pub const LOOK_USED: Need = Need::any_of(&[Right::Look], Scope::Used);
    pub const LOOK_NAMED: Need = Need::any_of(&[Right::Look], Scope::Named);
    /// For the client that has reserved the job, the right to take jobs is sufficient.
    pub const LOOK_OWN_JOB: Need = Need::any_of(&[Right::Look], Scope::OwnJob);
    pub const LOOK_JOB: Need = Need::any_of(&[Right::Look], Scope::Job);
    /// Asking for the outcome of a job, as its producer does.
    pub const FOLLOW_JOB: Need = Need::any_of(&[Right::Put, Right::Look], Scope::Job);
    pub const ADMIN_ALL: Need = Need::any_of(&[Right::Admin], Scope::AllTubes);
    pub const ADMIN_USED: Need = Need::any_of(&[Right::Admin], Scope::Used);
    pub const ADMIN_NAMED: Need = Need::any_of(&[Right::Admin], Scope::Named);
    pub const ADMIN_JOB: Need = Need::any_of(&[Right::Admin], Scope::Job);
    /// Like `ADMIN_JOB`, but not needed by the client that holds the job.
    pub const DELETE_JOB: Need = Need::any_of(&[Right::Admin], Scope::OwnJob);

    pub const fn any_of(rights: &'static [Right], scope: Scope) -> Need {
        Need { rights, scope }
    }
}

impl Default for Need {
    fn default() -> Need {
        Need { rights: &[], scope: Scope::AllTubes }
    }
}

/// The rights of a client, and their tubes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights([Vec<Pattern>; 4]);

impl Rights {
    pub fn grant(&mut self, right: Right, pattern: Pattern) {
        self.0[right as usize].push(pattern);
    }

    /// Returns `true` if the rights are sufficient for this tube.
    pub fn allow(&self, rights: &[Right], tube: &[u8]) -> bool {
        rights.iter().any(|right| self.0[*right as usize].iter().any(|pattern| pattern.matches(tube)))
    }

    /// Returns `true` if the rights are sufficient for some tube.
    pub fn allow_somewhere(&self, rights: &[Right]) -> bool {
        rights.iter().any(|right| !self.0[*right as usize].is_empty())
    }

    /// Returns `true` if the rights are sufficient for every tube.
    pub fn allow_everywhere(&self, rights: &[Right]) -> bool {
        rights.iter().any(|right| self.0[*right as usize].iter().any(Pattern::is_all))
    }

    /// Returns `true` if these rights include all of the others. A pattern that only several patterns together cover
    /// counts as not covered.
    pub fn cover(&self, other: &Rights) -> bool {
        let covered = |right: Right, narrow: &Pattern| self.0[right as usize].iter().any(|wide| wide.covers(narrow));
        Right::ALL.into_iter().all(|right| other.0[right as usize].iter().all(|narrow| covered(right, narrow)))
    }
}

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
