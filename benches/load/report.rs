//! Formats results as Markdown: a table of work (rates, times and costs), and a table of all other figures.
//!
//! Owns the medians, the ratios, and the verdicts on goals. A ratio is the median of the ratios of paired runs. The
//! runs of a pair follow each other, so that a temporary slowdown of the machine affects both servers.

use super::measure::{Goal, Outcome, Value, Work};
use super::scenario::Scenario;
use super::stats::{median, megabytes, rate, short};

/// Factor by which a ratio must be worse than in earlier results to be reported.
const WORSE: f64 = 1.15;

pub struct Results {
    pub scenario: &'static Scenario,
    pub peer: Vec<Outcome>,
    pub ours: Vec<Outcome>,
    /// `true` if server and client share one CPU and do not wait for a disk. In that case, the goal for the rate
    /// applies to [`Work::busy_rate`], because other programs do not affect processor time.
    pub shared_cpu: bool,
    pub problems: Vec<String>,
}

/// The header of the table of work. [`compare`] depends on the order of the columns. The code in `picture/` depends on
/// the order and on the names.
const WORK_HEAD: &str = "| scenario | what | peer ops/s | ours | × | × by CPU | peer CPU µs/op | ours | × | goal | \
    peer p50 / p99 / p99.9 µs | ours | peer RSS | ours | peer switches/op | ours | threads |\n\
    |---|---|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|\n";

const VALUE_HEAD: &str = "| scenario | figure | peer | ours | × | goal |\n|---|---|--:|--:|--:|---|\n";

impl Results {
    fn works(outcomes: &[Outcome], figure: impl Fn(&Work) -> f64) -> Vec<f64> {
        outcomes.iter().filter_map(|outcome| outcome.work.as_ref()).map(figure).collect()
    }

    /// Returns the medians of the peer and of the server under test, and the median ratio of paired runs.
    fn figure(&self, figure: impl Fn(&Work) -> f64 + Copy) -> [f64; 3] {
        paired(&Results::works(&self.peer, figure), &Results::works(&self.ours, figure))
    }

    fn value(&self, name: &str) -> [f64; 3] {
        let all = |outcomes: &[Outcome]| -> Vec<f64> {
            let values = outcomes.iter().flat_map(|outcome| &outcome.values);
            values.filter(|value| value.name == name).map(|value| value.amount).collect()
        };
        paired(&all(&self.peer), &all(&self.ours))
    }

