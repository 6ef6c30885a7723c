//! Tests commands on whole queues: `put --lines`, `export` and `import` between beanpole and beanstalkd, and `export`
//! from a directory that no server uses.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::daemon::everything::{self, fields};
use crate::daemon::{Daemon, Folder, Signal, PATIENCE};
use crate::support::{with_both, Server};

/// Counts the jobs for each combination of the properties that an import preserves. Ignores IDs, ages and counters.
fn essence(export: &str) -> BTreeMap<String, u64> {
    let mut jobs = BTreeMap::new();
    for line in export.lines() {
        let part = |from: &str, to: &str| {
            let rest = line.split_once(from).unwrap_or_else(|| panic!("{from} in {line}")).1;
            rest.split_once(to).map_or(rest, |(part, _)| part).to_owned()
        };
        let delay: u64 = part("\"delay\":", ",").parse().expect("a delay");
        // A remaining delay decreases during the test, so the test distinguishes only between long delays and no delay.
        let delay = if delay > 10_000 { "long" } else { "none" };
        let (head, body) = (part("\"tube\":", ",\"delay\""), part("\"kicks\":", "\n"));
        let body = body.split_once(",\"").expect("a body").1.to_owned();
        *jobs.entry(format!("{head} {delay} {} {body}", part("\"ttr\":", ","))).or_default() += 1;
    }
    jobs
}

fn fill(server: &Server) {
    let lines: String =
        (0..2000).map(|number| format!("job {number} \"quoted\" \\ \u{e9}\u{1f980}\t\u{1}\n")).collect();
    assert_eq!(server.feed(&["put", "--lines", "-t", "many", "-p", "9", "-r", "33"], lines.as_bytes()).code, 0);
    let mut client = server.daemon.client();
    client.use_tube("bytes").expect("a tube");
    for body in [&b""[..], b"\xff\xfe\x00", &[0x80; 60_000], b"line\r\nline\r\n", "\u{2028}".as_bytes()] {
        client.put(body, u32::MAX, 0, u32::MAX).expect("a job");
    }
    client.use_tube("late").expect("a tube");
    for number in 0..300 {
        client.put(b"later", number, 100_000 + number, 5).expect("a job");
    }
    client.watch("many").expect("a tube");
    for _ in 0..700 {
        let job = client.reserve(Some(0)).expect("a reply").expect("a job");
        client.bury(job.id, 11).expect("a reserved job");
    }
}

/// Exports the queue while a client holds a job. An import makes the held job ready.
fn export_of(server: &Server) -> String {
    let mut holder = server.daemon.client();
    holder.watch("many").expect("a tube");
    let held = holder.reserve(Some(0)).expect("a reply").expect("a job");
    let ended = server.run(&["export"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("exported 2305 jobs: 1304 ready, 300 delayed, 1 reserved, 700 buried"), "{}", ended.err);
    assert_eq!(ended.out.matches("\"state\":\"reserved\"").count(), 1);
    holder.release(held.id, 9, 0).expect("a reserved job");
    ended.out
}

fn import_into(server: &Server, export: &str) {
    let ended = server.feed(&["import"], export.as_bytes());
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("imported 2305 jobs, 700 of them buried; 0 lines were refused"), "{}", ended.err);
    assert!(!ended.err.contains("others use it"), "{}", ended.err);
}

/// Copies all jobs from `from` to `to`, and from `to` to the empty server `back`. No property may change.
fn round_trip(from: &Server, to: &Server, back: &Server) {
    fill(from);
    let first = export_of(from);
    // The export must not have changed the queue.
    assert_eq!(from.count("many", "ready"), 1300);
    assert_eq!(from.figure("stats", "current-jobs-reserved"), "0");
    let expected = first.replace("\"state\":\"reserved\"", "\"state\":\"ready\"");
    import_into(to, &first);
    let second = to.ok(&["export"]);
    assert_eq!(essence(&second), essence(&expected));
    import_into(back, &second);
    assert_eq!(essence(&back.ok(&["export"])), essence(&expected));
    // Compares the order of the buried jobs.
    let mut client = back.daemon.client();
    client.use_tube("many").expect("a tube");
    assert_eq!(client.peek_buried().expect("a job").body, b"job 0 \"quoted\" \\ \xc3\xa9\xf0\x9f\xa6\x80\t\x01");
    let id = client.peek_buried().expect("a job").id;
    assert_eq!(back.figure(&format!("stats-job {id}"), "pri"), "11");
}

