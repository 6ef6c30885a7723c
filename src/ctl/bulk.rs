//! The subcommands `move` and `clear`, with fallbacks for servers that lack `move-tube` or `flush-tube`. The fallback
//! for `move` reserves a job, puts a copy with a new ID, age and counts, and deletes the original. A failure loses no
//! job, but can leave two copies. The fallback for `clear` deletes no reserved jobs.

use super::jobs::{free_state, state_of};
use super::prelude::*;
use crate::engine::State;

/// Keeps workers away from a job, for example until it is buried.
pub const MAX_DELAY: u32 = u32::MAX;

const BATCH: usize = 100;

pub fn move_jobs(call: &Call, out: &mut Out) -> Result<u8> {
    let (from, to) = (tube(&call.operands[0])?, tube(&call.operands[1])?);
    if from == to {
        return Err(Problem::usage("move: the two tubes are the same"));
    }
    let state = state_of(call)?;
    let limit = call.number(&MOVED, 1, u64::MAX)?;
    let some = limit.map_or(String::new(), |limit| format!("at most {limit} "));
    confirm(&format!("Move {some}{state} jobs from {from} to {to}?"), call.has(&YES))?;
    let mut link = Link::open(call)?;
    let limit = limit.unwrap_or(u64::MAX);
    // Moving jobs has no time limit, so check first that the server responds.
    let stats = link.visible_tube(&from)?.ok_or_else(|| refusal(&format!("stats-tube {from}"), "NOT_FOUND"))?;
    let command = format!("move-tube {from} {to} {state} {}", limit.min(u32::MAX.into()));
    let reply = link.ask_within(&command, None)?;
    let moved = match (first_word(&reply.line), reply.number("MOVED")) {
        (_, Some(moved)) => moved,
        ("UNKNOWN_COMMAND", _) => {
            print_stderr("the server does not support move-tube: jobs are put again, with new IDs, ages and counts");
            // A producer could add jobs forever, so move only as many as existed initially.
            let limit = limit.min(stats.number(&format!("current-jobs-{state}")));
            move_one_by_one(&mut link, &from, &to, &state, limit)?
        }
        _ => return Err(refusal(&command, &reply.line)),
    };
    out.line(&moved.to_string()).map(|()| DONE)
}

fn move_one_by_one(link: &mut Link, from: &str, to: &str, state: &str, limit: u64) -> Result<u64> {
    link.use_tube(from)?;
    link.watch(&[from.to_owned()])?;
    let mut progress = ProgressBar::new("jobs moved");
    let mut moved = 0;
    while moved < limit {
        let Some((id, _)) = link.peek_next(state)? else { break };
        let stats = link.query(&format!("stats-job {id}"))?;
        let record = stats.as_ref().and_then(JobLine::of);
        let Some(record) = record.filter(|record| record.state.word() == state) else { continue };
        let reply = link.ask(&format!("reserve-job {id}"))?;
        // Another client has reserved the job.
        let Some((_, body)) = job_of("reserve-job", reply)? else { continue };
        if let Err(problem) = put_copy(link, to, &record, &body) {
            give_back(link, &record);
            return Err(problem);
        }
        link.expect(&format!("delete {id}"), "DELETED")?;
        link.use_tube(from)?;
        moved += 1;
        progress.update(moved, Some((moved, limit)));
    }
    Ok(moved)
}

fn put_copy(link: &mut Link, to: &str, record: &JobLine, body: &[u8]) -> Result {
    link.use_tube(to)?;
    let is_buried = record.state == State::Buried;
    let delay = if is_buried { MAX_DELAY } else { record.delay };
    let mut bytes = Vec::new();
    put(&mut bytes, (record.pri, delay, record.ttr), "", body);
    link.send(&bytes)?;
    let reply = link.reply()?;
    let id = reply.number("INSERTED").ok_or_else(|| refusal("put", &reply.line))?;
    if is_buried {
        link.expect(&format!("reserve-job {id}"), "RESERVED")?;
        link.expect(&format!("bury {id} {}", record.pri), "BURIED")?;
    }
    Ok(())
}

