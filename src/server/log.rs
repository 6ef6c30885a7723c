//! The log: one line an event, to stderr or where `logfile` brings it.
//!
//! Owns the form of a line: time stamp, level, text. Under journald, which stamps lines itself, a line is the level in
//! its own notation and the text. A log that nobody reads holds up nobody: lines are lost then, and counted. Must not
//! decide what is worth a line.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use parking_lot::Mutex;

use super::logfile::{self, severity, Target};

/// How many milliseconds stderr may take no line, as a pipe that its reader has left full, before lines are lost. Then
/// none waits any more until it takes one: threads that serve clients write here, and the one that hears signals.
const PATIENCE: u16 = 250;

struct Stderr {
    journal: bool,
    /// Lines lost since the last one that was written.
    lost: Mutex<u64>,
}

/// What is logged: warnings and what happens once (0), connections too (1), every command too (2).
pub fn level(verbosity: u32) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    }
}

/// Sends the program's log to stderr, or where else it is to go.
pub fn start(level: LevelFilter, elsewhere: Option<Target>) -> io::Result<()> {
    let logger: &'static dyn Log = match elsewhere {
        Some(target) => logfile::open(target)?,
        None => Box::leak(Box::new(Stderr { journal: is_journal(), lost: Mutex::new(0) })),
    };
    // It fails only if there is a log already, and then that one stays.
    if log::set_logger(logger).is_ok() {
        log::set_max_level(level);
    }
    Ok(())
}

/// Whether these are lines of the program's own: libraries have nothing to say that an operator needs.
pub(super) fn is_ours(metadata: &Metadata) -> bool {
    metadata.target().starts_with("beanpole")
}

/// Whether stderr is the stream that journald gave us, and not something it was redirected to since.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else { return false };
    stream == format!("{}:{}", stderr.dev(), stderr.ino())
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata) -> bool {
        is_ours(metadata)
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            self.write(record.level(), &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

impl Stderr {
    fn write(&self, level: Level, text: &str) {
        let now = SystemTime::now();
        let mut lost = self.lost.lock();
        if !is_writable(if *lost == 0 { PATIENCE } else { 0 }) {
            *lost += 1;
            return;
        }
        let mut lines = line(level, text, self.journal, now);
        if *lost > 0 {
            // In one write: there may be no room for another.
            let notice = format!("lines of this log that were lost, since nobody read them: {lost}");
            lines.insert_str(0, &line(Level::Warn, &notice, self.journal, now));
            *lost = 0;
        }
        // There is no other place to complain to.
        let _ = std::io::stderr().lock().write_all(lines.as_bytes());
    }
}

/// Whether stderr takes a line at once, or after so many milliseconds at most. An error is for the write to find.
fn is_writable(patience: u16) -> bool {
    let stderr = std::io::stderr();
    let mut file = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    loop {
        match poll(&mut file, PollTimeout::from(patience)) {
            // A signal says nothing about stderr.
            Err(Errno::EINTR) => {}
            ready => return ready != Ok(0),
        }
    }
}

pub(super) fn line(level: Level, text: &str, journal: bool, now: SystemTime) -> String {
    if journal {
        format!("<{}>{text}\n", severity(level))
    } else {
        format!("{} {level:5} {text}\n", humantime::format_rfc3339_millis(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_level_and_text_or_journald_s_own_form() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_123);
        assert_eq!(line(Level::Warn, "x", false, now), "2023-11-14T22:13:20.123Z WARN  x\n");
        assert_eq!(line(Level::Warn, "x", true, now), "<4>x\n");
    }
}
