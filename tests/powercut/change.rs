//! The individual changes of a queue, and their textual form in a trace.
//!
//! After a crash, the log contains each change completely or not at all. One command can make several changes. Must not
//! contain the effects of changes, which `book` contains.

use std::str::Split;

use crate::book::Job;

/// A client's protocol, which determines whether the key of a job is a number or an ID that the client has chosen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wire {
    Beanstalk,
    Gearman,
    Workq,
    /// Jobs that were put over HTTP belong to [`Wire::Beanstalk`].
    Http,
}

/// A body that begins with `word`. The remaining bytes are derived from `word`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    pub word: String,
    pub length: usize,
}

/// A part of the textual form of a change.
trait Word {
    fn write(&self) -> String;
    fn read(words: &mut Split<char>) -> Self;
}

/// An empty string is written as a hyphen, and each space is written as a vertical bar.
impl Word for String {
    fn write(&self) -> String {
        if self.is_empty() {
            "-".to_owned()
        } else {
            self.replace(' ', "|")
        }
    }

    fn read(words: &mut Split<char>) -> String {
        let word = words.next().expect("a word");
        if word == "-" {
            String::new()
        } else {
            word.replace('|', " ")
        }
    }
}

macro_rules! plain_words {
    ($($kind:ty)+) => {$(
        impl Word for $kind {
            fn write(&self) -> String {
                self.to_string()
            }

            fn read(words: &mut Split<char>) -> $kind {
                words.next().and_then(|word| word.parse().ok()).expect("a word of this type")
            }
        }
    )+};
}

plain_words!(u32 u64 usize bool);

impl Word for Wire {
    fn write(&self) -> String {
        format!("{self:?}")
    }

    fn read(words: &mut Split<char>) -> Wire {
        let word = words.next();
        let wires = [Wire::Beanstalk, Wire::Gearman, Wire::Workq];
        wires.into_iter().find(|wire| Some(&*wire.write()) == word).expect("a protocol")
    }
}

impl<T: Word> Word for Box<T> {
    fn write(&self) -> String {
        T::write(self)
    }

    fn read(words: &mut Split<char>) -> Box<T> {
        Box::new(T::read(words))
    }
}

macro_rules! structs {
    ($($name:ident { $($field:ident),+ $(; $($other:ident: $value:expr),+)? })+) => {$(
        impl Word for $name {
            fn write(&self) -> String {
                [$(self.$field.write()),+].join(" ")
            }

            fn read(words: &mut Split<char>) -> $name {
                $name { $($field: Word::read(words),)+ $($($other: $value),+)? }
            }
        }
    )+};
}

structs! {
    Body { word, length }
    Job { wire, tube, body, pri, delay, ttr, unique, reducer, volatile, max_fails, max_attempts, tags; fails: 0, over: None }
}

macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* })+) => {
        /// A change that the log stores as a whole. The key of a job is its number in decimal, or its Workq ID.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Change {
            $($(#[$doc])* $name { $($field: $kind),* }),+
        }

        impl Change {
            pub fn write(&self) -> String {
                match self {
                    $(Change::$name { $($field),* } => [stringify!($name).to_owned(), $($field.write()),*].join(" "),)+
                }
            }

            pub fn read(text: &str) -> Change {
                let mut words = text.split(' ');
                match words.next() {
                    $(Some(stringify!($name)) => Change::$name { $($field: Word::read(&mut words)),* },)+
                    _ => panic!("unknown change: {text}"),
                }
            }
        }
    };
}

changes! {
    Put { key: String, job: Box<Job> }
    /// A job that was stored only in memory becomes durable.
    Persist { key: String }
    Reserve { key: String }
    Release { key: String, pri: u32, delay: u64 }
    Bury { key: String, pri: u32 }
    /// A job that was just buried gets the delay and the origin of an imported job.
    Import { key: String, delay: u64, from: String }
    /// A job is taken from its worker and buried. Its former holder cannot delete it.
    Revoke { key: String, pri: u32 }
    /// The reason for a failure. This change precedes the failure.
    Reason { key: String, reason: String }
    /// A job fails. If the job has no tries left, it is buried in its tube.
    Fail { key: String, pri: u32 }
    /// A buried job moves to the dead-letter tube.
    Dead { key: String, tube: String }
    /// The client disconnects while it holds the job, which counts as a failed try.
    Lose { key: String }
    Kick { key: String }
    /// A schedule runs and puts a copy.
    Run { key: String, copy: String }
    /// A due schedule does not run, because its last copy still exists.
    Skip { key: String }
    Delete { key: String }
    /// Deletes the jobs of a tube except its schedules, all (`tube`) or only some; see `Act::Flush`.
    Flush { tube: String, states: String }
    Pause { tube: String, seconds: u64 }
    Move { key: String, tube: String, pri: u32, delay: u64 }
    /// A buried job moves to another tube and remains buried.
    Shift { key: String, tube: String }
    MoveTube { from: String, to: String, state: String, bound: u64 }
    Set { tube: String, settings: String }
    Lease { key: String }
    /// A Workq worker has reported the outcome.
    Outcome { key: String, done: bool, result: Body }
    Restart {}
}

impl Body {
    pub fn new(word: &str, length: usize) -> Body {
        Body { word: word.to_owned(), length: length.max(word.len() + 1) }
    }

    /// Returns the bytes. They contain no zero byte and no line break.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}:", self.word).into_bytes();
        let mut state = hash(self.word.as_bytes());
        while bytes.len() < self.length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.extend((state >> 16).to_le_bytes()[..6].iter().map(|byte| b'0' + byte % 64));
        }
        bytes.truncate(self.length);
        bytes
    }

    pub fn of(bytes: &[u8]) -> Body {
        let start = bytes.split(|byte| *byte == b':').next().unwrap_or_default();
        let word = String::from_utf8_lossy(&start[..start.len().min(40)]).into_owned();
        let body = Body { word, length: bytes.len() };
        if body.bytes() == bytes {
            return body;
        }
        Body { word: format!("{} (damaged, {:x})", body.word, hash(bytes)), length: bytes.len() }
    }
}

pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Change {
    /// Returns the key and the protocol of the job that the change adds to the queue.
    pub fn added(&self) -> Option<(&str, Wire)> {
        match self {
            Change::Put { key, job } => Some((key, job.wire)),
            Change::Run { copy, .. } => Some((copy, Wire::Beanstalk)),
            _ => None,
        }
    }
}
