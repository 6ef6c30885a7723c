//! What the files of this room hand to each other: how something is asked for, and why it is refused.
//!
//! Owns the words alone. Must not read or write them.

use crate::access::Digest;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Get,
    Post,
}

/// What a head says beside what is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestHead {
    /// The client wants the head of the reply alone.
    pub is_head: bool,
    /// The connection ends with the reply.
    pub close: bool,
    /// Whom it calls; none if it does not say, or says it twice.
    pub host: Option<Box<str>>,
    /// Which site it comes from, if it says.
    pub origin: Option<Box<str>>,
    /// It has the header that other sites cannot send.
    pub is_marked: bool,
    pub is_json: bool,
    /// The token that it shows.
    pub token: Option<Digest>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub status: u16,
    /// What is wrong, for people.
    pub text: Box<str>,
}

impl Failure {
    pub fn new(status: u16, text: impl Into<Box<str>>) -> Failure {
        Failure { status, text: text.into() }
    }
}
