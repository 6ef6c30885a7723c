//! Subcommands for single jobs: `peek`, `delete`, `kick`, `bury`, `release`, `revoke`.
//!
//! Owns the additional step that the protocol requires: only the client that has reserved a job may bury or release it,
//! so these two reserve it first. A failure for one job does not stop the others.

use super::call::{tube, Call};
use super::link::{refusal, Link};
use super::opts::{COUNT, DELAY, JSON, NEW_PRI, OF_TUBE, STATE};
use super::out::Out;
use super::problem::{Problem, DONE, REFUSED};
use super::tell;
use crate::shared::json;

type Act<'a, T> = &'a mut dyn FnMut(&mut Link, T) -> Result<(), Problem>;

/// Applies `act` to each job among the operands. Reports refusals and continues.
fn with_each(call: &Call, act: Act<u64>) -> Result<u8, Problem> {
    with_each_of(call, call.ids()?, act)
}

/// Applies `act` to each of these. Reports refusals and continues.
pub fn with_each_of<T>(call: &Call, all: Vec<T>, act: Act<T>) -> Result<u8, Problem> {
    let mut link = Link::open(call)?;
    let mut code = DONE;
    for one in all {
        match act(&mut link, one) {
            Err(problem) if problem.code == REFUSED => {
                tell(&problem.text);
                code = REFUSED;
            }
            other => other?,
        }
    }
    Ok(code)
}

/// Returns the tube that replaces IDs; exactly one of the two is required.
fn tube_or_ids(call: &Call) -> Result<Option<String>, Problem> {
    match (call.value(&OF_TUBE), call.operands.is_empty()) {
        (Some(name), true) => Ok(Some(tube(&name)?)),
        (None, false) => Ok(None),
        (Some(_), false) => Err(Problem::usage("either ids or --tube")),
        (None, true) => Err(Problem::usage("ids of jobs, or --tube")),
    }
}

pub fn peek(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    if let Some(tube) = tube_or_ids(call)? {
        let state = state_of(call)?;
        let mut link = Link::open(call)?;
        link.expect(&format!("use {tube}"), "USING")?;
        let next = link.peek_next(&state)?;
        let (id, body) = next.ok_or_else(|| Problem::empty(format!("tube {tube} has no {state} job")))?;
        return print(call, out, &mut link, id, &body).map(|()| DONE);
    }
    with_each(call, &mut |link, id| {
        let reply = link.expect(&format!("peek {id}"), "FOUND")?;
        print(call, out, link, id, &reply.body)
    })
}

pub fn state_of(call: &Call) -> Result<String, Problem> {
    call.value(&STATE).map_or(Ok("ready".to_owned()), free_state)
}

/// Checks the name of a state of jobs that are not reserved.
pub fn free_state(name: String) -> Result<String, Problem> {
    match name.as_str() {
        "ready" | "delayed" | "buried" => Ok(name),
        _ => Err(Problem::usage(format!("--state: {name}; it must be ready, delayed or buried"))),
    }
}

/// Prints a job: its body, or all its figures.
pub fn print(call: &Call, out: &mut Out, link: &mut Link, id: u64, body: &[u8]) -> Result<(), Problem> {
    if !call.has(&JSON) {
        return out.body(body);
    }
    let figures = link.figures(&format!("stats-job {id}"))?;
    out.line(&json::object(|json| {
        match &figures {
            Some(figures) => figures.write(json),
            None => json.number("id", id),
        }
        json.bytes("body", body);
    }))
}

pub fn delete(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    with_each(call, &mut |link, id| link.expect(&format!("delete {id}"), "DELETED").map(|_| ()))
}

pub fn kick(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let count = call.number(&COUNT, 1, u32::MAX.into())?;
    if let Some(tube) = tube_or_ids(call)? {
        let count = count.unwrap_or(1);
        let mut link = Link::open(call)?;
        link.expect(&format!("use {tube}"), "USING")?;
        let reply = link.expect(&format!("kick {count}"), "KICKED")?;
        let kicked = reply.number("KICKED").unwrap_or(0);
        out.line(&kicked.to_string())?;
        return match kicked {
            0 => Err(Problem::empty(format!("tube {tube} has no buried and no delayed job"))),
            _ => Ok(DONE),
        };
    }
    if count.is_some() {
        return Err(Problem::usage("--count goes with --tube"));
    }
    with_each(call, &mut |link, id| link.expect(&format!("kick-job {id}"), "KICKED").map(|_| ()))
}

/// Reserves a job in any state, to put it somewhere else. Returns its priority, which a client with the right `take`
/// can query only while it holds the job.
fn take(link: &mut Link, id: u64) -> Result<u64, Problem> {
    let (command, stats) = (format!("reserve-job {id}"), format!("stats-job {id}"));
    let reply = link.ask(&command)?;
    if reply.number("RESERVED").is_none() {
        let figures = link.figures(&stats).unwrap_or_default().unwrap_or_default();
        return Err(match figures.text("state") {
            "reserved" => Problem::refused(format!("job {id} is reserved: only its worker can say what becomes of it")),
            _ => refusal(&command, &reply.line),
        });
    }
    Ok(link.figures(&stats)?.unwrap_or_default().number("pri"))
}

pub fn bury(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let pri = call.short_number(&NEW_PRI)?;
    with_each(call, &mut |link, id| {
        let old = take(link, id)?;
        let pri = pri.map_or(old, u64::from);
        link.expect(&format!("bury {id} {pri}"), "BURIED").map(|_| ())
    })
}

pub fn revoke(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let pri = call.short_number(&NEW_PRI)?;
    with_each(call, &mut |link, id| {
        let pri = match pri {
            Some(pri) => pri.into(),
            None => link.figures(&format!("stats-job {id}"))?.unwrap_or_default().number("pri"),
        };
        link.expect(&format!("revoke {id} {pri}"), "REVOKED").map(|_| ())
    })
}

pub fn release(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let pri = call.short_number(&NEW_PRI)?;
    let delay = call.short_number(&DELAY)?.unwrap_or(0);
    with_each(call, &mut |link, id| {
        let old = take(link, id)?;
        let pri = pri.map_or(old, u64::from);
        give_back(link, id, pri, delay.into())
    })
}

/// Releases a job that this connection has reserved, and reports if that buries it.
pub fn give_back(link: &mut Link, id: u64, pri: u64, delay: u64) -> Result<(), Problem> {
    if !link.release(id, pri, delay)? {
        tell(&format!("that was the last try of job {id}, which is buried now"));
    }
    Ok(())
}
