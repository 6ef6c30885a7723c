//! The representation of scenarios in a catalogue.
//!
//! Must not depend on particular scenarios.

use super::measure::{Bench, Outcome};

pub struct Scenario {
    /// The name, which must not change, because results are compared by name.
    pub name: &'static str,
    /// The description. An operation is a command unless the description says otherwise.
    pub about: &'static str,
    pub goals: Goals,
    pub kind: Kind,
    pub run: fn(Bench) -> Result<Outcome, String>,
}

/// Goals for the ratios of the server under test to the peer. NaN disables a goal.
#[derive(Clone, Copy, Debug)]
pub struct Goals {
    /// Minimum ratio of operations per second.
    pub rate: f64,
    /// Maximum ratio of processor time per operation.
    pub cpu: f64,
    /// Maximum ratio of the median request durations.
    pub p50: f64,
    /// Maximum ratio of the 99th percentiles of the request durations.
    pub p99: f64,
}

/// Determines what a scenario is compared with, what it requires, and which runs include it. Full runs include all
/// kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Part of quick runs and full runs.
    Quick,
    /// Part of full runs only.
    Full,
    /// Compares with the echo server, which expects requests as long as puts with bodies of 64 bytes.
    Echo,
    /// Requires servers with the option `-b`.
    Binlog,
    /// Like `Binlog`, but measures the static program. Skipped unless the static program is given.
    Static,
    /// Has no peer, because beanstalkd does not support the measured feature.
    Alone,
}

impl Scenario {
    pub fn needs_binlog(&self) -> bool {
        matches!(self.kind, Kind::Binlog | Kind::Static)
    }
}

pub const NONE: f64 = f64::NAN;

pub const fn goals(rate: f64, cpu: f64) -> Goals {
    Goals { rate, cpu, p50: NONE, p99: NONE }
}

pub const NO_GOALS: Goals = goals(NONE, NONE);

pub const fn row(
    name: &'static str,
    kind: Kind,
    goals: Goals,
    about: &'static str,
    run: fn(Bench) -> Result<Outcome, String>,
) -> Scenario {
    Scenario { name, about, goals, kind, run }
}
