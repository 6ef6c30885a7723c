//! Conversations: plain text with the input of each client and the expected output of the server.
//!
//! Owns the parsing of `tests/conversations/*.txt`, and the comparison with the actual output. An implementation of
//! [`World`] provides the server. Each line is one step:
//!
//! ```text
//! == title              a new conversation, with a fresh server       options: -z N   directly below the title
//! wire gearman          the protocol (default: beanstalk); before the first title, the default of the whole file
//! A: text               A sends text and CR LF                        A:: text        A sends text without CR LF
//! A< text               A must receive text and CR LF                 A<< text        A must receive text, maybe more
//! A| text               A must receive text and LF (YAML)             A|*             all further lines of that body
//! A.                    A must receive nothing more                   A eof           the server must have closed
//! A open                A connects (default: at its first step)       A close         A closes the connection
//! A half-close          A shuts down its sending side
//! +1.5                  time passes, in seconds                       drain           the server starts to drain
//! A! ECHO_REQ text      A sends a Gearman packet                      A= ECHO_RES text A must receive just this packet
//! ```
//!
//! A connection's name consists of capital letters and digits. A prefix, as in `b:name`, `g:name` or `w:name`, selects
//! beanstalk, Gearman or Workq for the connection, and permits lowercase letters in the name. A packet type can also be
//! a number. `\H` is the prefix of job handles: `H:`, the host name, and `:`.
//!
//! Escapes: `\r \n \t \0 \\ \xHH`, `\s` (a space at the end of a line), `\(text*N)` (N repetitions). In expected
//! output, `<n>` matches digits, `<any>` matches any text in the line, and `<len>` matches the number of bytes in the
//! following `|` lines. Lines that begin with `#` are comments.

mod packets;
mod runner;
mod socket;
mod text;

pub use runner::run;
pub use socket::{Connection, Sockets};
pub use text::{load, Conversation, Wire};
#[allow(unused_imports)] // not every test program uses the steps
pub use text::{Step, What};

use std::time::Duration;

/// A server and its connections, on which conversations can run.
pub trait World {
    /// Connects client `who`. An error contains the reason why the connection failed.
    fn open(&mut self, who: &str, wire: Wire) -> Result<(), String>;
    fn send(&mut self, who: &str, bytes: &[u8]);
    /// Returns the bytes that `who` has received since the last call, if any. `patience` determines the timeout.
    fn receive(&mut self, who: &str, patience: Patience) -> Vec<u8>;
    /// Returns `true` if the server has closed the connection and all received bytes have been read.
    fn ended(&self, who: &str) -> bool;
    fn half_close(&mut self, who: &str);
    fn close(&mut self, who: &str);
    /// Advances the virtual clock, or sleeps.
    fn pass(&mut self, time: Duration);
    fn drain(&mut self);
}

/// The expectation that a caller passes to [`World::receive`]. It determines the timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Bytes must arrive.
    Must,
    /// No bytes may arrive.
    MustNot,
}
