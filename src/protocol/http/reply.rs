//! Encoding of HTTP replies: status lines, headers that protect browsers, error bodies, and JSON objects.

use super::page;
use crate::access::{Denied, Digest, Need};
use crate::engine::{beginning, Engine, JobView, Span, State, Time, TubeStats};
use crate::protocol::beanstalk::{job_figures, tube_settings, tube_times, TUBE_FIGURES};
use crate::protocol::{FigureValue, Flow, Output};
use crate::shared::json::{self, Members};

pub const JSON: &str = "application/json";
pub const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
pub const HTML: &str = "text/html; charset=utf-8";
pub const TEXT: &str = "text/plain; charset=utf-8";
/// The body of a job can contain anything, so a browser must save the body instead of showing it.
pub const BYTES: &str = "application/octet-stream\r\nContent-Disposition: attachment";
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// Headers of every reply. They forbid type guessing, framing, referrers, caching, and use by other sites.
const GUARDS: &str = "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\nCache-Control: no-store\r\n";

#[rustfmt::skip]
const REASONS: [(u16, &str); 14] = [
    (200, "OK"), (400, "Bad Request"), (401, "Unauthorized"), (403, "Forbidden"), (404, "Not Found"),
    (405, "Method Not Allowed"), (409, "Conflict"), (411, "Length Required"), (413, "Content Too Large"),
    (415, "Unsupported Media Type"), (417, "Expectation Failed"), (421, "Misdirected Request"),
    (431, "Request Header Fields Too Large"), (505, "HTTP Version Not Supported"),
];

fn reason(status: u16) -> &'static str {
    REASONS.iter().find(|(known, _)| *known == status).map_or("Service Unavailable", |(_, reason)| reason)
}

/// The caller must append a body of `length` bytes, except for a HEAD request.
fn head(out: &mut Output, status: u16, kind: &'static str, length: usize, request: &RequestHead) {
    let policy = if kind == HTML { page::policy() } else { POLICY.to_owned() };
    let advice = match status {
        401 => "WWW-Authenticate: Bearer\r\n",
        405 => "Allow: GET, HEAD, POST\r\n",
        _ => "",
    };
    let close = if request.close { "Connection: close\r\n" } else { "" };
    let text = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{GUARDS}\
         Content-Security-Policy: {policy}\r\n{advice}{close}\r\n",
        reason(status)
    );
    out.text().extend_from_slice(text.as_bytes());
}

pub fn whole(out: &mut Output, status: u16, kind: &'static str, mut body: Output, request: &RequestHead) -> Flow {
    head(out, status, kind, body.len(), request);
    if !request.is_head {
        out.append(&mut body);
    }
    match request.close {
        true => Flow::Close,
        false => Flow::Next,
    }
}

pub fn failure(out: &mut Output, failure: &Failure, request: &RequestHead) -> Flow {
    let (_, body) = object(|members| members.text("error", failure.text.as_bytes()));
    whole(out, failure.status, JSON, body, request)
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
    // Disconnect an unidentified client if the body stays unread, or if the token is wrong, to slow down guessing.
    let closes = denied == Denied::Unknown && (request.token.is_some() || awaits_body);
    failure(out, &Failure::new(status, text), &RequestHead { close: request.close || closes, ..request.clone() })
}

pub type HttpBody = (&'static str, Output);
pub type HttpAnswer = Result<HttpBody, Failure>;

pub fn bytes(kind: &'static str, bytes: &[u8]) -> HttpBody {
    let mut body = Output::new();
    body.text().extend_from_slice(bytes);
    (kind, body)
}

pub fn object(fill: impl FnOnce(&mut Members)) -> HttpBody {
    let mut body = Output::new();
    let text = body.text();
    json::push_object(text, fill);
    text.push(b'\n');
    (JSON, body)
}

/// `key` is the JSON key of `count`, the number of changed jobs. `stopped` is the reason for an early stop.
pub fn changed(key: &str, count: u64, stopped: Option<&str>) -> HttpAnswer {
    Ok(object(|members| {
        members.number(key, count);
        stopped.into_iter().for_each(|why| members.text("stopped", why.as_bytes()));
    }))
}

pub fn not_found(what: &str) -> Failure {
    Failure::new(404, format!("there is no such {what}"))
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestHead {
    /// The size of the request line and the headers in bytes.
    pub size: usize,
    pub is_head: bool,
    pub close: bool,
    /// `true` if the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// `None` if the header is missing or duplicated, but `localhost` if it is missing in an HTTP/1.0 request.
    pub host: Option<Box<str>>,
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

    pub fn check(is_valid: bool, status: u16, text: &str) -> Result<(), Failure> {
        is_valid.then_some(()).ok_or_else(|| Failure::new(status, text))
    }
}

/// The maximum number of body bytes in a reply about one job.
pub const MAX_BODY: usize = 64 * 1024;
/// The maximum number of body bytes for each job in a list.
pub const MAX_LIST_BODY: usize = 120;

pub type TubeValues = [u64; TUBE_FIGURES.len()];

pub fn tube_values(tube: &TubeStats) -> TubeValues {
    TUBE_FIGURES.map(|(_, of)| of(tube))
}

pub fn tube_members(members: &mut Members, name: &[u8], values: &TubeValues) {
    members.bytes("name", name);
    TUBE_FIGURES.iter().zip(values).for_each(|((name, _), value)| members.number(name, *value));
}

/// Writes members that lists of tubes omit. `oldest` contains the ages of the oldest ready, delayed and buried jobs.
pub fn time_members(members: &mut Members, tube: &TubeStats, oldest: [Span; 3]) {
    let counts = [("current-jobs-held", tube.jobs.held), ("current-jobs-scheduled", tube.jobs.scheduled)];
    counts.into_iter().filter(|(_, jobs)| *jobs > 0).for_each(|(key, jobs)| members.number(key, jobs));
    tube_times(tube, oldest, |key, value| figure(members, key, value));
    tube.settings.into_iter().for_each(|settings| members.text("settings", &tube_settings(settings)));
}

/// Durations are written in seconds.
pub fn figure(members: &mut Members, key: &str, value: FigureValue) {
    match value {
        FigureValue::Number(number) => members.number(key, number),
        FigureValue::Micros(micros) => members.raw(key, &seconds(u128::from(micros) * 1000)),
        FigureValue::Truth(value) => members.truth(key, value),
        FigureValue::Word(text) => members.text(key, text),
        FigureValue::Name(text) | FigureValue::Text(text) => members.bytes(key, text),
    }
}

pub fn job_members(members: &mut Members, engine: &Engine, job: &JobView, shown: usize, now: Time) {
    if let Some(stats) = engine.job_stats(job.id(), now) {
        job_figures(&stats, engine.stored_options(job).as_ref(), now, &mut |key, value| {
            figure(members, key, value);
            if key == "time-left" && job.state() == State::Reserved {
                members.number("job-age", job.taken_for(now).secs());
            }
        });
        let copy = stats.blocked_by.and_then(|id| engine.job(id));
        copy.into_iter().for_each(|copy| members.text("blocked-by-state", copy.state().word().as_bytes()));
    }
    let body = job.body();
    members.number("size", body.len() as u64);
    let part = beginning(body.bytes(), shown);
    members.bytes("body", part);
    members.truth("truncated", part.len() < body.len());
}

/// Converts nanoseconds to seconds, without trailing zeros.
pub fn seconds(nanos: u128) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
