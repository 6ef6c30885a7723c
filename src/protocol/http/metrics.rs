//! Metrics in the text format of Prometheus, version 0.0.4. Reading the tubes can be interrupted to serve other
//! clients. All samples of a metric must be together, so the samples of each metric are collected separately.

use std::collections::BTreeSet;

use super::action::{state, Arguments, HttpAction, Parsed};
use super::reply::{not_found, seconds, HttpAnswer, METRICS};
use crate::access::Need;
use crate::engine::{
    Account, FindOldest, Histogram, JobCounts, JobTimes, Latency, Progress, Span, State, Stats, TubeStats,
};
use crate::protocol::beanstalk::QueueFigures;
use crate::protocol::connections::VisibleSums;
use crate::protocol::text::{has_part, metric_label};
use crate::protocol::{sees, CommandId, CommandInfo, Context, Latencies, Output, Wire};
use crate::shared::log_figures::{Health, LogFigures};
use crate::shared::role::{Role, RoleFigures};

#[derive(Clone, Copy)]
pub struct Metric<W> {
    pub name: &'static str,
    pub kind: &'static str,
    pub help: &'static str,
    /// `true` if only servers in clusters report the metric.
    pub shared: bool,
    write: W,
}

type OfServer = fn(&Server, &mut Samples);
type OfTube = fn(&TubeStats, &mut Samples);

const fn metric<W: Copy>(name: &'static str, kind: &'static str, help: &'static str, write: W) -> Metric<W> {
    Metric { name, kind, help, shared: false, write }
}

