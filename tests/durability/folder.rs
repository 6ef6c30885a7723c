//! Tests the lock of a directory, foreign files, and damaged directories.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::daemon::{command, run, wait_until, Signal};
use super::import::beanstalkd;
use super::support::{crash, number, state, stop, total, Home};

/// beanstalkd's exit code for a directory that cannot be used, for example because another server has locked it.
const NO_FOLDER: i32 = 10;

#[test]
fn a_second_server_reports_the_lock_holder() {
    let home = Home::new();
    let first = home.start(&["-f0"]);
    let id = first.client().put(b"x", 0, 0, 60).unwrap();
    let before = home.files();
    let ended = run(&["-p", "0", "-b", home.name()]);
    assert_eq!(ended.code, NO_FOLDER, "{ended:?}");
    assert!(ended.err.contains(&first.pid().to_string()), "no process ID {} in {ended:?}", first.pid());
    assert_eq!(home.files(), before, "the refused server has changed a file");
    crash(first);
    let second = home.start(&[]);
    assert_eq!(second.client().peek(id).unwrap().body, b"x");
}

#[test]
fn a_removed_or_overwritten_lock_file_still_locks() {
    let home = Home::new();
    let lock = home.path().join("lock");
    fs::write(&lock, b"\xff\xfe no number").expect("a file");
    let first = home.start(&["-f0"]);
    let refused = || {
        let ended = run(&["-p", "0", "-b", home.name()]);
        assert_eq!(ended.code, NO_FOLDER, "{ended:?}");
        assert!(ended.err.contains("in use by another server"), "{ended:?}");
    };
    fs::write(&lock, b"\xff\xfe").expect("a file");
    refused();
    fs::remove_file(&lock).expect("a file to remove");
    refused();
    stop(first);
}

fn segments(home: &Home) -> Vec<String> {
    let mut names: Vec<String> = home.files().into_keys().filter(|name| name.starts_with("segment.")).collect();
    names.sort_unstable();
    names
}

/// Creates a directory in which several segments contain live jobs. Returns the directory and the number of jobs.
fn filled() -> (Home, usize) {
    const JOBS: usize = 200;
    let home = Home::new();
    let daemon = home.start(&["-f0", "-s", "8192"]);
    let mut client = daemon.client();
    for number in 0..JOBS {
        client.put(format!("{number:0200}").as_bytes(), 0, 0, 60).expect("a job");
    }
    crash(daemon);
    assert!(segments(&home).len() > 5, "{:?}", segments(&home));
    (home, JOBS)
}

/// A start with `--strict` must fail with a message that contains the name of the file. A start without the option must
/// recover the remaining jobs. The next start must report nothing.
fn is_noticed(home: &Home, name: &str, jobs: std::ops::Range<usize>) {
    let ended = run(&["-p", "0", "-b", home.name(), "-s", "8192", "--strict"]);
    assert!(ended.code == 1 && ended.err.contains(name), "{name}: {ended:?}");
    let daemon = home.start(&["-s", "8192"]);
    assert!(daemon.log().contains(name), "{name}: {}", daemon.log());
    let mut client = daemon.client();
    let found: usize = client.figure("stats", "current-jobs-ready").expect("statistics").parse().expect("a number");
    assert!(jobs.contains(&found), "{found} jobs");
    assert_ne!(client.figure("stats", "binlog-records-skipped").expect("statistics"), "0");
    client.put(b"more", 0, 0, 60).expect("a job");
    wait_until("the log is repaired", || {
        client.figure("stats", "binlog-oldest-index").expect("statistics").parse::<u64>().expect("a number") > 2
    });
    stop(daemon);
    let again = home.start(&["-s", "8192", "--strict"]);
    let ready = again.client().figure("stats", "current-jobs-ready").expect("statistics");
    assert_eq!(ready, (found + 1).to_string());
    stop(again);
}

