//! The requests that reach etcd: how much work each of them is.

use beanpole::internals::cluster::{EntryKind, Etcd, Head, Location, SharedLog};

use super::engine::Served;

/// A journal with this many entries.
fn journal(served: &Served, count: u64) -> Etcd {
    let location = Location::parse(&served.url()).expect("a location");
    let log = Etcd::new(&location).expect("a journal");
    let head = Head { kind: EntryKind::Claim, epoch: 0, writer: 1, number: 0 };
    let epoch = log.claim(0, 0, b"a 127.0.0.1:1", &head.seal(b"")).expect("an epoch");
    for after in 1..count {
        let head = Head { kind: EntryKind::Operations, epoch, writer: 1, number: after };
        log.append(epoch, after, &head.seal(b"")).expect("an entry");
    }
    log
}

#[test]
fn a_long_journal_is_read_in_linear_time() {
    let (served, count, most) = (Served::start(), 3000, 32);
    let log = journal(&served, count);
    let before = served.engine().visited;
    let (mut next, mut reads) = (1, 0);
    loop {
        let (entries, _) = log.read(next, most).expect("entries");
        next += entries.len() as u64;
        reads += 1;
        if entries.len() < most {
            break;
        }
    }
    assert_eq!(next, count + 1);
    // Each read also visits keys of its own.
    let visited = served.engine().visited - before;
    assert!(visited < 2 * count as usize + 10 * reads, "{visited} keys in {reads} reads");
}

#[test]
fn entries_that_follow_a_gap_are_found_and_the_end_is_the_end() {
    let served = Served::start();
    let log = journal(&served, 100);
    for below in [20, 41, 80] {
        log.purge(below).expect("a purge");
        let (entries, _) = log.read(1, 32).expect("entries");
        let found: Vec<u64> = entries.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(found, (below..=100).take(32).collect::<Vec<_>>());
    }
    assert!(log.read(101, 32).expect("no entries").0.is_empty());
}

#[test]
fn a_purge_deletes_few_entries_at_a_time() {
    let served = Served::start();
    let log = journal(&served, 3000);
    log.purge(500).expect("a purge");
    log.purge(2990).expect("a purge");
    assert_eq!(served.engine().entries(), 11);
    assert!(served.engine().deleted <= 1000, "{}", served.engine().deleted);
}
