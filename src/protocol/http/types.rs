//! Types that several HTTP modules share.

use crate::access::Digest;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Get,
    Post,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestHead {
    pub is_head: bool,
    pub close: bool,
    /// `true` if the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// `None` if the header is missing or duplicated.
    pub host: Option<Box<str>>,
    /// The site that caused the request.
    pub origin: Option<Box<str>>,
    /// `true` if the request has the header `X-Beanpole`, which other sites cannot send.
    pub is_marked: bool,
    pub is_json: bool,
    pub token: Option<Digest>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub status: u16,
    pub text: Box<str>,
}

impl Failure {
    pub fn new(status: u16, text: impl Into<Box<str>>) -> Failure {
        Failure { status, text: text.into() }
    }
}
