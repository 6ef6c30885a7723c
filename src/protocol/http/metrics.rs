//! Figures for Prometheus, in its text format 0.0.4.
//!
//! Owns the names of metrics: the server's own, and those of exporters that were written for beanstalkd and gearmand,
//! which dashboards know. Tubes are written in several turns, each metric apart, since the format wants all of one
//! together. Must not measure anything.

use std::collections::BTreeSet;

use super::types::Failure;
use super::HttpSettings;
use crate::engine::{FindOldest, JobCounts, Progress, Span, State, Stats, TubeStats};
use crate::protocol::beanstalk::{extended_counts, FigureValue, QueueFigures, SERVER_FIGURES, TUBE_FIGURES};
use crate::protocol::sums::VisibleSums;
use crate::protocol::text::{has_part, metric_label};
use crate::protocol::{sees, CommandPlace, Context, Output, Wire};
use crate::shared::log_figures::Health;
use crate::shared::role::{Role, RoleFigures};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    Native,
    /// Those of messagebird's exporter: keys of beanstalkd with nothing before them, all gauges.
    Messagebird,
    Davidtannock,
    /// Those of the one in PyPI.
    Pypi,
}

impl Names {
    pub fn read(text: &[u8]) -> Option<Names> {
        match text {
            b"native" => Some(Names::Native),
            b"messagebird" => Some(Names::Messagebird),
            b"davidtannock" => Some(Names::Davidtannock),
            b"pypi" => Some(Names::Pypi),
            _ => None,
        }
    }

    /// What a key of beanstalkd's statistics is called, and what it is.
    fn of(self, key: &str, is_tube: bool) -> (String, &'static str) {
        let tube = if is_tube { "tube_" } else { "" };
        let plain = format!("{tube}{}", key.replace('-', "_"));
        match self {
            Names::Native | Names::Messagebird => (plain, "gauge"),
            Names::Pypi => (format!("beanstalk_{plain}"), "gauge"),
            Names::Davidtannock if key.starts_with("cmd-") => (format!("beanstalkd_{plain}_total"), "counter"),
            Names::Davidtannock if key.starts_with("pause") => (format!("beanstalkd_{plain}_seconds_total"), "gauge"),
            Names::Davidtannock => (format!("beanstalkd_{plain}_count"), "gauge"),
        }
    }
}

