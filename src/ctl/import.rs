//! `import`: puts the jobs of an `export`.
//!
//! Owns the way in which a job gets its state. A job that is to be buried is put out of every worker's reach, reserved
//! by its ID and buried, so that no worker gets it meanwhile. Reserved jobs become ready, because their workers are not
//! connected. A key that outlives its job is created with an empty job, which is put out of reach and deleted. Owns the
//! counts of data that the server cannot store.

use std::collections::{BTreeMap, BTreeSet};

use super::bulk::OUT_OF_REACH;
use super::input::{each_input, Input};
use super::link::{put, Feed, AHEAD};
use super::name;
use super::prelude::*;
use super::record::{Content, ImportJob, ImportLine, Others};
use super::scan::Wanted;
use super::tags::{Abilities, JobTags, Written};
use crate::engine::State;

/// The number of refused lines that are reported individually.
const MAX_REPORTS: u64 = 10;

/// The maximum size of a line: a body of 1 GiB in base64, or escaped.
const MAX_LINE: u64 = 6 << 30;

/// The minimum lifetime of a job that is put out of reach, in seconds, so that it does not expire there.
const LEAST_TTL: u64 = 60;

/// The key of a `lost` count.
const KEPT_KEY: &str = "a key that outlives its job";

enum Note {
    Use,
    /// A `put` for this line, and the action after it.
    Put(u64, After),
    Reserve,
    /// The last command for this job, which was put out of reach.
    Settle(u64, After),
}

#[derive(Clone, Copy)]
enum After {
    Nothing,
    /// Bury the job with this priority. A dead letter has the index of its original tube.
    Bury(u32, Option<u32>),
    /// Delete the job, so that only its key remains.
    Delete,
}

struct Import<'a> {
    link: &'a mut Link,
    feed: Feed<Note>,
    into: Option<String>,
    skip: u64,
    used: String,
    line: u64,
    /// `true` if the server can reserve a job by its ID; `None` if that is not known yet.
    can_bury: Option<bool>,
    /// What the server can store, if that is known.
    abilities: Option<Abilities>,
    /// The tubes and keys of the dead letters that are not settled.
    unsettled_keys: BTreeSet<(String, String)>,
    /// The original tubes of dead letters.
    origins: Vec<String>,
    results: Results,
}

#[derive(Default)]
struct Results {
    done: u64,
    /// All lines up to this one have been put.
    safe: u64,
    buried: u64,
    refused: u64,
    others: Others,
    /// Jobs that were not put because the server has jobs with their keys.
    known: u64,
    /// Schedules that replaced others with the same names.
    replaced: u64,
    /// Jobs whose time to live has ended.
    expired: u64,
    /// How often the server could not store the data with this key.
    lost: BTreeMap<&'static str, u64>,
    /// Jobs that were put but not settled, with their lines.
    unsettled: Vec<(u64, After, u64)>,
}

pub fn run(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let into = call.value(&INTO_TUBE).map(|name| tube(&name)).transpose()?;
    let skip = call.number(&SKIP, 0, u64::MAX)?.unwrap_or(0);
    let mut link = Link::open(call)?;
    // A client that may put jobs but not see them compares no counts.
    let count = |link: &mut Link| match Wanted::default().count(link) {
        Err(problem) if problem.code == REFUSED => Ok(None),
        counts => counts.map(|counts| Some(counts.iter().sum::<u64>())),
    };
    let before = count(&mut link)?;
    let mut import = Import {
        link: &mut link,
        feed: Feed::new(),
        into,
        skip,
        used: "default".to_owned(),
        line: 0,
        can_bury: None,
        abilities: None,
        unsettled_keys: BTreeSet::new(),
        origins: Vec::new(),
        results: Results::default(),
    };
    each_input(&call.operands, &mut |input| import.read(input))
        .map_err(|problem| Problem::new(problem.code, import.results.after_failure(&problem.text, skip)))?;
    let results = import.results;
    let after = count(&mut link)?;
    results.report();
    let counts = before.zip(after).filter(|(before, after)| after.wrapping_sub(*before) != results.done);
    if let Some((before, after)) = counts {
        print_stderr(&format!(
            "the server counted {before} jobs before, and {after} now: other clients use it as well"
        ));
    }
    Ok(if results.refused == 0 && results.lost.is_empty() { DONE } else { REFUSED })
}

impl Results {
    fn report(&self) {
        let Results { done, buried, refused, .. } = self;
        print_stderr(&format!("imported {done} jobs, {buried} of them buried; {refused} lines were refused"));
        self.others.report("imported");
        for (count, what) in [
            (self.known, "jobs were not put, because the server has jobs with their keys"),
            (self.expired, "jobs were not put, because their time to live has ended"),
            (self.replaced, "schedules replaced others with the same names"),
        ] {
            if count > 0 {
                print_stderr(&format!("{count} {what}"));
            }
        }
        for (key, count) in &self.lost {
            print_stderr(&format!("not stored by the server: {key}, {count} times"));
        }
    }

