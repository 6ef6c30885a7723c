//! The subcommand `import`, which puts the jobs that `export` has printed. It puts a buried job with the maximum delay,
//! which keeps workers away, and then buries the job. Servers other than beanpole bury a job only after reserving it.
//! For a retained idempotency key, it puts and deletes an empty job. Reserved jobs become ready, because their workers
//! are not connected to the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::prelude::*;
use super::put::MAX_REPORTS;
use crate::engine::State;
use crate::protocol::beanstalk::{read_tags, Extensions, Tagging};

/// The maximum length of a line in bytes, which is enough for a job of 1 GiB in base64 or with escapes.
const MAX_LINE: u64 = 6 << 30;
/// The minimum time to live of an imported buried job, in seconds. The job must not expire before it is buried.
const MIN_TTL: u64 = 60;
const KEPT_KEY: &str = "a key that outlives its job";

enum Note {
    Put(u64, After),
    Settle(Unsettled),
    /// If `reserve-job` is refused, `bury` is refused as well.
    Ignored,
}

#[derive(Clone, Copy)]
enum After {
    Nothing,
    /// The priority, the delay (if the server can store it), and the index in `origins` of a dead letter's origin.
    Bury(u32, Option<u32>, Option<u32>),
    Delete,
}

/// A job that waits to be buried or deleted.
#[derive(Clone, Copy)]
struct Unsettled {
    id: u64,
    after: After,
    /// `true` if the server already had the job, for example from an interrupted import.
    is_known: bool,
    line: u64,
}

struct Import<'a> {
    link: &'a mut Link,
    pipeline: Pipeline<Note>,
    into: Option<String>,
    skip: u64,
    is_interrupted: Arc<AtomicBool>,
    used: String,
    line: u64,
    can_bury: Option<bool>,
    abilities: Option<Abilities>,
    /// The tube and the key of each dead letter that waits to be buried.
    unsettled_keys: BTreeSet<(String, String)>,
    origins: Vec<String>,
    results: Results,
}

#[derive(Default)]
struct Results {
    done: u64,
    safe: u64,
    /// The first put that ends the import.
    failure: Option<Box<Problem>>,
    buried: u64,
    refused: u64,
    /// Jobs that the server refused to bury or delete.
    stuck: u64,
    /// Jobs of an interrupted import that were buried.
    finished: u64,
    others: Others,
    known: u64,
    replaced: u64,
    expired: u64,
    lost: BTreeMap<&'static str, u64>,
    unsettled: Vec<Unsettled>,
}

pub fn run(call: &Call, _: &mut Out) -> Result<u8> {
    let into = call.value(&INTO_TUBE).map(|name| tube(&name)).transpose()?;
    let skip = call.number(&SKIP, 0, u64::MAX)?.unwrap_or(0);
    let mut link = Link::open(call)?;
    // Without the right to see statistics, the counts cannot be compared.
    let count = |link: &mut Link| match Wanted::default().count(link) {
        Err(problem) if problem.code == REFUSED => Ok(None),
        counts => counts.map(|counts| Some(counts.iter().sum::<u64>())),
    };
    let before = count(&mut link)?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends the program immediately, for example while it waits for input.
        let registered = flag::register_conditional_shutdown(signal, 128 + signal, is_interrupted.clone());
        let registered = registered.and_then(|_| flag::register(signal, is_interrupted.clone()));
        registered.map_err(|error| Problem::refused(plain(&error)))?;
    }
    let mut import = Import {
        link: &mut link,
        pipeline: Pipeline::new(),
        into,
        skip,
        is_interrupted,
        used: "default".to_owned(),
        line: 0,
        can_bury: None,
        abilities: None,
        unsettled_keys: BTreeSet::new(),
        origins: Vec::new(),
        results: Results { safe: skip, ..Results::default() },
    };
    each_input(&call.operands, &mut |input| import.read(input)).map_err(|problem| {
        if problem.code == REFUSED {
            // The connection still works. If it breaks now, the jobs stay unsettled.
            let _ = import.settle();
        }
        Problem::new(problem.code, import.results.after_failure(&problem.text))
    })?;
    let results = import.results;
    results.report();
    let after = count(&mut link)?;
    let stored = results.done + results.stuck;
    if let Some((before, after)) = before.zip(after).filter(|(before, after)| after.wrapping_sub(*before) != stored) {
        tell(&format!("the server counted {before} jobs before, and {after} now: other clients use it as well"));
    }
    Ok(if results.refused == 0 && results.lost.is_empty() { DONE } else { REFUSED })
}

