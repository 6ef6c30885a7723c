//! Tests the requests that the program sends to etcd, and their costs.

use std::net::{TcpListener, ToSocketAddrs};

use beanpole::internals::cluster::{merge, EntryKind, Etcd, Fail, Head, Location, Merged, SharedLog};

use super::daemon::wait_until;
use super::engine::Served;
use super::member::Member;

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
fn small_entries_around_a_large_body_are_merged() {
    let served = Served::start();
    let first = Member::start(&served, "a", &["-z", "4000000"]);
    first.wait_active();
    let mut client = first.client();
    let mut put = |count| (0..count).map(|_| client.put(b"x", 0, 0, 60).expect("a job")).for_each(drop);
    put(100);
    first.client().put(&[b'x'; 3_000_000], 0, 0, 60).expect("a job");
    put(400);
    // About 25 entries contain the large body, and less than 256 entries wait for further ones.
    wait_until("the entries are merged", || served.engine().entries() < 200);
    let first = Member::start_in(&served, "a", &["-z", "4000000"], first.kill());
    first.wait_active();
    assert_eq!(first.figure("current-jobs-ready"), "501");
}

/// The entries after a server's last one can be merged into a later one after the server has read the journal.
#[test]
fn a_claim_before_merged_entries_is_rejected() {
    let served = Served::start();
    let log = journal(&served, 20);
    let entries = log.read(11, 10).expect("entries").0;
    let runs = merge(&entries, 1, 1);
    runs.iter().for_each(|run| log.merge(1, run).expect("a merged entry"));
    assert_eq!(served.engine().entries(), 11);
    let claim = |after| log.claim(1, after, b"b 127.0.0.1:1", b"");
    assert!((1..20).all(|after| matches!(claim(after), Err(Fail::Conflict))));
    assert_eq!(claim(20).expect("an epoch"), 2);
}

#[test]
fn a_long_journal_is_read_in_linear_time() {
    let (served, count, limit) = (Served::start(), 3000, 32);
    let log = journal(&served, count);
    let before = served.engine().visited;
    let (mut next, mut reads) = (1, 0);
    loop {
        let (entries, _) = log.read(next, limit).expect("entries");
        next += entries.len() as u64;
        reads += 1;
        if entries.len() < limit {
            break;
        }
    }
    assert_eq!(next, count + 1);
    // In addition to the keys of the entries, each read visits a constant number of metadata keys.
    let visited = served.engine().visited - before;
    assert!(visited < 2 * count as usize + 10 * reads, "{visited} keys in {reads} reads");
}

#[test]
fn entries_after_a_gap_and_the_end_are_found() {
    let served = Served::start();
    let log = journal(&served, 100);
    for below in [20, 41, 80] {
        log.purge(below).expect("a purge");
        let (entries, _) = log.read(1, 32).expect("entries");
        let found: Vec<u64> = entries.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(found, (below..=100).take(32).collect::<Vec<_>>());
    }
    assert!(log.read(101, 32).expect("an empty list").0.is_empty());
}

#[test]
fn an_entry_is_accepted_only_after_the_previous_one() {
    let served = Served::start();
    let log = journal(&served, 3);
    let entry = |number| Head { kind: EntryKind::Operations, epoch: 1, writer: 1, number }.seal(b"");
    assert!(matches!(log.append(1, 4, &entry(5)), Err(Fail::Conflict)));
    log.append(1, 3, &entry(4)).expect("the next entry");
    log.append(1, 4, &entry(5)).expect("the next entry");
    // Another server claims the log after entry 5. All appends in progress must fail.
    served.engine().claim("b 127.0.0.1:2");
    assert!(matches!(log.append(1, 6, &entry(7)), Err(Fail::Conflict)));
    assert_eq!(served.engine().entries(), 6);
}

/// After etcd was wiped, another queue can reach the same epoch before the next request.
#[test]
fn entries_of_another_journal_of_the_same_epoch_are_kept() {
    let served = Served::start();
    let log = journal(&served, 3);
    served.engine().wipe();
    let other = Etcd::new(&Location::parse(&served.url()).expect("a location")).expect("a journal");
    let entry = |writer| Head { kind: EntryKind::Operations, epoch: 1, writer, number: 3 }.seal(b"");
    other.claim(0, 0, b"b 127.0.0.1:2", &entry(2)).expect("an epoch");
    (1..3).for_each(|after| other.append(1, after, &entry(2)).expect("an entry"));
    let merged = Merged { first: 1, last: 3, entry: entry(1) };
    assert!(matches!(log.merge(1, &merged), Err(Fail::Conflict)));
    assert!(log.purge(3).is_err());
    let (entries, _) = other.read(1, 9).expect("entries");
    assert_eq!(entries, [1, 2, 3].map(|seq| (seq, entry(2))));
    other.merge(1, &Merged { entry: entry(2), ..merged }).expect("a merge");
}

/// After etcd was wiped, another queue can reach the same epoch before the next renewal.
#[test]
fn a_lease_is_not_renewed_in_another_journal_of_the_same_epoch() {
    let served = Served::start();
    let log = journal(&served, 2);
    log.renew(0, 1, 5).expect("a heartbeat");
    served.engine().wipe();
    assert!(matches!(log.renew(0, 1, 5), Err(Fail::Fenced)));
    served.engine().claim("b 127.0.0.1:2");
    assert!(matches!(log.renew(0, 1, 5), Err(Fail::Fenced)));
    assert_eq!(served.engine().beats(), 0);
}

