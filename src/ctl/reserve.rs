//! `reserve`: prints the next job of some tubes.
//!
//! Owns the order: the job is written first, and only then deleted or buried. A job that cannot be written stays in the
//! queue.

use super::call::Call;
use super::jobs::{give_back, print};
use super::link::Link;
use super::opts::{BURY, DELETE, WAIT};
use super::out::Out;
use super::problem::{Problem, DONE};

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    if call.has(&DELETE) && call.has(&BURY) {
        return Err(Problem::usage("either --delete or --bury"));
    }
    let wait = call.short_number(&WAIT)?.map(u64::from);
    let mut link = Link::open(call)?;
    watch(&mut link, &call.tubes()?)?;
    let (id, body) = link.reserve(wait)?.ok_or_else(|| Problem::empty("no job is ready"))?;
    let delivered = print(call, out, &mut link, id, &body).and_then(|()| out.flush());
    if delivered.is_ok() && call.has(&DELETE) {
        link.expect(&format!("delete {id}"), "DELETED")?;
        return Ok(DONE);
    }
    // The job keeps its priority for the next worker.
    let figures = link.figures(&format!("stats-job {id}"))?.unwrap_or_default();
    let pri = figures.number("pri");
    if delivered.is_ok() && call.has(&BURY) {
        link.expect(&format!("bury {id} {pri}"), "BURIED")?;
    } else {
        give_back(&mut link, id, pri, 0)?;
    }
    delivered.map(|()| DONE)
}

/// Watches only these tubes, or `default` if there are none.
pub fn watch(link: &mut Link, tubes: &[String]) -> Result<(), Problem> {
    for name in tubes {
        link.expect(&format!("watch {name}"), "WATCHING")?;
    }
    if !tubes.is_empty() && !tubes.contains(&"default".to_owned()) {
        link.expect("ignore default", "WATCHING")?;
    }
    Ok(())
}
