//! The HTTP commands, except lists, metrics and the commands for failed jobs.

use super::action::{new_tube, once, queued, turns, wrong, Arguments, HttpAction, Parsed};
use super::reply::{
    bytes, changed, figure, job_members, not_found, object, time_members, tube_members, tube_values, Failure,
    HttpAnswer, BYTES, MAX_BODY, TEXT,
};
use crate::access::{ClientAccess, Right};
use crate::engine::{
    Body, FindOldest, Flush, JobId, Kick, LongCommand, MoveJobs, NewJob, NotSet, Point, Priority, Progress, Refused,
    Span, State, Tagged, Tags, POINT_SECONDS,
};
use crate::protocol::beanstalk::{
    extended_counts, read_settings, read_tags, server_figures, Extensions, QueueFigures, Tagging, SETTINGS_OVERHEAD,
};
use crate::protocol::connections::VisibleSums;
use crate::protocol::{Context, Output, Wire};
use crate::shared::log_figures::Health;
use crate::shared::role::Role;

const DEFAULT_PRIORITY: Priority = 1024;
const DEFAULT_TTR: u64 = 60;
pub const STANDING_BY: &str = "this server stands by; another one is active";
pub const FULL: &str = "there is no memory, or no space in the binlog, for this";

// The objects that 404 errors report as missing.
const FREE_JOB: &str = "job that nobody has reserved";
const KICKABLE: &str = "job that is buried, delayed, held or leased, or schedule without a copy in the tube";

pub fn health(_: &mut Arguments) -> Parsed {
    once(|context| report(unhealthy(context)))
}

pub fn readiness(_: &mut Arguments) -> Parsed {
    once(|context| report(unhealthy(context).or_else(|| unready(context))))
}

fn report(problem: Option<&str>) -> HttpAnswer {
    problem.map_or_else(|| Ok(bytes(TEXT, b"ok\n")), |problem| Err(Failure::new(503, problem)))
}

fn unhealthy(context: &Context) -> Option<&'static str> {
    (context.log?.health == Health::Failing).then_some("the disk of the binlog fails")
}

fn unready(context: &Context) -> Option<&'static str> {
    let role = context.host.role().map(|figures| figures.role);
    let problems = [
        (role == Some(Role::Standby), STANDING_BY),
        (role == Some(Role::Closing), "another server is to take over"),
        (context.engine.stats().draining, "draining"),
        (context.log.is_some_and(|log| log.health == Health::Full), "the disk of the binlog is full"),
        (!context.engine.has_memory(0), "all memory is taken"),
    ];
    problems.into_iter().find(|(is_met, _)| *is_met).map(|(_, problem)| problem)
}

pub fn server(_: &mut Arguments) -> Parsed {
    let mut sums = VisibleSums::default();
    let may_change =
        |access: &ClientAccess| access.rights().is_some_and(|it| it.allow_somewhere(&[Right::Put, Right::Admin]));
    turns(move |context| {
        let figures = QueueFigures::of(sums.advance(context)?, context);
        Some(Ok(object(|members| {
            server_figures(&figures, |key, value| figure(members, key, value));
            extended_counts(&figures, Extensions::ALL).for_each(|(key, count)| members.number(&key, count));
            members.truth("admin", context.settings.http.admin && context.access.as_deref().is_none_or(may_change));
            for (wire, count) in Wire::ALL.iter().zip(figures.connections) {
                members.number(&format!("connections-{}", wire.name()), count);
            }
        })))
    })
}

pub fn tube(it: &mut Arguments) -> Parsed {
    oldest(FindOldest::new(it.part(0)), |find, context| {
        let tube = context.engine.tube_stats(find.tube(), context.now).ok_or_else(|| not_found("tube"))?;
        Ok(object(|members| {
            tube_members(members, tube.name, &tube_values(&tube));
            time_members(members, &tube, find.ages(context.now));
        }))
    })
}

fn oldest(mut find: FindOldest, reply: fn(&FindOldest, &Context) -> HttpAnswer) -> Parsed {
    turns(move |context| {
        let is_found = context.engine.find_oldest(&mut find) == Progress::Done;
        is_found.then(|| reply(&find, context))
    })
}

