//! Tests several servers that share one log: which server can write, which entries survive, and which files a standby
//! copies.
//!
//! The tests in this file run complete nodes, which follow a log in memory, become active, and are fenced off by a new
//! active node. `tests/cluster/run` tests the real program with a real etcd.

mod daemon;

mod cluster {
    mod clocks;
    mod engine;
    mod failover;
    mod member;
    mod obstacles;
    mod program;
    mod requests;
    mod schedules;
    mod table;

    use super::daemon;
}

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::wait_until;

use beanpole::internals::cluster::{
    merge, Active, EntryKind, Faults, Head, MemoryLog, Node, Seq, Services, SharedLog, Step,
};
use beanpole::Role;

/// Tests the checks of `tests/cluster/run`, which needs Python and etcd. `make test` does not require Python.
#[test]
fn the_checks_of_the_tests_with_etcd_find_each_mistake() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/test_matrix.py");
    match Command::new("python3").arg(script).output() {
        Ok(run) => assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr)),
        Err(error) => eprintln!("skipped: python3: {error}"),
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("cluster-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new directory");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn node(log: &Arc<MemoryLog>, folder: &Folder, name: &str) -> Node {
    Node::new(log.clone(), &folder.0, name, "127.0.0.1:11300", &Services::new()).expect("a node")
}

fn activate(node: &mut Node) -> Active {
    for _ in 0..1000 {
        match node.poll().expect("a log in memory") {
            Step::Active(active) => return active,
            Step::Standby(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    panic!("the server did not become active");
}

fn files(folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(&folder.0).expect("a directory").map(|entry| entry.expect("an entry"));
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    let segments = named.filter(|(name, _)| name.starts_with("segment."));
    segments.map(|(name, path)| (name, std::fs::read(path).expect("a file"))).collect()
}

/// Returns the number of the last entry in the copy, according to the file `journal.position`.
fn position(folder: &Folder) -> Option<Seq> {
    std::fs::read_to_string(folder.0.join("journal.position")).ok()?.lines().next()?.parse().ok()
}

#[test]
fn a_standby_has_the_same_files_and_takes_over_after_a_release() {
    let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 1)), Folder::new(), Folder::new());
    let active = activate(&mut node(&log, &first, "a"));
    let mut standby = node(&log, &second, "b");
    let file = active.storage.create("segment.0000000001", 4096).expect("a file");
    file.write_at(100, b"what is promised").expect("a write");
    file.write_at(3000, &[7; 1000]).expect("a write");
    file.sync().expect("a sync");
    let other = active.storage.create("segment.0000000002", 64).expect("a file");
    other.truncate(10).expect("truncation succeeds");
    active.storage.remove("segment.0000000002").expect("the file is removed");
    for _ in 0..3 {
        assert!(matches!(standby.poll().expect("a log in memory"), Step::Standby(_)));
    }
    assert_eq!(files(&first), files(&second));
    assert_eq!(files(&second).len(), 1);
    active.release().expect("a release");
    let taken = activate(&mut standby);
    assert_eq!(taken.epoch(), 2);
    assert!(file.write_at(0, b"late").is_ok() && file.sync().is_err(), "a fenced server must not confirm writes");
    assert!(active.lease.is_over());
}

#[test]
fn a_slow_response_does_not_count_as_silence() {
    let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 1)), Folder::new(), Folder::new());
    let _active = activate(&mut node(&log, &first, "a"));
    let mut standby = node(&log, &second, "b");
    assert!(matches!(standby.poll().expect("a log in memory"), Step::Standby(_)));
    // The active server keeps renewing its lease, so the standby must not claim the log.
    log.delay_answers(Duration::from_secs(3));
    assert!(matches!(standby.poll().expect("a log in memory"), Step::Standby(_)));
}

