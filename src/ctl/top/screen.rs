//! The screen layout of `top`.
//!
//! Owns the text and the control sequences of each frame. Must not write to the terminal. Data from the server is
//! escaped, and every line fits into the width of the screen.

use super::board::{span, Board};
use super::fetch::Detail;
use super::model::{Listing, Model, COLUMNS, HISTORY};
use crate::ctl::prelude::*;

/// The minimum number of columns and lines of the terminal.
pub const MIN_SIZE: (usize, usize) = (80, 24);

/// The number of lines above and below the table.
pub const OTHER_LINES: usize = 5;

#[derive(Debug, Default)]
pub struct View {
    pub server: String,
    pub size: (usize, usize),
    pub selected: usize,
    pub first: usize,
    /// The text of the bottom line: a prompt, or a status message.
    pub status: String,
    pub is_prompting: bool,
    pub is_frozen: bool,
    pub shows_help: bool,
    pub lost: Option<String>,
    pub interval: u64,
    pub colors: bool,
    /// `true` if the terminal supports Unicode.
    pub unicode: bool,
    pub detail: Option<Detail>,
}

const HELP: &str = "\
1 2 3 4                           show tubes, workers, failed jobs, schedules
up, down, PgUp, PgDn, Home, End   choose a line
Enter                             open its tube; Escape closes it
t r e d b w u n a                 sort by tube, ready, reserved, delayed,
                                  buried, wait, put/s, done/s, paused;
                                  the same again: the other way round
/                                 show only lines with this text
+ -                               look less often, more often
space                             freeze, and go on
K                                 kick jobs of the marked tube; asks first
p                                 pause it, or end its pause; asks first
?                                 this, and back
q                                 quit

ready: to be given out    reserved: with a worker    delayed: ready later
buried: set aside         wait: workers waiting      done: deleted";

fn fit(text: &str, width: usize) -> String {
    let text = on_one_line(text.as_bytes());
    let length = text.chars().count();
    if length <= width {
        return format!("{text:width$}");
    }
    let cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut + "~"
}

/// Right-aligns a number in `width` characters. Abbreviates large numbers, such as `1234k`.
fn cell(number: u64, width: usize) -> String {
    let plain = number.to_string();
    if plain.len() < width {
        return format!("{plain:>width$}");
    }
    let scaled = [(1_000, 'k'), (1_000_000, 'M'), (1_000_000_000, 'G'), (1_000_000_000_000, 'T')];
    let short = scaled.iter().map(|(unit, letter)| format!("{}{letter}", number / unit));
    let short = short.into_iter().find(|text| text.len() < width).unwrap_or_else(|| "many".to_owned());
    format!("{short:>width$}")
}

fn spark(values: impl Iterator<Item = u64> + Clone, unicode: bool) -> String {
    let bars: &[char] = if unicode {
        &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
    } else {
        &['.', ':', '-', '=', '+', '*', '#', '@']
    };
    let max = values.clone().max().unwrap_or(0).max(1);
    values.map(|value| bars[(u128::from(value) * 7 / u128::from(max)) as usize]).collect()
}

/// Returns terminal output that overwrites the previous frame.
pub fn frame(model: &Model, view: &View) -> Vec<u8> {
    let (width, height) = view.size;
    let mut lines = match view.size {
        (width, height) if width < MIN_SIZE.0 || height < MIN_SIZE.1 => {
            vec![format!("too small: {width}x{height}; it must be {}x{}", MIN_SIZE.0, MIN_SIZE.1)]
        }
        _ => lines(model, view),
    };
    lines.truncate(height);
    debug_assert!(width > 0 && height > 0);
    let rest = if lines.len() < height { "\r\n\x1b[J" } else { "" };
    // Clearing a line after a text of full width would erase the last character, so the line is cleared first.
    format!("\x1b[H\x1b[K{}\x1b[m{rest}", lines.join("\x1b[m\r\n\x1b[K")).into_bytes()
}

