//! Measures the time per operation in nanoseconds or, with valgrind, the number of instructions.
//!
//! Owns the rounds and the medians. Each round prepares the case again; the preparation and the cleanup are not
//! measured. The number of instructions is the difference between a run with and a run without the operations, both
//! under callgrind. This number does not depend on the load of the machine, but overestimates the cost of large copies,
//! because valgrind counts each repetition of a string instruction. Must not depend on the cases.
//!
//! Run `cargo bench --bench engine`. `-- --instructions` counts instructions, and `-- --only WORDS` selects cases.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 7;

/// Time after which a case starts no further round, unless it has completed fewer than three rounds.
const LONG: Duration = Duration::from_secs(5);

/// The divisor for the number of operations under callgrind. callgrind makes the program about fifty times slower.
const DIVIDE: usize = 20;

/// Runs one round of a case. Returns the duration of the operations.
type Round = Box<dyn Fn(Mode) -> Duration>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Whole,
    Prepared,
}

pub struct Cases {
    divide: usize,
    rows: Vec<(String, usize, Round)>,
}

impl Cases {
    /// Divides a number of jobs, tubes or operations by the run's divisor. Returns at least 1.
    pub fn count(&self, whole: usize) -> usize {
        (whole / self.divide).max(1)
    }

    /// Adds a case. `prepare` creates the state of a round, and `work` executes `operations` operations on this state.
    pub fn add<S: 'static>(
        &mut self,
        name: &str,
        operations: usize,
        prepare: impl Fn() -> S + 'static,
        work: impl Fn(&mut S) + 'static,
    ) {
        let counting = self.divide > 1;
        let round = move |mode| {
            let mut state = prepare();
            let start = Instant::now();
            if mode == Mode::Whole {
                work(std::hint::black_box(&mut state));
            }
            let time = start.elapsed();
            if counting {
                // Otherwise, callgrind would also count the instructions that drop the state.
                std::mem::forget(state);
            }
            time
        };
        self.rows.push((name.to_owned(), operations, Box::new(round)));
    }
}

/// Runs the benchmark program with the cases that `collect` adds.
pub fn run(collect: impl Fn(&mut Cases)) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let after = |word: &str| arguments.iter().skip_while(|argument| *argument != word).nth(1);
    if arguments.is_empty() {
        // `cargo test` runs benchmarks without arguments, and must not start any measurement.
        println!("cargo bench --bench engine (or codec) [-- --instructions] [-- --only WORDS]");
        return ExitCode::SUCCESS;
    }
    let inside = after("--inside");
    let small = inside.is_some() || has("--instructions");
    let mut cases = Cases { divide: if small { DIVIDE } else { 1 }, rows: Vec::new() };
    collect(&mut cases);
    if let Some(name) = inside {
        let mode = if has("--prepared") { Mode::Prepared } else { Mode::Whole };
        if let Some((_, _, round)) = cases.rows.iter().find(|row| row.0 == *name) {
            round(mode);
        }
        return ExitCode::SUCCESS;
    }
    let instructions = has("--instructions");
    let unit = if instructions { "instructions" } else { "ns" };
    println!("| operation | {unit} each |\n|---|--:|");
    for (name, operations, round) in &cases.rows {
        if after("--only").is_some_and(|words| !name.contains(words.as_str())) {
            continue;
        }
        let each = if instructions { count(name, *operations) } else { Some(time(*operations, round)) };
        let each = each.map_or("no valgrind".to_owned(), |each| format!("{each:.1}"));
        println!("| {name} | {each} |");
    }
    ExitCode::SUCCESS
}

fn time(operations: usize, round: &Round) -> f64 {
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < ROUNDS && (times.len() < 3 || start.elapsed() < LONG) {
        times.push(round(Mode::Whole).as_secs_f64() * 1e9 / operations as f64);
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn count(name: &str, operations: usize) -> Option<f64> {
    let whole = instructions(&["--inside", name])?;
    let prepared = instructions(&["--inside", name, "--prepared"])?;
    Some((whole as f64 - prepared as f64) / operations as f64)
}

/// Runs this program under callgrind. Returns the number of instructions, or `None` if valgrind fails.
fn instructions(arguments: &[&str]) -> Option<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe().ok()?).args(arguments);
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, collected) = text.split_once("Collected :")?;
    collected.split_whitespace().next()?.parse().ok()
}
