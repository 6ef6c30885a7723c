//! What can be wrong with an access file.
//!
//! Owns the kinds of mistakes and the words for them. What a line says is shown only where it cannot be a secret.

use std::fmt;

/// A mistake, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    pub line: usize,
    /// The character in it, from 1.
    pub column: usize,
    pub problem: AccessProblem,
}

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessProblem {
    NotText,
    /// It has a name and nothing else.
    NoProof,
    NoRights,
    /// This line has the same name.
    SameName(usize),
    /// This line has the same proof, so nobody can say whose it is.
    SameProof(usize),
    /// There is no such kind of proof.
    UnknownProof(String),
    /// A proof of this kind has nothing behind its colon.
    EmptyProof(&'static str),
    /// No 64 hexadecimal digits follow `token:sha256:`.
    WrongToken,
    /// The name is `*`, which is for those who prove nothing, and there is a proof.
    StarWithProof,
    /// `none` is the proof of a name.
    NameWithoutProof,
    /// A proof stands behind a right.
    LateProof,
    /// There is no such right.
    UnknownRight(String),
    /// A right with a colon has no pattern behind it, or there are two commas in a row.
    EmptyPattern,
    /// A star stands before the end of a pattern.
    WrongStar,
    /// No two hexadecimal digits follow a `%`.
    WrongEscape,
    /// The file begins with `begin` and does not end with `end`.
    NoEnd,
    /// Something stands behind the line `end`.
    BehindEnd,
    /// The file has no line with words.
    Nobody,
    /// The system has no such user.
    UnknownUser(String),
    /// The system has no such group.
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
