//! One line of the log.
//!
//! Owns its time stamp and its form. Must not write it anywhere.

use std::time::{SystemTime, UNIX_EPOCH};

use log::Level;

use crate::shared::calendar::push_moment;

/// Formats a line of text.
pub fn text_line(level: Level, text: &str, now: SystemTime) -> String {
    format!("{} {level:5} {text}\n", timestamp(now))
}

/// Formats a time as RFC 3339 has it, with milliseconds; a time before 1970 as the beginning of that year.
pub fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut moment = Vec::with_capacity(24);
    push_moment(&mut moment, since.as_secs());
    format!("{}.{:03}Z", String::from_utf8_lossy(&moment), since.subsec_millis())
}

/// The system's number for a level.
pub fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}
