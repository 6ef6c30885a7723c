//! Tests the read-only subcommands: `stats`, `tubes`, `connections`, `history`, `peek`, `list` and `tail`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use super::names::on_a_terminal;
use crate::daemon::{run, wait_until, Folder};
use crate::support::{ctl, pretender, with_both, Server};

/// Puts job 1 (ready), job 2 (delayed) and job 3 (buried).
fn fill(server: &Server) {
    assert_eq!(server.ok(&["put", "-t", "mail", "-p", "7", "first"]), "1\n");
    assert_eq!(server.ok(&["put", "-t", "mail", "-d", "1000", "-r", "9", "late"]), "2\n");
    assert_eq!(server.ok(&["put", "-t", "mail", "bad \u{1b}[2J"]), "3\n");
    server.ok(&["bury", "3"]);
}

#[test]
fn stats_are_lines_or_objects() {
    with_both(|server| {
        fill(server);
        let stats = server.ok(&["stats"]);
        assert!(stats.lines().any(|line| line == "current-jobs-ready\t1"), "{stats}");
        let tube = server.ok(&["stats", "mail", "--json"]);
        assert!(tube.starts_with("{\"name\":\"mail\",") && tube.contains("\"current-jobs-buried\":1,"), "{tube}");
        let job = server.ok(&["stats", "--job", "2", "--json"]);
        assert!(job.contains("\"id\":2,\"tube\":\"mail\",\"state\":\"delayed\""), "{job}");
        assert!(job.contains("\"ttr\":9,"), "{job}");
        let all = server.ok(&["stats", "--json"]);
        assert!(
            all.contains("\"version\":\"")
                && all.contains("\"draining\":\"false\"") | all.contains("\"draining\":false")
        );
        let missing = server.run(&["stats", "mail", "nosuch", "--job", "77"]);
        assert_eq!(missing.code, 1);
        assert!(missing.out.contains("current-jobs-ready\t1"), "existing tubes must be shown: {}", missing.out);
        assert!(
            missing.err.contains("no tube nosuch")
                && missing.err.contains("job 77 does not exist; if it has ended, see"),
            "{}",
            missing.err
        );
    });
}

#[test]
fn tubes_are_a_table() {
    with_both(|server| {
        fill(server);
        let table = server.ok(&["tubes"]);
        let lines: Vec<&str> = table.lines().collect();
        let heads = "tube ready reserved delayed buried other waiting total deleted paused watching oldest_ready";
        assert_eq!(lines[0], heads.replace(' ', "\t").replace('_', " "));
        assert_eq!(lines[1], "default\t0\t0\t0\t0\t0\t0\t0\t0\t0\t1\t-", "watched by this client, and empty");
        assert!(lines[2].starts_with("mail\t1\t0\t1\t1\t0\t0\t3\t0\t0\t0\t"), "{table}");
        // beanstalkd does not report the age of the oldest job.
        let age = lines[2].rsplit('\t').next().expect("a cell");
        assert_eq!(age.parse::<u64>().is_ok(), server.ok(&["stats"]).contains("extensions"), "{table}");
        let objects = server.ok(&["tubes", "mail", "--json"]);
        assert!(objects.starts_with("{\"name\":\"mail\",") && objects.lines().count() == 1, "{objects}");
        assert_eq!(server.run(&["tubes", "nosuch"]).code, 1);
    });
}

#[test]
fn workers_that_do_not_reserve_and_holders_are_named() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "-t", "mail", "-r", "600", "a"]);
    let mut worker = server.daemon.client();
    worker.send(b"name mailer-1\r\nwatch mail\r\nname mailer-1\r\n").expect("a server");
    (0..3).for_each(|_| drop(worker.reply().expect("a reply")));
    let table = server.ok(&["connections"]);
    let headings = "number client address protocol state job tube for left progress silent watches";
    assert_eq!(table.lines().next(), Some(&*headings.replace(' ', "\t")));
    assert!(table.contains("\tbeanstalk\tnot reserving\t-"), "{table}");
    assert!(table.contains("\tbeanstalk\tidle\t-"), "a client that only watches default: {table}");
    assert!(server.ok(&["connections", "--json"]).contains("\"state\":\"idle\""));
    worker.reserve_job(1).expect("a job");
    assert!(server.ok(&["stats", "-i", "1"]).contains("holder-name\tmailer-1\n"));
    assert!(on_a_terminal(server.command(&["list", "mail"])).contains("  10m00s  "), "missing time to run");
}

