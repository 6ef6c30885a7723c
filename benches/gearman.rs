//! The Gearman benchmark: runs beanpole and gearmand alternately over real sockets and verifies every reply.
//!
//! Run `cargo bench --bench gearman -- --quick` or `--help`. Uses the modules of the load benchmark. Owns the choice of
//! servers; the catalogue contains the scenarios.

use std::process::ExitCode;

#[path = "load/args.rs"]
mod args;
#[path = "gearman/background.rs"]
mod background;
#[path = "gearman/catalogue.rs"]
mod catalogue;
#[path = "load/driver.rs"]
#[allow(dead_code, reason = "the load benchmark needs more of it")]
mod driver;
#[path = "gearman/foreground.rs"]
mod foreground;
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
#[path = "gearman/serial.rs"]
mod serial;
#[path = "load/stats.rs"]
mod stats;
#[path = "gearman/verify.rs"]
mod verify;
#[path = "gearman/wake.rs"]
mod wake;
#[path = "gearman/wire.rs"]
mod wire;

use args::Args;
use process::Program;
use runner::Sides;

/// The path of beanpole, which has the same build profile as this program.
const OURS: &str = env!("CARGO_BIN_EXE_beanpole");

fn main() -> ExitCode {
    runner::main("gearman", OURS, run)
}

fn run(args: &Args) {
    let path = args.peer.clone().unwrap_or_default();
    let peer = path.is_file().then(|| Program::Gearmand(path.clone()));
    if peer.is_none() {
        println!("{} is missing, so beanpole runs alone: apt-get install gearman-job-server\n", path.display());
    }
    let ours = Program::Door(args.ours.clone(), "--gearman");
    runner::run(args, &Sides { ours, static_program: None, peer, echo: None });
}