/// Buries or releases the job again. If this fails, closing the connection makes the job ready.
fn give_back(link: &mut Link, record: &JobLine) {
    let JobLine { id, pri, delay, .. } = record;
    let _ = match record.state {
        State::Buried => link.ask(&format!("bury {id} {pri}")),
        _ => link.ask(&format!("release {id} {pri} {delay}")),
    };
}

pub fn clear(call: &Call, out: &mut Out) -> Result<u8> {
    let names = call.tubes()?;
    let mut states = call.values(&STATES).into_iter().map(free_state).collect::<Result<Vec<_>, _>>()?;
    let all = states.is_empty();
    if all {
        states = ["ready", "delayed", "buried"].map(str::to_owned).to_vec();
    }
    confirm(&format!("Delete the {} jobs of {}?", states.join(" and "), names.join(", ")), call.has(&YES))?;
    let mut link = Link::open(call)?;
    for name in &names {
        // Deleting jobs has no time limit, so check first that the server responds.
        let stats = link.visible_tube(name)?.unwrap_or_default();
        let flushed = if all { flush(&mut link, name)? } else { None };
        let deleted = match flushed {
            Some(deleted) => deleted,
            None => delete_jobs(&mut link, name, &states, &stats)?,
        };
        out.line(&deleted.to_string())?;
        let reserved = link.visible_tube(name)?.unwrap_or_default().number("current-jobs-reserved");
        if all && reserved > 0 {
            print_stderr(&format!("{name}: {reserved} reserved jobs remain"));
        }
    }
    Ok(DONE)
}

fn flush(link: &mut Link, name: &str) -> Result<Option<u64>> {
    let command = format!("flush-tube {name}");
    let reply = link.ask_within(&command, None)?;
    match first_word(&reply.line) {
        "FLUSHED" => Ok(reply.number("FLUSHED")),
        "UNKNOWN_COMMAND" => Ok(None),
        _ => Err(refusal(&command, &reply.line)),
    }
}

fn delete_jobs(link: &mut Link, name: &str, states: &[String], stats: &StatsReply) -> Result<u64> {
    let mut progress = ProgressBar::new("jobs deleted");
    let mut deleted = 0;
    // A producer could add jobs forever, so delete only as many as existed initially.
    let limit = states.iter().map(|state| stats.number(&format!("current-jobs-{state}"))).sum();
    link.use_tube(name)?;
    if states.iter().any(|state| state == "ready") {
        link.watch(&[name.to_owned()])?;
        while deleted < limit {
            let some = delete_batch(link)?;
            if some == 0 {
                break;
            }
            deleted += some;
            progress.update(deleted, None);
        }
    }
    // Ready jobs of a paused tube cannot be reserved.
    for state in states {
        while deleted < limit {
            let Some((id, _)) = link.peek_next(state)? else { break };
            let reply = link.ask(&format!("delete {id}"))?;
            // Another client may have reserved the job.
            deleted += u64::from(reply.line == "DELETED");
            progress.update(deleted, None);
        }
    }
    Ok(deleted)
}

fn delete_batch(link: &mut Link) -> Result<u64> {
    link.send("reserve-with-timeout 0\r\n".repeat(BATCH).as_bytes())?;
    let mut deletes = String::new();
    for _ in 0..BATCH {
        let reply = link.reply()?;
        match (first_word(&reply.line), reply.number("RESERVED")) {
            (_, Some(id)) => deletes += &format!("delete {id}\r\n"),
            ("TIMED_OUT" | "DEADLINE_SOON", _) => {}
            _ => return Err(refusal("reserve-with-timeout", &reply.line)),
        }
    }
    link.send(deletes.as_bytes())?;
    deletes.lines().try_fold(0, |deleted, _| Ok(deleted + u64::from(link.reply()?.line == "DELETED")))
}
