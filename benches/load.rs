//! The load benchmark: beanpole and beanstalkd, alternately, over real sockets, every reply verified.
//!
//! `cargo bench --bench load -- --quick`, or `--help`. Each scenario runs some times on fresh servers, one after the other, and
//! what the servers used is read from /proc. Owns the order of things; the catalogue has the scenarios.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

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
#[path = "load/measure.rs"]
mod measure;
#[path = "load/memory.rs"]
mod memory;
#[path = "load/mixed.rs"]
mod mixed;
#[path = "load/paced.rs"]
mod paced;
#[path = "load/process.rs"]
mod process;
#[path = "load/put.rs"]
mod put;
#[path = "load/relay.rs"]
mod relay;
#[path = "load/report.rs"]
mod report;
#[path = "load/stats.rs"]
mod stats;
#[path = "load/verify.rs"]
mod verify;
#[path = "load/wire.rs"]
mod wire;

use args::{Args, Wish};
use catalogue::{Kind, Scenario};
use measure::Bench;
use process::{Program, ECHO};
use report::Results;

/// The server under test, built as this was.
const OURS: &str = env!("CARGO_BIN_EXE_beanpole");

/// After this, a quick run begins no other scenario.
const QUICK: Duration = Duration::from_secs(52);

/// After this, a scenario is repeated no more: in a quick run, and in a full one.
const SHARE: [Duration; 2] = [Duration::from_millis(2500), Duration::from_secs(180)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, length] = arguments.as_slice() {
        if word == ECHO {
            let ended = echo::run(length.parse().expect("a length"));
            return ended.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
    }
    match args::parse(&arguments, OURS) {
        Ok(Wish::Print(text)) => print!("{text}"),
        Ok(Wish::Run(args)) => run(&args),
        Err(problem) => {
            eprintln!("load: {problem}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn run(args: &Args) {
    beanpole::machine::raise_file_limit();
    let pinned = args.pin && pin();
    let start = Instant::now();
    let ours = Program::Queue(args.ours.clone());
    let peer = args.peer.is_file().then(|| Program::Queue(args.peer.clone()));
    if peer.is_none() {
        println!("{} is not there, so beanpole runs alone: apt-get install beanstalkd\n", args.peer.display());
    }
    println!("{}\n", headline(args, &ours, peer.as_ref(), pinned));
    let mut all: Vec<Results> = Vec::new();
    for scenario in args.scenarios() {
        if args.quick && args.names.is_empty() && start.elapsed() > QUICK {
            println!("no time is left for {}", scenario.name);
            continue;
        }
        let mut results = repeat(scenario, args, &ours, peer.as_ref());
        results.shared_cpu = pinned && scenario.kind != Kind::Binlog;
        eprintln!("{:14} {:4.0} s", scenario.name, start.elapsed().as_secs_f64());
        all.push(results);
    }
    println!("{}", report::tables(&all));
    if let Some(path) = &args.compare {
        let before = std::fs::read_to_string(path).unwrap_or_default();
        report::compare(&all, &before).iter().for_each(|warning| println!("warning: {warning}"));
    }
}

/// All runs of one scenario, the two servers in turn.
fn repeat(scenario: &'static Scenario, args: &Args, ours: &Program, peer: Option<&Program>) -> Results {
    let mut results = Results { scenario, peer: Vec::new(), ours: Vec::new(), shared_cpu: false, problems: Vec::new() };
    let echo = Program::Echo(verify::Bodies::new(64).put_length());
    let peer = if scenario.kind == Kind::Echo { Some(&echo) } else { peer };
    let mut sides: Vec<(&Program, bool)> = peer.map(|peer| (peer, false)).into_iter().collect();
    sides.push((ours, true));
    if scenario.kind == Kind::Binlog {
        sides.retain(|(program, is_ours)| {
            let has = program.has_binlog();
            if !has {
                results.problems.push(format!("{}: {}", if *is_ours { "ours" } else { "peer" }, binlog::NO_BINLOG));
            }
            has
        });
    }
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
        // The other one begins the next time.
        sides.reverse();
        if start.elapsed() > SHARE[usize::from(!args.quick)] {
            break;
        }
    }
    results
}

/// Keeps this program and all that it starts on one CPU.
fn pin() -> bool {
    let own = std::process::id().to_string();
    let taskset = Command::new("taskset").args(["-c", "-p", "0", &own]).stdout(Stdio::null()).status();
    let pinned = taskset.is_ok_and(|status| status.success());
    if !pinned {
        println!("taskset cannot pin to CPU 0, so nothing is pinned\n");
    }
    pinned
}

fn headline(args: &Args, ours: &Program, peer: Option<&Program>, pinned: bool) -> String {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "{} (ours) and {} (peer); {}; {} runs; {}, {cpus} CPUs, Linux {}{}",
        ours.version(),
        peer.map_or("nothing".to_owned(), Program::version),
        if pinned { "server and client pinned to one CPU" } else { "unpinned" },
        args.runs,
        model.map_or("an unnamed CPU", |(_, model)| model),
        read("/proc/sys/kernel/osrelease").trim(),
        if args.quick { "; quick: short runs, a tenth of the jobs" } else { "" },
    )
}
