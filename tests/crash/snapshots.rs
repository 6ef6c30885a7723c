//! Records the complete queue after each command, in the form that the log must recover.
//!
//! Covers jobs with tags, keys of ended jobs, tube settings, and groups. [`Snapshots::compare`] checks that a recovered
//! queue equals a recorded state, or a possible state during the command that a crash interrupted. Must not be used
//! with a log that lacks space, because the log then omits records.

use std::collections::{BTreeMap, BTreeSet};

use beanpole::internals::engine::{
    CompletionPolicy, Engine, History, JobView, RunCount, Span, State, StoredKey, StoredOptions, StoredSchedule,
    StoredTies, Time, TubeSettings,
};

#[derive(Clone, PartialEq, Debug)]
struct Standing {
    /// The text form of the constant properties: times, options and body.
    fixed: String,
    tube: Vec<u8>,
    pri: u32,
    delay: u64,
    state: State,
    /// The end of the delay or the lease, the next run of a schedule, or the position in the order of burial.
    due: Time,
    history: [u32; 5],
    fails: u8,
    outcome: Option<(bool, Vec<u8>)>,
    /// The reason for the last failure. The log stores the reason in a separate record.
    reason: Vec<u8>,
    /// The text form of the groups that the job belongs to or waits for.
    ties: String,
}

/// Maps the tube and the key of each ended job to the job's ID and the time at which the key expires.
type EndedKeys = BTreeMap<(Vec<u8>, String), (u64, Time)>;

#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    position: u64,
    jobs: BTreeMap<u64, Standing>,
    keys: EndedKeys,
    settings: BTreeMap<Vec<u8>, TubeSettings>,
    groups: BTreeMap<Vec<u8>, u64>,
    last_id: u64,
}

/// Snapshots in the order of their log positions.
#[derive(Default)]
pub struct Snapshots(Vec<Snapshot>);

fn standing(engine: &Engine, job: &JobView) -> Standing {
    let options = engine.stored_options(job);
    let constant = |options| StoredOptions { outcome: None, order: 0, reason: b"", ties: StoredTies::None, ..options };
    let fixed = options.map(constant);
    // The run count and the next run of a schedule are not constant.
    let schedule = options.and_then(|options| options.schedule);
    let initial = schedule.map(|schedule| StoredSchedule { due: Time::NEVER, count: RunCount::default(), ..schedule });
    let fixed = fixed.map(|options| StoredOptions { schedule: initial, ..options });
    // The log stores the options of a job without tags only if the job belongs to a group.
    let fixed = fixed.filter(|options| *options != plain());
    let body = &job.body().bytes()[..engine.payload_len(job)];
    let history = match schedule.map(|schedule| schedule.count) {
        Some(RunCount { runs, skipped }) => History { reserves: runs, timeouts: skipped, ..job.history() },
        None => job.history(),
    };
    let (state, due) = match job.state() {
        State::Reserved if job.is_leased() => (State::Reserved, job.due()),
        State::Ready | State::Reserved => (State::Ready, Time::from_nanos(0)),
        State::Finished => (State::Finished, Time::from_nanos(0)),
        other => (other, job.due()),
    };
    Standing {
        fixed: format!("{} {} {fixed:?} {body:?}", job.created.nanos(), job.ttr().nanos()),
        tube: engine.tube_of(job).to_vec(),
        pri: job.priority(),
        delay: job.delay().nanos(),
        state,
        due,
        history: [history.reserves, history.timeouts, history.releases, history.buries, history.kicks],
        fails: job.fails,
        outcome: engine.outcome(job).map(|(done, result)| (done, result.to_vec())),
        reason: options.map_or(Vec::new(), |options| options.reason.to_vec()),
        ties: options.map_or(String::new(), |options| format!("{:?}", options.ties)),
    }
}

