//! Repeatedly simulates power failures while the real program runs. Compares the recovered queue with the replies that
//! clients have received.

mod daemon;
#[allow(dead_code)] // parts of the random generator that are not needed here
#[path = "crash/random.rs"]
mod random;
#[path = "sim/reference.rs"]
mod reference;
#[path = "sim/tags.rs"]
mod tags;

#[path = "powercut/act.rs"]
mod act;
#[path = "powercut/book.rs"]
mod book;
#[path = "powercut/change.rs"]
mod change;
#[path = "powercut/check.rs"]
mod check;
#[path = "powercut/disk.rs"]
mod disk;
#[path = "powercut/history.rs"]
mod history;
#[path = "powercut/import.rs"]
mod import;
#[path = "powercut/lane.rs"]
mod lane;
#[path = "powercut/lanes.rs"]
mod lanes;
#[path = "powercut/look.rs"]
mod look;
#[path = "powercut/places.rs"]
mod places;
#[path = "powercut/report.rs"]
mod report;
#[path = "powercut/restart.rs"]
mod restart;
#[path = "powercut/talk.rs"]
mod talk;
#[path = "powercut/trace.rs"]
mod trace;
#[path = "powercut/web.rs"]
mod web;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use check::Check;
use history::{History, Kind};
use lanes::End;
use places::places;
use random::Random;
use report::Report;
use restart::{Cut, Starter};

const USAGE: &str = "usage: powercut --program=PATH [--seed=N] [--restarts=N] [--only=KIND] [--also=CHECK,...|all] \
                     [--trace=PATH --cut=CUT]";

const RESTARTS: u64 = 4000;

/// The maximum number of cuts (power failures and kills) in each generation of a history, and the maximum number of
/// generations.
const CUTS: usize = 12;
const GENERATIONS: usize = 3;

#[derive(Default)]
struct Plan {
    program: PathBuf,
    seed: u64,
    restarts: u64,
    only: Option<String>,
    /// Checks that are disabled by default, but that `--also` enables for this run. Their violations count as failures.
    also: Vec<Check>,
    /// A recorded trace and a cut in it, for reproducing a failure.
    replay: Option<(PathBuf, Cut)>,
}

fn plan(arguments: impl Iterator<Item = String>) -> Option<Plan> {
    let mut plan = Plan { seed: 1, restarts: RESTARTS, ..Plan::default() };
    let (mut trace, mut cut) = (None, None);
    for word in arguments {
        let (name, value) = word.split_once('=')?;
        match name {
            _ if value.is_empty() => {}
            "--program" => plan.program = value.into(),
            "--seed" => plan.seed = value.parse().ok()?,
            "--restarts" => plan.restarts = value.parse().ok()?,
            "--also" => {
                for name in value.split(',') {
                    let named = Check::named(name);
                    plan.also.extend(Some(named).filter(|named| !named.is_empty())?);
                }
            }
            "--only" => plan.only = Some(value.to_owned()),
            "--trace" => trace = Some(value.into()),
            "--cut" => cut = Some(Cut::read(value)?),
            _ => return None,
        }
    }
    plan.replay = trace.zip(cut);
    plan.program.is_file().then_some(plan)
}

/// The working directory, removed on drop. A file system in memory suffices, because `disk.rs` simulates the loss of
/// data.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("beanpole-powercut-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a working directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn shim(folder: &Path) -> io::Result<PathBuf> {
    let (source, target) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/powercut/shim.rs"), folder.join("shim.so"));
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(compiler);
    command.args(["--edition", "2021", "--crate-type", "cdylib", "-C", "panic=abort", "-C", "opt-level=2", "-o"]);
    let done = command.arg(&target).arg(source).status()?.success();
    if done {
        Ok(target)
    } else {
        Err(io::Error::other("the shim does not compile"))
    }
}

