//! The scenarios of the Workq benchmark with their names, descriptions and goals.
//!
//! Owns the list of scenarios. The data of a job is 100 bytes long. Goals are absolute, because no peer exists.

use super::jobs;
use super::scenario::{row, Kind, Scenario, NO_GOALS};

pub const BENCH: &str = "workq";

/// No peer, because the original Workq server can no longer be built.
pub const PEER: Option<[&str; 2]> = None;

use Kind::Quick;

/// All scenarios, in the order in which they run.
#[rustfmt::skip]
pub const SCENARIOS: &[Scenario] = &[
    row("lease", Quick, NO_GOALS, "lease, one queue of 200,000 jobs, 50 connections", |b| jobs::shared(b, 200_000, false)),
    row("complete", Quick, NO_GOALS, "lease and complete, one queue of 200,000 jobs, 50 connections", |b| jobs::shared(b, 200_000, true)),
    row("exact", Quick, NO_GOALS, "lease, one queue of 1,000,000 jobs, 50 connections, no false TIMEOUT", |b| jobs::exact(b, 1_000_000)),
    row("memory", Quick, NO_GOALS, "memory of 300,000 jobs, waiting and finished", |b| jobs::memory(b, 300_000)),
];
