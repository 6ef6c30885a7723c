//! Publishes the results of the load benchmark.
//!
//! Owns the measured tables in RESULTS.md, the line with the commit, and the CSV file. Must not change other text in
//! RESULTS.md, and must not measure anything.

use std::fmt::Write;

/// The first cells of each table's header, and the number of columns that RESULTS.md shows.
const TABLES: [(&str, usize); 2] = [("| scenario | what |", 10), ("| scenario | figure |", 6)];

/// The beginning of the line in RESULTS.md that names the commit.
const COMMIT: &str = "Measured at commit ";

/// Replaces the tables in RESULTS.md, and replaces or inserts the line with the commit. Returns `None` if a table is
/// missing.
pub fn published(results: &str, measured: &str, commit: &str) -> Option<String> {
    let mut text = results.to_owned();
    for (head, columns) in TABLES {
        let rows = rows(measured, head)?.map(|row| {
            let cells = cells(row).into_iter().take(columns).map(|cell| if cell.is_empty() { "–" } else { cell });
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        });
        let begin = text.find(&format!("\n{head}"))? + 1;
        let table = &text[begin..][..text[begin..].find("\n\n").map_or(text.len() - begin, |end| end + 1)];
        let kept: String = table.split_inclusive('\n').take(2).collect();
        let new = kept + &rows.collect::<String>();
        text = text.replacen(table, &new, 1);
    }
    let line = format!("{COMMIT}{commit}.");
    let before = text.lines().find(|line| line.starts_with(COMMIT)).map(str::to_owned);
    Some(match before {
        Some(before) => text.replacen(&before, &line, 1),
        None => text.replacen(TABLES[0].0, &format!("{line}\n\n{}", TABLES[0].0), 1),
    })
}

pub fn csv(measured: &str) -> Option<String> {
    let mut text = "scenario,figure,beanstalkd,beanpole\n".to_owned();
    for row in rows(measured, TABLES[0].0)? {
        let cells = cells(row);
        for (figure, column) in [("operations a second", 2), ("CPU, microseconds an operation", 6)] {
            let _ = writeln!(text, "{},\"{figure}\",{},{}", cells[0], number(cells[column]), number(cells[column + 1]));
        }
    }
    for row in rows(measured, TABLES[1].0)? {
        let cells = cells(row);
        let _ = writeln!(text, "{},\"{}\",{},{}", cells[0], cells[1], number(cells[2]), number(cells[3]));
    }
    Some(text)
}

/// Expands the suffix `k` or `M`, for example `132k` to `132000`.
fn number(cell: &str) -> String {
    let factor = if cell.ends_with('M') { 1e6 } else { 1e3 };
    match cell.strip_suffix(['k', 'M']).and_then(|number| number.parse::<f64>().ok()) {
        Some(number) => format!("{:.0}", number * factor),
        None => cell.to_owned(),
    }
}

/// Returns the rows below the header that begins with `head`.
fn rows<'a>(text: &'a str, head: &str) -> Option<impl Iterator<Item = &'a str>> {
    let begin = text.lines().position(|line| line.starts_with(head))?;
    Some(text.lines().skip(begin + 2).take_while(|line| line.starts_with('|')))
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_start_matches('|').trim_end_matches('|').split('|').map(str::trim).collect()
}
