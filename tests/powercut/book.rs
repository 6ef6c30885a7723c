//! The state that a queue must have after each change, as far as clients can observe the state.
//!
//! Owns the facts about jobs that the reference model lacks: protocols, bodies, and Workq results. The reference model
//! contains the rules of the queue, and also predicts the replies of the simulated server in tests/sim. Must not
//! communicate with a server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::change::{hash, Body, Change, Wire};
use crate::reference::model::{Model, Name, Place};
use crate::reference::{ClientId, Failed, History, JobId, Limits, Span, State, Tagged, Time};
use crate::tags::{settings_of, tags_of};

/// The client that executes all beanstalk and Gearman commands.
const CLIENT: ClientId = ClientId(1);

/// The client that holds the Workq leases, which survive a restart.
const LEASER: ClientId = ClientId(2);

/// The properties with which a job was put, and facts that the reference model lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    pub wire: Wire,
    pub tube: String,
    pub body: Body,
    pub pri: u32,
    pub delay: u64,
    pub ttr: u64,
    /// The unique ID of a Gearman job within its function, or an empty string.
    pub unique: String,
    /// The reducer of a Gearman job, or an empty string.
    pub reducer: String,
    /// `true` if the job exists only until all clients that wait for it have disconnected.
    pub volatile: bool,
    pub max_fails: u32,
    /// The maximum number of leases of a Workq job before its failure is final, or 0.
    pub max_attempts: u32,
    pub tags: String,
    /// The number of failures that Workq workers have reported.
    pub fails: u32,
    /// The properties of the job if it is a finished Workq job. The model does not contain finished jobs.
    pub over: Option<View>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    pub tube: String,
    pub body: Body,
    pub state: String,
    pub pri: u32,
    pub delay: u64,
    pub ttr: u64,
    /// The numbers of reservations, releases, buries and kicks. For a Workq job, the numbers of attempts and failures,
    /// followed by two zeros.
    pub counts: [u32; 4],
    pub result: Option<Body>,
    /// The values in the reply to `stats-job` that result from tags and failures, by their names in the reply.
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TubeView {
    pub pause: u64,
    /// The key of the buried job that the next kick would move.
    pub buried: Option<String>,
    pub settings: String,
}

/// All jobs by key, the settings of tubes in their textual form, and the reference model of the queue.
#[derive(Clone, Debug)]
pub struct Book {
    pub jobs: BTreeMap<String, Job>,
    pub settings: BTreeMap<String, String>,
    model: Model,
    now: Time,
}

/// The properties of the queue that a restarted server must report.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Views {
    pub jobs: BTreeMap<String, View>,
    pub tubes: BTreeMap<String, TubeView>,
    /// The idempotency keys of ended jobs, each with its tube, in the format of `list-keys`.
    pub keys: BTreeSet<String>,
}

/// Returns the number of a job in the model. For a Workq job, this number is a hash of the ID.
fn id(key: &str) -> JobId {
    JobId(key.parse().unwrap_or_else(|_| hash(key.as_bytes()) | 1 << 63))
}

fn name(text: &str) -> Name {
    static NAMES: Mutex<BTreeSet<Name>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().expect("an unpoisoned lock");
    names.get(text).copied().unwrap_or_else(|| {
        let name: Name = text.to_owned().leak();
        names.insert(name);
        name
    })
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
            unique: String::new(),
            reducer: String::new(),
            volatile: false,
            max_fails: 0,
            max_attempts: 0,
            tags: String::new(),
            fails: 0,
            over: None,
        }
    }

    /// Returns the idempotency key of the job, if any.
    pub fn idp(&self) -> Option<&str> {
        self.tags.split(' ').find_map(|tag| tag.strip_prefix("idp:")).and_then(|key| key.split(':').next())
    }

    fn state(&self, state: State, reserves: u32) -> &'static str {
        match (self.wire, state) {
            (Wire::Workq, State::Reserved) => "4",
            (Wire::Workq, _) if reserves > 0 => "3",
            (Wire::Workq, _) => "0",
            (_, State::Delayed) => "delayed",
            (_, State::Buried) => "buried",
            (_, State::Held) => "held",
            (_, State::Scheduled) => "scheduled",
            _ => "ready",
        }
    }

    fn client(&self) -> ClientId {
        if self.wire == Wire::Workq {
            LEASER
        } else {
            CLIENT
        }
    }
}

