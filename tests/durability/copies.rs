//! Tests copies of a log: backups that the program makes of active and inactive directories, and plain copies. Each
//! copy must be complete, or `check` and strict mode must report it as damaged.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use beanpole::Client;

use super::daemon::{run, Daemon};
use super::support::{crash, stop, total, Home};

/// A small segment size in bytes, so that segments are created and removed during a copy.
const SEGMENT: &str = "16384";

const COPIES: usize = 12;

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Puts jobs and deletes most of them until `stop` is set. `kept` receives the ID of the last job that is not deleted.
fn churn(mut client: Client, stop: &AtomicBool, kept: &AtomicU64) {
    let body = vec![b'c'; 300];
    let mut count = 0;
    while !stop.load(Ordering::SeqCst) {
        let id = client.put(&body, 0, 0, 60).expect("a job");
        count += 1;
        if count % 10 == 0 {
            kept.fetch_max(id, Ordering::SeqCst);
        } else {
            client.delete(id).expect("a job to delete");
        }
    }
}

/// Runs `work` while other clients put and delete jobs.
fn beside<R>(daemon: &Daemon, kept: &AtomicU64, work: impl FnOnce() -> R) -> R {
    struct StopAtEnd<'a>(&'a AtomicBool);
    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = StopAtEnd(&stop);
        for _ in 0..2 {
            let client = daemon.client();
            scope.spawn(|| churn(client, &stop, kept));
        }
        work()
    })
}

#[test]
fn an_incomplete_copy_of_a_journal_is_not_backed_up() {
    let home = Home::new();
    let daemon = home.start(&["-f0"]);
    daemon.client().put(b"x", 0, 0, 60).expect("a job");
    stop(daemon);
    for name in ["journal.moving", "journal.aside", "journal.incomplete"] {
        let copy = home.beside("copy");
        fs::create_dir(home.path().join(name)).expect("a directory");
        let ended = run(&["backup", home.name(), text(&copy)]);
        assert!(ended.code == 2 && ended.err.contains("the copy of the journal is incomplete"), "{ended:?}");
        assert!(!copy.exists());
        if name == "journal.aside" {
            // The directory contains a first copy, so there is no earlier one.
            let ended = run(&["-p", "0", "-b", home.name()]);
            assert!(ended.code == 10 && ended.err.contains("the copy of the journal is incomplete"), "{ended:?}");
        }
        fs::remove_dir(home.path().join(name)).expect("a directory");
    }
}

#[test]
fn a_backup_of_an_active_directory_contains_all_acknowledged_jobs() {
    for options in [&["-f0", "-s", SEGMENT][..], &["-F", "-s", SEGMENT]] {
        let home = Home::new();
        let daemon = home.start(options);
        let old = daemon.client().put(b"an old job that is written again and again", 0, 0, 60).expect("a job");
        let kept = AtomicU64::new(old);
        beside(&daemon, &kept, || {
            for number in 0..COPIES {
                let before = kept.load(Ordering::SeqCst);
                let copy = home.beside(&format!("copy{number}"));
                let ended = run(&["backup", home.name(), text(&copy)]);
                assert_eq!(ended.code, 0, "{ended:?}");
                let ended = run(&["check", text(&copy)]);
                assert!(
                    ended.code == 0 && ended.out.contains("format: 3") && ended.out.contains("damage: []"),
                    "{ended:?}"
                );
                let restored = Daemon::start(&["-l", "127.0.0.1:0", "-b", text(&copy), "--strict"]);
                let mut client = restored.client();
                assert!(
                    client.peek(old).is_ok() && client.peek(before).is_ok(),
                    "copy {number} lacks {old} or {before}"
                );
                stop(restored);
            }
        });
        assert!(
            daemon.client().figure("stats", "binlog-oldest-index").expect("statistics") != "1",
            "no segment was removed"
        );
        stop(daemon);
    }
}

#[test]
fn a_plain_copy_of_an_active_directory_is_complete_or_detected_as_damaged() {
    let home = Home::new();
    let daemon = home.start(&["-f0", "-s", SEGMENT]);
    let old = daemon.client().put(b"an old job that is written again and again", 0, 0, 60).expect("a job");
    let kept = AtomicU64::new(old);
    let (mut whole, mut damaged) = (0, 0);
    beside(&daemon, &kept, || {
        for number in 0..3 * COPIES {
            let before = kept.load(Ordering::SeqCst);
            let copy = home.beside(&format!("plain{number}"));
            fs::create_dir(&copy).expect("a directory");
            let mut names: Vec<String> = home.files().into_keys().filter(|name| name.starts_with("segment.")).collect();
            // Copies the files in different orders, because file systems list directories in different orders.
            match number % 3 {
                0 => names.sort_unstable(),
                1 => names.sort_unstable_by(|one, other| other.cmp(one)),
                _ => {}
            }
            for name in names {
                std::thread::sleep(std::time::Duration::from_millis(2));
                // Continues if a file has disappeared, as cp(1) does.
                let _ = fs::copy(home.path().join(&name), copy.join(&name));
            }
            let ended = run(&["check", text(&copy)]);
            if ended.code == 0 {
                let restored = Daemon::start(&["-l", "127.0.0.1:0", "-b", text(&copy), "--strict"]);
                assert!(restored.client().peek(old).is_ok(), "copy {number} lacks the job {old}: {ended:?}");
                let has = restored.client().peek(before).is_ok();
                assert!(has, "copy {number} lacks the job {before}: {ended:?}");
                stop(restored);
                whole += 1;
            } else {
                // The server can remove all segments, or all except a prepared one, before the test copies them.
                let reported =
                    ["missing", "damaged", "no binlog", "has a header"].iter().any(|word| ended.out.contains(word));
                assert!(ended.code == 1 && reported, "{ended:?}");
                damaged += 1;
            }
        }
    });
    println!("plain copies: {whole} complete, {damaged} detected as damaged");
    stop(daemon);
}