/// Returns the cuts of one generation. The next generation continues after the last cut.
fn choose(events: &[trace::Event], random: &mut Random, kind: Kind) -> Vec<Cut> {
    let count = if kind == Kind::Handles { CUTS / 3 } else { CUTS };
    let mut cuts: Vec<Cut> = Vec::new();
    for count in places(events, random, count) {
        let end = if random.once_in(4) { End::Kill } else { End::PowerCut };
        cuts.push(Cut { count, end, seed: random.next() >> 32 });
    }
    if kind == Kind::Failing {
        // After a kill, the page cache still contains data that a failed sync has lost, and no later sync reports the
        // loss. The last cut must therefore be a power failure.
        cuts.last_mut().expect("a cut").end = End::PowerCut;
    }
    cuts
}

/// Runs up to [`GENERATIONS`] generations of one history with all their cuts. Returns the number of restarts.
fn run(seed: u64, plan: &Plan, shim: &Path, folder: &Path, report: &Mutex<Report>) -> io::Result<u64> {
    let mut history = History::new(seed, &plan.program, shim, folder.to_owned());
    if plan.only.as_ref().is_some_and(|only| only != history.plan.kind.name()) {
        return Ok(0);
    }
    let report = || report.lock().expect("an unpoisoned lock");
    let starter = Starter { program: &plan.program, folder: folder.join("restarted") };
    let mut random = Random::new(Random::new(seed ^ 0xc0de).next());
    let mut before: Option<(Vec<trace::Event>, PathBuf, Cut)> = None;
    let mut restarts = 0;
    for generation in 0..GENERATIONS {
        let last = before.as_ref().map(|(events, path, cut)| (events.as_slice(), path.as_path(), *cut));
        restarts += u64::from(last.is_some());
        let recorded = history.record(last);
        let has_problems = !history.problems.is_empty();
        report().live(&mut history, generation);
        // If a client got no reply, a problem has already been recorded, so this error is redundant.
        let recorded = if has_problems && recorded.is_err() { None } else { recorded? };
        let Some(path) = recorded else { break };
        let events = trace::read(&path)?;
        let cuts = choose(&events, &mut random, history.plan.kind);
        let mut well = true;
        for cut in &cuts {
            let problems = starter.restart(&events, *cut)?;
            restarts += 1;
            well = problems.iter().all(|(check, _)| [Check::Strict, Check::StrictFailing].contains(check));
            report().judged(&history.plan, generation, *cut, &path, problems);
        }
        if !well || history.plan.kind == Kind::Handles {
            break;
        }
        before = cuts.last().map(|cut| (events, path, *cut));
    }
    Ok(restarts)
}

/// Runs histories in parallel: one for each CPU, plus one to use idle time.
fn run_all(plan: &Plan, shim: &Path, scratch: &Path) -> Report {
    let report = Mutex::new(Report::new(&plan.also));
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(2, usize::from) + 1;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while done.load(Ordering::SeqCst) < plan.restarts {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let folder = scratch.join(number.to_string());
                    std::fs::create_dir_all(&folder).expect("a directory");
                    let seed = plan.seed + number;
                    let restarts = run(seed, plan, shim, &folder, &report);
                    let restarts = restarts.unwrap_or_else(|error| panic!("history {seed}: {error}"));
                    done.fetch_add(restarts, Ordering::SeqCst);
                    let _ = std::fs::remove_dir_all(&folder);
                }
            });
        }
    });
    report.into_inner().expect("an unpoisoned lock")
}

fn replay(plan: &Plan, path: &Path, cut: Cut, folder: &Path) -> io::Result<bool> {
    let events = trace::read(path)?;
    let problems = Starter { program: &plan.program, folder: folder.join("restarted") }.restart(&events, cut)?;
    report::show(&events, cut, &problems);
    Ok(problems.is_empty())
}

fn main() -> ExitCode {
    if !std::env::args().any(|word| word.starts_with("--program=")) {
        println!("skipped: no program given; use `make powercut`");
        return ExitCode::SUCCESS;
    }
    let Some(plan) = plan(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let scratch = Scratch::new();
    let well = match &plan.replay {
        Some((path, cut)) => replay(&plan, path, *cut, &scratch.0).expect("a replayed trace"),
        None => {
            let shim = shim(&scratch.0).expect("a compiled shim");
            let report = run_all(&plan, &shim, &scratch.0);
            report.print();
            report.passed()
        }
    };
    ExitCode::from(u8::from(!well))
}
