//! What the log must remember, kept beside it.
//!
//! Owns, for each job, how it stands by all that is safe, and the changes that are not safe yet, of which a crash may keep
//! any. After a crash [`Model::compare`] tells whether the queue that came back is one of those that may come back.

use std::collections::BTreeMap;

use beanpole::engine::{Engine, History, JobId, State, Time};

/// A job as the log has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct View {
    tube: Vec<u8>,
    pri: u32,
    delay: u64,
    ttr: u64,
    created: u64,
    /// r, d or b: a reserved job comes back ready.
    state: char,
    /// Delayed: when it ends. Buried: its place in the order.
    due: u64,
    /// Reserves, timeouts, releases, buries, kicks.
    history: [u32; 5],
    body: Vec<u8>,
}

/// What happened to a job, and when.
#[derive(Clone, Debug)]
struct Step {
    /// The position behind it.
    position: u64,
    change: Change,
    /// It may be left out, because space was short.
    optional: bool,
}

/// What happened to a job.
#[derive(Clone, Debug)]
enum Change {
    Put(View),
    /// One of the counters, by its place in [`View::history`], and how the job stood afterwards.
    Count(usize, View),
    Delete,
}

#[derive(Clone, Debug)]
struct Job {
    /// By all that is safe; mostly there is just one way in which it may be.
    base: Vec<Option<View>>,
    /// Not safe yet.
    steps: Vec<Step>,
    /// As it was last seen in the queue.
    last: Option<View>,
}

/// The pauses of tubes: until when, by position.
type Pauses = Vec<(u64, Option<Time>)>;

/// See the module's page.
#[derive(Clone, Debug, Default)]
pub struct Model {
    jobs: BTreeMap<u64, Job>,
    pauses: BTreeMap<Vec<u8>, Pauses>,
    safe: u64,
    /// The largest id of which a client was told.
    last_id: u64,
}

fn counters(history: History) -> [u32; 5] {
    let History { reserves, timeouts, releases, buries, kicks } = history;
    [reserves, timeouts, releases, buries, kicks]
}

/// The job with this id as the log should have it.
pub fn view(engine: &Engine, id: u64) -> Option<View> {
    let job = engine.job(JobId(id))?;
    let (state, due) = match job.state() {
        State::Ready | State::Reserved => ('r', 0),
        State::Delayed => ('d', job.due().nanos()),
        State::Buried => ('b', job.due().nanos()),
        State::Finished => ('f', job.due().nanos()),
    };
    Some(View {
        tube: engine.tube_of(&job).to_vec(),
        pri: job.priority(),
        delay: job.delay().nanos(),
        ttr: job.ttr().nanos(),
        created: job.created().nanos(),
        state,
        due,
        history: counters(job.history()),
        body: job.body().bytes().to_vec(),
    })
}

impl View {
    /// As it is restored at `now`.
    fn at(mut self, now: Time) -> View {
        if self.state == 'd' && self.due <= now.nanos() {
            (self.state, self.due) = ('r', 0);
        }
        self
    }
}

