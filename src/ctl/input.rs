//! The input files of subcommands, and a progress bar in the last line of stderr.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::time::{Duration, Instant};
use std::{fs::File, os::fd::AsFd};

use super::prelude::*;

/// The size in bytes of the parts in which a line is read.
const PART: u64 = 64 * 1024;

pub struct Input<'a> {
    name: &'a str,
    reader: BufReader<File>,
    size: Option<u64>,
    read: u64,
    progress: ProgressBar,
}

pub fn each_input(names: &[String], each: &mut dyn FnMut(Input) -> Result) -> Result {
    if names.is_empty() {
        return each(Input::of("stdin", io::stdin().as_fd().try_clone_to_owned().map(File::from))?);
    }
    names.iter().try_for_each(|name| each(Input::of(name, File::open(name))?))
}

impl Input<'_> {
    fn of(name: &str, file: io::Result<File>) -> Result<Input<'_>> {
        let file = file.map_err(|error| Problem::file(name, &error))?;
        let size = file.metadata().ok().filter(|about| about.is_file()).map(|about| about.len());
        let reader = BufReader::with_capacity(64 * 1024, file);
        Ok(Input { name, reader, size, read: 0, progress: ProgressBar::new("jobs") })
    }

    pub fn rest(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes).map_err(|error| Problem::file(self.name, &error))?;
        Ok(bytes)
    }

    /// Reads a line of at most `limit` bytes. Returns `false` at the end of the file. The progress bar shows `done`.
    pub fn line(&mut self, line: &mut Vec<u8>, limit: u64, done: u64) -> Result<bool> {
        self.progress.update(done, self.size.map(|size| (self.read, size)));
        line.clear();
        let mut reader = (&mut self.reader).take(limit);
        while !line.ends_with(b"\n") {
            // Reserve memory for each part, because `read_until` alone would abort the process if memory runs out.
            let read = line.try_reserve(PART as usize).map_err(io::Error::from);
            let read = read.and_then(|()| (&mut reader).take(PART).read_until(b'\n', line));
            if read.map_err(|error| Problem::file(self.name, &error))? == 0 {
                break;
            }
        }
        // The parsed line and its command need memory as well.
        let parsed = Vec::<u8>::new().try_reserve(line.len().saturating_mul(2)).map_err(io::Error::from);
        parsed.map_err(|error| Problem::file(self.name, &error))?;
        self.read += line.len() as u64;
        Ok(!line.is_empty())
    }
}

const INTERVAL: Duration = Duration::from_millis(200);

pub struct ProgressBar {
    what: &'static str,
    begun: Instant,
    next: Instant,
    is_shown: bool,
    is_written: bool,
}

impl ProgressBar {
    pub fn new(what: &'static str) -> ProgressBar {
        let (begun, is_shown) = (Instant::now(), io::stderr().is_terminal());
        // Delay the first update, so that a short operation shows no progress bar.
        ProgressBar { what, begun, next: begun + INTERVAL, is_shown, is_written: false }
    }

    /// `part` is the completed amount and the total.
    pub fn update(&mut self, count: u64, part: Option<(u64, u64)>) {
        let now = Instant::now();
        if !self.is_shown || now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        self.is_written = true;
        let line = line(self.what, count, part, now - self.begun);
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }

    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_written) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.end();
    }
}

fn line(what: &str, count: u64, part: Option<(u64, u64)>, elapsed: Duration) -> String {
    let millis = (elapsed.as_millis() as u64).max(1);
    let rate = count.saturating_mul(1000) / millis;
    let text = format!("{count} {what}  {rate}/s");
    let Some((done, all)) = part.filter(|(_, all)| *all > 0) else { return text };
    let done = done.min(all);
    let bar = format!("{:20}", "#".repeat((u128::from(done) * 20 / u128::from(all)) as usize));
    let percent = u128::from(done) * 100 / u128::from(all);
    let left = (u128::from(all - done) * u128::from(millis) / u128::from(done.max(1)) / 1000) as u64;
    format!("[{bar}] {percent:3}%  {text}  {left} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_shows_the_rate_and_the_remaining_time() {
        let second = Duration::from_secs(1);
        assert_eq!(line("jobs", 500, None, second), "500 jobs  500/s");
        let expected = "[#####               ]  25%  500 jobs  500/s  3 s left";
        assert_eq!(line("jobs", 500, Some((25, 100)), second), expected);
        assert!(line("jobs", u64::MAX, Some((u64::MAX, 3)), Duration::ZERO).contains("100%"));
        assert!(line("jobs", 0, Some((0, u64::MAX)), second).contains("  0%"));
    }
}
