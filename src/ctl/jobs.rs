//! Subcommands for single jobs: `peek`, `reserve`, `delete`, `kick`, `bury`, `release` and `revoke`.
//!
//! Owns the additional step that the protocol requires: only the client that has reserved a job may bury or release it,
//! so these two reserve it first. A failure for one job does not stop the others.

use super::prelude::*;

type Act<'a, T> = &'a mut dyn FnMut(&mut Link, T) -> Result<(), Problem>;

fn for_each_job(call: &Call, act: Act<u64>) -> Result<u8, Problem> {
    for_each(call, call.ids()?, act)
}

/// Calls `act` for each of these objects. Reports refusals and continues.
pub fn for_each<T>(call: &Call, all: Vec<T>, act: Act<T>) -> Result<u8, Problem> {
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

/// Returns the tube of `--tube`, which replaces IDs.
fn tube_or_ids(call: &Call) -> Result<Option<String>, Problem> {
    match (call.value(&OF_TUBE), call.operands.is_empty()) {
        (Some(name), true) => Ok(Some(tube(&name)?)),
        (None, false) => Ok(None),
        (Some(_), false) => Err(Problem::usage("--tube cannot be used with job IDs")),
        (None, true) => Err(Problem::usage("missing job IDs or --tube")),
    }
}

pub fn peek(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    if let Some(tube) = tube_or_ids(call)? {
        let state = state_of(call)?;
        let mut link = Link::open(call)?;
        link.use_tube(&tube)?;
        let next = link.peek_next(&state)?;
        let (id, body) = next.ok_or_else(|| Problem::empty(format!("tube {tube} has no {state} job")))?;
        return print(call, out, &mut link, id, &body).map(|()| DONE);
    }
    for_each_job(call, &mut |link, id| {
        let reply = link.expect(&format!("peek {id}"), "FOUND")?;
        print(call, out, link, id, &reply.body)
    })
}

pub fn state_of(call: &Call) -> Result<String, Problem> {
    call.value(&STATE).map_or(Ok("ready".to_owned()), free_state)
}

pub fn free_state(name: String) -> Result<String, Problem> {
    match name.as_str() {
        "ready" | "delayed" | "buried" => Ok(name),
        _ => Err(Problem::usage(format!("--state: invalid state: {name}; must be ready, delayed or buried"))),
    }
}

/// Prints a job: its body, or with `--json` all its figures.
fn print(call: &Call, out: &mut Out, link: &mut Link, id: u64, body: &[u8]) -> Result<(), Problem> {
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

/// Reserves the next job of some tubes. The job is printed before it is deleted or buried, so that no job is lost if it
/// cannot be printed.
pub fn reserve(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    if call.has(&DELETE) && call.has(&BURY) {
        return Err(Problem::usage("--delete cannot be used with --bury"));
    }
    let wait = call.short_number(&WAIT)?.map(u64::from);
    let mut link = Link::open(call)?;
    link.watch(&call.tubes()?)?;
    let (id, body) = link.reserve(wait)?.ok_or_else(|| Problem::empty("no job is ready"))?;
    let delivered = print(call, out, &mut link, id, &body).and_then(|()| out.flush());
    if delivered.is_ok() && call.has(&DELETE) {
        return link.expect(&format!("delete {id}"), "DELETED").map(|_| DONE);
    }
    let pri = priority(&mut link, id)?;
    if delivered.is_ok() && call.has(&BURY) {
        link.expect(&format!("bury {id} {pri}"), "BURIED")?;
    } else {
        give_back(&mut link, id, pri, 0)?;
    }
    delivered.map(|()| DONE)
}

pub fn delete(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    for_each_job(call, &mut |link, id| link.expect(&format!("delete {id}"), "DELETED").map(drop))
}

pub fn kick(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let count = call.number(&COUNT, 1, u32::MAX.into())?;
    if let Some(tube) = tube_or_ids(call)? {
        let mut link = Link::open(call)?;
        link.use_tube(&tube)?;
        let reply = link.expect(&format!("kick {}", count.unwrap_or(1)), "KICKED")?;
        let kicked = reply.number("KICKED").unwrap_or(0);
        out.line(&kicked.to_string())?;
        return match kicked {
            0 => Err(Problem::empty(format!("tube {tube} has no buried or delayed job"))),
            _ => Ok(DONE),
        };
    }
    if count.is_some() {
        return Err(Problem::usage("--count requires --tube"));
    }
    for_each_job(call, &mut |link, id| link.expect(&format!("kick-job {id}"), "KICKED").map(drop))
}

fn priority(link: &mut Link, id: u64) -> Result<u64, Problem> {
    Ok(link.figures(&format!("stats-job {id}"))?.unwrap_or_default().number("pri"))
}

/// Reserves a job in any state, to bury or release it. Returns its priority, which a client with the right `take` may
/// query only while it holds the job.
fn reserve_by_id(link: &mut Link, id: u64) -> Result<u64, Problem> {
    let command = format!("reserve-job {id}");
    let reply = link.ask(&command)?;
    if reply.number("RESERVED").is_none() {
        let figures = link.figures(&format!("stats-job {id}")).unwrap_or_default().unwrap_or_default();
        return Err(match figures.text("state") {
            "reserved" => Problem::refused(format!("job {id} is reserved by another client; see beanpole revoke")),
            _ => refusal(&command, &reply.line),
        });
    }
    priority(link, id)
}

pub fn bury(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let pri = call.short_number(&NEW_PRI)?;
    for_each_job(call, &mut |link, id| {
        let old = reserve_by_id(link, id)?;
        link.expect(&format!("bury {id} {}", pri.map_or(old, u64::from)), "BURIED").map(drop)
    })
}

pub fn revoke(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let pri = call.short_number(&NEW_PRI)?;
    for_each_job(call, &mut |link, id| {
        let pri = pri.map_or_else(|| priority(link, id), |pri| Ok(pri.into()))?;
        link.expect(&format!("revoke {id} {pri}"), "REVOKED").map(drop)
    })
}

pub fn release(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let pri = call.short_number(&NEW_PRI)?;
    let delay = call.short_number(&DELAY)?.unwrap_or(0);
    for_each_job(call, &mut |link, id| {
        let old = reserve_by_id(link, id)?;
        give_back(link, id, pri.map_or(old, u64::from), delay.into())
    })
}

/// Releases a job that this connection has reserved, and reports if that buries it.
fn give_back(link: &mut Link, id: u64, pri: u64, delay: u64) -> Result<(), Problem> {
    if !link.release(id, pri, delay)? {
        tell(&format!("job {id} was buried, because that was its last try"));
    }
    Ok(())
}
