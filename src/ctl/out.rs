//! The standard output of a subcommand, its messages and its exit codes. Job data is escaped on a terminal. Tables are
//! aligned on a terminal, and otherwise tab-separated.

use std::cmp::Ordering;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::Duration;

use nix::unistd::write;

use crate::settings::options::BAD_USAGE;
use crate::shared::json::is_hostile;

const EXCERPT: usize = 60;
/// Columns with times in seconds. On a terminal, these times are shown in larger units.
const TIMES: [&str; 10] = ["age", "delay", "for", "left", "oldest ready", "paused", "ran", "silent", "ttr", "waited"];

/// A writer to standard output that fails if standard output is closed. [`io::Stdout`] ignores this error.
struct StrictStdout;

impl Write for StrictStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(write(io::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Out {
    file: BufWriter<StrictStdout>,
    pub is_terminal: bool,
}

impl Out {
    pub fn new() -> Out {
        Out { file: BufWriter::new(StrictStdout), is_terminal: io::stdout().is_terminal() }
    }

    pub fn line(&mut self, text: &str) -> Result {
        let text: &str = if self.is_terminal { &shown(text.as_bytes()) } else { text };
        writeln!(self.file, "{text}").map_err(|error| Problem::output(&error))
    }

    pub fn body(&mut self, body: &[u8]) -> Result {
        if self.is_terminal {
            return self.line(&shown(body));
        }
        self.file.write_all(body).map_err(|error| Problem::output(&error))
    }

    pub fn flush(&mut self) -> Result {
        self.file.flush().map_err(|error| Problem::output(&error))
    }

    pub fn table(&mut self, headings: &[&str], rows: &[Vec<String>]) -> Result {
        let is_time = |head: &&str| self.is_terminal && TIMES.contains(head);
        let text = |(head, cell): (&&str, &String)| {
            let (seconds, fraction) = cell.split_once('.').unwrap_or((cell, ""));
            match seconds.parse() {
                Ok(time @ 0..10) if is_time(head) && !fraction.is_empty() => format!("{time}.{fraction:.3}s"),
                Ok(time) if is_time(head) => span(time),
                _ => on_one_line(cell.as_bytes()),
            }
        };
        let escaped = |row: &Vec<String>| headings.iter().zip(row).map(text).collect();
        let rows = &rows.iter().map(escaped).collect::<Vec<Vec<String>>>();
        if !self.is_terminal {
            self.line(&headings.join("\t"))?;
            return rows.iter().try_for_each(|row| self.line(&row.join("\t")));
        }
        let width_of = |column: usize| {
            rows.iter().map(|row| row[column].chars().count()).chain([headings[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width_of).collect();
        let is_number = |text: &String| text.starts_with(|letter: char| letter.is_ascii_digit() || letter == '-');
        let right: Vec<_> = (0..headings.len()).map(|column| rows.iter().all(|row| is_number(&row[column]))).collect();
        let headings: Vec<String> = headings.iter().map(|head| head.to_ascii_uppercase()).collect();
        for row in [&headings].into_iter().chain(rows) {
            let align = |cell, width, right| if right { format!("{cell:>width$}") } else { format!("{cell:width$}") };
            let cells = row.iter().zip(&widths).zip(&right).map(|((cell, width), right)| align(cell, *width, *right));
            self.line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

pub struct Listing<'a> {
    out: &'a mut Out,
    is_json: bool,
    rows: Vec<Vec<String>>,
}

impl Listing<'_> {
    pub fn new(out: &mut Out, is_json: bool) -> Listing<'_> {
        Listing { out, is_json, rows: Vec::new() }
    }

    pub fn add(&mut self, line: &dyn Fn() -> String, row: &dyn Fn() -> Vec<String>) -> Result {
        if self.is_json {
            return self.out.line(&line());
        }
        self.rows.push(row());
        Ok(())
    }

    pub fn finish(self, headings: &[&str]) -> Result {
        match self.is_json {
            true => Ok(()),
            false => self.out.table(headings, &self.rows),
        }
    }
}

/// Returns sorted indexes. Not generic, because each instance of a sort adds 8 KB to the program.
pub fn in_order(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_unstable_by(|left, right| compare(*left, *right));
    places
}

pub fn job_count(count: u64) -> String {
    format!("{count} job{}", if count == 1 { "" } else { "s" })
}

pub fn span(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{:02}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{minutes:02}m"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}

/// Escapes invalid UTF-8, and control and invisible characters (see [`is_hostile`]) except tabs and line feeds. Does
/// not escape backslashes, so a second call has no effect.
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' | '\t' => text.push(letter),
                '\r' => text.push_str("\\r"),
                letter if is_hostile(letter) => text += &format!("\\u{:04x}", u32::from(letter)),
                letter => text.push(letter),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

pub fn on_one_line(bytes: &[u8]) -> String {
    shown(bytes).replace('\n', "\\n").replace('\t', "\\t")
}

pub fn excerpt(body: &[u8]) -> String {
    // A character has at most four bytes.
    let text = on_one_line(&body[..body.len().min(EXCERPT * 4)]);
    let Some((end, _)) = text.char_indices().nth(EXCERPT) else { return text };
    format!("{}...", &text[..end])
}

/// Problems are boxed to keep results small.
pub type Result<T = (), E = Box<Problem>> = std::result::Result<T, E>;

pub const DONE: u8 = 0;
/// A command was rejected, an object is missing, or a binlog is damaged.
pub const REFUSED: u8 = 1;
/// No job is available, a time limit has expired, or a binlog is unreadable.
pub const EMPTY: u8 = 2;
pub const NO_CONNECTION: u8 = 3;

#[derive(Debug)]
pub struct Problem {
    pub code: u8,
    /// One line, or an empty string to print nothing.
    pub text: String,
}

impl Problem {
    pub fn new(code: u8, text: String) -> Box<Problem> {
        Box::new(Problem { code, text })
    }

    pub fn refused(text: impl Into<String>) -> Box<Problem> {
        Problem::new(REFUSED, text.into())
    }

    pub fn usage(text: impl Into<String>) -> Box<Problem> {
        Problem::new(BAD_USAGE, text.into())
    }

    pub fn check_usage(is_valid: bool, text: &str) -> Result {
        is_valid.then_some(()).ok_or_else(|| Problem::usage(text))
    }

    pub fn empty(text: impl Into<String>) -> Box<Problem> {
        Problem::new(EMPTY, text.into())
    }

    /// If the reader of a pipe has exited, no message is needed.
    pub fn output(error: &io::Error) -> Box<Problem> {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Problem::new(DONE, String::new()),
            _ => Problem::refused(format!("cannot write: {}", plain(error))),
        }
    }

    pub fn file(name: &str, error: &io::Error) -> Box<Problem> {
        Problem::refused(format!("{name}: {}", plain(error)))
    }

    pub fn connection(server: &str, error: &io::Error, timeout: Option<Duration>) -> Box<Problem> {
        let text = match (error.kind(), timeout) {
            (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, Some(timeout)) => {
                format!("{server}: no answer within {} s", timeout.as_secs())
            }
            (io::ErrorKind::UnexpectedEof, _) => format!("{server}: the server closed the connection"),
            (io::ErrorKind::OutOfMemory, _) => format!("{server}: the replies are too large for the memory here"),
            (io::ErrorKind::InvalidData, _) => format!("{server}: invalid reply; this is not a beanstalk server"),
            _ => format!("{server}: {}", plain(error)),
        };
        Problem::new(NO_CONNECTION, text)
    }
}

/// Omits the system error number.
pub fn plain(error: &io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
}

/// Unlike `eprintln!`, does not panic if stderr is closed.
pub(super) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "beanpole: {}", shown(text.as_bytes()));
}

pub fn report_refused(refused: &[String]) -> u8 {
    refused.iter().for_each(|text| tell(text));
    refused.first().map_or(DONE, |_| REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(shown(b"a\x1b[2Jb\x07\r\n\xff\xc3\xa9\xc2\x9b"), "a\\u001b[2Jb\\u0007\\r\n\\xff\u{e9}\\u009b");
        for letter in
            "\u{7f}\u{85}\u{200b}\u{200e}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{61c}\u{ad}\u{e0041}".chars()
        {
            assert_eq!(shown(letter.to_string().as_bytes()), format!("\\u{:04x}", u32::from(letter)));
        }
        assert_eq!(excerpt(b"one\ntwo\tthree"), "one\\ntwo\\tthree");
        assert_eq!(excerpt(&[b'x'; 1000]), "x".repeat(EXCERPT) + "...");
    }
}
