//! The screen layout of `top`. Data from the server is escaped, and every line fits into the width of the screen.

use super::board::{Board, LONG};
use super::fetch::Detail;
use super::model::{Listing, Model, COLUMNS, HISTORY};
use crate::ctl::prelude::*;

pub const MIN_SIZE: (usize, usize) = (80, 24);
/// The number of lines above and below the table, apart from the alarms.
const OTHER_LINES: usize = 5;

#[derive(Default)]
pub struct View {
    pub server: String,
    pub size: (usize, usize),
    pub selected: usize,
    pub first: usize,
    pub status: String,
    pub is_prompting: bool,
    pub is_frozen: bool,
    pub shows_help: bool,
    pub lost: Option<String>,
    pub interval: u64,
    pub colors: bool,
    pub unicode: bool,
    pub detail: Option<Detail>,
    /// The index of the selected job in the open tube, or of the open job in `group`.
    pub chosen: usize,
    /// The jobs between which the up and down keys switch, if the opened line stands for several jobs.
    pub group: Vec<u64>,
}

#[rustfmt::skip]
const ALARMS: [(&str, &str); 4] = [
    ("current-jobs-buried", "buried"), ("failures-last-hour", "failed (1 h)"), ("paused-tubes", "paused tubes"),
    ("late-schedules", "late schedules"),
];

const HELP: &str = "\
1 2 3 4                           show tubes, workers, failed jobs, schedules
up, down, PgUp, PgDn, Home, End   choose a line
Enter                             open its tube or job; Escape closes it
t r e d b o w u n a               sort by tube, ready, reserved, delayed,
                                  buried, other, wait, put/s, done/s, paused;
                                  the same again: the other way round
/                                 show only lines with this text; Escape: all
+ -                               look less often, more often
space                             freeze, and go on
K                                 kick jobs of tube, line, open job; asks first
p                                 pause it, or end its pause; asks first
?                                 this, and back
q                                 quit

ready: to be given out    reserved: with a worker    delayed: ready later
buried: set aside   other: held, schedules   wait: waiting workers
done: deleted       silent: time since the worker last sent something";

fn fit(text: &str, width: usize) -> String {
    let text = on_one_line(text.as_bytes());
    if text.chars().count() <= width {
        return format!("{text:width$}");
    }
    let cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut + "~"
}

/// Right-aligns a number. Abbreviates a large number, for example to `1234k`.
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
    let bars = if unicode { "▁▂▃▄▅▆▇█" } else { ".:-=+*#@" };
    let max = values.clone().max().unwrap_or(0).max(1);
    let level = |value: u64| (u128::from(value) * 7 / u128::from(max)) as usize;
    values.filter_map(|value| bars.chars().nth(level(value))).collect()
}

pub fn frame(model: &Model, view: &View) -> Vec<u8> {
    let ((width, height), (min_width, min_height)) = (view.size, MIN_SIZE);
    let mut lines = match width < min_width || height < min_height {
        true => vec![format!("too small: {width}x{height}; it must be {min_width}x{min_height}")],
        false => lines(model, view),
    };
    lines.truncate(height);
    debug_assert!(width > 0 && height > 0);
    let rest = if lines.len() < height { "\r\n\x1b[J" } else { "" };
    // Clear each line before writing to it. Clearing a full-width line after writing would erase the last character.
    format!("\x1b[H\x1b[K{}\x1b[m{rest}", lines.join("\x1b[m\r\n\x1b[K")).into_bytes()
}

