//! `clear`: deletes the jobs of tubes.
//!
//! Owns the way round for servers without `flush-tube`: jobs are looked at and deleted, or, where many are ready,
//! reserved in batches. Jobs that others have reserved are deleted by `flush-tube` only.

use super::call::{confirm, Call};
use super::jobs::free_state;
use super::link::{first_word, refusal, Link};
use super::opts::{STATES, YES};
use super::out::Out;
use super::problem::{Problem, DONE};
use super::progress::ProgressBar;
use super::tell;
use super::yaml::Figures;

/// Jobs that are reserved at a time.
const BATCH: usize = 100;

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let names = call.tubes()?;
    let mut states = call.values(&STATES).into_iter().map(free_state).collect::<Result<Vec<_>, _>>()?;
    let all = states.is_empty();
    if all {
        states = ["ready", "delayed", "buried"].map(str::to_owned).to_vec();
    }
    confirm(&format!("Delete the {} jobs of {}?", states.join(" and "), names.join(", ")), call.has(&YES))?;
    let mut link = Link::open(call)?;
    for name in &names {
        // A server that does not answer this is not waited for below, where there is no limit.
        let figures = link.visible_figures(&format!("stats-tube {name}"))?.unwrap_or_default();
        let flushed = if all { flush(&mut link, name)? } else { None };
        let deleted = match flushed {
            Some(deleted) => deleted,
            None => empty(&mut link, name, &states, &figures)?,
        };
        out.line(&format!("{deleted}"))?;
        let left = link.visible_figures(&format!("stats-tube {name}"))?.unwrap_or_default();
        if all && left.number("current-jobs-reserved") > 0 {
            tell(&format!("{name}: {} jobs stay, which are reserved", left.number("current-jobs-reserved")));
        }
    }
    Ok(DONE)
}

/// By the server itself; none if it does not know how.
fn flush(link: &mut Link, name: &str) -> Result<Option<u64>, Problem> {
    let command = format!("flush-tube {name}");
    let reply = link.ask_patiently(&command, None)?;
    match first_word(&reply.line) {
        "FLUSHED" => Ok(reply.number("FLUSHED")),
        "UNKNOWN_COMMAND" => Ok(None),
        _ => Err(refusal(&command, &reply.line)),
    }
}

fn empty(link: &mut Link, name: &str, states: &[String], figures: &Figures) -> Result<u64, Problem> {
    let mut progress = ProgressBar::new("jobs deleted");
    let mut deleted = 0;
    // What is put meanwhile may stay: else a producer would make it endless.
    let most = states.iter().map(|state| figures.number(&format!("current-jobs-{state}"))).sum();
    link.expect(&format!("use {name}"), "USING")?;
    if states.iter().any(|state| state == "ready") {
        super::reserve::watch(link, &[name.to_owned()])?;
        while deleted < most {
            let some = take_batch(link)?;
            if some == 0 {
                break;
            }
            deleted += some;
            progress.tell(deleted, None);
        }
    }
    // Also the ready jobs of a tube that is paused, which cannot be reserved.
    for state in states {
        while deleted < most {
            let Some((id, _)) = link.peek_next(state)? else { break };
            let reply = link.ask(&format!("delete {id}"))?;
            // Somebody else may have taken it meanwhile.
            deleted += u64::from(reply.line == "DELETED");
            progress.tell(deleted, None);
        }
    }
    Ok(deleted)
}

/// Reserves some jobs and deletes them; how many.
fn take_batch(link: &mut Link) -> Result<u64, Problem> {
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
    let count = deletes.lines().count();
    link.send(deletes.as_bytes())?;
    let mut deleted = 0;
    for _ in 0..count {
        deleted += u64::from(link.reply()?.line == "DELETED");
    }
    Ok(deleted)
}
