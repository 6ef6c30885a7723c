//! The calls that tests make on both the engine and the model.
//!
//! Owns the calls as plain data, and the type of their results. Results can be compared and printed.

use super::super::{
    Body, ClientId, DedupKey, Engine, Failed, FindOldest, FindReserved, GroupTag, IdPage, JobEnd, JobId, JobOptions,
    JobView, MoveJobs, NewJob, NoJob, NotSet, OverLimit, Priority, Progress, Refused, Reserve, ReserveMode, Span,
    State, Tagged, Tags, Tie, Time,
};
use super::model::{GroupTie, JobTags, Model, Name, Outcome, Settings};

#[derive(Clone, Debug)]
pub enum Call {
    Connect,
    Disconnect(ClientId),
    /// The body consists of `size` bytes with the value `fill`.
    Put {
        client: ClientId,
        pri: Priority,
        delay: Span,
        ttr: Span,
        fill: u8,
        size: usize,
    },
    MarkProducer(ClientId),
    Reserve {
        client: ClientId,
        timeout: Option<Span>,
    },
    CancelWait(ClientId),
    ReserveJob(ClientId, JobId),
    Delete(ClientId, JobId),
    Release {
        client: ClientId,
        job: JobId,
        pri: Priority,
        delay: Span,
    },
    Bury(ClientId, JobId, Priority),
    Touch(ClientId, JobId),
    Revoke(JobId, Priority),
    Kick(ClientId, u64),
    KickJob(JobId),
    Show(JobId),
    Peek(ClientId, State),
    Use(ClientId, Name),
    Watch(ClientId, Name),
    Ignore(ClientId, Name),
    Pause(Name, Span),
    Drain,
    Undrain,
    Tick {
        limit: usize,
    },
    /// Puts a job with a body of one byte.
    PutTagged {
        client: ClientId,
        pri: Priority,
        delay: Span,
        ttr: Span,
        tags: JobTags,
    },
    ReserveMore(ClientId),
    /// Sets whether the client chooses tubes at random.
    Weighted(ClientId, bool),
    TouchAll(ClientId),
    Flush(Name, bool),
    PeekReserved(ClientId),
    List {
        tube: Name,
        state: State,
        above: u64,
        limit: usize,
    },
    MoveJob {
        client: ClientId,
        job: JobId,
        tube: Name,
        pri: Priority,
        delay: Span,
    },
    MoveTube {
        client: ClientId,
        from: Name,
        to: Name,
        state: State,
        bound: u64,
    },
    LimitTube(ClientId, Name, Option<u32>),
    SetTube(ClientId, Name, Settings),
    Fail {
        client: ClientId,
        job: JobId,
        pri: Priority,
        reason: Name,
    },
    Wait {
        client: ClientId,
        job: JobId,
        timeout: Span,
    },
    /// The ages of the tube's oldest ready, delayed and buried jobs.
    Ages(Name),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Nothing,
    ClientState(ClientId),
    Put(Result<JobId, Refused>),
    Job(JobId, Vec<u8>),
    NoSuchJob,
    NoJob(NoJob),
    Waiting,
    Is(bool),
    Kicked(Result<bool, Refused>),
    Count(u64),
    Watching(Result<usize, OverLimit>),
    Ignored(Option<usize>),
    Using(Result<(), OverLimit>),
    Tagged(Result<Tagged, Refused>),
    Ids(Option<Vec<JobId>>),
    Moved(Result<u64, OverLimit>),
    End(JobEnd),
    Ages([Span; 3]),
    Set(Result<(), NotSet>),
    Failed(Option<Failed>),
}