#[test]
fn a_returning_server_drops_changes_that_were_never_shared() {
    let (log, folder) = (Arc::new(MemoryLog::new(Faults::default(), 2)), Folder::new());
    let active = activate(&mut node(&log, &folder, "a"));
    let file = active.storage.create("segment.0000000001", 64).expect("a file");
    file.write_at(0, b"shared").expect("a write");
    file.sync().expect("a sync");
    file.write_at(10, b"not shared").expect("a write");
    // Simulates the exit of the process, which releases the lock on the directory.
    active.lease.end();
    drop((active, file));
    let copy = Folder::new();
    std::fs::remove_dir(&copy.0).expect("an empty directory");
    std::fs::rename(&folder.0, &copy.0).expect("the directory is moved");
    let mut back = node(&log, &copy, "a");
    let _ = back.poll().expect("a log in memory");
    let bytes = &files(&copy)["segment.0000000001"];
    assert!(bytes.starts_with(b"shared") && bytes[10..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_copy_at_any_position_can_follow_merged_entries() {
    for seen in [0, 3, 9, 10] {
        let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 3)), Folder::new(), Folder::new());
        let active = activate(&mut node(&log, &first, "a"));
        let mut standby = node(&log, &second, "b");
        let file = active.storage.create("segment.0000000001", 64).expect("a file");
        for index in 0..10 {
            file.write_at(index, &[index as u8; 3]).expect("a write");
            file.sync().expect("a sync");
            if index == seen {
                let _ = standby.poll().expect("a log in memory");
                standby.save().expect("a position");
            }
        }
        let writer = Head::open(&log.entries()[0].1).expect("an entry").0.writer;
        let runs = merge(&log.entries(), 1, writer);
        assert_eq!(runs.len(), 1);
        log.merge(1, &runs[0]).expect("a merge");
        file.write_at(20, b"behind").expect("a write");
        file.sync().expect("a sync");
        for is_restarted in [false, true] {
            if is_restarted {
                drop(standby);
                standby = node(&log, &second, "b");
            }
            while let Step::Standby(true) = standby.poll().expect("a log in memory") {}
            assert_eq!(files(&first), files(&second), "{seen}, restarted: {is_restarted}");
            assert!(!second.0.join("journal.aside").exists(), "the standby must not recreate its copy");
        }
        active.release().expect("a release");
        assert_eq!(activate(&mut standby).epoch(), 2, "the files must match their checksums");
    }
}

/// Returns the names of the files in `folder` that contain large bodies.
fn stages(folder: &Folder) -> Vec<String> {
    let names = std::fs::read_dir(&folder.0).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.starts_with("stage.")).collect()
}

#[test]
fn a_copy_contains_large_bodies_that_were_appended_in_pieces() {
    let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 4)), Folder::new(), Folder::new());
    let active = activate(&mut node(&log, &first, "a"));
    let standby = RefCell::new(node(&log, &second, "b"));
    let body = Arc::new((0..1 << 20).map(|index: u32| (index % 251) as u8).collect::<Box<[u8]>>());
    let pieces = Cell::new(0);
    assert!(active.storage.must_stage(&body));
    active.storage.stage(&body, &|| {
        pieces.set(pieces.get() + 1);
        if pieces.get() == 4 {
            let _ = standby.borrow_mut().poll().expect("a log in memory");
            standby.borrow_mut().save().expect("a position");
        }
        true
    });
    assert!(!active.storage.must_stage(&body));
    let file = active.storage.create("segment.0000000001", 2 << 20).expect("a file");
    file.write_at(100, &body[10..]).expect("a write");
    file.sync().expect("a sync");
    assert!(log.entries().last().expect("an entry").1.len() < 1000, "the log must not contain the body twice");
    // After a crash, a standby resumes at its last saved position, and so applies some operations a second time.
    let mut standby = standby.into_inner();
    let _ = standby.poll().expect("a log in memory");
    drop(standby);
    let mut standby = node(&log, &second, "b");
    let _ = standby.poll().expect("a log in memory");
    assert_eq!(files(&first), files(&second));
    assert_eq!(stages(&second).len(), 1);
    standby.save().expect("a position");
    assert!(stages(&second).is_empty() && !second.0.join("journal.aside").exists());
    let position = std::fs::read_to_string(second.0.join("journal.position")).expect("a position");
    assert!(position.contains("\n2 segment.0000000001 "), "the segment needs the entries of the body: {position}");
    active.release().expect("a release");
    let ended = std::fs::read_to_string(first.0.join("journal.position")).expect("a position");
    let checksum = |text: &str| text.lines().find(|line| line.contains(" segment.")).map(str::to_owned);
    assert!(checksum(&ended).is_some() && checksum(&ended) == checksum(&position), "{ended} {position}");
    assert_eq!(activate(&mut standby).epoch(), 2, "the files must match their checksums");
}

