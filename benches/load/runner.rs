//! Runs the scenarios several times on new servers, alternating between the server under test and its peer.
//!
//! Owns the order and the durations of the runs. Must not depend on the scenarios.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use super::args::{self, Args, Parsed};
use super::measure::Bench;
use super::process::Program;
use super::report::{self, Results};
use super::scenario::{Kind, Scenario};

/// Time after which a quick run starts no more scenarios, unless the command line names scenarios.
const QUICK: Duration = Duration::from_secs(52);

/// Time after which a scenario is not repeated, in a quick run and in a full run.
const SHARE: [Duration; 2] = [Duration::from_millis(2500), Duration::from_secs(180)];

const NO_BINLOG: &str = "no binlog";

pub struct Sides {
    pub ours: Program,
    pub peer: Option<Program>,
    /// The static program, for scenarios of [`Kind::Static`].
    pub static_program: Option<Program>,
    /// The echo server, for scenarios that measure only the socket operations.
    pub echo: Option<Program>,
}

/// Parses the arguments and calls `run` with them. `ours` is the path of the server under test.
pub fn main(name: &str, ours: &str, run: impl FnOnce(&Args)) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match args::parse(&arguments, ours) {
        Ok(Parsed::Print(text)) => print!("{text}"),
        Ok(Parsed::Run(args)) => run(&args),
        Err(problem) => {
            eprintln!("{name}: {problem}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

pub fn run(args: &Args, sides: &Sides) {
    beanpole::internals::system::raise_file_limit();
    let pinned = args.pin && pin();
    let start = Instant::now();
    println!("{}\n", headline(args, sides, pinned));
    let mut all: Vec<Results> = Vec::new();
    for scenario in args.scenarios() {
        if args.quick && args.names.is_empty() && start.elapsed() > QUICK {
            println!("no time is left for {}", scenario.name);
            continue;
        }
        let mut results = repeat(scenario, args, sides);
        results.shared_cpu = pinned && !scenario.needs_binlog();
        eprintln!("{:14} {:4.0} s", scenario.name, start.elapsed().as_secs_f64());
        all.push(results);
    }
    println!("{}", report::tables(&all));
    if let Some(path) = &args.compare {
        let before = std::fs::read_to_string(path).unwrap_or_default();
        report::compare(&all, &before).iter().for_each(|warning| println!("warning: {warning}"));
    }
}

/// Runs one scenario repeatedly on both servers, which alternate.
fn repeat(scenario: &'static Scenario, args: &Args, sides: &Sides) -> Results {
    let mut results = Results { scenario, peer: Vec::new(), ours: Vec::new(), shared_cpu: false, problems: Vec::new() };
    let peer = if scenario.kind == Kind::Echo { &sides.echo } else { &sides.peer };
    let ours = sides.static_program.as_ref().filter(|_| scenario.kind == Kind::Static).unwrap_or(&sides.ours);
    let mut sides: Vec<(&Program, bool)> = peer.iter().map(|peer| (peer, false)).chain([(ours, true)]).collect();
    if scenario.needs_binlog() {
        sides.retain(|(program, is_ours)| {
            let has = program.has_binlog();
            if !has {
                results.problems.push(format!("{}: {}", if *is_ours { "ours" } else { "peer" }, NO_BINLOG));
            }
            has
        });
    }
    sides.retain(|(_, is_ours)| *is_ours || scenario.kind != Kind::Alone);
    let start = Instant::now();
    for run in 0..args.runs {
        for (program, is_ours) in &sides {
            match (scenario.run)(Bench { program, ours: *is_ours, scale: args.scale() }) {
                Ok(outcome) if *is_ours => results.ours.push(outcome),
                Ok(outcome) => results.peer.push(outcome),
                Err(problem) => {
                    let side = if *is_ours { "ours" } else { "peer" };
                    results.problems.push(format!("run {}, {side}: {problem}", run + 1));
                }
            }
        }
        // The other server runs first in the next pair of runs.
        sides.reverse();
        if start.elapsed() > SHARE[usize::from(!args.quick)] {
            break;
        }
    }
    results
}

/// Restricts this process and its children to one CPU. Returns `false` on failure.
fn pin() -> bool {
    let own = std::process::id().to_string();
    let taskset = Command::new("taskset").args(["-c", "-p", "0", &own]).stdout(Stdio::null()).status();
    let pinned = taskset.is_ok_and(|status| status.success());
    if !pinned {
        println!("taskset cannot pin to CPU 0, so nothing is pinned\n");
    }
    pinned
}

fn headline(args: &Args, sides: &Sides, pinned: bool) -> String {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "{} (ours) and {} (peer); {}; {} runs; {}, {cpus} CPUs, Linux {}{}",
        sides.ours.version(),
        sides.peer.as_ref().map_or("nothing".to_owned(), Program::version),
        if pinned { "server and client pinned to one CPU" } else { "unpinned" },
        args.runs,
        model.map_or("an unnamed CPU", |(_, model)| model),
        read("/proc/sys/kernel/osrelease").trim(),
        if args.quick { "; quick: short runs, a tenth of the jobs" } else { "" },
    )
}