impl Results {
    fn report(&self) {
        let Results { done, buried, refused, .. } = self;
        tell(&format!("imported {done} jobs, {buried} of them buried; {refused} lines were refused"));
        self.others.report("imported");
        let notices = [
            (self.known, "jobs were not put, because the server has jobs with their keys"),
            (self.finished, "of these jobs were left by an interrupted import, and are buried now"),
            (self.expired, "jobs were not put, because their time to live has expired"),
            (self.replaced, "schedules replaced others with the same names"),
            (self.stuck, "jobs are delayed, because the server refused to bury or delete them"),
        ];
        notices.iter().filter(|(count, _)| *count > 0).for_each(|(count, what)| tell(&format!("{count} {what}")));
        for (key, count) in &self.lost {
            tell(&format!("not stored by the server: {key}, {count} times"));
        }
    }

    fn after_failure(&self, problem: &str) -> String {
        let count = self.unsettled.iter().filter(|job| !job.is_known).count() as u64 + self.stuck;
        let unsettled = if count > 0 { format!("; {count} more are delayed, not buried") } else { String::new() };
        // A continued import must include jobs that still wait to be buried or deleted.
        let skip = self.unsettled.first().map_or(self.safe, |job| self.safe.min(job.line - 1));
        format!("{problem}; {} jobs were imported{unsettled}; to continue, use --skip {skip}", self.done)
    }

    fn lose(&mut self, key: &'static str) {
        *self.lost.entry(key).or_default() += 1;
    }

    fn refuse(&mut self, line: u64, problem: &str) {
        self.refused += 1;
        if self.refused <= MAX_REPORTS {
            // The problem can contain a value of any length.
            let end = if problem.chars().nth(200).is_some() { "…" } else { "" };
            tell(&format!("line {line}: {problem:.200}{end}"));
        }
    }

    fn on_reply(&mut self, note: Note, line: &str) -> Result {
        match (note, first_word(line)) {
            (Note::Ignored, _) => {}
            (Note::Put(number, after), "INSERTED") => {
                self.safe = if self.failure.is_none() { number } else { self.safe };
                let mut words = line.split(' ').skip(1);
                let id = words.next().and_then(|id| id.parse().ok()).unwrap_or(0);
                match (after, words.next()) {
                    (After::Delete, Some("DELETED")) => self.others.keys += 1,
                    (After::Delete, Some(_)) => self.lose(KEPT_KEY),
                    (_, Some("SCHEDULED")) | (After::Nothing, None) => self.done += 1,
                    (_, Some("REPLACED")) => self.replaced += 1,
                    (after, state) => {
                        let is_known = state.is_some();
                        self.known += u64::from(is_known);
                        // The server buries the job of another client only if the job has the maximum delay.
                        if !is_known || state == Some("DELAYED") && matches!(after, After::Bury(_, Some(_), _)) {
                            self.unsettled.push(Unsettled { id, after, is_known, line: number });
                        }
                    }
                }
            }
            (Note::Put(number, _), "JOB_TOO_BIG" | "FORBIDDEN") => self.refuse(number, &refusal("put", line).text),
            (Note::Put(number, _), _) => {
                let problem = format!("line {number}: {}", refusal("put", line).text);
                self.failure.get_or_insert_with(|| Problem::refused(problem));
            }
            (Note::Settle(Unsettled { id, after, is_known, line: number }), reply) => {
                self.unsettled.retain(|job| job.id != id);
                match (reply, after) {
                    ("BURIED", _) if is_known => self.finished += 1,
                    ("NOT_FOUND", _) if is_known => {}
                    ("DELETED", _) => self.others.keys += 1,
                    ("BURIED", _) => (self.done, self.buried) = (self.done + 1, self.buried + 1),
                    (_, After::Delete) => self.lose(KEPT_KEY),
                    _ => self.refuse(number, &refusal(&format!("bury {id}"), line).text),
                }
                self.stuck += u64::from(!is_known && !matches!(reply, "DELETED" | "BURIED"));
            }
        }
        Ok(())
    }
}