impl Call {
    /// Returns `true` if the client of the call exists and, unless the call permits waiting clients, is not waiting.
    pub fn is_legal(&self, model: &Model) -> bool {
        use Call::*;
        match *self {
            Reserve { client, .. }
            | ReserveMore(client)
            | Watch(client, _)
            | Ignore(client, _)
            | Wait { client, .. } => model.client(client).is_some() && !model.is_waiting(client),
            Disconnect(client)
            | Put { client, .. }
            | MarkProducer(client)
            | CancelWait(client)
            | ReserveJob(client, _)
            | Delete(client, _)
            | Release { client, .. }
            | Bury(client, _, _)
            | Touch(client, _)
            | Kick(client, _)
            | Peek(client, _)
            | PutTagged { client, .. }
            | Weighted(client, _)
            | TouchAll(client)
            | PeekReserved(client)
            | MoveJob { client, .. }
            | MoveTube { client, .. }
            | LimitTube(client, ..)
            | SetTube(client, ..)
            | Fail { client, .. }
            | Use(client, _) => model.client(client).is_some(),
            Connect | KickJob(_) | Revoke(..) | Show(_) | Pause(_, _) | Drain | Undrain | Tick { .. } => true,
            Flush(..) | List { .. } | Ages(_) => true,
        }
    }

    pub fn waiter(&self) -> Option<ClientId> {
        match *self {
            Call::Reserve { client, .. } => Some(client),
            _ => None,
        }
    }

    /// Returns the client if it requests a job and chooses tubes at random.
    fn chooser(&self, model: &Model) -> Option<ClientId> {
        match *self {
            Call::Reserve { client, .. } | Call::ReserveMore(client) => {
                Some(client).filter(|client| model.extended.weighted.contains(client))
            }
            _ => None,
        }
    }

    pub fn on_engine(&self, engine: &mut Engine, now: Time) -> Answer {
        use Call::*;
        let shown = |job: Option<JobView>| job.map_or(Answer::NoSuchJob, |job| show(job.id(), job.body().bytes()));
        match *self {
            Connect => Answer::ClientState(engine.connect()),
            Disconnect(client) => {
                engine.disconnect(client, now);
                Answer::Nothing
            }
            Put { client, pri, delay, ttr, fill, size } => {
                let body = Body::from(vec![fill; size]);
                Answer::Put(engine.put(client, NewJob { pri, delay, ttr, body }, now))
            }
            MarkProducer(client) => {
                engine.mark_producer(client);
                Answer::Nothing
            }
            Reserve { client, timeout } => match engine.reserve(client, timeout, now) {
                self::Reserve::Job(job) => shown(Some(job)),
                self::Reserve::NoJob(why) => Answer::NoJob(why),
                self::Reserve::Waiting => Answer::Waiting,
            },
            CancelWait(client) => Answer::Is(engine.cancel_wait(client)),
            ReserveJob(client, job) => shown(engine.reserve_job(client, job, now)),
            Delete(client, job) => Answer::Is(engine.delete(client, job, now)),
            Release { client, job, pri, delay } => Answer::Is(engine.release(client, job, pri, delay, now)),
            Bury(client, job, pri) => Answer::Is(engine.bury(client, job, pri, now)),
            Touch(client, job) => Answer::Is(engine.touch(client, job, now)),
            Kick(client, bound) => {
                let mut kick = super::super::Kick::new(bound);
                in_turns(engine, now, |engine| (engine.kick(client, &mut kick, now) == Progress::Done).then_some(()));
                Answer::Count(kick.done)
            }
            KickJob(job) => Answer::Kicked(engine.kick_job(job, now)),
            Show(job) => shown(engine.job(job)),
            Peek(client, state) => shown(engine.peek(client, state)),
            Use(client, tube) => Answer::Using(engine.use_tube(client, tube.as_bytes())),
            Watch(client, tube) => Answer::Watching(engine.watch(client, tube.as_bytes(), now)),
            Ignore(client, tube) => Answer::Ignored(engine.ignore(client, tube.as_bytes(), now)),
            Pause(tube, length) => Answer::Is(engine.pause(tube.as_bytes(), length, now)),
            Drain => {
                engine.set_draining(true);
                Answer::Nothing
            }
            Tick { limit } => Answer::Is((0..limit).any(|_| engine.tick(now))),
            _ => self.extended_on_engine(engine, now),
        }
    }

