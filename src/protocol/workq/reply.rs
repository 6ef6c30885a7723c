//! The exact text of the Workq replies, as in the original server. Server errors, which the original server never
//! sends, have their own texts.

use std::ops::Range;

use super::Uuid;
use crate::engine::{push_uuid, BodyRef};
use crate::protocol::text::push_number;
use crate::protocol::Output;

pub type Words = &'static [u8];

pub const OK: Words = b"+OK\r\n";
pub const TIMEOUT: Words = b"-TIMEOUT\r\n";
pub const NOT_FOUND: Words = b"-NOT-FOUND\r\n";
pub const UNKNOWN_COMMAND: Words = b"-CLIENT-ERROR Unknown command\r\n";
pub const INVALID_ARGS: Words = b"-CLIENT-ERROR Invalid command args\r\n";
pub const INVALID_FLAGS: Words = b"-CLIENT-ERROR Invalid command flags\r\n";
pub const INVALID_PAYLOAD: Words = b"-CLIENT-ERROR Invalid payload size\r\n";
pub const INVALID_RESULT: Words = b"-CLIENT-ERROR Invalid result size\r\n";
pub const INVALID_ID: Words = b"-CLIENT-ERROR Invalid ID\r\n";
pub const INVALID_NAME: Words = b"-CLIENT-ERROR Invalid Name\r\n";
pub const INVALID_TTR: Words = b"-CLIENT-ERROR Invalid TTR\r\n";
pub const INVALID_TTL: Words = b"-CLIENT-ERROR Invalid TTL\r\n";
pub const INVALID_TIME: Words = b"-CLIENT-ERROR Invalid Time\r\n";
pub const INVALID_MAX_ATTEMPTS: Words = b"-CLIENT-ERROR Invalid Max Attempts\r\n";
pub const INVALID_MAX_FAILS: Words = b"-CLIENT-ERROR Invalid Max Fails\r\n";
pub const INVALID_PRIORITY: Words = b"-CLIENT-ERROR Invalid Priority\r\n";
pub const INVALID_WAIT: Words = b"-CLIENT-ERROR Invalid wait timeout\r\n";
pub const INVALID_OFFSET: Words = b"-CLIENT-ERROR Invalid cursor offset\r\n";
pub const INVALID_LIMIT: Words = b"-CLIENT-ERROR Invalid limit\r\n";
pub const DUPLICATE_JOB: Words = b"-CLIENT-ERROR Duplicate job\r\n";
pub const DUPLICATE_RESULT: Words = b"-CLIENT-ERROR Duplicate result\r\n";
pub const LINE_TOO_LONG: Words = b"-CLIENT-ERROR Line too long\r\n";
pub const UNAUTHORIZED: Words = b"-CLIENT-ERROR Unauthorized\r\n";
pub const FORBIDDEN: Words = b"-CLIENT-ERROR Forbidden\r\n";
pub const OUT_OF_MEMORY: Words = b"-SERVER-ERROR Out of memory\r\n";
pub const DRAINING: Words = b"-SERVER-ERROR Draining\r\n";
pub const QUEUE_FULL: Words = b"-SERVER-ERROR Queue full\r\n";
pub const TOO_MANY_NAMES: Words = b"-SERVER-ERROR Too many names\r\n";
pub const TOO_MANY_CONNECTIONS: Words = b"-SERVER-ERROR Too many connections\r\n";

pub fn words(out: &mut Output, words: Words) {
    out.text().extend_from_slice(words);
}

pub fn count(out: &mut Output, count: usize) {
    let text = out.text();
    text.extend_from_slice(b"+OK ");
    push_number(text, count as u64);
    text.extend_from_slice(b"\r\n");
}

pub fn leased(out: &mut Output, id: &Uuid, name: &[u8], ttr: u64, payload: BodyRef) {
    count(out, 1);
    let text = out.text();
    push_uuid(text, id);
    text.push(b' ');
    text.extend_from_slice(name);
    text.push(b' ');
    push_number(text, ttr);
    size(text, payload.len());
    part(out, payload, 0..payload.len());
}

/// The caller must append the result, which has `length` bytes.
pub fn outcome(out: &mut Output, id: &Uuid, done: bool, length: usize) {
    count(out, 1);
    let text = out.text();
    push_uuid(text, id);
    text.extend_from_slice(if done { b" 1" } else { b" 0" });
    size(text, length);
}

fn size(text: &mut Vec<u8>, size: usize) {
    text.push(b' ');
    push_number(text, size as u64);
    text.extend_from_slice(b"\r\n");
}

/// Does not copy a large body.
pub fn part(out: &mut Output, body: BodyRef, part: Range<usize>) {
    out.part(body, part);
    out.text().extend_from_slice(b"\r\n");
}