#[test]
fn a_history_that_is_cut_off_is_reported() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "a", "b"]);
    server.ok(&["delete", "1", "2"]);
    let first = server.run(&["history", "-n", "1"]);
    assert_eq!((first.code, first.out.lines().count()), (0, 2));
    assert!(first.err.contains("showing only the newest 1 job; use -n 0 to list all"), "{}", first.err);
    let all = server.run(&["history", "-n", "2"]);
    assert_eq!((all.out.lines().count(), all.err.as_str()), (3, ""));
}

#[test]
fn a_terminal_shows_times_with_units() {
    let reply =
        "OK 142\r\n---\n- number: 1\n  ended: 60.5\n  id: 306\n  tube: mail\n  verdict: done\n  waited: 306.036366\n\
                 \x20 ran: 0.017562\n  tries: 1\n  reason: \"\"\n  body: \"8\"\n\r\n";
    let server =
        pretender(move |line| Some(if line.contains("list-history 1 ") { "OK 4\r\n---\n\r\n" } else { reply }));
    let table = on_a_terminal(ctl(&server, &["history"]));
    let row = "1970-01-01 00:01:00Z  306  mail  done      5m06s  0.017s      1             8\r\n";
    assert!(table.ends_with(row), "{table:?}");
    let plain = crate::daemon::run_command(ctl(&server, &["history"])).out;
    assert!(plain.ends_with("\t306\tmail\tdone\t306.036366\t0.017562\t1\t\t8\n"), "{plain:?}");
}

#[test]
fn jobs_are_peeked() {
    with_both(|server| {
        fill(server);
        assert_eq!(server.ok(&["peek", "1"]), "first");
        assert_eq!(server.ok(&["peek", "-t", "mail"]), "first");
        assert_eq!(server.ok(&["peek", "-t", "mail", "--state", "buried"]), "bad \u{1b}[2J");
        let job = server.ok(&["peek", "-t", "mail", "--state", "delayed", "--json"]);
        assert!(job.contains("\"state\":\"delayed\"") && job.ends_with(",\"body\":\"late\"}\n"), "{job}");
        let missing = server.run(&["peek", "99", "2"]);
        assert_eq!((missing.code, missing.out.as_str()), (1, "late"));
        assert_eq!(server.run(&["peek", "-t", "empty"]).code, 2);
        assert_eq!(server.run(&["peek", "1", "-t", "mail"]).code, 5);
        assert_eq!(server.run(&["peek"]).code, 5);
    });
}

#[test]
fn a_tube_s_jobs_are_listed_by_every_server() {
    with_both(|server| {
        fill(server);
        server.ok(&["put", "elsewhere"]);
        let list = server.ok(&["list", "mail"]);
        let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split('\t').collect()).collect();
        let heads = "id state pri delay ttr age reserves timeouts releases buries kicks reason body";
        assert_eq!(lines[0], heads.split(' ').collect::<Vec<_>>());
        assert_eq!(lines.len(), 4);
        assert_eq!((lines[1][0], lines[1][1], lines[1][2], lines[1][12]), ("1", "ready", "7", "first"));
        assert_eq!((lines[2][0], lines[2][1], lines[2][4]), ("2", "delayed", "9"));
        assert_eq!((lines[3][1], lines[3][9], lines[3][12]), ("buried", "1", "bad \\u001b[2J"));
        let some = server.ok(&["list", "mail", "--state", "buried", "--state", "delayed", "--json", "--from", "2"]);
        assert!(
            some.starts_with("{\"id\":3,\"tube\":\"mail\",\"state\":\"buried\"") && some.lines().count() == 1,
            "{some}"
        );
        let few = server.run(&["list", "mail", "-n", "1"]);
        assert_eq!((few.code, few.out.lines().count()), (0, 2));
        assert!(few.err.contains("1 of 3 jobs"), "{}", few.err);
        assert_eq!(server.run(&["list", "nosuch"]).code, 1);
        // Read-only subcommands must not change a job.
        assert_eq!(server.figure("stats-job 1", "reserves"), "0");
        assert_eq!(server.count("mail", "ready"), 1);
    });
}

