//! Attacks the real program with one or more hostile clients and checks that other clients are not affected.
//!
//! `make hostile` runs all attacks, `make hostile ROW=T3` runs one attack, and `ROW="T3 M1"` runs two attacks. `rows`
//! contains the table of attacks. An attack checks replies, order or memory. By default, round-trip times are printed,
//! but not checked. The times of beanstalkd are printed next to them if beanstalkd supports the commands. With a time
//! limit on the command line, a row whose code begins with T also fails when a round trip exceeds the limit.

#[path = "attacks/access.rs"]
mod access;
#[path = "attacks/bodies.rs"]
mod bodies;
#[path = "attacks/bursts.rs"]
mod bursts;
#[path = "attacks/bystander.rs"]
mod bystander;
mod daemon;
#[allow(dead_code)] // these tests use only the simulated slowness of the disk
#[path = "durability/disk.rs"]
mod disk;
#[path = "attacks/exports.rs"]
mod exports;
#[path = "attacks/floods.rs"]
mod floods;
#[path = "attacks/no_memory.rs"]
mod no_memory;
#[path = "attacks/order.rs"]
mod order;
#[path = "attacks/related.rs"]
mod related;
#[path = "attacks/report.rs"]
mod report;
#[path = "attacks/rows.rs"]
mod rows;
#[path = "attacks/scans.rs"]
mod scans;
#[path = "attacks/slow_disk.rs"]
mod slow_disk;
#[path = "attacks/traffic.rs"]
mod traffic;
#[path = "attacks/trial.rs"]
mod trial;
#[path = "attacks/unread.rs"]
mod unread;
#[path = "hostile/wire.rs"]
mod wire;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use report::Result;
use rows::{Row, ROWS};
use trial::{Seen, Trial};

const USAGE: &str = "usage: attacks --program=PATH [--peer=PATH] [--limit-ms=N] [ROW...]";

/// The number of file descriptors for the attack with the most connections.
const FILES: u64 = 5000;

#[derive(Default)]
struct Plan {
    program: PathBuf,
    peer: Option<PathBuf>,
    /// The maximum round-trip time of the bystander, if this time is checked.
    limit: Option<Duration>,
    rows: Vec<&'static Row>,
}

fn plan(arguments: impl Iterator<Item = String>) -> std::result::Result<Plan, String> {
    let mut plan = Plan::default();
    for word in arguments {
        if let Some(path) = word.strip_prefix("--program=") {
            plan.program = path.into();
        } else if let Some(path) = word.strip_prefix("--peer=") {
            plan.peer = (!path.is_empty()).then(|| path.into());
        } else if let Some(number) = word.strip_prefix("--limit-ms=") {
            plan.limit = Some(Duration::from_millis(number.parse().map_err(|_| USAGE.to_owned())?));
        } else {
            // `T11` selects `T11a` and `T11b`, but `T1` selects neither.
            let matches = |row: &&Row| row.code.trim_end_matches(char::is_lowercase) == word || row.code == word;
            let found: Vec<_> = ROWS.iter().filter(matches).collect();
            if found.is_empty() {
                let codes: Vec<&str> = ROWS.iter().map(|row| row.code).collect();
                return Err(format!("unknown row: {word}; the rows are {}\n{USAGE}", codes.join(" ")));
            }
            plan.rows.extend(found);
        }
    }
    if plan.rows.is_empty() {
        plan.rows = ROWS.iter().collect();
    }
    if plan.program.is_file() {
        Ok(plan)
    } else {
        Err(USAGE.to_owned())
    }
}

/// Runs one attack against one program. Records a panic as a problem and keeps the earlier measurements.
fn attack(row: &Row, program: PathBuf, ours: bool) -> Seen {
    let began = Instant::now();
    let mut trial = Trial::new(program, ours);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (row.run)(&mut trial))) {
        trial.seen.problems.push(bystander::message(&*panic));
    }
    trial.seen.took = began.elapsed();
    trial.seen
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--crowd") {
        access::crowd();
        return ExitCode::SUCCESS;
    }
    let plan = match plan(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    wire::allow_files(FILES);
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let mut results = Vec::new();
    for row in plan.rows {
        let ours = attack(row, plan.program.clone(), true);
        let peer = plan.peer.clone().filter(|_| row.peer).map(|peer| attack(row, peer, false));
        let mut result = Result { row, ours, peer };
        // The limit applies only to rows about time. Rows about memory close thousands of connections at once, for
        // which the kernel alone needs more time than the limit.
        if let Some(limit) = plan.limit.filter(|_| row.code.starts_with('T')) {
            result.judge(limit);
        }
        println!("{}", result.line());
        results.push(result);
    }
    report::print(&results);
    let failed = results.iter().filter(|result| result.failed()).count();
    println!("\n{} rows, {failed} failed", results.len());
    ExitCode::from(u8::from(failed > 0))
}
