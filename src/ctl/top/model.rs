//! The data model of `top`: rates, the columns of the tube table, sorting and filtering.

use std::{collections::VecDeque, time::Instant};

use super::board::{Board, BoardRow};
use crate::ctl::prelude::*;

pub const HISTORY: usize = 60;

pub struct Column {
    pub head: &'static str,
    pub key: char,
    /// The width in characters. 0 means the remaining width.
    pub width: usize,
    /// A key in the server's reply, or empty.
    stat: &'static str,
}

pub const COLUMNS: [Column; 10] = [
    Column { head: "TUBE", key: 't', width: 0, stat: "" },
    Column { head: "READY", key: 'r', width: 7, stat: "current-jobs-ready" },
    Column { head: "RESVD", key: 'e', width: 6, stat: "current-jobs-reserved" },
    Column { head: "DELAY", key: 'd', width: 6, stat: "current-jobs-delayed" },
    Column { head: "BURIED", key: 'b', width: 6, stat: "current-jobs-buried" },
    Column { head: "OTHER", key: 'o', width: 5, stat: "" },
    Column { head: "WAIT", key: 'w', width: 5, stat: "current-waiting" },
    Column { head: "PUT/S", key: 'u', width: 6, stat: "" },
    Column { head: "DONE/S", key: 'n', width: 6, stat: "" },
    Column { head: "PAUSED", key: 'a', width: 6, stat: "pause-time-left" },
];

#[derive(Clone, Debug, Default)]
pub struct TubeRow {
    pub name: String,
    pub cells: [u64; 9],
    /// The age of the oldest ready job in seconds.
    pub oldest: u64,
    totals: Option<Totals>,
}

#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub stats: StatsReply,
    pub puts: VecDeque<u64>,
    pub done: u64,
    pub longest: Option<(String, String)>,
    totals: Option<Totals>,
}

#[derive(Clone, Copy, Debug)]
struct Totals {
    puts: u64,
    deletes: u64,
    at: Instant,
}

impl Totals {
    fn rates_since(self, old: Totals) -> (u64, u64) {
        let millis = (self.at - old.at).as_millis().max(1) as u64;
        let rate = |before: u64, now: u64| (now.saturating_sub(before).saturating_mul(1000) + millis / 2) / millis;
        (rate(old.puts, self.puts), rate(old.deletes, self.deletes))
    }
}

pub struct Poll {
    pub at: Instant,
    pub server: StatsReply,
    pub names: Vec<String>,
    pub tubes: Vec<(String, StatsReply)>,
    pub refused: Vec<String>,
    /// The tube and the duration of the longest reservation, if the list of workers highlights this reservation.
    pub longest: Option<(String, String)>,
}

#[derive(Debug, Default)]
pub struct Model {
    pub summary: Summary,
    pub(super) tubes: Vec<TubeRow>,
    pub filter: String,
    pub sort: usize,
    pub is_reversed: bool,
    pub board: Option<Board>,
    pub lines: Vec<BoardRow>,
    pub listing: Listing,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Listing {
    #[default]
    Loading,
    Loaded,
    Refused,
}

impl Model {
    pub fn take(&mut self, poll: Poll) {
        let totals = |stats: &StatsReply, puts: &str| {
            let (puts, deletes) = (stats.number(puts), stats.number("cmd-delete"));
            Totals { puts, deletes, at: poll.at }
        };
        let now = totals(&poll.server, "cmd-put");
        if let Some(old) = self.summary.totals.replace(now) {
            let (put, done) = now.rates_since(old);
            self.summary.puts.push_back(put);
            self.summary.done = done;
        }
        while self.summary.puts.len() > HISTORY {
            self.summary.puts.pop_front();
        }
        (self.summary.stats, self.summary.longest) = (poll.server, poll.longest);
        // Keep the rows of existing tubes. Both lists are sorted by name.
        let mut known = std::mem::take(&mut self.tubes).into_iter().peekable();
        for name in poll.names {
            while known.next_if(|tube| tube.name < name).is_some() {}
            let old = known.next_if(|tube| tube.name == name);
            self.tubes.push(old.unwrap_or_else(|| TubeRow { name, ..TubeRow::default() }));
        }
        for (name, stats) in poll.tubes {
            let Ok(index) = self.tubes.binary_search_by(|tube| tube.name.cmp(&name)) else { continue };
            let tube = &mut self.tubes[index];
            let now = totals(&stats, "total-jobs");
            tube.cells = std::array::from_fn(|cell| stats.number(COLUMNS[cell + 1].stat));
            tube.cells[4] = stats.other_jobs();
            tube.oldest = stats.number("oldest-ready-age");
            (tube.cells[6], tube.cells[7]) = tube.totals.replace(now).map_or((0, 0), |old| now.rates_since(old));
        }
    }

