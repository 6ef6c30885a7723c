//! `move`: moves the jobs of one tube to another.
//!
//! Owns the fallback for servers without `move-tube`: each job is reserved, put again, and then deleted. A failure in
//! between loses no job, but may leave two copies. The job gets a new ID, and its age and counts start again; a message
//! says so.

use super::call::{confirm, tube, Call};
use super::feed::put;
use super::jobs::state_of;
use super::link::{first_word, job_of, refusal, Link};
use super::opts::{MOVED, YES};
use super::out::Out;
use super::problem::{Problem, DONE};
use super::progress::ProgressBar;
use super::record::JobLine;
use super::tell;
use crate::engine::State;

/// The delay of jobs that are to be buried, so that no worker gets them meanwhile.
pub const OUT_OF_REACH: u32 = u32::MAX;

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let (from, to) = (tube(&call.operands[0])?, tube(&call.operands[1])?);
    if from == to {
        return Err(Problem::usage("the two tubes are the same"));
    }
    let state = state_of(call)?;
    let most = call.number(&MOVED, 1, u64::MAX)?;
    let some = most.map_or(String::new(), |most| format!("at most {most} "));
    confirm(&format!("Move {some}{state} jobs from {from} to {to}?"), call.has(&YES))?;
    let mut link = Link::open(call)?;
    let most = most.unwrap_or(u64::MAX);
    // This also detects a server that does not respond, because a move has no time limit.
    let figures = link.visible_figures(&format!("stats-tube {from}"))?;
    let figures = figures.ok_or_else(|| Problem::refused(format!("there is no tube {from}")))?;
    let command = format!("move-tube {from} {to} {state} {}", most.min(u32::MAX.into()));
    let reply = link.ask_patiently(&command, None)?;
    let moved = match (first_word(&reply.line), reply.number("MOVED")) {
        (_, Some(moved)) => moved,
        ("UNKNOWN_COMMAND", _) => {
            tell("the server does not support move-tube: jobs are put again, with new IDs, ages and counts");
            // Jobs that are put meanwhile are not moved: otherwise, a producer would make this endless.
            let most = most.min(figures.number(&format!("current-jobs-{state}")));
            one_by_one(&mut link, &from, &to, &state, most)?
        }
        _ => return Err(refusal(&command, &reply.line)),
    };
    out.line(&moved.to_string())?;
    Ok(DONE)
}

fn one_by_one(link: &mut Link, from: &str, to: &str, state: &str, most: u64) -> Result<u64, Problem> {
    link.expect(&format!("use {from}"), "USING")?;
    super::reserve::watch(link, &[from.to_owned()])?;
    let mut progress = ProgressBar::new("jobs moved");
    let mut moved = 0;
    while moved < most {
        let Some((id, _)) = link.peek_next(state)? else { break };
        let figures = link.figures(&format!("stats-job {id}"))?;
        let record = figures.as_ref().and_then(JobLine::of);
        let Some(record) = record.filter(|record| record.state.word() == state) else { continue };
        let reply = link.ask(&format!("reserve-job {id}"))?;
        // Otherwise, another client has reserved it.
        let Some((_, body)) = job_of("reserve-job", reply)? else { continue };
        if let Err(problem) = put_anew(link, to, &record, &body) {
            give_back(link, &record);
            return Err(problem);
        }
        link.expect(&format!("delete {id}"), "DELETED")?;
        link.expect(&format!("use {from}"), "USING")?;
        moved += 1;
        progress.tell(moved, Some((moved, most)));
    }
    Ok(moved)
}

/// Puts a copy of a job into another tube.
fn put_anew(link: &mut Link, to: &str, record: &JobLine, body: &[u8]) -> Result<(), Problem> {
    link.expect(&format!("use {to}"), "USING")?;
    let is_buried = record.state == State::Buried;
    let delay = if is_buried { OUT_OF_REACH } else { record.delay };
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

/// Returns a job that could not be moved; if that fails too, the end of the connection makes it ready.
fn give_back(link: &mut Link, record: &JobLine) {
    let JobLine { id, pri, delay, .. } = record;
    let _ = match record.state {
        State::Buried => link.ask(&format!("bury {id} {pri}")),
        _ => link.ask(&format!("release {id} {pri} {delay}")),
    };
}
