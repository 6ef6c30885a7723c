//! The lists of workers, failed jobs and schedules in `top`, and the limits on their queries.

use std::collections::BTreeMap;

use crate::ctl::lists;
use crate::ctl::prelude::*;
use crate::engine::State;

/// Seconds after which a waiting job, a reservation or an idle client is highlighted, as on the web page.
pub const LONG: u64 = 300;
/// Seconds after which an idle client is listed if it watches a tube with ready jobs.
const SILENT: u64 = 10;
/// Failed jobs are grouped by at most this many characters at the start of the reason, as on the web page.
const SUMMARY: usize = 120;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Board {
    Workers,
    Failed,
    Schedules,
}

impl Board {
    /// Returns headings and widths. The first and last columns are left-aligned; the last takes the remaining width.
    #[rustfmt::skip]
    pub fn headings(self) -> &'static [(&'static str, usize)] {
        match self {
            Board::Workers => &[
                ("WORKER", 20), ("JOB", 9), ("FOR", 7), ("LEFT", 7), ("PROGRESS", 9), ("SILENT", 7), ("STATE, TUBE", 0),
            ],
            Board::Failed => &[("TUBE", 22), ("JOBS", 8), ("NEWEST", 11), ("REASON", 0)],
            Board::Schedules => &[
                ("SCHEDULE", 22), ("MISSED", 8), ("NEXT", 8), ("RUNS", 8), ("SKIPPED", 8), ("RECURS, TUBE", 0),
            ],
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct BoardRow {
    pub key: String,
    /// The tube to which commands apply, or empty.
    pub tube: String,
    pub job: Option<u64>,
    pub group: Vec<u64>,
    pub cells: Vec<String>,
    pub is_highlighted: bool,
    pub rank: u64,
}

/// The names of all tubes, and the statistics of the tubes that this poll has queried.
type PolledTubes<'a> = (&'a [String], &'a [(String, StatsReply)]);
type Rows = Result<Vec<BoardRow>>;

/// Rows by tube. A poll replaces the rows of the queried tubes.
#[derive(Debug, Default)]
pub struct Boards {
    board: Option<Board>,
    rows: BTreeMap<String, Vec<BoardRow>>,
    with_ready: Vec<String>,
}

impl Boards {
    /// Returns clients that have reserved a job, wait for a job, or are silent although a watched tube has ready jobs.
    pub fn workers(&mut self, link: &mut Link, (names, tubes): PolledTubes) -> Rows {
        self.with_ready.retain(|tube| names.binary_search(tube).is_ok());
        for (tube, stats) in tubes {
            match (self.with_ready.binary_search(tube), stats.number("current-jobs-ready") > 0) {
                (Ok(at), false) => drop(self.with_ready.remove(at)),
                (Err(at), true) => self.with_ready.insert(at, tube.clone()),
                _ => {}
            }
        }
        let mut rows = Vec::new();
        lists::each_connection(link, 5000, &mut |it| {
            rows.extend(worker(it, &self.with_ready));
            Ok(())
        })?;
        Ok(rows)
    }

    pub fn poll(&mut self, link: &mut Link, board: Board, (names, tubes): PolledTubes, workers: Rows) -> Rows {
        if self.board.replace(board) != Some(board) {
            self.rows.clear();
        }
        self.rows.retain(|tube, _| names.binary_search(tube).is_ok());
        match board {
            Board::Workers => drop(self.rows.insert(String::new(), workers?)),
            Board::Failed => {
                for (tube, count, jobs) in jobs(link, State::Buried, tubes)? {
                    self.rows.insert(tube.to_owned(), failures(tube, count, &jobs));
                }
            }
            Board::Schedules => {
                for (tube, _, jobs) in jobs(link, State::Scheduled, tubes)? {
                    self.rows.insert(tube.to_owned(), jobs.iter().map(|job| schedule(tube, job)).collect());
                }
            }
        }
        let all: Vec<&BoardRow> = self.rows.values().flatten().collect();
        let order = in_order(all.len(), &|left, right| {
            all[right].rank.cmp(&all[left].rank).then_with(|| all[left].key.cmp(&all[right].key))
        });
        Ok(order.into_iter().map(|index| all[index].clone()).collect())
    }
}

fn worker(it: &StatsReply, with_ready: &[String]) -> Option<BoardRow> {
    let (state, age) = (it.text("state"), it.number("job-age"));
    let (tube, watches) = (it.text("job-tube").to_owned(), it.text("watches"));
    let is_ready = |tube: &str| with_ready.binary_search_by(|other| other[..].cmp(tube)).is_ok();
    let is_stuck = state == "idle" && watches.split(' ').any(is_ready);
    if state == "idle" && !(is_stuck && it.number("idle") >= SILENT) {
        return None;
    }
    let mut cells = vec![lists::who(it)];
    let time = |key: &str| if it.text(key).is_empty() { String::new() } else { span(it.number(key)) };
    cells.push(it.text("job").to_owned());
    cells.extend([time("job-age"), time("time-left"), it.text("progress").to_owned(), time("idle")]);
    let state = if is_stuck { "not reserving" } else { state };
    cells.push(match watches.strip_prefix("default ") {
        _ if state == "working" => format!("{state} {tube}"),
        Some(rest) => format!("{state} {rest} default"),
        None => format!("{state} {watches}"),
    });
    let rank = if state == "working" { age + 2 } else { is_stuck.into() };
    let (key, job) = (it.text("number").to_owned(), it.text("job").parse().ok());
    let is_highlighted = age >= LONG || is_stuck && it.number("idle") >= LONG;
    Some(BoardRow { key, tube, job, cells, is_highlighted, rank, group: Vec::new() })
}

/// A tube, the number of its jobs in a state, and statistics of some of these jobs.
type TubeJobs<'a> = (&'a str, u64, Vec<StatsReply>);

fn jobs<'a>(link: &mut Link, state: State, tubes: &'a [(String, StatsReply)]) -> Result<Vec<TubeJobs<'a>>> {
    let count = |stats: &StatsReply| stats.number(&format!("current-jobs-{}", state.word()));
    let mut found: Vec<TubeJobs> = tubes.iter().map(|(tube, stats)| (&tube[..], count(stats), Vec::new())).collect();
    let with_jobs: Vec<usize> = (0..found.len()).filter(|index| found[*index].1 > 0).collect();
    // One poll queries at most 1,000 jobs per tube, and at most 2,000 jobs in total.
    let share = 1000.min(2000 / with_jobs.len().max(1));
    let (mut ids, mut refused) = (Vec::new(), None);
    let mut lists = with_jobs.iter().map(|index| format!("{} {} 0 {share}", found[*index].0, state.word()));
    ask_each(link, "list-jobs", &mut lists, &mut |number, reply| {
        match first_word(&reply.line) {
            "OK" => ids.extend(yaml::list(&reply.body).into_iter().map(|id| (with_jobs[number], id))),
            "NOT_FOUND" => {}
            _ => refused = Some(refusal("list-jobs", &reply.line)),
        }
        // Do not fail yet: the remaining replies must be read before another command is sent.
        Ok(())
    })?;
    refused.map_or(Ok(()), Err)?;
    ask_each(link, "stats-job", &mut ids.iter().map(|(_, id)| id.clone()), &mut |number, reply| {
        let jobs = &mut found[ids[number].0];
        let stats = stats_of("stats-job", &reply).unwrap_or_default();
        jobs.2.extend(stats.filter(|it| it.text("tube") == jobs.0 && it.text("state") == state.word()));
        Ok(())
    })?;
    Ok(found)
}

