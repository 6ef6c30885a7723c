//! The commands of a history: the bytes to send, the expected replies, and the resulting changes.
//!
//! Owns the syntax of each command in its protocol. Must not choose commands or record events.

use std::io::Result;

use crate::book::{Body, Book, Change, Job, Place, Wire};
use crate::lanes::Promise;
use crate::talk::*;

/// A time to run or time to live, in seconds, that is longer than any history.
pub const LONG: u64 = 3600;

/// A command. Jobs are identified by their keys in the book.
#[derive(Clone, Debug)]
pub enum Act {
    Put {
        tube: String,
        pri: u32,
        delay: u64,
        body: Body,
        tags: String,
    },
    ReserveAny,
    Reserve(String),
    Delete(String),
    Release {
        key: String,
        pri: u32,
        delay: u64,
    },
    Bury {
        key: String,
        pri: u32,
    },
    Kick {
        tube: String,
        bound: u64,
    },
    KickJob(String),
    Touch(String),
    Pause {
        tube: String,
        seconds: u64,
    },
    Move {
        key: String,
        tube: String,
        pri: u32,
        delay: u64,
    },
    Flush(String),
    Set {
        tube: String,
        settings: String,
    },
    Submit {
        function: String,
        unique: String,
        body: Body,
        kept: bool,
    },
    Grab,
    /// A Gearman worker completes the job. The server sends no reply.
    Finish {
        key: String,
        done: bool,
    },
    Add {
        id: String,
        queue: String,
        max_fails: u32,
        body: Body,
    },
    Lease {
        queue: String,
    },
    Outcome {
        id: String,
        done: bool,
        result: Body,
    },
    Remove(String),
}

pub struct Reply {
    pub line: String,
    /// The key of the job that the reply names, or an empty string.
    pub key: String,
}

impl Act {
    pub fn wire(&self) -> Wire {
        match self {
            Act::Submit { .. } | Act::Grab | Act::Finish { .. } => Wire::Gearman,
            Act::Add { .. } | Act::Lease { .. } | Act::Outcome { .. } | Act::Remove(_) => Wire::Workq,
            _ => Wire::Beanstalk,
        }
    }