#[rustfmt::skip]
const SERVER: [Metric<OfServer>; 50] = [
    metric("beanpole_build_info", "gauge", "Version of the running server.", |of, it| it.write_metric("version", [(&*of.figures.facts.version, 1)])),
    metric("beanpole_jobs", "gauge", "Number of jobs by state.", |of, it| it.write_metric("state", states(&of.figures.stats.jobs))),
    metric("beanpole_jobs_urgent", "gauge", "Number of ready jobs with a priority below 1024.", |of, it| it.number(of.figures.stats.jobs.urgent)),
    metric("beanpole_oldest_job_age_seconds", "gauge", "Time since the oldest ready, delayed and buried jobs were put.", |of, it| it.ages(of.ages)),
    metric("beanpole_tubes", "gauge", "Number of tubes.", |of, it| it.number(of.figures.stats.tubes as u64)),
    metric("beanpole_connections", "gauge", "Number of connections by protocol.", |of, it| it.write_metric("protocol", Wire::ALL.iter().map(|wire| wire.name()).zip(of.figures.connections))),
    metric("beanpole_workers", "gauge", "Number of connections that have requested a job.", |of, it| it.number(of.figures.stats.workers as u64)),
    metric("beanpole_producers", "gauge", "Number of connections that have put a job.", |of, it| it.number(of.figures.stats.producers as u64)),
    metric("beanpole_waiting", "gauge", "Number of connections that are waiting for a job.", |of, it| it.number(of.figures.stats.waiting as u64)),
    metric("beanpole_memory_bytes", "gauge", "Memory used by jobs, tubes and clients, by purpose.", |of, it| it.write_metric("kind", memory(&of.figures.stats))),
    metric("beanpole_memory_limit_bytes", "gauge", "Limit for the memory used by jobs, tubes and clients.", |of, it| it.number(of.figures.stats.max_memory)),
    metric("beanpole_draining", "gauge", "1 if the server does not accept new jobs.", |of, it| it.number(of.figures.stats.draining.into())),
    metric("beanpole_jobs_total", "counter", "Number of jobs put.", |of, it| it.number(of.figures.stats.total_jobs)),
    metric("beanpole_commands_total", "counter", "Number of commands by protocol.", commands),
    metric("beanpole_job_timeouts_total", "counter", "Number of reservations that timed out.", |of, it| it.number(of.figures.stats.timeouts)),
    metric("beanpole_jobs_expired_total", "counter", "Number of jobs whose time to live expired.", |of, it| it.number(of.figures.stats.evicted)),
    metric("beanpole_schedule_runs_total", "counter", "Number of copies that schedules have put.", |of, it| it.number(of.context.engine.schedule_counts()[0])),
    metric("beanpole_schedule_skips_total", "counter", "Number of runs skipped because the last copy still existed or another job had the schedule's key.", |of, it| it.number(of.context.engine.schedule_counts()[1])),
    metric("beanpole_schedule_delay_seconds", "gauge", "Time for which the most overdue run of a schedule has been overdue.", |of, it| it.number(of.context.engine.schedule_delay(of.context.now).secs())),
    metric("beanpole_connections_total", "counter", "Number of accepted connections, excluding HTTP connections.", |of, it| it.number(of.figures.stats.total_connections)),
    metric("beanpole_connections_rejected_total", "counter", "Number of rejected connections.", |of, it| it.number(of.figures.usage.rejected_connections)),
    metric("beanpole_connections_dropped_total", "counter", "Number of connections closed because memory was short, or to make room for new connections.", |of, it| it.number(of.figures.usage.dropped_connections)),
    metric("beanpole_connections_limit", "gauge", "Maximum number of connections.", |of, it| it.number(of.figures.facts.max_connections as u64)),
    metric("beanpole_auth_failures_total", "counter", "Number of failed authentications.", |of, it| it.number(of.figures.usage.failed_auths)),
    metric("beanpole_binlog_up", "gauge", "1 if the binlog can be written.", |of, it| it.number(of.figures.log.is_some_and(|log| log.health == Health::Ok).into())),
    metric("beanpole_binlog_bytes", "gauge", "Size of the binlog on disk.", |of, it| it.number(of.figures.log.map_or(0, |log| log.disk))),
    metric("beanpole_binlog_records_total", "counter", "Number of records written to the binlog, including those copied by compaction.", |of, it| it.write_metric("kind", records(of.figures.log))),
    metric("beanpole_binlog_lost_segments_total", "counter", "Number of binlog files removed, replaced or truncated by another program.", |of, it| it.number(of.figures.log.map_or(0, |log| log.lost))),
    metric("beanpole_binlog_stuck_segments", "gauge", "Number of obsolete or foreign binlog files that cannot be removed.", |of, it| it.number(of.figures.log.map_or(0, |log| log.stuck))),
    metric("beanpole_binlog_skipped_records", "gauge", "Number of records that could not be read at startup.", |of, it| it.number(of.figures.log.map_or(0, |log| log.skipped))),
    Metric { shared: true, ..metric("beanpole_active", "gauge", "1 if this server is the active server of its cluster.", |of, it| it.number((of.role.role == Role::Active).into())) },
    Metric { shared: true, ..metric("beanpole_epoch", "gauge", "Epoch of the active server.", |of, it| it.number(of.role.epoch)) },
    Metric { shared: true, ..metric("beanpole_journal_entry", "gauge", "Entry number of the last journal entry in this server's copy.", |of, it| it.number(of.role.entry)) },
    Metric { shared: true, ..metric("beanpole_journal_entries_total", "counter", "Number of entries that this server has appended to the journal.", |of, it| it.number(of.role.written)) },
    Metric { shared: true, ..metric("beanpole_journal_written_bytes_total", "counter", "Bytes that this server has appended to the journal.", |of, it| it.number(of.role.bytes)) },
    Metric { shared: true, ..metric("beanpole_journal_retries_total", "counter", "Number of journal appends whose outcome had to be queried.", |of, it| it.number(of.role.retries)) },
    Metric { shared: true, ..metric("beanpole_journal_bytes", "gauge", "Size of the journal in etcd.", |of, it| it.if_any((of.role.quota > 0).then_some(of.role.used))) },
    Metric { shared: true, ..metric("beanpole_journal_quota_bytes", "gauge", "Maximum size of the journal in etcd.", |of, it| it.if_any((of.role.quota > 0).then_some(of.role.quota))) },
    Metric { shared: true, ..metric("beanpole_journal_lag_seconds", "gauge", "Time since this standby last had all entries of the journal.", |of, it| it.value(&seconds(of.role.lag().as_nanos()))) },
    Metric { shared: true, ..metric("beanpole_lease_renewal_failures_total", "counter", "Number of failed renewals of this active server's lease.", |of, it| it.number(of.role.failed_renewals)) },
    metric("process_cpu_seconds_total", "counter", "CPU time of the process.", |of, it| it.value(&seconds(u128::from(of.figures.usage.user_micros + of.figures.usage.system_micros) * 1000))),
    metric("process_resident_memory_bytes", "gauge", "Resident memory of the process.", |of, it| it.number(of.figures.usage.resident)),
    metric("process_start_time_seconds", "gauge", "Start time of the process since the Unix epoch.", |of, it| it.value(&seconds(of.figures.facts.started.nanos().into()))),
    metric("process_open_fds", "gauge", "Number of open file descriptors.", |of, it| it.number(of.figures.usage.open_files)),
    metric("process_max_fds", "gauge", "Maximum number of open file descriptors.", |of, it| it.number(of.figures.facts.max_files as u64)),
    metric("beanpole_job_wait_seconds", "histogram", "Time from the put, or the end of the delay, to the first reservation.", |of, it| it.histogram(of.job_times().map(|times| &times.wait))),
    metric("beanpole_job_run_seconds", "histogram", "Time from the reservation, or the last touch, to completion.", |of, it| it.histogram(of.job_times().map(|times| &times.run))),
    metric("beanpole_binlog_sync_seconds", "histogram", "Duration of binlog syncs.", |of, it| it.histogram(of.latencies.syncs.as_ref())),
    metric("beanpole_turn_seconds", "histogram", "Time for which a batch of commands holds the queue's lock.", |of, it| it.histogram(of.latencies.turns.as_ref())),
    metric("beanpole_tubes_omitted", "gauge", "Number of tubes omitted because of --metrics-tubes.", |of, it| it.number(of.omitted as u64)),
];

