//! Tests error messages and exit codes of subcommands.

use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::daemon::{program, run, run_command, shell, Daemon, Ended, Folder};
use crate::support::{ctl, pretender, Server};

/// Checks the exit code, and that the only error line contains all of `words`.
fn failed(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, code, "{}{}", ended.out, ended.err);
    assert!(ended.err.starts_with("beanpole: ") && ended.err.lines().count() == 1, "not one error line: {}", ended.err);
    words.iter().for_each(|word| assert!(ended.err.contains(word), "{word}: {}", ended.err));
}

const ALL: [&[&str]; 21] = [
    &["stats"],
    &["tubes"],
    &["top", "-b", "-n", "1"],
    &["put", "a"],
    &["reserve"],
    &["peek", "1"],
    &["tail"],
    &["delete", "1"],
    &["kick", "1"],
    &["kick", "-t", "mail"],
    &["bury", "1"],
    &["release", "1"],
    &["pause", "mail", "1"],
    &["resume", "mail"],
    &["move", "a", "b", "-y"],
    &["clear", "mail", "-y"],
    &["list", "mail"],
    &["export"],
    &["import"],
    &["work", "--", "true"],
    &["peek", "-t", "mail"],
];

#[test]
fn without_a_server_all_exit_with_3() {
    for arguments in ALL {
        failed(&run_command(ctl("127.0.0.1:1", arguments)), 3, &["127.0.0.1:1: ", "refused"]);
    }
    let hint = "refused; to select a server, use -s host:24811";
    failed(&run_command(ctl("127.0.0.1:1", &["tubes", "host:24811"])), 3, &[hint]);
    let ended = run_command(ctl("", &["tubes", "-s", "127.0.0.1:1", "f:1"]));
    assert!(ended.err.ends_with("refused\n"), "{}", ended.err);
    failed(&run_command(ctl("unix:/nowhere/at/all", &["stats"])), 3, &["unix:/nowhere/at/all: No such file"]);
    failed(&run_command(ctl("no-such-host.invalid", &["stats"])), 3, &["no-such-host.invalid:11300"]);
}

/// If the server hangs, the program must report a timeout. Only `reserve` and `work` may wait without a limit.
#[test]
fn a_server_that_hangs_causes_a_timeout() {
    let server = pretender(|_| None);
    let patient = |arguments: &&&[&str]| ["reserve", "work"].contains(&arguments[0]);
    std::thread::scope(|scope| {
        for arguments in ALL.iter().filter(|arguments| !patient(arguments)) {
            let split = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
            let mut line = arguments[..split].to_vec();
            line.extend(["--timeout", "1"]);
            // A hanging connection blocks the fake server, so each subcommand gets its own listener, which never
            // accepts connections.
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address").to_string();
            scope.spawn(move || {
                failed(&run_command(ctl(&address, &line)), 3, &["no answer within 1 s"]);
                drop(listener);
            });
        }
    });
    let begun = Instant::now();
    failed(&run_command(ctl(&server, &["reserve", "--wait", "1", "--timeout", "1"])), 3, &["no answer within 1 s"]);
    assert!(begun.elapsed() >= Duration::from_secs(2), "the timeout must start after the wait for a job");
}

#[test]
fn truncated_and_invalid_replies_are_reported() {
    for (reply, words) in [
        ("OK 100\r\n---\nhalf", &["closed the connection"][..]),
        ("OK 10", &["closed the connection"]),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", &["the server answered HTTP/1.1"]),
        ("OK 4\r\n---\nXX", &["invalid reply; this is not a beanstalk server"]),
        ("OK 0\r\n\r\n", &["stats: the server answered OK 0"]),
        ("OK 14\r\n---\n- default\n\r\n", &["stats: the server answered OK 14"]),
        ("OK many\r\n", &["invalid reply; this is not a beanstalk server"]),
        ("OK 99999999999\r\n", &["invalid reply; this is not a beanstalk server"]),
        ("\u{1b}[2J\r\n", &["\\u{1b}[2J"]),
        ("SSH-2.0-OpenSSH\n", &["invalid reply; this is not a beanstalk server"]),
    ] {
        let server = pretender(move |_| Some(reply));
        let ended = run_command(ctl(&server, &["stats", "--timeout", "200"]));
        let code = if words[0].contains("answered") || words[0].contains("1b") { 1 } else { 3 };
        failed(&ended, code, words);
    }
    let endless = pretender(|_| Some(Box::leak("x".repeat(1 << 20).into_boxed_str())));
    failed(&run_command(ctl(&endless, &["stats"])), 3, &["invalid reply; this is not a beanstalk server"]);
}