#[test]
fn an_unused_large_body_is_removed_from_the_journal() {
    let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 5)), Folder::new(), Folder::new());
    let active = activate(&mut node(&log, &first, "a"));
    let mut standby = node(&log, &second, "b");
    let body = |byte| Arc::new(vec![byte; 1 << 20].into_boxed_slice());
    let mut catch_up = || {
        let _ = standby.poll().expect("a log in memory");
        standby.save().expect("a position");
        stages(&second).len()
    };
    // Simulates a client that disconnects before its job is put.
    active.storage.stage(&body(1), &|| false);
    assert_eq!(catch_up(), 0);
    // Simulates a job that the server refuses.
    active.storage.stage(&body(2), &|| true);
    assert_eq!(catch_up(), 1);
    let last = body(3);
    active.storage.stage(&last, &|| true);
    active.storage.create("segment.0000000001", 80).and_then(|file| file.sync()).expect("a file");
    assert_eq!(catch_up(), 1);
    // The server stops before it has written the job to the log.
    active.release().expect("a release");
    let active = activate(&mut standby);
    active.storage.create("segment.0000000002", 80).and_then(|file| file.sync()).expect("a file");
    let (third, mut names) = (Folder::new(), Vec::new());
    let mut copy = node(&log, &third, "c");
    while names.len() < 2 {
        let _ = copy.poll().expect("a log in memory");
        copy.save().expect("a position");
        names = files(&third).into_keys().collect();
    }
    assert!(stages(&third).is_empty() && stages(&second).is_empty());
}

#[test]
fn an_outdated_copy_is_recreated() {
    let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 3)), Folder::new(), Folder::new());
    let active = activate(&mut node(&log, &first, "a"));
    let mut standby = node(&log, &second, "b");
    for number in 1..=3 {
        let file = active.storage.create(&format!("segment.{number:010}"), 64).expect("a file");
        file.write_at(0, &[number; 8]).expect("a write");
        file.sync().expect("a sync");
        if number == 1 {
            let _ = standby.poll().expect("a log in memory");
        }
    }
    active.storage.remove("segment.0000000001").expect("the file is removed");
    active.storage.remove("segment.0000000002").expect("the file is removed");
    let entries = log.entries();
    let made = entries.iter().find(|(_, entry)| entry.windows(18).any(|at| at == b"segment.0000000003"));
    log.purge(made.expect("an entry").0).expect("a log in memory");
    let _ = standby.poll().expect("a log in memory");
    assert_eq!(files(&first), files(&second));
    assert_eq!(files(&second).len(), 1);
}

#[test]
fn a_mark_of_an_import_does_not_survive_in_a_recreated_copy() {
    let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 3)), Folder::new(), Folder::new());
    let active = activate(&mut node(&log, &first, "a"));
    let mut standby = node(&log, &second, "b");
    active.storage.create("import.begun", 0).expect("a mark");
    active.storage.create("segment.0000000001", 64).and_then(|file| file.sync()).expect("a file");
    let _ = standby.poll().expect("a log in memory");
    standby.save().expect("a position");
    assert!(second.0.join("import.begun").exists());
    drop(standby);
    active.storage.remove("import.begun").expect("the mark is removed");
    active.storage.remove("segment.0000000001").expect("the file is removed");
    active.storage.create("segment.0000000002", 64).and_then(|file| file.sync()).expect("a file");
    log.purge(log.entries().last().expect("an entry").0).expect("a log in memory");
    let mut standby = node(&log, &second, "b");
    let _ = standby.poll().expect("a log in memory");
    assert_eq!((files(&second), files(&second).len()), (files(&first), 1));
    assert!(!second.0.join("import.begun").exists(), "the mark makes the segments invalid");
}

