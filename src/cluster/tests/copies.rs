//! Tests copies of the journal: when a copy is complete, verified, kept or deleted, and which files it contains.

use super::*;

/// Until a standby has read the whole journal, a backup of its directory must fail, and so must a start without a
/// journal. A standby can read all entries of an import before the import is complete.
#[test]
fn a_first_copy_is_incomplete_until_the_end_of_the_journal() {
    let (log, place) = (memory(), Place::new());
    let import = Head { kind: EntryKind::Import, epoch: 1, writer: 7, number: 0 };
    log.claim(0, 0, b"z 127.0.0.1:11300 00000000000000aa", &import.seal(b"")).expect("an epoch");
    let mut after = 1;
    let mut append = |head: Head, operation: &[u8]| {
        log.append(1, after, &head.seal(operation)).expect("an entry");
        after += 1;
    };
    append(import, &Operation::Create(SEGMENT, 4096).encode());
    (0..FIRST_READ as u64).for_each(|at| append(import, &Operation::Write(SEGMENT, at, b"x").encode()));
    let mut node = place.node(&log, "a");
    assert!(!is_copying(&place.0));
    for more in [true, false, false] {
        assert!(matches!(node.poll(), Ok(Step::Standby(found)) if found == more));
        assert!(is_copying(&place.0));
    }
    node.save().expect("a position");
    drop(node);
    assert!(restore_aside(&place.0).is_err() && place.file(SEGMENT).exists());
    let mut node = place.node(&log, "a");
    append(Head { kind: EntryKind::Operations, ..import }, b"");
    assert!(matches!(node.poll(), Ok(Step::Standby(false))) && !is_copying(&place.0));
}

#[test]
fn the_old_copy_is_kept_until_the_new_one_is_verified() {
    let (log, first, second) = (memory(), Place::new(), Place::new());
    let active = begin(&log, &first, "z");
    let mut node = second.node(&log, "a");
    follow(&mut node, &log);
    assert!(!is_copying(&second.0));
    node.mirror.start_over(0).expect("a new copy");
    let body = Arc::new(vec![7; 1 << 20].into_boxed_slice());
    active.storage.stage(&body, &|| true);
    // With this limit, the node does not know yet that it has read the whole journal.
    (node.is_new, node.limit) = (true, log.entries().len());
    assert!(matches!(node.poll(), Ok(Step::Standby(true))));
    let names = fs::read_dir(&second.0).expect("a directory").map(|entry| entry.expect("an entry").path());
    let is_stage = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(STAGE));
    fs::write(names.into_iter().find(is_stage).expect("a large body"), b"damaged").expect("a file");
    let file = active.storage.create("segment.0000000002", 2 << 20).expect("a segment");
    file.write_at(100, &body).and_then(|()| file.sync()).expect("an active server");
    while node.mirror.position.done > 0 {
        assert!(second.file("journal.aside").join(SEGMENT).exists());
        assert!(matches!(node.poll(), Ok(Step::Standby(_))));
    }
    while is_copying(&second.0) {
        assert!(matches!(node.poll(), Ok(Step::Standby(_))));
    }
    assert_eq!(second.segments(), first.segments());
}

/// The server is restarted while it copies the journal again, and etcd then lacks entries of the old copy.
// Tests promise P35 of beanpole-promises(7).
#[test]
fn the_old_copy_is_kept_if_the_journal_lacks_its_entries() {
    for loss in ["wiped", "wiped and in use", "restored"] {
        let (log, first, second) = (memory(), Place::new(), Place::new());
        let active = begin(&log, &first, "z");
        (1..9).for_each(|number| write(&active, 8 * number).expect("an active server"));
        follow(&mut second.node(&log, "a"), &log);
        active.lease.end();
        let good = second.segments();
        Mirror::open(&second.0).expect("a copy").start_over(0).expect("a new copy");
        match loss {
            "restored" => log.lose(8..=10),
            "wiped" => log.replace(&memory()),
            _ => let_happen(Event::OtherJournal, &log, &second, &active),
        }
        if loss != "restored" {
            // On a full disk, the position of the new copy cannot be saved.
            fs::remove_file(second.file("journal.position")).expect("a position");
        }
        let mut node = second.node(&log, "a");
        for _ in 0..3 {
            let refused = node.poll().err().expect(loss).to_string();
            assert!(refused.contains("etcd was wiped or restored"), "{loss}: {refused}");
        }
        drop(node);
        restore_aside(&second.0).expect("the old copy");
        assert_eq!(second.segments(), good, "{loss}");
    }
}

/// A standby verifies its copy when the active server is silent for a moment. The files can be damaged later, while the
/// active server shows activity again or etcd is unreachable.
#[test]
fn damage_after_a_verification_is_detected_before_a_takeover() {
    [false, true].into_iter().for_each(detect_late_damage);
}

fn detect_late_damage(is_unreachable: bool) {
    let (log, first, second) = (memory(), Place::new(), Place::new());
    let active = begin(&log, &first, "z");
    let mut node = second.node(&log, "a");
    follow(&mut node, &log);
    let good = second.segments();
    active.lease.end();
    let silence = std::mem::replace(&mut node.max_silence, 2 * PATIENCE);
    let end = Instant::now() + PATIENCE;
    while !node.mirror.is_verified {
        assert!(Instant::now() < end, "the standby has not verified its copy");
        std::thread::sleep(POLL / 10);
        assert!(matches!(node.poll(), Ok(Step::Standby(_))));
    }
    if is_unreachable {
        log.set_unreachable(true);
        assert!(node.poll().is_err());
        log.set_unreachable(false);
    } else {
        log.renew(0, 1, 0).expect("a renewal");
        assert!(matches!(node.poll(), Ok(Step::Standby(_))));
    }
    let mut damaged = good[SEGMENT].clone();
    damaged[1] ^= 1;
    fs::write(second.file(SEGMENT), damaged).expect("a segment");
    node.max_silence = silence;
    let _taken = activate(&mut node);
    assert_eq!(second.segments(), good);
}

/// A file that the binlog does not use would never be removed from the journal.
#[test]
fn only_files_of_the_binlog_are_imported() {
    let (log, first, second) = (memory(), Place::new(), Place::new());
    for name in [SEGMENT, "segment.0000000001.bak", "segment.0000000002.damaged", "binlog.1.bak", "import.txt"] {
        fs::write(first.file(name), [7; 100]).expect("a file");
    }
    let active = activate(&mut first.node(&log, "a"));
    follow(&mut second.node(&log, "b"), &log);
    assert_eq!(second.segments(), BTreeMap::from([(SEGMENT.to_owned(), vec![7; 100])]));
    active.watch(|| (), || ()).expect("threads");
    active.storage.create("segment.0000000003", 4096).expect("a segment");
    active.storage.remove(SEGMENT).expect("a segment");
    write_entries(&active, "segment.0000000003", 2, 8);
    let end = Instant::now() + PATIENCE;
    while log.entries()[0].0 < 4 {
        assert!(Instant::now() < end, "the import is still in the journal");
        std::thread::sleep(POLL);
    }
}