/// After the last line, the import only compares the counts.
#[test]
fn an_import_reports_its_results_even_if_the_server_is_lost_at_the_end() {
    let folder = Folder::new();
    let file = folder.file("jobs");
    std::fs::write(&file, "{\"body\":\"x\"}\n").expect("a file");
    let is_first = AtomicBool::new(true);
    let server = pretender(move |line| match line.split(' ').next().unwrap_or_default() {
        "stats" if is_first.swap(false, Ordering::SeqCst) => Some("OK 11\r\n---\npid: 1\n\r\n"),
        "stats" => None,
        "put" => Some("INSERTED 1\r\n"),
        _ => None,
    });
    let ended = run_command(ctl(&server, &["import", file.to_str().expect("a name"), "--timeout", "1"]));
    let lines = ["imported 1 jobs, 0 of them buried", "no answer within 1 s"];
    assert!(ended.code == 3 && lines.iter().all(|line| ended.err.contains(line)), "{ended:?}");
}

#[test]
fn a_server_that_sends_too_many_replies_supports_no_tags() {
    let server = pretender(|_| Some("X\r\nX\r\nX\r\nX\r\n"));
    let ended = run_command(ctl(&server, &["put", "--unique", "k", "x", "--timeout", "200"]));
    failed(&ended, 1, &["does not support"]);
}

#[test]
fn a_group_is_not_complete_if_its_statistics_are_invalid() {
    let unknown = "the reply does not contain the number of pending jobs";
    for (reply, problem) in [
        ("OK 3\r\nabc\r\n", "the server answered OK 3"),
        ("OK 4\r\n---\n\r\n", "the server answered OK 4"),
        ("OK 12\r\n---\nname: a\n\r\n", unknown),
        ("OK 16\r\n---\npending: -1\n\r\n", unknown),
    ] {
        let server = pretender(move |_| Some(reply));
        let ended = run_command(ctl(&server, &["wait", "--group", "import", "--timeout", "200"]));
        failed(&ended, 1, &[problem]);
    }
}

/// Simulates a beanstalkd from 2010, which supports fewer commands and formats some replies differently.
#[test]
fn commands_that_an_old_server_does_not_know_are_reported() {
    let old = |line: &str| match line.split(' ').next().unwrap_or_default() {
        "stats-job" => Some("OK 20\r\n---\nstate: ready\npri\r\n"),
        "use" => Some("USING x\r\n"),
        "reserve-job" | "kick-job" => Some("UNKNOWN_COMMAND\r\n"),
        _ => Some("BAD_FORMAT\r\n"),
    };
    let fails = |arguments: &[&str], words: &[&str]| failed(&run_command(ctl(&pretender(old), arguments)), 1, words);
    fails(&["bury", "1"], &["reserve-job: the server does not know this command"]);
    fails(&["kick", "1"], &["kick-job: the server does not know"]);
    fails(&["kick", "-t", "x"], &["kick: the server answered BAD_FORMAT; it may be too old"]);
    fails(&["pause", "x", "0"], &["pause-tube: the server answered BAD_FORMAT"]);
}

#[test]
fn a_tube_that_disappears_is_no_error() {
    let vanishing = |line: &str| match line.split(' ').next().unwrap_or_default() {
        "list-tubes" => Some("OK 21\r\n---\n- default\n- gone\n\r\n"),
        "stats-tube" if line.ends_with("gone") => Some("NOT_FOUND\r\n"),
        "stats-tube" => Some("OK 43\r\n---\nname: default\ncurrent-jobs-ready: 1234\n\r\n"),
        "stats" => Some("OK 11\r\n---\npid: 1\n\r\n"),
        _ => Some("UNKNOWN_COMMAND\r\n"),
    };
    for arguments in [&["tubes"][..], &["top", "-b", "-n", "1"]] {
        let ended = run_command(ctl(&pretender(vanishing), arguments));
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{arguments:?}");
        assert!(ended.out.contains("1234"), "{}", ended.out);
    }
}