#[test]
fn every_missing_segment_is_detected() {
    for place in [0, 1, 3] {
        let (home, jobs) = filled();
        let name = segments(&home)[place].clone();
        fs::remove_file(home.path().join(&name)).expect("a segment");
        is_noticed(&home, &name, 1..jobs);
    }
    // Removes the newest segment that contains records. Newer segments are unused.
    let (home, jobs) = filled();
    let is_used = |name: &String| fs::read(home.path().join(name)).expect("a segment").iter().any(|&byte| byte != 0);
    let name = segments(&home).into_iter().rfind(is_used).expect("a segment");
    fs::remove_file(home.path().join(&name)).expect("a segment");
    let ended = run(&["-p", "0", "-b", home.name(), "--strict"]);
    assert!(ended.code == 1 && ended.err.contains(&name), "{ended:?}");
    let daemon = home.start(&[]);
    assert!(total(&mut daemon.client()) < jobs as u64);
    stop(daemon);
}

/// Something else has replaced a segment. Opening a pipe would block, and /dev/zero never ends.
#[test]
fn only_regular_files_are_read_as_segments() {
    let make: [fn(&Path); 5] = [
        |path| nix::unistd::mkfifo(path, Mode::S_IRWXU).expect("a pipe"),
        |path| fs::create_dir(path).expect("a directory"),
        |path| drop(UnixListener::bind(path).expect("a socket")),
        |path| symlink("/dev/zero", path).expect("a link"),
        |path| symlink("nothing", path).expect("a link"),
    ];
    for (index, make) in make.into_iter().enumerate() {
        let (home, jobs) = filled();
        let name = segments(&home)[index % 2].clone();
        let path = home.path().join(&name);
        fs::remove_file(&path).expect("a segment");
        make(&path);
        let checked = run(&["check", home.name()]);
        assert!(checked.code == 1 && checked.out.contains(&name), "{checked:?}");
        let exported = run(&["export", "-b", home.name()]);
        assert!(exported.code == 1 && exported.err.contains(&name), "{exported:?}");
        let copied = run(&["backup", home.name(), home.beside("copy").to_str().expect("a plain path")]);
        assert!(copied.code != 0 && [copied.out, copied.err].concat().contains(&name), "{index}");
        is_noticed(&home, &name, 1..jobs);
        assert!(home.path().join("damaged").join(&name).symlink_metadata().is_ok(), "{name} was removed");
    }
}

