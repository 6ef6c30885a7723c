//! The log: one line an event, to stderr.
//!
//! Owns the form of a line: time stamp, level, text. Under journald, which stamps lines itself, a line is the level in its
//! own notation and the text. Must not decide what is worth a line.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use log::{Level, LevelFilter, Log, Metadata, Record};

struct Stderr {
    journal: bool,
}

/// Sends the program's log to stderr: warnings and what happens once (0), connections too (1), every command too (2).
pub fn start(verbosity: u32) {
    let level = match verbosity {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    // It fails only if there is a log already, and then that one stays.
    if log::set_boxed_logger(Box::new(Stderr { journal: is_journal() })).is_ok() {
        log::set_max_level(level);
    }
}

/// Whether stderr is the stream that journald gave us, and not something it was redirected to since.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else { return false };
    stream == format!("{}:{}", stderr.dev(), stderr.ino())
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // Libraries have nothing to say that an operator needs.
        metadata.target().starts_with("beanpole")
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            let line = line(record.level(), &record.args().to_string(), self.journal, SystemTime::now());
            // There is no other place to complain to.
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

fn line(level: Level, text: &str, journal: bool, now: SystemTime) -> String {
    if journal {
        let number = match level {
            Level::Error => 3,
            Level::Warn => 4,
            Level::Info => 6,
            Level::Debug | Level::Trace => 7,
        };
        format!("<{number}>{text}\n")
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
