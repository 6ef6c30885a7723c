//! Measures the rate, the latencies and the server's resource usage during a span of work.
//!
//! Owns the result of a run. Must not depend on the scenario.

use std::time::{Duration, Instant};

use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::TimeValLike;

use super::driver::{Driver, Load, Until, PATIENCE};
use super::process::{Program, Server, Usage};
use super::stats::Histogram;

#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    pub program: &'a Program,
    /// `true` for the server under test, which has additional goals.
    pub ours: bool,
    pub scale: Scale,
}

#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub time: Duration,
    /// The duration of the warm-up before the measurement.
    pub warm_up: Duration,
    /// The divisor for the numbers of jobs, connections and tubes.
    pub divide: usize,
}

impl Scale {
    pub fn count(&self, whole: usize) -> usize {
        whole / self.divide
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub rate: f64,
    /// The number of operations per second of processor time that the server and the client use together. If both
    /// share one CPU and do not wait for a disk, this is the rate on an otherwise idle CPU.
    pub busy_rate: f64,
    /// The server's processor time per operation, in microseconds.
    pub cpu: f64,
    /// The 50th, 99th and 99.9th percentiles of request durations, in microseconds.
    pub times: [f64; 3],
    /// The longest request duration, in microseconds.
    pub longest: f64,
    /// The server's context switches per operation.
    pub switches: f64,
    /// The server's resident memory at the end, in bytes.
    pub rss: f64,
    pub threads: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// The report shows the value, but does not check it.
    None,
    AtMost(f64),
    AtLeast(f64),
    RatioAtMost(f64),
    RatioAtLeast(f64),
}

/// A measured value that [`Work`] does not contain.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    pub name: &'static str,
    pub amount: f64,
    pub goal: Goal,
}

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub work: Option<Work>,
    pub values: Vec<Value>,
}

impl Outcome {
    pub fn of(work: Work) -> Outcome {
        Outcome { work: Some(work), values: Vec::new() }
    }

    pub fn and(mut self, name: &'static str, amount: f64, goal: Goal) -> Outcome {
        self.values.push(Value { name, amount, goal });
        self
    }
}

pub trait Timed: Load {
    fn times(&mut self) -> &mut Histogram;
}

#[derive(Debug)]
pub struct Span<'a> {
    server: &'a Server,
    usage: Usage,
    /// The client's processor time at the start, in nanoseconds.
    own: u64,
    start: Instant,
}

impl<'a> Span<'a> {
    pub fn start(server: &'a Server) -> Span<'a> {
        Span { server, usage: server.usage(), own: own_cpu(), start: Instant::now() }
    }

    /// Ends the span now. `operations` were completed during the span.
    pub fn end(self, operations: u64, times: &Histogram) -> Work {
        let seconds = self.start.elapsed().as_secs_f64();
        let own = own_cpu() - self.own;
        let usage = self.server.usage();
        let each = operations.max(1) as f64;
        let cpu = (usage.cpu - self.usage.cpu) as f64;
        Work {
            rate: operations as f64 / seconds,
            busy_rate: operations as f64 / (cpu + own as f64) * 1e9,
            cpu: cpu / 1000.0 / each,
            times: [0.5, 0.99, 0.999].map(|share| times.percentile(share)),
            longest: times.longest(),
            switches: usage.switches.saturating_sub(self.usage.switches) as f64 / each,
            rss: self.server.rss() as f64,
            threads: self.server.threads() as f64,
        }
    }
}

fn own_cpu() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the usage of this process");
    (usage.user_time() + usage.system_time()).num_microseconds() as u64 * 1000
}

/// Runs the load until the warm-up time has passed or a tenth of `count` operations are complete. Then measures until
/// `count` operations are complete or `scale.time` has passed.
pub fn measure<L: Timed>(
    server: &Server,
    driver: &mut Driver,
    load: &mut L,
    scale: Scale,
    count: usize,
) -> Result<Work, String> {
    driver.run(load, Until::Work(load.operations() + count as u64 / 10, scale.warm_up))?;
    load.times().clear();
    let before = load.operations();
    let span = Span::start(server);
    driver.run(load, Until::Work(before + count as u64, scale.time))?;
    let done = load.operations() - before;
    Ok(span.end(done, load.times()))
}

/// Measures `count` operations, with a time limit that a normal run never reaches.
pub fn measure_all<L: Timed>(server: &Server, driver: &mut Driver, load: &mut L, count: usize) -> Result<Work, String> {
    let before = load.operations();
    let span = Span::start(server);
    driver.run(load, Until::Work(before + count as u64, PATIENCE * 4))?;
    let done = load.operations() - before;
    if done < count as u64 {
        return Err(format!("only {done} of {count} in {:?}", PATIENCE * 4));
    }
    Ok(span.end(done, load.times()))
}