#[rustfmt::skip]
const TUBES: [Metric<OfTube>; 12] = [
    metric("beanpole_tube_jobs", "gauge", "Number of jobs of a tube by state.", |of, it| it.write_metric("state", states(&of.jobs))),
    metric("beanpole_tube_jobs_total", "counter", "Number of jobs put into a tube.", |of, it| it.number(of.total_jobs)),
    metric("beanpole_tube_deleted_total", "counter", "Number of jobs deleted from a tube, completed or not.", |of, it| it.number(of.deletes)),
    metric("beanpole_tube_waiting", "gauge", "Number of connections that watch a tube and are waiting for a job.", |of, it| it.number(of.waiting as u64)),
    metric("beanpole_tube_watching", "gauge", "Number of connections that watch a tube.", |of, it| it.number(of.watching.into())),
    metric("beanpole_tube_pause_left_seconds", "gauge", "Remaining time of a tube's pause.", |of, it| it.value(&seconds(of.pause_left.nanos().into()))),
    metric("beanpole_tube_oldest_job_age_seconds", "gauge", "Like beanpole_oldest_job_age_seconds, for one tube.", |_, _| ()),
    metric("beanpole_tube_timeouts_total", "counter", "Number of reservations in a tube that timed out.", |of, it| it.if_any(of.times.map(|times| times.events.timeouts))),
    metric("beanpole_tube_releases_total", "counter", "Number of jobs of a tube that workers released.", |of, it| it.if_any(of.times.map(|times| times.events.releases))),
    metric("beanpole_tube_buries_total", "counter", "Number of jobs of a tube that were buried.", |of, it| it.if_any(of.times.map(|times| times.events.buries))),
    metric("beanpole_tube_job_wait_seconds", "histogram", "Like beanpole_job_wait_seconds, for one tube.", |of, it| it.latency(of.times.map(|times| &times.wait))),
    metric("beanpole_tube_job_run_seconds", "histogram", "Like beanpole_job_run_seconds, for one tube.", |of, it| it.latency(of.times.map(|times| &times.run))),
];

/// Gearman's monitoring tools use these names.
#[rustfmt::skip]
const GEARMAN: [Metric<OfTube>; 4] = [
    metric("gearman_jobs", "gauge", "Number of jobs of a function, queued or running.", |of, it| it.number(of.jobs.ready + of.jobs.delayed + of.jobs.reserved)),
    metric("gearman_jobs_running", "gauge", "Number of running jobs of a function.", |of, it| it.number(of.jobs.reserved)),
    metric("gearman_jobs_waiting", "gauge", "Number of queued jobs of a function.", |of, it| it.number(of.jobs.ready + of.jobs.delayed)),
    metric("gearman_workers", "gauge", "Number of workers that can execute a function.", |of, it| it.number(of.watching.into())),
];

/// Finding the oldest jobs can take a long time, so the samples of this metric are added last.
const AGES: &str = "beanpole_tube_oldest_job_age_seconds";

pub fn metrics() -> impl Iterator<Item = Metric<()>> {
    let [server, tubes, gearman] = [SERVER.map(plain).to_vec(), TUBES.map(plain).to_vec(), GEARMAN.map(plain).to_vec()];
    server.into_iter().chain(tubes).chain(gearman)
}

