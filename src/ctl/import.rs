//! `import`: puts the jobs of an `export`.
//!
//! Owns the way in which a job gets its state. A job that is to be buried is put out of every worker's reach, reserved
//! by its ID and buried, so that no worker gets it meanwhile. Reserved jobs become ready, because their workers are not
//! connected. A key that outlives its job is created with an empty job, which is put out of reach and deleted. Owns the
//! counts of data that the server cannot store.

use std::collections::{BTreeMap, BTreeSet};

use super::call::{tube, Call};
use super::feed::{put, Feed};
use super::input::{each_input, Input};
use super::link::{first_word, refusal, Link};
use super::moving::OUT_OF_REACH;
use super::name;
use super::opts::{INTO_TUBE, SKIP};
use super::out::Out;
use super::problem::{Problem, DONE, REFUSED};
use super::record::{Content, ImportJob, ImportLine};
use super::scan::Wanted;
use super::tags::{Abilities, JobTags, Written};
use super::tell;
use crate::engine::State;

/// The number of invalid lines that are reported individually.
const TOLD: u64 = 10;

/// Maximum size of a line: a body of 1 GiB in base64, or escaped.
const MAX_LINE: u64 = 6 << 30;

enum Note {
    Use,
    /// A `put` for the job in this line, and the action after it.
    Put(u64, After),
    Hold,
    /// The last command for a job that was put out of reach.
    Settle(u64, After),
}

#[derive(Clone, Copy)]
enum After {
    Nothing,
    /// Bury the job with this priority; it is a dead letter of a tube if the index of the tube's name is given.
    Bury(u32, Option<u32>),
    /// Delete the job, so that only its key remains.
    Delete,
}

/// Minimum lifetime of a job that is put out of reach, in seconds, so that it does not expire there.
const LEAST_TTL: u64 = 60;

#[derive(Default)]
struct Import {
    into: Option<String>,
    skip: u64,
    used: String,
    line: u64,
    done: u64,
    /// Lines before this one have been put.
    safe: u64,
    buried: u64,
    refused: u64,
    /// The numbers of pauses, of tubes with settings, and of keys that outlive their jobs.
    pauses: u64,
    settings: u64,
    keys: u64,
    /// The number of jobs whose keys belong to existing jobs of the server.
    known: u64,
    /// The number of schedules that replaced others with the same names.
    replaced: u64,
    /// The number of jobs that have expired.
    ended: u64,
    /// The keys of data that the server could not store, and how often.
    lost: BTreeMap<&'static str, u64>,
    /// `true` if the server can reserve a job by its ID; `None` if that is not known yet.
    can_bury: Option<bool>,
    /// The data that the server can store, if that is known.
    abilities: Option<Abilities>,
    /// Jobs that were put but not settled, with their lines.
    to_settle: Vec<(u64, After, u64)>,
    /// The tubes and keys of the dead letters among those jobs.
    unsettled_keys: BTreeSet<(String, String)>,
    /// The original tubes of dead letters.
    origins: Vec<String>,
}

pub fn run(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let into = call.value(&INTO_TUBE);
    let into = into.as_deref().map(tube).transpose()?;
    let skip = call.number(&SKIP, 0, u64::MAX)?.unwrap_or(0);
    let mut link = Link::open(call)?;
    // Counts are not compared for a client that may put jobs but not see them.
    let count = |link: &mut Link| match Wanted::default().count(link) {
        Err(problem) if problem.code == REFUSED => Ok(None),
        counts => counts.map(|counts| Some(counts.iter().sum::<u64>())),
    };
    let before = count(&mut link)?;
    let mut state = Import { into, skip, used: "default".to_owned(), ..Import::default() };
    let done = each_input(&call.operands, &mut |input| state.read(input, &mut link));
    if let Err(problem) = done {
        return Err(Problem::new(problem.code, state.how_far(&problem.text)));
    }
    let after = count(&mut link)?;
    state.report();
    if let Some((before, after)) = before.zip(after).filter(|(before, after)| after.wrapping_sub(*before) != state.done)
    {
        tell(&format!("the server counted {before} jobs before, and {after} now: others use it as well"));
    }
    Ok(if state.refused == 0 && state.lost.is_empty() { DONE } else { REFUSED })
}

