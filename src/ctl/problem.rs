//! Why a subcommand ends, in one line and an exit code.
//!
//! Owns the exit codes and the words for what goes wrong with a server. Must not write them anywhere.

use std::io;
use std::ops::Deref;

use crate::settings::options::BAD_USAGE;

/// It did what it was told.
pub const DONE: u8 = 0;

/// The server refused it, or it concerns something that is not there; of `check` and `backup`: there is damage.
pub const REFUSED: u8 = 1;

/// There was nothing to do it with, or it took too long; of `check` and `backup`: they cannot read or write.
pub const EMPTY: u8 = 2;

/// There is no connection to the server, or no more.
pub const NO_CONNECTION: u8 = 3;

/// What ends a subcommand before its time. It is one pointer, since nearly every function hands it on.
#[derive(Debug)]
pub struct Problem(Box<Reason>);

#[derive(Debug)]
pub struct Reason {
    pub code: u8,
    /// One line; empty if there is nothing to say.
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

    /// The server refused it, or it is not there.
    pub fn refused(text: impl Into<String>) -> Problem {
        Problem::new(REFUSED, text.into())
    }

    pub fn usage(text: impl Into<String>) -> Problem {
        Problem::new(BAD_USAGE, text.into())
    }

    /// Nothing was found, or the time is over.
    pub fn empty(text: impl Into<String>) -> Problem {
        Problem::new(EMPTY, text.into())
    }

    /// The output cannot be written. That its reader has gone is nothing to speak of.
    pub fn output(error: &io::Error) -> Problem {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Problem::new(DONE, String::new()),
            _ => Problem::refused(format!("cannot write: {}", plain(error))),
        }
    }

    pub fn file(name: &str, error: &io::Error) -> Problem {
        Problem::refused(format!("{name}: {}", plain(error)))
    }

    /// The connection to a server of this name failed.
    pub fn connection(server: &str, error: &io::Error, seconds: Option<u64>) -> Problem {
        let text = match (error.kind(), seconds) {
            (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, Some(seconds)) => {
                format!("{server}: no answer within {seconds} s")
            }
            (io::ErrorKind::UnexpectedEof, _) => format!("{server}: the server closed the connection"),
            (io::ErrorKind::InvalidData, _) => format!("{server}: that is no reply of a beanstalk server"),
            _ => format!("{server}: {}", plain(error)),
        };
        Problem::new(NO_CONNECTION, text)
    }
}

/// What the system says, without its number for it.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