/// Returns the number of failed tries and the reason for the last failure, which the tags of an import contain.
fn failures(tags: &str) -> (u8, Name) {
    let value = |kind: &str| tags.split(' ').find_map(|tag| tag.strip_prefix(kind));
    let fails = value("try:").and_then(|value| value.split(':').nth(2));
    let reason = value("err:").map_or("", |reason| reason.trim_matches('"'));
    (fails.map_or(0, |fails| fails.parse().expect("a number")), name(reason))
}

/// Returns the properties that only Gearman and Workq jobs have, by their names in statistics.
fn own_limits(job: &Job) -> BTreeMap<String, String> {
    let shown = [
        ("reducer", job.reducer.clone()),
        ("max-attempts", if job.wire == Wire::Workq { job.max_attempts.to_string() } else { String::new() }),
        ("max-fails", if job.wire == Wire::Workq { job.max_fails.to_string() } else { String::new() }),
    ];
    shown.into_iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns the states in which a flush deletes jobs.
fn flushed(states: &str) -> Vec<State> {
    let is_meant = |state: &State| match states {
        "tube" => true,
        "free" => *state != State::Reserved,
        word => state.word() == word,
    };
    State::UNFINISHED.into_iter().filter(is_meant).collect()
}

/// Returns the values that `stats-job` reports for the given tags.
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
                second.filter(|seconds| *seconds != "0").into_iter().for_each(|seconds| show("backoff", seconds));
            }
            "grp" => show("group", first),
            // `stats-job` reports this tag only while the job waits.
            "aft" => {}
            // The model contains the reason.
            "err" => {}
            // `stats-job` reports the tube of every job, with or without this tag.
            "tub" => {}
            "every" => show("every", first),
            "cron" => show("cron", &first.replace(',', " ")),
            // The remaining time to live changes continuously, so its value is not compared.
            "ttl" => show("expires-in", ""),
            _ => panic!("unknown tag in: {tags}"),
        }
    }
    shown
}

impl Default for Book {
    fn default() -> Book {
        let limits = Limits { max_memory: 1 << 40, max_tubes: 1 << 20, max_watched: 1 << 20, ..Limits::NONE };
        let mut model = Model::new(limits);
        [CLIENT, LEASER].into_iter().for_each(|client| model.connect(client));
        Book { jobs: BTreeMap::new(), settings: BTreeMap::new(), model, now: Time::from_nanos(0) }
    }
}

impl Book {
    pub fn apply(&mut self, change: &Change) {
        self.make(change);
    }

    /// Returns the number of jobs that a flush or a move of a whole tube would affect.
    pub fn affected(&self, change: &Change) -> u64 {
        self.clone().make(change)
    }

