//! `beanpole cluster`: an operator's queries and commands for servers that share a queue.
//!
//! Owns the exit code. The cluster module owns the rest.

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