fn lines(model: &Model, view: &View) -> Vec<String> {
    let (width, height) = view.size;
    let mut lines = head(model, view);
    let capacity = capacity(model, view.size);
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

/// Returns the number of lines that fit below the heading of a table or list, at least 1.
pub fn capacity(model: &Model, (width, height): (usize, usize)) -> usize {
    height.saturating_sub(OTHER_LINES + alarms(model, width).len()).max(1)
}

fn head(model: &Model, view: &View) -> Vec<String> {
    let width = view.size.0;
    let summary = &model.summary;
    let count = |key: &str| summary.stats.number(key);
    let frozen = if view.is_frozen { "  FROZEN" } else { "" };
    let filter = if model.filter.is_empty() { String::new() } else { format!("  FILTER {}", model.filter) };
    let [up, conns, waiting, tubes] = ["uptime", "current-connections", "current-waiting", "current-tubes"].map(count);
    let (server, up) = (shown(view.server.as_bytes()), span(up));
    let first = format!("beanpole {server}{filter}{frozen}  up {up}  conns {conns} ({waiting} waiting)  tubes {tubes}");
    let jobs = ["ready", "reserved", "delayed", "buried"];
    let jobs = jobs.map(|state| format!("{state} {}", count(&format!("current-jobs-{state}")))).join("  ");
    let second = format!("{jobs}  other {}  timeouts {}", summary.stats.other_jobs(), count("job-timeouts"));
    let put = summary.puts.back().copied().unwrap_or(0);
    let capacity = HISTORY.min(width.saturating_sub(40));
    let skip = summary.puts.len().saturating_sub(capacity);
    let spark = spark(summary.puts.iter().copied().skip(skip), view.unicode);
    let third = format!("put/s {put:7}  done/s {:7}  {spark}", summary.done);
    let mut lines = vec![fit(&first, width), fit(&second, width), fit(&third, width)];
    for line in alarms(model, width) {
        let color = if view.colors && !line.starts_with("no ") { "\x1b[33m" } else { "" };
        lines.push(color.to_owned() + &fit(&line, width));
    }
    lines
}

/// Returns one or two lines with the alarms of the server, or `no alarms`. The counts come last, so that a narrow
/// screen cuts them off first: some of them also appear in the screen lines above the alarms.
fn alarms(model: &Model, width: usize) -> Vec<String> {
    let stats = &model.summary.stats;
    let mut lines = vec!["ALARMS".to_owned()];
    let mut add = |what: &str, value: &str| add_alarm(&mut lines, width, what, value);
    let (disk, role) = (stats.text("binlog-state"), stats.text("role"));
    if disk == "full" || disk == "failing" {
        add("disk", disk);
    }
    if !role.is_empty() && role != "active" {
        add(role, "");
    }
    if stats.text("draining") == "true" {
        add("draining", "");
    }
    if let Some(tube) = model.tubes.iter().max_by_key(|tube| tube.oldest).filter(|tube| tube.oldest >= LONG) {
        add(fit(&tube.name, 20).trim_end(), &format!("ready {}", span(tube.oldest)));
    }
    if let Some((tube, time)) = &model.summary.longest {
        add(fit(tube, 20).trim_end(), &format!("running {time}"));
    }
    for (key, what) in ALARMS.into_iter().filter(|(key, _)| stats.number(key) > 0) {
        add(what, stats.text(key));
    }
    if lines[0].len() == "ALARMS".len() {
        lines[0] = "no alarms".to_owned();
    }
    lines
}

/// Adds an alarm to the last line. If the first line is full, begins the second line.
fn add_alarm(lines: &mut Vec<String>, width: usize, what: &str, value: &str) {
    let last = lines.len() - 1;
    let before = lines[last].len();
    lines[last] += format!("  {what} {value}").trim_end();
    if last == 0 && lines[0].chars().count() > width {
        let alarm = lines[0].split_off(before);
        lines.push("      ".to_owned() + &alarm);
    }
}

fn table(model: &Model, view: &View, capacity: usize, lines: &mut Vec<String>) {
    let width = view.size.0;
    let numbers: usize = COLUMNS.iter().map(|column| column.width + usize::from(column.width > 0)).sum();
    let rows = model.rows();
    // The numbers must stay close to the names, so the name column is only as wide as the longest name.
    let widest = rows.iter().map(|tube| tube.name.chars().count() + 2).max().unwrap_or(0);
    let name = (width - numbers).min(widest.max(MIN_SIZE.0 - numbers));
    let mut headings = String::new();
    for (index, column) in COLUMNS.iter().enumerate() {
        let mark = match (index == model.sort, (index == 0) != model.is_reversed) {
            (false, _) => "",
            (true, false) => "v",
            (true, true) => "^",
        };
        headings += &match index {
            0 => fit(&format!(" {}{mark}", column.head), name),
            // The mark of the sort column uses the gap before the column.
            _ => format!("{:>width$}", format!("{mark}{}", column.head), width = column.width + 1),
        };
    }
    lines.push(format!("\x1b[7m{}", fit(&headings, width)));
    for (index, tube) in rows.into_iter().enumerate().skip(view.first).take(capacity) {
        let is_marked = index == view.selected;
        let mut line = fit(&format!("{}{}", if is_marked { '>' } else { ' ' }, tube.name), name);
        for (cell_place, (number, column)) in tube.cells.iter().zip(&COLUMNS[1..]).enumerate() {
            let text = cell(*number, column.width + 1);
            let is_highlighted = view.colors && *number > 0 && [3, 8].contains(&cell_place);
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
        let bold = if is_marked { "\x1b[1m" } else { "" };
        let color = if line.is_highlighted && view.colors { "\x1b[33m" } else { "" };
        lines.push(format!("{bold}{color}{text}"));
    }
}

fn opened(detail: &Detail, view: &View, lines: &mut Vec<String>) {
    let (width, tube) = (view.size.0, &detail.of.tube);
    let title = detail.of.job.map_or_else(|| format!("tube {tube}"), |id| format!("job {id} of {tube}"));
    let group = format!("  {} of {}; up and down show the others", view.chosen + 1, view.group.len());
    let group = if view.group.len() > 1 { &group } else { "" };
    lines.push(format!("\x1b[7m{}", fit(&format!("{title}{group}"), width)));
    let Some(stats) = &detail.stats else { return lines.push(fit(&format!("{title} no longer exists"), width)) };
    if detail.is_loading() {
        return lines.push(" loading".to_owned());
    }
    if detail.of.job.is_some() {
        let body = detail.next.iter().find_map(|(_, job)| Some(&job.as_ref()?.1[..])).unwrap_or_default();
        for (heading, text) in [("last-error", stats.text("last-error").as_bytes()), ("body", body)] {
            if !text.is_empty() {
                let text = format!("{heading:12}{}", on_one_line(&text[..text.len().min(width * 5)]));
                let text: Vec<char> = text.chars().collect();
                lines.extend(text.chunks(width).take(5).map(|line| line.iter().collect::<String>()));
            }
        }
    } else {
        let chosen = detail.jobs().get(view.chosen).or(detail.jobs().last()).copied();
        for (state, job) in &detail.next {
            let mark = if job.as_ref().is_some_and(|(id, _)| Some(*id) == chosen) { '>' } else { ' ' };
            let text = job.as_ref().map_or("-".to_owned(), |(id, body)| format!("{id:>10}  {}", excerpt(body)));
            lines.push(fit(&format!("{mark}next {state:8} {text}"), width));
        }
        lines.push(String::new());
    }
    figures(stats, view, lines);
}

/// Adds the statistics. If they do not all fit, omits zeros, except those that explain why no client reserves a job.
fn figures(stats: &StatsReply, view: &View, lines: &mut Vec<String>) {
    let (width, columns) = (view.size.0, (view.size.0 / 40).max(1));
    let capacity = (view.size.1 - 1).saturating_sub(lines.len()) * columns;
    let mut shown: Vec<_> = stats.iter().filter(|(key, _)| *key != "last-error").collect();
    if shown.len() > capacity {
        let is_kept = |key| ["current-watching", "current-waiting"].contains(&key);
        shown.retain(|(key, value)| is_kept(*key) || !value.trim_matches(['0', '.']).is_empty());
    }
    let rows = shown.len().div_ceil(columns);
    for row in 0..rows {
        let cells = (0..columns).filter_map(|column| shown.get(column * rows + row));
        let text = |key: &str, value: &str| match value.parse() {
            Ok(age) if key == "time-left" || key.ends_with("age") => span(age),
            _ => value.to_owned(),
        };
        let cells = cells.map(|(key, value)| fit(&format!("{key:24}{}", text(key, value)), 40.min(width)));
        lines.push(fit(&cells.collect::<String>(), width));
    }
}

fn last(view: &View) -> String {
    let width = view.size.0;
    let text = match (&view.lost, view.status.is_empty()) {
        (_, false) => view.status.clone(),
        (Some(lost), true) => format!("{lost}; trying again"),
        (None, true) => {
            let keys = match &view.detail {
                Some(detail) if !detail.jobs().is_empty() => "q back  ? help  Enter job  K kick  p pause",
                Some(_) => "q back  ? help  K kick  p pause",
                None => "q quit  ? help  1 tubes  2 workers  3 failed  4 schedules  / filter",
            };
            format!("{keys}  every {} s", view.interval)
        }
    };
    let cursor = if view.is_prompting { "_" } else { "" };
    let bold = if view.is_prompting || view.lost.is_some() { "\x1b[1m" } else { "" };
    format!("{bold}{}", fit(&format!("{text}{cursor}"), width))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::board::BoardRow;
    use super::super::fetch::DetailTarget;
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
        model.take(Poll { at: Instant::now(), server: stats, names, tubes, refused: Vec::new(), longest: None });
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
                        of: DetailTarget { tube: "mail".to_owned(), job: Some(7).filter(|_| count == 3) },
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
                    assert_eq!(lines[5].starts_with(" none"), count == 0);
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
    fn the_screen_has_the_expected_layout() {
        let lines = picture(&model(2), &view(80, 24));
        assert_eq!(lines[0].trim_end(), "beanpole 127.0.0.1:11300  up 1d1h  conns 0 (0 waiting)  tubes 0");
        let figures = "ready 12345678901  reserved 0  delayed 0  buried 7  other 0  timeouts 0";
        assert!(lines[1].starts_with(figures), "{}", lines[1]);
        assert_eq!(lines[3].trim_end(), "ALARMS  buried 7");
        assert!(lines[4].starts_with(" TUBE^") && lines[4].trim_end().ends_with("PUT/S DONE/S PAUSED"), "{}", lines[4]);
        assert!(lines[5].starts_with(">tube-0000-"), "{}", lines[5]);
        assert!(lines[5].contains(" 12345M ") || lines[5].contains("12345M"), "{}", lines[5]);
        assert!(lines[23].starts_with("q quit  ? help"), "{}", lines[23]);
    }

    #[test]
    fn numbers_are_next_to_names_at_any_width() {
        let lines = picture(&model(2), &view(200, 50));
        assert_eq!(
            lines[5].trim_end().chars().count(),
            picture(&model(2), &view(80, 24))[5].trim_end().chars().count()
        );
        let lines = picture(&model(60), &view(200, 50));
        assert!(lines[5 + 40].contains(&"x".repeat(40)), "long names are shown whole: {}", lines[5 + 40]);
        let mut detail = Detail::new(DetailTarget { tube: "mail".to_owned(), job: None });
        detail.next.push(("ready", Some((7, Vec::new()))));
        let lines = picture(&model(2), &View { detail: Some(detail), ..view(80, 24) });
        assert!(lines[23].starts_with("q back  ? help  Enter job  K kick"), "{}", lines[23]);
    }

    #[test]
    fn all_problems_are_shown_as_alarms() {
        let wrong = "current-jobs-buried: 12\nfailures-last-hour: 1234\npaused-tubes: 3\nlate-schedules: 4\n\
                     binlog-state: failing\n";
        let of = |text: &str| {
            let mut model = Model::default();
            model.summary.stats = StatsReply::parse(text);
            alarms(&model, 80)
        };
        let text = of(wrong);
        let first = "ALARMS  disk failing  buried 12  failed (1 h) 1234  paused tubes 3";
        assert_eq!(text, [first, "        late schedules 4"], "no alarm may be truncated");
        let fine = "current-jobs-buried: 0\nbinlog-state: ok\nrole: active\ndraining: false\n";
        assert_eq!(of(fine), ["no alarms"]);
        assert_eq!(of("role: standby\ndraining: true\nbinlog-state: full\n"), ["ALARMS  disk full  standby  draining"]);
        let (at, running) = (Instant::now(), Some(("thumbs".to_owned(), "5m00s".to_owned())));
        let ages = [("mail", 806), ("sms", 299)];
        let tubes = ages.map(|(name, age)| (name.to_owned(), StatsReply::parse(&format!("oldest-ready-age: {age}"))));
        let server = StatsReply::parse("draining: true\ncurrent-jobs-buried: 1\n");
        let names = ages.map(|(name, _)| name.to_owned()).to_vec();
        let mut model = Model::default();
        model.take(Poll { at, server, names, tubes: tubes.to_vec(), refused: Vec::new(), longest: running });
        assert_eq!(alarms(&model, 80), ["ALARMS  draining  mail ready 13m26s  thumbs running 5m00s  buried 1"]);
    }

    /// The selected line must keep its warning color, and an active filter must be visible.
    #[test]
    fn marks_and_filters_hide_no_warning() {
        let filtered = Model { filter: "tube".to_owned(), ..model(1) };
        let text = String::from_utf8(frame(&filtered, &View { colors: true, ..view(80, 24) })).expect("text");
        assert!(text.contains("beanpole 127.0.0.1:11300  FILTER tube  up "), "{text:?}");
        assert!(text.contains("\x1b[1m>tube-0000-") && text.contains("\x1b[33m      7\x1b[39m"), "{text:?}");
        let row = BoardRow { cells: vec!["mail".to_owned()], is_highlighted: true, ..BoardRow::default() };
        let model = Model { board: Some(Board::Failed), lines: vec![row], ..model(1) };
        let text = String::from_utf8(frame(&model, &View { colors: true, ..view(80, 24) })).expect("text");
        assert!(text.contains("\x1b[1m\x1b[33m>mail"), "{text:?}");
    }

    #[test]
    fn a_tube_s_next_jobs_are_visible_on_the_smallest_screen() {
        let mut text: String = (0..40).map(|number| format!("key-{number}: {}\n", number % 2)).collect();
        text += "current-waiting: 0\noldest-ready-age: 673\n";
        let mut detail = Detail::new(DetailTarget { tube: "mail".to_owned(), job: None });
        detail.stats = Some(StatsReply::parse(&text));
        detail.next =
            vec![("ready", Some((7, b"first".to_vec()))), ("delayed", None), ("buried", Some((9, Vec::new())))];
        let lines = picture(&model(1), &View { detail: Some(detail), chosen: 1, ..view(80, 24) });
        assert_eq!(lines[5].trim_end(), " next ready             7  first");
        assert_eq!(lines[7].trim_end(), ">next buried            9");
        assert!(lines.iter().any(|line| line.contains("current-waiting         0")));
        assert!(lines.iter().any(|line| line.contains("oldest-ready-age        11m13s")));
        assert!(lines.iter().any(|line| line.contains("key-39")) && !lines.iter().any(|line| line.contains("key-38 ")));
    }

    #[test]
    fn numbers_fit_their_columns() {
        for number in [0, 9, 99_999, 999_999, 1_000_000, u64::MAX] {
            for width in [5, 7, 8] {
                assert_eq!(cell(number, width).chars().count(), width, "{number}");
                assert!(cell(number, width).starts_with(' '), "{number}: no gap");
            }
        }
        assert_eq!(cell(1_234_567, 7), "  1234k");
    }
}
