//! Predicts the state that the log must recover.
//!
//! Owns the durable state of each job, and its later changes, any of which a crash can lose. [`Model::compare`] checks
//! that a recovered queue is in a permitted state.

use std::collections::BTreeMap;

use beanpole::internals::engine::{
    CompletionPolicy, DedupKey, Engine, History, JobExtras, JobId, NameSearch, Progress, State, Steps, Time,
};

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct View {
    tube: Vec<u8>,
    pri: u32,
    delay: u64,
    ttr: u64,
    created: u64,
    /// r: ready, d: delayed, b: buried, h: held, s: scheduled, l: leased, f: finished. A job reserved without a lease
    /// counts as ready.
    state: char,
    /// In nanoseconds, the end of the delay or the lease, or the next run of a schedule. For a buried job, its position
    /// in the order of burial.
    due: u64,
    history: [u32; 5],
    body: Vec<u8>,
    options: JobOptions,
    fails: u8,
    /// `true` for a completed job or `false` for a failed one, and the result. `None` until the job finishes.
    outcome: Option<(bool, Vec<u8>)>,
}

/// The options of a job, which never change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct JobOptions {
    completion: u8,
    /// The kind and the bytes of the deduplication key.
    dedup_key: (u8, Vec<u8>),
    ttl: u64,
    expires: u64,
    start: Option<u64>,
    max_attempts: u8,
    max_fails: u8,
    reducer: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
struct Step {
    /// The log position after the change.
    position: u64,
    change: Change,
    /// `true` if the log may omit the change when log space is short.
    optional: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Put(View),
    /// The index in [`View::history`] of an incremented counter, and the job's state after the increment.
    Count(usize, View),
    /// The number of failures, and the outcome of a finished job.
    Outcome(u8, Option<(bool, Vec<u8>)>),
    Priority(u32),
    Delete,
}

#[derive(Clone, Debug)]
struct Job {
    /// The possible durable states of the job, usually only one.
    base: Vec<Option<View>>,
    steps: Vec<Step>,
    /// The state of the job after the last observed operation.
    last: Option<View>,
}

/// The changes to a tube's pause: the log position and, if the change pauses the tube, the end of the pause.
type Pauses = Vec<(u64, Option<Time>)>;

#[derive(Clone, Debug, Default)]
pub struct Model {
    jobs: BTreeMap<u64, Job>,
    pauses: BTreeMap<Vec<u8>, Pauses>,
    safe: u64,
    /// The highest ID that a client has received.
    last_id: u64,
    /// The highest ID that a job can have after the last observed operation.
    newest: u64,
    /// `true` after a disk error. After such an error, the log writes all nondurable changes again, so recovery can
    /// apply some of them twice.
    pub replays: bool,
}

fn counters(history: History) -> [u32; 5] {
    let History { reserves, timeouts, releases, buries, kicks } = history;
    [reserves, timeouts, releases, buries, kicks]
}

/// Returns the expected state of a job in the log, or `None` if the log must not contain the job.
pub fn view(engine: &Engine, id: u64) -> Option<View> {
    let job = engine.any_job(JobId(id)).filter(|job| !job.is_volatile())?;
    let (state, due) = match job.state() {
        State::Reserved if job.is_leased() => ('l', job.due().nanos()),
        State::Ready | State::Reserved => ('r', 0),
        State::Delayed => ('d', job.due().nanos()),
        State::Buried => ('b', job.due().nanos()),
        State::Held => ('h', 0),
        State::Scheduled => ('s', job.due().nanos()),
        State::Finished => ('f', 0),
        state => unreachable!("the state {state:?}"),
    };
    let extras = engine.extras(&job);
    Some(View {
        tube: engine.tube_of(&job).to_vec(),
        pri: job.priority(),
        delay: job.delay().nanos(),
        ttr: job.ttr().nanos(),
        created: job.created.nanos(),
        state,
        due,
        history: counters(job.history()),
        body: job.body().bytes()[..engine.payload_len(&job)].to_vec(),
        options: options(job.completion, extras),
        fails: job.fails,
        outcome: engine.outcome(&job).map(|(done, result)| (done, result.to_vec())),
    })
}