/// A metric: its name, its type, what it tells.
pub type Family = (&'static str, &'static str, &'static str);

/// The server's own metrics, in the order in which they are told; those of tubes come behind the histograms.
#[rustfmt::skip]
pub const FAMILIES: [Family; 65] = [
    ("beanpole_build_info", "gauge", "Version of the running server."),
    ("beanpole_jobs", "gauge", "Number of jobs by state."),
    ("beanpole_jobs_urgent", "gauge", "Number of ready jobs with a priority below 1024."),
    ("beanpole_oldest_job_age_seconds", "gauge", "Time since the oldest ready, delayed and buried jobs were put."),
    ("beanpole_tubes", "gauge", "Number of tubes."),
    ("beanpole_connections", "gauge", "Number of connections by protocol."),
    ("beanpole_workers", "gauge", "Number of connections that have requested a job."),
    ("beanpole_producers", "gauge", "Number of connections that have put a job."),
    ("beanpole_waiting", "gauge", "Number of connections that are waiting for a job."),
    ("beanpole_memory_bytes", "gauge", "Memory that clients cause, by purpose."),
    ("beanpole_memory_limit_bytes", "gauge", "Limit for the total memory that clients cause."),
    ("beanpole_draining", "gauge", "1 if the server does not accept new jobs."),
    ("beanpole_jobs_total", "counter", "Number of jobs put."),
    ("beanpole_commands_total", "counter", "Number of commands by protocol."),
    ("beanpole_job_timeouts_total", "counter", "Number of reservations that ended with the time to run."),
    ("beanpole_jobs_expired_total", "counter", "Number of jobs whose time to live ended."),
    ("beanpole_schedule_runs_total", "counter", "Number of copies that schedules have put."),
    ("beanpole_schedule_skips_total", "counter", "Number of runs skipped because the last copy still existed."),
    ("beanpole_schedule_delay_seconds", "gauge", "Time for which a run has been overdue."),
    ("beanpole_connections_total", "counter", "Number of accepted connections, without HTTP."),
    ("beanpole_connections_rejected_total", "counter", "Number of rejected connections."),
    ("beanpole_connections_dropped_total", "counter", "Number of connections closed because memory was short."),
    ("beanpole_connections_limit", "gauge", "Maximum number of connections."),
    ("beanpole_auth_failures_total", "counter", "Number of failed authentications."),
    ("beanpole_binlog_up", "gauge", "1 if the binlog can be written."),
    ("beanpole_binlog_bytes", "gauge", "Size of the binlog on disk."),
    ("beanpole_binlog_records_total", "counter", "Number of records written to the binlog, including those copied by compaction."),
    ("beanpole_binlog_lost_segments_total", "counter", "Number of binlog files removed by something other than the server."),
    ("beanpole_binlog_skipped_records", "gauge", "Number of records that could not be read at startup."),
    ("beanpole_active", "gauge", "1 if this server is the active one of several."),
    ("beanpole_epoch", "gauge", "Epoch of the active server."),
    ("beanpole_journal_entry", "gauge", "Number of the last journal entry that this server has."),
    ("beanpole_journal_entries_total", "counter", "Number of entries that this server has appended to the journal."),
    ("beanpole_journal_written_bytes_total", "counter", "Bytes that this server has appended to the journal."),
    ("beanpole_journal_retries_total", "counter", "Number of journal appends whose result was unknown at first."),
    ("beanpole_journal_bytes", "gauge", "Size of the journal in etcd."),
    ("beanpole_journal_quota_bytes", "gauge", "Maximum size of the journal in etcd."),
    ("beanpole_journal_lag_seconds", "gauge", "Time since this standby last had all entries of the journal."),
    ("beanpole_lease_renewal_failures_total", "counter", "Number of failed renewals of this active server's lease."),
    ("process_cpu_seconds_total", "counter", "CPU time of the process."),
    ("process_resident_memory_bytes", "gauge", "Resident memory of the process."),
    ("process_start_time_seconds", "gauge", "Start time of the process since the Unix epoch."),
    ("process_open_fds", "gauge", "Number of open file descriptors."),
    ("process_max_fds", "gauge", "Maximum number of open file descriptors."),
    ("beanpole_job_wait_seconds", "histogram", "Time from the put, or the end of the delay, to the first reservation."),
    ("beanpole_job_run_seconds", "histogram", "Time from the reservation, or the last touch, to completion."),
    ("beanpole_binlog_sync_seconds", "histogram", "Duration of binlog syncs."),
    ("beanpole_turn_seconds", "histogram", "Time for which a turn holds the queue."),
    ("beanpole_tubes_omitted", "gauge", "Number of tubes omitted because of --metrics-tubes."),
    ("beanpole_tube_jobs", "gauge", "Number of jobs of a tube by state."),
    ("beanpole_tube_jobs_total", "counter", "Number of jobs put into a tube."),
    ("beanpole_tube_deleted_total", "counter", "Number of jobs deleted from a tube, completed or not."),
    ("beanpole_tube_waiting", "gauge", "Number of connections that watch a tube and are waiting for a job."),
    ("beanpole_tube_watching", "gauge", "Number of connections that watch a tube."),
    ("beanpole_tube_pause_left_seconds", "gauge", "Remaining time of a tube's pause."),
    ("beanpole_tube_oldest_job_age_seconds", "gauge", "Like beanpole_oldest_job_age_seconds, for one tube."),
    ("beanpole_tube_timeouts_total", "counter", "Number of reservations in a tube that ended with the time to run."),
    ("beanpole_tube_releases_total", "counter", "Number of jobs of a tube that workers released."),
    ("beanpole_tube_buries_total", "counter", "Number of jobs of a tube that were buried."),
    ("beanpole_tube_job_wait_seconds", "histogram", "Like beanpole_job_wait_seconds, for one tube."),
    ("beanpole_tube_job_run_seconds", "histogram", "Like beanpole_job_run_seconds, for one tube."),
    ("gearman_jobs", "gauge", "Number of jobs of a function, queued or running."),
    ("gearman_jobs_running", "gauge", "Number of running jobs of a function."),
    ("gearman_jobs_waiting", "gauge", "Number of queued jobs of a function."),
    ("gearman_workers", "gauge", "Number of workers that can execute a function."),
];

/// The families that only one of several servers has.
pub const JOURNAL: std::ops::Range<usize> = 29..39;

/// The first family of tubes in the table, the first of Gearman's, and where those end.
const TUBES: usize = 49;
const GEARMAN: usize = 61;

/// Places among the metrics of tubes.
const AGES: usize = 6;
const EVENTS: usize = 7;
const WAIT: usize = 10;
const RUN: usize = 11;

/// How many passes over the tubes there are, if not all can be shown.
const RANKS: u8 = 3;

/// Bytes of account of a name that was shown, beside its own.
const SHOWN_COST: u64 = 48;

/// Which tubes a scrape is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TubeChoice {
    /// The tube with this name alone.
    pub only: Option<Box<[u8]>>,
    /// Those whose names contain this text.
    pub filter: Box<[u8]>,
    /// Those with a job in this state.
    pub state: Option<State>,
}

