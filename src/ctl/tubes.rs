//! `tube`, `pause` and `resume`: the settings of tubes.
//!
//! Owns showing, setting and removing them. The server knows their effects.

use super::jobs::for_each;
use super::prelude::*;
use crate::protocol::beanstalk::read_settings;

pub fn tube_settings(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let name = tube(&call.operands[0])?;
    let settings = call.operands[1..].join(" ");
    let none = call.has(&NONE);
    if read_settings(settings.as_bytes()).is_none() {
        return Err(Problem::usage(format!("tube: invalid settings: {}", settings.escape_debug())));
    }
    if none && !settings.is_empty() {
        return Err(Problem::usage("tube: --none cannot be used with settings"));
    }
    let mut link = Link::open(call)?;
    if none || !settings.is_empty() {
        return link.expect(format!("set-tube {name} {settings}").trim_end(), "SET").map(|_| DONE);
    }
    let figures = link.tube(&name)?;
    out.line(&on_one_line(figures.text("settings").as_bytes())).map(|()| DONE)
}

pub fn pause(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let name = tube(&call.operands[0])?;
    let seconds = number("pause", &call.operands[1], 0, u32::MAX.into())?;
    Link::open(call)?.expect(&format!("pause-tube {name} {seconds}"), "PAUSED").map(|_| DONE)
}

pub fn resume(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    for_each(call, call.tubes()?, &mut |link, name| link.expect(&format!("pause-tube {name} 0"), "PAUSED").map(drop))
}