/// Returns a job's options. A job without extras has the default options.
fn options(completion: CompletionPolicy, extras: Option<&JobExtras>) -> JobOptions {
    let dedup_key = match extras.map_or(&DedupKey::None, |extras| &extras.dedup_key) {
        DedupKey::None => (b'-', Vec::new()),
        DedupKey::Name(name) => (b'n', name.text().into_owned()),
        DedupKey::Body(_) => (b'b', Vec::new()),
        DedupKey::Id(id) => (b'i', id.to_vec()),
    };
    JobOptions {
        completion: completion as u8,
        dedup_key,
        ttl: extras.map_or(u64::MAX, |it| it.ttl.nanos()),
        expires: extras.map_or(u64::MAX, |it| it.expires.nanos()),
        start: extras.and_then(JobExtras::start).map(Time::nanos),
        max_attempts: extras.map_or(0, |extras| extras.max_attempts),
        max_fails: extras.map_or(0, |extras| extras.max_fails),
        reducer: extras.and_then(JobExtras::reducer).map(<[u8]>::to_vec),
    }
}

impl View {
    /// Returns the state of the job after a recovery at the time `now`.
    fn at(mut self, now: Time) -> View {
        if self.state == 'd' && self.due <= now.nanos() {
            (self.state, self.due) = ('r', 0);
        }
        self
    }
}

/// Returns the state of a job after a change. Counts and outcomes do not change a nonexistent or finished job.
fn after(job: &Option<View>, change: &Change) -> Option<View> {
    let over = job.as_ref().is_some_and(|job| job.state == 'f');
    match change {
        Change::Outcome(..) | Change::Count(..) | Change::Priority(_) if over => job.clone(),
        Change::Priority(pri) => Some(View { pri: *pri, ..job.clone()? }),
        Change::Put(view) => Some(view.clone()),
        Change::Delete => None,
        Change::Outcome(fails, outcome) => {
            let mut job = job.clone()?;
            job.fails = *fails;
            match (outcome, job.state) {
                (Some(_), _) => (job.state, job.due) = ('f', 0),
                (None, 'd') => {}
                (None, _) => (job.state, job.due) = ('r', 0),
            }
            job.outcome = outcome.clone();
            Some(job)
        }
        Change::Count(place, now) => {
            let mut job = job.clone()?;
            job.history[*place] = now.history[*place];
            (job.state, job.due) = ('r', 0);
            if *place == 0 && now.state == 'l' {
                (job.state, job.due) = ('l', now.due);
            }
            if matches!(place, 2 | 3) {
                (job.pri, job.state, job.due) = (now.pri, now.state, now.due);
            }
            if *place == 2 {
                job.delay = now.delay;
            }
            Some(job)
        }
    }
}

/// Adds the state after the change for each state in `ways`. The old states remain: a crash can lose the change.
fn maybe_after(ways: &mut Vec<Option<View>>, change: &Change) {
    let mut more: Vec<Option<View>> = ways.iter().map(|way| after(way, change)).collect();
    ways.append(&mut more);
    ways.sort_unstable();
    ways.dedup();
}

impl Step {
    fn apply(&self, ways: &mut Vec<Option<View>>) {
        if self.optional {
            maybe_after(ways, &self.change);
        } else {
            *ways = ways.iter().map(|way| after(way, &self.change)).collect();
            ways.dedup();
        }
    }
}

impl Job {
    /// Returns all permitted states after a recovery.
    fn allowed(&self, replays: bool) -> Vec<Option<View>> {
        let mut ways = self.base.clone();
        for _ in 0..=usize::from(replays) {
            self.steps.iter().for_each(|step| maybe_after(&mut ways, &step.change));
        }
        ways
    }