fn plain() -> StoredOptions<'static> {
    StoredOptions {
        schedule: None,
        completion: CompletionPolicy::Drop,
        dedup_key: StoredKey::None,
        ttl: Span::MAX,
        expires: Time::NEVER,
        start: Time::NEVER,
        order: 0,
        max_attempts: 0,
        max_fails: 0,
        outcome: None,
        reducer: None,
        keep: 0,
        backoff: 0,
        concurrency: (StoredKey::None, 0),
        reason: b"",
        ties: StoredTies::None,
    }
}

impl Standing {
    /// Returns the job's state after a recovery at the time `now`.
    fn at(&self, now: Time) -> Standing {
        let mut standing = self.clone();
        if standing.state == State::Delayed && standing.due <= now {
            (standing.state, standing.due) = (State::Ready, Time::from_nanos(0));
        }
        standing
    }

    /// `true` if a crash during the command between `before` and `after` can leave the job in this state.
    fn is_within(&self, before: Option<&Standing>, after: Option<&Standing>) -> bool {
        let ends = || before.into_iter().chain(after);
        let same = ends().all(|end| end.fixed == self.fixed);
        let no_less = |end: &Standing| self.history.iter().zip(end.history).all(|(count, low)| *count >= low);
        let no_more = |end: &Standing| self.history.iter().zip(end.history).all(|(count, high)| *count <= high);
        let in_place = ends().any(|end| end.tube == self.tube) && ends().any(|end| end.reason == self.reason);
        same && in_place && before.is_none_or(no_less) && after.is_none_or(no_more)
    }
}

impl Snapshot {
    /// Records the state of the queue. The queue's log records end at `position`.
    pub fn of(engine: &Engine, position: u64) -> Snapshot {
        let jobs = engine.jobs().filter(|job| !job.is_volatile());
        let keys = engine.ended_keys().map(|ended| {
            let place = (ended.tube.to_vec(), String::from_utf8_lossy(&ended.key.text()).into_owned());
            (place, (ended.id.0, ended.until))
        });
        Snapshot {
            position,
            jobs: jobs.map(|job| (job.id().0, standing(engine, &job))).collect(),
            keys: keys.collect(),
            settings: engine.tubes_with_settings().map(|(name, settings)| (name.to_vec(), settings.clone())).collect(),
            groups: engine.group_names().map(|name| (name.to_vec(), ended(engine, &name))).collect(),
            last_id: engine.last_id(),
        }
    }

    /// Returns the text forms of all jobs, kept keys, tube settings and groups, by kind and name.
    pub fn texts(&self) -> BTreeMap<String, String> {
        let jobs = self.jobs.iter().map(|(id, job)| (format!("job {id}"), format!("{job:?}")));
        let keys = self.keys.iter().map(|(name, key)| (format!("key {name:?}"), format!("{key:?}")));
        let settings = self.settings.iter().map(|(tube, how)| (format!("settings {tube:?}"), format!("{how:?}")));
        let groups = self.groups.iter().map(|(name, ended)| (format!("group {name:?}"), format!("{ended}")));
        jobs.chain(keys).chain(settings).chain(groups).collect()
    }

    /// Returns the snapshot after a recovery at the time `now`. Jobs whose delay has expired are ready, and expired
    /// keys are removed.
    fn at(&self, now: Time) -> Snapshot {
        let mut snapshot = self.clone();
        snapshot.jobs.values_mut().for_each(|job| *job = job.at(now));
        snapshot.keys.retain(|_, (_, until)| *until > now);
        snapshot
    }

    fn is(&self, found: &Snapshot) -> bool {
        let same = self.keys == found.keys && self.settings == found.settings && self.groups == found.groups;
        same && self.jobs == found.jobs
    }
}

