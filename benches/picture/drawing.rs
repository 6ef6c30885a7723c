//! Draws the processor time of requests and the memory usage of a job, for beanpole and for beanstalkd.
//!
//! Owns the choice of values and the layout. Reads the tables of the load benchmark or of RESULTS.md. Must not measure
//! anything.

use std::fmt::Write;

/// The scenarios whose processor time is shown, with their labels.
const COSTS: [(&str, &str); 7] = [
    ("put-50", "put"),
    ("prd-50", "put, reserve, delete"),
    ("relay-50", "a job, put to done by a waiting worker"),
    ("pipe64-1", "put, 64 sent at a time"),
    ("body-60k", "put, reserve, delete of 60 KB"),
    ("log-64", "put with a log"),
    ("logf0-64", "put with a log, synced"),
];

/// The scenario that measures a job's memory, and the name of the value.
const MEMORY: (&str, &str) = ("mem-jobs", "bytes for a ready job of 64 bytes");

/// In pixels: the widths of the picture, the labels and the longest bar, the height of a bar, and the row spacing.
const WIDTH: usize = 720;
const NAMES: usize = 270;
const LONGEST: usize = 390;
const BAR: usize = 9;
const ROW: usize = 28;

/// The colors, first for light backgrounds, then for dark backgrounds.
const STYLE: &str = "\
    .ground{fill:#fff}.text{fill:#1f2328}.faint{fill:#59636e}.theirs{fill:#9aa4af}.ours{fill:#1a7f37}\
    @media(prefers-color-scheme:dark){.ground{fill:#0d1117}.text{fill:#f0f6fc}.faint{fill:#9198a1}\
    .theirs{fill:#656c76}.ours{fill:#3fb950}}";

type Pair = (f64, f64);

/// Draws `results` as SVG. Omits scenarios that were not measured, for example in a quick run. Returns `None` if no
/// scenario has the processor times of both servers.
pub fn draw(results: &str) -> Option<String> {
    let costs: Vec<(&str, Pair)> =
        COSTS.iter().filter_map(|(scenario, words)| Some((*words, cost(results, scenario)?))).collect();
    if costs.is_empty() {
        return None;
    }
    let mut rows = String::new();
    let mut y = heading(&mut rows, 46, "processor time of the server for each, in \u{b5}s");
    let max = costs.iter().fold(0.0, |max: f64, (_, pair)| max.max(pair.0).max(pair.1));
    for (words, pair) in &costs {
        y = row(&mut rows, y, words, *pair, max);
    }
    if let Some(memory) = value(results, MEMORY) {
        y = heading(&mut rows, y + 20, "memory of a job with a body of 64 bytes, in bytes");
        y = row(&mut rows, y, "waiting in a tube", memory, memory.0.max(memory.1));
    }
    Some(frame(&rows, y))
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// Returns both servers' processor times per operation in a scenario.
fn cost(results: &str, scenario: &str) -> Option<Pair> {
    let mut place = None;
    for line in results.lines().filter(|line| line.starts_with('|')) {
        let cells = cells(line);
        if cells[0] == "scenario" {
            place = cells.iter().position(|cell| cell.ends_with("CPU \u{b5}s/op"));
        } else if let (true, Some(place)) = (cells[0] == scenario, place) {
            return pair(&cells, place);
        }
    }
    None
}

/// Returns both servers' values for a figure, from the table with the header `VALUE_HEAD` (see `load/report.rs`).
fn value(results: &str, (scenario, figure): (&str, &str)) -> Option<Pair> {
    let rows = results.lines().filter(|line| line.starts_with('|')).map(cells);
    let mut found = rows.filter(|cells| cells[0] == scenario && cells.get(1) == Some(&figure));
    found.next().and_then(|cells| pair(&cells, 2))
}

fn pair(cells: &[&str], place: usize) -> Option<Pair> {
    let number = |place: usize| cells.get(place)?.parse().ok().filter(|number: &f64| number.is_finite());
    Some((number(place)?, number(place + 1)?))
}

/// Draws a heading. Returns the y coordinate of the first row below it.
fn heading(text: &mut String, y: usize, words: &str) -> usize {
    let _ = writeln!(text, r#"<text class="faint" x="16" y="{y}">{words}</text>"#);
    y + 12
}

/// Draws the bars of both servers with their values. Returns the y coordinate of the next row.
fn row(text: &mut String, y: usize, words: &str, (theirs, ours): Pair, max: f64) -> usize {
    let _ = writeln!(text, r#"<text class="text" x="16" y="{}">{words}</text>"#, y + BAR + 4);
    for (class, figure, y) in [("theirs", theirs, y), ("ours", ours, y + BAR + 1)] {
        let long = (figure / max * LONGEST as f64).max(1.0);
        let end = NAMES as f64 + long + 5.0;
        let _ = writeln!(
            text,
            "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{y}\" width=\"{long:.1}\" height=\"{BAR}\"/>\
             <text class=\"text small\" x=\"{end:.1}\" y=\"{}\">{figure}</text>",
            y + BAR - 1
        );
    }
    y + ROW
}

/// Returns the complete picture with a legend. `y` is the y coordinate of the bottom edge of the rows.
fn frame(rows: &str, y: usize) -> String {
    let height = y + 4;
    let font = "font-family=\"system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif\" font-size=\"13\"";
    let (ours, theirs) = (NAMES + 110, NAMES);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"t\" {font}>\n\
         <title id=\"t\">What beanpole costs beside beanstalkd: less is better</title>\n\
         <style>.small{{font-size:10px}}{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n\
         <rect class=\"theirs\" x=\"{theirs}\" y=\"13\" width=\"11\" height=\"11\"/>\
         <text class=\"text\" x=\"{}\" y=\"23\">beanstalkd</text>\n\
         <rect class=\"ours\" x=\"{ours}\" y=\"13\" width=\"11\" height=\"11\"/>\
         <text class=\"text\" x=\"{}\" y=\"23\">beanpole</text>\n\
         <text class=\"faint\" x=\"{}\" y=\"23\" text-anchor=\"end\">less is better</text>\n{rows}</svg>\n",
        theirs + 17,
        ours + 17,
        WIDTH - 16,
    )
}
