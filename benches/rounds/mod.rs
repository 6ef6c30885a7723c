//! Measuring code without effects: nanoseconds, and instructions where valgrind is at hand, for each operation.
//!
//! Owns rounds and medians. A case is prepared for every round, and neither this nor the cleanup is counted.
//! Instructions are the difference of two runs under callgrind, one with the operations and one without, so they are
//! the same on a busy machine; valgrind counts every repetition of a string instruction, so large copies look dearer
//! than they are. Must not know what is measured.
//!
//! `cargo bench --bench engine`, with `-- --instructions` under callgrind, with `-- --only WORDS` a part.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The number of rounds, of which the median is reported.
const ROUNDS: usize = 7;

/// Rounds end after this in any case, but never before the third.
const LONG: Duration = Duration::from_secs(5);

/// Under callgrind, which is some fifty times slower, sizes are divided by this.
const DIVIDE: usize = 20;

/// One round of one case.
type Round = Box<dyn Fn(Mode) -> Duration>;

/// How a round is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The whole round.
    Whole,
    /// Only the preparation.
    Prepared,
}

/// The cases in order.
pub struct Cases {
    divide: usize,
    rows: Vec<(String, usize, Round)>,
}

impl Cases {
    /// Returns a number of jobs, tubes or operations.
    pub fn count(&self, whole: usize) -> usize {
        (whole / self.divide).max(1)
    }

    /// Adds a case: `work` executes `operations` on what `prepare` made.
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
                // Dropping would be counted, and depends on what was done.
                std::mem::forget(state);
            }
            time
        };
        self.rows.push((name.to_owned(), operations, Box::new(round)));
    }
}

/// The whole of `main`.
pub fn run(collect: impl Fn(&mut Cases)) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let after = |word: &str| arguments.iter().skip_while(|argument| *argument != word).nth(1);
    if arguments.is_empty() {
        // Started as a test, which it is not.
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

/// Returns the instructions that callgrind counts in this program with these arguments.
fn instructions(arguments: &[&str]) -> Option<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe().ok()?).args(arguments);
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, collected) = text.split_once("Collected :")?;
    collected.split_whitespace().next()?.parse().ok()
}
