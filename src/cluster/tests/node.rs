//! Tests how a node becomes active, and the effect of each event on a node in each state.
//!
//! Owns the events that the program cannot be made to see in `tests/cluster/table.rs`: the disk fails or is full, the
//! lease ends by itself, or etcd contains another journal.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::super::fake_log::{Faults, MemoryLog};
use super::super::mirror::{is_copying, restore_aside};
use super::super::Operation;
use super::*;
use crate::binlog::is_no_space;

mod copies;

const SEGMENT: &str = "segment.0000000001";
const PATIENCE: Duration = Duration::from_secs(300);

// Tests promise P38 of beanpole-promises(7).
#[test]
fn a_takeover_begins_within_two_seconds() {
    let silence = SILENCE + Duration::from_millis(SPREAD);
    // The standby polls, and may have to read the last entries before it claims the log.
    assert!(silence + POLL + RESPONSE_TIME <= Duration::from_secs(2));
}

struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("node-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new directory");
        Place(path)
    }

    fn node(&self, log: &Arc<MemoryLog>, name: &str) -> Node {
        Node::new(log.clone(), &self.0, name, "127.0.0.1:11300", &Services::new()).expect("a node")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the entry in the position file, and the epoch of this entry.
    fn position(&self) -> (Seq, u64) {
        let text = fs::read_to_string(self.file("journal.position")).expect("a position");
        let mut lines = text.lines();
        let entry = lines.next().expect("a line").parse().expect("an entry");
        let epoch = lines.next().expect("a line").split(' ').nth(3).expect("an epoch");
        (entry, epoch.parse().expect("a number"))
    }

    fn segments(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(&self.0).expect("a directory").map(|entry| entry.expect("an entry"));
        let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
        let segments = named.filter(|(name, _)| name.starts_with("segment."));
        segments.map(|(name, path)| (name, fs::read(path).expect("a file"))).collect()
    }

    /// Makes the next position fail to be written, as on a full disk.
    fn fill(&self) {
        symlink("/dev/full", self.file("journal.position.new")).expect("a link");
    }

    /// Makes the next position fail to be written, for another reason than a full disk.
    fn obstruct(&self) {
        fs::create_dir(self.file("journal.position.new")).expect("a directory");
    }

    fn clear(&self) {
        fs::remove_dir(self.file("journal.position.new")).expect("a directory");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn memory() -> Arc<MemoryLog> {
    Arc::new(MemoryLog::new(Faults::default(), 1))
}

/// Polls until the node is active. Ignores errors, like the program.
fn activate(node: &mut Node) -> Active {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        match node.poll() {
            Ok(Step::Active(active)) => return active,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    panic!("the server did not become active");
}

fn write(active: &Active, offset: u64) -> io::Result<()> {
    let file = active.storage.open(SEGMENT)?;
    file.write_at(offset, b"promised").and_then(|()| file.sync())
}

fn begin(log: &Arc<MemoryLog>, place: &Place, name: &str) -> Active {
    let active = activate(&mut place.node(log, name));
    active.storage.create(SEGMENT, 4096).expect("a segment");
    write(&active, 0).expect("an active server");
    active
}

/// Polls until the copy has all entries of the log.
fn follow(node: &mut Node, log: &MemoryLog) {
    let end = log.entries().last().expect("an entry").0;
    while node.mirror.position.done < end {
        assert!(matches!(node.poll().expect("a log in memory"), Step::Standby(_)));
    }
    node.save().expect("a position");
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    /// The server has a copy, but has not read the journal yet.
    Joining,
    Standby,
    Active,
    /// The server is active, and releases the journal after the event.
    Leaving,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    /// The lease of the active server ends, for example because etcd has not confirmed any renewal.
    LeaseLost,
    /// The server cannot write to its directory.
    DiskFails,
    DiskFull,
    /// Another journal replaces the journal in etcd.
    OtherJournal,
}

const STATES: [State; 4] = [State::Joining, State::Standby, State::Active, State::Leaving];

fn let_happen(event: Event, log: &MemoryLog, place: &Place, active: &Active) {
    match event {
        Event::LeaseLost => active.lease.end(),
        Event::DiskFails => place.obstruct(),
        Event::DiskFull => place.fill(),
        Event::OtherJournal => {
            let other = memory();
            let third = Place::new();
            let taken = begin(&other, &third, "c");
            (0..9).for_each(|offset| write(&taken, offset).expect("an active server"));
            drop(taken);
            log.replace(&other);
        }
    }
}

/// The server under test is a standby, or has not joined yet. The server `z` is active until the event.
fn check_standby(event: Event, has_joined: bool) {
    let (log, first, second) = (memory(), Place::new(), Place::new());
    let active = begin(&log, &first, "z");
    let mut node = second.node(&log, "a");
    follow(&mut node, &log);
    if !has_joined {
        drop(node);
        node = second.node(&log, "a");
    }
    let (good, end) = (second.segments(), log.entries().len());
    let_happen(event, &log, &second, &active);
    active.lease.end();
    drop(active);
    match event {
        Event::LeaseLost | Event::DiskFull => {
            let taken = activate(&mut node);
            assert_eq!((taken.epoch(), second.segments()), (2, good));
            assert_eq!(second.position().1, 2, "the position identifies the last active server");
            assert!(second.file("journal.active").exists());
            write(&taken, 100).expect("an active server");
        }
        Event::DiskFails => {
            let begun = Instant::now();
            while begun.elapsed() < 2 * (SILENCE + Duration::from_millis(SPREAD)) {
                assert!(!matches!(node.poll(), Ok(Step::Active(_))));
                std::thread::sleep(POLL / 10);
            }
            assert_eq!(log.entries().len(), end, "the server must not claim the journal");
            second.clear();
            assert_eq!(activate(&mut node).epoch(), 2);
        }
        Event::OtherJournal => {
            for _ in 0..3 {
                let refused = node.poll().err().expect("an error").to_string();
                assert!(refused.contains("etcd was wiped or restored"), "{refused}");
            }
            assert_eq!(second.segments(), good);
        }
    }
}

fn check_active(event: Event) {
    let (log, place) = (memory(), Place::new());
    let active = begin(&log, &place, "a");
    let_happen(event, &log, &place, &active);
    match event {
        Event::LeaseLost | Event::OtherJournal => {
            assert!(write(&active, 100).is_err() && active.lease.is_over());
        }
        Event::DiskFails => {
            // The file exists already.
            assert!(active.storage.create(SEGMENT, 4096).is_err());
            assert!(active.lease.is_over() && write(&active, 100).is_err());
        }
        Event::DiskFull => {
            // The device simulates a segment for whose next bytes the disk has no space.
            fs::rename(place.file(SEGMENT), place.file("elsewhere")).expect("a segment");
            symlink("/dev/full", place.file(SEGMENT)).expect("a link");
            write(&active, 100).expect("etcd stores the change");
            assert!(!active.lease.is_over());
            assert!(is_copying(&place.0) && !place.file("journal.active").exists());
            fs::rename(place.file("elsewhere"), place.file(SEGMENT)).expect("a segment");
            let other = Place::new();
            follow(&mut other.node(&log, "b"), &log);
            assert!(other.segments()[SEGMENT][100..].starts_with(b"promised"));
            active.release().expect("a release");
            assert_eq!(place.position(), (0, 1), "the copy is not complete");
            // The server itself makes its copy again.
            drop(active);
            fs::remove_file(place.file("journal.position.new")).expect("a link");
            let taken = activate(&mut place.node(&log, "a"));
            assert!(place.segments()[SEGMENT][100..].starts_with(b"promised"));
            assert!(!is_copying(&place.0) && place.file("journal.active").exists());
            drop(taken);
        }
    }
}

fn check_leaving(event: Event) {
    let (log, first, second) = (memory(), Place::new(), Place::new());
    let active = begin(&log, &first, "a");
    let mut standby = second.node(&log, "b");
    follow(&mut standby, &log);
    let end = log.entries().len();
    let_happen(event, &log, &first, &active);
    let released = active.release();
    match event {
        Event::LeaseLost => {
            assert!(released.is_err() && log.entries().len() == end);
            assert!(first.file("journal.active").exists(), "the copy may contain more than the journal");
            assert_eq!(first.position(), (end as Seq, 1), "etcd may be restored from a backup");
        }
        Event::DiskFails => assert!(released.is_err() && log.entries().len() == end + 1),
        Event::DiskFull => {
            released.expect("a release");
            assert_eq!(first.position(), (end as Seq + 1, 1));
            assert!(!first.file("journal.active").exists());
        }
        Event::OtherJournal => {
            assert!(released.is_err());
            let refused = standby.poll().err().expect("an error").to_string();
            assert!(refused.contains("etcd was wiped or restored"), "{refused}");
            return;
        }
    }
    // The server has stopped in any case, so another server takes over.
    assert_eq!(activate(&mut standby).epoch(), 2);
}

fn check_all(event: Event) {
    for state in STATES {
        println!("{state:?}, {event:?}");
        match state {
            State::Joining => check_standby(event, false),
            State::Standby => check_standby(event, true),
            State::Active => check_active(event),
            State::Leaving => check_leaving(event),
        }
    }
}

#[test]
fn a_lost_lease_follows_the_table() {
    check_all(Event::LeaseLost);
}

#[test]
fn a_failing_disk_follows_the_table() {
    check_all(Event::DiskFails);
}

#[test]
fn a_full_disk_follows_the_table() {
    check_all(Event::DiskFull);
}

#[test]
fn another_journal_follows_the_table() {
    check_all(Event::OtherJournal);
}

/// On a full disk with copy-on-write, not even the old position can be overwritten.
#[test]
fn a_copy_is_marked_as_incomplete_if_its_position_cannot_be_saved() {
    let (log, first, second) = (memory(), Place::new(), Place::new());
    let active = begin(&log, &first, "z");
    let mut node = second.node(&log, "a");
    follow(&mut node, &log);
    for place in [&first, &second] {
        place.fill();
        fs::rename(place.file("journal.position"), place.file("kept")).expect("a position");
        symlink("/dev/full", place.file("journal.position")).expect("a link");
    }
    fs::rename(first.file(SEGMENT), first.file("elsewhere")).expect("a segment");
    symlink("/dev/full", first.file(SEGMENT)).expect("a link");
    write(&active, 100).expect("etcd stores the change");
    fs::rename(first.file("elsewhere"), first.file(SEGMENT)).expect("a segment");
    assert!(is_copying(&first.0), "the copy must not be used");
    active.release().expect("a release");
    drop(active);
    let taken = activate(&mut node);
    assert_eq!(taken.epoch(), 2);
    assert!(is_copying(&second.0), "the position does not identify the last active server");
    write(&taken, 200).expect("an active server");
    drop((taken, node));
    // When the disks have space again, both servers make their copies again.
    for (place, name) in [(&first, "z"), (&second, "a")] {
        fs::remove_file(place.file("journal.position.new")).expect("a link");
        fs::rename(place.file("kept"), place.file("journal.position")).expect("a position");
        let taken = activate(&mut place.node(&log, name));
        let segment = &place.segments()[SEGMENT];
        assert!(segment[100..].starts_with(b"promised") && segment[200..].starts_with(b"promised"));
        assert!(!is_copying(&place.0));
        drop(taken);
    }
}

/// The timeout of the claim and the search for its entry can take longer than the lease.
#[test]
fn a_lost_response_to_a_claim_does_not_shorten_the_lease() {
    let (log, place) = (MemoryLog::new(Faults { lost_answers: 255, ..Faults::default() }, 1), Place::new());
    log.delay_answers(LEASE + POLL);
    let active = activate(&mut place.node(&Arc::new(log), "a"));
    assert_eq!((active.epoch(), active.lease.is_over()), (1, false));
}

/// If etcd is restored from a backup that lacks the last entries, the position must include these entries.
#[test]
fn the_position_is_saved_when_the_lease_ends() {
    let (log, place) = (memory(), Place::new());
    let active = begin(&log, &place, "a");
    let (sender, ended) = mpsc::channel();
    active.watch(move || sender.send(()).expect("a receiver"), || ()).expect("threads");
    write(&active, 100).expect("an active server");
    active.lease.end();
    ended.recv_timeout(PATIENCE).expect("the end of the lease");
    assert_eq!(place.position(), (log.entries().len() as Seq, 1));
}

/// The server overwrites bytes of a segment, as at its start, so the checksum of the segment must be computed again.
#[test]
fn damage_to_an_overwritten_segment_of_an_active_server_is_detected() {
    let (log, place) = (memory(), Place::new());
    let active = begin(&log, &place, "a");
    active.watch(|| (), || ()).expect("threads");
    write(&active, 0).expect("an active server");
    let good = place.segments();
    std::thread::sleep(SAVE);
    let mut damaged = good[SEGMENT].clone();
    damaged[1] ^= 1;
    fs::write(place.file(SEGMENT), damaged).expect("a segment");
    active.release().expect("a release");
    drop(active);
    drop(activate(&mut place.node(&log, "a")));
    assert_eq!(place.segments(), good);
}

/// The server waits until its disk has space for the missing entries, and reads only one entry per attempt.
#[test]
fn a_copy_that_does_not_fit_on_the_disk_is_continued_later() {
    let (log, first, second) = (memory(), Place::new(), Place::new());
    let active = begin(&log, &first, "z");
    let mut node = second.node(&log, "a");
    follow(&mut node, &log);
    fs::rename(second.file(SEGMENT), second.file("elsewhere")).expect("a segment");
    symlink("/dev/full", second.file(SEGMENT)).expect("a link");
    write(&active, 100).expect("an active server");
    for _ in 0..3 {
        let problem = node.poll().err().expect("an error");
        assert!(is_no_space(&problem), "{problem}");
    }
    assert_eq!(node.limit, 1);
    // The node has opened the device, so use a new node.
    drop(node);
    fs::rename(second.file("elsewhere"), second.file(SEGMENT)).expect("a segment");
    active.lease.end();
    assert_eq!(activate(&mut second.node(&log, "a")).epoch(), 2);
    assert_eq!(second.segments(), first.segments());
}

#[test]
fn a_server_that_repeatedly_fails_after_its_claim_lets_another_take_over() {
    let (log, first, second, third) = (memory(), Place::new(), Place::new(), Place::new());
    let active = begin(&log, &first, "z");
    let (mut failing, mut standby) = (second.node(&log, "a"), third.node(&log, "b"));
    follow(&mut failing, &log);
    follow(&mut standby, &log);
    // The failing server always claims first.
    (failing.max_silence, standby.max_silence) = (SILENCE, SILENCE + Duration::from_millis(SPREAD));
    // Prevents the creation of the file.
    fs::create_dir(second.file("journal.active")).expect("a directory");
    active.lease.end();
    drop(active);
    let end = Instant::now() + PATIENCE;
    let taken = loop {
        assert!(Instant::now() < end, "no server became active");
        assert!(!matches!(failing.poll(), Ok(Step::Active(_))));
        match standby.poll() {
            Ok(Step::Active(active)) => break active,
            _ => std::thread::sleep(POLL / 10),
        }
    };
    assert_eq!(taken.epoch(), 3, "the failing server has claimed the journal only once");
}

/// A server that has lost its lease continues the queue's clock in a new process, whatever the wall clock shows.
#[test]
fn a_server_that_becomes_active_again_continues_the_clock() {
    const HOUR: u64 = 3_600_000;
    let (log, place) = (memory(), Place::new());
    drop(begin(&log, &place, "a"));
    let mut node = place.node(&log, "a");
    let board = node.member.board.clone();
    let wall = board.queue_time();
    board.set_time(wall + HOUR);
    let clock = board.figures().clock;
    let active = activate(&mut node);
    assert_eq!(active.board().figures().clock, clock);
    let end = Instant::now() + PATIENCE;
    let beat = loop {
        assert!(Instant::now() < end, "no heartbeat");
        let (_, tail) = log.read(1, 1).expect("a log in memory");
        match tail.clock.filter(|_| tail.epoch == 2) {
            Some(beat) if beat >= wall + HOUR => break beat,
            _ => std::thread::sleep(POLL / 10),
        }
    };
    assert!(beat <= wall + HOUR + PATIENCE.as_millis() as u64, "{beat}");
}

#[test]
fn a_server_without_the_right_to_query_the_space_works() {
    let (log, first, second) = (memory(), Place::new(), Place::new());
    log.hide_space();
    let active = begin(&log, &first, "a");
    let mut node = second.node(&log, "b");
    for _ in 0..2 {
        let refused = node.member.query_space().expect_err("no right");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }
    assert!(node.member.is_space_hidden.load(Ordering::Relaxed));
    assert_eq!(node.member.board.figures().quota, 0, "the metrics must not contain a quota");
    assert!(matches!(node.poll(), Ok(Step::Standby(_))));
    write(&active, 100).expect("an active server");
}

/// A log that responds only to small reads, and an active server that merges entries.
fn slow() -> (Arc<MemoryLog>, Place, Active) {
    let faults = Faults { largest_answer: 1 << 20, ..Faults::default() };
    let (log, place) = (Arc::new(MemoryLog::new(faults, 1)), Place::new());
    let active = begin(&log, &place, "a");
    active.watch(|| (), || ()).expect("threads");
    (log, place, active)
}

fn write_entries(active: &Active, name: &str, count: u64, size: u64) {
    let file = active.storage.open(name).expect("a segment");
    for number in 0..count {
        file.write_at(number * size, &vec![7; size as usize]).expect("an active server");
        file.sync().expect("an active server");
    }
}

fn wait_merged(log: &MemoryLog, below: usize) {
    let end = Instant::now() + PATIENCE;
    while log.entries().len() >= below {
        assert!(Instant::now() < end, "{} entries", log.entries().len());
        std::thread::sleep(POLL / 10);
    }
    assert_eq!(log.refused(), 0, "a read was too large");
}

#[test]
fn entries_of_medium_size_are_read_in_small_portions_for_merging() {
    let (log, _place, active) = slow();
    active.storage.create("segment.0000000002", 8 << 20).expect("a segment");
    write_entries(&active, "segment.0000000002", 300, 14_000);
    write_entries(&active, "segment.0000000002", 1000, 100);
    wait_merged(&log, 400);
}

#[test]
fn purged_entries_are_not_read_for_merging() {
    let (log, _place, active) = slow();
    write_entries(&active, SEGMENT, 300, 8);
    active.storage.remove(SEGMENT).expect("a segment");
    active.storage.create("segment.0000000003", 8 << 20).expect("a segment");
    write_entries(&active, "segment.0000000003", 20, 100_000);
    write_entries(&active, "segment.0000000003", 600, 8);
    wait_merged(&log, 400);
}
