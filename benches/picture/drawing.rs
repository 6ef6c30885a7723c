//! A picture of the most important figures: the cost of a request, and the memory of a job, compared with beanstalkd.
//!
//! Owns the choice of figures and the layout. Reads the tables that the load benchmark prints, or those of RESULTS.md;
//! must not measure anything.

use std::fmt::Write;

/// The rows of the picture that show processor time: a scenario, and its name here.
const COSTS: [(&str, &str); 7] = [
    ("put-50", "put"),
    ("prd-50", "put, reserve, delete"),
    ("relay-50", "a job, put to done by a waiting worker"),
    ("pipe64-1", "put, 64 sent at a time"),
    ("body-60k", "put, reserve, delete of 60 KB"),
    ("log-64", "put with a log"),
    ("logf0-64", "put with a log, synced"),
];

/// The scenario and figure of a job's memory.
const MEMORY: (&str, &str) = ("mem-jobs", "bytes for a ready job of 64 bytes");

/// Sizes in pixels: the picture, the column of names, the longest bar, a bar, and the distance of rows.
const WIDTH: usize = 720;
const NAMES: usize = 270;
const LONGEST: usize = 390;
const BAR: usize = 9;
const ROW: usize = 28;

/// Colors of the light form are in the elements' classes, those of the dark form follow; each is readable on its own.
const STYLE: &str = "\
    .ground{fill:#fff}.text{fill:#1f2328}.faint{fill:#59636e}.theirs{fill:#9aa4af}.ours{fill:#1a7f37}\
    @media(prefers-color-scheme:dark){.ground{fill:#0d1117}.text{fill:#f0f6fc}.faint{fill:#9198a1}\
    .theirs{fill:#656c76}.ours{fill:#3fb950}}";

/// A figure of the peer's and one of ours.
type Pair = (f64, f64);

/// Draws the figures of `results` as SVG, or returns `None` if there is no figure of beanstalkd. A short run does not
/// have all rows.
pub fn draw(results: &str) -> Option<String> {
    let costs: Vec<(&str, Pair)> =
        COSTS.iter().filter_map(|(scenario, words)| Some((*words, cost(results, scenario)?))).collect();
    if costs.is_empty() {
        return None;
    }
    let mut rows = String::new();
    let mut y = heading(&mut rows, 46, "processor time of the server for each, in \u{b5}s");
    let most = costs.iter().fold(0.0, |most: f64, (_, pair)| most.max(pair.0).max(pair.1));
    for (words, pair) in &costs {
        y = row(&mut rows, y, words, *pair, most);
    }
    if let Some(memory) = value(results, MEMORY) {
        y = heading(&mut rows, y + 20, "memory of a job with a body of 64 bytes, in bytes");
        y = row(&mut rows, y, "waiting in a tube", memory, memory.0.max(memory.1));
    }
    Some(frame(&rows, y))
}

/// Returns the cells of a row of a Markdown table.
fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// Returns the server's processor time for an operation of a scenario: the column with that heading, and the next one.
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

/// Returns a figure of the other table.
fn value(results: &str, (scenario, figure): (&str, &str)) -> Option<Pair> {
    let rows = results.lines().filter(|line| line.starts_with('|')).map(cells);
    let mut found = rows.filter(|cells| cells[0] == scenario && cells.get(1) == Some(&figure));
    found.next().and_then(|cells| pair(&cells, 2))
}

fn pair(cells: &[&str], place: usize) -> Option<Pair> {
    let number = |place: usize| cells.get(place)?.parse().ok().filter(|number: &f64| number.is_finite());
    Some((number(place)?, number(place + 1)?))
}

/// Writes a heading with its text at `y`. Returns where the rows below it begin.
fn heading(text: &mut String, y: usize, words: &str) -> usize {
    let _ = writeln!(text, r#"<text class="faint" x="16" y="{y}">{words}</text>"#);
    y + 12
}

/// Draws the bars of both, one above the other, with their figures. Returns where the next row begins.
fn row(text: &mut String, y: usize, words: &str, (theirs, ours): Pair, most: f64) -> usize {
    let _ = writeln!(text, r#"<text class="text" x="16" y="{}">{words}</text>"#, y + BAR + 4);
    for (class, figure, y) in [("theirs", theirs, y), ("ours", ours, y + BAR + 1)] {
        let long = (figure / most * LONGEST as f64).max(1.0);
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

/// Returns the whole picture, with a legend above the rows, which end at `y`.
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