fn plain<W>(Metric { name, kind, help, shared, .. }: Metric<W>) -> Metric<()> {
    Metric { name, kind, help, shared, write: () }
}

/// The number of passes if there are more tubes than `metrics_tubes`. Each pass shows the tubes with one `rank`.
const RANKS: u8 = 3;
/// The memory that each name in `shown` uses in addition to its length, in bytes.
const SHOWN_COST: u64 = 48;

/// Returns the pass that shows the tube: 0 for a tube with buried jobs, 1 with other jobs only, 2 without jobs.
fn rank(tube: &TubeStats) -> u8 {
    match (tube.jobs.buried, tube.jobs.all()) {
        (0, 0) => 2,
        (0, _) => 1,
        _ => 0,
    }
}

#[derive(Debug, Default)]
pub struct Scrape {
    /// The only tube to show. `None` shows the tubes that match `filter` and have jobs in `state`.
    only: Option<Box<[u8]>>,
    filter: Box<[u8]>,
    state: Option<State>,
    sums: VisibleSums,
    /// Sums over the visible tubes. `None` before the sums are known, or if the client may see all tubes.
    stats: Option<Stats>,
    next: u32,
    pass: u8,
    is_ranked: bool,
    matching: usize,
    /// Shown tubes whose oldest jobs are still unknown.
    shown: BTreeSet<Box<[u8]>>,
    shown_count: usize,
    names_size: u64,
    /// The search for the oldest jobs: first in all tubes together, and then in each shown tube.
    oldest: FindOldest,
    ages: Option<[Span; 3]>,
    /// In the order of `TUBES` and `GEARMAN`.
    samples: [Output; TUBES.len() + GEARMAN.len()],
}

pub fn scrape(it: &mut Arguments) -> Parsed {
    let only: Option<Box<[u8]>> = it.query("tube").map(Into::into);
    if let Some(tube) = &only {
        // The client needs rights only for this tube.
        (it.target.tube, it.need) = (Some(tube.clone()), Need::LOOK_NAMED);
    }
    let (filter, state) = (it.filter(), it.query("state").map(state).transpose()?);
    Ok(Box::new(Scrape { only, filter, state, ..Scrape::default() }))
}

impl Scrape {
    fn includes(&self, tube: &TubeStats) -> bool {
        let mut jobs = tube.jobs;
        self.state.is_none_or(|state| jobs.sum(&[state]) > 0) && has_part(tube.name, &self.filter)
    }

    fn show(&mut self, tube: &TubeStats, gearman: bool) -> usize {
        if !self.shown.insert(tube.name.into()) {
            return 0;
        }
        self.shown_count += 1;
        self.names_size += SHOWN_COST + tube.name.len() as u64;
        self.add(tube, gearman)
    }

    fn show_tubes(&mut self, context: &mut Context) -> Progress {
        let Context { engine, access, now, settings, .. } = context;
        let (max_tubes, gearman) = (settings.http.metrics_tubes, settings.http.spoken.contains(&Wire::Gearman));
        self.is_ranked |= self.pass == 0 && self.next == 0 && engine.stats().tubes > max_tubes;
        while self.pass < RANKS {
            let mut next = self.next;
            let progress = engine.walk_tubes(&mut next, *now, |tube| {
                if !self.includes(tube) || !sees(access, tube.name) {
                    return 0;
                }
                self.matching += usize::from(self.pass == 0);
                let is_due = !self.is_ranked || rank(tube) == self.pass;
                match is_due && self.shown_count < max_tubes {
                    true => self.show(tube, gearman),
                    false => 0,
                }
            });
            let is_over = self.pass > 0 && self.shown_count >= max_tubes;
            if progress == Progress::More && !is_over {
                self.next = next;
                return Progress::More;
            }
            self.next = 0;
            self.pass = if is_over || !self.is_ranked { RANKS } else { self.pass + 1 };
        }
        Progress::Done
    }

    fn find_ages(&mut self, context: &mut Context) -> Progress {
        let Context { engine, now, .. } = context;
        loop {
            if engine.find_oldest(&mut self.oldest) == Progress::More {
                return Progress::More;
            }
            let ages = Some(self.oldest.ages(*now));
            if self.ages.is_none() {
                self.ages = ages;
            } else if let Some((_, out)) = TUBES.iter().zip(&mut self.samples).find(|(row, _)| row.name == AGES) {
                let labels = format!("tube=\"{}\",", metric_label(self.oldest.tube()));
                Samples { text: out.text(), name: AGES, labels: &labels }.ages(ages);
            }
            engine.take_steps(STEPS_PER_AGES);
            let Some(name) = self.shown.pop_first() else { return Progress::Done };
            self.oldest = FindOldest::new(name);
        }
    }

