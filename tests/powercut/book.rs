//! The state that a queue must have after each change, as far as clients can see it.
//!
//! Owns the jobs, the individual changes, and the textual form of changes in a trace. A log keeps or loses each change
//! as a whole, and one command can make several changes. Must not communicate with a server.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The protocol of a client, which determines whether jobs are identified by number or by a client-chosen ID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wire {
    Beanstalk,
    Gearman,
    Workq,
}

/// A body that begins with `word`, from which the remaining bytes are derived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    pub word: String,
    pub length: usize,
}

/// A change that the log stores in one record. A job's key is its number in decimal, or its Workq ID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put {
        key: String,
        job: Box<Job>,
    },
    /// A job that was only in memory becomes durable.
    Adopt(String),
    Reserve(String),
    Release {
        key: String,
        pri: u32,
        delay: u64,
    },
    Bury {
        key: String,
        pri: u32,
    },
    Kick(String),
    Delete(String),
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
    Set {
        tube: String,
        settings: String,
    },
    Lease(String),
    /// A Workq worker has reported the outcome.
    Outcome {
        key: String,
        done: bool,
        result: Body,
    },
    Restart,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Ready,
    Delayed,
    Reserved,
    Buried,
    Held,
    /// The job is a schedule, whose next run is after the end of the history.
    Scheduled,
    Leased,
    Done,
    Failed,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    pub wire: Wire,
    pub tube: String,
    pub body: Body,
    pub pri: u32,
    pub delay: u64,
    pub ttr: u64,
    pub place: Place,
    /// The numbers of reservations, releases, buries and kicks, or for Workq jobs, of attempts and failures.
    pub counts: [u32; 4],
    /// The position in the order of burying or of delaying.
    pub order: u64,
    /// The unique name within the function, or an empty string.
    pub unique: String,
    /// `true` if the job exists only until all clients that wait for it have disconnected.
    pub volatile: bool,
    pub max_fails: u32,
    pub result: Option<Body>,
    pub tags: String,
    /// The groups that the job waits for, with the numbers of members that must end. 0 means all members.
    pub waits: Vec<(String, u64)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    pub tube: String,
    pub body: Body,
    pub state: String,
    pub pri: u32,
    pub delay: u64,
    pub ttr: u64,
    pub counts: [u32; 4],
    pub result: Option<Body>,
    /// The values of the tags, by the keys that `stats-job` uses.
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TubeView {
    pub pause: u64,
    /// The key of the buried job that would be kicked next.
    pub buried: Option<String>,
    pub settings: String,
}

/// All jobs by key, and the pauses and settings of tubes.
#[derive(Clone, Default, Debug)]
pub struct Book {
    pub jobs: BTreeMap<String, Job>,
    pub pauses: BTreeMap<String, u64>,
    pub settings: BTreeMap<String, String>,
    /// The groups with members or waiting jobs, and the number of ended members of each group.
    groups: BTreeMap<String, u64>,
    next: u64,
}

/// The properties of the queue that a restarted server must show.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Views {
    pub jobs: BTreeMap<String, View>,
    pub tubes: BTreeMap<String, TubeView>,
}

impl Body {
    pub fn new(word: &str, length: usize) -> Body {
        Body { word: word.to_owned(), length: length.max(word.len() + 1) }
    }

