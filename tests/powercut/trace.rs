//! The trace of a history: the program's file operations and the clients' requests and replies, in one order.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::libc;

/// An event in a trace. Paths are relative to the watched directory, which has an empty path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The program started. File handles of earlier processes are invalid.
    Began,
    /// A durable file existed before the program first started in this trace. A path that ends with a slash is an empty
    /// directory.
    Found {
        path: String,
        bytes: Vec<u8>,
    },
    Open {
        handle: u64,
        flags: i32,
        path: String,
    },
    Close {
        handle: u64,
    },
    Write {
        handle: u64,
        place: u64,
        bytes: Vec<u8>,
    },
    /// Zeros were written at an offset.
    Zeros {
        handle: u64,
        place: u64,
        length: u64,
    },
    Truncate {
        handle: u64,
        length: u64,
    },
    Allocate {
        handle: u64,
        mode: i32,
        place: u64,
        length: u64,
    },
    SyncBegin {
        handle: u64,
        number: u64,
    },
    SyncEnd {
        number: u64,
        failed: bool,
    },
    Unlink {
        path: String,
    },
    MakeFolder {
        path: String,
    },
    RemoveFolder {
        path: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Mark(String),
}

/// Indexes into the control file, as in `shim.rs`.
#[derive(Clone, Copy)]
pub enum Number {
    HoldSyncs,
    SyncMicros,
    FailSyncs,
    Freeze,
    Busy,
    Held,
}

const NUMBERS: u64 = 6;

pub struct Trace {
    path: PathBuf,
    file: File,
    control: PathBuf,
    numbers: File,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

fn pair(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).expect("two parts");
    (&bytes[..end], &bytes[end + 1..])
}

/// Parses a record without its length prefix.
fn parse_one(record: &[u8]) -> Event {
    let (handle, second, rest) = (word(&record[1..]), word(&record[9..]), &record[17..]);
    let path = || text(rest);
    let two = || (text(pair(rest).0), text(pair(rest).1));
    match record[0] {
        b'P' => Event::Began,
        b'F' => Event::Found { path: two().0, bytes: pair(rest).1.to_vec() },
        b'O' => Event::Open { handle, flags: second as i32, path: path() },
        b'C' => Event::Close { handle },
        b'W' => Event::Write { handle, place: second, bytes: rest.to_vec() },
        b'0' => Event::Zeros { handle, place: second, length: word(rest) },
        b'T' => Event::Truncate { handle, length: second },
        b'A' => Event::Allocate { handle, mode: second as i32, place: word(rest), length: word(&rest[8..]) },
        b'B' => Event::SyncBegin { handle, number: second },
        b'E' => Event::SyncEnd { number: second, failed: false },
        b'X' => Event::SyncEnd { number: second, failed: true },
        b'U' => Event::Unlink { path: path() },
        b'D' => Event::MakeFolder { path: path() },
        b'R' => Event::RemoveFolder { path: path() },
        b'N' => Event::Rename { from: two().0, to: two().1 },
        b'L' => Event::Link { from: two().0, to: two().1 },
        b'M' => Event::Mark(path()),
        other => panic!("unknown record kind: {other}"),
    }
}

fn records(bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some(record) = behind.get(..length) else { break };
        found.push(record);
        rest = &behind[length..];
    }
    found
}

pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    let bytes = std::fs::read(path)?;
    Ok(records(&bytes).into_iter().map(parse_one).collect())
}

impl Trace {
    pub fn new(folder: &Path, name: &str) -> io::Result<Trace> {
        let (path, control) = (folder.join(format!("{name}.trace")), folder.join(format!("{name}.control")));
        let create = |path| OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        let numbers = create(&control)?;
        numbers.set_len(NUMBERS * 4)?;
        create(&path)?;
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(Trace { path, file, control, numbers })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn control(&self) -> &Path {
        &self.control
    }

    fn append(&self, kind: u8, rest: &[&[u8]]) {
        let rest = rest.concat();
        let length = 17 + rest.len() as u32;
        let record = [&length.to_le_bytes()[..], &[kind], &[0; 16], &rest].concat();
        // A single write is atomic. Several writes could be interleaved with those of the program, which appends to the
        // same file.
        let written = io::Write::write(&mut &self.file, &record).expect("a writable file");
        assert_eq!(written, record.len());
    }

    pub fn mark(&self, text: &str) {
        self.append(b'M', &[text.as_bytes()]);
    }

    /// Records a durable file that exists before the program first starts in this trace.
    pub fn found(&self, path: &str, bytes: &[u8]) {
        self.append(b'F', &[path.as_bytes(), b"\0", bytes]);
    }

    pub fn continue_from(&self, other: &Path, count: usize) -> io::Result<()> {
        let bytes = std::fs::read(other)?;
        let records: Vec<&[u8]> = records(&bytes).into_iter().take(count).collect();
        let whole = records.into_iter().flat_map(|record| [&(record.len() as u32).to_le_bytes()[..], record].concat());
        io::Write::write_all(&mut &self.file, &whole.collect::<Vec<u8>>())
    }

    pub fn set(&self, number: Number, value: u32) {
        self.numbers.write_all_at(&value.to_ne_bytes(), number as u64 * 4).expect("a writable file");
    }

    pub fn get(&self, number: Number) -> u32 {
        let mut bytes = [0; 4];
        self.numbers.read_exact_at(&mut bytes, number as u64 * 4).expect("a number");
        u32::from_ne_bytes(bytes)
    }
}

impl Event {
    /// Returns `true` if the event can change directory entries.
    pub fn is_of_folder(&self) -> bool {
        match self {
            Event::Open { flags, .. } => flags & libc::O_CREAT != 0,
            Event::Unlink { .. } | Event::MakeFolder { .. } | Event::RemoveFolder { .. } => true,
            Event::Rename { .. } | Event::Link { .. } => true,
            _ => false,
        }
    }
}
