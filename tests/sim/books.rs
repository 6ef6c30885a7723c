//! Which jobs there must be, whatever anybody does.
//!
//! Owns the account of acknowledged jobs: a client that was told INSERTED has a job, until somebody sends what may end
//! it. Knows of replies and commands only what it takes for that.

use std::collections::BTreeSet;

use beanpole::internals::engine::{Engine, JobId};

/// See the module's page.
#[derive(Clone, Default)]
pub struct Books {
    owned: BTreeSet<u64>,
    /// What somebody may have ended, perhaps before the client that owns it has read that it does.
    ended: BTreeSet<u64>,
    /// Somebody may have ended whatever there was: nothing can be said of any job any more.
    closed: bool,
}

/// The number at the end of a line's word, such as that of a handle.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let runs = bytes.split(|byte| !byte.is_ascii_digit()).filter(|run| !run.is_empty());
    runs.filter_map(|run| std::str::from_utf8(run).ok()?.parse().ok())
}

/// Words, or the numbers of Gearman's packets, of commands that may end a job that they name.
const ENDS: [&[u8]; 5] = [b"delete ", b"delete-batch ", b"cancel job", b"complete ", b"fail "];
const PACKETS: [u8; 3] = [13, 14, 25];

/// Whether a line tells of a change that the log must have by then.
pub fn is_promise(line: &[u8]) -> bool {
    const WORDS: [&[u8]; 6] =
        [b"REVOKED\r\n", b"DELETED\r\n", b"RELEASED\r\n", b"BURIED\r\n", b"KICKED\r\n", b"MOVED\r\n"];
    // A duplicate's reply has more words.
    let is_new = line.starts_with(b"INSERTED ") && line.iter().filter(|&&byte| byte == b' ').count() == 1;
    WORDS.contains(&line) || is_new || line.starts_with(b"KICKED ") && line != b"KICKED 0\r\n"
}

impl Books {
    /// A client has got this whole line.
    pub fn got(&mut self, line: &[u8]) {
        // What a key has kept of it is all there is.
        let is_gone = line.ends_with(b" DELETED\r\n");
        let acknowledged =
            line.strip_prefix(b"INSERTED ").or(line.strip_prefix(b"{\"id\":").filter(|_| line.len() < 30));
        if let Some(id) = acknowledged.and_then(|rest| numbers(rest).next()) {
            if !self.ended.contains(&id) && !self.closed && !is_gone {
                self.owned.insert(id);
            }
        }
    }

    /// A client sends this command, or a part of it: what it may end need not be there any more. Nobody can tell which
    /// job half a number means, so a command counts when it is chosen.
    pub fn said(&mut self, command: &[u8]) {
        let is_packet = command.starts_with(b"\0REQ") && PACKETS.contains(&command[7]);
        let has = |word: &[u8]| command.windows(word.len()).any(|part| part == word);
        // In front of it may stand the body of the request before, which ends in no line.
        let request = command.windows(10).position(|part| part == b"POST /api/").map(|at| &command[at + 10..]);
        let path = request.map(|rest| rest.split(|&byte| byte == b' ').next().unwrap_or(rest));
        let is_sweep = command.starts_with(b"flush-") || command.starts_with(b"drop function");
        let expires = (command.starts_with(b"put ") || command.starts_with(b"set-tube ")) && has(b" ttl:");
        // What HTTP moves has another id afterwards.
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

    /// Everything is forgotten: the log was damaged on purpose, or promised less.
    pub fn forget(&mut self) {
        self.owned.clear();
    }

    /// Whether all are there.
    pub fn compare(&self, engine: &Engine) -> Result<(), String> {
        match self.owned.iter().find(|id| engine.any_job(JobId(**id)).is_none()) {
            Some(id) => Err(format!("job {id} was acknowledged, and is gone")),
            None => Ok(()),
        }
    }

    /// Whether all were among these.
    pub fn are_among(&self, ids: &BTreeSet<u64>) -> Result<(), String> {
        match self.owned.difference(ids).next() {
            Some(id) => Err(format!("job {id} was acknowledged, and nobody got it in the end")),
            None => Ok(()),
        }
    }
}