    /// Returns the rows that match the filter, sorted by ascending name or descending number, or in reverse order.
    pub fn rows(&self) -> Vec<&TubeRow> {
        let mut rows: Vec<&TubeRow> = self.tubes.iter().filter(|tube| tube.name.contains(&self.filter)).collect();
        if let Some(cell) = self.sort.checked_sub(1) {
            let order = in_order(rows.len(), &|left, right| {
                let (left, right) = (rows[left], rows[right]);
                right.cells[cell].cmp(&left.cells[cell]).then_with(|| left.name.cmp(&right.name))
            });
            rows = order.into_iter().map(|index| rows[index]).collect();
        }
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    pub fn listed(&self) -> Vec<&BoardRow> {
        let is_meant = |row: &&BoardRow| row.cells.iter().any(|cell| cell.contains(&self.filter));
        self.lines.iter().filter(is_meant).collect()
    }

    pub fn keys(&self) -> Vec<(&str, &str, Option<u64>)> {
        match self.board {
            None => self.rows().into_iter().map(|tube| (tube.name.as_str(), tube.name.as_str(), None)).collect(),
            Some(_) => self.listed().into_iter().map(|row| (row.key.as_str(), row.tube.as_str(), row.job)).collect(),
        }
    }

    pub fn is_loading(&self) -> bool {
        self.summary.totals.is_none() || self.board.is_some() && self.listing == Listing::Loading
    }

    pub fn sort_by(&mut self, column: usize) {
        self.is_reversed = self.sort == column && !self.is_reversed;
        self.sort = column;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn poll(at: Instant, tubes: &[(&str, u64, u64)]) -> Poll {
        let stats = |ready: u64, total: u64| {
            StatsReply::parse(&format!("---\ncurrent-jobs-ready: {ready}\ntotal-jobs: {total}\ncmd-put: {total}\n"))
        };
        let mut names: Vec<String> = tubes.iter().map(|(name, ..)| (*name).to_owned()).collect();
        names.sort_unstable();
        Poll {
            at,
            server: stats(0, tubes.iter().map(|(_, _, total)| total).sum()),
            names,
            tubes: tubes.iter().map(|(name, ready, total)| ((*name).to_owned(), stats(*ready, *total))).collect(),
            refused: Vec::new(),
            longest: None,
        }
    }

    fn names(model: &Model) -> Vec<&str> {
        model.rows().iter().map(|tube| tube.name.as_str()).collect()
    }

    #[test]
    fn rates_are_computed_between_polls() {
        let mut model = Model::default();
        let now = Instant::now();
        model.take(poll(now, &[("a", 5, 100), ("b", 6, 0)]));
        assert_eq!(model.rows()[0].cells[6], 0);
        model.take(poll(now + Duration::from_secs(2), &[("a", 7, 500), ("b", 6, 0)]));
        assert_eq!((model.rows()[0].cells[0], model.rows()[0].cells[6], model.rows()[1].cells[6]), (7, 200, 0));
        assert_eq!(model.summary.puts, [200]);
        // The total has decreased because of a server restart.
        model.take(poll(now + Duration::from_secs(3), &[("a", 0, 1)]));
        assert_eq!((model.rows().len(), model.rows()[0].cells[6]), (1, 0));
    }

    #[test]
    fn rows_are_sorted_and_filtered() {
        let mut model = Model::default();
        model.take(poll(Instant::now(), &[("mail", 5, 0), ("sms", 9, 0), ("post", 5, 0)]));
        assert_eq!(names(&model), ["mail", "post", "sms"]);
        model.sort_by(1);
        assert_eq!(names(&model), ["sms", "mail", "post"]);
        model.sort_by(1);
        assert_eq!(names(&model), ["post", "mail", "sms"]);
        model.filter = "s".to_owned();
        assert_eq!(names(&model), ["post", "sms"]);
        model.sort_by(0);
        assert!(!model.is_reversed);
    }
}
