//! Tests imports in which the server refuses commands, or in which a line is invalid.

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::daemon::{run_command, shell, wait_until, Ended, Folder};
use crate::support::{ctl, feed, pretender, Server};

/// Starts a server whose clients have only `rights`.
fn with_rights(folder: &Folder, rights: &str) -> Server {
    let file = folder.file("access");
    std::fs::write(&file, format!("* none {rights}\n")).expect("a file");
    Server::beanpole(&["--access", file.to_str().expect("a plain path")])
}

fn holds(ended: &Ended, parts: &[&str]) {
    for part in parts {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
}

#[test]
fn a_job_of_a_refused_tube_is_not_put_into_another() {
    let folder = Folder::new();
    let few = (Server::beanpole(&["--max-tubes", "3", "--extensions="]), ["t1", "t2", "t3", "t4"], "use: ");
    let denied = (with_rights(&folder, "put:t* look:t*"), ["t1", "t2", "u3", "u4"], "put: permission denied");
    for (server, tubes, problem) in [few, denied] {
        let line = |tube: &&str| format!("{{\"tube\":\"{tube}\",\"body\":\"of {tube}\"}}\n");
        let lines: String = tubes.iter().chain(&tubes).map(line).collect();
        let ended = server.feed(&["import"], lines.as_bytes());
        holds(&ended, &[3, 4, 7, 8].map(|number| format!("line {number}: {problem}")).each_ref().map(String::as_str));
        holds(&ended, &["imported 4 jobs, 0 of them buried; 4 lines were refused"]);
        assert_eq!(ended.code, 1);
        assert_eq!(["t1", "t2", "default"].map(|tube| server.count(tube, "ready")), [2, 2, 0]);
    }
}

#[test]
fn a_server_without_space_for_a_tube_ends_an_import() {
    let server = Server::beanpole(&["--max-tubes", "3"]);
    let lines: String = (1..=4).map(|number| format!("{{\"tube\":\"t{number}\",\"body\":\"x\"}}\n")).collect();
    let ended = server.feed(&["import"], lines.as_bytes());
    holds(&ended, &["line 3: put: the server is out of memory; 2 jobs were imported; to continue, use --skip 2"]);
    assert_eq!(["t1", "t2", "default"].map(|tube| server.count(tube, "ready")), [1, 1, 0]);
}

#[test]
fn a_kept_key_that_cannot_be_deleted_expires() {
    let folder = Folder::new();
    let server = with_rights(&folder, "put look");
    let lines = "{\"tube\":\"t\",\"idempotency-key\":\"k\",\"idempotency-ttl\":100000}\n{\"body\":\"x\"}\n";
    let ended = server.feed(&["import"], lines.as_bytes());
    holds(&ended, &["imported 1 jobs", "a key that outlives its job, 1 times", "1 jobs are delayed, because"]);
    assert_eq!((ended.code, server.count("default", "ready")), (1, 1));
    let left = server.ok(&["export", "t"]);
    let left = left.split_once("\"expires-in\":").expect("a time to live").1.split(',').next().expect("a number");
    assert!((1..=60).contains(&left.parse::<u64>().expect("a number")), "{left}");
}

#[test]
fn a_job_that_cannot_be_buried_stays_delayed_and_the_import_goes_on() {
    let folder = Folder::new();
    let server = with_rights(&folder, "put look take:a");
    let line = |tube: &str, more: &str| format!("{{\"tube\":\"{tube}\",\"state\":\"buried\"{more},\"body\":\"x\"}}\n");
    let long = format!(",\"dead-from\":\"{}\"", "n".repeat(600));
    let lines = [
        line("a", ""),
        line("b", ""),
        // Only `bury` needs a right on the original tube, so it is refused after the job has been reserved.
        line("a", ",\"dead-from\":\"b\""),
        line("a", &long),
        line("a", ",\"dead-from\":\"a\\u0000\""),
        line("a", ",\"dead-from\":\"a\""),
    ];
    let ended = server.feed(&["import"], lines.concat().as_bytes());
    holds(&ended, &["line 2: bury: permission denied", "line 3: bury: permission denied"]);
    holds(&ended, &["line 4: dead-from: invalid tube name", "line 5: dead-from: invalid tube name"]);
    holds(&ended, &["imported 2 jobs, 2 of them buried; 4 lines were refused", "2 jobs are delayed, because"]);
    assert!(ended.code == 1 && !ended.err.contains("other clients"), "{}", ended.err);
    let counts = |tube: &str| ["ready", "delayed", "buried"].map(|state| server.count(tube, state));
    assert_eq!((counts("a"), counts("b")), ([0, 1, 2], [0, 1, 0]));
}

/// Imports a buried job into a fake server that replies `put` to the put, and that refuses to bury the job.
fn into_full_log(put: &'static str) -> Ended {
    let server = pretender(move |line| match line.split(' ').next().unwrap_or_default() {
        "stats" => Some("OK 27\r\n---\nextensions: idp export\n\r\n"),
        "reserve-job" if line.ends_with("18446744073709551615") => Some("NOT_FOUND\r\n"),
        "put" => Some(put),
        "bury" => Some("OUT_OF_MEMORY\r\n"),
        // A reserved job would become ready when the import ends. An import that reserves it waits in vain for a reply.
        _ => None,
    });
    let line = "{\"state\":\"buried\",\"idempotency-key\":\"k\",\"body\":\"x\"}\n";
    feed(ctl(&server, &["import"]), line.as_bytes())
}

#[test]
fn a_job_that_cannot_be_buried_is_not_reserved() {
    let ended = into_full_log("INSERTED 7\r\n");
    holds(&ended, &["line 1: bury: the server is out of memory", "1 jobs are delayed, because"]);
}

/// An interrupted import has put the job.
#[test]
fn a_known_job_that_cannot_be_buried_is_reported() {
    let ended = into_full_log("INSERTED 7 DELAYED\r\n");
    holds(&ended, &["line 1: bury: the server is out of memory", "1 jobs were not put"]);
    assert_eq!(ended.code, 1);
}

/// An interrupted import has put a job, but has not buried it. A continued import must bury the job. It must not bury
/// a job of another client with the same key.
#[test]
fn a_continued_import_buries_jobs_with_keys() {
    let server = Server::beanpole(&[]);
    server.ok(&["tube", "t", "max:1"]);
    let mut client = server.daemon.client();
    for (body, delay) in [("left", u32::MAX), ("other", 1000)] {
        client
            .send(format!("use t\r\nput 3 {delay} 9 {} idp:{body}\r\n{body}\r\n", body.len()).as_bytes())
            .expect("a connection");
    }
    client.send(b"put 0 0 900 0\r\n\r\nreserve-job 3\r\n").expect("a connection");
    wait_until("a job is reserved", || server.count("t", "reserved") == 1);
    let line = |key: &str, body: &str| {
        format!("{{\"tube\":\"t\",\"state\":\"buried\",\"idempotency-key\":\"{key}\",\"body\":\"{body}\"}}\n")
    };
    let lines = [line("left", "left"), line("other", "other"), line("new", "new")].concat();
    let ended = server.feed(&["import"], lines.as_bytes());
    holds(&ended, &["imported 1 jobs, 1 of them buried; 0 lines were refused", "2 jobs were not put, because"]);
    holds(&ended, &["1 of these jobs were left by an interrupted import, and are buried now"]);
    assert_eq!((ended.code, server.count("t", "buried"), server.count("t", "delayed")), (0, 2, 1), "{}", ended.err);
}

#[test]
fn a_byte_order_mark_is_ignored() {
    let server = Server::beanpole(&[]);
    let ended = server.feed(&["import"], "\u{feff}\n\u{feff}{\"body\":\"x\"}\n".as_bytes());
    assert_eq!((ended.code, server.count("default", "ready")), (0, 1), "{}", ended.err);
}

#[test]
fn a_line_too_long_for_the_memory_ends_an_import() {
    let server = Server::beanpole(&[]);
    let script = "ulimit -v 100000; (printf '{\"body\":\"x\"}\\n'; head -c 60000000 /dev/zero) | \"$0\" \"$@\"";
    for (line, expected) in
        [(&["import"][..], "1 jobs were imported; to continue, use --skip 1"), (&["put", "--lines"], "")]
    {
        let mut command = shell(script, line);
        command.env("BEANPOLE_SERVER", server.address().to_string());
        let ended = run_command(command);
        assert_eq!(ended.code, 1, "{line:?}: {}", ended.err);
        holds(&ended, &["stdin: out of memory", expected]);
    }
}

/// Imports `lines` into a fake server that replies `put(N)` to the put number N, and to which all jobs can be buried.
fn into_fake(lines: &str, put: impl Fn(usize) -> &'static str + Send + 'static) -> Ended {
    let count = AtomicUsize::new(0);
    let server = pretender(move |line| match line.split(' ').next().unwrap_or_default() {
        "stats" => Some("OK 20\r\n---\nextensions: idp\n\r\n"),
        "reserve-job" if line.ends_with("18446744073709551615") => Some("NOT_FOUND\r\n"),
        "reserve-job" => Some("RESERVED 7 0\r\n\r\n"),
        "bury" => Some("BURIED\r\n"),
        "release" => Some("NOT_FOUND\r\n"),
        "put" => Some(put(count.fetch_add(1, Ordering::SeqCst) + 1)),
        _ => None,
    });
    feed(ctl(&server, &["import"]), lines.as_bytes())
}

const BURIED: &str = "{\"state\":\"buried\",\"body\":\"x\"}\n";
const READY: &str = "{\"body\":\"x\"}\n";

#[test]
fn a_buried_job_is_not_put_again_long_after_its_line() {
    let lines = BURIED.to_owned() + &READY.repeat(5000);
    let ended = into_fake(&lines, |number| if number == 4000 { "cut off" } else { "INSERTED 7\r\n" });
    let skip = ended.err.trim_end().rsplit(' ').next().and_then(|skip| skip.parse().ok());
    assert!(ended.code == 3 && skip.is_some_and(|skip: u64| (2000..4000).contains(&skip)), "{}", ended.err);
}

#[test]
fn jobs_after_a_refused_job_are_counted() {
    let lines = BURIED.to_owned() + &READY.repeat(5000);
    let ended = into_fake(&lines, |number| if number == 3 { "DRAINING\r\n" } else { "INSERTED 7\r\n" });
    let expected = "line 3: the server accepts no new jobs, because it is draining; 1023 jobs were imported; \
        to continue, use --skip 2\n";
    assert!(ended.code == 1 && ended.err.contains(expected), "{}", ended.err);
}

/// The import waits for more input when it gets the signal.
#[test]
fn an_interrupted_import_says_how_to_continue() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let server = Server::beanpole(&[]);
        let mut command = server.command(&["import"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(READY.repeat(3000).as_bytes()).expect("the import reads");
        wait_until("a batch is imported", || server.count("default", "ready") > 0);
        kill(Pid::from_raw(child.id() as i32), signal).expect("the import runs");
        input.write_all(READY.as_bytes()).expect("the import reads");
        drop(input);
        let output = child.wait_with_output().expect("the program");
        let err = String::from_utf8_lossy(&output.stderr);
        let count = server.count("default", "ready");
        assert!(
            err.contains(&format!("interrupted; {count} jobs were imported; to continue, use --skip {count}\n")),
            "{err}"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_long_invalid_name_is_cut() {
    let server = Server::beanpole(&[]);
    let line = format!("{{\"tube\":\"{}\",\"body\":\"x\"}}\n", "n".repeat(70_000));
    let ended = server.feed(&["import"], line.as_bytes());
    holds(&ended, &["line 1: invalid tube name: \"nnn", "nnn\u{2026}\n"]);
    assert!(ended.code == 1 && ended.err.len() < 400, "{}", ended.err.len());
}
