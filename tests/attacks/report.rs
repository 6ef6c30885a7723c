//! Prints the results as two tables, one for times and one for memory, followed by the verdict, the notes and the
//! problems of each row.

use std::time::Duration;

use crate::bystander::Times;
use crate::rows::Row;
use crate::trial::{Memory, Seen, MIB};

pub struct Result {
    pub row: &'static Row,
    pub ours: Seen,
    pub peer: Option<Seen>,
}

impl Result {
    pub fn failed(&self) -> bool {
        !self.ours.problems.is_empty()
    }

    /// Fails the row if the bystander's worst round trip exceeded `limit`.
    pub fn judge(&mut self, limit: Duration) {
        if let Some(times) = self.ours.during.filter(|times| times.worst > limit) {
            self.ours.problems.push(format!("the worst round trip took {} ms", millis(times.worst)));
        }
    }

    pub fn line(&self) -> String {
        let verdict = if self.failed() { "FAILED" } else { "ok" };
        let ours = self.ours.took.as_secs_f64();
        let peer = self.peer.as_ref().map_or(String::new(), |peer| format!(" + {:.1} s", peer.took.as_secs_f64()));
        format!("{:5} {:54} {verdict:6} {ours:5.1} s{peer}", self.row.code, self.row.attack)
    }
}

fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1000.0;
    format!("{millis:.*}", usize::from(millis < 100.0) + usize::from(millis < 10.0))
}

fn times(times: Option<Times>) -> String {
    times.map_or("-".to_owned(), |Times { p50, p99, worst }| {
        format!("{} {} {}", millis(p50), millis(p99), millis(worst))
    })
}

fn memory(memory: Option<Memory>) -> String {
    memory.map_or("-".to_owned(), |Memory { start, peak, after }| {
        let after = after.map_or("exited".to_owned(), |after| (after / MIB).to_string());
        format!("{} {} {after}", start / MIB, peak / MIB)
    })
}

pub fn print(results: &[Result]) {
    println!("\nA bystander's round trips (put, reserve, delete) in ms: median, 99 %, worst\n");
    println!("{:5} {:54} {:>20} {:>20} {:>20}", "", "", "without the attack", "beanpole", "beanstalkd");
    for Result { row, ours, peer } in results.iter().filter(|result| result.ours.during.is_some()) {
        let peer = times(peer.as_ref().and_then(|peer| peer.during));
        let (before, during) = (times(ours.before), times(ours.during));
        println!("{:5} {:54} {before:>20} {during:>20} {peer:>20}", row.code, row.attack);
    }
    println!("\nResident memory in MiB: before the attack, peak, afterwards\n");
    println!("{:5} {:54} {:>20} {:>20}", "", "", "beanpole", "beanstalkd");
    for Result { row, ours, peer } in results.iter().filter(|result| result.ours.memory.is_some()) {
        let peer = memory(peer.as_ref().and_then(|peer| peer.memory));
        println!("{:5} {:54} {:>20} {peer:>20}", row.code, row.attack, memory(ours.memory));
    }
    println!("\nRows\n");
    for result in results {
        println!("{}", result.line());
        println!("      expected: {}", result.row.holds);
        seen("beanpole", &result.ours);
        if let Some(peer) = &result.peer {
            seen("beanstalkd", peer);
        }
    }
}

fn seen(who: &str, seen: &Seen) {
    if !seen.notes.is_empty() {
        println!("      {who}: {}", seen.notes.join("; "));
    }
    for problem in &seen.problems {
        println!("      {who} FAILED: {}", problem.trim());
    }
}