#[test]
fn appends_go_to_the_leader() {
    let servers = [(); 3].map(|()| Served::start());
    let hosts = servers.each_ref().map(|served| served.address.to_string()).join(",");
    let log = Etcd::new(&Location::parse(&format!("etcd://{hosts}/q")).expect("a location")).expect("a journal");
    for leader in [2, 1] {
        for served in &servers {
            (served.engine().id, served.engine().leader) = (7, servers[leader].address.port());
        }
        for _ in 0..servers.len() {
            log.space().expect("sizes");
        }
        // The append fails, because this etcd has no entries. The test only checks which etcd received the request.
        let _ = log.append(1, 2, &Head { kind: EntryKind::Operations, epoch: 1, writer: 1, number: 3 }.seal(b""));
        let arrived = servers.each_ref().map(|served| served.engine().arrived.drain(..).count());
        assert_eq!(arrived.iter().position(|count| *count > 0), Some(leader), "{arrived:?}");
        assert_eq!(arrived.iter().sum::<usize>(), 1);
    }
}

#[test]
fn an_append_has_little_overhead() {
    let served = Served::start();
    let log = journal(&served, 2);
    let head = Head { kind: EntryKind::Operations, epoch: 1, writer: 1, number: 3 };
    let entry = head.seal(&[7; 3000]);
    log.append(1, 2, &entry).expect("the next entry");
    let (bytes, encoded) = (served.engine().appended_bytes, entry.len().div_ceil(3) * 4);
    assert!(bytes < encoded + 350, "{} bytes of overhead", bytes - encoded);
}

#[test]
fn a_merged_journal_is_read_in_linear_time_too() {
    let (served, count, limit) = (Served::start(), 6000, 32);
    let log = journal(&served, count);
    let run = |first: u64, last: u64| {
        let (entries, _) = log.read(first, (last + 1 - first) as usize).expect("entries");
        let merged = merge(&entries, 1, 1);
        assert_eq!((merged.len(), merged[0].first, merged[0].last), (1, first, last));
        log.merge(1, &merged[0]).expect("a merge");
        assert!(matches!(log.merge(2, &merged[0]), Err(Fail::Conflict)), "the merge must fail in another epoch");
    };
    (0..20).for_each(|number| run(2 + number * 256, 1 + (number + 1) * 256));
    let before = served.engine().visited;
    let (mut next, mut reads, mut found) = (1, 0, Vec::new());
    loop {
        let (entries, _) = log.read(next, limit).expect("entries");
        found.extend(entries.iter().map(|(seq, _)| *seq));
        next = found.last().map_or(next, |seq| seq + 1);
        reads += 1;
        if entries.len() < limit {
            break;
        }
    }
    let wanted: Vec<u64> = [1].into_iter().chain((1..=20).map(|number| 1 + number * 256)).chain(5122..=count).collect();
    assert_eq!(found, wanted);
    let visited = served.engine().visited - before;
    assert!(visited < 3 * found.len() + 10 * reads, "{visited} keys in {reads} reads");
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

#[test]
fn a_failed_purge_is_reported_and_can_be_repeated() {
    let served = Served::start();
    let log = journal(&served, 100);
    served.engine().refuses_ranges = true;
    assert!(log.purge(50).is_err() && log.nodes().is_err());
    served.engine().refuses_ranges = false;
    log.purge(50).expect("a purge");
    assert_eq!(served.engine().entries(), 51);
}

#[test]
fn a_token_from_before_a_change_of_users_is_replaced() {
    let served = Served::start();
    served.engine().login = Some(("queue".into(), "secret".into()));
    let url = format!("etcd://queue:secret@{}/q", served.address);
    let log = Etcd::new(&Location::parse(&url).expect("a location")).expect("a journal");
    log.read(1, 1).expect("an empty journal");
    served.engine().is_token_old = true;
    assert!(log.read(1, 1).is_err());
    log.read(1, 1).expect("an empty journal");
}

/// At boot, a server may start before it can resolve names.
#[test]
fn a_name_without_a_known_address_has_several_connections_for_renewals() {
    let location = Location::parse("etcd://no-such-name.invalid/q").expect("a location");
    assert_eq!(Etcd::new(&location).expect("a journal").renewal_connections(), 3);
}

/// Tests a host name with several addresses, if `localhost` is one.
#[test]
fn an_address_of_a_host_name_that_does_not_respond_is_left() {
    let addresses: Vec<_> = ("localhost", 0).to_socket_addrs().expect("addresses").collect();
    for good in addresses.iter().filter(|_| addresses.len() > 1) {
        let listener = TcpListener::bind(good).expect("a port");
        let served = Served::start_with(listener);
        let port = served.address.port();
        // The kernel accepts connections to these addresses, but no server responds.
        let others = addresses.iter().filter(|other| *other != good);
        let _hanging: Vec<_> = others.map(|other| TcpListener::bind((other.ip(), port)).expect("a port")).collect();
        let url = format!("etcd://localhost:{port}/q");
        let log = Etcd::new(&Location::parse(&url).expect("a location")).expect("a journal");
        assert!((0..3).any(|_| log.read(1, 1).is_ok()), "{good}");
        log.read(1, 1).expect("an empty journal");
        assert_eq!(log.renewal_connections(), addresses.len());
    }
}