pub fn overview(_: &mut Arguments) -> Parsed {
    type Figure = (&'static str, fn(&Point) -> u64);
    const FIGURES: [Figure; 3] = [("ready", |it| it.ready), ("done", |it| it.done), ("failed", |it| it.failed)];
    oldest(FindOldest::default(), |find, context| {
        let Context { engine, now, .. } = context;
        Ok(object(|members| {
            for (state, age) in ["ready", "delayed", "buried"].iter().zip(find.ages(*now)) {
                members.number(&format!("oldest-{state}-age"), age.secs());
            }
            if let Some(job) = find.oldest_ready().and_then(|id| engine.job(id)) {
                members.bytes("oldest-ready-tube", engine.tube_of(&job));
            }
            members.number("paused-tubes", engine.paused_tubes() as u64);
            members.number("seconds", POINT_SECONDS);
            for (key, of) in FIGURES {
                let numbers: Vec<String> = engine.past().points().map(|point| of(&point).to_string()).collect();
                members.raw(key, &format!("[{}]", numbers.join(",")));
            }
        }))
    })
}

pub fn peek(it: &mut Arguments) -> Parsed {
    let (tube, state) = (it.part(0), queued(&it.part(1))?);
    once(move |context| {
        context.engine.tube_stats(&tube, context.now).ok_or_else(|| not_found("tube"))?;
        let job = context.engine.peek_in(&tube, state).ok_or_else(|| not_found("job"))?;
        Ok(object(|members| job_members(members, context.engine, &job, MAX_BODY, context.now)))
    })
}

pub fn job(it: &mut Arguments) -> Parsed {
    let id = it.id();
    once(move |context| {
        let job = context.engine.job(id).ok_or_else(|| not_found("job"))?;
        Ok(object(|members| job_members(members, context.engine, &job, MAX_BODY, context.now)))
    })
}

pub fn body(it: &mut Arguments) -> Parsed {
    let id = it.id();
    once(move |context| {
        let job = context.engine.job(id).ok_or_else(|| not_found("job"))?;
        let mut body = Output::new();
        body.body(job.body());
        Ok((BYTES, body))
    })
}

fn done(is_found: bool, what: &str) -> HttpAnswer {
    is_found.then(|| object(|members| members.truth("done", true))).ok_or_else(|| not_found(what))
}

/// Claims binlog space for a change with `extra` bytes of names and settings. Fails if the binlog lacks the space.
fn claim_log_room(extra: usize, context: &mut Context) -> Result<(), Failure> {
    Failure::check(context.engine.claim_log_room(extra), 503, "the binlog has no room for this")
}

type JobChange = fn(JobId, &mut Context) -> Result<bool, Refused>;

/// `frees` is `true` if the change needs no binlog space. If `change` returns `false`, `what` is reported as missing.
fn change_job(it: &Arguments, frees: bool, what: &'static str, change: JobChange) -> Parsed {
    let id = it.id();
    once(move |context| {
        if !frees {
            claim_log_room(0, context)?;
        }
        done(change(id, context).map_err(refusal)?, what)
    })
}

pub fn kick_job(it: &mut Arguments) -> Parsed {
    change_job(it, false, KICKABLE, |id, it| it.engine.kick_job(id, it.now))
}

pub fn delete_job(it: &mut Arguments) -> Parsed {
    change_job(it, true, FREE_JOB, |id, it| Ok(it.engine.delete(it.client, id, it.now)))
}

/// Only the holder of a job can bury it, so reserve the job first.
pub fn bury_job(it: &mut Arguments) -> Parsed {
    change_job(it, false, FREE_JOB, |id, it| {
        let Some(pri) = it.engine.job(id).map(|job| job.priority()) else { return Ok(false) };
        let reserved = it.engine.reserve_job(it.client, id, it.now).is_some();
        Ok(reserved && it.engine.bury(it.client, id, pri, it.now))
    })
}

pub fn revoke_job(it: &mut Arguments) -> Parsed {
    change_job(it, false, "reserved job", |id, it| {
        let pri = it.engine.job(id).map_or(0, |job| job.priority());
        Ok(it.engine.revoke(id, pri, it.now))
    })
}

pub fn move_job(it: &mut Arguments) -> Parsed {
    let (id, to) = (it.id(), it.destination()?);
    once(move |context| match context.engine.move_buried(context.client, id, &to, context.now) {
        Ok(is_moved) => done(is_moved, "buried job that may go there"),
        Err(_) => Err(refusal(Refused::OutOfMemory)),
    })
}

pub fn pause(it: &mut Arguments) -> Parsed {
    let (tube, length) = (it.part(0), it.seconds("seconds", 3600)?);
    once(move |context| {
        claim_log_room(tube.len(), context)?;
        done(context.engine.pause(&tube, length, context.now), "tube")
    })
}

pub fn settings(it: &mut Arguments) -> Parsed {
    let tube = new_tube(&it.part(0))?;
    let text = it.object.take_text("settings").map_err(|()| wrong("settings"))?.unwrap_or_default();
    let settings = read_settings(text.as_bytes()).ok_or_else(|| wrong("settings"))?;
    it.target.to = settings.dead.as_deref().map(Into::into);
    once(move |context| {
        claim_log_room(SETTINGS_OVERHEAD + tube.len() + settings.dead_length(), context)?;
        match context.engine.set_tube(context.client, &tube, settings, context.now) {
            Ok(()) => done(true, ""),
            Err(why @ NotSet::Circle) => Err(Failure::new(409, why.reason())),
            Err(NotSet::OverLimit) => Err(refusal(Refused::OutOfMemory)),
        }
    })
}

pub fn kick(it: &mut Arguments) -> Parsed {
    let (tube, mut kick) = (it.part(0), Kick::new(it.number("count", u64::MAX)?));
    turns(move |context| match context.engine.kick_in(&tube, &mut kick, context.now) {
        Some(Progress::More) => None,
        // `kick_in` sets `of` when it finds the tube.
        None if kick.of.is_none() => Some(Err(not_found("tube"))),
        None | Some(Progress::Done) => Some(changed("kicked", kick.done, None)),
    })
}

pub fn clear(it: &mut Arguments) -> Parsed {
    let state = it.text("state")?.map(|text| queued(text.as_bytes())).transpose()?;
    let all = [State::Held, State::Buried, State::Delayed, State::Ready];
    Ok(Box::new(Flush::new(it.part(0), state.as_ref().map_or(&all[..], std::slice::from_ref))))
}

impl HttpAction for Flush {
    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        let is_done = context.engine.flush(self, context.now) == Progress::Done;
        is_done.then(|| changed("deleted", self.done, None))
    }

    fn into_operation(self: Box<Self>) -> Option<LongCommand> {
        Some(LongCommand::Flush(*self))
    }
}

