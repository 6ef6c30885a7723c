//! The replies: status lines, headers, and the bodies that go with errors.
//!
//! Owns their spelling, and the headers that keep a browser from doing more with a reply than show it. Must not decide
//! what is answered.

use super::page::PAGE_POLICY;
use super::types::{Failure, RequestHead};
use crate::protocol::{Flow, Output};
use crate::shared::json;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Json,
    Metrics,
    Page,
    Text,
    /// The body of a job, of which nothing is known.
    Bytes,
}

/// What clients may do with what they get: show it, and nothing else.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// On every reply: nothing is guessed, kept, shown in a frame, or handed to other sites.
const GUARDS: &str = "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\nCache-Control: no-store\r\n";

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Service Unavailable",
    }
}

/// The head of a reply with a body of this length, which must follow unless the client asked for the head alone.
fn head(out: &mut Output, status: u16, kind: Kind, length: usize, request: &RequestHead) {
    let kind_name = match kind {
        Kind::Json => "application/json",
        Kind::Metrics => "text/plain; version=0.0.4; charset=utf-8",
        Kind::Page => "text/html; charset=utf-8",
        Kind::Text => "text/plain; charset=utf-8",
        Kind::Bytes => "application/octet-stream\r\nContent-Disposition: attachment",
    };
    let policy = if kind == Kind::Page { PAGE_POLICY } else { POLICY };
    let advice = match status {
        401 => "WWW-Authenticate: Bearer\r\n",
        405 => "Allow: GET, HEAD, POST\r\n",
        _ => "",
    };
    let close = if request.close { "Connection: close\r\n" } else { "" };
    let text = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {kind_name}\r\nContent-Length: {length}\r\n{GUARDS}\
         Content-Security-Policy: {policy}\r\n{advice}{close}\r\n",
        reason(status)
    );
    out.text().extend_from_slice(text.as_bytes());
}

/// A whole reply with this body; whether the connection goes on behind it.
pub fn whole(out: &mut Output, status: u16, kind: Kind, mut body: Output, request: &RequestHead) -> Flow {
    head(out, status, kind, body.len(), request);
    if !request.is_head {
        out.append(&mut body);
    }
    if request.close {
        Flow::Close
    } else {
        Flow::Next
    }
}

/// The same that says why nothing is done.
pub fn failure(out: &mut Output, failure: &Failure, request: &RequestHead) -> Flow {
    let text = json::object(|members| members.text("error", failure.text.as_bytes())) + "\n";
    let mut body = Output::new();
    body.text().extend_from_slice(text.as_bytes());
    whole(out, failure.status, Kind::Json, body, request)
}

pub fn go_ahead(out: &mut Output) {
    out.text().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
}

/// What a request comes to: the body of a reply, or why there is none.
pub type HttpAnswer = Result<(Kind, Output), Failure>;

pub fn not_found(what: &str) -> Failure {
    Failure::new(404, format!("there is no such {what}"))
}