// Tests promise P19 of beanpole-promises(7).
#[test]
fn restoring_over_an_older_copy_revives_no_jobs() {
    let home = Home::new();
    let copy = home.beside("copy");
    fs::create_dir(&copy).expect("a directory");
    let mut deleted = Vec::new();
    let stay = 20;
    for day in 0..4 {
        let daemon = home.start(&["-f0", "-s", SEGMENT]);
        let mut client = daemon.client();
        deleted.iter().for_each(|&id| assert!(client.peek(id).is_err(), "job {id} reappeared on day {day}"));
        // These puts and deletes make the server remove segments that the older copy still contains.
        let jobs: Vec<u64> = (0..120).map(|_| client.put(&[b'r'; 300], 0, 0, 60).expect("a job")).collect();
        for &id in &jobs[stay..] {
            client.delete(id).expect("a job to delete");
        }
        deleted.extend(&jobs[stay..]);
        stop(daemon);
        for (name, bytes) in home.files() {
            fs::write(copy.join(name), bytes).expect("a file of the copy");
        }
    }
    let names = |folder: &Path| -> HashSet<OsString> {
        fs::read_dir(folder).expect("a directory").map(|entry| entry.expect("an entry").file_name()).collect()
    };
    let obsolete = &names(&copy) - &names(home.path());
    assert!(!obsolete.is_empty(), "the copy has no obsolete segment");
    let ended = run(&["check", text(&copy)]);
    assert!(ended.code == 0 && ended.out.contains("damage: []"), "{ended:?}");
    let restored = Daemon::start(&["-l", "127.0.0.1:0", "-b", text(&copy), "--strict"]);
    let mut client = restored.client();
    assert_eq!(total(&mut client), 4 * stay as u64);
    assert!(deleted.iter().all(|&id| client.peek(id).is_err()), "deleted jobs reappeared");
    stop(restored);
    assert!(names(&copy).is_disjoint(&obsolete), "obsolete segments must be removed");
}

#[test]
fn check_shows_the_contents_of_a_directory() {
    let home = Home::new();
    let daemon = home.start(&["-f0"]);
    let mut client = daemon.client();
    client.put(b"one", 0, 0, 60).expect("a job");
    client.put(b"two", 0, 3600, 60).expect("a job");
    client.use_tube("mail").expect("a tube");
    let id = client.put(b"three", 0, 0, 60).expect("a job");
    client.watch("mail").expect("a tube");
    client.ignore("default").expect("a tube");
    assert_eq!(client.reserve(Some(0)).expect("a reply").map(|job| job.id), Some(id));
    client.bury(id, 0).expect("a job");
    client.send(b"pause-tube mail 3600\r\n").expect("a server");
    assert_eq!(client.line().expect("a reply"), "PAUSED");
    let jobs = total(&mut client);
    crash(daemon);
    let before = home.files();
    let ended = run(&["check", home.name()]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for line in [
        &format!("jobs: {jobs}") as &str,
        "paused-tubes: 1",
        "left-in-order: false",
        "  \"default\": {ready: 1, delayed: 1, leased: 0, buried: 0, held: 0, scheduled: 0, finished: 0}",
        "  \"mail\": {ready: 0, delayed: 0, leased: 0, buried: 1, held: 0, scheduled: 0, finished: 0}",
        "damage: []",
    ] {
        assert!(ended.out.lines().any(|other| other == line), "{line}: {ended:?}");
    }
    assert_eq!(home.files(), before, "check has changed a file");
    stop(home.start(&[]));
    assert!(run(&["check", home.name()]).out.contains("left-in-order: true"));
}

#[test]
fn errors_are_described_in_words() {
    let home = Home::new();
    let (missing, copy) = (home.beside("missing"), home.beside("copy"));
    for (arguments, code) in [
        (&["check"][..], 5),
        (&["check", "a", "b"], 5),
        (&["backup", home.name()], 5),
        (&["check", "--what"], 5),
        (&["check", text(&missing)], 2),
        (&["backup", text(&missing), text(&copy)], 2),
        (&["backup", home.name(), "/proc/none"], 2),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
        assert_eq!(ended.err.lines().count(), usize::from(code > 0), "{arguments:?}: {ended:?}");
    }
    for arguments in [&["check", home.name()][..], &["backup", home.name(), text(&copy)]] {
        let ended = run(arguments);
        assert!(ended.code == 1 && ended.out.contains("there is no binlog in this directory"), "{ended:?}");
    }
    stop(home.start(&[]));
    for name in ["import.begun", "binlog.1"] {
        fs::write(home.path().join(name), "").expect("a file");
    }
    for (arguments, code) in [
        (&["check", home.name()][..], 2),
        (&["backup", home.name(), text(&copy)], 2),
        (&["export", "-b", home.name()], 1),
    ] {
        let ended = run(arguments);
        let is_described = ended.err.contains("the import of beanstalkd's files is incomplete");
        assert!(ended.code == code && is_described, "{arguments:?}: {ended:?}");
    }
    fs::write(home.path().join("import.done"), "").expect("a file");
    assert_eq!(run(&["check", home.name()]).code, 0);
    let ended = run(&["backup", home.name(), home.name()]);
    assert!(ended.code == 2 && ended.err.contains("not empty"), "{ended:?}");
}
