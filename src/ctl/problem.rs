//! The error type of subcommands: an exit code and a message.

use std::io;
use std::ops::Deref;

use crate::settings::options::BAD_USAGE;

pub type Result<T = (), E = Problem> = std::result::Result<T, E>;

pub const DONE: u8 = 0;

/// A command was rejected, an object is missing, or a binlog is damaged.
pub const REFUSED: u8 = 1;

/// No job is available, a time limit has expired, or a binlog is unreadable.
pub const EMPTY: u8 = 2;

pub const NO_CONNECTION: u8 = 3;

/// Boxed to keep the results of functions small.
#[derive(Debug)]
pub struct Problem(Box<Reason>);

#[derive(Debug)]
pub struct Reason {
    pub code: u8,
    /// One line, or an empty string to print nothing.
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

    /// A closed pipe of stdout needs no message.
    pub fn output(error: &io::Error) -> Problem {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Problem::new(DONE, String::new()),
            _ => Problem::refused(format!("cannot write: {}", plain(error))),
        }
    }

    pub fn file(name: &str, error: &io::Error) -> Problem {
        Problem::refused(format!("{name}: {}", plain(error)))
    }

    /// A timeout happens after this many `seconds`.
    pub fn connection(server: &str, error: &io::Error, seconds: Option<u64>) -> Problem {
        let text = match (error.kind(), seconds) {
            (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, Some(seconds)) => {
                format!("{server}: no answer within {seconds} s")
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
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