fn lines(model: &Model, view: &View) -> Vec<String> {
    let (width, height) = view.size;
    let mut lines = head(model, view);
    let capacity = height - OTHER_LINES;
    match (&view.detail, view.shows_help) {
        (_, true) => {
            lines.push(String::new());
            lines.extend(HELP.lines().map(|line| fit(line, width)));
        }
        (Some(detail), false) => opened(detail, view, &mut lines),
        (None, false) => match model.board {
            None => table(model, view, capacity, &mut lines),
            Some(board) => list(model, board, view, capacity, &mut lines),
        },
    }
    lines.resize(height - 1, String::new());
    lines.push(last(view));
    lines
}

fn head(model: &Model, view: &View) -> Vec<String> {
    let width = view.size.0;
    let summary = &model.summary;
    let count = |key: &str| summary.stats.number(key);
    let frozen = if view.is_frozen { "  FROZEN" } else { "" };
    let first = format!(
        "beanpole {}  up {}  conns {} ({} waiting)  tubes {}{frozen}",
        shown(view.server.as_bytes()),
        span(count("uptime")),
        count("current-connections"),
        count("current-waiting"),
        count("current-tubes"),
    );
    let second = format!(
        "ready {}  reserved {}  delayed {}  buried {}  timeouts {}",
        count("current-jobs-ready"),
        count("current-jobs-reserved"),
        count("current-jobs-delayed"),
        count("current-jobs-buried"),
        count("job-timeouts"),
    );
    let put = summary.puts.back().copied().unwrap_or(0);
    let capacity = HISTORY.min(width.saturating_sub(40));
    let skip = summary.puts.len().saturating_sub(capacity);
    let spark = spark(summary.puts.iter().copied().skip(skip), view.unicode);
    let third = format!("put/s {put:7}  done/s {:7}  {spark}", summary.done);
    vec![fit(&first, width), fit(&second, width), fit(&third, width)]
}

fn table(model: &Model, view: &View, capacity: usize, lines: &mut Vec<String>) {
    let width = view.size.0;
    let numbers: usize = COLUMNS.iter().map(|column| column.width + usize::from(column.width > 0)).sum();
    let rows = model.rows();
    // The name column is only as wide as the longest name, so that the numbers stay close to the names.
    let widest = rows.iter().map(|tube| tube.name.chars().count() + 2).max().unwrap_or(0);
    let name = (width - numbers).min(widest.max(MIN_SIZE.0 - numbers));
    let mut headings = String::new();
    for (index, column) in COLUMNS.iter().enumerate() {
        let mark = match (index == model.sort, model.is_reversed) {
            (false, _) => "",
            (true, false) => "v",
            (true, true) => "^",
        };
        headings += &match index {
            0 => fit(&format!(" {}{mark}", column.head), name),
            // The mark in the heading of the sort column occupies the gap before the column.
            _ => format!("{:>width$}", format!("{mark}{}", column.head), width = column.width + 1),
        };
    }
    lines.push(format!("\x1b[7m{}", fit(&headings, width)));
    for (index, tube) in rows.into_iter().enumerate().skip(view.first).take(capacity) {
        let is_marked = index == view.selected;
        let mut line = fit(&format!("{}{}", if is_marked { '>' } else { ' ' }, tube.name), name);
        for (cell_place, (number, column)) in tube.cells.iter().zip(&COLUMNS[1..]).enumerate() {
            let text = cell(*number, column.width + 1);
            let is_highlighted = view.colors && *number > 0 && [3, 7].contains(&cell_place) && !is_marked;
            line += &if is_highlighted { format!("\x1b[33m{text}\x1b[39m") } else { text };
        }
        lines.push(if is_marked { format!("\x1b[1m{line}") } else { line });
    }
}