    /// Returns a row for the table of work, or `None` if no work was measured.
    fn work_row(&self) -> Option<String> {
        self.ours.first().or(self.peer.first())?.work?;
        let [rates, cpu] = [self.figure(|work| work.rate), self.figure(|work| work.cpu)];
        let busy = self.figure(|work| work.busy_rate)[2];
        let judged = if self.shared_cpu { busy } else { rates[2] };
        let times = |side: usize| -> String {
            let shares = [0, 1, 2].map(|share| short(self.figure(|work| work.times[share])[side]));
            shares.join(" / ")
        };
        let pair = |figure: [f64; 3], write: fn(f64) -> String| format!("{} | {}", write(figure[0]), write(figure[1]));
        Some(format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            self.scenario.name,
            self.scenario.about,
            pair(rates, rate),
            short(rates[2]),
            short(busy),
            pair(cpu, short),
            short(cpu[2]),
            self.judgement(judged, cpu[2]),
            times(0),
            times(1),
            pair(self.figure(|work| work.rss), megabytes),
            pair(self.figure(|work| work.switches), short),
            short(self.figure(|work| work.threads)[1]),
        ))
    }

    /// Returns the goals for the ratios, each with a mark that shows whether the goal is met.
    fn judgement(&self, rates: f64, cpu: f64) -> String {
        let goals = self.scenario.goals;
        let time = |share: usize| self.figure(|work| work.times[share])[2];
        let checks = [
            ("ops", "≥", goals.rate, rates, rates >= goals.rate),
            ("CPU", "≤", goals.cpu, cpu, cpu <= goals.cpu),
            ("p50", "≤", goals.p50, time(0), time(0) <= goals.p50),
            ("p99", "≤", goals.p99, time(1), time(1) <= goals.p99),
        ];
        let asked = checks.into_iter().filter(|check| check.2.is_finite() && check.3.is_finite());
        let words = asked.map(|(name, sign, goal, is, met)| {
            let is = if name.starts_with('p') { format!(" ({})", short(is)) } else { String::new() };
            format!("{name} {sign} {goal}{is} {}", if met { "✓" } else { "✗" })
        });
        words.collect::<Vec<_>>().join(", ")
    }

    fn value_rows(&self) -> String {
        let values = self.ours.first().or(self.peer.first()).map_or([].as_slice(), |outcome| &outcome.values);
        let row = |value: &Value| {
            let [peer, ours, ratio] = self.value(value.name);
            let (words, met) = match value.goal {
                Goal::None => (String::new(), None),
                Goal::AtMost(goal) => (format!("≤ {goal} "), Some(ours <= goal)),
                Goal::AtLeast(goal) => (format!("≥ {goal} "), Some(ours >= goal)),
                Goal::RatioAtMost(goal) => (format!("≤ {goal} × "), Some(ratio <= goal)),
                Goal::RatioAtLeast(goal) => (format!("≥ {goal} × "), Some(ratio >= goal)),
            };
            let mark = met.filter(|_| ours.is_finite()).map_or("", |met| if met { "✓" } else { "✗" });
            let name = self.scenario.name;
            let figures = [peer, ours, ratio].map(short).join(" | ");
            format!("| {name} | {} | {figures} | {words}{mark} |\n", value.name)
        };
        values.iter().map(row).collect()
    }
}

/// Returns the median of `peer`, the median of `ours`, and the median ratio of paired runs.
fn paired(peer: &[f64], ours: &[f64]) -> [f64; 3] {
    let ratios = peer.iter().zip(ours).map(|(peer, ours)| ours / peer);
    [median(peer.iter().copied()), median(ours.iter().copied()), median(ratios)]
}

pub fn tables(all: &[Results]) -> String {
    let mut text = String::new();
    let rows: String = all.iter().filter_map(Results::work_row).collect();
    if !rows.is_empty() {
        text += &format!("{WORK_HEAD}{rows}\n");
    }
    let rows: String = all.iter().map(Results::value_rows).collect();
    if !rows.is_empty() {
        text += &format!("{VALUE_HEAD}{rows}\n");
    }
    let problems = all.iter().flat_map(|results| results.problems.iter().map(|what| (results.scenario.name, what)));
    problems.for_each(|(name, what)| text += &format!("- {name}: {what}\n"));
    text
}

/// Returns messages about ratios that are worse than in the earlier results `before` by more than [`WORSE`].
pub fn compare(all: &[Results], before: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for results in all {
        let name = results.scenario.name;
        let old = before.lines().find_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let ratio = |place: usize| cells.get(place)?.parse::<f64>().ok();
            (cells.len() > 10 && cells[1] == name).then(|| (ratio(6), ratio(9)))
        });
        let Some((old_rate, old_cpu)) = old else { continue };
        let [rate, cpu] = [results.figure(|work| work.busy_rate)[2], results.figure(|work| work.cpu)[2]];
        let mut check = |what: &str, old: Option<f64>, new: f64, worse: fn(f64, f64) -> f64| {
            if old.is_some_and(|old| worse(old, new) > WORSE) {
                warnings.push(format!(
                    "{name}: {what} {} × the peer's; it was {}",
                    short(new),
                    short(old.unwrap_or(new))
                ));
            }
        };
        check("operations by CPU are", old_rate, rate, |old, new| old / new);
        check("CPU per operation is", old_cpu, cpu, |old, new| new / old);
    }
    warnings
}
