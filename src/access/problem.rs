//! The errors in an access file.
//!
//! Owns the kinds of errors and their messages. The text of a line is shown only where it cannot be a secret.

use std::fmt;

/// An error, and its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    pub line: usize,
    /// The position of the character in the line, from 1.
    pub column: usize,
    pub problem: AccessProblem,
}

/// An error in a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessProblem {
    NotText,
    /// A name without anything after it.
    NoProof,
    NoRights,
    /// An earlier line, given by its number, has the same name.
    SameName(usize),
    /// An earlier line, given by its number, has the same proof, which would be ambiguous.
    SameProof(usize),
    /// The kind of the proof is unknown.
    UnknownProof(String),
    /// A proof of this kind has nothing after its colon.
    EmptyProof(&'static str),
    /// `token:sha256:` is not followed by 64 hexadecimal digits.
    WrongToken,
    /// The name `*`, which applies to clients without a proof, has a proof.
    StarWithProof,
    /// `none` is the proof of a name.
    NameWithoutProof,
    /// A proof follows a right.
    LateProof,
    UnknownRight(String),
    /// A right with a colon has no pattern after it, or there are two consecutive commas.
    EmptyPattern,
    /// A star is not at the end of a pattern.
    WrongStar,
    /// `%` is not followed by two hexadecimal digits.
    WrongEscape,
    /// The file starts with `begin` and does not end with `end`.
    NoEnd,
    /// Something follows the line `end`.
    BehindEnd,
    /// The file has no line with words.
    Nobody,
    UnknownUser(String),
    UnknownGroup(String),
}

impl fmt::Display for AccessProblem {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            AccessProblem::NotText => out.write_str("the line is not UTF-8"),
            AccessProblem::NoProof => {
                out.write_str("a proof must follow the name: none, cert:, token:sha256:, user: or group:")
            }
            AccessProblem::NoRights => out.write_str("a right must follow the proof: put, take, look, admin or all"),
            AccessProblem::SameName(line) => write!(out, "line {line} has this name already"),
            AccessProblem::SameProof(line) => write!(out, "line {line} has this proof already"),
            AccessProblem::UnknownProof(word) => {
                let word = word.escape_debug();
                write!(out, "unknown proof: {word}; it must be none, cert:, token:sha256:, user: or group:")
            }
            AccessProblem::EmptyProof(kind) => write!(out, "nothing stands behind {kind}"),
            AccessProblem::WrongToken => out.write_str("64 hexadecimal digits must follow token:sha256:"),
            AccessProblem::StarWithProof => {
                out.write_str("the name * is for those who prove nothing; its only proof is none")
            }
            AccessProblem::NameWithoutProof => out.write_str("the proof none is for the name * alone"),
            AccessProblem::LateProof => out.write_str("proofs must stand before the rights"),
            AccessProblem::UnknownRight(word) => {
                write!(out, "unknown right: {}; it must be put, take, look, admin or all", word.escape_debug())
            }
            AccessProblem::EmptyPattern => out.write_str("a pattern is missing"),
            AccessProblem::WrongStar => out.write_str("a star may stand at the end of a pattern only"),
            AccessProblem::WrongEscape => out.write_str("two hexadecimal digits must follow %"),
            AccessProblem::NoEnd => out.write_str("the file is cut off: it begins with begin and has no end"),
            AccessProblem::BehindEnd => out.write_str("nothing may follow end"),
            AccessProblem::Nobody => out.write_str("the file names nobody; to let nobody in, write begin and end"),
            AccessProblem::UnknownUser(name) => write!(out, "no such user: {}", name.escape_debug()),
            AccessProblem::UnknownGroup(name) => write!(out, "no such group: {}", name.escape_debug()),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "line {}, column {}: {}", self.line, self.column, self.problem)
    }
}

impl std::error::Error for FileError {}