/// The job after a change; nothing happens to a job that is not there.
fn after(job: &Option<View>, change: &Change) -> Option<View> {
    match change {
        Change::Put(view) => Some(view.clone()),
        Change::Delete => None,
        Change::Count(place, now) => {
            let mut job = job.clone()?;
            job.history[*place] = now.history[*place];
            (job.state, job.due) = ('r', 0);
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

/// The ways in which a job may be after a change that may have happened.
fn maybe_after(ways: &mut Vec<Option<View>>, change: &Change) {
    let mut more: Vec<Option<View>> = ways.iter().map(|way| after(way, change)).collect();
    ways.append(&mut more);
    ways.sort_unstable();
    ways.dedup();
}

impl Job {
    /// All the ways in which it may come back.
    fn allowed(&self) -> Vec<Option<View>> {
        let mut ways = self.base.clone();
        self.steps.iter().for_each(|step| maybe_after(&mut ways, &step.change));
        ways
    }

    fn observe(&mut self, now: Option<View>, position: u64, short: bool) {
        let Some(before) = self.last.take() else { return };
        match &now {
            None => self.steps.push(Step { position, change: Change::Delete, optional: false }),
            Some(view) => {
                let order = [3, 2, 4, 1, 0];
                let counted = order.into_iter().filter(|&place| view.history[place] != before.history[place]);
                let mut step = view.clone();
                for place in counted {
                    // Whatever was released or kicked and reserved in the same turn was ready between.
                    if place == 2 && view.state == 'r' {
                        (step.state, step.due) = ('r', 0);
                    }
                    let optional = short && place < 2;
                    self.steps.push(Step { position, change: Change::Count(place, step.clone()), optional });
                }
            }
        }
        self.last = now;
    }
}

impl Model {
    /// Of a queue that was just opened: all that is there counts.
    pub fn of(engine: &Engine, ids: impl Iterator<Item = u64>) -> Model {
        let job = |id| {
            let view = view(engine, id)?;
            Some((id, Job { base: vec![Some(view.clone())], steps: Vec::new(), last: Some(view) }))
        };
        let jobs = ids.filter_map(job).collect();
        let pauses = engine.pauses().map(|(name, pause)| (name.to_vec(), vec![(0, Some(pause.until))]));
        Model { jobs, pauses: pauses.collect(), last_id: engine.last_id(), ..Model::default() }
    }

    /// Jobs that are in the queue.
    pub fn ids(&self) -> Vec<u64> {
        self.jobs.iter().filter(|(_, job)| job.last.is_some()).map(|(id, _)| *id).collect()
    }

    /// A verb was recorded up to `position`; `put` is the new job, if there is one. `short`: counters may be given up.
    pub fn observe(&mut self, engine: &Engine, put: Option<u64>, position: u64, short: bool) {
        for (id, job) in &mut self.jobs {
            if job.last.is_some() {
                job.observe(view(engine, *id), position, short);
            }
        }
        if let Some(id) = put {
            let now = view(engine, id).expect("a job that was put");
            let mut first = now.clone();
            first.history = [0; 5];
            let step = Step { position, change: Change::Put(first.clone()), optional: false };
            let mut job = Job { base: vec![None], steps: vec![step], last: Some(first) };
            job.observe(Some(now), position, short);
            assert!(self.jobs.insert(id, job).is_none(), "the id {id} was given again");
        }
        self.observe_pauses(engine, position);
    }

    /// Looks which pauses have begun or ended.
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

    /// The log is safe up to this position.
    pub fn advance(&mut self, safe: u64) {
        assert!(safe >= self.safe, "safety was taken back");
        self.safe = safe;
        for (id, job) in &mut self.jobs {
            let count = job.steps.iter().take_while(|step| step.position <= safe).count();
            for step in job.steps.drain(..count) {
                if step.optional {
                    maybe_after(&mut job.base, &step.change);
                } else {
                    job.base = job.base.iter().map(|way| after(way, &step.change)).collect();
                    job.base.dedup();
                }
                self.last_id = self.last_id.max(*id);
            }
        }
        self.jobs.retain(|_, job| job.base.iter().any(Option::is_some) || job.last.is_some() || !job.steps.is_empty());
    }

    /// Whether `engine`, as it came back at `now`, is as it may be.
    pub fn compare(&self, engine: &Engine, now: Time) -> Result<(), String> {
        let mut found = 0;
        for (id, job) in &self.jobs {
            let is = view(engine, *id).map(|view| view.at(now));
            found += u64::from(is.is_some());
            let allowed = job.allowed();
            if !allowed.iter().any(|way| way.clone().map(|view| view.at(now)) == is) {
                return Err(format!("job {id} is {is:?}\n  changes {:?}\n  allowed {allowed:?}", job.steps));
            }
        }
        if engine.stats().jobs.all() != found {
            return Err(format!("{} jobs came back that were deleted", engine.stats().jobs.all() - found));
        }
        if engine.last_id() < self.last_id {
            return Err(format!("the id {} was given, the last id is {}", self.last_id, engine.last_id()));
        }
        self.compare_pauses(engine, now)
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

    /// Whether all changes are safe.
    pub fn is_settled(&self) -> bool {
        self.jobs.values().all(|job| job.steps.is_empty())
    }
}
