//! `pause` and `resume`: whether jobs of a tube can be reserved.
//!
//! Owns only these two.

use super::call::{number, tube, Call};
use super::jobs::with_each_of;
use super::link::Link;
use super::out::Out;
use super::problem::{Problem, DONE};

pub fn pause(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let name = tube(&call.operands[0])?;
    let seconds = number("pause", &call.operands[1], 0, u32::MAX.into())?;
    let mut link = Link::open(call)?;
    link.expect(&format!("pause-tube {name} {seconds}"), "PAUSED")?;
    Ok(DONE)
}

pub fn resume(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    with_each_of(call, call.tubes()?, &mut |link, name| {
        link.expect(&format!("pause-tube {name} 0"), "PAUSED").map(|_| ())
    })
}