impl TubeChoice {
    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> usize {
        self.filter.len() + self.only.as_ref().map_or(0, |name| name.len())
    }

    fn includes(&self, tube: &TubeStats) -> bool {
        let mut jobs = tube.jobs;
        let has_jobs = self.state.is_none_or(|state| jobs.sum(&[state]) > 0);
        has_jobs && has_part(tube.name, &self.filter)
    }
}

/// The pass in which a tube is shown: the tubes that an operator misses most come first.
fn rank(tube: &TubeStats) -> u8 {
    match (tube.jobs.buried, tube.jobs.all()) {
        (0, 0) => 2,
        (0, _) => 1,
        _ => 0,
    }
}

/// Figures on their way out.
#[derive(Debug)]
pub struct Scrape {
    names: Names,
    choice: TubeChoice,
    sums: VisibleSums,
    /// What the client may see of the server's figures, once that is known.
    stats: Option<Stats>,
    /// The number of the next tube.
    next: u32,
    pass: u8,
    /// There are more tubes than may be shown.
    is_ranked: bool,
    /// Tubes that were asked for and may be seen.
    matching: usize,
    /// The names of tubes that were shown; those leave it whose ages are found.
    shown: BTreeSet<Box<[u8]>>,
    shown_count: usize,
    names_size: u64,
    /// Of the queue, and then of the tubes, one after the other.
    oldest: FindOldest,
    ages: Option<[Span; 3]>,
    most: usize,
    gearman: bool,
    /// The samples of each metric of tubes.
    samples: Vec<Output>,
}

impl Scrape {
    pub fn new(names: Names, choice: TubeChoice, settings: &HttpSettings) -> Scrape {
        let count = if names == Names::Native { FAMILIES.len() - TUBES } else { TUBE_FIGURES.len() };
        let samples = std::iter::repeat_with(Output::new).take(count).collect();
        Scrape {
            names,
            choice,
            sums: VisibleSums::default(),
            stats: None,
            next: 0,
            pass: 0,
            is_ranked: false,
            matching: 0,
            shown: BTreeSet::new(),
            shown_count: 0,
            names_size: 0,
            oldest: FindOldest::default(),
            ages: None,
            most: settings.metrics_tubes,
            gearman: settings.spoken.contains(&Wire::Gearman),
            samples,
        }
    }

    /// Bytes of memory that it takes.
    pub fn footprint(&self) -> u64 {
        let own = (size_of::<Scrape>() + self.choice.footprint()) as u64 + self.names_size;
        own + self.samples.iter().map(|samples| samples.footprint()).sum::<u64>()
    }

