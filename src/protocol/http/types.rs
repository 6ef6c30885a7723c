//! Types shared by the files of this directory: methods, heads and failures.
//!
//! Owns only the types. Must not read or write them.

use crate::access::Digest;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Get,
    Post,
}

/// The head of a request, without its target.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestHead {
    /// The client requests only the head of the reply.
    pub is_head: bool,
    /// The connection closes after the reply.
    pub close: bool,
    /// The client waits for permission to send the body.
    pub expects_continue: bool,
    /// The `Host` header, or `None` if it is missing or duplicate.
    pub host: Option<Box<str>>,
    /// The `Origin` header: the site from which the request comes.
    pub origin: Option<Box<str>>,
    /// The request has the header `X-Beanpole`, which other sites cannot send.
    pub is_marked: bool,
    pub is_json: bool,
    pub token: Option<Digest>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub status: u16,
    /// The error text, for people.
    pub text: Box<str>,
}

impl Failure {
    pub fn new(status: u16, text: impl Into<Box<str>>) -> Failure {
        Failure { status, text: text.into() }
    }
}
