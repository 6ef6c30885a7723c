//! Measures the rate, the latencies and the server's resource usage during a span of work.
//!
//! Owns the result of a run. Must not depend on the scenario.

use std::time::{Duration, Instant};

use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::TimeValLike;

use super::driver::{Driver, Load, Until, PATIENCE};
use super::process::{Program, Server, Usage};
use super::stats::Histogram;

/// The parameters of one run of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// The server to start.
    pub program: &'a Program,
    /// `true` for the server under test, which has additional goals.
    pub ours: bool,
    pub scale: Scale,
}

/// The durations and sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The duration of the measurement.
    pub time: Duration,
    /// The duration of the warm-up before the measurement.
    pub warm_up: Duration,
    /// The divisor for the numbers of jobs, connections and tubes.
    pub divide: usize,
}

impl Scale {
    /// Divides a number by [`Scale::divide`].
    pub fn count(&self, whole: usize) -> usize {
        whole / self.divide
    }
}

/// The result of one span of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub rate: f64,
    /// Operations per second of processor time of the server and the client together. If the two share one CPU and wait
    /// for nothing else, `busy_rate` is the rate on an otherwise idle CPU.
    pub busy_rate: f64,
    /// Processor time of the server per operation, in microseconds.
    pub cpu: f64,
    /// The percentiles 50, 99 and 99.9 of the duration of a request, in microseconds.
    pub times: [f64; 3],
    /// The longest duration of a request, in microseconds.
    pub longest: f64,
    /// Context switches of the server per operation.
    pub switches: f64,
    /// Resident memory of the server at the end, in bytes.
    pub rss: f64,
    pub threads: f64,
}

/// The goal for a measured value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// No goal. The value is only shown.
    None,
    /// A maximum that does not depend on the peer.
    AtMost(f64),
    /// A minimum that does not depend on the peer.
    AtLeast(f64),
    /// A maximum ratio to the peer's value.
    RatioAtMost(f64),
    /// A minimum ratio to the peer's value.
    RatioAtLeast(f64),
}

/// A measured value other than those in [`Work`].
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// The name of the value with its unit.
    pub name: &'static str,
    pub amount: f64,
    pub goal: Goal,
}

/// The result of one run of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub work: Option<Work>,
    pub values: Vec<Value>,
}

impl Outcome {
    /// Creates a result without additional values.
    pub fn of(work: Work) -> Outcome {
        Outcome { work: Some(work), values: Vec::new() }
    }

    pub fn and(mut self, name: &'static str, amount: f64, goal: Goal) -> Outcome {
        self.values.push(Value { name, amount, goal });
        self
    }
}

/// A load that records the durations of requests.
pub trait Timed: Load {
    fn times(&mut self) -> &mut Histogram;
}

/// A span of work that is in progress.
#[derive(Debug)]
pub struct Span<'a> {
    server: &'a Server,
    usage: Usage,
    /// Processor time of the client at the start, in nanoseconds.
    own: u64,
    start: Instant,
}

impl<'a> Span<'a> {
    pub fn start(server: &'a Server) -> Span<'a> {
        Span { server, usage: server.usage(), own: own_cpu(), start: Instant::now() }
    }

    /// Ends the span and returns its result. `operations` is the number of completed operations.
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

/// Runs the load for the warm-up time, then measures until `count` operations are complete or the time of the scale has
/// passed.
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

/// Measures until `count` operations are complete, with a time limit that a normal run never reaches.
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
