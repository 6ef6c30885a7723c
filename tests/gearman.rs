//! Gearman tests that conversation files cannot express: time limits, scheduled jobs, long lists, random input, the
//! real program, and the man page.

mod daemon;
#[allow(dead_code, unused_imports)] // the tests do not read conversation files
mod script;
#[allow(dead_code)]
#[path = "script/within.rs"]
mod within;

#[path = "gearman/anything.rs"]
mod anything;
#[path = "gearman/limits.rs"]
mod limits;
#[path = "gearman/lists.rs"]
mod lists;
#[path = "gearman/page.rs"]
mod page;
#[path = "gearman/program.rs"]
mod program;
#[path = "gearman/talk.rs"]
mod talk;
#[path = "gearman/times.rs"]
mod times;