    /// Returns the states that the job can have if the log ends at `position`.
    fn at(&self, position: u64) -> Vec<Option<View>> {
        let mut ways = self.base.clone();
        for step in self.steps.iter().take_while(|step| step.position <= position) {
            step.apply(&mut ways);
        }
        ways
    }

    /// Returns the states that the job passes through while one command changes it between two log positions.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = Option<View>> + '_ {
        let mut ways = self.at(from);
        let steps = self.steps.iter().filter(move |step| step.position > from && step.position <= to);
        steps.flat_map(move |step| {
            step.apply(&mut ways);
            ways.clone()
        })
    }

    fn observe(&mut self, now: Option<View>, position: u64, short: bool) {
        let Some(before) = self.last.take() else { return };
        let mut push = |change, optional| self.steps.push(Step { position, change, optional });
        match &now {
            None => {
                // If the lease expires during the command that deletes the job, a truncated log can contain the end of
                // the lease without the delete.
                if before.state == 'l' {
                    let mut lost = before.clone();
                    lost.history[1] += 1;
                    push(Change::Count(1, lost), true);
                }
                push(Change::Delete, false);
            }
            Some(view) => {
                let changed = |place: &usize| view.history[*place] != before.history[*place];
                // The order in which the counters change. Before a job is buried, it can lose a reservation and be
                // reserved again.
                let order = if view.state == 'b' { [2, 4, 1, 0, 3] } else { [3, 2, 4, 1, 0] };
                let verdict = view.fails != before.fails || view.outcome.is_some() && before.outcome.is_none();
                let lost = changed(&1);
                // The log records an outcome after earlier leases have ended, and before the job is reserved or buried
                // again.
                let (first, then): (Vec<usize>, Vec<usize>) = order
                    .into_iter()
                    .filter(changed)
                    .partition(|place| verdict && (*place == 1 || view.outcome.is_some()));
                let mut step = view.clone();
                let mut count = |place: usize, push: &mut dyn FnMut(Change, bool)| {
                    // If one command releases or kicks the job and reserves it again, the job was ready in between.
                    if place == 2 && view.state == 'r' {
                        (step.state, step.due) = ('r', 0);
                    }
                    // If log space is short, the log can omit a reservation, a timeout, or a burial after a timeout.
                    let optional = short && (place < 2 || place == 3 && lost);
                    push(Change::Count(place, step.clone()), optional);
                };
                first.into_iter().for_each(|place| count(place, &mut push));
                if verdict && view.pri != before.pri {
                    push(Change::Priority(view.pri), short);
                }
                if verdict {
                    // No worker reported this failure: the job failed because its last reservation was lost.
                    let spent = view.fails == before.fails && view.outcome.as_ref().is_some_and(|it| !it.0);
                    let optional = short && (spent || changed(&3));
                    push(Change::Outcome(view.fails, view.outcome.clone()), optional);
                }
                then.into_iter().for_each(|place| count(place, &mut push));
            }
        }
        self.last = now;
    }
}

impl Model {
    /// Creates the model of a recovered queue. All states in this queue are durable.
    pub fn of(engine: &Engine, ids: impl Iterator<Item = u64>) -> Model {
        let job = |id| {
            let view = view(engine, id)?;
            Some((id, Job { base: vec![Some(view.clone())], steps: Vec::new(), last: Some(view) }))
        };
        let jobs = ids.filter_map(job).collect();
        let pauses = engine.pauses().map(|(name, pause)| (name.to_vec(), vec![(0, Some(pause.until))]));
        let last_id = engine.last_id();
        Model { jobs, pauses: pauses.collect(), last_id, newest: last_id, ..Model::default() }
    }

    pub fn ids(&self) -> Vec<u64> {
        self.jobs.iter().filter(|(_, job)| job.last.is_some()).map(|(id, _)| *id).collect()
    }

