//! What a scenario is: its name, its meaning, its goals, and how it is run.
//!
//! Owns the form of the rows in a catalogue. Must not know any of them.

use super::measure::{Bench, Outcome};

/// One row.
pub struct Scenario {
    /// Short and stable: results are compared by it.
    pub name: &'static str,
    /// What is done; an operation is a command unless it says otherwise.
    pub about: &'static str,
    /// What is asked of the ratios to the peer.
    pub goals: Goals,
    /// What it is compared with, what it needs, and whether a quick run has it.
    pub kind: Kind,
    /// Runs it once.
    pub run: fn(Bench) -> Result<Outcome, String>,
}

/// What is asked of the ratios to the peer; none is asked where there is NaN.
#[derive(Clone, Copy, Debug)]
pub struct Goals {
    /// Operations a second: at least.
    pub rate: f64,
    /// Processor time per operation: at most.
    pub cpu: f64,
    /// Half of the requests took: at most.
    pub p50: f64,
    /// 99 of a hundred took: at most.
    pub p99: f64,
}

/// See [`Scenario::kind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Short; in a quick run as well.
    Quick,
    /// Only in a full run.
    Full,
    /// The peer is the echo server, whose requests are as long as the puts of so many bytes.
    Echo,
    /// Needs `-b`.
    Binlog,
    /// Is about what the peer has not.
    Alone,
}

/// Nothing is asked.
pub const NONE: f64 = f64::NAN;

/// Asks of the rate and of the processor time.
pub const fn goals(rate: f64, cpu: f64) -> Goals {
    Goals { rate, cpu, p50: NONE, p99: NONE }
}

/// Asks nothing.
pub const NO_GOALS: Goals = goals(NONE, NONE);

/// A row of the table.
pub const fn row(
    name: &'static str,
    kind: Kind,
    goals: Goals,
    about: &'static str,
    run: fn(Bench) -> Result<Outcome, String>,
) -> Scenario {
    Scenario { name, about, goals, kind, run }
}
