//! The scenarios of the Gearman benchmark with their names, descriptions and goals.
//!
//! Owns the list of scenarios; other modules implement them. The data of a job is 64 bytes long. Goals are ratios to
//! Debian's gearmand.

use super::scenario::{goals, row, Kind, Scenario, NONE, NO_GOALS};
use super::{background, foreground, serial, wake};

pub const BENCH: &str = "gearman";

/// The environment variable with the path of the original server, and the default path.
pub const PEER: Option<[&str; 2]> = Some(["GEARMAND", "/usr/sbin/gearmand"]);

use Kind::{Full, Quick};

/// All scenarios, in the order in which they run.
#[rustfmt::skip]
pub const SCENARIOS: &[Scenario] = &[
    row("serial", Quick, goals(5.0, NONE), "foreground job, 1 client, 1 worker, strictly in turn", serial::serial),
    row("relay-1", Full, NO_GOALS, "foreground job, 1 client, 1 worker, multiplexed", |b| foreground::relay(b, 1, 1)),
    row("relay-50", Quick, goals(3.0, NONE), "foreground job, 50 clients, 10 workers", |b| foreground::relay(b, 50, 10)),
    row("plain-300k", Quick, NO_GOALS, "300,000 background jobs without unique ids", |b| background::deep(b, 300_000, false)),
    row("unique-300k", Quick, NO_GOALS, "300,000 background jobs with unique ids of 36 bytes", |b| background::deep(b, 300_000, true)),
    row("wake-200", Quick, NO_GOALS, "background job at a time, 200 sleeping workers", |b| wake::wake(b, 200)),
];
