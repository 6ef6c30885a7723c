//! The same call to the engine and to the model.
//!
//! Owns the list of verbs as plain data, and what they answer, in a form that can be compared and printed.

use super::super::{
    ClientId, Engine, JobId, JobView, NewJob, NoJob, OverLimit, Priority, Progress, Refused, Reserve, Span, State, Time,
};
use super::model::{Model, Name, Outcome};

/// A verb with its arguments.
#[derive(Clone, Debug)]
pub enum Call {
    Connect,
    Disconnect(ClientId),
    /// With a body of `fill`, `size` times.
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
    Kick(ClientId, u64),
    KickJob(JobId),
    Show(JobId),
    Peek(ClientId, State),
    Use(ClientId, Name),
    Watch(ClientId, Name),
    Ignore(ClientId, Name),
    Pause(Name, Span),
    Drain,
    Tick {
        limit: usize,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Nothing,
    ClientState(ClientId),
    Put(Result<JobId, Refused>),
    /// A job with its body.
    Job(JobId, Vec<u8>),
    NoSuchJob,
    NoJob(NoJob),
    Waiting,
    Is(bool),
    Count(u64),
    Watching(Result<usize, OverLimit>),
    Ignored(Option<usize>),
    Using(Result<(), OverLimit>),
}

impl Call {
    /// Whether the call keeps to the engine's rules: its client is there, and does not wait where it must not.
    pub fn is_legal(&self, model: &Model) -> bool {
        use Call::*;
        match *self {
            Reserve { client, .. } | Watch(client, _) | Ignore(client, _) => {
                model.client(client).is_some() && !model.is_waiting(client)
            }
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
            | Use(client, _) => model.client(client).is_some(),
            Connect | KickJob(_) | Show(_) | Pause(_, _) | Drain | Tick { .. } => true,
        }
    }

    /// The client that asks for a job, if one does.
    pub fn waiter(&self) -> Option<ClientId> {
        match *self {
            Call::Reserve { client, .. } => Some(client),
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
                let body = vec![fill; size].into();
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
                let steps = engine.steps().left();
                while engine.kick(client, &mut kick, now) == Progress::More {
                    // As in a server, others come in between.
                    engine.grant_steps(steps);
                    while engine.has_deferred() {
                        engine.go_on(now);
                        engine.grant_steps(steps);
                    }
                }
                Answer::Count(kick.done)
            }
            KickJob(job) => Answer::Is(engine.kick_job(job, now)),
            Show(job) => shown(engine.job(job)),
            Peek(client, state) => shown(engine.peek(client, state)),
            Use(client, tube) => Answer::Using(engine.use_tube(client, tube.as_bytes())),
            Watch(client, tube) => Answer::Watching(engine.watch(client, tube.as_bytes(), now)),
            Ignore(client, tube) => Answer::Ignored(engine.ignore(client, tube.as_bytes(), now)),
            Pause(tube, length) => Answer::Is(engine.pause(tube.as_bytes(), length, now)),
            Drain => {
                engine.drain();
                Answer::Nothing
            }
            Tick { limit } => Answer::Is((0..limit).any(|_| engine.tick(now))),
        }
    }

    /// Calls the model, to which the engine's answer tells the number of a new client. What may come of a tick is not
    /// always one thing, so there may be several models afterwards; the engine must agree with one of them.
    pub fn on_model(&self, mut model: Model, engine: &Answer, now: Time) -> Vec<(Answer, Model)> {
        if let Call::Tick { limit } = *self {
            let all_done = |model: Model| (Answer::Is(model.next_deadline() > now), model);
            return model.ticked(now, limit).into_iter().map(all_done).collect();
        }
        if let (Call::Connect, &Answer::ClientState(client)) = (self, engine) {
            model.connect(client);
            return vec![(Answer::ClientState(client), model)];
        }
        let answer = self.verb_on_model(&mut model, now);
        vec![(answer, model)]
    }

    fn verb_on_model(&self, model: &mut Model, now: Time) -> Answer {
        use Call::*;
        match *self {
            Connect | Tick { .. } => unreachable!("not a verb with one answer of its own"),
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
            KickJob(job) => Answer::Is(model.kick_job(job, now)),
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
        }
    }
}

fn show(id: JobId, body: &[u8]) -> Answer {
    Answer::Job(id, body.to_vec())
}

/// The model's job with this id, if any.
fn known(model: &Model, id: Option<JobId>) -> Answer {
    id.and_then(|id| model.job(id)).map_or(Answer::NoSuchJob, |job| show(job.id, &job.body))
}
