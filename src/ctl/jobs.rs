//! Subcommands for single jobs. If the server rejects a command for one job, the next job is still processed.

use std::thread;
use std::time::{Duration, Instant};

use super::prelude::*;

const POLL: Duration = Duration::from_millis(500);

type Act<'a, T> = &'a mut dyn FnMut(&mut Link, T) -> Result;

/// Prints each job with its new state, which `act` returns.
fn for_each_job(call: &Call, out: &mut Out, act: &mut dyn FnMut(&mut Link, u64) -> Result<&'static str>) -> Result<u8> {
    for_each(call, call.ids()?, &mut |link, id| out.line(&format!("{id} {}", act(link, id)?)))
}

pub fn for_each<T>(call: &Call, all: Vec<T>, act: Act<T>) -> Result<u8> {
    let mut link = Link::open(call)?;
    let mut code = DONE;
    for id in all {
        match act(&mut link, id) {
            Err(problem) if problem.code == REFUSED => code = report_refused(&[problem.text]),
            other => other?,
        }
    }
    Ok(code)
}

fn tube_or_ids(call: &Call) -> Result<Option<String>> {
    match (call.value(&OF_TUBE), call.operands.is_empty()) {
        (Some(name), true) => Ok(Some(tube(&name)?)),
        (None, false) => Ok(None),
        (Some(_), false) => Err(Problem::usage("--tube cannot be used with job IDs")),
        (None, true) => Err(Problem::usage("missing job IDs or --tube")),
    }
}

pub fn peek(call: &Call, out: &mut Out) -> Result<u8> {
    if let Some(tube) = tube_or_ids(call)? {
        let state = state_of(call)?;
        let mut link = Link::open(call)?;
        link.use_tube(&tube)?;
        let next = link.peek_next(&state)?;
        let (id, body) = next.ok_or_else(|| Problem::empty(format!("tube {tube} has no {state} job")))?;
        return print(call, out, &mut link, id, &body).map(|()| DONE);
    }
    for_each(call, call.ids()?, &mut |link, id| {
        let reply = link.expect(&format!("peek {id}"), "FOUND")?;
        print(call, out, link, id, &reply.body)
    })
}

pub fn state_of(call: &Call) -> Result<String> {
    call.value(&STATE).map_or(Ok("ready".to_owned()), free_state)
}

pub fn free_state(name: String) -> Result<String> {
    match name.as_str() {
        "ready" | "delayed" | "buried" => Ok(name),
        _ => Err(Problem::usage(format!("--state: invalid state: {name}; must be ready, delayed or buried"))),
    }
}

fn print(call: &Call, out: &mut Out, link: &mut Link, id: u64, body: &[u8]) -> Result {
    if !call.has(&JSON) {
        return out.body(body);
    }
    let stats = link.query(&format!("stats-job {id}"))?;
    out.line(&json::object(|json| {
        match &stats {
            Some(stats) => stats.write(json),
            None => json.number("id", id),
        }
        json.bytes("body", body);
    }))
}

pub fn reserve(call: &Call, out: &mut Out) -> Result<u8> {
    Problem::check_usage(!call.has(&DELETE) || !call.has(&BURY), "--delete cannot be used with --bury")?;
    let wait = call.short_number(&WAIT)?.map(u64::from);
    let mut link = Link::open(call)?;
    link.watch(&call.tubes()?)?;
    let (id, body) = link.reserve(wait)?.ok_or_else(|| Problem::empty("no job is ready"))?;
    let delivered = print(call, out, &mut link, id, &body).and_then(|()| out.flush());
    if delivered.is_ok() && call.has(&DELETE) {
        return link.expect(&format!("delete {id}"), "DELETED").map(|_| DONE);
    }
    let stats = visible_stats(&mut link, id)?;
    if delivered.is_ok() && call.has(&BURY) {
        link.expect(&format!("bury {id} {}", stats.number("pri")), "BURIED")?;
    } else {
        give_back(&mut link, id, &stats, None, 0)?;
    }
    delivered.map(|()| DONE)
}

pub fn delete(call: &Call, out: &mut Out) -> Result<u8> {
    for_each_job(call, out, &mut |link, id| link.expect(&format!("delete {id}"), "DELETED").map(|_| "deleted"))
}

pub fn kick(call: &Call, out: &mut Out) -> Result<u8> {
    let count = call.number(&COUNT, 1, u32::MAX.into())?;
    if let Some(tube) = tube_or_ids(call)? {
        let mut link = Link::open(call)?;
        link.use_tube(&tube)?;
        let reply = link.expect(&format!("kick {}", count.unwrap_or(1)), "KICKED")?;
        let kicked = reply.number("KICKED").unwrap_or(0);
        out.line(&kicked.to_string())?;
        let none = || Problem::empty(format!("tube {tube} has no buried or delayed job"));
        return (kicked > 0).then_some(DONE).ok_or_else(none);
    }
    Problem::check_usage(count.is_none(), "--count requires --tube")?;
    for_each_job(call, out, &mut |link, id| {
        let command = format!("kick-job {id}");
        match &*link.ask(&command)?.line {
            "KICKED" => Ok("kicked"),
            "NOT_FOUND" if visible_stats(link, id).unwrap_or_default().text("state") == "scheduled" => {
                Err(Problem::refused(format!(
                    "schedule {id} was not run: the last copy, or another job with the same key, is still in the tube"
                )))
            }
            line => Err(refusal(&command, line)),
        }
    })
}

/// Returns empty statistics if the server does not report any.
fn visible_stats(link: &mut Link, id: u64) -> Result<StatsReply> {
    Ok(link.query(&format!("stats-job {id}"))?.unwrap_or_default())
}

