//! The actions of a simulated world as plain data. Histories can therefore be stored, reduced and replayed.
//!
//! Owns the list of actions and their representation in the syntax of `tests/conversations`. Must not execute actions.

use beanpole::internals::protocol::Wire;

use crate::disk::Operation;

/// An action. A client is identified by its index.
#[derive(Clone, Debug)]
pub enum Action {
    Connect(usize, Wire),
    /// Gives a client one or more commands to send, in the given protocol. A client of another protocol ignores the
    /// action.
    Say(usize, Wire, Vec<u8>),
    /// A client sends at most this many bytes of its pending input.
    Send(usize, usize),
    /// A client reads at most this many bytes.
    Read(usize, usize),
    HalfClose(usize),
    Close(usize),
    /// Advances the clock by this many nanoseconds.
    Pass(u64),
    /// Runs the pool thread once. Each of the next four variants runs the timer or a thread of the log once.
    Round,
    Timer,
    Sync,
    Write,
    Segments,
    Drain,
    Undrain,
    Crash(Crash),
    /// Makes the next disk operations of this kind fail. The numbers are the error number and the number of failures.
    Fail(Operation, i32, u64),
    Heal,
    /// Limits the free space of the disk to this many bytes.
    Fill(u64),
    /// Makes each write and sync take this many milliseconds.
    Slow(u64),
}

/// A crash of the server and the conditions of its next start.
#[derive(Clone, Debug)]
pub struct Crash {
    /// `true` for a power failure, or `false` for a kill, which preserves written bytes.
    pub power: bool,
    pub seed: u64,
    /// The number of disk operations after which the server crashes.
    pub operations: u64,
    /// The change of the wall clock between the crash and the restart, in milliseconds.
    pub shift: i64,
    /// `true` if a byte of the log changes during the crash.
    pub flip: bool,
}

fn name(who: usize) -> char {
    char::from(b'A' + (who % 26) as u8)
}

/// Returns bytes in the escape syntax of conversations.
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(byte)),
            other => text.push_str(&format!("\\x{other:02x}")),
        }
    }
    if text.ends_with(' ') {
        text.truncate(text.len() - 1);
        text.push_str("\\s");
    }
    text
}

/// Converts the bytes that a client received into lines of a conversation.
pub fn received(who: usize, bytes: &[u8]) -> String {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let line = |line: &[u8]| match (line.strip_suffix(b"\r\n"), line.strip_suffix(b"\n")) {
        (Some(text), _) => format!("{}< {}\n", name(who), escaped(text)),
        (None, Some(text)) => format!("{}| {}\n", name(who), escaped(text)),
        (None, None) => format!("{}<< {}\n", name(who), escaped(line)),
    };
    lines.map(line).collect()
}

/// Converts the bytes that a client sent into lines of a conversation.
pub fn sent(who: usize, bytes: &[u8]) -> String {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let line = |line: &[u8]| match line.strip_suffix(b"\r\n") {
        Some(text) => format!("{}: {}\n", name(who), escaped(text)),
        None => format!("{}:: {}\n", name(who), escaped(line)),
    };
    lines.map(line).collect()
}

impl Action {
    /// Returns the index of the client that performs the action, if any.
    pub fn client(&self) -> Option<usize> {
        match self {
            Action::Connect(who, _) | Action::Say(who, ..) | Action::Send(who, _) | Action::Read(who, _) => Some(*who),
            Action::HalfClose(who) | Action::Close(who) => Some(*who),
            _ => None,
        }
    }

    /// Converts the action into a line of a conversation, or into a comment if conversations cannot express the action.
    /// Returns an empty string for `Say`, `Send`, `Read`, `Round` and `Timer`.
    pub fn describe(&self) -> String {
        match self {
            Action::Connect(who, wire) => match wire {
                Wire::Beanstalk => format!("{} open\n", name(*who)),
                other => format!("# {} connects with {other:?}\n", name(*who)),
            },
            Action::Say(..) | Action::Read(..) | Action::Send(..) => String::new(),
            Action::HalfClose(who) => format!("{} half-close\n", name(*who)),
            Action::Close(who) => format!("{} close\n", name(*who)),
            Action::Pass(nanos) => format!("+{}.{:09}\n", nanos / 1_000_000_000, nanos % 1_000_000_000),
            Action::Drain => "drain\n".to_owned(),
            Action::Round | Action::Timer => String::new(),
            other => format!("# {other:?}\n"),
        }
    }
}