    fn add(&mut self, tube: &TubeStats, gearman: bool) -> usize {
        let name = metric_label(tube.name);
        let (tube_label, function_label) = (format!("tube=\"{name}\","), format!("function=\"{name}\","));
        let of_tubes = TUBES.iter().map(|row| (row, &tube_label));
        let of_functions = GEARMAN.iter().filter(|_| gearman).map(|row| (row, &function_label));
        let mut bytes = 0;
        for ((row, labels), out) in of_tubes.chain(of_functions).zip(&mut self.samples) {
            let text = out.text();
            let before = text.len();
            (row.write)(tube, &mut Samples { text, name: row.name, labels });
            bytes += text.len() - before;
        }
        bytes
    }

    fn finish(self, context: &Context) -> Output {
        let mut out = Output::new();
        let text = out.text();
        let gearman = context.settings.http.spoken.contains(&Wire::Gearman);
        let figures = QueueFigures::of(self.stats.unwrap_or_else(|| context.stats()), context);
        let server = Server {
            role: figures.role.unwrap_or_default(),
            figures,
            context,
            ages: self.ages.filter(|_| context.sees_all()),
            latencies: context.host.latencies(),
            omitted: self.matching.saturating_sub(self.shown_count),
        };
        for row in SERVER.iter().filter(|row| !row.shared || server.figures.role.is_some()) {
            family(text, row.name, row.kind, row.help);
            (row.write)(&server, &mut Samples { text, name: row.name, labels: "" });
        }
        for (row, mut samples) in TUBES.iter().chain(GEARMAN.iter().filter(|_| gearman)).zip(self.samples) {
            family(out.text(), row.name, row.kind, row.help);
            out.append(&mut samples);
        }
        if gearman {
            family(out.text(), "gearman_up", "gauge", "Gearman is spoken here.");
            out.text().extend_from_slice(b"gearman_up 1\n");
        }
        out
    }
}

impl HttpAction for Scrape {
    fn footprint(&self) -> u64 {
        (self.filter.len() + self.only.as_ref().map_or(0, |name| name.len())) as u64
            + self.names_size
            + self.oldest.footprint()
            + self.samples.iter().map(|samples| samples.footprint()).sum::<u64>()
    }

    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        if self.stats.is_none() && !context.sees_all() {
            self.stats = Some(self.sums.advance(context)?);
        }
        if let Some(only) = self.only.take() {
            let Some(tube) = context.engine.tube_stats(&only, context.now) else { return Some(Err(not_found("tube"))) };
            self.show(&tube, context.settings.http.spoken.contains(&Wire::Gearman));
            (self.matching, self.pass) = (1, RANKS);
        }
        if self.show_tubes(context) == Progress::More || self.find_ages(context) == Progress::More {
            return None;
        }
        Some(Ok((METRICS, std::mem::take(self).finish(context))))
    }
}

struct Server<'a> {
    figures: QueueFigures<'a>,
    role: RoleFigures,
    context: &'a Context<'a>,
    /// The ages of the oldest ready, delayed and buried jobs; `None` if the client has no right to see all tubes.
    ages: Option<[Span; 3]>,
    latencies: Latencies,
    omitted: usize,
}

impl Server<'_> {
    fn job_times(&self) -> Option<&JobTimes> {
        self.context.sees_all().then(|| self.context.engine.job_times())
    }
}

struct Samples<'a> {
    text: &'a mut Vec<u8>,
    name: &'static str,
    /// The labels of every sample. A comma follows each label.
    labels: &'a str,
}

