//! `beanpole cluster`: what an operator asks of servers that share a queue, and tells them.
//!
//! Owns the exit code. What is asked and printed is the cluster room's.

use super::call::Call;
use super::out::Out;
use super::problem::{Problem, DONE, NO_CONNECTION};
use crate::cluster::command;
use crate::settings::options::BAD_USAGE;

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let code = |problem: &str| if problem.starts_with("usage") { BAD_USAGE } else { NO_CONNECTION };
    let text = command(&call.operands).map_err(|problem| Problem::new(code(&problem), problem))?;
    text.lines().try_for_each(|line| out.line(line)).map(|()| DONE)
}
