//! What may happen in the simulated world, as plain data, so that a history can be stored, shortened and replayed.
//!
//! Owns the list, and the form of an action in the format of `tests/conversations`. Must not do anything.

use beanpole::internals::protocol::Wire;

use crate::disk::Deed;

/// An action. Clients are identified by their index.
#[derive(Clone, Debug)]
pub enum Action {
    Connect(usize, Wire),
    /// A client has a command to send in this protocol; clients of other protocols ignore it.
    Say(usize, Wire, Vec<u8>),
    /// A client sends this many bytes of what it has to send.
    Send(usize, usize),
    /// A client reads at most this many bytes.
    Read(usize, usize),
    HalfClose(usize),
    Close(usize),
    /// This many nanoseconds pass.
    Pass(u64),
    /// Parts of the server have their turns: the pool thread, the timer, and the log's three threads.
    Round,
    Timer,
    Sync,
    Write,
    Segments,
    Drain,
    /// The server accepts jobs again.
    Undrain,
    Crash(Crash),
    /// An operation of the disk fails this many times.
    Fail(Deed, i32, u64),
    Heal,
    /// The disk accepts this many more bytes than it holds.
    Fill(u64),
    /// Each write and sync takes this many milliseconds.
    Slow(u64),
}

/// An end of the server, and its next start.
#[derive(Clone, Debug)]
pub struct Crash {
    /// A power cut; otherwise, the process is killed, and written bytes survive.
    pub power: bool,
    pub seed: u64,
    /// The number of disk operations until then.
    pub deeds: u64,
    /// How far the wall clock is ahead afterwards, in milliseconds.
    pub shift: i64,
    /// A byte of the log changes.
    pub flip: bool,
}

fn name(who: usize) -> char {
    char::from(b'A' + (who % 26) as u8)
}

/// Returns sent or received bytes in the escapes of the conversations.
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

/// Returns received bytes as lines of a conversation.
pub fn received(who: usize, bytes: &[u8]) -> String {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let line = |line: &[u8]| match (line.strip_suffix(b"\r\n"), line.strip_suffix(b"\n")) {
        (Some(text), _) => format!("{}< {}\n", name(who), escaped(text)),
        (None, Some(text)) => format!("{}| {}\n", name(who), escaped(text)),
        (None, None) => format!("{}<< {}\n", name(who), escaped(line)),
    };
    lines.map(line).collect()
}

/// Returns sent bytes as lines of a conversation.
pub fn sent(who: usize, bytes: &[u8]) -> String {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let line = |line: &[u8]| match line.strip_suffix(b"\r\n") {
        Some(text) => format!("{}: {}\n", name(who), escaped(text)),
        None => format!("{}:: {}\n", name(who), escaped(line)),
    };
    lines.map(line).collect()
}

impl Action {
    /// Returns the client that acts.
    pub fn client(&self) -> Option<usize> {
        match self {
            Action::Connect(who, _) | Action::Say(who, ..) | Action::Send(who, _) | Action::Read(who, _) => Some(*who),
            Action::HalfClose(who) | Action::Close(who) => Some(*who),
            _ => None,
        }
    }

    /// Returns the line of a conversation, or a comment if conversations have no word for the action.
    pub fn told(&self) -> String {
        match self {
            Action::Connect(who, wire) => match wire {
                Wire::Beanstalk => format!("{} open\n", name(*who)),
                other => format!("# {} connects to speak {other:?}\n", name(*who)),
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
