//! `reserve`: the next job of some tubes, printed.
//!
//! Owns the order: first the job is written, and only then deleted or buried. What cannot be written stays in the
//! queue.

use super::call::{tube, Call};
use super::jobs::print;
use super::link::{first_word, refusal, Link};
use super::opts::{BURY, DELETE, WAIT};
use super::out::Out;
use super::problem::{Problem, DONE};
use super::tell;

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    if call.has(&DELETE) && call.has(&BURY) {
        return Err(Problem::usage("either --delete or --bury"));
    }
    let wait = call.short_number(&WAIT)?.map(u64::from);
    let mut link = Link::open(call)?;
    watch(&mut link, &call.operands)?;
    let command = match wait {
        Some(seconds) => format!("reserve-with-timeout {seconds}"),
        None => "reserve".to_owned(),
    };
    let reply = link.ask_patiently(&command, wait)?;
    let id = match first_word(&reply.line) {
        "RESERVED" => reply.number("RESERVED").unwrap_or(0),
        "TIMED_OUT" => return Err(Problem::empty("there is no ready job")),
        _ => return Err(refusal(&command, &reply.line)),
    };
    let delivered = print(call, out, &mut link, id, &reply.body).and_then(|()| out.flush());
    if delivered.is_ok() && call.has(&DELETE) {
        link.expect(&format!("delete {id}"), "DELETED")?;
        return Ok(DONE);
    }
    // Its priority stays, whoever gets it next.
    let figures = link.figures(&format!("stats-job {id}"))?.unwrap_or_default();
    let pri = figures.number("pri");
    if delivered.is_ok() && call.has(&BURY) {
        link.expect(&format!("bury {id} {pri}"), "BURIED")?;
    } else if !link.release(id, pri, 0)? {
        tell(&format!("that was the last try of job {id}, which is buried now"));
    }
    delivered.map(|()| DONE)
}

/// Watches these tubes and no others; `default` if there are none.
pub fn watch(link: &mut Link, tubes: &[String]) -> Result<(), Problem> {
    for name in tubes {
        link.expect(&format!("watch {}", tube(name)?), "WATCHING")?;
    }
    if !tubes.is_empty() && !tubes.iter().any(|name| name == "default") {
        link.expect("ignore default", "WATCHING")?;
    }
    Ok(())
}