    fn extended_on_engine(&self, engine: &mut Engine, now: Time) -> Answer {
        use Call::*;
        let shown = |job: Option<JobView>| job.map_or(Answer::NoSuchJob, |job| show(job.id(), job.body().bytes()));
        match *self {
            Undrain => {
                engine.set_draining(false);
                Answer::Nothing
            }
            PutTagged { client, pri, delay, ttr, ref tags } => {
                let new = NewJob { pri, delay, ttr, body: vec![b'x'].into() };
                Answer::Tagged(engine.put_tagged(client, new, tags_of(tags), now))
            }
            ReserveMore(client) => shown(engine.reserve_more(client, now)),
            Weighted(client, weighted) => {
                engine.set_reserve_mode(client, if weighted { by_weight(client) } else { ReserveMode::Urgent });
                Answer::Nothing
            }
            TouchAll(client) => {
                let mut touch = super::super::TouchAll::new(now);
                let held = in_turns(engine, now, |engine| match engine.touch_all(client, &mut touch, |_| true, now) {
                    (Progress::More, _) => None,
                    (Progress::Done, held) => Some(held),
                });
                Answer::Count(held as u64)
            }
            Revoke(job, pri) => Answer::Is(engine.revoke(job, pri, now)),
            Flush(tube, buried) => {
                let states = if buried { &[State::Buried][..] } else { &State::UNFINISHED };
                let mut flush = super::super::Flush::new(tube.as_bytes().into(), states);
                in_turns(engine, now, |engine| (engine.flush(&mut flush, now) == Progress::Done).then_some(()));
                Answer::Count(flush.done)
            }
            PeekReserved(client) => {
                let mut find = FindReserved::default();
                let found = in_turns(engine, now, |engine| match engine.peek_reserved(client, &mut find) {
                    (Progress::More, _) => None,
                    (Progress::Done, found) => Some(found.map(|job| job.id())),
                });
                shown(found.and_then(|id| engine.job(id)))
            }
            List { tube, state, above, limit } => {
                let mut page = IdPage::new(tube.as_bytes().into(), state, above, limit);
                Answer::Ids(in_turns(engine, now, |engine| match engine.list_ids(&mut page, |_| true) {
                    Some((Progress::More, _)) => None,
                    Some((Progress::Done, ids)) => Some(Some(ids)),
                    None => Some(None),
                }))
            }
            MoveJob { client, job, tube, pri, delay } => {
                Answer::Moved(engine.move_job(client, job, tube.as_bytes(), (pri, delay), now).map(u64::from))
            }
            MoveTube { client, from, to, state, bound } => {
                let mut moving = MoveJobs::new(from.as_bytes().into(), to.as_bytes().into(), state, bound);
                let moved = in_turns(engine, now, |engine| match engine.move_jobs(client, &mut moving, now) {
                    Ok(Progress::More) => None,
                    Ok(Progress::Done) => Some(Ok(())),
                    Err(over) => Some(Err(over)),
                });
                Answer::Moved(moved.map(|()| moving.done))
            }
            LimitTube(..) | SetTube(..) | Fail { .. } => self.settings_on_engine(engine, now),
            Wait { client, job, timeout } => Answer::End(engine.wait_end(client, job, timeout, now)),
            Ages(tube) => {
                let mut find = FindOldest::new(tube.as_bytes().into());
                in_turns(engine, now, |engine| (engine.find_oldest(&mut find) == Progress::Done).then_some(()));
                Answer::Ages(find.ages(now))
            }
            _ => unreachable!("{self:?} is handled by the caller"),
        }
    }

    fn settings_on_engine(&self, engine: &mut Engine, now: Time) -> Answer {
        use Call::*;
        match *self {
            LimitTube(client, tube, limit) => {
                Answer::Using(engine.limit_new_tube(client, tube.as_bytes(), [limit; 3], now))
            }
            SetTube(client, tube, settings) => {
                Answer::Set(engine.set_tube(client, tube.as_bytes(), settings.to_engine(), now))
            }
            Fail { client, job, pri, reason } => Answer::Failed(engine.fail(client, job, pri, reason.as_bytes(), now)),
            _ => unreachable!("{self:?} does not concern settings"),
        }
    }

