//! The commands of a history: the bytes to send, the expected replies, and the resulting changes.
//!
//! Owns the syntax of each command in its protocol. Must not choose commands or record events.

use std::io::Result;

use crate::book::{Book, Job};
use crate::change::{Body, Change, Wire};
use crate::lanes::Promise;
use crate::reference::State;
use crate::talk::*;
use crate::web;

/// A time to run or time to live, in seconds, that is longer than any history.
pub const LONG: u64 = 3600;
/// The delay with which `import` puts jobs that it buries next.
pub const IMPORT_DELAY: u64 = u32::MAX as u64;

/// A command. The keys of jobs are the keys in `Book::jobs`.
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
    ReserveBatch(u64),
    Reserve(String),
    Delete(String),
    DeleteBatch(Vec<String>),
    Release {
        key: String,
        pri: u32,
        delay: u64,
    },
    Bury {
        key: String,
        pri: u32,
    },
    /// Buries a reserved job like an import: sets the delay that the job shows and, if `from` is not empty, marks the
    /// job as a dead letter of this tube.
    BuryAs {
        key: String,
        pri: u32,
        delay: u64,
        from: String,
    },
    Revoke {
        key: String,
        pri: u32,
    },
    Fail {
        key: String,
        pri: u32,
        reason: String,
    },
    Kick {
        tube: String,
        bound: u64,
    },
    KickJob(String),
    /// Runs a schedule, which puts a copy. Then puts a duplicate, whose reply contains the copy's ID.
    Run {
        key: String,
        tube: String,
        idp: String,
    },
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
    MoveTube {
        from: String,
        to: String,
        state: String,
        bound: u64,
    },
    /// Deletes the jobs in a state, in all states (`tube`), or in all states except reserved (`free`).
    Flush {
        tube: String,
        states: String,
    },
    Set {
        tube: String,
        settings: String,
    },
    /// A beanstalk command that is sent as an HTTP request.
    Web(Box<Act>),
    /// Buries a job that no client has reserved (over HTTP).
    BuryFree(String),
    /// Moves a buried job to another tube, where it remains buried (over HTTP).
    Shift {
        key: String,
        tube: String,
    },
    /// Applies a remedy (`kick`, `delete` or `move`) to the buried jobs that failed for this reason (over HTTP).
    Sweep {
        tube: String,
        reason: String,
        remedy: String,
        to: String,
    },
    Submit {
        function: String,
        unique: String,
        body: Body,
        kept: bool,
        /// One of `GEARMAN_PRIORITIES`.
        pri: u32,
        /// `true` if the job becomes ready after the history ends. Such a job is a background job of normal priority.
        later: bool,
        /// A function name, or an empty string. Only a job of normal priority that is not `later` can have a reducer.
        reducer: String,
    },
    Grab,
    Cancel(String),
    /// A Gearman worker reports that the job is complete or has failed. The server sends no reply.
    Finish {
        key: String,
        done: bool,
    },
    Add {
        id: String,
        queue: String,
        max_fails: u32,
        max_attempts: u32,
        body: Body,
    },
    /// Adds a job and waits for its result. The log does not contain the job. [`Lane::execute`] reads the reply.
    ///
    /// [`Lane::execute`]: crate::lane::Lane::execute
    Execute {
        id: String,
        queue: String,
        body: Body,
    },
    /// Leases a job. If `waits` is `true`, waits for the job of a preceding [`Act::Execute`], which the server receives
    /// on another connection.
    Lease {
        queue: String,
        waits: bool,
    },
    Outcome {
        id: String,
        done: bool,
        result: Body,
    },
    Remove(String),
}

/// The beanstalk priorities of Gearman jobs with high, normal and low priority.
pub const GEARMAN_PRIORITIES: [u32; 3] = [1_073_741_823, 2_147_483_647, 3_221_225_471];

pub struct Reply {
    pub line: String,
    /// The key of the job in the reply, or an empty string. For [`Act::ReserveBatch`], the keys separated by commas.
    /// For [`Act::Execute`], the outcome and the result.
    pub key: String,
}

impl Act {
    pub fn wire(&self) -> Wire {
        match self {
            Act::Submit { .. } | Act::Grab | Act::Finish { .. } | Act::Cancel(_) => Wire::Gearman,
            Act::Add { .. } | Act::Lease { .. } | Act::Outcome { .. } | Act::Remove(_) => Wire::Workq,
            Act::Execute { .. } => Wire::Workq,
            Act::Web(_) | Act::BuryFree(_) | Act::Shift { .. } | Act::Sweep { .. } => Wire::Http,
            _ => Wire::Beanstalk,
        }
    }