    /// Returns the message for a failure, which says how to continue.
    fn after_failure(&self, problem: &str, skip: u64) -> String {
        let unsettled = match self.unsettled.len() {
            0 => String::new(),
            count => format!("; {count} more are delayed, not buried"),
        };
        // A job that is not buried yet is put again.
        let settled = self.unsettled.iter().map(|(.., line)| line - 1).min().unwrap_or(u64::MAX);
        let skip = self.safe.min(settled).max(skip);
        format!("{problem}; {} jobs were imported{unsettled}; to continue, use --skip {skip}", self.done)
    }

    fn lose(&mut self, key: &'static str) {
        *self.lost.entry(key).or_default() += 1;
    }

    fn refuse(&mut self, line: u64, problem: &str) {
        self.refused += 1;
        if self.refused <= MAX_REPORTS {
            print_stderr(&format!("line {line}: {problem}"));
        }
    }

    fn on_reply(&mut self, note: Note, line: &str) -> Result<(), Problem> {
        match (note, first_word(line)) {
            (Note::Use, "USING") | (Note::Reserve, "RESERVED") => {}
            (Note::Put(place, after), "INSERTED") => {
                self.safe = place;
                let mut words = line.split(' ').skip(1);
                let id = words.next().and_then(|id| id.parse().ok()).unwrap_or(0);
                match (after, words.next()) {
                    (After::Delete, Some("DELETED")) => self.others.keys += 1,
                    (After::Delete, Some(_)) => self.lose(KEPT_KEY),
                    (_, Some("SCHEDULED")) | (After::Nothing, None) => self.done += 1,
                    (_, Some("REPLACED")) => self.replaced += 1,
                    (_, Some(_)) => self.known += 1,
                    (after, None) => self.unsettled.push((id, after, place)),
                }
            }
            (Note::Put(place, _), "JOB_TOO_BIG") => self.refuse(place, &refusal("put", line).text),
            (Note::Put(place, _), _) => {
                return Err(Problem::refused(format!("line {place}: {}", refusal("put", line).text)));
            }
            (Note::Settle(id, after), "BURIED" | "DELETED") => {
                self.unsettled.retain(|(unsettled, ..)| *unsettled != id);
                match after {
                    After::Delete => self.others.keys += 1,
                    _ => (self.done, self.buried) = (self.done + 1, self.buried + 1),
                }
            }
            (Note::Use, _) => return Err(refusal("use", line)),
            (Note::Reserve, _) => return Err(refusal("reserve-job", line)),
            (Note::Settle(_, After::Delete), _) => return Err(refusal("delete", line)),
            (Note::Settle(..), _) => return Err(refusal("bury", line)),
        }
        Ok(())
    }
}