impl Samples<'_> {
    fn line(&mut self, suffix: &str, labels: &str, value: &str) {
        let (name, both) = (self.name, format!("{}{labels}", self.labels));
        let labels = match both.trim_end_matches(',') {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        self.text.extend_from_slice(format!("{name}{suffix}{labels} {value}\n").as_bytes());
    }

    fn value(&mut self, value: &str) {
        self.line("", "", value);
    }

    fn number(&mut self, value: u64) {
        self.value(&value.to_string());
    }

    fn if_any(&mut self, value: Option<u64>) {
        value.into_iter().for_each(|value| self.number(value));
    }

    fn write_metric<'l>(&mut self, key: &str, samples: impl IntoIterator<Item = (&'l str, u64)>) {
        for (value, number) in samples {
            self.line("", &format!("{key}=\"{value}\""), &number.to_string());
        }
    }

    fn ages(&mut self, ages: Option<[Span; 3]>) {
        for (state, age) in ["ready", "delayed", "buried"].iter().zip(ages.into_iter().flatten()) {
            self.line("", &format!("state=\"{state}\""), &seconds(age.nanos().into()));
        }
    }

    fn histogram(&mut self, times: Option<&Histogram>) {
        times.into_iter().for_each(|it| self.buckets(it.buckets(), it.count(), it.sum_nanos));
    }

    fn latency(&mut self, times: Option<&Latency>) {
        times.into_iter().for_each(|it| self.buckets(it.buckets(), it.samples(), it.sum_nanos));
    }

    /// A bucket consists of an upper bound in nanoseconds and the number of durations up to this bound.
    fn buckets(&mut self, buckets: impl Iterator<Item = (u64, u64)>, count: u64, sum: u128) {
        for (bound, shorter) in buckets {
            self.line("_bucket", &format!("le=\"{}\"", seconds(bound.into())), &shorter.to_string());
        }
        self.line("_bucket", "le=\"+Inf\"", &count.to_string());
        self.line("_sum", "", &seconds(sum));
        self.line("_count", "", &count.to_string());
    }
}

const STEPS_PER_AGES: u64 = 4;

