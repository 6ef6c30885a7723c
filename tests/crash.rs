//! Tests the log on a simulated disk that loses, tears and refuses writes.
//!
//! Acknowledged changes must survive any failure of the process, the power or the disk, and the log must stay within
//! its size bound. Everything runs in memory and is derived from seeds, so failures are reproducible. `disk` simulates
//! the disk, and `driver` simulates the server. `options` adds jobs with options, and `tagged_lives` adds jobs with
//! tags. `model` and `snapshots` predict the recovered state. `counts` does not predict the state, but counts the
//! releases of dependent jobs and the runs of schedules. `lines` captures the log messages for operators.

#[path = "crash/disk.rs"]
mod disk;
#[path = "crash/driver.rs"]
mod driver;
#[path = "crash/format.rs"]
mod format;
#[path = "crash/lines.rs"]
mod lines;
#[path = "crash/model.rs"]
mod model;
#[path = "crash/options.rs"]
mod options;
#[path = "crash/random.rs"]
mod random;
#[path = "crash/reference.rs"]
mod reference;
#[path = "crash/snapshots.rs"]
#[allow(dead_code)] // parts that only the simulation in tests/sim.rs uses
mod snapshots;
#[path = "crash/takeovers.rs"]
mod takeovers;
#[path = "crash/verbs.rs"]
mod verbs;

#[path = "crash/bounds.rs"]
mod bounds;
#[path = "crash/cases.rs"]
mod cases;
#[path = "crash/counts.rs"]
mod counts;
#[path = "crash/crashes.rs"]
mod crashes;
#[path = "crash/damage.rs"]
mod damage;
#[path = "crash/errors.rs"]
mod errors;
#[path = "crash/fuzz.rs"]
mod fuzz;
#[path = "crash/mixtures.rs"]
mod mixtures;
#[path = "crash/operations.rs"]
mod operations;
#[path = "crash/outcomes.rs"]
mod outcomes;
#[path = "crash/readings.rs"]
mod readings;
#[path = "crash/restarts.rs"]
mod restarts;
#[path = "crash/tagged.rs"]
mod tagged;
#[path = "crash/tagged_lives.rs"]
mod tagged_lives;
