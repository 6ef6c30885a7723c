//! Permission checks: the comparison of the rights that a command requires with the rights of the client.
//! Enforces promise P25 of beanpole-promises(7).

use super::text::past;
use super::{http, CommandId, Context, ProtocolCommand, Wire};
use crate::access::{ClientAccess, Denied, Need, Right, Scope};
use crate::engine::{ClientId, Engine, JobId, Progress};

#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    Nothing,
    Tube(&'a [u8]),
    /// Tube names, separated by spaces.
    Tubes(&'a [u8]),
    TwoTubes(&'a [u8], &'a [u8]),
    /// `None` if the argument does not identify a job.
    Job(Option<JobId>),
    Jobs(&'a [JobId]),
    JobAndTube(JobId, &'a [u8]),
}

/// `None` if the check continues later, because the step budget is used up.
pub type Decision = Option<Result<(), Denied>>;

const NAME_BYTES_PER_STEP: usize = 16;

/// Finds commands by name, ignoring case. Returns the protocol, the name and the required rights of each match.
pub fn needs(command: &str) -> Vec<(&'static str, String, Need)> {
    let others = CommandId::all().map(CommandId::entry).filter(|entry| entry.is_request && entry.wire != Wire::Http);
    let others = others.map(|it| (it.wire.name(), format!("{} {}", it.name, it.object).trim_end().to_owned(), it.need));
    // An HTTP command is named by its method and path.
    let routes = http::ROUTES.iter().map(|row| (Wire::Http.name(), row.name(), row.need));
    others.chain(routes).filter(|(_, name, _)| name.eq_ignore_ascii_case(command.trim())).collect()
}

/// Checks the names or jobs from `at` on, and updates `at`.
pub fn check(command: &impl ProtocolCommand, id: Option<CommandId>, at: &mut usize, context: &mut Context) -> Decision {
    let (need, subject) = (command.need(id), command.subject(context));
    let Context { engine, client, access: Some(access), .. } = context else { return Some(Ok(())) };
    if access.rights().is_none() {
        return Some(if command.allows_anonymous() { Ok(()) } else { Err(Denied::Unknown) });
    }
    // A group requires the right to put jobs into the tube with the group's name.
    let mut groups = command.tags().into_iter().flat_map(|tags| &tags.options.groups);
    if let Err(denied) = groups.try_for_each(|tag| access.check(Need::PUT_NAMED, Some(&tag.name.text()))) {
        return Some(Err(denied));
    }
    let made = match (need.scope, subject) {
        (Scope::Used, _) => access.check(need, Some(engine.used(*client))),
        (Scope::Watched, _) => return watched(need, at, engine, *client, access),
        (Scope::Named, Subject::Tubes(names)) => {
            return each(past(names, *at).split(|byte| *byte == b' '), engine, |_, name| {
                *at = (*at + name.len() + 1).min(names.len());
                access.check(need, Some(name)).map(|()| 1 + (name.len() / NAME_BYTES_PER_STEP) as u64)
            });
        }
        (Scope::Named, Subject::Tube(tube)) => access.check(need, Some(tube)),
        (Scope::Named, Subject::TwoTubes(first, second)) => {
            access.check(need, Some(first)).and_then(|()| access.check(need, Some(second)))
        }
        (Scope::Job | Scope::OwnJob, Subject::Job(id)) => job(need, id, engine, *client, access),
        (Scope::OwnJob, Subject::Jobs(ids)) => {
            return each(past(ids, *at).iter(), engine, |engine, id| {
                *at += 1;
                job(need, Some(*id), engine, *client, access).map(|()| 1)
            });
        }
        (Scope::Job, Subject::JobAndTube(id, tube)) => {
            job(need, Some(id), engine, *client, access).and_then(|()| access.check(need, Some(tube)))
        }
        _ => access.check(need, None),
    };
    Some(made)
}

/// Checks that the client has the required rights to the job's tube, or to any tube if the job does not exist.
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

/// Checks items until one is denied or no steps are left. `check` returns the number of engine steps for an item.
fn each<T>(
    items: impl Iterator<Item = T>,
    engine: &mut Engine,
    mut check: impl FnMut(&Engine, T) -> Result<u64, Denied>,
) -> Decision {
    for item in items {
        if engine.steps().are_used_up() {
            return None;
        }
        match check(engine, item) {
            Ok(steps) => engine.take_steps(steps),
            Err(denied) => return Some(Err(denied)),
        }
    }
    Some(Ok(()))
}

/// Checks one deletion in a batch again, because the job may have moved after the check of the whole batch.
pub fn may_delete(context: &Context, id: JobId) -> bool {
    let Context { engine, client, access, .. } = context;
    access.as_ref().is_none_or(|access| job(Need::DELETE_JOB, Some(id), engine, *client, access).is_ok())
}

/// Checks the tubes only once: watching requires the same right, and a client that loses a right is disconnected.
fn watched(need: Need, from: &mut usize, engine: &mut Engine, client: ClientId, access: &mut ClientAccess) -> Decision {
    if access.watched_are_checked {
        return Some(Ok(()));
    }
    let (mut denied, mut next) = (Ok(()), *from as u32);
    let progress = engine.walk_watched(client, &mut next, |tube| {
        denied = denied.and(access.check(need, Some(tube)));
        0
    });
    *from = next as usize;
    if denied.is_ok() && progress == Progress::More {
        return None;
    }
    access.watched_are_checked = denied.is_ok();
    Some(denied)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::{parse, Accounts};
    use crate::engine::{Limits, Time};

    fn access(line: &str) -> ClientAccess {
        let accounts = Accounts { user: &|_| None, group: &|_| None };
        ClientAccess::new(Arc::new(parse(line.as_bytes(), &accounts, |_, _, _| ()).expect("a line")), &[], false)
    }

    /// Returns the number of calls until the decision, and `true` if access is granted.
    fn decide_watched(engine: &mut Engine, client: ClientId, access: &mut ClientAccess) -> (usize, bool) {
        let mut from = 0;
        for turn in 1.. {
            engine.grant_steps(10);
            if let Some(made) = watched(Need::TAKE_WATCHED, &mut from, engine, client, access) {
                return (turn, made.is_ok());
            }
        }
        unreachable!("the check ends")
    }

    #[test]
    fn watched_tubes_are_checked_until_all_are_permitted() {
        let mut engine = Engine::new(Limits::NONE);
        let client = engine.connect();
        for tube in 1..100 {
            engine.watch(client, format!("{tube}").as_bytes(), Time::default()).expect("a watched tube");
        }
        let mut permitted = access("* none take");
        assert_eq!(decide_watched(&mut engine, client, &mut permitted), (10, true));
        assert_eq!(decide_watched(&mut engine, client, &mut permitted), (1, true), "the result is stored");
        let mut forbidden = access("* none put");
        for _ in 0..2 {
            assert_eq!(decide_watched(&mut engine, client, &mut forbidden), (1, false));
        }
    }
}