    /// Returns the existing job that the server joins a submission with, if any.
    fn joins<'a>(&self, book: &'a Book) -> Option<(&'a String, &'a Job)> {
        match self {
            Act::Submit { function, unique, .. } if !unique.is_empty() => {
                book.jobs.iter().find(|(_, job)| job.tube == *function && job.unique == *unique)
            }
            Act::Add { id, .. } => book.jobs.get_key_value(id),
            _ => None,
        }
    }

    /// Returns the key of the job that the reply is about, if another client has put the job.
    pub fn about(&self, reply: &Reply) -> Option<String> {
        match self {
            Act::Submit { kept: true, .. } => Some(reply.key.clone()),
            Act::Add { id, .. } => Some(id.clone()),
            _ => None,
        }
    }

    /// Returns the guarantee of a successful reply.
    pub fn promise(&self, book: &Book) -> Promise {
        match (self, self.joins(book)) {
            (Act::Submit { kept: true, .. }, Some((_, job))) if job.volatile => Promise::New,
            (Act::Submit { kept: true, .. } | Act::Add { .. }, Some(_)) => Promise::Hearsay,
            (Act::Submit { kept: true, .. } | Act::Add { .. } | Act::Put { .. }, _) => Promise::New,
            // The log only stores the result of a failed attempt if it is the last attempt.
            (Act::Outcome { id, done, .. }, _) => match book.jobs.get(id) {
                Some(job) if !done && job.counts[1] + 1 < job.max_fails => Promise::Change,
                _ => Promise::New,
            },
            (Act::Submit { .. } | Act::Grab | Act::Finish { .. }, _) => Promise::None,
            (Act::ReserveAny | Act::Reserve(_) | Act::Touch(_), _) => Promise::None,
            _ => Promise::Change,
        }
    }

    pub fn bytes(&self, book: &Book) -> Vec<u8> {
        let data = |line: String, body: &Body| [line.as_bytes(), b"\r\n", &body.bytes(), b"\r\n"].concat();
        let handle = |key: &str| format!("H:{}:{key}", hostname());
        match self {
            Act::Put { tube, pri, delay, body, tags } => {
                let between = if tags.is_empty() { "" } else { " " };
                data(format!("use {tube}\r\nput {pri} {delay} {LONG} {}{between}{tags}", body.length), body)
            }
            Act::ReserveAny => b"reserve-with-timeout 0\r\n".to_vec(),
            Act::Reserve(key) => format!("reserve-job {key}\r\n").into_bytes(),
            Act::Delete(key) => format!("delete {key}\r\n").into_bytes(),
            Act::Release { key, pri, delay } => format!("release {key} {pri} {delay}\r\n").into_bytes(),
            Act::Bury { key, pri } => format!("bury {key} {pri}\r\n").into_bytes(),
            Act::Kick { tube, bound } => format!("use {tube}\r\nkick {bound}\r\n").into_bytes(),
            Act::KickJob(key) => format!("kick-job {key}\r\n").into_bytes(),
            Act::Touch(key) => format!("touch {key}\r\n").into_bytes(),
            Act::Pause { tube, seconds } => format!("pause-tube {tube} {seconds}\r\n").into_bytes(),
            Act::Move { key, tube, pri, delay } => format!("move-job {key} {tube} {pri} {delay}\r\n").into_bytes(),
            Act::Flush(tube) => format!("flush-tube {tube}\r\n").into_bytes(),
            Act::Set { tube, settings } => {
                format!("{}\r\n", format!("set-tube {tube} {settings}").trim_end()).into_bytes()
            }
            Act::Submit { function, unique, body, kept } => {
                let kind = if *kept { SUBMIT_JOB_BG } else { SUBMIT_JOB };
                packet(kind, &[function.as_bytes(), unique.as_bytes(), &body.bytes()])
            }
            Act::Grab => packet(GRAB_JOB, &[]),
            // The reply to the echo request shows that the server has executed the command.
            Act::Finish { key, done: true } => {
                [packet(WORK_COMPLETE, &[handle(key).as_bytes(), b"done"]), packet(ECHO_REQ, &[b"x"])].concat()
            }
            Act::Finish { key, done: false } => {
                [packet(WORK_FAIL, &[handle(key).as_bytes()]), packet(ECHO_REQ, &[b"x"])].concat()
            }
            Act::Add { id, queue, max_fails, body } => {
                let millis = LONG * 1000;
                let flag = if *max_fails > 0 { format!(" -max-fails={max_fails}") } else { String::new() };
                data(format!("add {id} {queue} {millis} {millis} {}{flag}", body.length), body)
            }
            Act::Lease { queue } => format!("lease {queue} 0\r\n").into_bytes(),
            Act::Outcome { id, done, result } => {
                let word = if *done { "complete" } else { "fail" };
                // Without the job, the server would reply before it has read the result.
                debug_assert!(book.jobs.contains_key(id));
                data(format!("{word} {id} {}", result.length), result)
            }
            Act::Remove(id) => format!("delete {id}\r\n").into_bytes(),
        }
    }

    pub fn read(&self, talk: &mut Talk) -> Result<Reply> {
        match self.wire() {
            Wire::Beanstalk => {
                if matches!(self, Act::Put { .. } | Act::Kick { .. }) {
                    talk.line()?;
                }
                let line = talk.reply()?.0;
                let key = match self {
                    Act::Kick { .. } | Act::Flush(_) => String::new(),
                    _ => line.split(' ').nth(1).unwrap_or_default().to_owned(),
                };
                Ok(Reply { line, key })
            }
            Wire::Gearman => {
                let (kind, arguments) = talk.packet()?;
                let named = matches!(kind, JOB_CREATED | JOB_ASSIGN);
                let handle = String::from_utf8_lossy(&arguments[0]).into_owned();
                let key = handle.rsplit(':').next().filter(|_| named).unwrap_or_default().to_owned();
                Ok(Reply { line: format!("packet {kind}"), key })
            }
            Wire::Workq => {
                let line = talk.line()?;
                let mut key = String::new();
                if matches!(self, Act::Lease { .. }) && line == "+OK 1" {
                    let head = talk.line()?;
                    let words: Vec<&str> = head.split(' ').collect();
                    key = words[0].to_owned();
                    talk.data(words[3].parse().unwrap_or(0))?;
                }
                Ok(Reply { line, key })
            }
        }
    }

    /// Returns the changes of a successful command, except those that depend on the reply.
    pub fn expected(&self, book: &Book) -> Vec<Change> {
        let key = |key: &String| key.clone();
        match self {
            Act::Reserve(job) => vec![Change::Reserve(key(job))],
            Act::Delete(job) | Act::Finish { key: job, .. } | Act::Remove(job) => vec![Change::Delete(key(job))],
            Act::Release { key: job, pri, delay } => {
                vec![Change::Release { key: key(job), pri: *pri, delay: *delay }]
            }
            Act::Bury { key: job, pri } => vec![Change::Bury { key: key(job), pri: *pri }],
            Act::KickJob(job) => vec![Change::Kick(key(job))],
            Act::Pause { tube, seconds } => vec![Change::Pause { tube: tube.clone(), seconds: *seconds }],
            Act::Move { key: job, tube, pri, delay } => {
                vec![Change::Move { key: key(job), tube: tube.clone(), pri: *pri, delay: *delay }]
            }
            Act::Flush(tube) => flushed(book, tube),
            // Setting the same value again changes nothing, so the reply guarantees nothing.
            Act::Set { tube, settings } if book.settings.get(tube).map_or("", String::as_str) == settings => Vec::new(),
            Act::Set { tube, settings } => vec![Change::Set { tube: tube.clone(), settings: settings.clone() }],
            Act::Outcome { id, done, result } => {
                vec![Change::Outcome { key: key(id), done: *done, result: result.clone() }]
            }
            Act::Kick { tube, bound } => kicked(book, tube, *bound),
            Act::Add { id, queue, max_fails, body } if !book.jobs.contains_key(id) => {
                let job = Job::new(Wire::Workq, queue, body.clone(), 0, 0, LONG);
                vec![Change::Put { key: key(id), job: Box::new(Job { max_fails: *max_fails, ..job }) }]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the changes that the reply confirms, or an error if the reply is wrong.
    pub fn changes(&self, book: &Book, reply: &Reply) -> std::result::Result<Vec<Change>, String> {
        let Reply { line, key } = reply;
        let joined = self.joins(book).map(|(key, job)| (key.clone(), job.volatile));
        let well = match (self, joined) {
            (Act::Put { tube, pri, delay, body, tags }, _) if line.starts_with("INSERTED ") => {
                let job = Job::new(Wire::Beanstalk, tube, body.clone(), *pri, *delay, LONG);
                let job = Job { tags: tags.clone(), ..job };
                return Ok(vec![Change::Put { key: key.clone(), job: Box::new(job) }]);
            }
            (Act::Submit { kept, .. }, Some((old, volatile))) if line == "packet 8" && *key == old => {
                return Ok(if *kept && volatile { vec![Change::Adopt(old)] } else { Vec::new() });
            }
            (Act::Submit { function, unique, body, kept }, None) if line == "packet 8" => {
                let job = Job::new(Wire::Gearman, function, body.clone(), 0, 0, 0);
                let job = Job { unique: unique.clone(), volatile: !kept, ..job };
                return Ok(vec![Change::Put { key: key.clone(), job: Box::new(job) }]);
            }
            (Act::ReserveAny, _) if line == "TIMED_OUT" => true,
            (Act::Grab, _) if line == "packet 10" => true,
            (Act::Lease { .. }, _) if line == "-TIMEOUT" => true,
            (Act::ReserveAny, _) if line.starts_with("RESERVED ") => return reserved(book, key),
            (Act::Grab, _) if line == "packet 11" => return reserved(book, key),
            (Act::Lease { .. }, _) if line == "+OK 1" && book.jobs.contains_key(key) => {
                return Ok(vec![Change::Lease(key.clone())]);
            }
            (Act::Add { .. }, Some(_)) => line == "-CLIENT-ERROR Duplicate job",
            (Act::Flush(tube), _) => *line == format!("FLUSHED {}", flushed(book, tube).len()),
            (Act::Kick { tube, bound }, _) => *line == format!("KICKED {}", kicked(book, tube, *bound).len()),
            _ => line.starts_with(self.word()),
        };
        if well {
            Ok(self.expected(book))
        } else {
            Err(format!("{self:?} was answered {line} {key}"))
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Act::Reserve(_) => "RESERVED ",
            Act::Delete(_) => "DELETED",
            Act::Release { .. } => "RELEASED",
            Act::Bury { .. } => "BURIED",
            Act::KickJob(_) => "KICKED",
            Act::Touch(_) => "TOUCHED",
            Act::Pause { .. } => "PAUSED",
            Act::Move { .. } => "MOVED",
            Act::Set { .. } => "SET",
            Act::Finish { .. } => "packet 17",
            Act::Add { .. } | Act::Outcome { .. } | Act::Remove(_) => "+OK",
            _ => "nothing of that kind",
        }
    }
}

fn reserved(book: &Book, key: &str) -> std::result::Result<Vec<Change>, String> {
    if book.jobs.get(key).is_some_and(|job| job.place == Place::Ready) {
        Ok(vec![Change::Reserve(key.to_owned())])
    } else {
        Err(format!("job {key} was reserved, but is {:?}", book.jobs.get(key)))
    }
}

/// Returns the changes of a kick, which can move several jobs.
fn kicked(book: &Book, tube: &str, bound: u64) -> Vec<Change> {
    let mut book = book.clone();
    let mut changes = Vec::new();
    let mut kind = None;
    while (changes.len() as u64) < bound {
        let Some(key) = book.kicked_next(tube) else { break };
        let place = book.jobs[&key].place;
        if *kind.get_or_insert(place) != place {
            break;
        }
        changes.push(Change::Kick(key));
        book.apply(&changes[changes.len() - 1]);
    }
    changes
}

fn flushed(book: &Book, tube: &str) -> Vec<Change> {
    let there = book.jobs.iter().filter(|(_, job)| job.tube == tube && job.place != Place::Scheduled);
    there.map(|(key, _)| Change::Delete(key.clone())).collect()
}

/// Returns the host name in Gearman's handles.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    name.trim_end().to_owned()
}