    /// Returns `true` if the command affects several jobs of a tube.
    pub fn is_for_tube(&self) -> bool {
        match self {
            Act::Web(act) => act.is_for_tube(),
            _ => matches!(self, Act::Kick { .. } | Act::Flush { .. } | Act::MoveTube { .. } | Act::Sweep { .. }),
        }
    }

    /// Returns the existing job that this submission joins, if any.
    fn joins<'a>(&self, book: &'a Book) -> Option<(&'a String, &'a Job)> {
        match self {
            Act::Submit { function, unique, .. } if !unique.is_empty() => {
                book.jobs.iter().find(|(_, job)| job.tube == *function && job.unique == *unique)
            }
            Act::Add { id, .. } => book.jobs.get_key_value(id),
            _ => None,
        }
    }

    /// Returns the key of the job in the reply, if another client may have put the job.
    pub fn about(&self, reply: &Reply) -> Option<String> {
        match self {
            Act::Submit { kept: true, .. } => Some(reply.key.clone()),
            Act::Add { id, .. } => Some(id.clone()),
            _ => None,
        }
    }

    /// Returns the guarantee that a successful reply gives.
    pub fn promise(&self, book: &Book) -> Promise {
        match (self, self.joins(book)) {
            (Act::Web(act), _) => act.promise(book),
            (Act::Submit { kept: true, .. }, Some((_, job))) if job.volatile => Promise::New,
            (Act::Submit { kept: true, .. } | Act::Add { .. }, Some(_)) => Promise::Hearsay,
            (Act::Submit { kept: true, .. } | Act::Add { .. } | Act::Put { .. }, _) => Promise::New,
            (Act::Cancel(id) | Act::Outcome { id, .. } | Act::Remove(id), _) if book.is_volatile(id) => Promise::None,
            (Act::Execute { .. } | Act::Lease { waits: true, .. }, _) => Promise::None,
            // The log stores the result of a failed attempt only if this attempt is the last one.
            (Act::Outcome { id, done, .. }, _) => match book.jobs.get(id) {
                Some(_) if !done && book.retries(id) => Promise::Change,
                _ => Promise::New,
            },
            (Act::Submit { .. } | Act::Grab | Act::Finish { .. }, _) => Promise::None,
            (Act::ReserveAny | Act::ReserveBatch(_) | Act::Reserve(_) | Act::Touch(_), _) => Promise::None,
            _ => Promise::Change,
        }
    }

    pub fn bytes(&self, book: &Book) -> Vec<u8> {
        let data = |line: String, body: &Body| [line.as_bytes(), b"\r\n", &body.bytes(), b"\r\n"].concat();
        match self {
            Act::Put { tube, pri, delay, body, tags } => {
                let between = if tags.is_empty() { "" } else { " " };
                data(format!("use {tube}\r\nput {pri} {delay} {LONG} {}{between}{tags}", body.length), body)
            }
            Act::ReserveAny => b"reserve-with-timeout 0\r\n".to_vec(),
            Act::ReserveBatch(count) => format!("reserve-batch {count}\r\n").into_bytes(),
            Act::Reserve(key) => format!("reserve-job {key}\r\n").into_bytes(),
            Act::DeleteBatch(keys) => format!("delete-batch {}\r\n", keys.join(" ")).into_bytes(),
            Act::Delete(key) => format!("delete {key}\r\n").into_bytes(),
            Act::Release { key, pri, delay } => format!("release {key} {pri} {delay}\r\n").into_bytes(),
            Act::Bury { key, pri } => format!("bury {key} {pri}\r\n").into_bytes(),
            Act::BuryAs { key, pri, delay, from } => {
                let from = if from.is_empty() { String::new() } else { format!(" from:{from}") };
                format!("bury {key} {pri} delay:{delay}{from}\r\n").into_bytes()
            }
            Act::Revoke { key, pri } => format!("revoke {key} {pri}\r\n").into_bytes(),
            Act::Fail { key, pri, reason } => format!("fail {key} {pri} {}\r\n{reason}\r\n", reason.len()).into_bytes(),
            Act::Run { key, tube, idp } => {
                let duplicate = format!("put {} 0 1 0 idp:{idp}\r\n\r\n", u32::MAX);
                format!("use {tube}\r\nkick-job {key}\r\n{duplicate}").into_bytes()
            }
            Act::Kick { tube, bound } => format!("use {tube}\r\nkick {bound}\r\n").into_bytes(),
            Act::KickJob(key) => format!("kick-job {key}\r\n").into_bytes(),
            Act::Touch(key) => format!("touch {key}\r\n").into_bytes(),
            Act::Pause { tube, seconds } => format!("pause-tube {tube} {seconds}\r\n").into_bytes(),
            Act::Move { key, tube, pri, delay } => format!("move-job {key} {tube} {pri} {delay}\r\n").into_bytes(),
            Act::MoveTube { from, to, state, bound } => {
                format!("move-tube {from} {to} {state} {bound}\r\n").into_bytes()
            }
            Act::Flush { tube, states } => format!("flush-{states} {tube}\r\n").into_bytes(),
            Act::Set { tube, settings } => {
                format!("{}\r\n", format!("set-tube {tube} {settings}").trim_end()).into_bytes()
            }
            Act::Add { id, queue, max_fails, max_attempts, body } => {
                let (millis, length) = (LONG * 1000, body.length);
                let flag = |name, max: u32| if max > 0 { format!(" -{name}={max}") } else { String::new() };
                let flags = [flag("max-attempts", *max_attempts), flag("max-fails", *max_fails)].concat();
                data(format!("add {id} {queue} {millis} {millis} {length}{flags}"), body)
            }
            Act::Execute { id, queue, body } => {
                data(format!("run {id} {queue} {0} {0} {1}", LONG * 1000, body.length), body)
            }
            Act::Lease { queue, waits } => {
                format!("lease {queue} {}\r\n", u64::from(*waits) * LONG * 1000).into_bytes()
            }
            Act::Outcome { id, done, result } => {
                let word = if *done { "complete" } else { "fail" };
                // If the job did not exist, the server would reply before it has read the result.
                debug_assert!(book.jobs.contains_key(id));
                data(format!("{word} {id} {}", result.length), result)
            }
            Act::Remove(id) => format!("delete {id}\r\n").into_bytes(),
            Act::Web(act) => web::bytes(act),
            Act::BuryFree(_) | Act::Shift { .. } | Act::Sweep { .. } => web::bytes(self),
            _ => self.gearman_bytes(),
        }
    }

    fn gearman_bytes(&self) -> Vec<u8> {
        let handle = |key: &str| format!("H:{}:{key}", hostname());
        match self {
            Act::Submit { function, unique, body, later: true, .. } => {
                let time = (unix_time() + LONG).to_string();
                let arguments = [function.as_bytes(), unique.as_bytes(), time.as_bytes(), &body.bytes()];
                packet(SUBMIT_JOB_EPOCH, &arguments)
            }
            Act::Submit { function, unique, body, kept, reducer, .. } if !reducer.is_empty() => {
                let kind = if *kept { SUBMIT_REDUCE_JOB_BG } else { SUBMIT_REDUCE_JOB };
                let arguments = [function.as_bytes(), unique.as_bytes(), reducer.as_bytes(), b"", &body.bytes()];
                packet(kind, &arguments)
            }
            Act::Submit { function, unique, body, kept, pri, .. } => {
                let class = GEARMAN_PRIORITIES.iter().position(|it| it == pri).expect("a Gearman priority");
                let foreground = [SUBMIT_JOB_HIGH, SUBMIT_JOB, SUBMIT_JOB_LOW];
                let background = [SUBMIT_JOB_HIGH_BG, SUBMIT_JOB_BG, SUBMIT_JOB_LOW_BG];
                let kind = if *kept { background[class] } else { foreground[class] };
                packet(kind, &[function.as_bytes(), unique.as_bytes(), &body.bytes()])
            }
            Act::Grab => packet(GRAB_JOB, &[]),
            Act::Cancel(key) => format!("cancel job {}\r\n", handle(key)).into_bytes(),
            // WORK_COMPLETE and WORK_FAIL have no reply. The reply to the echo request shows that the server has
            // executed the command.
            Act::Finish { key, done: true } => {
                [packet(WORK_COMPLETE, &[handle(key).as_bytes(), b"done"]), packet(ECHO_REQ, &[b"x"])].concat()
            }
            Act::Finish { key, done: false } => {
                [packet(WORK_FAIL, &[handle(key).as_bytes()]), packet(ECHO_REQ, &[b"x"])].concat()
            }
            _ => unreachable!("not a Gearman command"),
        }
    }

    pub fn read(&self, talk: &mut Talk) -> Result<Reply> {
        match (self.wire(), self) {
            (Wire::Http, Act::Web(act)) => web::read(act, talk),
            (Wire::Http, _) => web::read(self, talk),
            (Wire::Beanstalk, _) => {
                if matches!(self, Act::Put { .. } | Act::Kick { .. } | Act::Run { .. }) {
                    talk.line()?;
                }
                let line = talk.reply()?.0;
                let second = |line: &str| line.split(' ').nth(1).unwrap_or_default().to_owned();
                let key = match self {
                    Act::ReserveBatch(_) => {
                        let count = second(&line).parse().unwrap_or(0);
                        let jobs = (0..count).map(|_| Ok(second(&talk.reply()?.0)));
                        jobs.collect::<Result<Vec<_>>>()?.join(",")
                    }
                    Act::Run { .. } => second(&talk.line()?),
                    Act::Put { .. } | Act::ReserveAny | Act::Reserve(_) => second(&line),
                    _ => String::new(),
                };
                Ok(Reply { line, key })
            }
            (Wire::Gearman, Act::Cancel(_)) => Ok(Reply { line: talk.text_reply()?, key: String::new() }),
            (Wire::Gearman, _) => {
                let (kind, arguments) = talk.reply_packet()?;
                let named = matches!(kind, JOB_CREATED | JOB_ASSIGN);
                let handle = String::from_utf8_lossy(&arguments[0]).into_owned();
                let key = handle.rsplit(':').next().filter(|_| named).unwrap_or_default().to_owned();
                Ok(Reply { line: format!("packet {kind}"), key })
            }
            (Wire::Workq, _) => {
                let line = talk.line()?;
                let mut key = String::new();
                if matches!(self, Act::Lease { .. }) && line == "+OK 1" {
                    let head = talk.line()?;
                    let words: Vec<&str> = head.split(' ').collect();
                    key = words[0].to_owned();
                    talk.data(words[3].parse().unwrap_or(0))?;
                }
                if matches!(self, Act::Execute { .. }) && line == "+OK 1" {
                    let head = talk.line()?;
                    let words: Vec<&str> = head.split(' ').collect();
                    let result = Body::of(&talk.data(words[2].parse().unwrap_or(0))?);
                    key = format!("{} {}", words[1], result.word);
                }
                Ok(Reply { line, key })
            }
        }
    }

    /// Returns the changes that a successful command makes, except those that depend on the reply.
    pub fn expected(&self, book: &Book) -> Vec<Change> {
        let key = |key: &String| key.clone();
        match self {
            Act::Reserve(job) => vec![Change::Reserve { key: key(job) }],
            Act::Delete(job) if book.is_revoked(job) => Vec::new(),
            Act::Delete(job) | Act::Finish { key: job, .. } | Act::Remove(job) | Act::Cancel(job) => {
                vec![Change::Delete { key: key(job) }]
            }
            Act::Release { key: job, pri, delay } => {
                vec![Change::Release { key: key(job), pri: *pri, delay: *delay }]
            }
            Act::Bury { key: job, pri } => vec![Change::Bury { key: key(job), pri: *pri }],
            Act::BuryAs { key: job, pri, delay, from } => vec![
                Change::Bury { key: key(job), pri: *pri },
                Change::Import { key: key(job), delay: *delay, from: from.clone() },
            ],
            Act::Revoke { key: job, pri } => vec![
                Change::Reason { key: key(job), reason: "revoked".to_owned() },
                Change::Revoke { key: key(job), pri: *pri },
            ],
            // The server deletes the last job of the batch first, so the log contains the deletions in reverse order.
            Act::DeleteBatch(keys) => keys.iter().rev().map(|job| Change::Delete { key: key(job) }).collect(),
            Act::Fail { key, pri, reason } => failed(book, key, *pri, reason),
            Act::KickJob(job) => vec![Change::Kick { key: key(job) }],
            Act::Pause { tube, seconds } => vec![Change::Pause { tube: tube.clone(), seconds: *seconds }],
            Act::Move { key: job, tube, pri, delay } => {
                vec![Change::Move { key: key(job), tube: tube.clone(), pri: *pri, delay: *delay }]
            }
            // If the command affects no job, it makes no change, so the reply guarantees nothing.
            Act::MoveTube { .. } | Act::Flush { .. } => {
                let change = self.of_tube().filter(|change| book.affected(change) > 0);
                change.into_iter().collect()
            }
            // If the tube already has these settings, the command makes no change, so the reply guarantees nothing.
            Act::Set { tube, settings } if book.settings.get(tube).map_or("", String::as_str) == settings => Vec::new(),
            Act::Set { tube, settings } => vec![Change::Set { tube: tube.clone(), settings: settings.clone() }],
            Act::Execute { id, queue, body } => {
                let job = Job::new(Wire::Workq, queue, body.clone(), 0, 0, LONG);
                vec![Change::Put { key: key(id), job: Box::new(Job { volatile: true, ..job }) }]
            }
            Act::Outcome { id, done, result } => {
                vec![Change::Outcome { key: key(id), done: *done, result: result.clone() }]
            }
            Act::Kick { tube, bound } => {
                book.kicked(tube, *bound).into_iter().map(|key| Change::Kick { key }).collect()
            }
            Act::Add { id, queue, max_fails, max_attempts, body } if !book.jobs.contains_key(id) => {
                let (max_fails, max_attempts) = (*max_fails, *max_attempts);
                let job = Job::new(Wire::Workq, queue, body.clone(), 0, 0, LONG);
                vec![Change::Put { key: key(id), job: Box::new(Job { max_fails, max_attempts, ..job }) }]
            }
            Act::Web(act) => act.expected(book),
            _ => web::expected(self, book),
        }
    }

    /// Returns the change that a flush or a move of a whole tube makes. The log records the start of these commands.
    fn of_tube(&self) -> Option<Change> {
        Some(match self {
            Act::MoveTube { from, to, state, bound } => {
                let (from, to) = (from.clone(), to.clone());
                Change::MoveTube { from, to, state: state.clone(), bound: *bound }
            }
            Act::Flush { tube, states } => Change::Flush { tube: tube.clone(), states: states.clone() },
            _ => return None,
        })
    }

    /// Returns the changes that the reply confirms, or an error if the reply is wrong.
    pub fn changes(&self, book: &Book, reply: &Reply) -> std::result::Result<Vec<Change>, String> {
        if let Act::Web(act) = self {
            return act.changes(book, reply);
        }
        let Reply { line, key } = reply;
        let joined = self.joins(book).map(|(key, job)| (key.clone(), job.volatile));
        let well = match (self, joined) {
            (Act::Put { tube, pri, delay, body, tags }, _) if line.starts_with("INSERTED ") => {
                let tube = tags.split(' ').find_map(|tag| tag.strip_prefix("tub:")).unwrap_or(tube);
                let job = Job::new(Wire::Beanstalk, tube, body.clone(), *pri, *delay, LONG);
                let job = Job { tags: tags.clone(), ..job };
                return Ok(vec![Change::Put { key: key.clone(), job: Box::new(job) }]);
            }
            (Act::Submit { kept, .. }, Some((old, volatile))) if line == "packet 8" && *key == old => {
                return Ok(if *kept && volatile { vec![Change::Persist { key: old }] } else { Vec::new() });
            }
            (Act::Submit { function, unique, body, kept, pri, later, reducer }, None) if line == "packet 8" => {
                let job = Job::new(Wire::Gearman, function, body.clone(), *pri, u64::from(*later) * LONG, 0);
                let job = Job { unique: unique.clone(), volatile: !kept, reducer: reducer.clone(), ..job };
                return Ok(vec![Change::Put { key: key.clone(), job: Box::new(job) }]);
            }
            (Act::ReserveAny, _) if line == "TIMED_OUT" => true,
            (Act::Grab, _) if line == "packet 10" => true,
            (Act::Lease { .. }, _) if line == "-TIMEOUT" => true,
            (Act::Run { key: schedule, tube, .. }, _) if line == "NOT_FOUND" && book.is_taken(schedule, tube) => {
                return Ok(vec![Change::Skip { key: schedule.clone() }]);
            }
            (Act::ReserveAny, _) if line.starts_with("RESERVED ") => return reserved(book, key),
            (Act::Grab, _) if line == "packet 11" => return reserved(book, key),
            (Act::ReserveBatch(_), _) if line.starts_with("RESERVED_BATCH ") => {
                let jobs = key.split(',').filter(|job| !job.is_empty());
                let changes: std::result::Result<Vec<_>, _> = jobs.map(|job| reserved(book, job)).collect();
                return changes.map(|changes| changes.concat());
            }
            (Act::Run { key: schedule, .. }, _) if line == "KICKED" && !book.jobs.contains_key(key) => {
                return Ok(vec![Change::Run { key: schedule.clone(), copy: key.clone() }]);
            }
            (Act::Lease { .. }, _) if line == "+OK 1" && book.jobs.contains_key(key) => {
                return Ok(vec![Change::Lease { key: key.clone() }]);
            }
            (Act::Delete(job), _) if book.is_revoked(job) => line == "NOT_FOUND",
            (Act::Add { .. }, Some(_)) => line == "-CLIENT-ERROR Duplicate job",
            (Act::Flush { .. } | Act::MoveTube { .. }, _) => {
                let count: u64 = self.expected(book).iter().map(|change| book.affected(change)).sum();
                *line == format!("{} {count}", self.word())
            }
            (Act::DeleteBatch(keys), _) => *line == format!("DELETED_BATCH {} 0", keys.len()),
            (Act::Fail { key, .. }, _) => {
                let mut after = book.clone();
                self.expected(book).iter().for_each(|change| after.apply(change));
                line == if after.state(key) == State::Buried { "BURIED" } else { "RELEASED 0" }
            }
            (Act::Kick { .. } | Act::Sweep { .. }, _) => {
                *line == format!("{} {}", self.word(), self.expected(book).len())
            }
            _ => line.starts_with(self.word()),
        };
        if well {
            Ok(self.expected(book))
        } else {
            Err(format!("unexpected reply to {self:?}: {line} {key}"))
        }
    }

    /// Returns the first word of the reply to a successful command.
    pub fn word(&self) -> &'static str {
        match self {
            Act::Put { .. } => "INSERTED ",
            Act::Reserve(_) => "RESERVED ",
            Act::Delete(_) => "DELETED",
            Act::Release { .. } => "RELEASED",
            Act::Bury { .. } | Act::BuryAs { .. } | Act::BuryFree(_) => "BURIED",
            Act::Revoke { .. } => "REVOKED",
            Act::Cancel(_) => "OK",
            Act::KickJob(_) | Act::Kick { .. } => "KICKED",
            Act::Sweep { remedy, .. } if remedy == "kick" => "KICKED",
            Act::Sweep { remedy, .. } if remedy == "delete" => "DELETED",
            Act::Touch(_) => "TOUCHED",
            Act::Pause { .. } => "PAUSED",
            Act::Move { .. } | Act::MoveTube { .. } | Act::Shift { .. } | Act::Sweep { .. } => "MOVED",
            Act::Flush { .. } => "FLUSHED",
            Act::Set { .. } => "SET",
            Act::Finish { .. } => "packet 17",
            Act::Add { .. } | Act::Outcome { .. } | Act::Remove(_) => "+OK",
            _ => "nothing of that kind",
        }
    }
}

fn reserved(book: &Book, key: &str) -> std::result::Result<Vec<Change>, String> {
    if book.jobs.contains_key(key) && book.state(key) == State::Ready {
        Ok(vec![Change::Reserve { key: key.to_owned() }])
    } else {
        Err(format!("job {key} was reserved, but is {:?}", book.state(key)))
    }
}

/// Returns the changes that a failed attempt makes. The log contains up to three records for these changes.
fn failed(book: &Book, key: &str, pri: u32, reason: &str) -> Vec<Change> {
    let owned = || key.to_owned();
    let mut changes =
        vec![Change::Reason { key: owned(), reason: reason.to_owned() }, Change::Fail { key: owned(), pri }];
    let mut after = book.clone();
    changes.iter().for_each(|change| after.apply(change));
    let dead = book.dead_tube(key).filter(|_| after.state(key) == State::Buried);
    changes.extend(dead.map(|tube| Change::Dead { key: owned(), tube: tube.to_owned() }));
    changes
}

fn unix_time() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("a time after 1970").as_secs()
}

/// Returns the host name, which Gearman's handles contain.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    name.trim_end().to_owned()
}