    /// Runs the call on the model. `engine` is the engine's answer, which provides the number of a new client. Returns
    /// all valid answers with the resulting models. At least one answer with its model must match the engine.
    pub fn on_model(&self, mut model: Model, engine: &Answer, now: Time) -> Vec<(Answer, Model)> {
        if let Call::Tick { limit } = *self {
            let all_done = |model: Model| (Answer::Is(model.next_deadline() > now), model);
            return model.ticked(now, limit).into_iter().map(all_done).collect();
        }
        if let (Call::Connect, &Answer::ClientState(client)) = (self, engine) {
            model.connect(client);
            return vec![(Answer::ClientState(client), model)];
        }
        model.extended.now = now;
        if let Some(client) = self.chooser(&model) {
            if let Call::Reserve { .. } = self {
                model.mark_worker(client);
            }
            let chances = model.chances(client, now);
            let ways = chances.iter().map(|id| {
                let mut model = model.clone();
                model.give_chosen(*id, client, now);
                (known(&model, Some(*id)), model)
            });
            let ways: Vec<(Answer, Model)> = ways.collect();
            if !ways.is_empty() {
                return ways;
            }
        }
        let answer = self.verb_on_model(&mut model, engine, now);
        vec![(answer, model)]
    }

    fn verb_on_model(&self, model: &mut Model, engine: &Answer, now: Time) -> Answer {
        use Call::*;
        match *self {
            Connect | Tick { .. } => unreachable!("`on_model` handles these calls"),
            Disconnect(client) => {
                model.disconnect(client, now);
                Answer::Nothing
            }
            Put { client, pri, delay, ttr, fill, size } => {
                Answer::Put(model.put(client, (pri, delay, ttr), vec![fill; size], now))
            }
            MarkProducer(client) => {
                model.mark_producer(client);
                Answer::Nothing
            }
            Reserve { client, timeout } => match model.reserve(client, timeout, now) {
                Outcome::Job(job) => known(model, Some(job)),
                Outcome::NoJob(why) => Answer::NoJob(why),
                Outcome::Waiting => Answer::Waiting,
            },
            CancelWait(client) => Answer::Is(model.cancel_wait(client)),
            ReserveJob(client, job) => {
                let taken = model.reserve_job(client, job, now);
                known(model, taken.then_some(job))
            }
            Delete(client, job) => Answer::Is(model.delete(client, job)),
            Release { client, job, pri, delay } => Answer::Is(model.release(client, job, pri, delay, now)),
            Bury(client, job, pri) => Answer::Is(model.bury(client, job, pri, now)),
            Touch(client, job) => Answer::Is(model.touch(client, job, now)),
            Kick(client, bound) => Answer::Count(model.kick(client, bound, now)),
            KickJob(job) => Answer::Kicked(model.kick_job(job, now)),
            Show(job) => known(model, Some(job)),
            Peek(client, state) => known(model, model.peek(client, state).map(|job| job.id)),
            Use(client, tube) => Answer::Using(model.use_tube(client, tube)),
            Watch(client, tube) => Answer::Watching(model.watch(client, tube)),
            Ignore(client, tube) => Answer::Ignored(model.ignore(client, tube)),
            Pause(tube, length) => Answer::Is(model.pause(tube, length, now)),
            Drain => {
                model.draining = true;
                Answer::Nothing
            }
            _ => self.extended_on_model(model, engine, now),
        }
    }