fn list(model: &Model, board: Board, view: &View, capacity: usize, lines: &mut Vec<String>) {
    let headings = board.headings();
    let row = |mark: char, cells: &[&str]| {
        let cells = headings.iter().zip(cells).enumerate().map(|(index, ((_, width), cell))| match (index, width) {
            (0, _) => fit(&format!("{mark}{cell}"), *width),
            (_, 0) => format!("  {cell}"),
            (_, width) => format!("{:>width$}", fit(cell, width - 1).trim_end()),
        });
        fit(&cells.collect::<String>(), view.size.0)
    };
    let names: Vec<&str> = headings.iter().map(|(head, _)| *head).collect();
    lines.push(format!("\x1b[7m{}", row(' ', &names)));
    let rows = model.listed();
    if rows.is_empty() {
        let text = match model.listing {
            Listing::Loading => " loading",
            Listing::Loaded => " none",
            Listing::Refused => " not available",
        };
        lines.push(text.to_owned());
    }
    for (index, line) in rows.into_iter().enumerate().skip(view.first).take(capacity) {
        let is_marked = index == view.selected;
        let cells: Vec<&str> = line.cells.iter().map(String::as_str).collect();
        let text = row(if is_marked { '>' } else { ' ' }, &cells);
        lines.push(match (is_marked, line.is_highlighted && view.colors) {
            (true, _) => format!("\x1b[1m{text}"),
            (false, true) => format!("\x1b[33m{text}"),
            (false, false) => text,
        });
    }
}

fn opened(detail: &Detail, view: &View, lines: &mut Vec<String>) {
    let width = view.size.0;
    lines.push(format!("\x1b[7m{}", fit(&format!("tube {}", detail.name), width)));
    let Some(stats) = &detail.stats else {
        lines.push("it is not there any more".to_owned());
        return;
    };
    if detail.is_loading() {
        lines.push(" loading".to_owned());
        return;
    }
    let shown: Vec<String> = stats.iter().map(|(key, value)| format!("{key:24}{value}")).collect();
    let columns = (width / 40).max(1);
    let rows = shown.len().div_ceil(columns);
    for row in 0..rows {
        let cells = (0..columns).filter_map(|column| shown.get(column * rows + row));
        let line: String = cells.map(|cell| fit(cell, 40.min(width))).collect();
        lines.push(fit(&line, width));
    }
    lines.push(String::new());
    for (state, job) in &detail.next {
        let line = match job {
            Some((id, body)) => format!("next {state:8} {id:>10}  {}", excerpt(body)),
            None => format!("next {state:8}          -"),
        };
        lines.push(fit(&line, width));
    }
}

