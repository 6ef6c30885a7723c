//! `wait`: until jobs are gone or set aside.
//!
//! Owns what their ends mean for the exit code. Must not look for jobs: who waits knows their ids.

use std::time::{Duration, Instant};

use super::call::Call;
use super::link::{first_word, refusal, Link};
use super::opts::UNTIL;
use super::out::Out;
use super::problem::{Problem, DONE, REFUSED};
use super::tell;

/// As long as the protocol can say: a century.
const LONGEST: u64 = u32::MAX as u64;

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let ids = call.ids()?;
    let until = call.short_number(&UNTIL)?.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    let mut link = Link::open(call)?;
    let mut code = DONE;
    for id in ids {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_millis().div_ceil(1000) as u64);
        let command = format!("wait {id} {}", left.unwrap_or(LONGEST));
        let reply = link.ask_patiently(&command, left)?;
        match first_word(&reply.line) {
            "DELETED" => out.line(&format!("{id} deleted"))?,
            "BURIED" => {
                out.line(&format!("{id} buried"))?;
                code = REFUSED;
            }
            "TIMED_OUT" => return Err(Problem::empty(format!("job {id} is still there"))),
            "NOT_FOUND" => {
                tell(&refusal(&command, &reply.line).text);
                code = REFUSED;
            }
            _ => return Err(refusal(&command, &reply.line)),
        }
    }
    Ok(code)
}
