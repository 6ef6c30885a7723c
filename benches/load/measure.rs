//! One measurement: a span of work, and what the server used for it.
//!
//! Owns the record of a run. Must not know which scenario is measured.

use std::time::{Duration, Instant};

use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::TimeValLike;

use super::driver::{Driver, Load, Until, PATIENCE};
use super::process::{Program, Server, Usage};
use super::stats::Histogram;

/// The parameters of one run of one scenario.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// The server to start.
    pub program: &'a Program,
    /// `true` for the server under test, which has more goals than the peer.
    pub ours: bool,
    /// How much to do.
    pub scale: Scale,
}

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// How long to measure.
    pub time: Duration,
    /// How long to warm up before that.
    pub warm_up: Duration,
    /// Numbers of jobs, connections and tubes are divided by this.
    pub divide: usize,
}

impl Scale {
    /// Returns a number of jobs, reduced in a quick run.
    pub fn count(&self, whole: usize) -> usize {
        whole / self.divide
    }
}

/// The result of one span of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Operations per second.
    pub rate: f64,
    /// Operations per second of processor time that server and client used together. With both on one CPU and no waits
    /// for a clock or a disk, this is the rate without any other program on that CPU.
    pub busy_rate: f64,
    /// Processor time of the server per operation, in microseconds.
    pub cpu: f64,
    /// Percentiles of the duration of a request, in microseconds: 50, 99, 99.9.
    pub times: [f64; 3],
    /// The longest duration, in microseconds.
    pub longest: f64,
    /// Context switches of the server per operation.
    pub switches: f64,
    /// The resident bytes of the server at the end.
    pub rss: f64,
    /// The threads of the server.
    pub threads: f64,
}

/// The goal of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// None; the figure is for information.
    None,
    /// At most this, whatever the peer's figure is.
    AtMost(f64),
    /// At least this, whatever the peer's figure is.
    AtLeast(f64),
    /// At most this many times the peer's figure.
    RatioAtMost(f64),
    /// At least this many times the peer's figure.
    RatioAtLeast(f64),
}

/// A figure that is not a rate of work.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Its name, with its unit.
    pub name: &'static str,
    /// Its value.
    pub amount: f64,
    /// Its goal.
    pub goal: Goal,
}

/// The result of one run of one scenario.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The work, if it was measured.
    pub work: Option<Work>,
    /// Other figures.
    pub values: Vec<Value>,
}

impl Outcome {
    /// Creates a result that consists of work only.
    pub fn of(work: Work) -> Outcome {
        Outcome { work: Some(work), values: Vec::new() }
    }

    /// Adds a figure.
    pub fn and(mut self, name: &'static str, amount: f64, goal: Goal) -> Outcome {
        self.values.push(Value { name, amount, goal });
        self
    }
}

/// A load that records durations.
pub trait Timed: Load {
    /// The durations of requests.
    fn times(&mut self) -> &mut Histogram;
}

/// A span of work that is being measured.
#[derive(Debug)]
pub struct Span<'a> {
    server: &'a Server,
    usage: Usage,
    /// The client's own processor time.
    own: u64,
    start: Instant,
}

impl<'a> Span<'a> {
    /// Starts a span now.
    pub fn start(server: &'a Server) -> Span<'a> {
        Span { server, usage: server.usage(), own: own_cpu(), start: Instant::now() }
    }

    /// Ends the span after this many operations.
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

/// Warms up, then measures until `count` operations are done or the time of the scale is over.
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

/// Measures until everything is done, within reasonable time.
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
