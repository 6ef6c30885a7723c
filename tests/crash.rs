//! The log on a disk that forgets, tears, fills up and fails.
//!
//! Owns the promise of the log: what was acknowledged is there, job by job and field by field, whatever happened to the
//! process, the power or the disk; and the bound of what the log takes on the disk. Everything runs in memory and
//! follows from seeds, so each failure can be repeated. `disk` is the disk, `driver` the server (`options` has its
//! verbs for jobs with options, `tagged_lives` those for jobs with tags), `model` and `snapshots` what must come back,
//! `lines` the log lines for operators.

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
#[allow(dead_code)] // what only the simulation does
mod snapshots;
#[path = "crash/takeovers.rs"]
mod takeovers;
#[path = "crash/verbs.rs"]
mod verbs;

#[path = "crash/bounds.rs"]
mod bounds;
#[path = "crash/cases.rs"]
mod cases;
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