/// Groups buried jobs by the first line of their reason.
fn failures(tube: &str, count: u64, jobs: &[StatsReply]) -> Vec<BoardRow> {
    let mut groups: Vec<(String, Vec<u64>)> = Vec::new();
    for job in jobs {
        let reason = job.bytes("last-error");
        let line = reason.split(|&byte| byte == b'\n' || byte == b'\r').next().unwrap_or_default();
        let summary: String = String::from_utf8_lossy(line).chars().take(SUMMARY).collect();
        match groups.iter_mut().find(|(other, _)| *other == summary) {
            Some((_, group)) => group.insert(0, job.number("id")),
            None => groups.push((summary, vec![job.number("id")])),
        }
    }
    let row = |reason: &str, rank: u64, group: Vec<u64>| BoardRow {
        key: format!("{tube} {reason}"),
        tube: tube.to_owned(),
        job: group.first().copied(),
        cells: vec![tube.to_owned(), rank.to_string(), group.first().unwrap_or(&0).to_string(), reason.to_owned()],
        is_highlighted: true,
        rank,
        group,
    };
    let rows = groups.into_iter().map(|(reason, group)| {
        let reason = if reason.is_empty() { "(buried without a reason)" } else { &reason };
        row(reason, group.len() as u64, group)
    });
    let rest = count.saturating_sub(jobs.len() as u64);
    rows.chain((rest > 0).then(|| row("(further jobs, not examined)", rest, Vec::new()))).collect()
}

fn schedule(tube: &str, job: &StatsReply) -> BoardRow {
    let (missed, id) = (job.number("missed"), job.text("id"));
    let name = Some(job.text("idempotency-key")).filter(|name| !name.is_empty());
    let mut cells = vec![name.map_or(format!("job {id}"), str::to_owned), missed.to_string()];
    cells.push(span(job.number("time-left")));
    cells.extend(["runs", "skipped"].map(|key| job.number(key).to_string()));
    cells.push(format!("{}, {tube}", job.recurrence()));
    let (key, tube) = (id.to_owned(), tube.to_owned());
    let (job, group) = (id.parse().ok(), Vec::new());
    BoardRow { key, tube, job, group, cells, is_highlighted: missed > 0, rank: missed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_listed_by_what_they_do() {
        let with_ready = ["a", "mail", "z"].map(str::to_owned);
        let row = |text: &str| worker(&StatsReply::parse(text), &with_ready);
        let last = |text: &str| row(text).map(|row| (row.cells[6].clone(), row.is_highlighted, row.rank));
        let idle = "state: idle\nwatches: default mail\nidle";
        assert_eq!(last(&format!("{idle}: 9")), None, "the client may be about to reserve a job");
        assert_eq!(last(&format!("{idle}: 10")), Some(("not reserving mail default".to_owned(), false, 1)));
        assert_eq!(last(&format!("{idle}: 300")), Some(("not reserving mail default".to_owned(), true, 1)));
        assert_eq!(last("state: idle\nwatches: default\nidle: 300"), None);
        assert_eq!(last("state: waiting\nwatches: default\nidle: 9"), Some(("waiting default".to_owned(), false, 0)));
        let working = "state: working\nwatches: default mail\njob: 7\njob-tube: sms\njob-age";
        assert_eq!(last(&format!("{working}: 299")), Some(("working sms".to_owned(), false, 301)));
        assert_eq!(last(&format!("{working}: 300")), Some(("working sms".to_owned(), true, 302)));
        assert_eq!(
            row("state: waiting\naddress: ::1\nclient: a b").map(|row| row.cells[0].clone()),
            Some("a b".to_owned())
        );
    }
}
