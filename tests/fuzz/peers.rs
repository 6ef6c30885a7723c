//! Tests the decoding of HTTP responses, of a beanstalk server's replies, and of entries of a cluster's shared log.
//!
//! Owns the socket pairs over which clients read the input. Reading must end, and invalid input must cause an error.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use beanpole::internals::client::{Exchange, Keep, Transport};
use beanpole::internals::cluster::{merge, EntryKind, Head, Operation};
use beanpole::Client;

use crate::files::piece;

type Files = BTreeMap<String, Vec<u8>>;

/// The maximum size of a file. Bytes beyond this size are ignored.
const MAX_FILE: u64 = 1 << 12;

/// Executes operations. Encoding and decoding an operation must not change it.
fn execute(mut operations: &[u8], files: &mut Files) {
    let write = |file: &mut Vec<u8>, at: u64, bytes: &[u8]| {
        for (place, byte) in (at..MAX_FILE).zip(bytes) {
            file.resize(file.len().max(place as usize + 1), 0);
            file[place as usize] = *byte;
        }
    };
    while let Some(operation) = Operation::decode(&mut operations) {
        let encoded = operation.encode();
        assert_eq!(Operation::decode(&mut &*encoded).as_ref(), Some(&operation));
        match operation {
            Operation::Create(name, size) => {
                files.insert(name.to_owned(), vec![0; size.min(MAX_FILE) as usize]);
            }
            Operation::Write(name, at, bytes) => write(files.entry(name.to_owned()).or_default(), at, bytes),
            Operation::Truncate(name, length) => {
                files.entry(name.to_owned()).or_default().resize(length.min(MAX_FILE) as usize, 0);
            }
            Operation::Rename(name, to) => {
                if let Some(file) = files.remove(name) {
                    files.insert(to.to_owned(), file);
                }
            }
            Operation::Remove(name) => drop(files.remove(name)),
            Operation::Copy(name, at, from, start) => {
                let source = files.get(from).and_then(|file| file.get(start.min(MAX_FILE) as usize..));
                let source = source.unwrap_or_default().to_owned();
                write(files.entry(name.to_owned()).or_default(), at, &source);
            }
        }
    }
}

/// Each piece of the input contains one entry's operations. Merging the entries must not change their effect.
pub fn entry(mut bytes: &[u8]) {
    // A damaged entry or an entry of a later version must not cause a panic.
    if let Some((head, operations)) = Head::open(bytes) {
        assert_eq!(head.seal(operations), bytes);
    }
    let (mut entries, mut one_by_one) = (Vec::new(), Files::new());
    while !bytes.is_empty() {
        let operations = piece(&mut bytes);
        let number = entries.len() as u64 + 1;
        let head = Head { kind: EntryKind::Operations, epoch: 1, writer: 2, number };
        let entry = head.seal(operations);
        assert_eq!(Head::open(&entry), Some((head, operations)));
        execute(operations, &mut one_by_one);
        entries.push((number, entry));
    }
    let merged = merge(&entries, 1, 2);
    let has_copies = entries.iter().any(|(_, entry)| copies(Head::open(entry).expect("a sealed entry").1));
    assert!(has_copies || merged.len() == usize::from(entries.len() > 1));
    let (mut at_once, mut next) = (Files::new(), 1);
    while let Some((_, entry)) = entries.get(next - 1) {
        // Copies, and single entries between them, are not merged.
        let Some(run) = merged.iter().find(|run| run.first == next as u64) else {
            execute(Head::open(entry).expect("a sealed entry").1, &mut at_once);
            next += 1;
            continue;
        };
        let (head, operations) = Head::open(&run.entry).expect("a sealed entry");
        assert_eq!((head.kind, head.number), (EntryKind::Merged, run.last));
        let (count, operations) = operations.split_first_chunk().expect("a count");
        assert_eq!(u64::from_le_bytes(*count), run.last + 1 - run.first);
        assert!(!copies(operations));
        execute(operations, &mut at_once);
        next = run.last as usize + 1;
    }
    assert_eq!(at_once, one_by_one);
}

fn copies(mut operations: &[u8]) -> bool {
    std::iter::from_fn(|| Operation::decode(&mut operations)).any(|it| matches!(it, Operation::Copy(..)))
}

/// Returns the client's connection and the peer's socket. The connection delivers `bytes` to the client and then ends.
fn connection(bytes: &[u8]) -> (Transport, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
    theirs.write_all(bytes).expect("buffer space");
    theirs.shutdown(Shutdown::Write).expect("a socket");
    (Transport::Plain(OwnedFd::from(ours).into()), theirs)
}

pub fn response(bytes: &[u8]) {
    let run = |keep| {
        let (stream, _theirs) = connection(bytes);
        let mut exchange = Exchange::new(stream, Instant::now() + Duration::from_secs(60));
        exchange.run("GET / HTTP/1.1\r\n\r\n", b"", keep).ok()
    };
    let (whole, start) = (run(Keep::All(100)), run(Keep::Start(100)));
    if let Some(start) = &start {
        assert!(start.body.len() <= 100 && start.status < 1000, "{}", start.status);
    }
    if let Some(whole) = whole {
        let start = start.expect("a response that can be read completely");
        assert_eq!((whole.status, whole.body, whole.retry_after), (start.status, start.body, start.retry_after));
    }
}

/// Reads the input as a sequence of replies, and then as the reply to each command.
pub fn reply(bytes: &[u8]) {
    let (stream, _theirs) = connection(bytes);
    let mut client = Client::over(stream);
    let mut length = 0;
    while let Ok(reply) = client.reply() {
        assert!(!reply.line.contains('\n'));
        length += reply.line.len() + reply.body.len() + 2;
    }
    assert!(length <= bytes.len());
    let commands: [fn(&mut Client) -> bool; 12] = [
        |client| client.put(b"a", 0, 0, 1).is_ok(),
        |client| client.put_tagged(b"a", 0, 0, 1, &Default::default()).is_ok(),
        |client| client.reserve(Some(0)).is_ok(),
        |client| client.reserve_batch(3, Some(0)).is_ok(),
        |client| client.delete(1).is_ok(),
        |client| client.fail(1, 0, b"why").is_ok(),
        |client| client.wait(1, 0).is_ok(),
        |client| client.list_jobs("t", "ready", 0, 3).is_ok(),
        |client| client.extensions().is_ok(),
        |client| client.peek(1).is_ok(),
        |client| client.kick(1).is_ok(),
        |client| client.figure("stats", "pid").is_ok(),
    ];
    for (number, command) in commands.into_iter().enumerate() {
        let (stream, _theirs) = connection(bytes);
        let is_ok = command(&mut Client::over(stream));
        assert!(!is_ok || bytes.contains(&b'\n'), "command {number}");
    }
}