    /// Shows a tube, unless its name was shown before; how many bytes came of it.
    fn show(&mut self, tube: &TubeStats) -> usize {
        if !self.shown.insert(tube.name.into()) {
            return 0;
        }
        self.shown_count += 1;
        self.names_size += SHOWN_COST + tube.name.len() as u64;
        self.add(tube)
    }

    /// Goes on with the passes over the tubes.
    fn show_tubes(&mut self, context: &mut Context) -> Progress {
        let Context { engine, access, now, .. } = context;
        self.is_ranked |= self.pass == 0 && self.next == 0 && engine.stats().tubes > self.most;
        while self.pass < RANKS {
            let mut next = self.next;
            let progress = engine.walk_tubes(&mut next, *now, |tube| {
                if !self.choice.includes(tube) || !sees(access, tube.name) {
                    return 0;
                }
                self.matching += usize::from(self.pass == 0);
                let is_due = !self.is_ranked || rank(tube) == self.pass;
                if is_due && self.shown_count < self.most {
                    self.show(tube)
                } else {
                    0
                }
            });
            let is_over = self.pass > 0 && self.shown_count >= self.most;
            if progress == Progress::More && !is_over {
                self.next = next;
                return Progress::More;
            }
            self.next = 0;
            self.pass = if is_over || !self.is_ranked { RANKS } else { self.pass + 1 };
        }
        Progress::Done
    }

    /// Goes on with the ages of the oldest jobs.
    #[expect(clippy::indexing_slicing, reason = "there are samples for each row of tubes")]
    fn find_ages(&mut self, context: &mut Context) -> Progress {
        let Context { engine, now, .. } = context;
        loop {
            if engine.find_oldest(&mut self.oldest) == Progress::More {
                return Progress::More;
            }
            let ages = self.oldest.ages(*now);
            if self.ages.is_none() {
                self.ages = Some(ages);
            } else {
                let (name, family) = (metric_label(self.oldest.tube()), FAMILIES[TUBES + AGES].0);
                for (state, age) in AGED.iter().zip(ages) {
                    let age = seconds(age.nanos().into());
                    let line = format!("{family}{{tube=\"{name}\",state=\"{state}\"}} {age}\n");
                    self.samples[AGES].text().extend_from_slice(line.as_bytes());
                }
            }
            engine.take_steps(LINES);
            let Some(name) = self.shown.pop_first() else { return Progress::Done };
            self.oldest = FindOldest::new(name);
        }
    }

    #[expect(clippy::indexing_slicing, reason = "there are samples for each row of tubes, and the places are theirs")]
    fn add(&mut self, tube: &TubeStats) -> usize {
        let name = metric_label(tube.name);
        let mut bytes = 0;
        let names = self.names;
        let mut line = |place: usize, key: &str, more: &str, value: &str| {
            let family = match names {
                Names::Native => FAMILIES[TUBES + place].0,
                names => &names.of(TUBE_FIGURES[place].name, true).0,
            };
            let line = format!("{family}{{{key}=\"{name}\"{more}}} {value}\n");
            self.samples[place].text().extend_from_slice(line.as_bytes());
            bytes += line.len();
        };
        if names != Names::Native {
            for (place, key) in TUBE_FIGURES.iter().enumerate() {
                line(place, "tube", "", &(key.of)(tube).to_string());
            }
            return bytes;
        }
        for (state, count) in states(&tube.jobs) {
            line(0, "tube", &format!(",state=\"{state}\""), &count.to_string());
        }
        let values = [tube.total_jobs, tube.deletes, tube.waiting as u64, tube.watching.into()];
        for (place, value) in (1..).zip(values) {
            line(place, "tube", "", &value.to_string());
        }
        line(5, "tube", "", &seconds(tube.pause_left.nanos().into()));
        if self.gearman {
            let waiting = tube.jobs.ready + tube.jobs.delayed;
            let values = [waiting + tube.jobs.reserved, tube.jobs.reserved, waiting, tube.watching.into()];
            for (place, value) in (GEARMAN - TUBES..).zip(values) {
                line(place, "function", "", &value.to_string());
            }
        }
        if let Some(times) = tube.times {
            let events = times.events;
            for (place, value) in (EVENTS..).zip([events.timeouts, events.releases, events.buries]) {
                line(place, "tube", "", &value.to_string());
            }
            for (place, latency) in [(WAIT, &times.wait), (RUN, &times.run)] {
                let text = self.samples[place].text();
                let before = text.len();
                let (whole, labels) = ((latency.samples(), latency.sum_nanos()), format!("tube=\"{name}\","));
                push_histogram(text, FAMILIES[TUBES + place].0, &labels, &mut latency.buckets(), whole);
                bytes += text.len() - before;
            }
        }
        bytes
    }
}

