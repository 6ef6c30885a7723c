//! Tests, with the real program, the effect of each event on a server in each state.

use std::fs::File;
use std::os::unix::fs::{symlink, FileExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::daemon::{can_preload, wait_until, Signal, PATIENCE};
use super::engine::Served;
use super::member::{Clocks, Member};

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    /// The server has not read the journal yet, because etcd does not respond.
    Joining,
    Standby,
    Active,
    /// The server is stopping. The server must release the journal, but etcd does not respond.
    Leaving,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    Stop,
    EtcdSilent,
    /// Another client has filled etcd up to its quota.
    EtcdFull,
    DirectoryLost,
    /// A byte of the server's log changes on the disk.
    CopyDamaged,
    SegmentRemoved,
    Suspended,
    OtherClaims,
    /// An operator promotes a server that does not exist.
    OtherPromoted,
    EtcdWiped,
    /// The journal of another queue replaces the journal in etcd.
    JournalReplaced,
    /// The disk has no space for a new position of the copy.
    DiskFull,
}

const EVENTS: [Event; 12] = [
    Event::Stop,
    Event::EtcdSilent,
    Event::EtcdFull,
    Event::DirectoryLost,
    Event::CopyDamaged,
    Event::SegmentRemoved,
    Event::Suspended,
    Event::OtherClaims,
    Event::OtherPromoted,
    Event::EtcdWiped,
    Event::JournalReplaced,
    Event::DiskFull,
];