pub fn move_jobs(it: &mut Arguments) -> Parsed {
    let to = it.destination()?;
    let state = queued(it.text("state")?.ok_or_else(|| wrong("state"))?.as_bytes())?;
    Ok(Box::new(MoveJobs::new(it.part(0), to, state, it.number("count", u64::MAX)?)))
}

impl HttpAction for MoveJobs {
    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        let stopped = match context.engine.move_jobs(context.client, self, context.now) {
            Ok(Progress::More) => return None,
            Ok(Progress::Done) => None,
            Err(_) => Some(refusal(Refused::OutOfMemory).text),
        };
        Some(changed("moved", self.done, stopped.as_deref()))
    }

    fn into_operation(self: Box<Self>) -> Option<LongCommand> {
        Some(LongCommand::Move(*self))
    }
}

struct Put {
    tube: Box<[u8]>,
    job: Option<NewJob>,
    tags: Option<Box<Tags>>,
}

pub fn put(it: &mut Arguments) -> Parsed {
    let tube = new_tube(&it.part(0))?;
    let bytes = it.bytes("body", "body-base64")?.ok_or_else(|| wrong("body, or body-base64"))?;
    Failure::check(bytes.len() as u64 <= it.limits.max_job_size.into(), 413, "the job is too large")?;
    let pri = it.number("pri", DEFAULT_PRIORITY.into())?.try_into().map_err(|_| wrong("pri"))?;
    let ttr = it.seconds("ttr", DEFAULT_TTR)?.max(Span::from_secs(1));
    let job = Some(NewJob { pri, delay: it.seconds("delay", 0)?, ttr, body: Body::from(bytes) });
    let tags = match it.text("tags")?.filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => match read_tags(format!(" {text}").as_bytes(), it.limits.extensions) {
            Tagging::Tagged(tags) if tags.tube.is_none() => Some(Box::new(Tags { tube: Some(tube.clone()), ..*tags })),
            _ => return Err(wrong("tags")),
        },
    };
    Ok(Box::new(Put { tube, job, tags }))
}

impl HttpAction for Put {
    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        let job = self.job.take()?;
        let (client, now, engine) = (context.client, context.now, &mut context.engine);
        let tagged = match self.tags.take() {
            None => engine.put_into(client, &self.tube, job, now).map(Tagged::New),
            Some(tags) => engine.put_unmarked(client, job, *tags, now),
        };
        Some(tagged.map_err(refusal).map(|tagged| {
            let (id, is_replaced, duplicate_of) = match tagged {
                Tagged::New(id) => (id, false, None),
                Tagged::Duplicate { id, state, .. } => (id, false, Some(state.word())),
                Tagged::Ended(id) => (id, false, Some("deleted")),
                Tagged::Scheduled { id, replaced } => (id, replaced, None),
            };
            object(|members| {
                members.number("id", id.0);
                if is_replaced {
                    members.truth("replaced", true);
                }
                duplicate_of.into_iter().for_each(|state| members.text("duplicate-of", state.as_bytes()));
            })
        }))
    }

    fn job_body(&self) -> Option<&Body> {
        self.job.as_ref().map(|job| &job.body)
    }

    fn tags(&self) -> Option<&Tags> {
        self.tags.as_deref()
    }
}

fn refusal(refused: Refused) -> Failure {
    match refused {
        Refused::Draining => Failure::new(503, "the server is draining"),
        Refused::OutOfMemory => Failure::new(503, FULL),
        Refused::Duplicate => Failure::new(409, "there is such a job"),
        Refused::QueueFull => Failure::new(409, "the tube is full"),
    }
}