/// Goes on with the tubes; when that is done, the whole text, or why there is none.
pub fn go_on(mut scrape: Box<Scrape>, context: &mut Context) -> Result<Result<Output, Failure>, Box<Scrape>> {
    if scrape.stats.is_none() && !context.sees_all() {
        scrape.stats = scrape.sums.go_on(context);
        if scrape.stats.is_none() {
            return Err(scrape);
        }
    }
    if let Some(only) = scrape.choice.only.take() {
        let Some(tube) = context.engine.tube_stats(&only, context.now) else {
            return Ok(Err(Failure::new(404, "there is no such tube")));
        };
        scrape.show(&tube);
        (scrape.matching, scrape.pass) = (1, RANKS);
    }
    if scrape.show_tubes(context) == Progress::More {
        return Err(scrape);
    }
    // The older names have no ages.
    if scrape.names == Names::Native && scrape.find_ages(context) == Progress::More {
        return Err(scrape);
    }
    Ok(Ok(finish(*scrape, context)))
}

/// The text: what concerns the whole server, then tubes.
fn finish(scrape: Scrape, context: &Context) -> Output {
    let mut out = Output::new();
    let Scrape { names, gearman, samples, stats, ages, matching, shown_count, .. } = scrape;
    let figures = QueueFigures::of(stats.unwrap_or_else(|| context.stats()), context);
    if names != Names::Native {
        older(names, &figures, out.text());
        for (key, mut samples) in TUBE_FIGURES.iter().zip(samples) {
            let (name, kind) = names.of(key.name, true);
            family(out.text(), &name, kind, key.name);
            out.append(&mut samples);
        }
        return out;
    }
    let mut page = Page { text: out.text(), next: 0 };
    let ages = ages.filter(|_| context.sees_all());
    whole_server(&mut page, &figures, ages, context);
    histograms(&mut page, context);
    page.number(matching.saturating_sub(shown_count) as u64);
    for ((name, kind, help), mut samples) in FAMILIES[TUBES..].iter().zip(samples) {
        if gearman || !name.starts_with("gearman") {
            family(out.text(), name, kind, help);
            out.append(&mut samples);
        }
    }
    if gearman {
        family(out.text(), "gearman_up", "gauge", "Gearman is spoken here.");
        out.text().extend_from_slice(b"gearman_up 1\n");
    }
    out
}

/// The server's figures under older names.
fn older(names: Names, figures: &QueueFigures, text: &mut Vec<u8>) {
    let mut one = |key: &str, value: u64| {
        let (name, kind) = names.of(key, false);
        family(text, &name, kind, key);
        text.extend_from_slice(format!("{name} {value}\n").as_bytes());
    };
    for row in &SERVER_FIGURES {
        if let FigureValue::Number(number) = (row.of)(figures) {
            one(row.name, number);
        }
    }
    extended_counts(figures, |_| true).for_each(|(key, count)| one(&key, count));
    if names == Names::Pypi {
        family(text, "beanstalk_up", "gauge", "The server answers.");
        text.extend_from_slice(b"beanstalk_up 1\n");
    }
}

/// The native metrics in the order of the table.
struct Page<'a> {
    text: &'a mut Vec<u8>,
    next: usize,
}