enum Outcome {
    /// The server logs the message and exits with status 0.
    Exits(&'static str),
    /// The server logs the message and does not serve clients.
    Refuses(&'static str),
    /// The server logs the message. It becomes active when etcd responds and no other server is active.
    Serves(&'static str),
}

fn expected(state: State, event: Event) -> Outcome {
    use Event::{CopyDamaged, DirectoryLost, DiskFull, EtcdFull, EtcdSilent, EtcdWiped};
    use Event::{JournalReplaced, OtherClaims, OtherPromoted, SegmentRemoved, Stop, Suspended};
    use Outcome::{Exits, Refuses, Serves};
    match (state, event) {
        (State::Joining, Stop) => Exits("standing by as a"),
        (State::Joining, EtcdSilent | Suspended) => Serves("unexpected end of file"),
        (State::Joining, OtherClaims) => Serves("y at 127.0.0.1:1 is the active server"),
        (State::Joining | State::Standby, DirectoryLost) => {
            Serves("was removed or replaced; the journal is copied again")
        }
        (State::Joining | State::Standby | State::Active, EtcdWiped | JournalReplaced) => {
            Refuses("etcd was wiped or restored")
        }
        (State::Joining | State::Active, DiskFull) => Serves("active as a, epoch 1"),
        (State::Standby, DiskFull) => Serves("active as a, epoch 2"),
        (State::Joining | State::Standby, CopyDamaged | SegmentRemoved) => {
            Serves("is damaged; copying the journal again")
        }
        (State::Joining | State::Standby | State::Active, EtcdFull) => Serves("etcd had reached its quota"),
        (State::Joining, OtherPromoted) => Serves("active as a, epoch 1"),
        (State::Standby, OtherPromoted) => Serves("active as a, epoch 2"),
        (State::Standby, Stop) => Exits("standing by as a"),
        (State::Standby, EtcdSilent) => Serves("unexpected end of file"),
        (State::Standby, Suspended) => Serves("z at "),
        (State::Standby, OtherClaims) => Serves("y at 127.0.0.1:1 is the active server"),
        (State::Active, Stop) => Exits("journal: released"),
        (State::Active, EtcdSilent | OtherClaims) => Serves("no longer active"),
        (State::Active, Suspended) => Serves("was stopped for"),
        // The server creates a new directory and copies all entries from etcd to it.
        (State::Active, DirectoryLost | SegmentRemoved) => Serves("this server stops being active"),
        // The active server reads its files only at startup.
        (State::Active, CopyDamaged) => Serves("active as a, epoch 1"),
        // The server shuts down cleanly so that the promoted server can take over, and becomes active again because the
        // promoted server does not exist.
        (State::Active, OtherPromoted) => Serves("active as a, epoch 2"),
        (State::Leaving, _) => Exits("stopping"),
    }
}

/// Starts a server and brings it into `state`. Also returns the active server if `state` is `Standby`.
fn bring(state: State, event: Event, served: &Served, clocks: &Clocks) -> (Member, Option<Member>) {
    match state {
        State::Joining
            if matches!(event, Event::EtcdWiped | Event::JournalReplaced)
                || matches!(event, Event::CopyDamaged | Event::SegmentRemoved) =>
        {
            // In these cases, server `a` already has a copy of the journal.
            let first = clocks.start(served, "a");
            first.wait_active();
            first.client().put(b"x", 0, 0, 60).expect("a job");
            first.daemon.signal(Signal::SIGTERM);
            assert_eq!(first.daemon.wait(PATIENCE), 0);
            served.engine().is_away = true;
            (first.restart(served, clocks), None)
        }
        State::Joining => {
            served.engine().is_away = true;
            let member = clocks.start(served, "a");
            member.daemon.wait_log("unexpected end of file");
            (member, None)
        }
        State::Standby => {
            let other = Member::start(served, "z", &[]);
            other.wait_active();
            other.client().put(b"x", 0, 0, 60).expect("a job");
            let member = clocks.start(served, "a");
            let held = other.figure("journal-entry");
            let metric = format!("\nbeanpole_journal_entry {held}\n");
            wait_until("the standby has all entries", || member.get("/metrics").1.contains(&metric));
            (member, Some(other))
        }
        State::Active => {
            let member = clocks.start(served, "a");
            member.wait_active();
            member.client().put(b"x", 0, 0, 60).expect("a job");
            (member, None)
        }
        State::Leaving => {
            let member = clocks.start(served, "a");
            member.wait_active();
            member.client().put(b"x", 0, 0, 60).expect("a job");
            // Delays the next append, so that the server keeps its lease and does not exit before etcd is unreachable.
            served.engine().held = member.figure("journal-entry").parse::<u64>().expect("a number") + 1;
            member.daemon.signal(Signal::SIGTERM);
            member.notifications("STATUS=closing, epoch 1");
            let mut engine = served.engine();
            (engine.is_away, engine.held) = (true, 0);
            (member, None)
        }
    }
}

fn oldest_segment(member: &Member) -> PathBuf {
    let files = std::fs::read_dir(member.folder.file("jobs")).expect("a directory");
    let paths = files.map(|file| file.expect("a file").path());
    paths.filter(|path| path.to_string_lossy().contains("/segment.")).min().expect("a segment")
}

/// Changes the first byte after the header of a segment.
fn damage(segment: &Path) {
    const HEADER: u64 = 192;
    let (file, mut byte) = (File::options().read(true).write(true).open(segment).expect("a segment"), [0]);
    file.read_exact_at(&mut byte, HEADER).expect("a record");
    file.write_all_at(&[byte[0] ^ 1], HEADER).expect("a record");
}

fn let_happen(event: Event, served: &Served, clocks: &Clocks, member: &Member, other: Option<&Member>) {
    match event {
        Event::Stop => member.daemon.signal(Signal::SIGTERM),
        Event::EtcdSilent => served.engine().is_away = true,
        Event::EtcdFull => {
            // Kills the active server, if any, so that only the server under test can compact etcd.
            other.iter().for_each(|other| other.daemon.signal(Signal::SIGKILL));
            served.engine().is_full = true;
        }
        Event::DirectoryLost => {
            std::fs::rename(member.folder.file("jobs"), member.folder.file("elsewhere")).expect("a directory");
        }
        Event::CopyDamaged => damage(&oldest_segment(member)),
        Event::SegmentRemoved => std::fs::remove_file(oldest_segment(member)).expect("a segment"),
        Event::Suspended => {
            member.daemon.signal(Signal::SIGSTOP);
            let length = Duration::from_secs(2);
            std::thread::sleep(length);
            clocks.set(Duration::ZERO, length);
            member.daemon.signal(Signal::SIGCONT);
        }
        Event::OtherClaims => {
            served.engine().claim("y 127.0.0.1:1");
        }
        Event::OtherPromoted => served.engine().promote("y"),
        Event::EtcdWiped => served.engine().wipe(),
        Event::JournalReplaced => {
            let mut engine = served.engine();
            engine.wipe();
            (0..2).for_each(|_| engine.claim("y 127.0.0.1:1"));
        }
        Event::DiskFull => {
            // Writing to this device fails as on a full disk.
            let path = member.folder.file("jobs").join("journal.position.new");
            // The server may be writing a position at the moment.
            wait_until("the link exists", || symlink("/dev/full", &path).is_ok());
        }
    }
    // Kills the other server, which would otherwise remain active or become active again.
    if let (Some(other), false) = (other, event == Event::Stop) {
        other.daemon.signal(Signal::SIGKILL);
    }
}

fn check(state: State, event: Event) {
    println!("{state:?}, {event:?}");
    // A preloaded library, `clock_shim.rs`, simulates the suspension.
    if event == Event::Suspended && !can_preload() {
        return;
    }
    let (served, clocks) = (Served::start(), Clocks::new());
    let (member, other) = bring(state, event, &served, &clocks);
    let_happen(event, &served, &clocks, &member, other.as_ref());
    let is_awaited = event == Event::EtcdSilent || event == Event::Suspended && state == State::Joining;
    match expected(state, event) {
        Outcome::Exits(log) => {
            // Makes etcd reachable again, except after `EtcdSilent` and `Stop`.
            served.engine().is_away &= event == Event::EtcdSilent || event == Event::Stop;
            assert_eq!(member.daemon.wait(PATIENCE), 0, "{state:?}, {event:?}");
            member.daemon.wait_log(log);
            if state == State::Leaving && !matches!(event, Event::EtcdWiped | Event::JournalReplaced) {
                served.engine().is_away = false;
                let successor = Member::start(&served, "b", &[]);
                successor.wait_active();
                assert_has_job(&successor, state, event);
            }
        }
        Outcome::Refuses(log) => {
            served.engine().is_away = false;
            member.daemon.wait_log(log);
            wait_until("the server does not serve", || !member.serves());
        }
        Outcome::Serves(log) => {
            if is_awaited {
                member.daemon.wait_log(log);
                wait_until("the server does not serve meanwhile", || !member.serves());
            }
            served.engine().is_away = false;
            member.daemon.wait_log(log);
            member.wait_active();
            let is_damaged = matches!(event, Event::CopyDamaged | Event::SegmentRemoved);
            if (state, event) == (State::Active, Event::DiskFull) {
                // The active server saves its position every two seconds.
                std::thread::sleep(Duration::from_secs(3));
                member.client().put(b"y", 0, 0, 60).expect("a job");
            }
            let log = member.daemon.log();
            // A directory can be removed during a verification.
            let may_be_damaged = is_damaged || event == Event::DirectoryLost;
            assert!(may_be_damaged || !log.contains("is damaged"), "{state:?}, {event:?}");
            if matches!((state, event), (State::Active, Event::CopyDamaged | Event::DiskFull)) {
                assert!(!log.contains("no longer active"), "{log}");
            }
            if state != State::Joining || is_damaged {
                assert_has_job(&member, state, event);
            }
        }
    }
}

/// Checks that the job from before the event exists.
fn assert_has_job(member: &Member, state: State, event: Event) {
    // An active server can still be restarting.
    wait_until(&format!("the job exists after {event:?} in {state:?}"), || {
        let Ok(mut client) = beanpole::Client::connect(member.beanstalk) else { return false };
        client.reserve(Some(0)).is_ok_and(|job| job.is_some_and(|job| job.body == b"x"))
    });
}

#[test]
fn a_joining_server_follows_the_table() {
    EVENTS.iter().for_each(|event| check(State::Joining, *event));
}

#[test]
fn a_standby_follows_the_table() {
    EVENTS.iter().for_each(|event| check(State::Standby, *event));
}

// Tests promise P33 of beanpole-promises(7).
#[test]
fn an_active_server_follows_the_table() {
    EVENTS.iter().for_each(|event| check(State::Active, *event));
}

#[test]
fn a_leaving_server_follows_the_table() {
    EVENTS.iter().for_each(|event| check(State::Leaving, *event));
}
