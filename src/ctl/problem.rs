//! The failure of a subcommand: an exit code and a line of text.
//!
//! Owns the exit codes, and the messages for lost connections. Must not print them.

use std::io;
use std::ops::Deref;

use crate::settings::options::BAD_USAGE;

pub const DONE: u8 = 0;

/// The exit code if the server refuses a command or an object does not exist, and for a damaged binlog.
pub const REFUSED: u8 = 1;

/// The exit code if there is no job or a time limit expires, and if a binlog cannot be read or written.
pub const EMPTY: u8 = 2;

/// The exit code if the connection to the server fails.
pub const NO_CONNECTION: u8 = 3;

/// The failure of a subcommand. Boxed, because nearly every function returns it.
#[derive(Debug)]
pub struct Problem(Box<Reason>);

#[derive(Debug)]
pub struct Reason {
    pub code: u8,
    /// One line, or empty if there is nothing to report.
    pub text: String,
}

impl Deref for Problem {
    type Target = Reason;
    fn deref(&self) -> &Reason {
        &self.0
    }
}

impl Problem {
    pub fn new(code: u8, text: String) -> Problem {
        Problem(Box::new(Reason { code, text }))
    }

    pub fn refused(text: impl Into<String>) -> Problem {
        Problem::new(REFUSED, text.into())
    }

    pub fn usage(text: impl Into<String>) -> Problem {
        Problem::new(BAD_USAGE, text.into())
    }

    pub fn empty(text: impl Into<String>) -> Problem {
        Problem::new(EMPTY, text.into())
    }

    /// Returns the problem for an output error. It has no text if the reader is gone.
    pub fn output(error: &io::Error) -> Problem {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Problem::new(DONE, String::new()),
            _ => Problem::refused(format!("cannot write: {}", plain(error))),
        }
    }

    pub fn file(name: &str, error: &io::Error) -> Problem {
        Problem::refused(format!("{name}: {}", plain(error)))
    }

    /// Returns the problem for a failed connection to the server with this name.
    pub fn connection(server: &str, error: &io::Error, seconds: Option<u64>) -> Problem {
        let text = match (error.kind(), seconds) {
            (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, Some(seconds)) => {
                format!("{server}: no answer within {seconds} s")
            }
            (io::ErrorKind::UnexpectedEof, _) => format!("{server}: the server closed the connection"),
            (io::ErrorKind::InvalidData, _) => format!("{server}: invalid reply; this is not a beanstalk server"),
            _ => format!("{server}: {}", plain(error)),
        };
        Problem::new(NO_CONNECTION, text)
    }
}

/// Returns the system's error message without the error number.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
