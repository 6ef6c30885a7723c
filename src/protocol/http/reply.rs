//! Encoding of HTTP replies: status lines, headers that protect browsers, and error bodies.

use super::page;
use super::types::{Failure, RequestHead};
use crate::access::{Denied, Need};
use crate::protocol::{Flow, Output};
use crate::shared::json::Members;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Json,
    Metrics,
    Page,
    Text,
    /// The body of a job can have any content type.
    Bytes,
}

const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// For every reply: no type guessing, framing, caching, or use by other sites.
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

/// The caller must append a body of `length` bytes, except for HEAD.
fn head(out: &mut Output, status: u16, kind: Kind, length: usize, request: &RequestHead) {
    let kind_name = match kind {
        Kind::Json => "application/json",
        Kind::Metrics => "text/plain; version=0.0.4; charset=utf-8",
        Kind::Page => "text/html; charset=utf-8",
        Kind::Text => "text/plain; charset=utf-8",
        Kind::Bytes => "application/octet-stream\r\nContent-Disposition: attachment",
    };
    let policy = if kind == Kind::Page { page::policy() } else { POLICY.to_owned() };
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

pub fn failure(out: &mut Output, failure: &Failure, request: &RequestHead) -> Flow {
    let (_, body) = object(|members| members.text("error", failure.text.as_bytes()));
    whole(out, failure.status, Kind::Json, body, request)
}

/// `awaits_body` means that the body has not been read.
pub fn denied(out: &mut Output, denied: Denied, need: Need, awaits_body: bool, request: &RequestHead) -> Flow {
    let (status, text) = match denied {
        Denied::Forbidden => {
            let rights: Vec<&str> = need.rights.iter().map(|right| right.name()).collect();
            (403, format!("this needs the right {} there", rights.join(" or ")))
        }
        Denied::Unknown if request.token.is_none() => (401, "a token is needed: Authorization: Bearer".to_owned()),
        Denied::Unknown => (401, "the token is wrong, or came where others can read it".to_owned()),
    };
    // Guessing tokens is slower with a new connection for each. The body of an unauthenticated request is not read.
    let closes = denied == Denied::Unknown && (request.token.is_some() || awaits_body);
    let head = RequestHead { close: request.close || closes, ..request.clone() };
    failure(out, &Failure::new(status, text), &head)
}

pub fn go_ahead(out: &mut Output) {
    out.text().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
}

pub type HttpBody = (Kind, Output);

pub type HttpAnswer = Result<HttpBody, Failure>;

pub fn bytes(kind: Kind, bytes: &[u8]) -> HttpBody {
    let mut body = Output::new();
    body.text().extend_from_slice(bytes);
    (kind, body)
}

pub fn object(fill: impl FnOnce(&mut Members)) -> HttpBody {
    let mut body = Output::new();
    let text = body.text();
    let mut members = Members::begin(text);
    fill(&mut members);
    members.end();
    text.push(b'\n');
    (Kind::Json, body)
}

/// `key` names the number of changed jobs. `stopped` is the reason for an early stop.
pub fn changed(key: &str, count: u64, stopped: Option<&str>) -> HttpAnswer {
    Ok(object(|members| {
        members.number(key, count);
        stopped.into_iter().for_each(|why| members.text("stopped", why.as_bytes()));
    }))
}

pub fn not_found(what: &str) -> Failure {
    Failure::new(404, format!("there is no such {what}"))
}