    /// The bytes contain no zero byte and no line break.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}:", self.word).into_bytes();
        let mut state = hash(self.word.as_bytes());
        while bytes.len() < self.length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.extend((state >> 16).to_le_bytes()[..6].iter().map(|byte| b'0' + byte % 64));
        }
        bytes.truncate(self.length);
        bytes
    }

    pub fn of(bytes: &[u8]) -> Body {
        let start = bytes.split(|byte| *byte == b':').next().unwrap_or_default();
        let word = String::from_utf8_lossy(&start[..start.len().min(40)]).into_owned();
        let body = Body { word, length: bytes.len() };
        if body.bytes() == bytes {
            return body;
        }
        Body { word: format!("{} (damaged, {:x})", body.word, hash(bytes)), length: bytes.len() }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Job {
    /// Creates a job with default options.
    pub fn new(wire: Wire, tube: &str, body: Body, pri: u32, delay: u64, ttr: u64) -> Job {
        Job {
            wire,
            tube: tube.to_owned(),
            body,
            pri,
            delay,
            ttr,
            place: if delay > 0 { Place::Delayed } else { Place::Ready },
            counts: [0; 4],
            order: 0,
            unique: String::new(),
            volatile: false,
            max_fails: 0,
            result: None,
            tags: String::new(),
            waits: Vec::new(),
        }
    }

    fn member_of(&self) -> impl Iterator<Item = &str> {
        self.tags.split(' ').filter_map(|tag| tag.strip_prefix("grp:"))
    }

    /// Returns the groups in the job's `aft` tags, with the numbers of members in the tags, if any.
    fn after(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        let tags = self.tags.split(' ').filter_map(|tag| tag.strip_prefix("aft:"));
        tags.map(|tag| match tag.split_once(':') {
            Some((group, need)) => (group, Some(need.parse().expect("a number"))),
            None => (tag, None),
        })
    }

    /// `true` if the job has a tag that can make it wait for other jobs.
    pub fn may_wait(&self) -> bool {
        self.after().next().is_some()
    }

    /// Returns the interval of a schedule in seconds, or `None` for other jobs.
    fn every(&self) -> Option<&str> {
        self.tags.split(' ').find_map(|tag| tag.strip_prefix("every:"))
    }

    /// `true` if only the result of the job remains.
    pub fn is_over(&self) -> bool {
        matches!(self.place, Place::Done | Place::Failed)
    }

    fn state(&self) -> &'static str {
        match (self.wire, self.place) {
            (Wire::Workq, Place::Done) => "1",
            (Wire::Workq, Place::Failed) => "2",
            (Wire::Workq, Place::Leased) => "4",
            (Wire::Workq, _) if self.counts[0] > 0 => "3",
            (Wire::Workq, _) => "0",
            (_, Place::Delayed) => "delayed",
            (_, Place::Buried) => "buried",
            (_, Place::Held) => "held",
            (_, Place::Scheduled) => "scheduled",
            _ => "ready",
        }
    }

    /// Returns the properties of the job that a restarted server shows.
    pub fn view(&self) -> View {
        // Fields that the protocol does not show get defaults, in the recovered state as well.
        let is_shown = self.wire == Wire::Beanstalk;
        View {
            tube: self.tube.clone(),
            body: self.body.clone(),
            state: self.state().to_owned(),
            pri: if is_shown { self.pri } else { 0 },
            delay: if is_shown { self.delay } else { 0 },
            ttr: if is_shown { self.ttr } else { 0 },
            counts: self.counts,
            result: self.result.clone(),
            tags: self.shown(),
        }
    }

    fn shown(&self) -> BTreeMap<String, String> {
        let mut shown = shown(&self.tags);
        if self.place == Place::Held {
            shown.insert("after-group".to_owned(), String::new());
        }
        shown
    }
}

/// Returns the values that `stats-job` shows for the given tags.
fn shown(tags: &str) -> BTreeMap<String, String> {
    let mut shown = BTreeMap::new();
    let mut show = |key: &str, value: &str| drop(shown.insert(key.to_owned(), value.to_owned()));
    for tag in tags.split(' ').filter(|tag| !tag.is_empty()) {
        let parts: Vec<&str> = tag.split(':').collect();
        let (first, second) = (parts[1], parts.get(2).copied());
        match parts[0] {
            "idp" => {
                show("idempotency-key", first);
                second.into_iter().for_each(|seconds| show("idempotency-ttl", seconds));
            }
            "con" => {
                show("concurrency-key", first);
                show("concurrency-limit", second.unwrap_or("1"));
            }
            "try" => {
                show("try", first);
                second.into_iter().for_each(|seconds| show("backoff", seconds));
            }
            "grp" => show("group", first),
            // Shown only while the job waits.
            "aft" => {}
            "every" => {
                show("every", first);
                show("runs", "0");
            }
            // The remaining time to live changes continuously, so its value is not compared.
            "ttl" => show("expires-in", ""),
            _ => panic!("{tags}"),
        }
    }
    shown
}

impl Book {
    pub fn apply(&mut self, change: &Change) {
        self.next += 1;
        match change {
            Change::Put { key, job } => {
                let job = Job { order: self.next, ..(**job).clone() };
                self.put(key, job);
            }
            Change::Delete(key) => self.delete(key),
            Change::Pause { tube, seconds: 0 } => drop(self.pauses.remove(tube)),
            Change::Pause { tube, seconds } => drop(self.pauses.insert(tube.clone(), *seconds)),
            Change::Set { tube, settings } if settings.is_empty() => drop(self.settings.remove(tube)),
            Change::Set { tube, settings } => drop(self.settings.insert(tube.clone(), settings.clone())),
            Change::Restart => self.restart(),
            Change::Adopt(key)
            | Change::Reserve(key)
            | Change::Kick(key)
            | Change::Lease(key)
            | Change::Release { key, .. }
            | Change::Bury { key, .. }
            | Change::Move { key, .. }
            | Change::Outcome { key, .. } => {
                let order = self.next;
                let job = self.jobs.get_mut(key).unwrap_or_else(|| panic!("{change:?}: there is no such job"));
                job.order = order;
                job.apply(change);
                if job.place != Place::Held {
                    job.waits.clear();
                }
                self.tidy();
            }
        }
    }

