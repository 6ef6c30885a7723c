//! Tests the subcommands that change the queue: `put`, `reserve`, `delete`, `kick`, `bury`, `release`, `revoke`,
//! `pause`, `resume`, `move` and `clear`. Also tests `wait`.

use std::fs;

use crate::daemon::{run_command, shell, Folder, Signal};
use crate::support::{with_both, Server};

#[test]
fn bodies_come_from_arguments_files_and_stdin() {
    let folder = Folder::new();
    let file = folder.file("body");
    fs::write(&file, b"from\na file\xff").expect("a file");
    let file = file.to_str().expect("a plain path");
    with_both(|server| {
        assert_eq!(server.ok(&["put", "a", "b c"]), "1\n2\n");
        let stdin = server.feed(&["put", "-t", "t"], b"whole\n\r\n\0");
        assert_eq!((stdin.code, stdin.out.as_str()), (0, "3\n"));
        assert_eq!(server.daemon.client().peek(3).expect("a job").body, b"whole\n\r\n\0");
        assert_eq!(server.ok(&["put", "-f", file, "-f", file, "--json"]), "{\"id\":4}\n{\"id\":5}\n");
        assert_eq!(server.daemon.client().peek(5).expect("a job").body, b"from\na file\xff");
        let lines = server.feed(&["put", "-t", "lines", "--lines", "-p", "3", "-r", "8"], b"one\n\nthree\r\nfour");
        assert_eq!((lines.code, lines.out.as_str()), (0, ""));
        assert!(lines.err.contains("4 jobs are in tube lines, 0 were refused"), "{}", lines.err);
        let bodies: Vec<Vec<u8>> = (6..10).map(|id| server.daemon.client().peek(id).expect("a job").body).collect();
        assert_eq!(bodies, [&b"one"[..], b"", b"three\r", b"four"]);
        assert_eq!(
            (server.figure("stats-job 9", "pri"), server.figure("stats-job 9", "ttr")),
            ("3".into(), "8".into())
        );
        assert_eq!(server.run(&["put", "a", "--lines"]).code, 5);
        assert_eq!(server.run(&["put", "-f", "/nowhere/at/all"]).code, 1);
        assert_eq!(server.run(&["put", "-p", "4294967296", "a"]).code, 5);
        assert_eq!(server.run(&["put", "-t", "", "a"]).code, 5);
    });
}

#[test]
fn refusals_are_reported_and_other_jobs_are_put() {
    let servers = [Some(Server::beanpole(&["-z", "10"])), Server::beanstalkd(&["-z", "10"])];
    for server in servers.iter().flatten() {
        let ended = server.feed(&["put", "--lines"], b"short\nmuch too long for it\nshort too\n");
        assert_eq!(ended.code, 1, "{}", ended.err);
        assert!(ended.err.contains("line 2: the job exceeds the server's maximum size"), "{}", ended.err);
        assert!(ended.err.contains("2 jobs are in tube default, 1 were refused"), "{}", ended.err);
        assert_eq!(server.count("default", "ready"), 2);
        server.daemon.signal(Signal::SIGUSR1);
        crate::daemon::wait_until("the server is draining", || server.figure("stats", "draining") == "true");
        let drained = server.run(&["put", "a", "b"]);
        assert_eq!(drained.code, 1);
        assert!(drained.err.contains("job 1: the server accepts no new jobs") && drained.err.contains("0 were put"));
    }
}

#[test]
fn a_reserved_job_is_released_by_default() {
    with_both(|server| {
        server.ok(&["put", "-t", "mail", "-p", "5", "one", "two"]);
        assert_eq!(server.ok(&["reserve", "mail", "-w", "0"]), "one");
        assert_eq!((server.count("mail", "ready"), server.figure("stats-job 1", "pri")), (2, "5".to_owned()));
        assert_eq!(server.ok(&["reserve", "mail", "-w", "0", "--bury"]), "one");
        assert_eq!((server.count("mail", "buried"), server.figure("stats-job 1", "pri")), (1, "5".to_owned()));
        let job = server.ok(&["reserve", "other", "mail", "--delete", "--json"]);
        assert!(job.contains("\"state\":\"reserved\"") && job.contains("\"body\":\"two\""), "{job}");
        assert_eq!(server.run(&["reserve", "mail", "-w", "0"]).code, 2);
        // With tubes as arguments, `reserve` does not watch the tube `default`.
        server.ok(&["put", "three"]);
        assert_eq!(server.run(&["reserve", "mail", "-w", "0"]).code, 2);
        assert_eq!(server.ok(&["reserve", "-w", "0"]), "three");
        assert_eq!(server.run(&["reserve", "--delete", "--bury"]).code, 5);
    });
}

