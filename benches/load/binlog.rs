//! Measures queues with a binlog: puts, a restart, and the size of the log.
//!
//! Owns the log directories. Servers without the option `-b` are skipped.

use super::driver::{Driver, Until};
use super::measure::{measure, Bench, Goal, Outcome};
use super::process::Folder;
use super::put::{fill, Puts};
use super::verify::Bodies;

const MAX_JOBS: usize = 2_000_000;

/// Puts jobs in batches. If `every` is `true`, the server syncs each write; otherwise, it uses its default sync mode.
pub fn puts(bench: Bench, connections: usize, batch: usize, every: bool) -> Result<Outcome, String> {
    let folder = Folder::new();
    let path = folder.path();
    let arguments = ["-b", &path, "-f", "0"];
    let server = bench.program.start(if every { &arguments } else { &arguments[..2] })?;
    let mut driver = Driver::connect(server.address, connections)?;
    let mut load = Puts::new(connections, batch, Bodies::new(64));
    load.ledger.expect(MAX_JOBS);
    driver.start(&mut load, 0..connections)?;
    let work = measure(&server, &mut driver, &mut load, bench.scale, MAX_JOBS)?;
    load.limit = 0;
    driver.run(&mut load, Until::Quiet(0))?;
    let goal = if every { Goal::None } else { Goal::AtMost(5.0) };
    Ok(Outcome::of(work).and("worst put, ms", work.longest / 1000.0, goal))
}

/// Measures the log size per job, and the duration of a restart.
pub fn restart(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let folder = Folder::new();
    let path = folder.path();
    let arguments = ["-b", path.as_str()];
    let server = bench.program.start(&arguments)?;
    let count = bench.scale.count(jobs);
    fill(&server, count, Bodies::new(64))?;
    let bytes = folder.bytes() as f64 / count as f64;
    server.terminate();
    let server = bench.program.start(&arguments)?;
    let seconds = server.started_in.as_secs_f64();
    let mut driver = Driver::connect(server.address, 1)?;
    // Fails if the server accepted connections before it had read the whole log.
    driver.ask(0..1, |_, out| out.delete(count as u64))?;
    let outcome = Outcome::default().and("restart, s", seconds, Goal::RatioAtMost(0.2));
    Ok(outcome.and("log bytes for a job of 64 bytes", bytes, Goal::AtMost(130.0)))
}
