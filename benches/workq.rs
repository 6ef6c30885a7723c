//! The Workq benchmark: runs beanpole over real sockets and verifies every reply.
//!
//! Run `cargo bench --bench workq -- --quick` or `--help`. Uses the modules of the load benchmark. Owns the choice of
//! the server; the catalogue contains the scenarios.

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

/// The path of beanpole, which has the same build profile as this program.
const OURS: &str = env!("CARGO_BIN_EXE_beanpole");

fn main() -> ExitCode {
    runner::main("workq", OURS, run)
}

fn run(args: &Args) {
    let ours = Program::Door(args.ours.clone(), "--workq");
    runner::run(args, &Sides { ours, static_program: None, peer: None, echo: None });
}
