//! Records which jobs must exist. Does not record their states.
//!
//! Owns the list of acknowledged jobs. The reply INSERTED, or the HTTP response to a put, adds a job to the list. A
//! command that can end a job removes this job from the list. Must not depend on other replies or commands.

use std::collections::BTreeSet;

use beanpole::internals::engine::{Engine, JobId};

#[derive(Clone, Default)]
pub struct Books {
    owned: BTreeSet<u64>,
    /// Jobs that a client may have ended. A job can be ended before its producer has read the reply to the put.
    ended: BTreeSet<u64>,
    /// `true` after a command that can end any job. From then on, no jobs are recorded.
    closed: bool,
}

/// Returns all numbers in a line, including the number at the end of a job handle.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let runs = bytes.split(|byte| !byte.is_ascii_digit()).filter(|run| !run.is_empty());
    runs.filter_map(|run| std::str::from_utf8(run).ok()?.parse().ok())
}

/// Commands that can end the job whose ID they contain.
const ENDS: [&[u8]; 5] = [b"delete ", b"delete-batch ", b"cancel job", b"complete ", b"fail "];
const PACKETS: [u8; 3] = [13, 14, 25];

/// Returns `true` if a reply reports a change that the log must contain.
pub fn is_promise(line: &[u8]) -> bool {
    const WORDS: [&[u8]; 6] =
        [b"REVOKED\r\n", b"DELETED\r\n", b"RELEASED\r\n", b"BURIED\r\n", b"KICKED\r\n", b"MOVED\r\n"];
    // A reply with more words reports a schedule, or an earlier job with the same idempotency key.
    let is_new = line.starts_with(b"INSERTED ") && line.iter().filter(|&&byte| byte == b' ').count() == 1;
    WORDS.contains(&line) || is_new || line.starts_with(b"KICKED ") && line != b"KICKED 0\r\n"
}

impl Books {
    pub fn got(&mut self, line: &[u8]) {
        // This reply contains the ID of an ended job whose idempotency key still exists.
        let is_gone = line.ends_with(b" DELETED\r\n");
        let acknowledged =
            line.strip_prefix(b"INSERTED ").or(line.strip_prefix(b"{\"id\":").filter(|_| line.len() < 30));
        if let Some(id) = acknowledged.and_then(|rest| numbers(rest).next()) {
            if !self.ended.contains(&id) && !self.closed && !is_gone {
                self.owned.insert(id);
            }
        }
    }

    /// Records a command that a client will send. From now on, the jobs that the command names need not exist. Must be
    /// called with the complete command: the client may send it in pieces, and a piece of an ID can equal another ID.
    pub fn note_command(&mut self, command: &[u8]) {
        let is_packet = command.starts_with(b"\0REQ") && PACKETS.contains(&command[7]);
        let has = |word: &[u8]| command.windows(word.len()).any(|part| part == word);
        // The request can directly follow the body of the previous HTTP request, which has no line break at its end.
        let request = command.windows(10).position(|part| part == b"POST /api/").map(|at| &command[at + 10..]);
        let path = request.map(|rest| rest.split(|&byte| byte == b' ').next().unwrap_or(rest));
        let is_sweep = command.starts_with(b"flush-") || command.starts_with(b"drop function");
        let expires = (command.starts_with(b"put ") || command.starts_with(b"set-tube ")) && has(b" ttl:");
        // A job gets a new ID when it is moved over HTTP.
        if is_sweep || expires || path.is_some() && (has(b"/clear ") || has(b"/move ")) {
            self.closed = true;
            self.owned.clear();
        } else if let Some(path) = path.filter(|_| has(b"/delete ")) {
            for id in numbers(path) {
                self.owned.remove(&id);
                self.ended.insert(id);
            }
        } else if is_packet || ENDS.iter().any(|word| command.starts_with(word)) {
            let from = if is_packet { 12 } else { 0 };
            for id in numbers(&command[from..]) {
                self.owned.remove(&id);
                self.ended.insert(id);
            }
        }
    }

    /// Removes all jobs. Required if the log was damaged deliberately, or does not guarantee that jobs survive.
    pub fn forget(&mut self) {
        self.owned.clear();
    }

    // Checks promises P1 and P12 of beanpole-promises(7).
    pub fn compare(&self, engine: &Engine) -> Result<(), String> {
        match self.owned.iter().find(|id| engine.any_job(JobId(**id)).is_none()) {
            Some(id) => Err(format!("job {id} was acknowledged, but is missing")),
            None => Ok(()),
        }
    }

    // Checks promise P1 of beanpole-promises(7).
    pub fn are_among(&self, ids: &BTreeSet<u64>) -> Result<(), String> {
        match self.owned.difference(ids).next() {
            Some(id) => Err(format!("job {id} was acknowledged, but was never delivered")),
            None => Ok(()),
        }
    }
}