    /// Returns the possible books after a restart has interrupted a move of ready jobs from a tube that also has
    /// reserved jobs. The restart makes the reserved jobs ready, so the server can then move them instead of others.
    /// For any other change, the result is empty.
    pub fn resumed(&self, change: &Change) -> impl Iterator<Item = Book> + '_ {
        let count = |from: &str, state| {
            self.model.jobs.iter().filter(|job| job.tube == from && job.place.state() == state).count() as u64
        };
        let (from, to, bound) = match change {
            Change::MoveTube { from, to, state, bound } if state == "ready" && count(from, State::Reserved) > 0 => {
                (from.clone(), to.clone(), count(from, State::Ready).min(*bound))
            }
            _ => Default::default(),
        };
        (0..bound).map(move |first| {
            let mut book = self.clone();
            let part = |bound| {
                let (from, to) = (from.clone(), to.clone());
                Change::MoveTube { from, to, state: "ready".to_owned(), bound }
            };
            let moved = book.make(&part(first));
            book.apply(&Change::Restart {});
            book.apply(&part(bound - moved));
            book
        })
    }

    /// Makes the change. Advances the time by a millisecond, which is negligible compared with a history's delays.
    fn make(&mut self, change: &Change) -> u64 {
        self.now = self.now + Span::from_millis(1);
        self.model.extended.now = self.now;
        let mut count = 0;
        let applied = match change {
            Change::Put { key, job } => self.put(key, job),
            Change::Run { key, copy } => self.run(key, copy),
            Change::Delete { key } if self.jobs[key].over.is_some() => self.jobs.remove(key).is_some(),
            Change::Outcome { key, done, result } => self.finish(key, *done, result),
            Change::Restart {} => self.restart(),
            Change::Flush { tube, states } => {
                count = self.model.flush_states(name(tube), &flushed(states));
                true
            }
            Change::Pause { tube, seconds } => {
                let tube = self.tube(tube);
                self.model.pause(tube, Span::from_secs(*seconds), self.now)
            }
            Change::MoveTube { from, to, state, bound } => {
                let state = State::UNFINISHED.into_iter().find(|it| it.word() == state).expect("a state");
                let tubes = (self.tube(from), self.tube(to));
                let moved = self.model.move_jobs(CLIENT, tubes, state, *bound, self.now);
                count = *moved.as_ref().unwrap_or(&0);
                moved.is_ok()
            }
            Change::Set { tube, settings } => {
                let words: Vec<&str> = settings.split(' ').filter(|word| !word.is_empty()).collect();
                let tube = self.tube(tube);
                self.settings.insert(tube.to_owned(), settings.clone());
                self.settings.retain(|_, settings| !settings.is_empty());
                self.model.set_tube(CLIENT, tube, settings_of(&words, name), self.now).is_ok()
            }
            _ => self.apply_to_job(change),
        };
        assert!(applied, "{change:?} is impossible");
        let model = &self.model;
        let over = self.jobs.values().filter(|job| job.over.is_some()).count();
        if self.jobs.len() != model.jobs.len() + over {
            let left: BTreeSet<JobId> = model.jobs.iter().map(|job| job.id).collect();
            self.jobs.retain(|key, job| job.over.is_some() || left.contains(&id(key)));
        }
        count
    }

    fn apply_to_job(&mut self, change: &Change) -> bool {
        let now = self.now;
        match change {
            Change::Persist { key } => {
                self.jobs.get_mut(key).into_iter().for_each(|job| job.volatile = false);
                true
            }
            Change::Reserve { key } | Change::Lease { key } => {
                self.model.reserve_job(self.jobs[key].client(), id(key), now)
            }
            Change::Release { key, pri, delay } => {
                self.model.release(CLIENT, id(key), *pri, Span::from_secs(*delay), now)
            }
            Change::Bury { key, pri } => {
                // An imported job can be buried without a reservation, but the model requires a reservation.
                let reserves = self.model.job(id(key)).map_or(0, |job| job.history.reserves);
                self.model.reserve_job(CLIENT, id(key), now);
                let buried = self.model.bury(CLIENT, id(key), *pri, now);
                self.in_model(key).history.reserves = reserves;
                buried
            }
            Change::Import { key, delay, from } => {
                self.in_model(key).delay = Span::from_secs(*delay);
                let failure = self.model.extended.failures.entry(id(key)).or_default();
                failure.2 = Some(name(from)).filter(|from| !from.is_empty());
                true
            }
            Change::Revoke { key, pri } => self.model.revoke(id(key), *pri, now),
            Change::Reason { key, reason } => {
                self.model.extended.failures.entry(id(key)).or_default().1 = name(reason);
                true
            }
            Change::Fail { key, pri } => {
                let tube = self.in_model(key).tube;
                let dead = self.model.extended.rules.get_mut(tube).and_then(|rules| rules.settings.dead.take());
                let terms = (*pri, self.model.reason(id(key)));
                let failed = self.model.fail(CLIENT, id(key), terms, Some(Failed::Retried(Span::ZERO)), now);
                self.model.extended.rules.get_mut(tube).into_iter().for_each(|rules| rules.settings.dead = dead);
                failed.is_some()
            }
            Change::Dead { key, tube } => {
                self.model.send_to_dead_tube(id(key));
                self.in_model(key).tube == tube
            }
            Change::Lose { key } => {
                self.model.lose(id(key), now);
                true
            }
            Change::Skip { key } => self.model.kick_job(id(key), now) == Ok(false),
            Change::Kick { key } => self.model.kick_job(id(key), now) == Ok(true),
            Change::Delete { key } => {
                // Over HTTP, a client can delete a job that was revoked from it.
                self.model.extended.revoked.remove(&id(key));
                self.model.delete(self.jobs[key].client(), id(key))
            }
            Change::Shift { key, tube } => self.shift(key, tube),
            Change::Move { key, tube, pri, delay } => {
                let tube = self.tube(tube);
                self.model.move_job(CLIENT, id(key), tube, (*pri, Span::from_secs(*delay)), now) == Ok(true)
            }
            _ => unreachable!("not a change to a job"),
        }
    }

    /// Returns the name of a tube. The client watches the tube from now on, so that the tube continues to exist.
    fn tube(&mut self, text: &str) -> Name {
        let _ = self.model.watch(CLIENT, name(text));
        name(text)
    }

    fn shift(&mut self, key: &str, tube: &str) -> bool {
        let tube = self.tube(tube);
        self.model.burials += 1;
        let order = self.model.burials;
        self.model.extended.failures.get_mut(&id(key)).into_iter().for_each(|failure| failure.2 = None);
        let job = self.in_model(key);
        let is_buried = job.place.state() == State::Buried;
        (job.tube, job.place) = (tube, Place::Buried { order });
        is_buried
    }

    fn in_model(&mut self, key: &str) -> &mut crate::reference::model::Job {
        self.model.jobs.iter_mut().find(|job| job.id == id(key)).expect("a job")
    }

    fn put(&mut self, key: &str, job: &Job) -> bool {
        let tube = self.tube(&job.tube);
        self.model.use_tube(CLIENT, tube).expect("memory for a tube");
        let last = std::mem::replace(&mut self.model.last_id, id(key).0 - 1);
        let terms = (job.pri, Span::from_secs(job.delay), Span::from_secs(job.ttr.max(crate::act::LONG)));
        let put = match &*job.tags {
            "" => self.model.put(CLIENT, terms, Vec::new(), self.now).map(Tagged::New),
            tags => self.model.put_tagged(
                CLIENT,
                terms,
                Vec::new(),
                tags_of(&tags.split(' ').collect::<Vec<_>>(), name),
                self.now,
            ),
        };
        self.model.last_id = self.model.last_id.max(last);
        let (fails, reason) = failures(&job.tags);
        if fails > 0 || !reason.is_empty() {
            self.model.extended.failures.insert(id(key), (fails, reason, None));
        }
        self.jobs.insert(key.to_owned(), job.clone());
        matches!(put, Ok(Tagged::New(it) | Tagged::Scheduled { id: it, .. }) if it == id(key))
    }

    fn run(&mut self, key: &str, copy: &str) -> bool {
        let last = std::mem::replace(&mut self.model.last_id, id(copy).0 - 1);
        let is_done = self.model.kick_job(id(key), self.now) == Ok(true) && self.model.job(id(copy)).is_some();
        self.model.last_id = self.model.last_id.max(last);
        let is_own = |tag: &&str| !tag.starts_with("every:") && !tag.starts_with("cron:");
        let tags = self.jobs[key].tags.split(' ').filter(is_own).collect::<Vec<_>>().join(" ");
        self.jobs.insert(copy.to_owned(), Job { tags, ..self.jobs[key].clone() });
        is_done
    }

    /// Returns `true` if a Workq job is ready again after one more failure.
    pub fn retries(&self, key: &str) -> bool {
        let attempts = self.model.job(id(key)).map_or(0, |job| job.history.reserves);
        let is_retried = |job: &Job| job.max_attempts == 0 || attempts < job.max_attempts;
        self.jobs.get(key).is_some_and(|job| job.fails + 1 < job.max_fails && is_retried(job))
    }

    /// Applies the outcome that a Workq worker has reported, even if the lease of the job has ended.
    fn finish(&mut self, key: &str, done: bool, result: &Body) -> bool {
        let retries = !done && self.retries(key);
        let job = self.jobs.get_mut(key).expect("a job");
        if job.volatile {
            return self.model.delete(LEASER, id(key));
        }
        job.fails += u32::from(!done);
        if retries {
            self.in_model(key).place = Place::Ready;
            return true;
        }
        let view = self.view(key);
        let state = if done { "1" } else { "2" }.to_owned();
        self.jobs.get_mut(key).expect("a job").over = Some(View { state, result: Some(result.clone()), ..view });
        self.model.delete(LEASER, id(key))
    }

    fn restart(&mut self) -> bool {
        let ids = |fits: fn(&Job) -> bool| -> BTreeSet<JobId> {
            self.jobs.iter().filter(|(_, job)| fits(job)).map(|(key, _)| id(key)).collect()
        };
        let (gone, leased) = (ids(|job| job.volatile), ids(|job| job.wire == Wire::Workq));
        self.model.jobs.retain(|job| !gone.contains(&job.id));
        for job in self.model.jobs.iter_mut().filter(|job| !leased.contains(&job.id)) {
            if matches!(job.place, Place::Reserved { .. }) {
                job.place = Place::Ready;
            }
        }
        self.model.disconnect(CLIENT, self.now);
        self.model.connect(CLIENT);
        let tubes: Vec<Name> = self.model.tubes.iter().map(|tube| tube.name).collect();
        for tube in tubes {
            self.tube(tube);
        }
        true
    }

    /// Returns the state of a job. A Workq job with a result is finished.
    pub fn state(&self, key: &str) -> State {
        self.model.state_of(id(key)).unwrap_or(State::Finished)
    }

    /// Returns the priority and, in seconds, the delay of the job's last put, release or move.
    pub fn terms(&self, key: &str) -> (u32, u64) {
        self.model.job(id(key)).map(|job| (job.pri, job.delay.nanos() / 1_000_000_000)).expect("a job")
    }

    /// Returns the reason for the last failure of a job, or an empty string.
    pub fn reason(&self, key: &str) -> Name {
        self.model.reason(id(key))
    }

    /// Returns the buried jobs of a tube in the order in which kicks move them.
    pub fn buried(&self, tube: &str) -> Vec<String> {
        self.model.in_order(name(tube), State::Buried).into_iter().map(|job| job.0.to_string()).collect()
    }

    pub fn has_reserved(&self, tube: &str) -> bool {
        self.model.jobs.iter().any(|job| job.tube == tube && job.place.state() == State::Reserved)
    }

    pub fn tube_of(&self, key: &str) -> Name {
        self.model.job(id(key)).expect("a job").tube
    }

    /// Returns the dead-letter tube of the job's tube.
    pub fn dead_tube(&self, key: &str) -> Option<Name> {
        self.model.extended.rules.get(self.tube_of(key)).and_then(|rules| rules.settings.dead)
    }

    /// Returns `true` if the job was revoked and the client that held the job cannot delete it.
    pub fn is_revoked(&self, key: &str) -> bool {
        self.model.is_revoked(id(key), CLIENT)
    }

    pub fn is_volatile(&self, key: &str) -> bool {
        self.jobs.get(key).is_some_and(|job| job.volatile)
    }

    /// Returns `true` if another job in `tube` has the job's idempotency key.
    pub fn is_taken(&self, key: &str, tube: &str) -> bool {
        let other = self.jobs[key].idp().and_then(|idp| self.model.keyed(name(tube), name(idp)));
        other.is_some_and(|other| other != id(key))
    }

    /// Returns the reserved jobs that have a limited number of tries, in the order in which they become ready when the
    /// client disconnects.
    pub fn limited(&self) -> Vec<String> {
        let is_limited = |job: &&crate::reference::model::Job| {
            matches!(job.place, Place::Reserved { by: CLIENT, .. }) && self.model.tries_left(job.id).is_some()
        };
        let mut jobs: Vec<_> = self.model.jobs.iter().filter(is_limited).map(|job| (job.pri, job.id.0)).collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(_, id)| id.to_string()).collect()
    }

    /// Returns the jobs that a kick of at most `bound` jobs moves.
    pub fn kicked(&self, tube: &str, bound: u64) -> Vec<String> {
        let buried = self.model.in_order(name(tube), State::Buried);
        let jobs = if buried.is_empty() { self.model.in_order(name(tube), State::Delayed) } else { buried };
        jobs.into_iter().take(bound as usize).map(|job| job.0.to_string()).collect()
    }

    fn view(&self, key: &str) -> View {
        let job = &self.jobs[key];
        if let Some(over) = &job.over {
            return over.clone();
        }
        let now = self.model.job(id(key)).expect("a job");
        let History { reserves, releases, buries, kicks, .. } = now.history;
        // Fields that the protocol does not report have default values here and in the view of the recovered queue.
        let is_shown = u32::from(job.wire == Wire::Beanstalk);
        View {
            tube: now.tube.to_owned(),
            body: job.body.clone(),
            state: job.state(self.state(key), reserves).to_owned(),
            pri: u32::from(job.wire != Wire::Workq) * now.pri,
            delay: u64::from(is_shown) * now.delay.secs(),
            ttr: u64::from(is_shown) * now.ttr.secs(),
            counts: if job.wire == Wire::Workq {
                [reserves, job.fails, 0, 0]
            } else {
                [reserves, releases, buries, kicks]
            },
            result: None,
            tags: match job.wire {
                Wire::Beanstalk => self.tags(key, job),
                _ => own_limits(job),
            },
        }
    }

    fn tags(&self, key: &str, job: &Job) -> BTreeMap<String, String> {
        let (model, id) = (&self.model, id(key));
        let mut shown = shown(&job.tags);
        let counts = model.run_counts(id);
        let facts = [
            ("after-group", (self.state(key) == State::Held).then(String::new)),
            ("runs", counts.map(|(runs, _)| runs.to_string())),
            ("skipped", counts.map(|(_, skipped)| skipped.to_string())),
            ("tries-left", model.tries_left(id).filter(|_| counts.is_none()).map(|left| left.to_string())),
            ("fails", Some(model.fails(id)).filter(|fails| *fails > 0).map(|fails| fails.to_string())),
            ("last-error", Some(model.reason(id).to_owned()).filter(|reason| !reason.is_empty())),
            ("dead-from", model.dead_from(id).map(str::to_owned)),
        ];
        shown.extend(facts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        shown
    }

    /// Returns the keys of the jobs that survive a restart.
    pub fn kept(&self) -> impl Iterator<Item = &String> {
        self.jobs.iter().filter(|(_, job)| !job.volatile).map(|(key, _)| key)
    }

    pub fn views(&self) -> Views {
        let kept = || self.kept();
        let mut tubes = BTreeMap::new();
        let with_jobs = kept().filter(|key| self.jobs[*key].wire == Wire::Beanstalk).map(|key| self.tube_of(key));
        for tube in with_jobs.chain(self.settings.keys().map(|tube| name(tube))) {
            let buried = self.model.in_order(tube, State::Buried).first().map(|job| job.0.to_string());
            let pause = self.model.tube(tube).and_then(|tube| tube.pause).map_or(0, |(length, _)| length.secs());
            let settings = self.settings.get(tube).cloned().unwrap_or_default();
            tubes.insert(tube.to_owned(), TubeView { pause, buried, settings });
        }
        let keys = self.model.extended.ended.iter().map(|ended| format!("\"{}\", \"{}\"]", ended.tube, ended.key));
        Views { jobs: kept().map(|key| (key.clone(), self.view(key))).collect(), tubes, keys: keys.collect() }
    }
}