    /// Records the effects of an operation whose log records end at `position`. `put` is the ID of a new job, if any.
    /// If `short` is `true`, the log can omit some changes.
    pub fn observe(&mut self, engine: &Engine, put: Option<u64>, position: u64, short: bool) {
        for (id, job) in &mut self.jobs {
            if job.last.is_some() {
                job.observe(view(engine, *id), position, short);
            }
        }
        if let Some(id) = put.filter(|id| self.jobs.get(id).is_none_or(|job| job.last.is_none())) {
            self.observe_new(engine, id, position, short);
        }
        self.observe_pauses(engine, position);
    }

    /// Records the highest ID that a job can have. The engine also uses numbers from the counter of IDs as ranks, even
    /// if the log has not reserved them. No job gets such a number as its ID.
    pub fn saw_ids(&mut self, newest: u64) {
        self.newest = self.newest.max(newest);
    }

    /// Tracks a job that is new or no longer volatile.
    fn observe_new(&mut self, engine: &Engine, id: u64, position: u64, short: bool) {
        let now = view(engine, id).expect("a job that was put");
        let mut first = now.clone();
        if id > self.newest {
            first.history = [0; 5];
            if first.state == 'l' {
                (first.state, first.due) = ('r', 0);
            }
        }
        let step = Step { position, change: Change::Put(first.clone()), optional: false };
        let mut job = Job { base: vec![None], steps: vec![step], last: Some(first) };
        job.observe(Some(now), position, short);
        assert!(self.jobs.insert(id, job).is_none(), "ID {id} was reused");
    }

    /// Records which pauses have begun or ended.
    fn observe_pauses(&mut self, engine: &Engine, position: u64) {
        for (name, _) in engine.pauses() {
            self.pauses.entry(name.to_vec()).or_insert_with(|| vec![(0, None)]);
        }
        for (name, pauses) in &mut self.pauses {
            let now = engine.tube_pause(name).map(|pause| pause.until);
            if pauses.last().is_none_or(|(_, before)| *before != now) {
                pauses.push((position, now));
            }
        }
    }

    /// Makes all changes up to log position `safe` durable.
    pub fn advance(&mut self, safe: u64) {
        assert!(safe >= self.safe, "the durable position moved back");
        self.safe = safe;
        for (id, job) in &mut self.jobs {
            let count = job.steps.iter().take_while(|step| step.position <= safe).count();
            for step in job.steps.drain(..count) {
                step.apply(&mut job.base);
                self.last_id = self.last_id.max(*id);
            }
        }
        self.jobs.retain(|_, job| job.base.iter().any(Option::is_some) || job.last.is_some() || !job.steps.is_empty());
    }

    /// Checks that the engine, recovered at time `now`, is in a permitted state.
    pub fn compare(&self, engine: &Engine, now: Time) -> Result<(), String> {
        let mut found = 0;
        for (id, job) in &self.jobs {
            let is = view(engine, *id).map(|view| view.at(now));
            found += u64::from(is.is_some());
            let allowed = job.allowed(self.replays);
            if !allowed.iter().any(|way| way.clone().map(|view| view.at(now)) == is) {
                return Err(format!("job {id} is {is:?}\n  changes {:?}\n  allowed {allowed:?}", job.steps));
            }
        }
        let all = engine.stats().jobs.all() + engine.stats().jobs.finished;
        if all != found {
            return Err(format!("{} deleted jobs reappeared", all - found));
        }
        if !self.replays {
            self.compare_prefix(engine, now)?;
        }
        self.compare_uniques(engine)?;
        // A worker may have received the newest job before the job was on the disk, so the job's ID must not be reused.
        self.compare_newest(engine)?;
        self.compare_pauses(engine, now)
    }