fn last(view: &View) -> String {
    let width = view.size.0;
    let text = match (&view.lost, view.status.is_empty()) {
        (_, false) => view.status.clone(),
        (Some(lost), true) => format!("{lost}; trying again"),
        (None, true) => {
            let keys = match view.detail {
                Some(_) => "q back  ? help  K kick  p pause",
                None => "q quit  ? help  1 tubes  2 workers  3 failed  4 schedules  / filter",
            };
            format!("{keys}  every {} s", view.interval)
        }
    };
    let cursor = if view.is_prompting { "_" } else { "" };
    let line = fit(&format!("{text}{cursor}"), width);
    if view.is_prompting || view.lost.is_some() {
        format!("\x1b[1m{line}")
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::board::BoardRow;
    use super::super::model::Poll;
    use super::*;
    use crate::ctl::yaml::StatsReply;

    fn picture(model: &Model, view: &View) -> Vec<String> {
        let text = String::from_utf8(frame(model, view)).expect("text");
        let mut plain = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\x1b' => drop(letters.by_ref().skip(1).find(|letter| letter.is_ascii_alphabetic())),
                '\r' => {}
                letter => plain.push(letter),
            }
        }
        plain.lines().map(str::to_owned).collect()
    }

    fn model(tubes: usize) -> Model {
        let mut model = Model::default();
        let names: Vec<String> = (0..tubes).map(|number| format!("tube-{number:04}-{}", "x".repeat(number))).collect();
        let stats = StatsReply::parse("current-jobs-ready: 12345678901\ncurrent-jobs-buried: 7\nuptime: 90061\n");
        let tubes = names.iter().map(|name| (name.clone(), stats.clone())).collect();
        model.take(Poll { at: Instant::now(), server: stats, names, tubes, refused: Vec::new() });
        model
    }

    fn view(width: usize, height: usize) -> View {
        View { server: "127.0.0.1:11300".to_owned(), size: (width, height), interval: 1, ..View::default() }
    }

    #[test]
    fn every_frame_fits_its_screen() {
        for (width, height) in [(80, 24), (81, 25), (200, 50), (1, 1), (79, 24), (80, 23)] {
            for count in [0, 3, 150] {
                let model = model(count);
                for (shows_help, detail) in [(false, false), (true, false), (false, true)] {
                    let detail = detail.then(|| Detail {
                        name: "mail".to_owned(),
                        stats: Some(StatsReply::parse("name: mail\ncurrent-jobs-ready: 1\npause: 0")),
                        next: vec![("ready", Some((7, b"\x1b[2J\xff".repeat(100)))), ("buried", None)],
                    });
                    let view = View { shows_help, detail, selected: 1, colors: true, ..view(width, height) };
                    let lines = picture(&model, &view);
                    assert!(lines.len() <= height, "{} lines of {height}", lines.len());
                    if width >= 80 && height >= 24 {
                        assert_eq!(lines.len(), height);
                        let long = lines.iter().find(|line| line.chars().count() > width);
                        assert_eq!(long, None, "{width}x{height}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_list_fits_its_screen() {
        let cells = |headings: &[_]| headings.iter().map(|_| "\x1b[2J\u{202e}1234567890".repeat(9)).collect();
        for board in [Board::Workers, Board::Failed, Board::Schedules] {
            for count in [0, 1, 60] {
                let row = BoardRow { cells: cells(board.headings()), is_highlighted: true, ..BoardRow::default() };
                let model = Model { board: Some(board), lines: vec![row; count], listing: Listing::Loaded, ..model(1) };
                for (width, height) in [(80, 24), (81, 25), (200, 50)] {
                    let lines = picture(&model, &View { colors: true, selected: 1, ..view(width, height) });
                    assert_eq!(lines.len(), height, "{board:?} {count}");
                    assert!(lines.iter().all(|line| line.chars().count() <= width), "{board:?} {width}");
                    assert!(!lines.iter().any(|line| line.contains('\u{202e}')), "{board:?} {width}");
                    assert_eq!(lines[4].starts_with(" none"), count == 0);
                }
            }
        }
    }

    #[test]
    fn times_have_two_units() {
        let texts = [0, 59, 60, 3599, 3600, 86_399, 90_061].map(span);
        assert_eq!(texts, ["0s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d1h"]);
    }

    #[test]
    fn it_looks_as_drawn() {
        let lines = picture(&model(2), &view(80, 24));
        assert_eq!(lines[0].trim_end(), "beanpole 127.0.0.1:11300  up 1d1h  conns 0 (0 waiting)  tubes 0");
        assert!(lines[1].starts_with("ready 12345678901  reserved 0  delayed 0  buried 7  timeouts 0"), "{}", lines[1]);
        assert!(lines[3].starts_with(" TUBEv") && lines[3].trim_end().ends_with("PUT/S DONE/S PAUSED"), "{}", lines[3]);
        assert!(lines[4].starts_with(">tube-0000-"), "{}", lines[4]);
        assert!(lines[4].contains(" 12345M ") || lines[4].contains("12345M"), "{}", lines[4]);
        assert!(lines[23].starts_with("q quit  ? help"), "{}", lines[23]);
    }

    #[test]
    fn numbers_stand_beside_the_names_however_wide_the_screen_is() {
        let lines = picture(&model(2), &view(200, 50));
        assert_eq!(
            lines[4].trim_end().chars().count(),
            picture(&model(2), &view(80, 24))[4].trim_end().chars().count()
        );
        let lines = picture(&model(60), &view(200, 50));
        assert!(lines[4 + 40].contains(&"x".repeat(40)), "long names are shown whole: {}", lines[4 + 40]);
        let detail = Detail { name: "mail".to_owned(), stats: None, next: Vec::new() };
        let lines = picture(&model(2), &View { detail: Some(detail), ..view(80, 24) });
        assert!(lines[23].starts_with("q back  ? help  K kick"), "{}", lines[23]);
    }

    #[test]
    fn numbers_have_room() {
        for number in [0, 9, 99_999, 999_999, 1_000_000, u64::MAX] {
            for width in [5, 7, 8] {
                assert_eq!(cell(number, width).chars().count(), width, "{number}");
                assert!(cell(number, width).starts_with(' '), "{number}: no gap");
            }
        }
        assert_eq!(cell(1_234_567, 7), "  1234k");
    }
}