impl Import<'_> {
    fn read(&mut self, mut input: Input) -> Result<(), Problem> {
        let mut line = Vec::new();
        while input.line(&mut line, MAX_LINE, self.results.done)? {
            self.line += 1;
            if self.line > self.skip && !line.trim_ascii().is_empty() {
                match ImportLine::parse(&line) {
                    Ok(line) => self.add(line)?,
                    Err(problem) => self.refuse(&problem),
                }
            }
        }
        self.settle()
    }

    fn refuse(&mut self, problem: &str) {
        self.results.refuse(self.line, problem);
    }

    /// Sends the pending commands if there are many.
    fn flow(&mut self) -> Result<(), Problem> {
        let Import { link, feed, results, .. } = self;
        feed.flow(link, &mut |note, reply| results.on_reply(note, &reply.line))
    }

    fn finish(&mut self) -> Result<(), Problem> {
        let Import { link, feed, results, .. } = self;
        feed.finish(link, &mut |note, reply| results.on_reply(note, &reply.line))
    }

    fn add(&mut self, line: ImportLine) -> Result<(), Problem> {
        let tube = self.into.clone().or(line.tube).unwrap_or_else(|| "default".to_owned());
        match line.content {
            Content::Job(job) => self.add_job(&tube, job),
            Content::Key(tags) => self.add_key(&tube, &tags),
            // These belong to the tube in the line.
            Content::Pause(_) | Content::Settings(_) if self.into.is_some() => Ok(()),
            Content::Pause(seconds) => {
                self.results.others.pauses += 1;
                // A watched tube does not disappear before its first job is put.
                let pause = format!("pause-tube {tube} {seconds}");
                self.control(&[(format!("watch {tube}"), "WATCHING"), (pause, "PAUSED")]).map(drop)
            }
            Content::Settings(settings) => {
                let can = self.abilities()?;
                let limit = settings.strip_prefix("limit:").filter(|limit| limit.bytes().all(|it| it.is_ascii_digit()));
                let command = match limit {
                    _ if can.has("set-tube") => (format!("set-tube {tube} {settings}"), "SET"),
                    Some(limit) if can.has("limit-tube") => (format!("limit-tube {tube} {limit}"), "LIMITED"),
                    _ => {
                        self.results.lose("settings");
                        return Ok(());
                    }
                };
                self.results.others.settings += 1;
                self.control(&[command]).map(drop)
            }
        }
    }

    /// Sends commands one by one. Returns `false` if the server refuses one of them.
    fn control(&mut self, commands: &[(String, &str)]) -> Result<bool, Problem> {
        self.finish()?;
        for (command, expected) in commands {
            match self.link.expect(command, expected) {
                Err(problem) if problem.code == REFUSED => {
                    self.refuse(&problem.text);
                    return Ok(false);
                }
                done => done?,
            };
        }
        Ok(true)
    }

    /// Uses a tube from now on. Returns `false` if the server refuses its name.
    fn use_tube(&mut self, tube: &str) -> Result<bool, Problem> {
        if tube == self.used {
            return Ok(true);
        }
        let command = format!("use {tube}");
        if name::is_foreign(tube) {
            // The server may refuse such a name, and then the job must not go into another tube.
            if !self.control(&[(command, "USING")])? {
                return Ok(false);
            }
        } else {
            self.feed.add(Note::Use).extend_from_slice(format!("{command}\r\n").as_bytes());
        }
        tube.clone_into(&mut self.used);
        Ok(true)
    }

    fn add_job(&mut self, tube: &str, job: ImportJob) -> Result<(), Problem> {
        let is_buried = job.state == State::Buried;
        if job.tags.ttl_left() == Some(0) && !is_buried {
            self.results.expired += 1;
            return Ok(());
        }
        if !self.use_tube(tube)? {
            return Ok(());
        }
        if is_buried && !self.can_bury()? {
            self.refuse("the server does not support reserve-job, so the job cannot be buried");
            return Ok(());
        }
        if job.state == State::Scheduled && !self.abilities()?.has("cron") {
            self.refuse("the server does not support schedules");
            return Ok(());
        }
        let has_origin = job.tags.dead_from().is_some() && self.abilities()?.has("export");
        let origin = job.tags.dead_from().filter(|_| has_origin).map(|name| self.origin(name));
        if origin.is_some() && !job.tags.key().is_empty() {
            // A dead letter with the same key uses it until it is buried.
            let key = (tube.to_owned(), job.tags.key().to_owned());
            if self.unsettled_keys.contains(&key) {
                self.settle()?;
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
            false => job.tags.write_for(&self.abilities()?, least_ttl),
        };
        lost.into_iter().for_each(|key| self.results.lose(key));
        put(self.feed.add(Note::Put(self.line, after)), (job.pri, delay, job.ttr), &tags, &job.body);
        self.flow()?;
        self.settle_if_many()
    }

    /// Creates a key that outlives its job.
    fn add_key(&mut self, tube: &str, tags: &JobTags) -> Result<(), Problem> {
        let (tags, lost) = tags.write_for(&self.abilities()?, LEAST_TTL);
        if !lost.is_empty() {
            self.results.lose(KEPT_KEY);
            return Ok(());
        }
        if self.use_tube(tube)? {
            put(self.feed.add(Note::Put(self.line, After::Delete)), (u32::MAX, OUT_OF_REACH, 1), &tags, b"");
            self.flow()?;
        }
        self.settle_if_many()
    }

    /// Returns the index of this tube among the original tubes of dead letters.
    fn origin(&mut self, name: &str) -> u32 {
        let known = self.origins.iter().position(|other| other == name);
        known.unwrap_or_else(|| {
            self.origins.push(name.to_owned());
            self.origins.len() - 1
        }) as u32
    }

    fn abilities(&mut self) -> Result<Abilities, Problem> {
        if self.abilities.is_none() {
            self.finish()?;
            self.abilities = Some(Abilities::of(self.link)?);
        }
        Ok(self.abilities.unwrap_or_default())
    }

    /// Returns `true` if the server knows `reserve-job`, which beanstalkd 1.12 introduced.
    fn can_bury(&mut self) -> Result<bool, Problem> {
        if self.can_bury.is_none() {
            self.finish()?;
            // No job has this ID.
            self.can_bury = Some(self.link.ask("reserve-job 18446744073709551615")?.line == "NOT_FOUND");
        }
        Ok(self.can_bury == Some(true))
    }

    fn settle_if_many(&mut self) -> Result<(), Problem> {
        match self.results.unsettled.len() < AHEAD / 2 {
            true => Ok(()),
            false => self.settle(),
        }
    }

    /// Buries or deletes the jobs that were put out of reach.
    fn settle(&mut self) -> Result<(), Problem> {
        self.finish()?;
        self.unsettled_keys.clear();
        for &(id, after, _) in &self.results.unsettled {
            let command = match after {
                After::Bury(pri, origin) => {
                    self.feed.add(Note::Reserve).extend_from_slice(format!("reserve-job {id}\r\n").as_bytes());
                    let origin = origin.and_then(|place| self.origins.get(place as usize));
                    let from = origin.map_or(String::new(), |name| format!(" from:{name}"));
                    format!("bury {id} {pri}{from}\r\n")
                }
                _ => format!("delete {id}\r\n"),
            };
            self.feed.add(Note::Settle(id, after)).extend_from_slice(command.as_bytes());
        }
        self.finish()
    }
}