impl Page<'_> {
    /// Begins the next metric; tells its name.
    #[expect(clippy::indexing_slicing, reason = "a test scrapes, and finds each row of the table")]
    fn begin(&mut self) -> &'static str {
        let (name, kind, help) = FAMILIES[self.next];
        self.next += 1;
        family(self.text, name, kind, help);
        name
    }

    fn value(&mut self, value: &str) {
        let name = self.begin();
        self.text.extend_from_slice(format!("{name} {value}\n").as_bytes());
    }

    fn number(&mut self, value: u64) {
        self.value(&value.to_string());
    }

    /// Nothing but the head, if the client may not see all.
    fn ages(&mut self, ages: Option<[Span; 3]>) {
        let name = self.begin();
        for (state, age) in AGED.iter().zip(ages.into_iter().flatten()) {
            let age = seconds(age.nanos().into());
            self.text.extend_from_slice(format!("{name}{{state=\"{state}\"}} {age}\n").as_bytes());
        }
    }

    fn labelled<'l>(&mut self, key: &str, samples: impl IntoIterator<Item = (&'l str, u64)>) {
        let name = self.begin();
        for (value, number) in samples {
            self.text.extend_from_slice(format!("{name}{{{key}=\"{value}\"}} {number}\n").as_bytes());
        }
    }
}

/// Of the oldest jobs in which states the ages are told.
const AGED: [&str; 3] = ["ready", "delayed", "buried"];

/// Steps of the lines of ages of a tube.
const LINES: u64 = 4;

fn whole_server(page: &mut Page, figures: &QueueFigures, ages: Option<[Span; 3]>, context: &Context) {
    let (stats, facts) = (&figures.stats, figures.facts);
    page.labelled("version", [(&*facts.version, 1)]);
    page.labelled("state", states(&stats.jobs));
    page.number(stats.jobs.urgent);
    page.ages(ages);
    page.number(stats.tubes as u64);
    page.labelled("protocol", Wire::ALL.iter().map(|wire| wire.name()).zip(figures.connections));
    page.number(stats.workers as u64);
    page.number(stats.producers as u64);
    page.number(stats.waiting as u64);
    let memory = &stats.memory;
    let kinds =
        [("jobs", memory.jobs), ("tubes", memory.tubes), ("watches", memory.watches), ("buffers", memory.buffers)];
    page.labelled("kind", kinds);
    page.number(stats.max_memory);
    page.number(stats.draining.into());
    page.number(stats.total_jobs);
    let name = page.begin();
    for place in CommandPlace::all().filter(|place| place.is_taken()) {
        let (wire, word, second) = place.name();
        if context.settings.http.spoken.contains(&wire) {
            let (protocol, space) = (wire.name(), if second.is_empty() { "" } else { " " });
            let count = figures.counters.of(place);
            let line = format!("{name}{{protocol=\"{protocol}\",command=\"{word}{space}{second}\"}} {count}\n");
            page.text.extend_from_slice(line.as_bytes());
        }
    }
    page.number(stats.timeouts);
    page.number(stats.evicted);
    let (runs, skips) = context.engine.schedule_totals();
    page.number(runs);
    page.number(skips);
    page.number(context.engine.schedule_delay(context.now).secs());
    page.number(stats.total_connections);
    page.number(figures.usage.rejected_connections);
    page.number(figures.usage.dropped_connections);
    page.number(facts.max_connections as u64);
    page.number(figures.usage.failed_auths);
    let log = figures.log;
    page.number(log.is_some_and(|log| log.health == Health::Ok).into());
    page.number(log.map_or(0, |log| log.disk));
    let (written, migrated) = log.map_or((0, 0), |log| (log.written, log.migrated));
    page.labelled("kind", [("written", written), ("migrated", migrated)]);
    page.number(log.map_or(0, |log| log.lost));
    page.number(log.map_or(0, |log| log.skipped));
    journal(page, context.host.role());
    page.value(&seconds(u128::from(figures.usage.user_micros + figures.usage.system_micros) * 1000));
    page.number(figures.usage.resident);
    page.value(&seconds(facts.started.nanos().into()));
    page.number(figures.usage.open_files);
    page.number(facts.max_files as u64);
}