/// Queries statistics last, because a client with only the `take` right may see only jobs that it has reserved.
fn reserve_by_id(link: &mut Link, id: u64) -> Result<StatsReply> {
    let command = format!("reserve-job {id}");
    let reply = link.ask(&command)?;
    if reply.number("RESERVED").is_none() {
        return Err(match visible_stats(link, id).unwrap_or_default().text("state") {
            "reserved" => Problem::refused(format!("job {id} is reserved by another client; see beanpole revoke")),
            _ => refusal(&command, &reply.line),
        });
    }
    visible_stats(link, id)
}

pub fn bury(call: &Call, out: &mut Out) -> Result<u8> {
    let pri = call.short_number(&NEW_PRI)?;
    for_each_job(call, out, &mut |link, id| {
        let old = reserve_by_id(link, id)?.number("pri");
        link.expect(&format!("bury {id} {}", pri.map_or(old, u64::from)), "BURIED").map(|_| "buried")
    })
}

pub fn revoke(call: &Call, out: &mut Out) -> Result<u8> {
    let pri = call.short_number(&NEW_PRI)?;
    for_each_job(call, out, &mut |link, id| {
        let pri = pri.map_or_else(|| visible_stats(link, id).map(|it| it.number("pri")), |pri| Ok(pri.into()))?;
        let Err(problem) = link.expect(&format!("revoke {id} {pri}"), "REVOKED") else { return Ok("revoked") };
        Err(match visible_stats(link, id).unwrap_or_default().text("state") {
            "" | "reserved" => problem,
            state => Problem::refused(format!("job {id} is {state}, not reserved")),
        })
    })
}

pub fn release(call: &Call, out: &mut Out) -> Result<u8> {
    let pri = call.short_number(&NEW_PRI)?;
    let delay = call.short_number(&DELAY)?.unwrap_or(0);
    let mut code = DONE;
    let done = for_each_job(call, out, &mut |link, id| {
        let old = reserve_by_id(link, id)?;
        let state = give_back(link, id, &old, pri, delay)?;
        code = code.max(if state == "buried" { REFUSED } else { DONE });
        Ok(state)
    });
    Ok(done?.max(code))
}

/// Releases a job, and returns its new state. Prints a message if the server buries the job instead. If the tube limits
/// the tries, the reply is RELEASED even if the server buries the job.
fn give_back(link: &mut Link, id: u64, old: &StatsReply, pri: Option<u32>, delay: u32) -> Result<&'static str> {
    let pri = pri.map_or_else(|| old.number("pri"), u64::from);
    if link.release(id, pri, delay.into())? && old.text("tries-left") != "1" {
        return Ok("released");
    }
    tell(&format!("job {id} was buried, because that was its last try"));
    Ok("buried")
}

pub fn wait(call: &Call, out: &mut Out) -> Result<u8> {
    let ids = call.ids()?;
    let groups = call.groups()?;
    Problem::check_usage(ids.is_empty() != groups.is_empty(), "wait requires either job IDs or --group")?;
    let until = call.short_number(&UNTIL)?.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    let mut link = Link::open(call)?;
    let mut ids = ids.into_iter();
    let code = ids.try_fold(DONE, |code, id| wait_for_job(&mut link, id, until, out).map(|it| code.max(it)))?;
    groups.iter().try_fold(code, |code, group| wait_for_group(&mut link, group, until, out).map(|it| code.max(it)))
}

fn wait_for_job(link: &mut Link, id: u64, until: Option<Instant>, out: &mut Out) -> Result<u8> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_millis().div_ceil(1000) as u64);
    let command = format!("wait {id} {}", left.unwrap_or(u32::MAX.into()));
    let reply = link.ask_within(&command, left)?;
    match first_word(&reply.line) {
        "DELETED" => out.line(&format!("{id} deleted")).map(|()| DONE),
        "BURIED" => out.line(&format!("{id} buried")).map(|()| REFUSED),
        "TIMED_OUT" => Err(Problem::empty(format!("timed out: job {id} has not ended"))),
        "NOT_FOUND" => Ok(report_refused(&[refusal(&command, &reply.line).text])),
        _ => Err(refusal(&command, &reply.line)),
    }
}

/// While a job waits for more members of the group, the group is incomplete even if no member is pending.
fn wait_for_group(link: &mut Link, group: &str, until: Option<Instant>, out: &mut Out) -> Result<u8> {
    let command = format!("stats-group {group}");
    let mut progress = ProgressBar::new("jobs done");
    loop {
        let reply = link.query(&command)?;
        if reply.as_ref().is_some_and(|stats| stats.text("pending").parse::<u64>().is_err()) {
            return Err(Problem::refused(format!("{command}: the reply does not contain the number of pending jobs")));
        }
        let stats = reply.unwrap_or_default();
        let [pending, buried, waiting] = ["pending", "buried", "waiting-jobs"].map(|key| stats.number(key));
        if pending + waiting == 0 {
            progress.end();
            return out.line(&format!("{group} complete")).map(|()| DONE);
        }
        if pending > 0 && pending == buried {
            progress.end();
            return out.line(&format!("{group}: {buried} buried")).map(|()| REFUSED);
        }
        let deleted = stats.number("deleted");
        progress.update(deleted, Some((deleted, deleted + pending)));
        let left = until.map_or(POLL, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            let left = match pending {
                0 => format!("{waiting} jobs wait for more members of group {group}"),
                _ => format!("{pending} jobs of group {group} have not ended"),
            };
            return Err(Problem::empty(format!("timed out: {left}")));
        }
        thread::sleep(left.min(POLL));
    }
}