    fn members(&self, group: &str) -> usize {
        self.jobs.values().filter(|job| job.member_of().any(|name| name == group)).count()
    }

    fn put(&mut self, key: &str, mut job: Job) {
        if job.every().is_some() {
            job.place = Place::Scheduled;
            // A schedule that replaces one with the same interval keeps the time of the next run.
            let old = self.jobs.get(key).filter(|old| job.delay == 0 && old.every() == job.every());
            job.delay = old.map_or(job.delay, |old| old.delay);
        }
        let waits = job.after().filter_map(|(group, need)| match need {
            None if self.members(group) == 0 => None,
            Some(need @ 1..) if self.groups.get(group).is_some_and(|ended| *ended >= need) => None,
            need => Some((group.to_owned(), need.unwrap_or(0))),
        });
        job.waits = waits.collect();
        if !job.waits.is_empty() {
            job.place = Place::Held;
        }
        let groups: Vec<String> = job.member_of().map(str::to_owned).collect();
        for group in groups.into_iter().chain(job.waits.iter().map(|(group, _)| group.clone())) {
            self.groups.entry(group).or_insert(0);
        }
        self.jobs.insert(key.to_owned(), job);
    }

    /// Deletes a job, and makes jobs ready that waited only for it.
    fn delete(&mut self, key: &str) {
        let Some(job) = self.jobs.remove(key) else { return };
        for group in job.member_of() {
            let ended = self.groups.entry(group.to_owned()).or_insert(0);
            *ended += 1;
            let (ended, is_complete) = (*ended, self.members(group) == 0);
            for held in self.jobs.values_mut().filter(|job| job.place == Place::Held) {
                let is_over = |need: u64| if need == 0 { is_complete } else { ended >= need };
                held.waits.retain(|(name, need)| name != group || !is_over(*need));
                if held.waits.is_empty() {
                    held.place = if held.delay > 0 { Place::Delayed } else { Place::Ready };
                }
            }
        }
        self.tidy();
    }

    /// Removes groups that have neither members nor waiting jobs.
    fn tidy(&mut self) {
        let mut groups = std::mem::take(&mut self.groups);
        let waits = |group: &str| self.jobs.values().any(|job| job.waits.iter().any(|(name, _)| name == group));
        groups.retain(|group, _| self.members(group) > 0 || waits(group));
        self.groups = groups;
    }

    fn restart(&mut self) {
        self.jobs.retain(|_, job| !job.volatile);
        for job in self.jobs.values_mut().filter(|job| job.place == Place::Reserved) {
            job.place = Place::Ready;
        }
        let (jobs, settings) = (&self.jobs, &self.settings);
        self.pauses.retain(|tube, _| settings.contains_key(tube) || jobs.values().any(|job| job.tube == *tube));
    }

    /// Returns the job that the next kick in the tube would move.
    pub fn kicked_next(&self, tube: &str) -> Option<String> {
        let of = |place| {
            let there = self.jobs.iter().filter(move |(_, job)| job.tube == tube && job.place == place);
            // Among delayed jobs, a kick moves the one that is due first. All delays, and the differences between
            // delays, are longer than a history.
            there.min_by_key(|(_, job)| (if place == Place::Delayed { job.delay } else { 0 }, job.order))
        };
        of(Place::Buried).or_else(|| of(Place::Delayed)).map(|(key, _)| key.clone())
    }

    pub fn views(&self) -> Views {
        let kept = || self.jobs.iter().filter(|(_, job)| !job.volatile);
        let mut tubes = BTreeMap::new();
        let with_jobs = kept().filter(|(_, job)| job.wire == Wire::Beanstalk).map(|(_, job)| &job.tube);
        for tube in with_jobs.chain(self.settings.keys()) {
            let buried = kept().filter(|(_, other)| other.tube == *tube && other.place == Place::Buried);
            let buried = buried.min_by_key(|(_, job)| job.order).map(|(key, _)| key.clone());
            let pause = self.pauses.get(tube).copied().unwrap_or(0);
            let settings = self.settings.get(tube).cloned().unwrap_or_default();
            tubes.insert(tube.clone(), TubeView { pause, buried, settings });
        }
        Views { jobs: kept().map(|(key, job)| (key.clone(), job.view())).collect(), tubes }
    }
}

