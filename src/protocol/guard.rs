//! The permission for a command.
//!
//! Owns the mapping of a command to the tubes that it concerns, and the refusal of commands without permission, whose
//! only effect is the error. The commands' tables define the required rights, `access` the rights of clients.
//!
//! Promises: P25.

use super::text::past;
use super::{beanstalk, gearman, http, workq, Begun, CommandPlace, Context, Flow, Output, Request, Wire};
use crate::access::{ClientAccess, Denied, Need, Right, Scope};
use crate::engine::{ClientId, Engine, JobId, Progress};

#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    Nothing,
    Tube(&'a [u8]),
    /// These tubes, separated by spaces; there may be many.
    Tubes(&'a [u8]),
    TwoTubes(&'a [u8], &'a [u8]),
    /// This job, or `None` if the name belongs to no job.
    Job(Option<JobId>),
    /// These jobs; there may be many.
    Jobs(&'a [JobId]),
    /// This job, and a tube to which it moves.
    JobAndTube(JobId, &'a [u8]),
}

/// The progress of a decision.
enum Decision {
    Made(Result<(), Denied>),
    More,
}

/// The number of bytes of names that are checked per step.
const NAMES: usize = 16;

/// Returns the request if the client has the permission, or what happens instead.
pub fn check(request: Request, context: &mut Context, out: &mut Output) -> Result<Request, Flow> {
    let (request, mut from) = match request {
        Request::Continue(begun) => match begun.unchecked {
            Some(from) => (begun.request, from),
            None => return Ok(Request::Continue(begun)),
        },
        request => (request, 0),
    };
    if let Request::Http(request) = &request {
        http::introduce(request, context);
    }
    match decide(&request, &mut from, context) {
        Decision::Made(Ok(())) => Ok(request),
        Decision::More => Err(Flow::Continue(Box::new(Begun { request, unchecked: Some(from) }))),
        Decision::Made(Err(denied)) => {
            match &request {
                Request::Beanstalk(_) | Request::Continue(_) => beanstalk::deny(denied, out),
                Request::Gearman(request) => gearman::deny(&request.command, denied, out),
                Request::Workq(_) => workq::deny(denied, out),
                Request::Http(request) => return Err(http::deny(request, denied, out)),
            }
            Err(if denied == Denied::Unknown { Flow::Close } else { Flow::Next })
        }
    }
}

/// Returns the commands with this name in all protocols: the protocol, its spelling of the name, and the required
/// rights.
pub fn needs(command: &str) -> Vec<(&'static str, String, Need)> {
    let others = CommandPlace::all().filter(|place| place.is_taken()).map(|place| {
        let (wire, word, object) = place.name();
        (wire.name(), format!("{word} {object}").trim_end().to_owned(), place.need())
    });
    let others = others.filter(|(wire, ..)| *wire != Wire::Http.name());
    // For HTTP, the name of a route is its method and path.
    let routes = http::ROUTES.iter().map(|row| (Wire::Http.name(), row.name(), row.need));
    let all = others.chain(routes);
    all.filter(|(_, name, _)| name.eq_ignore_ascii_case(command.trim())).collect()
}

fn decide(request: &Request, from: &mut usize, context: &mut Context) -> Decision {
    let of_place = |place: Option<CommandPlace>| place.map_or(Need::OPEN, CommandPlace::need);
    let (need, subject, for_strangers) = match request {
        Request::Beanstalk(request) => (request.need(), request.subject(), request.is_for_strangers()),
        Request::Gearman(request) => (of_place(request.place), request.subject(context), false),
        Request::Workq(request) => (of_place(request.place()), request.subject(context), false),
        Request::Http(request) => (request.need(), request.subject(), request.is_for_strangers()),
        Request::Continue(_) => (Need::OPEN, Subject::Nothing, false),
    };
    let Context { engine, client, access: Some(access), .. } = context else { return Decision::Made(Ok(())) };
    if access.rights().is_none() {
        return Decision::Made(if for_strangers { Ok(()) } else { Err(Denied::Unknown) });
    }
    if let Err(denied) = groups(request, access) {
        return Decision::Made(Err(denied));
    }
    let made = match (need.scope, subject) {
        (Scope::Used, _) => access.check(need, Some(engine.used(*client))),
        (Scope::Watched, _) => return watched(need, from, engine, *client, access),
        (Scope::Named, Subject::Tubes(names)) => return named(need, names, from, engine, access),
        (Scope::Named, Subject::Tube(tube)) => access.check(need, Some(tube)),
        (Scope::Named, Subject::TwoTubes(one, other)) => {
            access.check(need, Some(one)).and_then(|()| access.check(need, Some(other)))
        }
        (Scope::Job | Scope::OwnJob, Subject::Job(id)) => job(need, id, engine, *client, access),
        (Scope::OwnJob, Subject::Jobs(ids)) => return jobs(need, ids, from, engine, *client, access),
        (Scope::Job, Subject::JobAndTube(id, tube)) => {
            job(need, Some(id), engine, *client, access).and_then(|()| access.check(need, Some(tube)))
        }
        _ => access.check(need, None),
    };
    Decision::Made(made)
}

/// A client that ties a job to groups must have the right to put jobs into tubes with the same names.
fn groups(request: &Request, access: &ClientAccess) -> Result<(), Denied> {
    let groups = match request {
        Request::Beanstalk(request) => request.groups(),
        Request::Http(request) => request.tags().map_or(&[][..], |tags| &tags.groups),
        _ => &[],
    };
    groups.iter().try_for_each(|tag| access.check(Need::PUT_NAMED, Some(&tag.name.text())))
}

/// Clients with the right for other jobs may learn that a job does not exist.
fn job(need: Need, id: Option<JobId>, engine: &Engine, client: ClientId, access: &ClientAccess) -> Result<(), Denied> {
    let Some(job) = id.and_then(|id| engine.any_job(id)) else {
        let anywhere = |rights| access.check(Need::any_of(rights, Scope::AnyTube), None);
        return anywhere(need.rights).or_else(|denied| match need.scope {
            Scope::OwnJob => anywhere(&[Right::Take]),
            _ => Err(denied),
        });
    };
    let tube = Some(engine.tube_of(&job));
    match need.scope {
        Scope::OwnJob if job.is_held_by(client) => access.check(need, tube).or(access.check(Need::TAKE_JOB, tube)),
        _ => access.check(need, tube),
    }
}

/// A list is allowed as a whole or not at all: no job is touched if one is not allowed.
fn jobs(
    need: Need,
    ids: &[JobId],
    from: &mut usize,
    engine: &mut Engine,
    client: ClientId,
    access: &ClientAccess,
) -> Decision {
    for id in past(ids, *from) {
        if engine.steps().are_used_up() {
            return Decision::More;
        }
        if let Err(denied) = job(need, Some(*id), engine, client, access) {
            return Decision::Made(Err(denied));
        }
        engine.take_steps(1);
        *from += 1;
    }
    Decision::Made(Ok(()))
}

/// Returns `true` if the client may still delete a job, which may have moved to another tube since its list was
/// checked.
pub fn may_delete(context: &Context, id: JobId) -> bool {
    let Context { engine, client, access, .. } = context;
    access.as_ref().is_none_or(|access| job(Need::DELETE_JOB, Some(id), engine, *client, access).is_ok())
}

/// After the check, only tubes from which the client may reserve are added, and its rights do not decrease.
fn watched(need: Need, from: &mut usize, engine: &mut Engine, client: ClientId, access: &mut ClientAccess) -> Decision {
    if access.watched_are_checked {
        return Decision::Made(Ok(()));
    }
    let mut denied = Ok(());
    let progress = engine.walk_watched(client, from, |tube| {
        denied = denied.and(access.check(need, Some(tube)));
        0
    });
    if denied.is_ok() && progress == Progress::More {
        return Decision::More;
    }
    access.watched_are_checked = denied.is_ok();
    Decision::Made(denied)
}

fn named(need: Need, names: &[u8], from: &mut usize, engine: &mut Engine, access: &ClientAccess) -> Decision {
    for name in past(names, *from).split(|byte| *byte == b' ') {
        if engine.steps().are_used_up() {
            return Decision::More;
        }
        if let Err(denied) = access.check(need, Some(name)) {
            return Decision::Made(Err(denied));
        }
        engine.take_steps(1 + (name.len() / NAMES) as u64);
        *from = (*from + name.len() + 1).min(names.len());
    }
    Decision::Made(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::{parse, Accounts};
    use crate::engine::{Limits, Time};

    fn access(line: &str) -> ClientAccess {
        let accounts = Accounts { user: &|_| None, group: &|_| None };
        ClientAccess::new(Arc::new(parse(line.as_bytes(), &accounts, |_| ()).expect("a line")), &[], false)
    }

    /// Returns the number of turns of a few steps until the decision, and the decision.
    fn decide_watched(engine: &mut Engine, client: ClientId, access: &mut ClientAccess) -> (usize, bool) {
        let mut from = 0;
        for turn in 1.. {
            engine.grant_steps(10);
            if let Decision::Made(made) = watched(Need::TAKE_WATCHED, &mut from, engine, client, access) {
                return (turn, made.is_ok());
            }
        }
        unreachable!("it is decided some time")
    }

    #[test]
    fn what_is_watched_is_looked_at_until_all_of_it_is_allowed() {
        let mut engine = Engine::new(Limits::NONE);
        let client = engine.connect();
        for tube in 1..100 {
            engine.watch(client, format!("{tube}").as_bytes(), Time::default()).expect("few tubes");
        }
        let mut may = access("* none take");
        assert_eq!(decide_watched(&mut engine, client, &mut may), (10, true));
        assert_eq!(decide_watched(&mut engine, client, &mut may), (1, true), "once is enough");
        let mut may_not = access("* none put");
        for _ in 0..2 {
            assert_eq!(decide_watched(&mut engine, client, &mut may_not), (1, false));
        }
    }
}