#[test]
fn a_server_that_fails_after_its_claim_lets_another_take_over() {
    let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 4)), Folder::new(), Folder::new());
    std::fs::write(first.0.join("segment.0000000007"), [3; 1000]).expect("a file");
    // The position cannot be saved after the import.
    std::fs::create_dir(first.0.join("journal.position.new")).expect("a directory");
    let mut failing = node(&log, &first, "a");
    assert!((0..100).any(|_| failing.poll().is_err()), "the claim must fail");
    let mut standby = node(&log, &second, "b");
    assert_eq!(activate(&mut standby).epoch(), 2);
    assert_eq!(files(&second), files(&first));
    assert_eq!(failing.member.board.figures().role, Role::Standby);
}

#[test]
fn a_binlog_that_cannot_be_read_is_refused_before_the_claim() {
    let (log, folder) = (Arc::new(MemoryLog::new(Faults::default(), 4)), Folder::new());
    std::fs::create_dir(folder.0.join("segment.0000000007")).expect("a directory");
    let refused = node(&log, &folder, "a").poll().err().expect("an error").to_string();
    assert!(refused.starts_with("segment.0000000007: "), "{refused}");
    assert!(log.entries().is_empty());
}

#[test]
fn lost_entries_are_not_mistaken_for_a_purge() {
    let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 3)), Folder::new(), Folder::new());
    let active = activate(&mut node(&log, &first, "a"));
    let file = active.storage.create("segment.0000000001", 64).expect("a file");
    let mut standby = node(&log, &second, "b");
    for number in 0..9 {
        file.write_at(number, &[7]).expect("a write");
        file.sync().expect("a sync");
        if number == 3 {
            let _ = standby.poll().expect("a log in memory");
        }
    }
    let (good, end) = (files(&second), log.entries().last().expect("entries").0);
    log.lose(end - 3..=end - 2);
    active.release().expect("a release");
    let third = Folder::new();
    let mut fresh = node(&log, &third, "c");
    for node in [&mut standby, &mut fresh] {
        for _ in 0..3 {
            let problem = node.poll().err().expect("an error, since entries are missing").to_string();
            let wanted = format!("etcd has lost entries {} to {};", end - 3, end - 2);
            assert!(problem.starts_with(&wanted), "{problem}");
        }
    }
    assert!(good["segment.0000000001"].starts_with(&[7; 4]));
    assert_eq!(files(&second)["segment.0000000001"][..4], [7; 4]);
    assert!(!second.0.join("journal.aside").exists());
}

#[test]
fn a_standby_behind_a_slow_network_catches_up_with_large_bodies() {
    let faults = Faults { largest_answer: 700_000, ..Faults::default() };
    let (log, first, second) = (Arc::new(MemoryLog::new(faults, 1)), Folder::new(), Folder::new());
    let active = activate(&mut node(&log, &first, "a"));
    let file = active.storage.create("segment.0000000001", 20_000_000).expect("a file");
    for number in 0..40 {
        // A read of two such writes would exceed `largest_answer` and time out.
        file.write_at(number * 400_000, &[7; 400_000]).expect("a write");
        file.sync().expect("a sync");
    }
    let mut standby = node(&log, &second, "b");
    wait_until("the standby has all entries", || matches!(standby.poll(), Ok(Step::Standby(false))));
    assert_eq!(files(&second), files(&first));
}

#[test]
fn the_binlog_of_the_first_server_is_imported() {
    let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 4)), Folder::new(), Folder::new());
    let mut bytes = vec![0; 1_000_000];
    bytes[700_000..700_010].fill(3);
    std::fs::write(first.0.join("segment.0000000007"), &bytes).expect("a file");
    let _active = activate(&mut node(&log, &first, "a"));
    let mut standby = node(&log, &second, "b");
    let _ = standby.poll().expect("a log in memory");
    assert_eq!(files(&second), BTreeMap::from([("segment.0000000007".to_owned(), bytes)]));
}