fn memory(stats: &Stats) -> [(&'static str, u64); 5] {
    let Account { jobs, tubes, watches, history, buffers } = stats.memory;
    [("jobs", jobs), ("tubes", tubes), ("watches", watches), ("history", history), ("buffers", buffers)]
}

fn records(log: Option<LogFigures>) -> [(&'static str, u64); 2] {
    let (written, migrated) = log.map_or((0, 0), |log| (log.written, log.migrated));
    [("written", written), ("migrated", migrated)]
}

fn commands(of: &Server, samples: &mut Samples) {
    for id in CommandId::all() {
        let CommandInfo { wire, name, object, is_request, .. } = id.entry();
        if is_request && of.context.settings.http.spoken.contains(&wire) {
            let (protocol, space) = (wire.name(), if object.is_empty() { "" } else { " " });
            let labels = format!("protocol=\"{protocol}\",command=\"{name}{space}{object}\"");
            samples.line("", &labels, &of.figures.counters.of(id).to_string());
        }
    }
}

fn states(jobs: &JobCounts) -> [(&'static str, u64); 6] {
    let JobCounts { ready, reserved, delayed, buried, held, scheduled, .. } = *jobs;
    let [first, second, third] = [("ready", ready), ("reserved", reserved), ("delayed", delayed)];
    [first, second, third, ("buried", buried), ("held", held), ("scheduled", scheduled)]
}

fn family(text: &mut Vec<u8>, name: &str, kind: &str, help: &str) {
    text.extend_from_slice(format!("# HELP {name} {help}\n# TYPE {name} {kind}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Body, Engine, Limits, NewJob, Span, Time};
    use crate::protocol::{ClientRegistry, ProtocolSettings};

    #[test]
    fn names_and_descriptions_follow_conventions() {
        for Metric { name, kind, help, .. } in metrics() {
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            assert!(help.ends_with('.'), "{name}");
        }
        assert!(TUBES.iter().any(|row| row.name == AGES));
    }

    #[test]
    fn seconds_and_labels_are_formatted() {
        let shown = [0, 1, 1_000_000, 1_500_000_000, 60_000_000_000].map(seconds);
        assert_eq!(shown, ["0", "0.000000001", "0.001", "1.5", "60"]);
        assert_eq!(metric_label(b"a\"\\\n\xffb"), "a\\\"\\\\\\\\\\\\x0a\\\\xffb");
        assert_eq!(metric_label("\x1b]\u{202e}é\u{9b}".as_bytes()), "\\\\x1b]\\\\xe2\\\\x80\\\\xaeé\\\\xc2\\\\x9b");
        assert_ne!(metric_label(b"zz\xff"), metric_label(b"zz\\xff"));
    }

    #[derive(Default)]
    struct TestHost(crate::protocol::Facts, Option<RoleFigures>);

    impl crate::protocol::Host for TestHost {
        fn facts(&self) -> &crate::protocol::Facts {
            &self.0
        }
        fn usage(&self) -> crate::protocol::Usage {
            Default::default()
        }
        fn role(&self) -> Option<RoleFigures> {
            self.1
        }
    }

    /// A server whose user may not query etcd's space does not know the quota.
    #[test]
    fn an_unknown_size_of_the_journal_has_no_sample() {
        for quota in [0, 1000] {
            let mut engine = Engine::new(Limits::NONE);
            let client = engine.connect();
            let (mut counters, mut registry) = (Default::default(), ClientRegistry::new(false));
            let role = RoleFigures { used: quota / 2, quota, ..RoleFigures::default() };
            let (settings, host) = (ProtocolSettings::default(), TestHost(Default::default(), Some(role)));
            let mut scrape = Scrape::default();
            let out = loop {
                engine.grant_steps(1 << 10);
                let books = (&mut counters, &mut registry);
                let mut context = Context::plain(&mut engine, books, (&settings, &host), client, Time::default());
                if let Some(answer) = scrape.advance(&mut context) {
                    break answer.expect("figures").1;
                }
            };
            let bytes: Vec<u8> = out.chunks().flatten().copied().collect();
            let text = String::from_utf8_lossy(&bytes);
            assert!(text.contains("\nbeanpole_epoch 0\n"), "{text}");
            for (name, number) in [("beanpole_journal_bytes", quota / 2), ("beanpole_journal_quota_bytes", quota)] {
                assert_eq!(text.contains(&format!("\n{name} {number}\n")), quota > 0, "{text}");
                assert!(quota > 0 || !text.contains(&format!("\n{name} ")), "{text}");
            }
        }
    }

    /// Scrapes the metrics of 100,000 tubes, and shows at most `max_tubes`. Returns the number of parts in which the
    /// tubes were read, the size of the reply in bytes, and the number of shown tubes.
    fn scrape_many(max_tubes: usize) -> (u64, usize, usize) {
        const STEPS: u64 = 1024;
        let limits = Limits { max_memory: u64::MAX, max_tubes: 1 << 20, hash_secret: 7, ..Limits::NONE };
        let mut engine = Engine::new(limits);
        let client = engine.connect();
        for tube in 0..100_000 {
            let (delay, ttr) = (Span::ZERO, Span::from_secs(1));
            let job = NewJob { pri: 0, delay, ttr, body: Body::default() };
            engine.put_into(client, format!("tube-{tube}").as_bytes(), job, Time::default()).expect("memory for a job");
        }
        let (mut counters, mut registry) = (Default::default(), ClientRegistry::new(false));
        let (mut settings, host) = (ProtocolSettings::default(), TestHost::default());
        settings.http.metrics_tubes = max_tubes;
        let mut scrape = Scrape::default();
        let (mut turns, mut before) = (0, scrape.footprint());
        let text = loop {
            engine.grant_steps(STEPS);
            let books = (&mut counters, &mut registry);
            let mut context = Context::plain(&mut engine, books, (&settings, &host), client, Time::default());
            let answer = scrape.advance(&mut context);
            turns += 1;
            // The last tube of a turn can exceed the limit.
            assert!(engine.steps().used() <= STEPS + 160, "{} steps in one turn", engine.steps().used());
            if let Some(answer) = answer {
                break answer.expect("figures").1;
            }
            let footprint = scrape.footprint();
            assert!(footprint <= before + (1 << 20) + 64 * STEPS, "{footprint} bytes after {before}");
            before = footprint;
        };
        let bytes: Vec<u8> = text.chunks().flatten().copied().collect();
        assert!(before >= bytes.len() as u64 * 9 / 10, "{before} of {} bytes are accounted", bytes.len());
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"beanpole_tube_jobs_total{"));
        (turns, bytes.len(), lines.count())
    }

    #[test]
    fn scrape_of_many_tubes_takes_many_turns_and_is_accounted() {
        let (turns, bytes, lines) = scrape_many(usize::MAX);
        assert_eq!(lines, 100_001);
        assert!(bytes > 40 << 20 && turns > bytes as u64 / 64 / 1024, "{bytes} bytes in {turns} turns");
        let (turns, bytes, lines) = scrape_many(1000);
        assert_eq!(lines, 1000);
        assert!(turns < 400 && bytes < 1 << 20, "{bytes} bytes in {turns} turns: other tubes are only counted");
    }
}
