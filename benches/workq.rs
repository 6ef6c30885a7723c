//! The Workq benchmark: beanpole alone, over real sockets, with every reply verified.
//!
//! `cargo bench --bench workq -- --quick`, or `--help`. It uses the parts of the load benchmark. Owns which program is
//! measured; the catalogue has the scenarios.

use std::process::ExitCode;

#[path = "load/args.rs"]
#[allow(dead_code, reason = "other benchmarks have a server to compare with")]
mod args;
#[path = "workq/catalogue.rs"]
mod catalogue;
#[path = "load/driver.rs"]
#[allow(dead_code, reason = "the load benchmark needs more of it")]
mod driver;
#[path = "workq/jobs.rs"]
mod jobs;
#[path = "load/measure.rs"]
#[allow(dead_code, reason = "the load benchmark needs more of it")]
mod measure;
#[path = "load/process.rs"]
#[allow(dead_code, reason = "the load benchmark needs more of it")]
mod process;
#[path = "load/report.rs"]
mod report;
#[path = "load/runner.rs"]
mod runner;
#[path = "load/scenario.rs"]
#[allow(dead_code, reason = "the load benchmark needs more of it")]
mod scenario;
#[path = "load/stats.rs"]
mod stats;
#[path = "workq/wire.rs"]
mod wire;

use args::Args;
use process::Program;
use runner::Sides;

/// The server under test, built like this program.
const OURS: &str = env!("CARGO_BIN_EXE_beanpole");

fn main() -> ExitCode {
    runner::main("workq", OURS, run)
}

fn run(args: &Args) {
    runner::run(args, &Sides { ours: Program::Door(args.ours.clone(), "--workq"), peer: None, echo: None });
}
