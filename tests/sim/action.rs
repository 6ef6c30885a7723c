//! What may happen in the simulated world, as plain data, so that a history can be kept, cut short and played again.
//!
//! Owns the list, and how an action is told in the format of `tests/conversations`. Must not do anything.

use beanpole::internals::protocol::Wire;

use crate::disk::Deed;

/// One thing that happens. Clients are known by their places.
#[derive(Clone, Debug)]
pub enum Action {
    Connect(usize, Wire),
    /// The client has a command to send, in this protocol; nobody says it who speaks another.
    Say(usize, Wire, Vec<u8>),
    /// It sends so many bytes of what it has to say.
    Send(usize, usize),
    /// It reads so many bytes at the most.
    Read(usize, usize),
    HalfClose(usize),
    Close(usize),
    /// So many nanoseconds pass.
    Pass(u64),
    /// Parts of the server have their turns: the pool thread, the timer, and the log's three.
    Round,
    Timer,
    Sync,
    Write,
    Segments,
    Drain,
    /// The server accepts jobs again.
    Undrain,
    Crash(Crash),
    /// A deed of the disk fails so often.
    Fail(Deed, i32, u64),
    Heal,
    /// The disk takes so many bytes more than it holds.
    Fill(u64),
    /// Each write and sync takes so many milliseconds.
    Slow(u64),
}

/// An end of the server, and its next start.
#[derive(Clone, Debug)]
pub struct Crash {
    /// Else the process is killed, and what was written stays.
    pub power: bool,
    pub seed: u64,
    /// So many deeds of the disk later.
    pub deeds: u64,
    /// By so many milliseconds the wall clock is ahead afterwards.
    pub shift: i64,
    /// A byte of the log is another one afterwards.
    pub flip: bool,
}

fn name(who: usize) -> char {
    char::from(b'A' + (who % 26) as u8)
}

/// What is sent or received, in the escapes of the conversations.
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

/// What a client gets, as lines of a conversation.
pub fn received(who: usize, bytes: &[u8]) -> String {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let line = |line: &[u8]| match (line.strip_suffix(b"\r\n"), line.strip_suffix(b"\n")) {
        (Some(text), _) => format!("{}< {}\n", name(who), escaped(text)),
        (None, Some(text)) => format!("{}| {}\n", name(who), escaped(text)),
        (None, None) => format!("{}<< {}\n", name(who), escaped(line)),
    };
    lines.map(line).collect()
}

/// What a client sends, as lines of a conversation.
pub fn sent(who: usize, bytes: &[u8]) -> String {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let line = |line: &[u8]| match line.strip_suffix(b"\r\n") {
        Some(text) => format!("{}: {}\n", name(who), escaped(text)),
        None => format!("{}:: {}\n", name(who), escaped(line)),
    };
    lines.map(line).collect()
}

impl Action {
    /// The client that acts.
    pub fn client(&self) -> Option<usize> {
        match self {
            Action::Connect(who, _) | Action::Say(who, ..) | Action::Send(who, _) | Action::Read(who, _) => Some(*who),
            Action::HalfClose(who) | Action::Close(who) => Some(*who),
            _ => None,
        }
    }

    /// Its line in a conversation, or a comment where conversations have no word for it.
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