#[test]
fn an_interrupted_import_is_repeated_and_no_other_server_becomes_active() {
    let (log, first, second, third) =
        (Arc::new(MemoryLog::new(Faults::default(), 5)), Folder::new(), Folder::new(), Folder::new());
    for folder in [&first, &third] {
        std::fs::write(folder.0.join("segment.0000000007"), [3; 1000]).expect("a file");
    }
    // Simulates a server `a` that exits after claiming the log, before importing its binlog.
    let claim = Head { kind: EntryKind::Claim, epoch: 0, writer: 9, number: 0 };
    let epoch = log.claim(0, 0, b"a 127.0.0.1:11300", &claim.seal(b"")).expect("a log in memory");
    let import = Head { kind: EntryKind::Import, epoch, writer: 9, number: 1 };
    log.append(epoch, 1, &import.seal(b"")).expect("a log in memory");
    let _ = node(&log, &second, "b").poll().expect("a log in memory");
    let (mut other, mut stranger) = (node(&log, &second, "b"), node(&log, &third, "c"));
    let end = Instant::now() + Duration::from_secs(3);
    let advice = "a has not completed its import; start it with --node a and its directory, or use a new queue name";
    let mut has_advice = false;
    while Instant::now() < end {
        match other.poll() {
            Ok(step) => assert!(matches!(step, Step::Standby(_)) && !has_advice, "an incomplete copy became active"),
            Err(refused) => has_advice = refused.to_string() == advice,
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(has_advice, "a silent import is reported");
    let refused = stranger.poll().err().expect("an error, since the binlog is of another queue").to_string();
    assert_eq!(refused, advice);
    let _active = activate(&mut node(&log, &first, "a"));
    let _ = other.poll().expect("a log in memory");
    assert_eq!(files(&second), files(&first));
    assert_eq!(files(&third), BTreeMap::from([("segment.0000000007".to_owned(), vec![3; 1000])]));
}

/// Returns a log restored from a backup that contains `entries`.
fn restored(entries: &[(Seq, Vec<u8>)], note: &[u8]) -> Arc<MemoryLog> {
    let copy = MemoryLog::new(Faults::default(), 9);
    let mut epoch = 0;
    for (seq, entry) in entries {
        match Head::open(entry).expect("a whole entry").0.kind {
            EntryKind::Claim => epoch = copy.claim(epoch, seq - 1, note, entry).expect("a log in memory"),
            _ => copy.append(epoch, seq - 1, entry).expect("a log in memory"),
        }
    }
    Arc::new(copy)
}

fn write_until(active: &Active, log: &MemoryLog, end: Seq) {
    let file = active.storage.create("segment.0000000009", 64).expect("a file");
    while log.entries().last().is_some_and(|(seq, _)| *seq < end) {
        file.write_at(0, b"another life").expect("a write");
        file.sync().expect("a sync");
    }
}

// Tests promise P35 of beanpole-promises(7).
#[test]
fn a_wiped_or_restored_journal_is_refused_and_copies_are_kept() {
    let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 6)), Folder::new(), Folder::new());
    let active = activate(&mut node(&log, &first, "a"));
    let file = active.storage.create("segment.0000000001", 64).expect("a file");
    for number in 0..20 {
        file.write_at(number, &[7]).expect("a write");
        file.sync().expect("a sync");
    }
    let (backup, note) = (log.entries()[..5].to_vec(), log.read(1, 1).expect("a log in memory").1.note);
    let end = log.entries().last().expect("entries").0;
    active.watch(|| {}, || {}).expect("new threads");
    wait_until("the active server saves its position", || position(&first) == Some(end));
    // Simulates the exit of the process.
    active.lease.end();
    let mut standby = node(&log, &second, "b");
    while let Ok(Step::Standby(true)) = standby.poll() {}
    standby.save().expect("a position");
    // The active server crashes. The standby has stopped cleanly.
    drop((file, active, standby));
    let kept = files(&second);
    assert!(kept["segment.0000000001"].starts_with(&[7; 20]));
    for folder in [first, second] {
        let copy = Folder::new();
        std::fs::remove_dir(&copy.0).expect("an empty directory");
        std::fs::rename(&folder.0, &copy.0).expect("the directory is moved");
        let wiped = || Arc::new(MemoryLog::new(Faults::default(), 7));
        for (what, other) in [("wiped", wiped()), ("restored", restored(&backup, &note))] {
            for is_in_use in [false, true] {
                let (third, what) = (Folder::new(), format!("{what}, in use: {is_in_use}"));
                if is_in_use {
                    let active = activate(&mut node(&other, &third, "c"));
                    write_until(&active, &other, end + 5);
                    active.lease.end();
                }
                for _ in 0..3 {
                    let refused = node(&other, &copy, "b").poll().err().unwrap_or_else(|| panic!("{what}")).to_string();
                    assert!(refused.contains("wiped or restored"), "{what}: {refused}");
                }
                assert_eq!(files(&copy), kept, "{what}");
            }
        }
        // The copy still belongs to the original journal.
        let mut back = node(&log, &copy, "b");
        assert!(matches!(back.poll(), Ok(Step::Standby(_))));
        assert_eq!(files(&copy), kept);
    }
}

