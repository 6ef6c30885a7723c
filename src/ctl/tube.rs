//! `tube`: the settings of a tube.
//!
//! Owns showing, setting and removing them. The server knows the effect of each.

use super::call::{tube, Call};
use super::link::Link;
use super::opts::NONE;
use super::out::{on_one_line, Out};
use super::problem::{Problem, DONE};
use crate::protocol::beanstalk::read_settings;

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let name = tube(&call.operands[0])?;
    let settings = call.operands[1..].join(" ");
    let none = call.has(&NONE);
    if read_settings(settings.as_bytes()).is_none() {
        return Err(Problem::usage(format!("tube: invalid settings: {}", settings.escape_debug())));
    }
    if none && !settings.is_empty() {
        return Err(Problem::usage("tube: either settings or --none"));
    }
    let mut link = Link::open(call)?;
    if none || !settings.is_empty() {
        link.expect(format!("set-tube {name} {settings}").trim_end(), "SET")?;
        return Ok(DONE);
    }
    let figures = link.figures(&format!("stats-tube {name}"))?;
    let figures = figures.ok_or_else(|| Problem::refused(format!("there is no tube {name}")))?;
    out.line(&on_one_line(figures.text("settings").as_bytes()))?;
    Ok(DONE)
}
