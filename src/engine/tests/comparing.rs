//! Makes one call on the engine and on the model, and compares all visible state afterward.
//!
//! Owns the comparison. Must not choose calls.

use std::fmt::Debug;

use super::super::{Account, ClientId, Engine, Event, JobExtras, Limits, Stats, Time, TubeStats, TubeTimes};
use super::calls::{Answer, Call};
use super::model::{Model, Name};

pub struct Stage {
    pub limits: Limits,
    pub names: &'static [Name],
    pub start: Time,
    /// The step budget of each call, or `None` if unlimited.
    pub steps: Option<u64>,
}

pub fn step(engine: &mut Engine, model: Model, call: &Call, now: Time, stage: &Stage) -> Result<Model, String> {
    let names = stage.names;
    let steps = stage.steps.unwrap_or(u64::MAX);
    engine.grant_steps(steps);
    let mut answer = call.on_engine(engine, now);
    // `Freed` only delays the event that follows, so the model does not predict `Freed`.
    let is_news = |event: &Event| !matches!(event, Event::Freed { .. });
    let mut events: Vec<Event> = std::iter::from_fn(|| engine.take_event()).filter(is_news).collect();
    engine.check();
    while engine.has_deferred() {
        engine.grant_steps(steps);
        engine.go_on(now);
        events.extend(std::iter::from_fn(|| engine.take_event()).filter(is_news));
        engine.check();
    }
    if let (Some(_), Call::Tick { .. }) = (stage.steps, call) {
        answer = Answer::Is(engine.next_deadline() > now);
    }
    if let (Some(client), Answer::Waiting) = (call.waiter(), &answer) {
        answer = immediate_answer(client, &mut events, engine);
    }
    if let Call::Flush(..) = call {
        // The engine flushes jobs in queue order, but the model does not.
        events.sort_by_key(|event| event.client().0);
    }
    let mut problem = None;
    for (expected, mut model) in call.on_model(model, &answer, now) {
        let mut expected = (expected, std::mem::take(&mut model.events));
        if let Call::Flush(..) = call {
            expected.1.sort_by_key(|event| event.client().0);
        }
        let seen = compare_news((&answer, &events), &expected).and_then(|()| compare(engine, &model, now, names));
        match seen {
            Ok(()) => return Ok(model),
            Err(other) => problem = problem.or(Some(other)),
        }
    }
    Err(problem.expect("a model"))
}

/// Removes the event that a waiting client received, and converts it to the answer of a call that returns immediately.
fn immediate_answer(client: ClientId, events: &mut Vec<Event>, engine: &Engine) -> Answer {
    let Some(place) = events.iter().position(|event| event.client() == client) else { return Answer::Waiting };
    match events.remove(place) {
        Event::Reserved { job, .. } => {
            let body = engine.job(job).expect("a reserved job").body().bytes().to_vec();
            Answer::Job(job, body)
        }
        Event::NoJob { why, .. } => Answer::NoJob(why),
        other => panic!("unexpected event for a client that requested a job: {other:?}"),
    }
}

fn compare_news(engine: (&Answer, &Vec<Event>), model: &(Answer, Vec<Event>)) -> Result<(), String> {
    same(&"the answer", engine.0, &model.0)?;
    same(&"the events", engine.1, &model.1)
}

pub fn compare(engine: &Engine, model: &Model, now: Time, names: &[Name]) -> Result<(), String> {
    let account = |stats: Stats| Stats { memory: Account::default(), ..stats };
    same(&"the statistics", account(engine.stats()), account(model.stats()))?;
    same(&"the next deadline", engine.next_deadline(), model.next_deadline())?;
    if !model.extended.uncounted {
        same(&"the memory", engine.memory(), model.memory())?;
    }
    let bytes = |name: &Name| name.as_bytes();
    if !engine.tube_names().eq(model.tubes.iter().map(|tube| bytes(&tube.name))) {
        let listed: Vec<_> = engine.tube_names().map(String::from_utf8_lossy).collect();
        return Err(format!("the tubes: the engine has {listed:?}, the model has {:?}", model.tubes));
    }
    for name in names {
        let figures = engine.tube_stats(name.as_bytes(), now);
        compare_times(name, figures.as_ref().and_then(|figures| figures.times), model)?;
        let settings = model.extended.rules.get(name).map(|rules| rules.settings.to_engine());
        same(&("settings of", name), engine.tube_settings(name.as_bytes()), settings.as_ref())?;
        same(
            name,
            figures.map(|figures| TubeStats { times: None, settings: None, ..figures }),
            model.tube_stats(name, now),
        )?;
    }
    for name in names {
        let group = engine.group_stats(&name.as_bytes().into());
        let figures = group.map(|group| (group.pending(), group.waiting, group.ended));
        same(&("the group", name), figures, model.group(name))?;
    }
    for job in &model.jobs {
        same(&job.id, engine.job_stats(job.id, now), model.job_stats(job.id, now))?;
        let taken_for = engine.job(job.id).map(|job| job.taken_for(now));
        same(&("the reservation", job.id), taken_for, taken_for.map(|_| job.taken_for(now)))?;
        let schedule = engine.job(job.id).and_then(|job| engine.schedule_of(&job).map(|schedule| schedule.count));
        let counts = schedule.map(|count| (count.runs, count.skipped));
        same(&("the schedule", job.id), counts, model.run_counts(job.id))?;
        same(&("the next run", job.id), engine.next_run(job.id), model.next_try(job.id))?;
        let extras = engine.job(job.id).and_then(|job| engine.extras(&job));
        // A failure reason is stored only if there is memory for it.
        if model.limits.max_memory < u64::MAX {
            continue;
        }
        let reason = extras.map_or(&[][..], JobExtras::reason);
        same(&("why failed", job.id), reason, model.reason(job.id).as_bytes())?;
    }
    for client in &model.clients {
        same(&client.id, engine.used(client.id), client.used.as_bytes())?;
        if !engine.watched(client.id).eq(client.watched.iter().map(bytes)) {
            let listed: Vec<_> = engine.watched(client.id).map(String::from_utf8_lossy).collect();
            return Err(format!("{:?} watches {listed:?}, in the model {:?}", client.id, client.watched));
        }
    }
    Ok(())
}

fn compare_times(name: &Name, engine: Option<&TubeTimes>, model: &Model) -> Result<(), String> {
    let model = model.extended.times.get(name);
    same(&("whether times are kept", name), engine.is_some(), model.is_some())?;
    let (Some(engine), Some(model)) = (engine, model) else { return Ok(()) };
    same(&("events of", name), engine.events, model.events)?;
    for (latency, times) in [(&engine.wait, &model.waits), (&engine.run, &model.runs)] {
        let sum: u128 = times.iter().map(|time| u128::from(time.nanos())).sum();
        let extremes = [times.iter().min(), times.iter().max()].map(|time| time.copied().unwrap_or_default());
        let seen = (latency.samples(), latency.sum_nanos, [latency.min(), latency.max]);
        same(&("times of", name), seen, (times.len() as u64, sum, extremes))?;
    }
    Ok(())
}

fn same<T: PartialEq + Debug>(what: &dyn Debug, engine: T, model: T) -> Result<(), String> {
    if engine == model {
        return Ok(());
    }
    Err(format!("{what:?}: the engine has {engine:?}, the model has {model:?}"))
}
