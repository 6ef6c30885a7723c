//! The load benchmark: runs beanpole and beanstalkd alternately over real sockets and verifies every reply.
//!
//! Run `cargo bench --bench load -- --quick` or `--help`. Each scenario runs several times on new servers. The resource
//! usage of a server is read from /proc. Owns the choice of servers; the catalogue contains the scenarios.

use std::process::ExitCode;

#[path = "load/args.rs"]
mod args;
#[path = "load/binlog.rs"]
mod binlog;
#[path = "load/catalogue.rs"]
mod catalogue;
#[path = "load/churn.rs"]
mod churn;
#[path = "load/cycle.rs"]
mod cycle;
#[path = "load/drain.rs"]
mod drain;
#[path = "load/driver.rs"]
mod driver;
#[path = "load/echo.rs"]
mod echo;
#[path = "load/extended.rs"]
mod extended;
#[path = "load/measure.rs"]
#[allow(dead_code, reason = "other benchmarks have other goals")]
mod measure;
#[path = "load/memory.rs"]
mod memory;
#[path = "load/mixed.rs"]
mod mixed;
#[path = "load/paced.rs"]
mod paced;
#[path = "load/process.rs"]
#[allow(dead_code, reason = "other benchmarks start other programs")]
mod process;
#[path = "load/put.rs"]
mod put;
#[path = "load/relay.rs"]
mod relay;
#[path = "load/report.rs"]
mod report;
#[path = "load/runner.rs"]
mod runner;
#[path = "load/scenario.rs"]
mod scenario;
#[path = "load/stats.rs"]
mod stats;
#[path = "load/verify.rs"]
mod verify;
#[path = "load/wire.rs"]
mod wire;

use args::Args;
use process::{Program, ECHO};
use runner::Sides;

/// The path of beanpole, which has the same build profile as this program.
const OURS: &str = env!("CARGO_BIN_EXE_beanpole");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, length] = arguments.as_slice() {
        if word == ECHO {
            let ended = echo::run(length.parse().expect("a length"));
            return ended.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
    }
    runner::main("load", OURS, run)
}

fn run(args: &Args) {
    let path = args.peer.clone().unwrap_or_default();
    let peer = path.is_file().then(|| Program::Queue(path.clone()));
    if peer.is_none() {
        println!("{} is missing, so beanpole runs alone: apt-get install beanstalkd\n", path.display());
    }
    let echo = Program::Echo(verify::Bodies::new(64).put_length());
    let static_program = args.static_program.clone().map(Program::Queue);
    runner::run(args, &Sides { ours: Program::Queue(args.ours.clone()), static_program, peer, echo: Some(echo) });
}