/// Otherwise, the subcommand would ask for the same job again and again.
#[test]
fn refused_deletions_end_a_clear() {
    for (answer, code) in [("FORBIDDEN\r\n", 1), ("OUT_OF_MEMORY\r\n", 1), ("NOT_FOUND\r\n", 0)] {
        for state in ["ready", "delayed", "buried"] {
            let server = pretender(move |line| {
                match line.split(' ').next().unwrap_or_default() {
                "stats-tube" => Some(
                    "OK 81\r\n---\nname: t\ncurrent-jobs-ready: 5\ncurrent-jobs-delayed: 5\ncurrent-jobs-buried: 5\n\r\n",
                ),
                "use" => Some("USING t\r\n"),
                "watch" => Some("WATCHING 2\r\n"),
                "ignore" => Some("WATCHING 1\r\n"),
                "reserve-with-timeout" => Some("RESERVED 7 1\r\nx\r\n"),
                "delete" => Some(answer),
                _ => Some("FOUND 7 1\r\nx\r\n"),
            }
            });
            let ended = run_command(ctl(&server, &["clear", "t", "-y", "--state", state]));
            assert_eq!((ended.code, ended.err.is_empty()), (code, code == 0), "{state}: {answer}: {}", ended.err);
        }
    }
}

#[test]
fn a_worker_reports_why_it_could_not_delete_a_job() {
    for (answer, code, words) in [("OUT_OF_MEMORY\r\n", 1, "is out of memory"), ("NOT_FOUND\r\n", 0, "it was revoked")]
    {
        let server = pretender(move |line| match line.split(' ').next().unwrap_or_default() {
            "watch" => Some("WATCHING 2\r\n"),
            "ignore" => Some("WATCHING 1\r\n"),
            "reserve" | "reserve-with-timeout" => Some("RESERVED 7 1\r\nx\r\n"),
            "stats-job" => Some("OK 36\r\n---\nid: 7\ntube: mail\nttr: 60\npri: 0\n\r\n"),
            "stats" => Some("OK 11\r\n---\npid: 1\n\r\n"),
            "delete" => Some(answer),
            _ => Some("UNKNOWN_COMMAND\r\n"),
        });
        let ended = run_command(ctl(&server, &["work", "mail", "--once", "--", "true"]));
        assert!(ended.code == code && ended.err.contains(words), "{answer}: {} {}", ended.code, ended.err);
    }
}

/// If the reader closes the pipe, as `head` does, a command must exit immediately and without an error message.
#[test]
fn a_closed_pipe_is_no_error() {
    let server = Server::beanpole(&[]);
    let many = "x\n".repeat(30_000);
    assert_eq!(server.feed(&["put", "--lines"], many.as_bytes()).code, 0);
    for line in ["export", "list default -n 0", "stats", "tail --interval 0"] {
        // The shell runs `:`, which exits immediately and closes the pipe from the program's stdout.
        let script = format!("exec 5>&1; {{ \"$0\" {line} 2>/dev/null; echo \"$?\" >&5; }} | :");
        let mut command = Command::new("timeout");
        command.args(["60", "sh", "-c", &script]).arg(program());
        command.env("BEANPOLE_SERVER", server.address().to_string());
        let mut producer = None;
        if line.starts_with("tail") {
            let address = server.address().to_string();
            producer = Some(std::thread::spawn(move || {
                for _ in 0..200 {
                    run_command(ctl(&address, &["put", "more"]));
                }
            }));
        }
        let ended = run_command(command);
        producer.map(std::thread::JoinHandle::join);
        assert_eq!((ended.out.lines().last(), ended.out.contains("rror")), (Some("0"), false), "{line}: {}", ended.out);
    }
}

