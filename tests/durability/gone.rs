//! Tests the real program while its directory or some of its segments are missing, replaced or truncated, and while its
//! files cannot grow.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use beanpole::Client;

use super::daemon::{run, wait_until, Daemon};
use super::support::{crash, is_refused, number, state, stop, total, Home};

const OPTIONS: [&str; 3] = ["-f0", "-s", "65536"];

type Jobs = BTreeMap<u64, Vec<u8>>;

fn put(client: &mut Client, jobs: &mut Jobs) -> bool {
    let body = format!("body {} {}", jobs.len(), ".".repeat(2000)).into_bytes();
    match client.put(&body, 5, 0, 60) {
        Ok(id) => {
            assert!(jobs.insert(id, body).is_none(), "ID {id} was assigned twice");
            true
        }
        result => {
            assert!(is_refused(&result), "{result:?}");
            false
        }
    }
}

fn goes_on(client: &mut Client, jobs: &mut Jobs) {
    // The server accepts jobs until the prepared space is used up.
    wait_until("jobs are refused", || match client.put(&[b'x'; 5000], 0, 0, 60) {
        Ok(id) => jobs.insert(id, vec![b'x'; 5000]).is_some(),
        result => is_refused(&result),
    });
    let before = total(client);
    (0..10).for_each(|_| assert!(is_refused(&client.put(&[b'x'; 5000], 0, 0, 60))));
    assert_eq!(total(client), before);
    let job = client.reserve(Some(0)).unwrap().expect("a job");
    assert_eq!(job.body, jobs[&job.id]);
    client.delete(job.id).unwrap();
    jobs.remove(&job.id);
    assert!(client.peek(job.id).is_err());
}

/// Waits until the server accepts jobs again and reports the state `ok`. Checks the messages in the log.
fn resumes(daemon: &Daemon, client: &mut Client, jobs: &mut Jobs) {
    wait_until("the server accepts jobs again", || put(client, jobs));
    wait_until("the state is ok", || state(client) == "ok");
    let log = daemon.log();
    let count = |words: &str| log.lines().filter(|line| line.contains("binlog") && line.contains(words)).count();
    // Each change of the state is logged once. If the state was `full` before the failure, there is a second pair of
    // messages.
    assert!((1..=2).contains(&count(" refused")), "{log}");
    assert!((1..=2).contains(&count("taken again")), "{log}");
}

fn compare(client: &mut Client, jobs: &Jobs) {
    let lost: Vec<u64> = jobs.keys().copied().filter(|&id| client.peek(id).is_err()).collect();
    assert!(lost.is_empty(), "{} of {} jobs are lost: {lost:?}", lost.len(), jobs.len());
    assert!(jobs.iter().all(|(&id, body)| client.peek(id).unwrap().body == *body));
    assert_eq!(total(client), jobs.len() as u64);
}

/// After a crash, the log must contain all jobs and no damage.
fn crash_and_compare(daemon: Daemon, home: &Home, jobs: &Jobs) {
    crash(daemon);
    let daemon = home.start(&OPTIONS);
    let mut client = daemon.client();
    assert_eq!(number(&mut client, "stats", "binlog-records-skipped"), 0);
    compare(&mut client, jobs);
}

#[test]
fn a_removed_and_recreated_directory_loses_nothing() {
    let home = Home::new();
    let daemon = home.start(&OPTIONS);
    let mut client = daemon.client();
    let mut jobs = Jobs::new();
    (0..100).for_each(|_| assert!(put(&mut client, &mut jobs)));
    let before = number(&mut client, "stats", "binlog-current-index");
    // If the server creates a file at the same time, removing the directory fails.
    wait_until("the directory is removed", || fs::remove_dir_all(home.path()).is_ok());
    // This put is usually the first command to encounter the missing directory. In this case, the server acknowledges
    // the put when the directory exists again and the job is durable. If the server has already detected the loss, it
    // refuses the put.
    let address = daemon.address();
    let first = std::thread::spawn(move || Client::connect(address).expect("a connection").put(b"waits", 5, 0, 60));
    wait_until("the loss is detected", || state(&mut client) == "failing");
    goes_on(&mut client, &mut jobs);
    fs::create_dir(home.path()).unwrap();
    resumes(&daemon, &mut client, &mut jobs);
    match first.join().expect("a client") {
        Ok(waited) => drop(jobs.insert(waited, b"waits".to_vec())),
        result => assert!(is_refused(&result), "{result:?}"),
    }
    wait_until("the jobs of the old segments are in new ones", || {
        number(&mut client, "stats", "binlog-oldest-index") > before
    });
    crash(daemon);
    let daemon = home.start(&OPTIONS);
    compare(&mut daemon.client(), &jobs);
}