#[test]
fn tail_shows_jobs_as_they_are_put() {
    with_both(|server| {
        server.ok(&["put", "-t", "mail", "before"]);
        let mut command = server.command(&["tail", "mail", "--interval", "0", "-n", "3"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
        // `tail` does not report when it is ready. The test therefore puts jobs until `tail` prints one of them.
        let mut first = None;
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| lines.next());
            while !seen.is_finished() {
                server.ok(&["put", "-t", "mail", "a\tb"]);
                server.ok(&["put", "-t", "other", "not this one"]);
            }
            first = seen.join().expect("a reader");
            server.ok(&["put", "-t", "mail", "c", "d", "e"]);
        });
        let first = first.expect("a line");
        let cells: Vec<&str> = first.split('\t').collect();
        assert_eq!(cells[1..], ["mail", "ready", "a\\tb"], "{first}");
        let rest: Vec<String> = lines.collect();
        assert_eq!(rest.len(), 2, "{rest:?}");
        assert!(rest.iter().all(|line| line.contains("\tmail\tready\t")), "{rest:?}");
        assert!(child.wait().expect("a child").success());
    });
}

/// Sends the packets `with` over Gearman, reserves a job of the function `f`, and disconnects. The server uses up an ID
/// when it requeues the job.
fn lose(socket: &std::path::Path, with: &[u8]) {
    let mut worker = UnixStream::connect(socket).expect("a connection");
    worker.write_all(b"\0REQ\0\0\0\x01\0\0\0\x01f").expect("a peer");
    worker.write_all(with).expect("a peer");
    worker.write_all(b"\0REQ\0\0\0\x09\0\0\0\0").expect("a peer");
    let mut seen: Vec<u8> = Vec::new();
    while !seen.windows(8).any(|bytes| bytes == b"\0RES\0\0\0\x0b") {
        let mut some = [0; 512];
        let length = worker.read(&mut some).expect("a reply");
        seen.extend(&some[..length]);
    }
}

/// The gap between the IDs exceeds the range that `tail` tries. `tail` must not put jobs to find the latest ID.
#[test]
fn tail_continues_after_gaps_and_puts_nothing() {
    let folder = Folder::new();
    let socket = folder.file("gearman");
    let server = Server::beanpole(&[&format!("--gearman=unix:{}", socket.display())]);
    let mut client = server.daemon.client();
    client.use_tube("mail").expect("a tube");
    let mut child =
        server.command(&["tail", "mail", "--interval", "0"]).stdout(Stdio::piped()).spawn().expect("the program");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| lines.next().expect("a line"));
        while !first.is_finished() {
            client.put(b"one", 0, 0, 60).expect("a job");
            std::thread::sleep(Duration::from_millis(5));
        }
        let first = first.join().expect("a reader");
        assert!(first.ends_with("mail\tready\tone"), "{first}");
    });
    lose(&socket, b"\0REQ\0\0\0\x12\0\0\0\x04f\0\0x");
    for _ in 0..150 {
        wait_until("the job is ready again", || server.count("f", "ready") == 1);
        lose(&socket, b"");
    }
    let total: u64 = server.figure("stats", "total-jobs").parse().expect("a number");
    let id = client.put(b"last", 0, 0, 60).expect("a job");
    assert!(id > total + 100, "the gap is too small: ID {id} after {total} jobs");
    let found = lines.find(|line| line.ends_with("last")).expect("a line");
    assert!(found.starts_with(&format!("{id}\t")), "{found}");
    assert_eq!(server.ok(&["tubes"]).lines().count(), 4, "the heading, default, mail and f");
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn every_subcommand_has_help() {
    let all = run(&["help"]);
    assert_eq!((all.code, all.err.as_str()), (0, ""));
    for row in &beanpole::internals::ctl::SUBCOMMANDS {
        let name = format!("\n  {} {}", row.name, row.operands);
        let rest = all.out.split_once(name.trim_end()).map(|(_, rest)| rest.trim_start());
        assert!(rest.is_some_and(|rest| rest.starts_with(row.help)), "{name}");
        let own = run(&[row.name, "--help"]);
        assert_eq!((own.code, own.err.as_str()), (0, ""), "{}", row.name);
        assert!(own.out.starts_with(&format!("Usage: beanpole {} ", row.name)), "{}", own.out);
        assert_eq!(run(&["help", row.name]).out, own.out);
    }
    assert_eq!(run(&["help", "nosuch"]).code, 5);
}
