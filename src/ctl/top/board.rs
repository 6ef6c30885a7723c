//! The lists of workers, failed jobs and schedules in `top`.
//!
//! Owns the columns, the sort order and the limits on queries. Must not draw.

use std::collections::BTreeMap;

use crate::ctl::lists;
use crate::ctl::prelude::*;
use crate::engine::State;

/// Jobs per tube in one poll.
const JOBS: usize = 1000;

/// Jobs of all tubes in one poll.
const ALL_JOBS: usize = 2000;

const CONNECTIONS: usize = 5000;

/// Seconds after which a working client is highlighted, as on the web page.
const LONG: u64 = 300;

/// Failed jobs are grouped by this many characters of the reason, as on the web page.
const SUMMARY: usize = 120;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Board {
    Workers,
    Failed,
    Schedules,
}

impl Board {
    /// Returns `Some(None)` for the table of tubes.
    pub fn of_key(key: char) -> Option<Option<Board>> {
        let boards = [None, Some(Board::Workers), Some(Board::Failed), Some(Board::Schedules)];
        boards.into_iter().zip('1'..).find(|(_, other)| *other == key).map(|(board, _)| board)
    }

    /// Returns headings and widths. The first and last columns are left-aligned text, and the last takes the remaining
    /// width.
    pub fn headings(self) -> &'static [(&'static str, usize)] {
        match self {
            Board::Workers => {
                &[("WORKER", 22), ("JOB", 10), ("FOR", 7), ("LEFT", 7), ("DONE", 8), ("IDLE", 7), ("STATE, TUBE", 0)]
            }
            Board::Failed => &[("TUBE", 22), ("JOBS", 8), ("NEWEST", 11), ("REASON", 0)],
            Board::Schedules => {
                &[("SCHEDULE", 22), ("MISSED", 8), ("NEXT", 8), ("RUNS", 8), ("SKIPPED", 8), ("RECURS, TUBE", 0)]
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct BoardRow {
    /// The same in all polls.
    pub key: String,
    /// Commands apply to this tube, unless empty.
    pub tube: String,
    /// Enter opens the job of the row.
    pub job: Option<u64>,
    pub cells: Vec<String>,
    pub is_highlighted: bool,
    pub rank: u64,
}

/// Rows by tube. A poll replaces the rows of the queried tubes.
#[derive(Debug, Default)]
pub struct Boards {
    board: Option<Board>,
    rows: BTreeMap<String, Vec<BoardRow>>,
}

impl Boards {
    /// Returns all rows. `names` are all tubes, and `tubes` contains statistics of those to query.
    pub fn poll(
        &mut self,
        link: &mut Link,
        board: Board,
        names: &[String],
        tubes: &[(String, StatsReply)],
    ) -> Result<Vec<BoardRow>> {
        if self.board.replace(board) != Some(board) {
            self.rows.clear();
        }
        self.rows.retain(|tube, _| names.binary_search(tube).is_ok());
        match board {
            Board::Workers => drop(self.rows.insert(String::new(), workers(link)?)),
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

/// Returns connections that hold or wait for a job.
fn workers(link: &mut Link) -> Result<Vec<BoardRow>> {
    let mut rows = Vec::new();
    lists::each_connection(link, CONNECTIONS, &mut |it: &StatsReply| {
        let (state, name, age) = (it.text("state"), it.text("client"), it.number("job-age"));
        if state == "idle" {
            return Ok(());
        }
        let (tube, is_working) = (it.text("job-tube").to_owned(), state == "working");
        let who = if name.is_empty() { it.text("address") } else { name };
        let mut cells = vec![if who.is_empty() { it.text("protocol") } else { who }.to_owned()];
        let time = |key: &str| if it.text(key).is_empty() { String::new() } else { span(it.number(key)) };
        cells.push(it.text("job").to_owned());
        cells.extend([time("job-age"), time("time-left"), it.text("progress").to_owned(), time("idle")]);
        cells.push(format!("{state} {}", if is_working { &tube } else { it.text("watches") }));
        let rank = if is_working { age + 1 } else { 0 };
        let (key, job) = (it.text("number").to_owned(), it.text("job").parse().ok());
        rows.push(BoardRow { key, tube, job, cells, is_highlighted: rank > LONG, rank });
        Ok(())
    })?;
    Ok(rows)
}

/// A tube, the number of its jobs in a state, and statistics of some of them.
type TubeJobs<'a> = (&'a str, u64, Vec<StatsReply>);

/// `ALL_JOBS` limits the number of jobs in all tubes.
fn jobs<'a>(link: &mut Link, state: State, tubes: &'a [(String, StatsReply)]) -> Result<Vec<TubeJobs<'a>>> {
    let count = |stats: &StatsReply| stats.number(&format!("current-jobs-{}", state.word()));
    let mut found: Vec<TubeJobs> =
        tubes.iter().map(|(tube, stats)| (tube.as_str(), count(stats), Vec::new())).collect();
    let with_jobs: Vec<usize> = (0..found.len()).filter(|index| found[*index].1 > 0).collect();
    let share = JOBS.min(ALL_JOBS / with_jobs.len().max(1));
    let (mut ids, mut refused) = (Vec::new(), None);
    let mut lists = with_jobs.iter().map(|index| format!("{} {} 0 {share}", found[*index].0, state.word()));
    ask_each(link, "list-jobs", &mut lists, &mut |number, reply| {
        match first_word(&reply.line) {
            "OK" => ids.extend(yaml::list(&reply.body).into_iter().map(|id| (with_jobs[number], id))),
            "NOT_FOUND" => {}
            _ => refused = Some(refusal("list-jobs", &reply.line)),
        }
        // Further replies must be read before the next command.
        Ok(())
    })?;
    if let Some(problem) = refused {
        return Err(problem);
    }
    ask_each(link, "stats-job", &mut ids.iter().map(|(_, id)| id.clone()), &mut |number, reply| {
        // The job may have ended, moved, or changed its state.
        let jobs = &mut found[ids[number].0];
        let stats = stats_of("stats-job", &reply).unwrap_or_default();
        jobs.2.extend(stats.filter(|it| it.text("tube") == jobs.0 && it.text("state") == state.word()));
        Ok(())
    })?;
    Ok(found)
}

/// Groups buried jobs by the first line of their reason.
fn failures(tube: &str, count: u64, jobs: &[StatsReply]) -> Vec<BoardRow> {
    let mut groups: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for job in jobs {
        let reason = job.bytes("last-error");
        let line = reason.split(|&byte| byte == b'\n' || byte == b'\r').next().unwrap_or_default();
        let summary: String = String::from_utf8_lossy(line).chars().take(SUMMARY).collect();
        let (jobs, newest) = groups.entry(summary).or_default();
        *jobs += 1;
        *newest = (*newest).max(job.number("id"));
    }
    let row = |reason: &str, jobs: u64, newest: u64| BoardRow {
        key: format!("{tube} {reason}"),
        tube: tube.to_owned(),
        job: Some(newest).filter(|id| *id > 0),
        cells: vec![tube.to_owned(), jobs.to_string(), newest.to_string(), reason.to_owned()],
        is_highlighted: true,
        rank: jobs,
    };
    let mut rows: Vec<BoardRow> = groups
        .iter()
        .map(|(reason, (jobs, newest))| match reason.as_str() {
            "" => row("(buried without a reason)", *jobs, *newest),
            reason => row(reason, *jobs, *newest),
        })
        .collect();
    let rest = count.saturating_sub(jobs.len() as u64);
    if rest > 0 {
        rows.push(row("(further jobs, not examined)", rest, 0));
    }
    rows
}

fn schedule(tube: &str, job: &StatsReply) -> BoardRow {
    let (missed, id) = (job.number("missed"), job.text("id"));
    let name = Some(job.text("idempotency-key")).filter(|name| !name.is_empty());
    let mut cells = vec![name.map_or(format!("job {id}"), str::to_owned), missed.to_string()];
    cells.push(span(job.number("time-left")));
    cells.extend(["runs", "skipped"].map(|key| job.number(key).to_string()));
    cells.push(format!("{}, {tube}", job.recurrence()));
    let (key, tube) = (id.to_owned(), tube.to_owned());
    BoardRow { key, tube, job: id.parse().ok(), cells, is_highlighted: missed > 0, rank: missed }
}

/// Shows the two largest units.
pub fn span(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{:02}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{minutes:02}m"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}