#[test]
fn a_file_size_limit_does_not_stop_the_server() {
    let home = Home::new();
    let daemon = home.start(&OPTIONS);
    let mut client = daemon.client();
    let mut jobs = Jobs::new();
    (0..50).for_each(|_| assert!(put(&mut client, &mut jobs)));
    if !daemon.limit("--fsize=4096:unlimited") {
        return println!("skipped: no prlimit");
    }
    // The first put to encounter the limit waits until the limit is removed. Another connection observes the change of
    // the state.
    let address = daemon.address();
    let first = std::thread::spawn(move || {
        let mut client = Client::connect(address).expect("a connection");
        (0..1000).find_map(|_| match client.put(b"waits", 5, 0, 60) {
            Ok(_) => None,
            result => Some(is_refused(&result)),
        })
    });
    wait_until("the limit is detected", || {
        let state = client.figure("stats", "binlog-state");
        !daemon.runs() || state.is_ok_and(|state| state != "ok")
    });
    assert!(daemon.runs(), "a signal killed the server: {}", daemon.log());
    goes_on(&mut client, &mut jobs);
    assert!(daemon.limit("--fsize=unlimited:unlimited"));
    resumes(&daemon, &mut client, &mut jobs);
    assert_ne!(first.join().expect("a client"), Some(false));
    let others = total(&mut client);
    crash(daemon);
    let daemon = home.start(&OPTIONS);
    let mut client = daemon.client();
    assert!(jobs.iter().all(|(&id, body)| client.peek(id).is_ok_and(|job| job.body == *body)));
    assert_eq!(total(&mut client), others);
}

/// Fills several segments with live jobs. Afterwards, the server writes nothing until a client sends a command.
fn fill(home: &Home) -> (Daemon, Client, Jobs) {
    let daemon = home.start(&OPTIONS);
    let mut client = daemon.client();
    let mut jobs = Jobs::new();
    (0..100).for_each(|_| assert!(put(&mut client, &mut jobs)));
    (daemon, client, jobs)
}

fn segments(home: &Home) -> Vec<String> {
    home.files().into_keys().filter(|name| name.starts_with("segment.")).collect()
}

fn lost(client: &mut Client) -> u64 {
    number(client, "stats", "binlog-segments-lost")
}

#[test]
fn jobs_of_removed_segments_are_rewritten() {
    let home = Home::new();
    let (daemon, mut client, jobs) = fill(&home);
    // The test must not remove the last segment, to which the server writes.
    let newest = number(&mut client, "stats", "binlog-current-index");
    assert!(newest > 3);
    for name in &segments(&home)[..2] {
        fs::remove_file(home.path().join(name)).expect("a segment");
    }
    wait_until("the loss is detected without other commands", || lost(&mut client) == 2);
    wait_until("the jobs are rewritten", || number(&mut client, "stats", "binlog-oldest-index") > 2);
    assert_eq!(state(&mut client), "ok");
    assert!(daemon.log().contains("replaced or truncated under the server"), "{}", daemon.log());
    assert!(!segments(&home).iter().any(|name| name.ends_with("0001")));
    client.put(b"last", 0, 0, 60).unwrap();
    crash(daemon);
    let daemon = home.start(&OPTIONS);
    let mut client = daemon.client();
    assert_eq!(number(&mut client, "stats", "binlog-records-skipped"), 0);
    assert!(jobs.iter().all(|(&id, body)| client.peek(id).is_ok_and(|job| job.body == *body)));
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("a server");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    reply
}

