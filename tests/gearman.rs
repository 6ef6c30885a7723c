//! Gearman beyond single conversations: times that a conversation cannot name, long lists, and clients that send
//! anything.
//!
//! Nearly everything is on a virtual clock inside this process, with all invariants of the queue checked at every step;
//! what only a process shows is tried with the program.

mod daemon;
#[allow(dead_code, unused_imports)] // files of conversations are not read here
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