/// Returns an error unless `found` is a possible state of the queue during the command between `before` and `after`.
fn between(before: &Snapshot, after: &Snapshot, found: &Snapshot) -> Result<(), String> {
    let ids: BTreeSet<u64> = [before, after, found].iter().flat_map(|it| it.jobs.keys().copied()).collect();
    for id in ids {
        let (old, new, is) = (before.jobs.get(&id), after.jobs.get(&id), found.jobs.get(&id));
        let fits = is == old || is == new || is.is_some_and(|is| is.is_within(old, new));
        if !fits {
            return Err(format!("job {id} was {old:?}\n  became {new:?}\n  is {is:?}"));
        }
    }
    let names: BTreeSet<_> = [before, after, found].iter().flat_map(|it| it.keys.keys()).collect();
    for name in names {
        let (old, new, is) = (before.keys.get(name), after.keys.get(name), found.keys.get(name));
        if is != old && is != new {
            return Err(format!("key {name:?} was {old:?}, became {new:?}, is {is:?}"));
        }
        // If the command ends the job and keeps its key, then either the job or the key must exist after the crash.
        if let (None, Some((id, _)), None) = (old, new, is) {
            if before.jobs.contains_key(id) && !found.jobs.contains_key(id) {
                return Err(format!("neither job {id} nor its key {name:?} exists"));
            }
        }
    }
    for (name, ended) in &found.groups {
        let no_less = before.groups.get(name).is_none_or(|before| ended >= before);
        if !no_less && after.groups.get(name) != Some(ended) {
            return Err(format!("group {name:?} had {:?} ended members, has {ended}", before.groups.get(name)));
        }
    }
    if found.settings != before.settings && found.settings != after.settings {
        return Err(format!(
            "settings were {:?}, became {:?}, are {:?}",
            before.settings, after.settings, found.settings
        ));
    }
    Ok(())
}

fn ended(engine: &Engine, name: &[u8]) -> u64 {
    engine.group_stats(&name.into()).map_or(0, |group| group.ended)
}

fn differences(safe: &Snapshot, found: &Snapshot) -> String {
    let ids: BTreeSet<u64> = safe.jobs.keys().chain(found.jobs.keys()).copied().collect();
    let differ = ids.into_iter().filter(|id| safe.jobs.get(id) != found.jobs.get(id));
    let jobs: Vec<String> =
        differ.map(|id| format!("job {id} was {:?}, is {:?}", safe.jobs.get(&id), found.jobs.get(&id))).collect();
    let keys = if safe.keys == found.keys { String::new() } else { format!("{:?}, {:?}", safe.keys, found.keys) };
    let groups = if safe.groups == found.groups { "" } else { &format!("{:?}, {:?}", safe.groups, found.groups) };
    format!("{}\n{keys}{groups}", jobs.join("\n"))
}

impl Snapshots {
    pub fn push(&mut self, snapshot: Snapshot) {
        self.0.push(snapshot);
    }

    /// Removes the snapshots that no recovery can restore. All changes up to the log position `safe` are durable.
    pub fn advance(&mut self, safe: u64) {
        let first = self.0.iter().rposition(|snapshot| snapshot.position <= safe);
        self.0.drain(..first.unwrap_or(0));
    }

    /// Checks that the queue, recovered at `now`, is in a permitted state. All changes up to `safe` were durable.
    pub fn compare(&self, engine: &Engine, safe: u64, now: Time) -> Result<(), String> {
        let found = Snapshot::of(engine, 0).at(now);
        let Some(first) = self.0.iter().rposition(|snapshot| snapshot.position <= safe) else { return Ok(()) };
        if found.last_id < self.0[first].last_id {
            return Err(format!("the last ID is {}, but ID {} was durable", found.last_id, self.0[first].last_id));
        }
        let ways: Vec<Snapshot> = self.0[first..].iter().map(|way| way.at(now)).collect();
        if ways.iter().any(|way| way.is(&found)) {
            return Ok(());
        }
        let problems: Vec<String> =
            ways.windows(2).map_while(|pair| between(&pair[0], &pair[1], &found).err()).collect();
        if problems.len() + 1 < ways.len() {
            return Ok(());
        }
        Err(format!(
            "the queue matches no snapshot: {}\n nor a state between two snapshots: {:?}",
            differences(&ways[0], &found),
            problems.first()
        ))
    }
}