/// The server writes to the current segment. The prepared segment is the one that it would use next.
#[test]
fn jobs_of_the_removed_current_and_prepared_segments_are_rewritten() {
    let home = Home::new();
    let daemon = home.start(&[&OPTIONS[..], &["--http=127.0.0.1:0"]].concat());
    let (mut client, mut jobs) = (daemon.client(), Jobs::new());
    let (mut current, mut open) = (0, Vec::new());
    wait_until("a segment is prepared", || {
        assert!(put(&mut client, &mut jobs));
        current = number(&mut client, "stats", "binlog-current-index");
        open = segments(&home);
        open.retain(|name| name["segment.".len()..].parse().is_ok_and(|number: u64| number >= current));
        current > 2 && open.len() > 1
    });
    open.iter().for_each(|name| fs::remove_file(home.path().join(name)).expect("a segment"));
    wait_until("the loss is detected", || daemon.log().contains("a segment was removed, replaced or truncated"));
    resumes(&daemon, &mut client, &mut jobs);
    wait_until("the removed segments are obsolete", || number(&mut client, "stats", "binlog-oldest-index") > current);
    let lost = lost(&mut client);
    assert!(lost > 0);
    let http = daemon.names().iter().find_map(|name| name.strip_prefix("http://")).expect("an HTTP listener");
    let metrics = scrape(http.trim_end_matches('/'));
    assert!(metrics.contains(&format!("\nbeanpole_binlog_lost_segments_total {lost}\n")), "{metrics}");
    assert!(put(&mut client, &mut jobs));
    crash_and_compare(daemon, &home, &jobs);
}

/// The server has the original of the current segment open. Changes that it wrote to this file would be lost.
#[test]
fn jobs_of_replaced_segments_are_rewritten_and_the_replacements_are_kept() {
    let home = Home::new();
    let (daemon, mut client, mut jobs) = fill(&home);
    let current = number(&mut client, "stats", "binlog-current-index");
    // A running server could detect the first replacements and rewrite their jobs before the last replacement.
    daemon.freeze();
    for path in segments(&home).iter().map(|name| home.path().join(name)) {
        fs::copy(&path, home.beside("copy")).expect("a segment");
        fs::rename(home.beside("copy"), &path).expect("a replaced segment");
    }
    daemon.thaw();
    wait_until("the loss is detected", || daemon.log().contains("a segment was removed, replaced or truncated"));
    resumes(&daemon, &mut client, &mut jobs);
    wait_until("the segments are obsolete", || number(&mut client, "stats", "binlog-oldest-index") > current);
    wait_until("the replacements are set aside", || {
        fs::read_dir(home.path().join("damaged")).is_ok_and(|files| files.count() as u64 == lost(&mut client))
    });
    assert!(put(&mut client, &mut jobs));
    crash_and_compare(daemon, &home, &jobs);
}

/// On many file systems, the new file gets the inode number of the removed one.
#[test]
fn jobs_of_segments_removed_and_created_again_are_rewritten() {
    let home = Home::new();
    let (daemon, mut client, jobs) = fill(&home);
    assert!(number(&mut client, "stats", "binlog-current-index") > 3);
    let paths: Vec<_> = segments(&home).iter().map(|name| home.path().join(name)).collect();
    daemon.freeze();
    let bytes = fs::read(&paths[0]).expect("a segment");
    paths[..3].iter().for_each(|path| fs::remove_file(path).expect("a segment"));
    fs::write(&paths[0], bytes).expect("a file");
    fs::create_dir(&paths[1]).expect("a directory");
    std::os::unix::fs::symlink("nowhere", &paths[2]).expect("a link");
    daemon.thaw();
    wait_until("the loss is detected", || lost(&mut client) == 3);
    assert_eq!(state(&mut client), "ok");
    wait_until("the replacements are set aside", || {
        fs::read_dir(home.path().join("damaged")).is_ok_and(|files| files.count() == 3)
    });
    crash_and_compare(daemon, &home, &jobs);
}

/// Otherwise, only the next start would notice the loss.
#[test]
fn jobs_of_truncated_segments_are_rewritten() {
    let home = Home::new();
    let (daemon, mut client, mut jobs) = fill(&home);
    let cut = |number: u64, length: u64| {
        let path = home.path().join(format!("segment.{number:010}"));
        let file = fs::OpenOptions::new().write(true).open(path).expect("a segment");
        file.set_len(length).expect("a shorter segment");
    };
    // The server detects the truncation of a complete segment without other commands, and stays available.
    cut(1, 0);
    wait_until("the loss is detected", || lost(&mut client) == 1);
    wait_until("the jobs are rewritten", || number(&mut client, "stats", "binlog-oldest-index") > 1);
    assert_eq!(state(&mut client), "ok");
    let current = number(&mut client, "stats", "binlog-current-index");
    daemon.freeze();
    [(2, 60_000), (current, 200)].into_iter().for_each(|(number, length)| cut(number, length));
    daemon.thaw();
    wait_until("the losses are detected", || lost(&mut client) == 3);
    resumes(&daemon, &mut client, &mut jobs);
    wait_until("the truncated segments are set aside", || {
        fs::read_dir(home.path().join("damaged")).is_ok_and(|files| files.count() as u64 == lost(&mut client))
    });
    crash_and_compare(daemon, &home, &jobs);
}