/// `reserve` must not delete a job whose body it cannot write.
#[test]
fn a_job_that_cannot_be_printed_is_not_deleted() {
    with_both(|server| {
        server.ok(&["put", "kept"]);
        let mut command = server.command(&["reserve", "-w", "0", "--delete"]);
        let full = fs::File::options().write(true).open("/dev/full").expect("a device that is full");
        let output = command.stdout(full).stderr(std::process::Stdio::piped()).output().expect("the program");
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(server.count("default", "ready"), 1);
        assert_eq!(server.figure("stats-job 1", "releases"), "1");
        for closed in [">&-", "</dev/null >&0"] {
            let mut command = shell(&format!("exec \"$0\" \"$@\" {closed}"), &["reserve", "-w", "0", "--delete"]);
            command.env("BEANPOLE_SERVER", server.address().to_string());
            let ended = run_command(command);
            assert_eq!((ended.code, server.count("default", "ready")), (1, 1), "{closed}: {}", ended.err);
            assert!(ended.err.contains("cannot write: Bad file descriptor"), "{closed}: {}", ended.err);
        }
        let mut command = shell("exec \"$0\" \"$@\" <&-", &["put"]);
        command.env("BEANPOLE_SERVER", server.address().to_string());
        let ended = run_command(command);
        assert_eq!((ended.code, server.count("default", "ready")), (1, 1), "{}", ended.err);
        assert!(ended.err.contains("stdin: Bad file descriptor"), "{}", ended.err);
        // `cat` must fail if its stdout is a full device, but not if the stdout of `work` is closed.
        server.ok(&["put", "-t", "full", "kept"]);
        let mut command = server.command(&["work", "--once", "--retries", "0", "full", "--", "cat"]);
        let full = fs::File::options().write(true).open("/dev/full").expect("a device that is full");
        command.stdout(full).stderr(std::process::Stdio::null()).status().expect("the program");
        assert_eq!(server.count("full", "buried"), 1);
        let mut command = shell("exec \"$0\" \"$@\" >&-", &["work", "--once", "--", "cat"]);
        command.env("BEANPOLE_SERVER", server.address().to_string());
        assert_eq!((run_command(command).code, server.count("default", "ready")), (0, 0));
    });
}

#[test]
fn jobs_are_buried_kicked_released_deleted() {
    with_both(|server| {
        server.ok(&["put", "-t", "mail", "a", "b", "c"]);
        assert_eq!(server.ok(&["bury", "1", "2"]), "1 buried\n2 buried\n");
        assert_eq!((server.count("mail", "buried"), server.count("mail", "ready")), (2, 1));
        server.ok(&["bury", "3", "-p", "9"]);
        assert_eq!(server.figure("stats-job 3", "pri"), "9");
        let some = server.run(&["kick", "2", "9999"]);
        assert_eq!((some.code, some.out.as_str()), (1, "2 kicked\n"));
        assert!(some.err.contains("job 9999 does not exist"), "{}", some.err);
        assert_eq!(server.ok(&["kick", "-t", "mail"]), "1\n");
        assert_eq!(server.ok(&["kick", "-t", "mail", "-n", "10"]), "1\n");
        assert_eq!(server.run(&["kick", "-t", "mail"]).code, 2);
        assert_eq!(server.run(&["kick", "2"]).code, 1, "a ready job cannot be kicked");
        assert_eq!(server.ok(&["release", "1", "-d", "1000"]), "1 released\n");
        assert_eq!(server.figure("stats-job 1", "state"), "delayed");
        server.ok(&["release", "1", "-p", "4"]);
        assert_eq!(
            (server.figure("stats-job 1", "state"), server.figure("stats-job 1", "pri")),
            ("ready".into(), "4".into())
        );
        let mut holder = server.daemon.client();
        holder.reserve_job(2).expect("a job");
        let held = server.run(&["bury", "2"]);
        assert_eq!(held.code, 1);
        assert!(held.err.contains("job 2 is reserved by another client"), "{}", held.err);
        let some = server.run(&["delete", "1", "2", "3", "4"]);
        assert_eq!((some.code, some.out.as_str()), (1, "1 deleted\n3 deleted\n"));
        assert_eq!(some.err.matches("delete: job").count(), 2, "{}", some.err);
        assert_eq!(server.count("mail", "reserved"), 1);
    });
}