/// How one of several servers does; nothing of a server that is alone.
fn journal(page: &mut Page, figures: Option<RoleFigures>) {
    let Some(figures) = figures else {
        page.next = JOURNAL.end;
        return;
    };
    page.number((figures.role == Role::Active).into());
    let RoleFigures { epoch, entry, written, bytes, retries, used, quota, .. } = figures;
    [epoch, entry, written, bytes, retries, used, quota].into_iter().for_each(|number| page.number(number));
    page.value(&seconds(figures.lag().as_nanos()));
    page.number(figures.failed_renewals);
}

fn histograms(page: &mut Page, context: &Context) {
    let times = context.engine.job_times();
    let latencies = context.host.latencies();
    // Those of jobs cannot be told apart by tubes.
    let (wait, run) = (Some(&times.wait), Some(&times.run));
    let [wait, run] = [wait, run].map(|times| times.filter(|_| context.sees_all()));
    for histogram in [wait, run, latencies.syncs.as_ref(), latencies.turns.as_ref()] {
        let name = page.begin();
        if let Some(histogram) = histogram {
            let whole = (histogram.count(), histogram.sum_nanos());
            push_histogram(page.text, name, "", &mut histogram.buckets(), whole);
        }
    }
}

/// The samples of a histogram: how many times were shorter than each bound, how many there are, and their sum. Each of
/// its labels has a comma behind it.
fn push_histogram(
    text: &mut Vec<u8>,
    name: &str,
    labels: &str,
    buckets: &mut dyn Iterator<Item = (u64, u64)>,
    (count, sum): (u64, u128),
) {
    for (bound, shorter) in buckets {
        let bound = seconds(bound.into());
        text.extend_from_slice(format!("{name}_bucket{{{labels}le=\"{bound}\"}} {shorter}\n").as_bytes());
    }
    let (sum, of) = (seconds(sum), labels.strip_suffix(',').map_or(String::new(), |labels| format!("{{{labels}}}")));
    let rest =
        format!("{name}_bucket{{{labels}le=\"+Inf\"}} {count}\n{name}_sum{of} {sum}\n{name}_count{of} {count}\n");
    text.extend_from_slice(rest.as_bytes());
}