    fn extended_on_model(&self, model: &mut Model, engine: &Answer, now: Time) -> Answer {
        use Call::*;
        match *self {
            Undrain => {
                model.draining = false;
                Answer::Nothing
            }
            PutTagged { client, pri, delay, ttr, ref tags } => {
                Answer::Tagged(model.put_tagged(client, (pri, delay, ttr), vec![b'x'], tags.clone(), now))
            }
            ReserveMore(client) => {
                let job = model.reserve_more(client, now);
                known(model, job)
            }
            Weighted(client, weighted) => {
                model.extended.weighted.retain(|other| *other != client);
                model.extended.weighted.extend(weighted.then_some(client));
                Answer::Nothing
            }
            TouchAll(client) => Answer::Count(model.touch_all(client, now)),
            Revoke(job, pri) => Answer::Is(model.revoke(job, pri, now)),
            Flush(tube, buried) => Answer::Count(model.flush(tube, buried)),
            PeekReserved(client) => known(model, model.peek_reserved(client)),
            List { tube, state, above, limit } => Answer::Ids(model.list_ids(tube, state, above, limit)),
            MoveJob { client, job, tube, pri, delay } => {
                Answer::Moved(model.move_job(client, job, tube, (pri, delay), now).map(u64::from))
            }
            MoveTube { client, from, to, state, bound } => {
                Answer::Moved(model.move_jobs(client, (from, to), state, bound, now))
            }
            LimitTube(client, tube, limit) => Answer::Using(model.limit(client, tube, limit)),
            SetTube(client, tube, settings) => Answer::Set(model.set_tube(client, tube, settings, now)),
            Fail { client, job, pri, reason } => {
                let Answer::Failed(engine) = *engine else { unreachable!("unexpected answer {engine:?} to {self:?}") };
                Answer::Failed(model.fail(client, job, (pri, reason), engine, now))
            }
            Wait { client, job, timeout } => Answer::End(model.wait_end(client, job, timeout, now)),
            Ages(tube) => Answer::Ages(model.ages(tube, now)),
            _ => unreachable!("{self:?} is handled by the caller"),
        }
    }
}

/// Calls a method of the engine until it returns a result, and continues deferred work between the calls.
fn in_turns<T>(engine: &mut Engine, now: Time, mut call: impl FnMut(&mut Engine) -> Option<T>) -> T {
    let steps = engine.steps().left();
    loop {
        if let Some(answer) = call(engine) {
            return answer;
        }
        engine.grant_steps(steps);
        while engine.has_deferred() {
            engine.go_on(now);
            engine.grant_steps(steps);
        }
    }
}

fn tags_of(tags: &JobTags) -> Tags {
    let groups = tags.groups.iter().map(|(name, tie)| GroupTag { name: name.as_bytes().into(), tie: tie_of(*tie) });
    let options = JobOptions {
        dedup_key: tags.key.map_or(DedupKey::None, |(key, _)| DedupKey::Name(key.as_bytes().into())),
        keep: tags.key.map_or(0, |(_, keep)| keep),
        max_attempts: tags.tries,
        backoff: tags.backoff,
        ttl: tags.ttl.unwrap_or(Span::MAX),
        concurrency: tags.bound.map(|(key, limit)| (key.as_bytes().into(), limit)),
        groups: groups.collect(),
        ..JobOptions::default()
    };
    let recurs = tags.every.map(|seconds| seconds.to_string().as_bytes().into());
    Tags { tube: tags.tube.map(|tube| tube.as_bytes().into()), recurs, options }
}

fn tie_of(tie: GroupTie) -> Tie {
    match tie {
        GroupTie::Member => Tie::Member,
        GroupTie::After(even_if_new) => Tie::After { even_if_new },
        GroupTie::AfterCount(need) => Tie::AfterCount(need),
    }
}

fn show(id: JobId, body: &[u8]) -> Answer {
    Answer::Job(id, body.to_vec())
}

fn known(model: &Model, id: Option<JobId>) -> Answer {
    id.and_then(|id| model.job(id)).map_or(Answer::NoSuchJob, |job| show(job.id, &job.body))
}

/// Returns one of the two modes that use weights. The model does not distinguish between these modes.
fn by_weight(client: ClientId) -> ReserveMode {
    if client.0 % 2 == 0 {
        ReserveMode::Weighted
    } else {
        ReserveMode::Fair
    }
}
