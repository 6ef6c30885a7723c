//! The format of one log line.
//!
//! Owns its time stamp and its layout. Must not write it anywhere.

use std::time::{SystemTime, UNIX_EPOCH};

use log::Level;

use crate::engine::push_moment;

/// Formats a line of text with time stamp and level.
pub fn text_line(level: Level, text: &str, now: SystemTime) -> String {
    format!("{} {level:5} {text}\n", timestamp(now))
}

/// Formats a time as in RFC 3339, with milliseconds; a time before 1970 as the start of 1970.
pub fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut moment = Vec::with_capacity(24);
    push_moment(&mut moment, since.as_secs());
    format!("{}.{:03}Z", String::from_utf8_lossy(&moment), since.subsec_millis())
}

/// Returns the syslog severity of a level.
pub fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}