#[test]
fn a_replaced_directory_is_filled_if_it_is_empty() {
    let home = Home::new();
    let (daemon, mut client, mut jobs) = fill(&home);
    let (aside, other) = (home.beside("aside"), home.beside("other"));
    fs::create_dir(&other).unwrap();
    fs::write(other.join("other"), "").unwrap();
    fs::rename(home.path(), &aside).unwrap();
    // The server would use the directory if it were empty for a moment.
    fs::rename(&other, home.path()).unwrap();
    wait_until("the loss is detected", || state(&mut client) == "failing");
    wait_until("the reason is logged", || daemon.log().contains("has replaced"));
    assert!(segments(&home).is_empty());
    // When the directory has its original name again, the server must recover.
    wait_until("the directory is removed", || fs::remove_dir_all(home.path()).is_ok());
    fs::rename(&aside, home.path()).unwrap();
    wait_until("the server accepts jobs again", || put(&mut client, &mut jobs));
    wait_until("the state is ok", || state(&mut client) == "ok");
    assert_eq!(lost(&mut client), 0);
    let before = number(&mut client, "stats", "binlog-current-index");
    // If an empty directory replaces the log's directory, the server must write all live data to the new directory.
    fs::rename(home.path(), &aside).unwrap();
    fs::create_dir(home.path()).unwrap();
    wait_until("the new directory is used", || lost(&mut client) > 0 && state(&mut client) == "ok");
    wait_until("all jobs are rewritten", || number(&mut client, "stats", "binlog-oldest-index") > before);
    let ended = run(&["-p", "0", "-b", home.name()]);
    assert!(ended.code == 10 && ended.err.contains("in use by another server"), "{ended:?}");
    assert!(put(&mut client, &mut jobs));
    crash(daemon);
    let daemon = home.start(&OPTIONS);
    compare(&mut daemon.client(), &jobs);
}

#[test]
fn a_damaged_segment_that_cannot_be_moved_is_renamed_and_the_bound_holds() {
    let home = Home::new();
    let (daemon, _, mut jobs) = fill(&home);
    crash(daemon);
    let second = home.path().join(&segments(&home)[1]);
    let mut bytes = fs::read(&second).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&second, &bytes).unwrap();
    fs::write(home.path().join("damaged"), "in the way").unwrap();
    let daemon = home.start(&OPTIONS);
    let mut client = daemon.client();
    jobs.retain(|&id, _| client.peek(id).is_ok());
    assert_eq!(jobs.len(), 99, "one record is damaged");
    let kept = second.with_extension("0000000002.damaged");
    for _ in 0..300 {
        let id = client.put(&[b'x'; 2000], 0, 0, 60).unwrap();
        client.delete(id).unwrap();
    }
    wait_until("the damaged segment is renamed", || kept.exists() && !second.exists());
    wait_until("the log is within its bound", || {
        let live: usize = jobs.values().map(|body| body.len() + 100).sum();
        let files = segments(&home).into_iter().filter(|name| !name.ends_with("damaged"));
        let size: u64 = files.filter_map(|name| Some(fs::metadata(home.path().join(name)).ok()?.len())).sum();
        size <= 2 * live as u64 + 2 * 65_536
    });
    assert_eq!(fs::read(&kept).unwrap(), bytes);
    crash(daemon);
    let daemon = home.start(&OPTIONS);
    compare(&mut daemon.client(), &jobs);
}

/// The server writes the jobs of lost segments again before it stops, even if it has not detected the loss before.
#[test]
fn jobs_of_lost_segments_survive_an_immediate_stop() {
    for all in [false, true] {
        let home = Home::new();
        let daemon = home.start(&OPTIONS);
        let (mut client, mut jobs) = (daemon.client(), Jobs::new());
        (0..300).for_each(|_| assert!(put(&mut client, &mut jobs)));
        let segments: Vec<String> = home.files().into_keys().filter(|name| name.starts_with("segment.")).collect();
        assert!(segments.len() > 5, "{segments:?}");
        let lost = if all { &segments[..] } else { &segments[3..4] };
        lost.iter().for_each(|name| fs::remove_file(home.path().join(name)).unwrap());
        stop(daemon);
        let daemon = home.start(&[&OPTIONS[..], &["--strict"]].concat());
        compare(&mut daemon.client(), &jobs);
    }
}