impl Import<'_> {
    fn read(&mut self, mut input: Input) -> Result {
        let mut line = Vec::new();
        while !self.is_interrupted.load(Ordering::Relaxed) && input.line(&mut line, MAX_LINE, self.results.done)? {
            self.line += 1;
            // Some editors write a byte order mark at the beginning of a file.
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
            if self.line > self.skip && !line.trim_ascii().is_empty() {
                match ImportLine::parse(line) {
                    Ok(line) => self.add(line)?,
                    Err(problem) => self.results.refuse(self.line, &problem),
                }
            }
            // A continued import begins at the first unsettled line, so that line must be recent.
            let is_old = |job: &Unsettled| self.line - job.line >= MAX_BATCH as u64 / 2;
            if self.results.failure.is_some() || self.results.unsettled.first().is_some_and(is_old) {
                self.settle()?;
            }
        }
        self.settle()?;
        let goes_on = !self.is_interrupted.load(Ordering::Relaxed);
        goes_on.then_some(()).ok_or_else(|| Problem::refused("interrupted"))
    }

    fn send_full_batch(&mut self) -> Result {
        let Import { link, pipeline, results, .. } = self;
        pipeline.send_full_batch(link, &mut |note, reply| results.on_reply(note, &reply.line))
    }

    fn finish(&mut self) -> Result {
        let Import { link, pipeline, results, .. } = self;
        pipeline.finish(link, &mut |note, reply| results.on_reply(note, &reply.line))?;
        results.failure.take().map_or(Ok(()), Err)
    }

    fn add(&mut self, line: ImportLine) -> Result {
        let tube = self.into.clone().or(line.tube).unwrap_or_else(|| "default".to_owned());
        match line.content {
            Content::Job(job) => self.add_job(&tube, job)?,
            Content::Key(tags) => self.add_key(&tube, tags)?,
            // With `--tube`, the jobs go to another tube, to which the pause and the settings must not apply.
            Content::Pause(_) | Content::Settings(_) if self.into.is_some() => {}
            Content::Pause(seconds) => {
                // An empty tube that nobody watches is deleted together with its pause, so watch the tube.
                let pause = (format!("pause-tube {tube} {seconds}"), "PAUSED");
                self.results.others.pauses += u64::from(self.control(&[(format!("watch {tube}"), "WATCHING"), pause])?);
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
                self.results.others.settings += u64::from(self.control(&[command])?);
            }
        }
        self.send_full_batch()
    }

    fn control(&mut self, commands: &[(String, &str)]) -> Result<bool> {
        self.finish()?;
        match commands.iter().try_for_each(|(command, reply)| self.link.expect(command, reply).map(drop)) {
            Err(problem) if problem.code == REFUSED => {
                self.results.refuse(self.line, &problem.text);
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Returns the tag that names the tube, or `None` if the server refuses the tube. For a server without this tag,
    /// waits for the reply to `use`, because after a refusal, the job would go to the previous tube.
    fn tube_tag(&mut self, tube: &str) -> Result<Option<String>> {
        if tube != self.used {
            if self.abilities()?.has("tub") {
                return Ok(Some(format!(" tub:{tube}")));
            }
            if !self.control(&[(format!("use {tube}"), "USING")])? {
                return Ok(None);
            }
            tube.clone_into(&mut self.used);
        }
        Ok(Some(String::new()))
    }

    fn put(&mut self, tube: &str, after: After, numbers: (u32, u32, u32), tags: &str, body: &[u8]) -> Result<bool> {
        let Some(tag) = self.tube_tag(tube)? else { return Ok(false) };
        put(self.pipeline.add(Note::Put(self.line, after)), numbers, &format!("{tags}{tag}"), body);
        Ok(true)
    }

    fn add_job(&mut self, tube: &str, job: ImportJob) -> Result {
        let is_buried = job.state == State::Buried;
        if job.tags.ttl_left() == Some(0) && !is_buried {
            self.results.expired += 1;
            return Ok(());
        }
        if is_buried && !self.can_bury()? {
            self.results.refuse(self.line, "reserve-job is not supported or permitted, so the job cannot be buried");
            return Ok(());
        }
        let is_exact = is_buried && self.abilities()?.has("export");
        let origin = job.tags.dead_from().filter(|_| is_exact).map(|name| self.origin(name));
        if origin.is_some() && !job.tags.key().is_empty() {
            // Until this dead letter is buried, another dead letter with its key would be a duplicate.
            let key = (tube.to_owned(), job.tags.key().to_owned());
            if self.unsettled_keys.contains(&key) {
                self.settle()?;
            }
            self.unsettled_keys.insert(key);
        }
        let (after, delay, min_ttl) = match job.state {
            State::Buried => (After::Bury(job.pri, is_exact.then_some(job.delay), origin), MAX_DELAY, MIN_TTL),
            State::Delayed | State::Held | State::Scheduled => (After::Nothing, job.delay, 1),
            _ => (After::Nothing, 0, 1),
        };
        let (tags, lost) = match job.tags.is_empty() {
            true => Written::default(),
            false => job.tags.write_for(&self.abilities()?, min_ttl),
        };
        if self.accepts(&tags, job.state == State::Scheduled)
            && self.put(tube, after, (job.pri, delay, job.ttr), &tags, &job.body)?
        {
            lost.into_iter().for_each(|key| self.results.lose(key));
        }
        Ok(())
    }

    /// Refuses a line with invalid tags, because some servers would interpret its body as commands.
    fn accepts(&mut self, tags: &str, is_schedule: bool) -> bool {
        let is_valid = match read_tags(tags.as_bytes(), Extensions::ALL) {
            Tagging::Plain => !is_schedule,
            Tagging::Tagged(tags) => tags.recurs.is_some() || !is_schedule,
            Tagging::Malformed | Tagging::Garbage => false,
        };
        if !is_valid {
            self.results.refuse(self.line, "invalid values, or a schedule that the server does not support");
        }
        is_valid
    }

    fn add_key(&mut self, tube: &str, mut tags: JobTags) -> Result {
        // If the empty job is not deleted, it must expire, because it blocks the key.
        tags.0.push("expires-in", MIN_TTL.to_string());
        let (tags, lost) = tags.write_for(&self.abilities()?, MIN_TTL);
        if !lost.is_empty() {
            self.results.lose(KEPT_KEY);
        } else if self.accepts(&tags, false) {
            self.put(tube, After::Delete, (u32::MAX, MAX_DELAY, 1), &tags, b"")?;
        }
        Ok(())
    }

    fn origin(&mut self, name: &str) -> u32 {
        self.origins.iter().position(|other| other == name).unwrap_or_else(|| {
            self.origins.push(name.to_owned());
            self.origins.len() - 1
        }) as u32
    }

    fn abilities(&mut self) -> Result<Abilities> {
        if self.abilities.is_none() {
            self.finish()?;
            self.abilities = Some(Abilities::of(self.link)?);
        }
        Ok(self.abilities.unwrap_or_default())
    }

    /// Returns `true` if the server supports `reserve-job`, as beanstalkd 1.12 and later do.
    fn can_bury(&mut self) -> Result<bool> {
        if self.can_bury.is_none() {
            self.finish()?;
            // No job has the maximum ID.
            self.can_bury = Some(self.link.ask("reserve-job 18446744073709551615")?.line == "NOT_FOUND");
        }
        Ok(self.can_bury == Some(true))
    }

    fn settle(&mut self) -> Result {
        self.finish()?;
        self.unsettled_keys.clear();
        for unsettled @ Unsettled { id, after, .. } in self.results.unsettled.clone() {
            let After::Bury(pri, delay, origin) = after else {
                self.pipeline.add(Note::Settle(unsettled)).extend_from_slice(format!("delete {id}\r\n").as_bytes());
                continue;
            };
            let from = origin.map_or(String::new(), |index| format!(" from:{}", self.origins[index as usize]));
            if let Some(delay) = delay {
                let command = format!("bury {id} {pri} delay:{delay}{from}\r\n");
                self.pipeline.add(Note::Settle(unsettled)).extend_from_slice(command.as_bytes());
            } else {
                // If the job cannot be buried, it must not become ready when the connection is closed.
                let release = format!("release {id} {pri} {MAX_DELAY}\r\n");
                let commands = format!("reserve-job {id}\r\nbury {id} {pri}\r\n{release}");
                self.pipeline.add(Note::Ignored).extend_from_slice(commands.as_bytes());
                self.pipeline.add(Note::Settle(unsettled));
                self.pipeline.add(Note::Ignored);
            }
            self.send_full_batch()?;
        }
        self.finish()
    }
}