#[test]
fn usage_errors_exit_with_5_and_an_explanation() {
    for (line, words) in [
        ("put --frobnicate", &["put: unknown flag: --frobnicate", "beanpole put -h"][..]),
        ("stats --json=1", &["flag takes no argument: --json"]),
        ("put -t", &["flag requires an argument: -t"]),
        ("delete", &["usage: beanpole delete [OPTIONS] ID..."]),
        ("delete one", &["invalid number: one"]),
        ("delete 0", &["invalid number: 0"]),
        ("pause mail", &["usage: beanpole pause [OPTIONS] TUBE SECONDS"]),
        ("stats \"two\\x00words\"", &["invalid tube name: "]),
        ("stats -s host:0", &["invalid server: host:0", "HOST:PORT"]),
        ("stats -s 24500", &["invalid server: 24500; a port follows an address, as in 127.0.0.1:24500"]),
        ("stats -s host --cacert x", &["--cacert requires a server with TLS"]),
        ("stats -s host --token-file Cargo.toml", &["--token-file requires TLS", "or a Unix socket"]),
        ("stats --timeout never", &["--timeout: invalid number: never"]),
        ("list mail --state gone", &["--state: invalid state: gone; must be"]),
        ("peek -t mail --state reserved", &["must be ready, delayed or buried"]),
        ("top --sort size", &["--sort: size; it must be one of tube, ready"]),
        ("top", &["is not a terminal; use -b"]),
        ("work mail", &["no command behind --"]),
        ("work --url http://h/ -- true", &["--url and a command exclude each other"]),
        ("work --url app/jobs", &["--url: app/jobs: it must begin with http://"]),
        ("work -- no-such-command", &["no-such-command: no such command"]),
        ("work -- ./Cargo.toml", &["no permission to execute it"]),
        ("work -j 0 -- true", &["--jobs: invalid number: 0"]),
        ("completion tcsh", &["bash, zsh, fish"]),
        ("check", &["usage: beanpole check [OPTIONS] DIR"]),
        ("history 5", &["usage: beanpole history [OPTIONS] (see beanpole history -h)"]),
        ("help nosuch", &["unknown subcommand: nosuch (see"]),
        ("help workers", &["unknown subcommand: workers; use connections (see"]),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        failed(&run_command(ctl("127.0.0.1:1", &arguments)), 5, words);
    }
    let mut command = ctl("host:x", &["stats"]);
    failed(&run_command(command), 5, &["BEANPOLE_SERVER: invalid server: host:x"]);
    command = ctl("", &["stats"]);
    command.env("BEANSTALKD_URL", "nonsense:");
    failed(&run_command(command), 5, &["BEANSTALKD_URL: invalid server"]);
    // An unusable value must not lead to another server.
    command = ctl("", &["stats"]);
    command.env("BEANPOLE_SERVER", std::ffi::OsStr::from_bytes(b"\xff.invalid")).env("BEANSTALKD_URL", "127.0.0.1:1");
    failed(&run_command(command), 3, &["\u{fffd}.invalid"]);
}

#[test]
fn a_token_file_without_an_end_is_refused() {
    let ended = run(&["stats", "-s", "unix:/none", "--token-file", "/dev/zero"]);
    failed(&ended, 1, &["/dev/zero: invalid token"]);
}

#[cfg(not(feature = "tls"))]
#[test]
fn a_program_without_tls_reports_this() {
    let ended = run(&["stats", "-s", "beanstalks://localhost"]);
    failed(&ended, 5, &["beanstalks://localhost; this program was built without TLS; build it with make TLS=1"]);
}

#[test]
fn servers_are_found_in_the_environment_and_on_unix_sockets() {
    let daemon = Daemon::start(&[]);
    let port = daemon.address().port().to_string();
    let with = |name: &str, value: &str| {
        let mut command = ctl("", &["tubes"]);
        command.env(name, value);
        run_command(command).code
    };
    assert_eq!(with("BEANSTALKD_PORT", &port), 0);
    assert_eq!(with("BEANSTALKD_PORT", &format!("tcp://127.0.0.1:{port}")), 0);
    assert_eq!(with("BEANSTALKD_URL", &format!("beanstalk://localhost:{port}/")), 0);
    assert_eq!(run(&["tubes", "-s", &format!(":{port}")]).code, 0);
    let unix = Daemon::start_unix(&[]);
    let name = format!("unix:{}", unix.path().display());
    assert_eq!(run(&["put", "-s", &name, "a"]).out, "1\n");
}