/// Modifies a file of a copy. Returns `false` if the modification does not apply to the file.
type Damage = fn(&mut Vec<u8>) -> bool;

#[test]
fn a_damaged_copy_is_replaced_before_the_server_becomes_active() {
    let damages: [(&str, Damage); 4] = [
        ("a flipped bit", |bytes| {
            bytes[150] ^= 1;
            true
        }),
        ("zeros", |bytes| {
            bytes[100..200].fill(0);
            true
        }),
        ("a truncation", |bytes| {
            bytes.truncate(150);
            true
        }),
        ("a removal", |_| false),
    ];
    for (what, damage) in damages {
        for is_restarted in [false, true] {
            let (log, first, second) = (Arc::new(MemoryLog::new(Faults::default(), 8)), Folder::new(), Folder::new());
            let active = activate(&mut node(&log, &first, "a"));
            let file = active.storage.create("segment.0000000001", 4096).expect("a file");
            for index in 0..3 {
                file.write_at(index * 100, &[7; 100]).expect("a write");
                file.sync().expect("a sync");
            }
            let good = files(&first);
            let mut standby = node(&log, &second, "b");
            wait_until("the standby has the files", || standby.poll().is_ok() && files(&second) == good);
            if is_restarted {
                let end = log.entries().last().map(|(seq, _)| *seq);
                wait_until("the position is saved", || standby.poll().is_ok() && position(&second) == end);
                drop(standby);
                standby = node(&log, &second, "b");
            }
            let path = second.0.join("segment.0000000001");
            let mut bytes = std::fs::read(&path).expect("a file");
            match damage(&mut bytes) {
                true => std::fs::write(&path, bytes).expect("a file"),
                false => std::fs::remove_file(&path).expect("a file"),
            }
            active.release().expect("a release");
            let taken = activate(&mut standby);
            assert_eq!(files(&second), good, "{what}, restarted: {is_restarted}");
            assert!(!second.0.join("journal.aside").exists());
            drop(taken);
        }
    }
}

#[test]
fn damage_to_the_files_of_an_active_server_is_detected_after_a_clean_shutdown() {
    let (log, folder) = (Arc::new(MemoryLog::new(Faults::default(), 8)), Folder::new());
    // In the second iteration, the server opens a file that was written before the server became active.
    for offset in [100, 200] {
        let active = activate(&mut node(&log, &folder, "a"));
        let name = "segment.0000000001";
        let file = if offset == 100 { active.storage.create(name, 4096) } else { active.storage.open(name) };
        let file = file.expect("a file");
        file.write_at(offset, &[7; 100]).expect("a write");
        file.sync().expect("a sync");
        let good = files(&folder);
        let mut bytes = good[name].clone();
        bytes[150] ^= 1;
        std::fs::write(folder.0.join(name), bytes).expect("a file");
        active.release().expect("a release");
        drop((file, active));
        let taken = activate(&mut node(&log, &folder, "a"));
        assert_eq!(files(&folder), good, "{offset}");
        taken.release().expect("a release");
    }
}