impl Job {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Adopt(_) => self.volatile = false,
            Change::Reserve(_) => {
                self.place = Place::Reserved;
                self.counts[0] += 1;
            }
            Change::Release { pri, delay, .. } => {
                (self.pri, self.delay) = (*pri, *delay);
                self.place = if *delay > 0 { Place::Delayed } else { Place::Ready };
                self.counts[1] += 1;
            }
            Change::Bury { pri, .. } => {
                (self.pri, self.place) = (*pri, Place::Buried);
                self.counts[2] += 1;
            }
            Change::Kick(_) => {
                self.place = Place::Ready;
                self.counts[3] += 1;
            }
            Change::Move { tube, pri, delay, .. } => {
                (self.tube, self.pri, self.delay) = (tube.clone(), *pri, *delay);
                self.place = if *delay > 0 { Place::Delayed } else { Place::Ready };
            }
            Change::Lease(_) => {
                self.place = Place::Leased;
                self.counts[0] += 1;
            }
            Change::Outcome { done: true, result, .. } => {
                (self.place, self.result) = (Place::Done, Some(result.clone()));
            }
            Change::Outcome { result, .. } => {
                self.counts[1] += 1;
                if self.counts[1] >= self.max_fails.max(1) {
                    (self.place, self.result) = (Place::Failed, Some(result.clone()));
                } else {
                    self.place = Place::Ready;
                }
            }
            Change::Put { .. } | Change::Delete(_) | Change::Pause { .. } | Change::Set { .. } | Change::Restart => {
                unreachable!("not here")
            }
        }
    }
}

/// Joins words with spaces. An empty word becomes a hyphen.
fn line(words: &[&dyn std::fmt::Display]) -> String {
    let mut line = String::new();
    for word in words {
        let word = word.to_string();
        let word = if word.is_empty() { "-" } else { &word };
        let _ = write!(line, "{}{word}", if line.is_empty() { "" } else { " " });
    }
    line
}

impl Change {
    pub fn write(&self) -> String {
        match self {
            Change::Put { key, job } => {
                let wire = match job.wire {
                    Wire::Beanstalk => 'b',
                    Wire::Gearman => 'g',
                    Wire::Workq => 'w',
                };
                let Job { tube, body, pri, delay, ttr, unique, volatile, max_fails, tags, .. } = &**job;
                let tags = tags.replace(' ', ",");
                let volatile = u32::from(*volatile);
                line(&[
                    &"put",
                    key,
                    &wire,
                    tube,
                    &body.word,
                    &body.length,
                    pri,
                    delay,
                    ttr,
                    unique,
                    &volatile,
                    max_fails,
                    &tags,
                ])
            }
            Change::Adopt(key) => line(&[&"adopt", key]),
            Change::Reserve(key) => line(&[&"reserve", key]),
            Change::Release { key, pri, delay } => line(&[&"release", key, pri, delay]),
            Change::Bury { key, pri } => line(&[&"bury", key, pri]),
            Change::Kick(key) => line(&[&"kick", key]),
            Change::Delete(key) => line(&[&"delete", key]),
            Change::Pause { tube, seconds } => line(&[&"pause", tube, seconds]),
            Change::Move { key, tube, pri, delay } => line(&[&"move", key, tube, pri, delay]),
            Change::Set { tube, settings } => line(&[&"set", tube, &settings.replace(' ', ",")]),
            Change::Lease(key) => line(&[&"lease", key]),
            Change::Outcome { key, done, result } => {
                line(&[&"outcome", key, &u32::from(*done), &result.word, &result.length])
            }
            Change::Restart => "restart".to_owned(),
        }
    }

    pub fn read(text: &str) -> Change {
        let words: Vec<&str> = text.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
        let word = |place: usize| words[place].to_owned();
        let number = |place: usize| words[place].parse::<u64>().unwrap_or_else(|_| panic!("{text}"));
        let small = |place: usize| number(place) as u32;
        let body = |place: usize| Body { word: word(place), length: number(place + 1) as usize };
        let key = words.get(1).map(|key| (*key).to_owned()).unwrap_or_default();
        match words[0] {
            "put" => {
                let wire = match words[2] {
                    "b" => Wire::Beanstalk,
                    "g" => Wire::Gearman,
                    _ => Wire::Workq,
                };
                let job = Job::new(wire, words[3], body(4), small(6), number(7), number(8));
                let tags = word(12).replace(',', " ");
                let job = Job { unique: word(9), volatile: small(10) == 1, max_fails: small(11), tags, ..job };
                Change::Put { key, job: Box::new(job) }
            }
            "adopt" => Change::Adopt(key),
            "reserve" => Change::Reserve(key),
            "release" => Change::Release { key, pri: small(2), delay: number(3) },
            "bury" => Change::Bury { key, pri: small(2) },
            "kick" => Change::Kick(key),
            "delete" => Change::Delete(key),
            "pause" => Change::Pause { tube: key, seconds: number(2) },
            "move" => Change::Move { key, tube: word(2), pri: small(3), delay: number(4) },
            "set" => Change::Set { tube: key, settings: word(2).replace(',', " ") },
            "lease" => Change::Lease(key),
            "outcome" => Change::Outcome { key, done: number(2) == 1, result: body(3) },
            "restart" => Change::Restart,
            _ => panic!("{text}"),
        }
    }
}
