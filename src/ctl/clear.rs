//! `clear`: deletes the jobs of tubes.
//!
//! Owns the fallback for servers without `flush-tube`: jobs are peeked and deleted, or, if many are ready, reserved in
//! batches. Only `flush-tube` deletes jobs that other clients have reserved.

use super::call::{confirm, Call};
use super::jobs::free_state;
use super::link::{first_word, refusal, Link};
use super::opts::{STATES, YES};
use super::out::Out;
use super::problem::{Problem, DONE};
use super::progress::ProgressBar;
use super::tell;
use super::yaml::Figures;

/// The number of jobs reserved at a time.
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
        // This detects a server that does not respond, because the commands below have no time limit.
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

/// Deletes the jobs with `flush-tube`. Returns `None` if the server does not know the command.
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
    // Jobs that are put meanwhile may remain: otherwise, a producer would make this endless.
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
    // This includes the ready jobs of a paused tube, which cannot be reserved.
    for state in states {
        while deleted < most {
            let Some((id, _)) = link.peek_next(state)? else { break };
            let reply = link.ask(&format!("delete {id}"))?;
            // Another client may have reserved it meanwhile.
            deleted += u64::from(reply.line == "DELETED");
            progress.tell(deleted, None);
        }
    }
    Ok(deleted)
}

/// Reserves some jobs and deletes them. Returns their number.
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