fn states(jobs: &JobCounts) -> [(&'static str, u64); 6] {
    let JobCounts { ready, reserved, delayed, buried, held, scheduled, .. } = *jobs;
    let [first, second, third] = [("ready", ready), ("reserved", reserved), ("delayed", delayed)];
    [first, second, third, ("buried", buried), ("held", held), ("scheduled", scheduled)]
}

fn family(text: &mut Vec<u8>, name: &str, kind: &str, help: &str) {
    text.extend_from_slice(format!("# HELP {name} {help}\n# TYPE {name} {kind}\n").as_bytes());
}

/// Nanoseconds in seconds, without idle zeros.
pub fn seconds(nanos: u128) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Body, Engine, Limits, NewJob, Span, Time};
    use crate::protocol::{ClientRegistry, ProtocolSettings};

    #[test]
    fn the_table_is_where_it_is_said_to_be() {
        assert_eq!((FAMILIES[TUBES].0, FAMILIES[GEARMAN].0), ("beanpole_tube_jobs", "gearman_jobs"));
        let of_tubes = [AGES, EVENTS, WAIT, RUN].map(|place| FAMILIES[TUBES + place].0);
        assert_eq!(of_tubes[0], "beanpole_tube_oldest_job_age_seconds");
        assert_eq!(of_tubes[1], "beanpole_tube_timeouts_total");
        assert_eq!(of_tubes[2..], ["beanpole_tube_job_wait_seconds", "beanpole_tube_job_run_seconds"]);
        assert_eq!(
            (FAMILIES[JOURNAL.start].0, FAMILIES[JOURNAL.end].0),
            ("beanpole_active", "process_cpu_seconds_total")
        );
        for (name, kind, help) in FAMILIES {
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            assert!(help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn seconds_and_labels() {
        let shown = [0, 1, 1_000_000, 1_500_000_000, 60_000_000_000].map(seconds);
        assert_eq!(shown, ["0", "0.000000001", "0.001", "1.5", "60"]);
        assert_eq!(metric_label(b"a\"\\\n\xffb"), "a\\\"\\\\\\\\\\n\\\\xffb");
        assert_ne!(metric_label(b"zz\xff"), metric_label(b"zz\\xff"));
    }

    struct SomeHost(crate::protocol::Facts);

    impl crate::protocol::Host for SomeHost {
        fn facts(&self) -> &crate::protocol::Facts {
            &self.0
        }
        fn usage(&self) -> crate::protocol::Usage {
            Default::default()
        }
    }

    /// What scrapes of a server with 100,000 tubes cost that tells of `most`: how many turns each of them took, and how
    /// many bytes and lines of tubes it came to.
    fn scrape_many(most: usize) -> (u64, usize, usize) {
        const STEPS: u64 = 1024;
        let limits = Limits { max_memory: u64::MAX, max_tubes: 1 << 20, hash_secret: 7, ..Limits::NONE };
        let mut engine = Engine::new(limits);
        let client = engine.connect();
        for tube in 0..100_000 {
            let (delay, ttr) = (Span::ZERO, Span::from_secs(1));
            let job = NewJob { pri: 0, delay, ttr, body: Body::default() };
            engine.put_into(client, format!("tube-{tube}").as_bytes(), job, Time::default()).expect("room for a job");
        }
        let (mut counters, mut registry) = (Default::default(), ClientRegistry::new(false));
        let (settings, host) = (ProtocolSettings::default(), SomeHost(Default::default()));
        let http = HttpSettings { metrics_tubes: most, ..HttpSettings::default() };
        let mut scrape = Box::new(Scrape::new(Names::Native, TubeChoice::default(), &http));
        let (mut turns, mut before) = (0, scrape.footprint());
        let text = loop {
            engine.grant_steps(STEPS);
            let books = (&mut counters, &mut registry);
            let mut context = Context::plain(&mut engine, books, (&settings, &host), client, Time::default());
            let rest = go_on(scrape, &mut context);
            turns += 1;
            // One tube more than there were steps for.
            assert!(engine.steps().used() <= STEPS + 160, "{} steps in one turn", engine.steps().used());
            match rest {
                Ok(text) => break text.expect("figures"),
                Err(rest) => scrape = rest,
            }
            let footprint = scrape.footprint();
            assert!(footprint - before <= (1 << 20) + 64 * STEPS, "{footprint} bytes after {before}");
            before = footprint;
        };
        let bytes: Vec<u8> = text.chunks().flatten().copied().collect();
        assert!(before >= bytes.len() as u64 * 9 / 10, "{before} bytes are on account of {}", bytes.len());
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"beanpole_tube_jobs_total{"));
        (turns, bytes.len(), lines.count())
    }

    #[test]
    fn a_scrape_of_very_many_tubes_takes_many_turns_and_is_on_account() {
        let (turns, bytes, lines) = scrape_many(usize::MAX);
        assert_eq!(lines, 100_001);
        assert!(bytes > 40 << 20 && turns > bytes as u64 / 64 / 1024, "{bytes} bytes in {turns} turns");
        let (turns, bytes, lines) = scrape_many(1000);
        assert_eq!(lines, 1000);
        assert!(turns < 400 && bytes < 1 << 20, "{bytes} bytes in {turns} turns: the rest is counted");
    }

    #[test]
    fn older_names_are_those_of_their_exporters() {
        let names =
            |key, is_tube| [Names::Messagebird, Names::Davidtannock, Names::Pypi].map(|names| names.of(key, is_tube).0);
        assert_eq!(
            names("current-jobs-ready", false),
            ["current_jobs_ready", "beanstalkd_current_jobs_ready_count", "beanstalk_current_jobs_ready"]
        );
        assert_eq!(names("cmd-put", false), ["cmd_put", "beanstalkd_cmd_put_total", "beanstalk_cmd_put"]);
        assert_eq!(
            names("pause-time-left", true)[..2],
            ["tube_pause_time_left", "beanstalkd_tube_pause_time_left_seconds_total"]
        );
    }
}