#[test]
fn a_full_disk_is_reported() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "a"]);
    for line in [&["export"][..], &["stats"], &["list", "default"], &["completion", "bash"], &["help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a device that is full");
        let mut command = server.command(line);
        let output = command.stdout(full).stderr(Stdio::piped()).output().expect("the program");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line:?}: {err}");
        assert!(err.contains("cannot write: No space left"), "{err}");
    }
}

/// Returns a reply that contains `items`. Leaks the reply, because `pretender` requires static strings.
fn listed(items: impl Iterator<Item = String>) -> Option<&'static str> {
    let body: String = items.collect();
    Some(Box::leak(format!("OK {}\r\n---\n{body}\r\n", body.len() + 4).into_boxed_str()))
}

#[test]
fn lists_of_a_server_that_repeats_itself_end() {
    let repeats = |line: &str| match line.split(' ').next().unwrap_or_default() {
        "list-history" => Some("OK 16\r\n---\n- number: 7\n\r\n"),
        "list-jobs" => listed((1..=1000).map(|id| format!("- {id}\n"))),
        "list-tubes" => Some("OK 14\r\n---\n- default\n\r\n"),
        "stats-job" => Some("NOT_FOUND\r\n"),
        _ => Some("OK 11\r\n---\npid: 1\n\r\n"),
    };
    for line in [&["history", "-n", "0"][..], &["export"]] {
        failed(&run_command(ctl(&pretender(repeats), line)), 1, &["the server repeats a part of the list"]);
    }
    for number in [7, u64::MAX] {
        let keys = listed(std::iter::once(format!("- [{number}, 9, \"default\", \"k\"]\n")));
        let repeats = move |line: &str| match line.split(' ').next().unwrap_or_default() {
            "list-keys" => keys,
            "list-tubes" => Some("OK 14\r\n---\n- default\n\r\n"),
            _ => Some("OK 11\r\n---\npid: 1\n\r\n"),
        };
        failed(&run_command(ctl(&pretender(repeats), &["export"])), 1, &["the server repeats a part of the list"]);
    }
}

/// A server that sends an endless list or an endless reply must not use up the memory of the machine.
#[test]
fn endless_lists_end_with_an_error() {
    let endless = |line: &str| {
        let above = || line.split(' ').rev().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match line.split(' ').next().unwrap_or_default() {
            "list-connections" => listed((1..=1000).map(|next| format!("- number: {}\n", above() + next))),
            "list-history" => listed((1..=1000).map(|next| format!("- number: {}\n", above() - next))),
            "list-jobs" => listed((1..=1000).map(|next| format!("- {}\n", above() + next))),
            "list-tubes" => Some("OK 14\r\n---\n- default\n\r\n"),
            "stats-job" => {
                let id = line.split(' ').next_back().unwrap_or_default();
                listed(["id: ", id, "\ntube: default\nstate: ready\n"].into_iter().map(str::to_owned))
            }
            "stats-tube" => Some("OK 3000000000\r\n"),
            _ => Some("OK 11\r\n---\npid: 1\n\r\n"),
        }
    };
    // Without jobs, `export` lists the keys.
    let endless_keys = |line: &str| match line.split_once(' ') {
        Some(("list-keys", from)) => {
            let from: u64 = from.trim().parse().unwrap_or(0);
            listed((from..from + 1000).map(|next| format!("- [{next}, 9, \"default\", \"key\"]\n")))
        }
        _ if line.starts_with("list-tubes") => Some("OK 14\r\n---\n- default\n\r\n"),
        _ => Some("OK 11\r\n---\npid: 1\n\r\n"),
    };
    let (server, server_of_keys) = (pretender(endless), pretender(endless_keys));
    for (server, line) in [
        (&server, &["connections"][..]),
        (&server, &["history", "-n", "0"]),
        (&server, &["export"]),
        (&server, &["tail"]),
        (&server, &["tubes"]),
        (&server_of_keys, &["export"]),
        (&server_of_keys, &["export", "other-tube"]),
    ] {
        let mut command = shell("ulimit -v 64000; exec \"$0\" \"$@\"", line);
        command.env("BEANPOLE_SERVER", server);
        failed(&run_command(command), 3, &["the replies are too large for the memory here"]);
    }
}