#[test]
fn a_queue_is_moved_from_beanpole_to_beanpole() {
    round_trip(&Server::beanpole(&[]), &Server::beanpole(&[]), &Server::beanpole(&[]));
}

#[test]
fn a_queue_is_moved_from_beanstalkd_to_beanpole_and_back() {
    let (Some(from), Some(back)) = (Server::beanstalkd(&[]), Server::beanstalkd(&[])) else { return };
    round_trip(&from, &Server::beanpole(&[]), &back);
}

#[test]
fn a_queue_is_moved_from_beanpole_to_beanstalkd_and_back() {
    let Some(to) = Server::beanstalkd(&[]) else { return };
    round_trip(&Server::beanpole(&[]), &to, &Server::beanpole(&[]));
}

#[test]
fn an_unused_binlog_is_exported() {
    let folder = Folder::new();
    let name = folder.file("").display().to_string();
    let server = Server { daemon: Daemon::start(&["-b", &name]) };
    fill(&server);
    let live = server.ok(&["export"]);
    server.daemon.signal(Signal::SIGTERM);
    assert_eq!(server.daemon.wait(PATIENCE), 0);
    let ended = crate::daemon::run(&["export", "--binlog", &name]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("exported 2305 jobs: 1305 ready, 300 delayed, 700 buried"), "{}", ended.err);
    assert_eq!(essence(&ended.out), essence(&live));
    let some = crate::daemon::run(&["export", "late", "bytes", "-b", &name]);
    assert_eq!((some.code, some.out.lines().count()), (0, 305));
    import_into(&Server::beanpole(&[]), &ended.out);
    assert_eq!(crate::daemon::run(&["export", "-b", "/nowhere/at/all"]).code, 1);
}

/// Runs an export while another client puts and deletes jobs. Returns the number of commands that the export sends, and
/// how many of them are `list-jobs`.
fn commands_of_export(tubes: usize, jobs: usize) -> (u64, u64) {
    let server = Server::beanpole(&[]);
    let mut client = server.daemon.client();
    for tube in 0..tubes {
        client.use_tube(&format!("t{tube}")).expect("a tube");
        for _ in 0..jobs / tubes {
            client.put(b"x", 0, 0, 60).expect("a job");
        }
    }
    let count = |verb: &str| server.figure("stats", &format!("cmd-{verb}")).parse::<u64>().expect("a number");
    let all =
        || ["peek", "stats-job", "stats-tube", "list-jobs", "list-keys", "list-tubes"].map(count).iter().sum::<u64>();
    let (before, is_over) = (all(), AtomicBool::new(false));
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let id = client.put(b"other", 0, 0, 60).expect("a job");
                client.delete(id).expect("a job");
            }
        });
        let ended = server.run(&["export"]);
        is_over.store(true, Ordering::Relaxed);
        ended
    });
    assert_eq!(ended.out.matches("\"body\":\"x\"").count(), jobs, "{}", ended.err);
    (all() - before, count("list-jobs"))
}

#[test]
fn the_number_of_commands_of_an_export_is_linear() {
    for tubes in [1, 2, 100] {
        let ((once, few), (twice, more)) = (commands_of_export(tubes, 2000), commands_of_export(2 * tubes, 4000));
        println!("{tubes} tubes: {once}, {twice} commands, {few}, {more} lists");
        assert!(twice * 10 <= once * 21, "{once}, {twice}");
        assert!(few <= 10 && more <= 12, "{tubes} tubes: {few}, {more} lists");
    }
}

/// Jobs must be found even if the IDs have large gaps, the server lacks `list-jobs`, or the server is draining.
#[test]
fn old_jobs_are_found_even_on_draining_servers() {
    with_both(|server| {
        server.ok(&["put", "-t", "old", "oldest"]);
        let lines = "x\n".repeat(20_000);
        assert_eq!(server.feed(&["put", "--lines", "-t", "gone"], lines.as_bytes()).code, 0);
        server.ok(&["clear", "gone", "--yes"]);
        server.ok(&["put", "-t", "new", "newest"]);
        assert_eq!(server.ok(&["export"]).lines().count(), 2);
        assert_eq!(server.ok(&["export", "old"]).lines().count(), 1);
        server.daemon.signal(Signal::SIGUSR1);
        crate::daemon::wait_until("the server is draining", || server.figure("stats", "draining") == "true");
        let drained = server.run(&["export"]);
        assert_eq!((drained.code, drained.out.lines().count()), (0, 2), "{}", drained.err);
    });
}