impl Import {
    fn report(&self) {
        tell(&format!(
            "imported {} jobs, {} of them buried; {} lines were refused",
            self.done, self.buried, self.refused
        ));
        let Import { pauses, settings, keys, .. } = self;
        if (*pauses, *settings, *keys) != (0, 0, 0) {
            tell(&format!(
                "imported {pauses} pauses, settings of {settings} tubes, {keys} keys that outlive their jobs"
            ));
        }
        for (count, what) in [
            (self.known, "jobs were not put: the server has jobs with their keys"),
            (self.ended, "jobs were not put: their time to live has ended"),
            (self.replaced, "schedules replaced others with their names"),
        ] {
            if count > 0 {
                tell(&format!("{count} {what}"));
            }
        }
        for (key, count) in &self.lost {
            tell(&format!("not stored by the server: {key}, {count} times"));
        }
    }

    /// Returns the index of this tube among the original tubes of dead letters.
    fn origin(&mut self, name: &str) -> u32 {
        let known = self.origins.iter().position(|other| other == name);
        known.unwrap_or_else(|| {
            self.origins.push(name.to_owned());
            self.origins.len() - 1
        }) as u32
    }

    fn lose(&mut self, key: &'static str) {
        *self.lost.entry(key).or_default() += 1;
    }

    /// Returns the message after a failure, with the option to continue.
    fn how_far(&self, problem: &str) -> String {
        let left = match self.to_settle.len() {
            0 => String::new(),
            left => format!("; {left} more are delayed, not buried"),
        };
        // A job that is not buried yet is put again.
        let buried_up_to = self.to_settle.iter().map(|(.., line)| line - 1).min().unwrap_or(u64::MAX);
        let skip = self.safe.min(buried_up_to).max(self.skip);
        format!("{problem}; {} jobs were imported{left}; to go on: --skip {skip}", self.done)
    }

