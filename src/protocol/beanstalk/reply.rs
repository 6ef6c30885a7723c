//! The exact text of the beanstalk replies.
//! Enforces promise P36 of beanpole-promises(7).

use crate::engine::{JobId, JobView, NoJob, Priority, State};
use crate::protocol::text::{push_number, push_tube_name};
use crate::protocol::Output;

pub const OUT_OF_MEMORY: &[u8] = b"OUT_OF_MEMORY\r\n";
pub const BAD_FORMAT: &[u8] = b"BAD_FORMAT\r\n";
pub const UNKNOWN_COMMAND: &[u8] = b"UNKNOWN_COMMAND\r\n";
pub const EXPECTED_CRLF: &[u8] = b"EXPECTED_CRLF\r\n";
pub const JOB_TOO_BIG: &[u8] = b"JOB_TOO_BIG\r\n";
pub const DRAINING: &[u8] = b"DRAINING\r\n";
pub const TUBE_FULL: &[u8] = b"TUBE_FULL\r\n";
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
pub const NOT_IGNORED: &[u8] = b"NOT_IGNORED\r\n";
pub const DELETED: &[u8] = b"DELETED\r\n";
pub const RELEASED: &[u8] = b"RELEASED\r\n";
pub const BURIED: &[u8] = b"BURIED\r\n";
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
pub const KICKED: &[u8] = b"KICKED\r\n";
pub const PAUSED: &[u8] = b"PAUSED\r\n";
pub const AUTHENTICATED: &[u8] = b"AUTHENTICATED\r\n";
pub const UNAUTHORIZED: &[u8] = b"UNAUTHORIZED\r\n";
pub const FORBIDDEN: &[u8] = b"FORBIDDEN\r\n";
pub const MOVED: &[u8] = b"MOVED\r\n";
pub const SET: &[u8] = b"SET\r\n";
pub const NAMED: &[u8] = b"NAMED\r\n";
pub const REVOKED: &[u8] = b"REVOKED\r\n";
pub const LIMITED: &[u8] = b"LIMITED\r\n";
pub const NOT_DRAINING: &[u8] = b"NOT_DRAINING\r\n";
pub const TIMED_OUT: &[u8] = b"TIMED_OUT\r\n";
pub const DEADLINE_SOON: &[u8] = b"DEADLINE_SOON\r\n";

pub fn words(out: &mut Output, words: &[u8]) {
    out.text().extend_from_slice(words);
}

pub fn found(out: &mut Output, found: bool, done: &[u8]) {
    words(out, if found { done } else { NOT_FOUND });
}

pub fn numbered(out: &mut Output, word: &[u8], number: u64) {
    numbers(out, word, [number]);
}

#[inline(always)] // for speed: RESERVED has two numbers
pub fn numbers<const N: usize>(out: &mut Output, word: &[u8], numbers: [u64; N]) {
    let text = out.text();
    text.extend_from_slice(word);
    for number in numbers {
        text.push(b' ');
        push_number(text, number);
    }
    text.extend_from_slice(b"\r\n");
}

/// `state` is `None` if the job has ended. `raised` is the new priority of the job if the put has raised it.
pub fn duplicate(out: &mut Output, id: JobId, state: Option<State>, raised: Option<Priority>) {
    let state = match state {
        Some(State::Held) => State::Delayed.word(),
        Some(State::Finished) | None => "deleted",
        Some(state) => state.word(),
    };
    let raised = raised.map_or(String::new(), |pri| format!(" {pri}"));
    words(out, format!("INSERTED {} {}{raised}\r\n", id.0, state.to_ascii_uppercase()).as_bytes());
}

pub fn scheduled(out: &mut Output, id: JobId, replaced: bool) {
    let state = if replaced { "REPLACED" } else { "SCHEDULED" };
    words(out, format!("INSERTED {} {state}\r\n", id.0).as_bytes());
}

pub fn using(out: &mut Output, name: &[u8]) {
    let text = out.text();
    text.extend_from_slice(b"USING ");
    push_tube_name(text, name);
    text.extend_from_slice(b"\r\n");
}

pub fn job(out: &mut Output, word: &[u8], job: Option<JobView>) {
    let Some(job) = job else { return words(out, NOT_FOUND) };
    numbers(out, word, [job.id().0, job.body().len() as u64]);
    out.body(job.body());
    out.text().extend_from_slice(b"\r\n");
}

pub fn no_job(out: &mut Output, why: NoJob, batch: bool) {
    match why {
        NoJob::TimedOut if batch => numbered(out, b"RESERVED_BATCH", 0),
        NoJob::TimedOut => words(out, TIMED_OUT),
        NoJob::DeadlineSoon => words(out, DEADLINE_SOON),
    }
}

/// A long list is moved, not copied.
pub fn list(out: &mut Output, mut list: Output) {
    numbered(out, b"OK", list.len() as u64);
    out.append(&mut list);
    words(out, b"\r\n");
}

pub fn yaml(out: &mut Output, body: Option<Vec<u8>>) {
    let Some(body) = body else { return words(out, NOT_FOUND) };
    numbered(out, b"OK", body.len() as u64);
    words(out, &body);
    words(out, b"\r\n");
}