#[test]
fn a_stop_signal_ends_a_long_start() {
    let (home, _) = filled();
    let newest = segments(&home).pop().expect("a segment");
    let file = File::options().write(true).open(home.path().join(newest)).expect("a segment");
    file.set_len(1 << 40).expect("a sparse file");
    let mut server = Ends(command(&["-p", "0", "-b", home.name()]).stderr(Stdio::null()).spawn().expect("a program"));
    let pid = format!("{}\n", server.0.id());
    wait_until("the server reads the log", || fs::read_to_string(home.path().join("lock")).is_ok_and(|it| it == pid));
    kill(Pid::from_raw(server.0.id() as i32), Signal::SIGTERM).expect("a running process");
    let mut status = None;
    wait_until("the server ends", || {
        status = server.0.try_wait().expect("a child process");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(0));
}

#[test]
fn foreign_and_duplicate_segments_are_detected_and_set_aside() {
    let (home, jobs) = filled();
    let (other, _) = filled();
    let names = segments(&home);
    // Adds a copy of a segment under another name, and a segment of another log.
    fs::copy(home.path().join(&names[1]), home.path().join("segment.0000000900")).expect("a copy");
    fs::copy(other.path().join(&names[2]), home.path().join("segment.0000000901")).expect("a copy");
    let ended = run(&["-p", "0", "-b", home.name(), "--strict"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    let daemon = home.start(&[]);
    assert_eq!(total(&mut daemon.client()), jobs as u64);
    for name in ["segment.0000000900", "segment.0000000901"] {
        assert!(daemon.log().contains(name) && home.path().join("damaged").join(name).exists(), "{name}");
    }
    stop(daemon);
}

#[test]
fn another_version_of_the_format_is_refused_by_name() {
    let (home, jobs) = filled();
    let name = segments(&home)[0].clone();
    let path = home.path().join(&name);
    let kept = fs::read(&path).expect("a segment");
    let mut newer = kept.clone();
    for copy in newer[..192].chunks_exact_mut(96) {
        copy[8] = 4;
        copy[12] ^= 1;
    }
    fs::write(&path, &newer).expect("a segment");
    let ended = run(&["-p", "0", "-b", home.name()]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.err.contains(&name) && ended.err.contains("format 4 is newer"), "{ended:?}");
    assert!(fs::read(&path).expect("a segment") == newer, "the segment was changed");
    fs::write(&path, &kept).expect("a segment");
    let daemon = home.start(&["--strict"]);
    assert_eq!(total(&mut daemon.client()), jobs as u64);
    stop(daemon);
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn beanstalkd_and_beanpole_do_not_share_a_directory() {
    let Some(program) = beanstalkd() else { return };
    let theirs_on = |home: &Home| {
        let mut command = Command::new(&program);
        command.args(["-l", "127.0.0.1", "-p", "0", "-b", home.name()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a program")
    };
    let home = Home::new();
    let theirs = Ends(theirs_on(&home));
    wait_until("beanstalkd has its log", || home.path().join("binlog.1").exists());
    let ended = run(&["-p", "0", "-b", home.name()]);
    assert_eq!(ended.code, NO_FOLDER, "{ended:?}");
    assert!(ended.err.contains(&theirs.0.id().to_string()), "no process ID {} in {ended:?}", theirs.0.id());

    let home = Home::new();
    let ours = home.start(&[]);
    let mut theirs = Ends(theirs_on(&home));
    let mut status = None;
    wait_until("beanstalkd gives up", || {
        status = theirs.0.try_wait().expect("a child process");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(NO_FOLDER));
    stop(ours);
}

#[test]
fn only_the_last_directory_of_a_path_is_created() {
    let home = Home::new();
    let missing = home.beside("missing");
    let ended = run(&["-p", "0", "-b", missing.join("too").to_str().unwrap()]);
    assert_eq!(ended.code, NO_FOLDER, "{ended:?}");
    assert!(!missing.exists());
}

#[test]
fn the_files_are_private() {
    let home = Home::new();
    let daemon = home.start(&["-s", "4096"]);
    let mut client = daemon.client();
    for _ in 0..20 {
        client.put(&[b'x'; 1000], 0, 0, 60).unwrap();
    }
    let mut count = 0;
    for entry in fs::read_dir(home.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.path());
        count += 1;
    }
    assert!(count >= 3, "{count} files");
}

/// Creates jobs in segments of 4 KB and changes one byte in the body of one job. Returns the directory, the bodies by
/// job ID, and the ID of the damaged job.
fn damaged() -> (Home, BTreeMap<u64, Vec<u8>>, u64) {
    let home = Home::new();
    let daemon = home.start(&["-f0", "-s", "4096"]);
    let mut client = daemon.client();
    let mut jobs = BTreeMap::new();
    for count in 0..100 {
        let body = format!("this is job number {count:04} and its body is quite long, as bodies go").into_bytes();
        jobs.insert(client.put(&body, 0, 0, 60).unwrap(), body);
    }
    stop(daemon);
    let (&victim, body) = jobs.iter().nth(33).unwrap();
    let hit = home.files().into_iter().find_map(|(name, bytes)| {
        let place = bytes.windows(body.len()).position(|window| window == body)?;
        Some((name, bytes, place))
    });
    let (name, mut bytes, place) = hit.expect("a file that contains the body");
    bytes[place + 10] ^= 0x20;
    fs::write(home.path().join(name), bytes).unwrap();
    (home, jobs, victim)
}

/// Damage in the last few kilobytes cannot be distinguished from an interrupted write, but the log shows where it was.
#[test]
fn the_end_of_the_log_is_reported_even_if_records_follow_it() {
    let home = Home::new();
    let daemon = home.start(&["-f0"]);
    let mut client = daemon.client();
    (0..5).for_each(|count| _ = client.put(format!("body {count}").as_bytes(), 0, 0, 60).unwrap());
    crash(daemon);
    let (name, mut bytes) = home.files().into_iter().find(|(name, _)| name.ends_with('1')).expect("a segment");
    let place = bytes.windows(6).position(|window| window == b"body 2").expect("the body");
    bytes[place] ^= 1;
    fs::write(home.path().join(&name), &bytes).unwrap();
    let checked = run(&["check", home.name()]).out;
    assert!(checked.contains(&format!("bytes: {}\n", bytes.len())), "{checked}");
    let daemon = home.start(&["-f0"]);
    assert_eq!(total(&mut daemon.client()), 2);
    let log = daemon.log();
    assert!(log.contains(&format!("{name}: the log ends at byte ")), "{log}");
    stop(daemon);
}

#[test]
fn a_damaged_record_affects_no_other_and_its_segment_is_kept() {
    let (home, jobs, victim) = damaged();
    for start in 1..=3 {
        let daemon = home.start(&["-f0", "-s", "4096"]);
        let mut client = daemon.client();
        for (&id, body) in &jobs {
            match client.peek(id) {
                Ok(job) => assert_eq!((job.id, &job.body), (id, body)),
                Err(error) => assert!(id == victim, "job {id}: {error}"),
            }
        }
        assert_eq!(total(&mut client), jobs.len() as u64 - 1);
        let skipped = number(&mut client, "stats", "binlog-records-skipped");
        if start == 1 {
            assert_eq!(skipped, 1);
            assert!(daemon.log().contains(" WARN "), "{}", daemon.log());
        }
        assert_eq!(state(&mut client), "ok");
        let aside = home.path().join("damaged");
        wait_until("the damaged segment is set aside", || {
            fs::read_dir(&aside).is_ok_and(|entries| entries.count() == 1)
        });
        // The first server has rewritten jobs. The rewritten jobs must survive a crash.
        if start == 1 {
            crash(daemon);
        } else {
            assert_eq!(skipped, 0);
            stop(daemon);
        }
    }
}

#[test]
fn strict_mode_refuses_a_damaged_directory_and_does_not_change_it() {
    let (home, jobs, _) = damaged();
    let before = home.files();
    for _ in 0..2 {
        let ended = run(&["-p", "0", "-b", home.name(), "-s", "4096", "--strict"]);
        assert!(ended.code != 0 && ended.err.contains("segment."), "{ended:?}");
    }
    let after = home.files();
    for (name, bytes) in before.iter().filter(|(name, _)| name.as_str() != "lock") {
        // An unused segment may be removed. It contains only zeros.
        let is_unused = bytes.iter().all(|byte| *byte == 0);
        let same = after.get(name).is_some_and(|now| bytes.starts_with(now) && is_zero_behind(bytes, now.len()));
        assert!(is_unused || same, "{name} was changed");
    }
    assert!(!home.path().join("damaged").exists());
    let daemon = home.start(&["-s", "4096"]);
    assert_eq!(total(&mut daemon.client()), jobs.len() as u64 - 1);
}

fn is_zero_behind(bytes: &[u8], place: usize) -> bool {
    bytes[place..].iter().all(|byte| *byte == 0)
}

/// A write that a crash has interrupted must not be reported as damage.
#[test]
fn an_interrupted_write_is_truncated_even_in_strict_mode() {
    let home = Home::new();
    let daemon = home.start(&["-f0"]);
    let mut client = daemon.client();
    let bodies: Vec<Vec<u8>> = (0..10).map(|count| format!("this is body number {count}").into_bytes()).collect();
    for body in &bodies {
        client.put(body, 0, 0, 60).unwrap();
    }
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let last = &bodies[9];
    let (name, mut bytes, place) = (home.files().into_iter())
        .find_map(|(name, bytes)| {
            let place = bytes.windows(last.len()).position(|window| window == last)?;
            Some((name, bytes, place))
        })
        .expect("a file that contains the last body");
    bytes[place + 5..].fill(0);
    fs::write(home.path().join(name), bytes).unwrap();
    let daemon = home.start(&["--strict"]);
    let mut client = daemon.client();
    assert_eq!(total(&mut client), 9);
    assert!((1..=9).all(|id| client.peek(id).unwrap().body == bodies[id as usize - 1]));
    assert!(client.put(b"x", 0, 0, 60).unwrap() > 9);
}