#[test]
fn invalid_lines_are_reported_and_others_are_imported() {
    let folder = Folder::new();
    let file = folder.file("jobs");
    let text = "{\"body\":\"a\"}\nnonsense\n\n{\"tube\":\"\",\"body\":\"b\"}\n{\"tube\":\"t\",\"state\":\"buried\",\"body\":\"c\"}";
    fs::write(&file, text).expect("a file");
    let name = file.to_str().expect("a plain path");
    with_both(|server| {
        let ended = server.run(&["import", name, name]);
        assert_eq!(ended.code, 1, "{}", ended.err);
        assert!(
            ended.err.contains("line 2: no JSON") && ended.err.contains("line 4: invalid tube name"),
            "{}",
            ended.err
        );
        assert!(ended.err.contains("imported 4 jobs, 2 of them buried; 4 lines were refused"), "{}", ended.err);
        assert_eq!((server.count("default", "ready"), server.count("t", "buried")), (2, 2));
        let elsewhere = server.run(&["import", "--tube", "all", "--skip", "4", name]);
        assert_eq!((elsewhere.code, server.count("all", "buried")), (0, 1), "{}", elsewhere.err);
        assert_eq!(server.run(&["import", "/nowhere/at/all"]).code, 1);
    });
}

#[test]
fn lines_with_invalid_values_are_refused_and_others_are_imported() {
    let server = Server::beanpole(&[]);
    let groups: Vec<String> = (0..20).map(|number| format!("g{number}")).collect();
    let long = "k".repeat(600);
    let wrong = [
        r#"{"body":"x","try":999}"#,
        r#"{"body":"x","try":3,"fails":999}"#,
        r#"{"body":"x","state":"scheduled","every":0,"idempotency-key":"k"}"#,
        r#"{"body":"x","concurrency-key":"k","concurrency-limit":0}"#,
        r#"{"body":"x","group":"g","after-group":"g"}"#,
        &format!(r#"{{"body":"x","group":"{}"}}"#, groups.join(",")),
        &format!(r#"{{"body":"x","idempotency-key":"{long}"}}"#),
        &format!(r#"{{"tube":"t","idempotency-key":"{long}","idempotency-ttl":9}}"#),
        &format!(r#"{{"body":"x","last-error":"{}"}}"#, "e".repeat(30_000)),
    ];
    let lines: String = wrong.iter().map(|line| format!("{line}\n{{\"body\":\"y\"}}\n")).collect();
    let ended = server.feed(&["import"], lines.as_bytes());
    let refused = format!("imported {0} jobs, 0 of them buried; {0} lines were refused", wrong.len());
    assert!(ended.code == 1 && ended.err.contains(&refused), "{}", ended.err);
    assert_eq!(server.count("default", "ready"), wrong.len() as u64);
}

/// A line break in a value must not begin another command.
#[test]
fn imported_settings_run_no_other_commands() {
    let folder = Folder::new();
    let file = folder.file("jobs");
    let text = r#"{"tube":"a","settings":"try:3\r\nflush-tube victim"}"#;
    fs::write(&file, text).expect("a file");
    let server = Server::beanpole(&[]);
    server.ok(&["put", "-t", "victim", "x"]);
    let ended = server.run(&["import", file.to_str().expect("a plain path")]);
    assert_eq!((ended.code, server.count("victim", "ready")), (1, 1), "{}", ended.err);
    assert!(ended.err.contains("line 1: invalid argument"), "{}", ended.err);
}

/// The error message must describe how to continue the import.
#[test]
fn an_interrupted_import_can_be_continued() {
    let folder = Folder::new();
    let binlog = folder.file("").display().to_string();
    let lines: String = (0..200_000).map(|number| format!("{{\"tube\":\"t\",\"body\":\"{number}\"}}\n")).collect();
    let server = Server { daemon: Daemon::start(&["-b", &binlog]) };
    let (command, pid) = (server.command(&["import"]), server.daemon.pid());
    let feeding = std::thread::spawn({
        let lines = lines.clone();
        move || crate::support::feed(command, lines.as_bytes())
    });
    crate::daemon::wait_until("some jobs are imported", || server.count("t", "ready") > 1000);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), Signal::SIGKILL).expect("a child process");
    let cut = feeding.join().expect("an import");
    drop(server);
    let server = Server { daemon: Daemon::start(&["-b", &binlog]) };
    if cut.code == 0 {
        // The import finished before the signal arrived.
        assert_eq!(server.count("t", "ready"), 200_000);
        return;
    }
    assert_eq!(cut.code, 3, "{}", cut.err);
    let skip = cut.err.trim_end().rsplit(' ').next().expect("a number").to_owned();
    let again = server.feed(&["import", "--skip", &skip], lines.as_bytes());
    assert_eq!(again.code, 0, "{}", again.err);
    let export = server.ok(&["export"]);
    let bodies: std::collections::BTreeSet<&str> =
        export.lines().filter_map(|line| line.split("\"body\":").nth(1)).collect();
    assert_eq!(bodies.len(), 200_000, "jobs may exist twice, but none may be missing");
}

/// If the connection breaks before some imported jobs are buried, a repeated import must put these jobs again.
#[test]
fn jobs_that_were_not_buried_are_put_again() {
    let server = |line: &str| match line.split(' ').next().unwrap_or_default() {
        "stats" => Some("OK 20\r\n---\nextensions: idp\n\r\n"),
        "reserve-job" if line.ends_with("18446744073709551615") => Some("NOT_FOUND\r\n"),
        "reserve-job" => Some("RESERVED 7 0\r\n\r\n"),
        "bury" if line == "bury 7 1" => Some("BURIED\r\n"),
        "bury" => Some("cut off"),
        "release" => Some("NOT_FOUND\r\n"),
        "put" if line.starts_with("put 1") => Some("INSERTED 7\r\n"),
        "put" => Some("INSERTED 8\r\n"),
        // The fake server sees the body of a put as a line, and must not reply to this line.
        _ => None,
    };
    let line = |pri: u8, state: &str| format!("{{\"state\":\"{state}\",\"pri\":{pri},\"body\":\"x\"}}\n");
    let lines = line(2, "ready") + &line(1, "buried") + &line(3, "buried") + &line(4, "ready") + &line(5, "ready");
    let ended =
        crate::support::feed(crate::support::ctl(&crate::support::pretender(server), &["import"]), lines.as_bytes());
    assert_eq!(ended.code, 3, "{}", ended.err);
    assert!(
        ended.err.contains("4 jobs were imported; 1 more are delayed, not buried; to continue, use --skip 2"),
        "{}",
        ended.err
    );
}

/// Sends commands whose replies are single lines. Returns the first `count` lines.
fn say(server: &Server, commands: &str, count: usize) -> Vec<String> {
    let mut stream = server.daemon.tcp();
    stream.write_all(commands.as_bytes()).expect("a connection");
    let lines = BufReader::new(stream).lines();
    lines.take(count).map(|line| line.expect("a reply")).collect()
}

/// Puts jobs over beanstalkd's protocol, Gearman and Workq. `folder` contains the server's sockets for the latter two.
fn fill_with_everything(server: &Server, folder: &Folder) {
    everything::fill(server.daemon.tcp());
    let connect = |name: &str| UnixStream::connect(folder.file(name)).expect("a socket");
    everything::fill_gearman(connect("gearman"));
    everything::fill_workq(connect("workq"));
}

/// Starts a server with sockets for Gearman and Workq in `folder`.
fn with_all_protocols(folder: &Folder, more: &[&str]) -> Server {
    let sockets = ["gearman", "workq"].map(|name| format!("--{name}=unix:{}", folder.file(name).display()));
    Server::beanpole(&[&sockets.each_ref().map(String::as_str), more].concat())
}

// Tests promise P32 of beanpole-promises(7).
#[test]
fn data_of_extensions_is_exported_and_imported() {
    let (folder, binlog) = (Folder::new(), Folder::new());
    let name = binlog.file("").display().to_string();
    let server = with_all_protocols(&folder, &["-b", &name]);
    fill_with_everything(&server, &folder);
    let first = server.run(&["export"]);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(
        first.err.contains("exported 2 pauses, settings of 5 tubes, 1 keys that outlive their jobs"),
        "{}",
        first.err
    );
    for part in [
        r#""idempotency-key":"living","idempotency-ttl":100001"#,
        r#""concurrency-key":"bound","concurrency-limit":3"#,
        r#""try":9,"backoff":5"#,
        r#""try":4,"backoff":100000,"fails":2"#,
        r#""fails":2,"dead-from":"mail","last-error":"no route""#,
        r#""fails":1,"last-error-base64":"cmVmdXPpIQ==""#,
        r#""idempotency-key-base64":"dW5pcXVlICJuYW1lIv8=","protocol":"gearman","reducer":"sum""#,
        r#""unique":"id","try":5,"max-fails":3,"#,
        r#""protocol":"workq""#,
        r#"{"tube":"limited-by-class","settings":"limit:3:0:4"}"#,
        r#"{"tube":"mail","settings":"try:2:100000 dead:mail-dead max:3 rate:7/2"}"#,
    ] {
        assert!(first.out.contains(part), "{part}: {}", first.out);
    }
    // A server that restarts with the directory must export the same jobs as `export --binlog`.
    drop(server);
    let server = with_all_protocols(&Folder::new(), &["-b", &name]);
    assert_eq!(fields(&server.ok(&["export"])), fields(&first.out));
    server.daemon.signal(Signal::SIGTERM);
    assert_eq!(server.daemon.wait(PATIENCE), 0);
    let rest = crate::daemon::run(&["export", "--binlog", &name]);
    assert_eq!((rest.code, fields(&rest.out)), (0, fields(&first.out)), "{}", rest.err);
    // In the export, a job that waits for a group must precede the group's members. Otherwise, workers could end the
    // group before the job is imported.
    for export in [&first.out, &rest.out] {
        let line = |part: &str| export.lines().position(|line| line.contains(part)).expect("a line");
        assert!(line(r#""after-group":"batch""#) < line(r#""group":"batch""#), "{export}");
    }
    // After an import, the export must be the same, except for the properties that only Gearman and Workq jobs have.
    let fresh = with_all_protocols(&Folder::new(), &[]);
    let ended = fresh.feed(&["import"], first.out.as_bytes());
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("imported 15 jobs, 2 of them buried; 0 lines were refused"), "{}", ended.err);
    assert!(
        ended.err.contains("imported 2 pauses, settings of 5 tubes, 1 keys that outlive their jobs"),
        "{}",
        ended.err
    );
    let not_stored = ended.err.lines().filter_map(|line| line.split_once("not stored by the server: "));
    let not_stored: Vec<&str> = not_stored.map(|(_, what)| what).collect();
    assert_eq!(not_stored, ["protocol, 2 times", "reducer, 1 times", "try, 1 times", "unique, 1 times"]);
    let stored = everything::without_protocols(&first.out);
    assert_eq!(fields(&fresh.ok(&["export"])), fields(&stored));
    // A repeated import must not put a job whose key already exists on the server.
    let again = fresh.feed(&["import"], first.out.as_bytes());
    assert!(again.err.contains("4 jobs were not put, because the server has jobs with their keys"), "{}", again.err);
    assert!(again.err.contains("2 schedules replaced others with the same names"), "{}", again.err);
}

/// Returns, for all jobs, the statistics that an import preserves. The word `long` replaces times that count down.
fn statistics(server: &Server) -> Vec<String> {
    let mut client = server.daemon.client();
    let unkept = ["id", "age", "reserves", "timeouts", "releases", "buries", "kicks"];
    let mut job = |id: &str| {
        let stats = client.text(&format!("stats-job {id}")).expect("a job");
        let kept = stats.lines().filter_map(|line| line.split_once(": ")).filter(|(key, _)| !unkept.contains(key));
        let decreases = |key: &str| key != "delay" || !stats.contains("state: buried");
        let is_long = |key: &str, value: &str| decreases(key) && value.parse().is_ok_and(|number: u64| number > 50_000);
        let line = |(key, value)| format!("{key}: {}", if is_long(key, value) { "long" } else { value });
        kept.map(line).collect::<Vec<_>>().join("\n")
    };
    let export = server.ok(&["export"]);
    let ids = export.lines().filter_map(|line| line.strip_prefix("{\"id\":")?.split(',').next());
    let mut all: Vec<String> = ids.map(&mut job).collect();
    all.sort();
    all
}

/// Imports failed jobs with failure reasons that are not UTF-8, and jobs whose delays have changed since the put.
#[test]
fn imported_jobs_have_the_statistics_of_the_originals() {
    let binlog = Folder::new();
    let (server, name) = (Server::beanpole(&[]), binlog.file("").display().to_string());
    everything::fill(server.daemon.tcp());
    let mut client = server.daemon.client();
    server.ok(&["tube", "dying", "try:1", "dead:dead"]);
    client.use_tube("dying").expect("a tube");
    for delay in [0, 7] {
        let id = client.put(b"x", 1, delay, 60).expect("a job");
        client.reserve_job(id).expect("a job");
        client.fail(id, 1, b"caf\xe9 \"\\\n\xff").expect("a reply");
    }
    for (delay, reason) in [(5, &b"\xff"[..]), (9, b"timeout")] {
        let id = client.put(b"y", 1, delay, 60).expect("a job");
        client.reserve_job(id).expect("a job");
        client.fail(id, 1, reason).expect("a reply");
        client.kick_job(id).expect("a job");
        client.reserve_job(id).expect("a job");
        client.bury(id, 2).expect("a job");
    }
    server.ok(&["put", "-t", "worked", "z"]);
    let worked = ["work", "worked", "--once", "--retries", "0", "--", "sh", "-c", r"printf 'caf\351\n' >&2; exit 3"];
    assert_eq!(server.run(&worked).code, 1);
    let export = server.ok(&["export"]);
    assert!(export.contains(r#""last-error-base64":"ZXhpdCAzOiBjYWbp""#) && !export.contains('\u{fffd}'), "{export}");
    let listed = server.ok(&["list", "worked", "--json"]);
    assert!(listed.contains(r#""last-error-base64":"ZXhpdCAzOiBjYWbp""#), "{listed}");
    let history = server.ok(&["history", "--json", "-t", "worked"]);
    assert!(history.contains(r#""reason-base64":"ZXhpdCAzOiBjYWbp""#), "{history}");
    let statistics_before = statistics(&server);
    assert!(statistics_before.iter().any(|job| job.contains(r#"last-error: "caf\xe9 \"\\\x0a\xff""#)));
    let fresh = Server::beanpole(&["-b", &name]);
    let ended = fresh.feed(&["import"], export.as_bytes());
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(statistics(&fresh), statistics_before);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(fresh.daemon.pid() as i32), Signal::SIGKILL).expect("a process");
    drop(fresh);
    let export = crate::daemon::run(&["export", "--binlog", &name]);
    let last = Server::beanpole(&[]);
    assert_eq!(last.feed(&["import"], export.out.as_bytes()).code, 0, "{}", export.err);
    assert_eq!(statistics(&last), statistics_before);
}

#[test]
fn dead_letters_with_the_same_key_are_all_imported() {
    let (server, fresh) = (Server::beanpole(&[]), Server::beanpole(&[]));
    say(&server, "set-tube default try:1 dead:d\r\n", 1);
    for id in 1..=3 {
        say(&server, &format!("put 0 0 60 1 idp:k:100001\r\na\r\nreserve-job {id}\r\nfail {id} 0 2\r\nno\r\n"), 4);
    }
    let export = server.ok(&["export"]);
    let ended = fresh.feed(&["import"], export.as_bytes());
    assert!(ended.err.contains("imported 3 jobs, 3 of them buried; 0 lines were refused"), "{}", ended.err);
    assert_eq!((ended.code, fields(&fresh.ok(&["export"]))), (0, fields(&export)));
}

// Tests promise P32 of beanpole-promises(7).
#[test]
fn unsupported_data_is_reported_and_counted() {
    let folder = Folder::new();
    let server = with_all_protocols(&folder, &[]);
    fill_with_everything(&server, &folder);
    let export = server.ok(&["export"]);
    let plain = Server::beanpole(&["--extensions="]);
    let ended = plain.feed(&["import"], export.as_bytes());
    assert_eq!(ended.code, 1, "{}", ended.err);
    for part in [
        "imported 13 jobs, 2 of them buried; 2 lines were refused",
        "line 15: invalid values, or a schedule that the server does not support",
        "imported 2 pauses, settings of 0 tubes, 0 keys",
        "idempotency-key, 4 times",
        "concurrency-key, 2 times",
        "stored by the server: group, 2 times",
        "after-group, 2 times",
        "try, 4 times",
        "unique, 1 times",
        "reducer, 1 times",
        "protocol, 2 times",
        "fails, 3 times",
        "last-error, 2 times",
        "dead-from, 1 times",
        "expires-in, 4 times",
        "settings, 5 times",
        "a key that outlives its job, 1 times",
    ] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
}

#[test]
fn expired_jobs_of_a_binlog_are_omitted() {
    let binlog = Folder::new();
    let name = binlog.file("").display().to_string();
    let server = Server::beanpole(&["-b", &name]);
    say(&server, "put 0 0 60 1 ttl:1\r\na\r\nput 0 0 60 1\r\nb\r\n", 2);
    // The job expires while no server runs, so the log contains no record that the job has ended.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(server.daemon.pid() as i32), Signal::SIGKILL).expect("a process");
    crate::daemon::wait_until("one job has expired", || {
        let ended = crate::daemon::run(&["export", "--binlog", &name]);
        ended.out.lines().count() == 1 && ended.err.contains("omitted 1 jobs whose time to live has expired")
    });
}

#[test]
fn a_leased_job_of_a_binlog_is_exported() {
    let (folder, binlog) = (Folder::new(), Folder::new());
    let name = binlog.file("").display().to_string();
    let _server = with_all_protocols(&folder, &["-b", &name]);
    everything::fill_outcomes(UnixStream::connect(folder.file("workq")).expect("a socket"));
    let ended = crate::daemon::run(&["export", "--binlog", &name]);
    assert_eq!((ended.code, ended.out.lines().count()), (0, 1), "{}", ended.err);
    assert!(ended.out.contains(r#""tube":"done""#), "{}", ended.out);
    assert!(ended.err.contains("omitted 1 outcomes of finished jobs"), "{}", ended.err);
}

// Tests promise P15 of beanpole-promises(7).
#[test]
fn an_interrupted_flush_or_move_is_complete_in_an_export_and_a_check() {
    const JOBS: usize = 20_000;
    for command in ["flush-tube from", "move-tube from to ready 20000"] {
        let binlog = Folder::new();
        let name = binlog.file("").display().to_string();
        let server = Server::beanpole(&["-b", &name]);
        say(&server, &format!("use from\r\n{}", "put 0 0 60 1\r\nx\r\n".repeat(JOBS)), JOBS + 1);
        let mut stream = server.daemon.tcp();
        stream.write_all(format!("{command}\r\n").as_bytes()).expect("a connection");
        crate::daemon::wait_until("the command has begun", || {
            !say(&server, "stats-tube from\r\nquit\r\n", 30).contains(&format!("current-jobs-ready: {JOBS}"))
        });
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(server.daemon.pid() as i32), Signal::SIGKILL)
            .expect("a process");
        drop(server);
        let moved = if command.starts_with("move") { JOBS } else { 0 };
        let export = crate::daemon::run(&["export", "-b", &name]);
        let found = ["from", "to"].map(|tube| export.out.matches(&format!("\"tube\":\"{tube}\"")).count());
        // If the server was killed before it wrote the beginning of the command, the command has no effect.
        assert!(export.code == 0 && [[0, moved], [JOBS, 0]].contains(&found), "{command}: {found:?} {}", export.err);
        let (check, jobs) = (crate::daemon::run(&["check", &name]), found[0] + found[1]);
        assert!(check.code == 0 && check.out.contains(&format!("\njobs: {jobs}\n")), "{}", check.out);
        let server = Server::beanpole(&["-b", &name]);
        crate::daemon::wait_until("the command is complete", || {
            say(&server, "stats\r\nquit\r\n", 4).contains(&format!("current-jobs-ready: {jobs}"))
        });
    }
}