    /// Checks that the states of all jobs are from one moment, because recovery must restore a prefix of the history.
    fn compare_prefix(&self, engine: &Engine, now: Time) -> Result<(), String> {
        let steps = || self.jobs.values().flat_map(|job| &job.steps);
        let mut moments: Vec<u64> = steps().map(|step| step.position).chain([self.safe]).collect();
        moments.sort_unstable();
        moments.dedup();
        let is: Vec<_> = self.jobs.keys().map(|id| view(engine, *id).map(|view| view.at(now))).collect();
        let fits = |moment: u64| {
            self.jobs
                .values()
                .zip(&is)
                .all(|(job, is)| job.at(moment).into_iter().any(|way| way.map(|view| view.at(now)) == *is))
        };
        // A crash can interrupt a command after the command has changed only some jobs.
        let between = |pair: &[u64]| {
            self.jobs.values().zip(&is).all(|(job, is)| {
                pair.iter().any(|&moment| job.at(moment).into_iter().any(|way| way.map(|view| view.at(now)) == *is))
                    || job.within(pair[0], pair[1]).any(|way| way.map(|view| view.at(now)) == *is)
            })
        };
        if moments.iter().any(|&moment| fits(moment)) || moments.windows(2).any(between) {
            return Ok(());
        }
        Err("the recovered state is not a prefix of the history".to_owned())
    }

    pub fn compare_newest(&self, engine: &Engine) -> Result<(), String> {
        let last = engine.last_id();
        (last >= self.newest)
            .then_some(())
            .ok_or_else(|| format!("a worker has received ID {}, but the last ID is {last}", self.newest))
    }

    /// Checks that a search for each unique name or ID finds a job with this name or ID.
    fn compare_uniques(&self, engine: &Engine) -> Result<(), String> {
        let mut sharing = BTreeMap::<(u8, Vec<u8>), Vec<JobId>>::new();
        for (id, view) in self.jobs.keys().filter_map(|id| Some((*id, view(engine, *id)?))) {
            sharing.entry(view.options.dedup_key).or_default().push(JobId(id));
        }
        for ((kind, dedup_key), ids) in sharing {
            let right = match kind {
                // Two jobs can share an ID only if the delete of one of them was in a damaged record.
                b'i' => engine
                    .find_id(&dedup_key[..].try_into().expect("sixteen bytes"))
                    .is_some_and(|it| ids.contains(&it)),
                b'n' => find_name(engine, &dedup_key).is_some_and(|it| {
                    let tube = |id| engine.any_job(id).map(|job| engine.tube_of(&job));
                    // Several jobs can share a name. If the oldest of them is buried, the search can find any of them.
                    // After damage, one tube can also contain two jobs with this name, one of them buried.
                    it == ids[0] || ids.contains(&it) && (engine.is_buried(ids[0]) || tube(it) == tube(ids[0]))
                }),
                _ => true,
            };
            if !right {
                return Err(format!("a search for {dedup_key:?} finds the wrong job or none of {ids:?}"));
            }
        }
        Ok(())
    }

    fn compare_pauses(&self, engine: &Engine, now: Time) -> Result<(), String> {
        let running = |until: Option<Time>| until.filter(|until| *until > now);
        for name in engine.tube_names() {
            let none = vec![(0, None)];
            let pauses = self.pauses.get(name).unwrap_or(&none);
            let first = pauses.iter().rposition(|(position, _)| *position <= self.safe);
            let mut allowed: Vec<Option<Time>> =
                pauses[first.unwrap_or(0)..].iter().map(|(_, until)| running(*until)).collect();
            if first.is_none() {
                allowed.push(None);
            }
            let is = engine.tube_pause(name).map(|pause| pause.until);
            if !allowed.contains(&is) {
                let name = String::from_utf8_lossy(name);
                return Err(format!("tube {name} is paused until {is:?}, allowed {pauses:?}, safe {}", self.safe));
            }
        }
        Ok(())
    }

    pub fn is_settled(&self) -> bool {
        self.jobs.values().all(|job| job.steps.is_empty())
    }
}

pub fn find_name(engine: &Engine, name: &[u8]) -> Option<JobId> {
    let mut search = NameSearch::default();
    let progress = engine.find_name(name, |_| true, &mut search, &mut Steps::ENDLESS.clone());
    assert_eq!(progress, Progress::Done);
    search.found
}
