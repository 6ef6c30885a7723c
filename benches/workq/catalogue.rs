//! The table of scenarios of the Workq benchmark: names, descriptions and goals.
//!
//! Owns what is run and its goals; data has 100 bytes. The original cannot be built any more, so there is nothing to
//! compare with: goals are figures.

use super::jobs;
use super::scenario::{row, Kind, Scenario, NO_GOALS};

/// The name of this benchmark.
pub const BENCH: &str = "workq";

/// There is no server to compare with.
pub const PEER: Option<[&str; 2]> = None;

use Kind::Quick;

/// The table; see the module's documentation.
#[rustfmt::skip]
pub const SCENARIOS: &[Scenario] = &[
    row("lease", Quick, NO_GOALS, "lease, one queue of 200,000 jobs, 50 connections", |b| jobs::shared(b, 200_000, false)),
    row("complete", Quick, NO_GOALS, "lease and complete, one queue of 200,000 jobs, 50 connections", |b| jobs::shared(b, 200_000, true)),
    row("exact", Quick, NO_GOALS, "lease, one queue of 1,000,000 jobs, 50 connections, no false TIMEOUT", |b| jobs::exact(b, 1_000_000)),
    row("memory", Quick, NO_GOALS, "memory of 300,000 jobs, waiting and finished", |b| jobs::memory(b, 300_000)),
];
