//! A scenario: its name, description and goals, and how it is run.
//!
//! Owns the form of the rows in a catalogue. Must not know any of them.

use super::measure::{Bench, Outcome};

/// One row.
pub struct Scenario {
    /// Short and stable: results are compared by it.
    pub name: &'static str,
    /// A description; an operation is a command unless it says otherwise.
    pub about: &'static str,
    /// The goals of the ratios to the peer.
    pub goals: Goals,
    /// What it is compared with, what it needs, and whether a quick run includes it.
    pub kind: Kind,
    /// Runs it once.
    pub run: fn(Bench) -> Result<Outcome, String>,
}

/// Goals of the ratios to the peer; NaN is no goal.
#[derive(Clone, Copy, Debug)]
pub struct Goals {
    /// Minimum operations per second.
    pub rate: f64,
    /// Maximum processor time per operation.
    pub cpu: f64,
    /// Maximum median duration.
    pub p50: f64,
    /// Maximum 99th percentile of the duration.
    pub p99: f64,
}

/// The kind of a scenario; see [`Scenario::kind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Short; part of a quick run as well.
    Quick,
    /// Part of a full run only.
    Full,
    /// The peer is the echo server, whose requests are as long as puts of this many bytes.
    Echo,
    /// Needs `-b`.
    Binlog,
    /// About something that the peer does not have.
    Alone,
}

/// No goal.
pub const NONE: f64 = f64::NAN;

/// Returns goals of the rate and the processor time.
pub const fn goals(rate: f64, cpu: f64) -> Goals {
    Goals { rate, cpu, p50: NONE, p99: NONE }
}

/// No goals.
pub const NO_GOALS: Goals = goals(NONE, NONE);

/// Returns a row of the table.
pub const fn row(
    name: &'static str,
    kind: Kind,
    goals: Goals,
    about: &'static str,
    run: fn(Bench) -> Result<Outcome, String>,
) -> Scenario {
    Scenario { name, about, goals, kind, run }
}
