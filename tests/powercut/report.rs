//! Collects and prints the results of a run.
//!
//! Owns the counts, the summary, and the traces that are kept to reproduce failures. Must not check results.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::check::{Check, Problem, SWITCHES};
use crate::history::{History, Plan};
use crate::lanes::End;
use crate::restart::Cut;
use crate::trace::Event;

/// The maximum number of failures of each check to print.
const MAX_PRINTED: usize = 3;

/// The number of marks (lines about commands and replies) to print before a cut.
const MARKS_PRINTED: usize = 25;

/// The directory for the traces of failed restarts.
const KEPT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/powercut");

pub struct Report {
    on: Vec<Check>,
    histories: BTreeMap<&'static str, u64>,
    cuts: BTreeMap<(String, End), u64>,
    /// The number of cuts in all generations except for the first.
    later: u64,
    /// The number of generations that began after a cut.
    continued: u64,
    failures: BTreeMap<Check, Failures>,
}

#[derive(Default)]
struct Failures {
    counts: BTreeMap<&'static str, u64>,
    texts: Vec<String>,
}

impl Report {
    /// Creates a report. Violations of the checks in `also` count as failures, even if these checks are disabled by
    /// default.
    pub fn new(also: &[Check]) -> Report {
        let on = SWITCHES.iter().filter(|(check, on, _)| *on || also.contains(check)).map(|(check, _, _)| *check);
        Report {
            on: on.collect(),
            histories: BTreeMap::new(),
            cuts: BTreeMap::new(),
            later: 0,
            continued: 0,
            failures: BTreeMap::new(),
        }
    }

    fn counts(&self, check: Check) -> bool {
        self.on.contains(&check)
    }

    fn fail(&mut self, check: Check, kind: &'static str, text: impl FnOnce() -> String) {
        let failures = self.failures.entry(check).or_default();
        *failures.counts.entry(kind).or_default() += 1;
        if failures.texts.len() < MAX_PRINTED {
            let text = text();
            failures.texts.push(text.clone());
            if self.counts(check) {
                println!("FAILED: {check:?}: {text}");
            }
        }
    }

    pub fn live(&mut self, history: &mut History, generation: usize) {
        self.continued += u64::from(generation > 0);
        *self.histories.entry(history.plan.kind.name()).or_default() += 1;
        for (check, text) in std::mem::take(&mut history.problems) {
            let Plan { seed, options, kind, .. } = &history.plan;
            self.fail(check, kind.name(), || format!("seed {seed} ({}): {text}", options.join(" ")));
        }
    }

    /// Counts a restart and its violations.
    pub fn judged(&mut self, plan: &Plan, generation: usize, cut: Cut, trace: &Path, problems: Vec<Problem>) {
        *self.cuts.entry((plan.policy.clone(), cut.end)).or_default() += 1;
        self.later += u64::from(generation > 0);
        let mut seen = Vec::new();
        for (check, text) in problems {
            // Counts only the first violation of each check.
            if seen.contains(&check) {
                continue;
            }
            seen.push(check);
            let kind = plan.kind.name();
            let (seed, options) = (plan.seed, plan.options.join(" "));
            self.fail(check, kind, || {
                let kept = keep(seed, generation, trace);
                format!(
                    "{text}\n    {kind}, {options}, generation {generation}; to reproduce: make powercut SEED={seed} RESTARTS=1, \
                     or exactly: make powercut TRACE={} CUT={cut}",
                    kept.display()
                )
            });
        }
    }

    pub fn passed(&self) -> bool {
        !self.failures.keys().any(|check| self.counts(*check))
    }

    pub fn print(&self) {
        let total: u64 = self.cuts.values().sum();
        let (later, continued) = (self.later, self.continued);
        println!(
            "\n{} restarts: {total} cuts checked, {later} of them after other cuts; {continued} continued",
            total + continued
        );
        let list: Vec<String> = self.histories.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        println!("histories: {}", list.join(", "));
        for ((policy, end), count) in &self.cuts {
            let end = if *end == End::Kill { "kills" } else { "power cuts" };
            println!("  {policy:>8}: {count:>6} {end}");
        }
        println!("checked:");
        for (check, _, words) in SWITCHES {
            let failures = self.failures.get(&check);
            let on = if self.counts(check) { "" } else { "disabled, and " };
            let Some(Failures { counts, texts }) = failures else {
                println!("  {check:?}: {words}: {on}passed");
                continue;
            };
            let by_kind: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} in {kind}")).collect();
            println!("  {check:?}: {words}: {on}FAILED: {}", by_kind.join(", "));
            println!("    for example {}", texts[0]);
        }
    }
}

fn keep(seed: u64, generation: usize, trace: &Path) -> PathBuf {
    let path = Path::new(KEPT).join(format!("{seed}-{generation}.trace"));
    let kept = fs::create_dir_all(KEPT).and_then(|()| fs::copy(trace, &path));
    kept.expect("a copy of the trace");
    path
}

/// Prints the last events before a cut, the files that remain after the cut, and the violations.
pub fn show(events: &[Event], cut: Cut, problems: &[Problem]) {
    let left = cut.leave(events);
    let from = events[..cut.count].iter().rev().filter(|event| matches!(event, Event::Mark(_))).nth(MARKS_PRINTED);
    let from = from.map_or(0, |mark| events.iter().position(|event| std::ptr::eq(event, mark)).unwrap_or(0));
    for (place, event) in events[..cut.count].iter().enumerate().skip(from) {
        let text = match event {
            Event::Mark(text) => text.clone(),
            Event::Write { handle, place, bytes } => format!("  write {handle} at {place}, {} bytes", bytes.len()),
            other => format!("  {other:?}"),
        };
        println!("{place:>6} {text}");
    }
    println!("remaining files ({}), {} history: {:?}", left.mood, left.heading.kind, left.rule);
    left.files.iter().for_each(|(path, bytes)| println!("  {path}: {} bytes", bytes.len()));
    for (number, lane) in &left.lanes {
        let span = lane.span(left.rule);
        println!(
            "lane {number}: {} of {} changes are guaranteed, or {} with other clients' replies",
            span.least,
            span.changes.len(),
            span.heard
        );
    }
    problems.iter().for_each(|(check, text)| println!("{check:?}: {text}"));
    println!("{} problems", problems.len());
}