    fn read(&mut self, mut input: Input, link: &mut Link) -> Result<(), Problem> {
        let mut feed = Feed::new();
        let mut line = Vec::new();
        while input.line(&mut line, MAX_LINE, self.done)? {
            self.line += 1;
            if self.line > self.skip && !line.trim_ascii().is_empty() {
                match ImportLine::parse(&line) {
                    Ok(line) => self.add(&mut feed, link, line)?,
                    Err(problem) => self.refuse(self.line, &problem),
                }
            }
        }
        feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))?;
        self.settle(link)
    }

    fn add(&mut self, feed: &mut Feed<Note>, link: &mut Link, line: ImportLine) -> Result<(), Problem> {
        let tube = self.into.clone().or(line.tube).unwrap_or_else(|| "default".to_owned());
        match line.content {
            Content::Job(job) => self.add_job(feed, link, &tube, job),
            Content::Key(tags) => self.add_key(feed, link, &tube, &tags),
            // They belong to the tube in the line.
            Content::Pause(_) | Content::Settings(_) if self.into.is_some() => Ok(()),
            Content::Pause(seconds) => {
                self.pauses += 1;
                // The tube is watched so that it does not disappear before its first job is put.
                let pause = format!("pause-tube {tube} {seconds}");
                self.steer(feed, link, &[(format!("watch {tube}"), "WATCHING"), (pause, "PAUSED")])
            }
            Content::Settings(settings) => {
                let can = self.abilities(feed, link)?;
                let limit = settings.strip_prefix("limit:").filter(|limit| limit.bytes().all(|it| it.is_ascii_digit()));
                let (command, expected) = match limit {
                    _ if can.has("set-tube") => (format!("set-tube {tube} {settings}"), "SET"),
                    Some(limit) if can.has("limit-tube") => (format!("limit-tube {tube} {limit}"), "LIMITED"),
                    _ => {
                        self.lose("settings");
                        return Ok(());
                    }
                };
                self.settings += 1;
                self.steer(feed, link, &[(command, expected)])
            }
        }
    }

    fn steer(&mut self, feed: &mut Feed<Note>, link: &mut Link, commands: &[(String, &str)]) -> Result<(), Problem> {
        feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))?;
        for (command, expected) in commands {
            match link.expect(command, expected) {
                Err(problem) if problem.code == REFUSED => {
                    self.refuse(self.line, &problem.text);
                    return Ok(());
                }
                done => done?,
            };
        }
        Ok(())
    }

    /// Uses a tube from now on. Returns `false` if the server refuses its name.
    fn choose(&mut self, feed: &mut Feed<Note>, link: &mut Link, tube: &str) -> Result<bool, Problem> {
        if tube == self.used {
            return Ok(true);
        }
        let command = format!("use {tube}");
        if name::is_foreign(tube) {
            // A server may refuse such a name, and then the job must not go into another tube.
            let refused = self.refused;
            self.steer(feed, link, &[(command, "USING")])?;
            if self.refused > refused {
                return Ok(false);
            }
        } else {
            feed.add(Note::Use).extend_from_slice(format!("{command}\r\n").as_bytes());
        }
        tube.clone_into(&mut self.used);
        Ok(true)
    }

    fn add_job(&mut self, feed: &mut Feed<Note>, link: &mut Link, tube: &str, job: ImportJob) -> Result<(), Problem> {
        let is_buried = job.state == State::Buried;
        if job.tags.ttl_left() == Some(0) && !is_buried {
            self.ended += 1;
            return Ok(());
        }
        if !self.choose(feed, link, tube)? {
            return Ok(());
        }
        if is_buried && !self.can_bury(feed, link)? {
            self.refuse(self.line, "the server has no reserve-job, so nothing can be buried");
            return Ok(());
        }
        if job.state == State::Scheduled && !self.abilities(feed, link)?.has("cron") {
            self.refuse(self.line, "the server has no schedules");
            return Ok(());
        }
        let can_bury_dead = job.tags.dead_from().is_some() && self.abilities(feed, link)?.has("export");
        let origin = job.tags.dead_from().filter(|_| can_bury_dead).map(|name| self.origin(name));
        if origin.is_some() && !job.tags.key().is_empty() {
            // A dead letter with the same key uses it until it is buried.
            let key = (tube.to_owned(), job.tags.key().to_owned());
            if self.unsettled_keys.contains(&key) {
                feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))?;
                self.settle(link)?;
            }
            self.unsettled_keys.insert(key);
        }
        let (after, delay, least_ttl) = match job.state {
            State::Buried => (After::Bury(job.pri, origin), OUT_OF_REACH, LEAST_TTL),
            State::Delayed | State::Held | State::Scheduled => (After::Nothing, job.delay, 1),
            _ => (After::Nothing, 0, 1),
        };
        let (tags, lost) = match job.tags.is_empty() {
            true => Written::default(),
            false => job.tags.write_for(&self.abilities(feed, link)?, least_ttl),
        };
        lost.into_iter().for_each(|key| self.lose(key));
        put(feed.add(Note::Put(self.line, after)), (job.pri, delay, job.ttr), &tags, &job.body);
        feed.flow(link, &mut |note, reply| self.hear(note, &reply.line))?;
        self.settle_some(feed, link)
    }

    /// Creates a key that outlives its job.
    fn add_key(&mut self, feed: &mut Feed<Note>, link: &mut Link, tube: &str, tags: &JobTags) -> Result<(), Problem> {
        let (tags, lost) = tags.write_for(&self.abilities(feed, link)?, LEAST_TTL);
        if !lost.is_empty() {
            self.lose("a key that outlives its job");
            return Ok(());
        }
        if self.choose(feed, link, tube)? {
            let bytes = feed.add(Note::Put(self.line, After::Delete));
            put(bytes, (u32::MAX, OUT_OF_REACH, 1), &tags, b"");
            feed.flow(link, &mut |note, reply| self.hear(note, &reply.line))?;
        }
        self.settle_some(feed, link)
    }

    /// Settles the waiting jobs if there are many.
    fn settle_some(&mut self, feed: &mut Feed<Note>, link: &mut Link) -> Result<(), Problem> {
        if self.to_settle.len() < super::feed::AHEAD / 2 {
            return Ok(());
        }
        feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))?;
        self.settle(link)
    }

    fn abilities(&mut self, feed: &mut Feed<Note>, link: &mut Link) -> Result<Abilities, Problem> {
        if let Some(known) = self.abilities {
            return Ok(known);
        }
        feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))?;
        let known = Abilities::of(link)?;
        self.abilities = Some(known);
        Ok(known)
    }

    /// Returns `true` if the server knows `reserve-job`, which beanstalkd 1.12 introduced.
    fn can_bury(&mut self, feed: &mut Feed<Note>, link: &mut Link) -> Result<bool, Problem> {
        if let Some(known) = self.can_bury {
            return Ok(known);
        }
        feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))?;
        // No job has this id.
        let reply = link.ask("reserve-job 18446744073709551615")?;
        let known = reply.line == "NOT_FOUND";
        self.can_bury = Some(known);
        Ok(known)
    }

    fn refuse(&mut self, line: u64, problem: &str) {
        self.refused += 1;
        if self.refused <= TOLD {
            tell(&format!("line {line}: {problem}"));
        }
    }

    fn hear(&mut self, note: Note, line: &str) -> Result<(), Problem> {
        match (note, first_word(line)) {
            (Note::Use, "USING") | (Note::Hold, "RESERVED") => {}
            (Note::Put(place, after), "INSERTED") => {
                self.safe = place;
                let mut words = line.split(' ').skip(1);
                let id = words.next().and_then(|id| id.parse().ok()).unwrap_or(0);
                match (after, words.next()) {
                    (After::Delete, Some("DELETED")) => self.keys += 1,
                    (After::Delete, Some(_)) => self.lose("a key that outlives its job"),
                    (_, Some("SCHEDULED")) => self.done += 1,
                    (_, Some("REPLACED")) => self.replaced += 1,
                    (_, Some(_)) => self.known += 1,
                    (After::Nothing, None) => self.done += 1,
                    (after, None) => self.to_settle.push((id, after, place)),
                }
            }
            (Note::Put(place, _), "JOB_TOO_BIG") => self.refuse(place, &refusal("put", line).text),
            (Note::Put(place, _), _) => {
                return Err(Problem::refused(format!("line {place}: {}", refusal("put", line).text)));
            }
            (Note::Settle(id, after), "BURIED" | "DELETED") => {
                self.to_settle.retain(|(waiting, ..)| *waiting != id);
                match after {
                    After::Delete => self.keys += 1,
                    _ => (self.done, self.buried) = (self.done + 1, self.buried + 1),
                }
            }
            (Note::Use, _) => return Err(refusal("use", line)),
            (Note::Hold, _) => return Err(refusal("reserve-job", line)),
            (Note::Settle(_, After::Delete), _) => return Err(refusal("delete", line)),
            (Note::Settle(..), _) => return Err(refusal("bury", line)),
        }
        Ok(())
    }

    fn settle(&mut self, link: &mut Link) -> Result<(), Problem> {
        let waiting = std::mem::take(&mut self.to_settle);
        self.unsettled_keys.clear();
        let mut feed = Feed::new();
        for &(id, after, _) in &waiting {
            let command = match after {
                After::Bury(pri, origin) => {
                    feed.add(Note::Hold).extend_from_slice(format!("reserve-job {id}\r\n").as_bytes());
                    let origin = origin.and_then(|place| self.origins.get(place as usize));
                    let from = origin.map_or(String::new(), |name| format!(" from:{name}"));
                    format!("bury {id} {pri}{from}\r\n")
                }
                _ => format!("delete {id}\r\n"),
            };
            feed.add(Note::Settle(id, after)).extend_from_slice(command.as_bytes());
        }
        self.to_settle = waiting;
        feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))
    }
}
