//! Conversations: plain text that says who sends what and what must come back.
//!
//! Owns the reading of `tests/conversations/*.txt` and the matching; where a conversation takes place is a [`World`]'s
//! business. A line is one step:
//!
//! ```text
//! == title              a new conversation, with a fresh server       options: -z N   directly below the title
//! wire gearman          what its connections speak, beanstalk if it does not say; above all titles, for the whole file
//! A: text               A sends text and CR LF                        A:: text        A sends text alone
//! A< text               A must get text and CR LF               A<< text        A must get text, with more behind it
//! A| text               A must get text and LF (YAML)                 A|*             and any more lines of that body
//! A.                    A must have got nothing more                  A eof           the server must have closed
//! A open                A connects (else with its first step)         A close         A closes
//! A half-close          A sends no more, but reads on
//! +1.5                  time passes, in seconds                       drain           the server starts to drain
//! A! ECHO_REQ text      A sends a Gearman packet                      A= ECHO_RES text A must get this packet, whole
//! ```
//!
//! A connection's name has capitals and digits; `b:name`, `g:name` and `w:name` speak beanstalk, Gearman and Workq
//! whatever the others do. A packet may be given by its number. `\H` is what job handles begin with, `H:` and the
//! host's name and `:`.
//!
//! Escapes: `\r \n \t \0 \\ \xHH`, `\s` (a space at an end), `\(text*N)` (N times). In what must come: `<n>` is digits,
//! `<any>` anything on the line, `<len>` the number of bytes in the `|` lines below. Lines with `#` are comments.

mod packets;
mod runner;
mod socket;
mod text;

pub use runner::run;
pub use socket::{Connection, Sockets};
pub use text::{load, Conversation, Wire};
#[allow(unused_imports)] // not every test program looks at the steps
pub use text::{Step, What};

use std::time::Duration;

/// Where conversations take place.
pub trait World {
    /// A connects with this protocol. The error says why it could not.
    fn open(&mut self, who: &str, wire: Wire) -> Result<(), String>;
    /// Sends bytes.
    fn send(&mut self, who: &str, bytes: &[u8]);
    /// Returns what A has received since the last time, and waits for it if more may come; an empty result means that
    /// nothing comes.
    fn receive(&mut self, who: &str, patience: Patience) -> Vec<u8>;
    /// Returns `true` if the server has closed A's connection, as far as was received.
    fn ended(&self, who: &str) -> bool;
    /// A half-closes its connection.
    fn half_close(&mut self, who: &str);
    /// A disconnects.
    fn close(&mut self, who: &str);
    /// Time passes.
    fn pass(&mut self, time: Duration);
    /// The server starts to drain.
    fn drain(&mut self);
}

/// How long to wait for bytes, where waiting makes a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// They must come.
    Must,
    /// They must not come.
    MustNot,
}