/// If a setting or a tag limits the tries, the server can bury a job but reply RELEASED. `release` must then print
/// `buried`.
#[test]
fn a_release_that_buries_the_job_is_reported() {
    let server = Server::beanpole(&[]);
    server.ok(&["tube", "mail", "try:1"]);
    server.ok(&["put", "-t", "mail", "a"]);
    server.ok(&["put", "-t", "sms", "--try", "1", "b"]);
    server.ok(&["put", "c"]);
    let words = |id: u64| format!("job {id} was buried, because that was its last try");
    let some = server.run(&["release", "1", "2", "3"]);
    assert_eq!((some.code, some.out.as_str()), (1, "1 buried\n2 buried\n3 released\n"));
    assert!(some.err.contains(&words(1)) && some.err.contains(&words(2)), "{}", some.err);
    server.ok(&["kick", "1"]);
    let printed = server.run(&["reserve", "mail", "-w", "0"]);
    assert_eq!((printed.code, printed.out.as_str()), (0, "a"));
    assert!(printed.err.contains(&words(1)), "{}", printed.err);
}

#[test]
fn a_reserved_job_is_revoked() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "a", "b"]);
    let mut holder = server.daemon.client();
    holder.reserve_job(1).expect("a job");
    let some = server.run(&["revoke", "1", "2"]);
    assert_eq!((some.code, some.out.as_str()), (1, "1 revoked\n"));
    assert!(some.err.contains("job 2 is ready, not reserved"), "{}", some.err);
}

#[test]
fn a_tube_is_paused_and_resumed() {
    with_both(|server| {
        server.ok(&["put", "-t", "mail", "a"]);
        server.ok(&["pause", "mail", "1000"]);
        assert_eq!(server.run(&["reserve", "mail", "-w", "0"]).code, 2);
        server.ok(&["resume", "mail"]);
        assert_eq!(server.ok(&["reserve", "mail", "-w", "0"]), "a");
        assert_eq!(server.run(&["pause", "nosuch", "1"]).code, 1);
        assert_eq!(server.run(&["resume", "nosuch", "mail"]).code, 1);
        assert_eq!(server.run(&["pause", "mail", "soon"]).code, 5);
    });
}

#[test]
fn jobs_move_and_keep_their_state() {
    with_both(|server| {
        server.ok(&["put", "-t", "from", "-p", "3", "-r", "7", "a", "b"]);
        server.ok(&["put", "-t", "from", "-d", "1000", "late"]);
        server.ok(&["bury", "2"]);
        let asked = server.run(&["move", "from", "to"]);
        assert_eq!(asked.code, 5, "without a terminal, the program cannot ask for confirmation");
        assert!(asked.err.contains("--yes"), "{}", asked.err);
        for state in ["ready", "buried", "delayed"] {
            assert_eq!(server.ok(&["move", "from", "to", "--yes", "--state", state]), "1\n", "{state}");
            assert_eq!((server.count("from", state), server.count("to", state)), (0, 1), "{state}");
        }
        let job = server.ok(&["peek", "-t", "to", "--state", "buried", "--json"]);
        assert!(job.contains("\"pri\":3,") && job.contains("\"ttr\":7,") && job.contains("\"body\":\"b\""), "{job}");
        let late = server.ok(&["peek", "-t", "to", "--state", "delayed", "--json"]);
        let left = late.split("\"time-left\":").nth(1).and_then(|rest| rest.split(',').next()).expect("a delay");
        assert!(left.parse::<u32>().is_ok_and(|left| (1..=1000).contains(&left)), "{late}");
        assert_eq!(server.run(&["move", "to", "to", "-y"]).code, 5);
        for _ in 0..3 {
            server.ok(&["put", "-t", "many", "x"]);
        }
        assert_eq!(server.ok(&["move", "many", "to", "-y", "-n", "2"]), "2\n");
        assert_eq!(server.count("many", "ready"), 1);
    });
}

#[test]
fn a_tube_is_cleared() {
    with_both(|server| {
        let lines = "x\n".repeat(1000);
        server.feed(&["put", "-t", "mail", "--lines"], lines.as_bytes());
        server.ok(&["put", "-t", "mail", "-d", "1000", "late", "later"]);
        server.ok(&["bury", "1", "2", "3"]);
        server.ok(&["put", "-t", "other", "stays"]);
        assert_eq!(server.run(&["clear", "mail"]).code, 5);
        assert_eq!(server.ok(&["clear", "mail", "--yes", "--state", "buried"]), "3\n");
        assert_eq!((server.count("mail", "ready"), server.count("mail", "buried")), (997, 0));
        assert_eq!(server.ok(&["clear", "mail", "--yes"]), "999\n");
        assert_eq!((server.count("mail", "ready"), server.count("mail", "delayed")), (0, 0));
        assert_eq!(server.count("other", "ready"), 1);
        // A paused tube can be cleared, although no job of the tube can be reserved.
        server.ok(&["put", "-t", "mail", "a", "b"]);
        server.ok(&["pause", "mail", "1000"]);
        assert_eq!(server.ok(&["clear", "mail", "-y"]), "2\n");
        assert_eq!(server.run(&["clear", "mail", "--state", "reserved", "-y"]).code, 5);
    });
}

#[test]
fn put_accepts_tags() {
    let server = Server::beanpole(&[]);
    assert_eq!(server.ok(&["put", "-t", "t", "--unique", "k:60", "--ttl", "1000", "--try", "1:5", "a"]), "1\n");
    assert_eq!(server.ok(&["put", "-t", "t", "--unique", "k", "b"]), "1\n");
    let json = server.ok(&["put", "-t", "t", "--unique", "k", "--json", "c"]);
    assert_eq!(json, "{\"id\":1,\"duplicate-of\":\"ready\"}\n");
    let lines = server.feed(&["put", "-t", "t", "--unique", "k", "--lines"], b"d\ne\n");
    assert!(lines.err.contains("2 jobs are in tube t, 2 already existed, 0 were refused"), "{}", lines.err);
    // When the program exits, the reservation ends, and with it the job's only attempt.
    assert_eq!(server.ok(&["reserve", "t", "-w", "0"]), "a");
    assert_eq!(server.count("t", "buried"), 1);
    server.ok(&["delete", "1"]);
    assert_eq!(
        server.ok(&["put", "-t", "t", "--unique", "k", "--json", "f"]),
        "{\"id\":1,\"duplicate-of\":\"deleted\"}\n"
    );
    server.ok(&["put", "-t", "bound", "--con", "web", "a", "b"]);
    assert_eq!(server.ok(&["put", "-t", "bound", "--con", "mail:2", "c"]), "4\n");
    for (id, key, limit) in [("3", "web", "1"), ("4", "mail", "2")] {
        let figures = server.ok(&["stats", "--json", "--job", id]);
        assert!(figures.contains(&format!(r#""concurrency-key":"{key}""#)), "{figures}");
        assert!(figures.contains(&format!(r#""concurrency-limit":{limit}"#)), "{figures}");
    }
    for wrong in [["--con", "a b"], ["--unique", "a b"], ["--unique", "k\r\nquit"], ["--ttl", ""], ["--try", "1 2"]] {
        assert_eq!(server.run(&[&["put"], &wrong[..], &["x"]].concat()).code, 5, "{wrong:?}");
    }
    assert_eq!(server.run(&["put", "--ttl", "no-number", "x"]).code, 1);
    assert_eq!(server.count("default", "ready"), 0);
}

/// A server that does not support tags would refuse the first line of a put with tags, and then execute the body as a
/// command.
#[test]
fn tags_are_not_sent_to_a_server_that_does_not_know_them() {
    let servers = [Some(Server::beanpole(&["--no-extensions"])), Server::beanstalkd(&[])];
    for server in servers.iter().flatten() {
        server.ok(&["put", "kept"]);
        let ended = server.run(&["put", "--unique", "k", "delete 1"]);
        assert_eq!(ended.code, 1);
        assert!(ended.err.contains("the server does not support the tag idp"), "{}", ended.err);
        assert_eq!(server.count("default", "ready"), 1);
        let ended = server.run(&["wait", "1", "-w", "1"]);
        assert_eq!(ended.code, 1, "{}", ended.err);
    }
}

#[test]
fn wait_waits_for_the_ends_of_jobs() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "a", "b", "c"]);
    server.ok(&["delete", "3"]);
    let mut client = server.daemon.client();
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.run(&["wait", "1", "2"]));
        crate::daemon::wait_until("the program waits", || server.figure("stats", "cmd-wait") == "1");
        client.delete(1).expect("a job");
        client.reserve(Some(0)).expect("a reply").expect("a job");
        client.bury(2, 0).expect("a job");
        waiting.join().expect("the result")
    });
    assert_eq!((waiting.code, waiting.out.as_str()), (1, "1 deleted\n2 buried\n"), "{}", waiting.err);
    server.ok(&["kick", "2"]);
    assert_eq!(server.run(&["wait", "2", "-w", "0"]).code, 2);
    assert_eq!(server.run(&["wait", "3"]).code, 1);
    assert_eq!(server.run(&["wait"]).code, 5);
}
