//! Tests unusual tube names, tube names that a server refuses, and hostile servers.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use nix::pty::{openpty, Winsize};

use crate::daemon::{run_command, wait_until, Folder};
use crate::support::{ctl, pretender, Server};

/// Tube names as they are written in arguments, and as the program prints them.
const NAMES: [(&str, &str); 6] = [
    ("My::Func", "\"My::Func\""),
    ("two words", "\"two words\""),
    ("caf\u{e9}", "\"caf\\xc3\\xa9\""),
    ("\"\\xff\\x0d\\x0a\"", "\"\\xff\\x0d\\x0a\""),
    ("\"a\\\"b\\\\\"", "\"a\\\"b\\\\\""),
    (LONG, LONG),
];

/// The longest name that beanstalkd accepts.
const LONG: &str = concat!(
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
);

/// Starts a server with a ready and a buried job in each tube of [`NAMES`], in a tube whose name is 512 bytes long, and
/// in the tube `plain`.
fn filled() -> Server {
    let server = Server::beanpole(&[]);
    let longest = format!("\"{}\"", "\\xfe".repeat(512));
    for name in NAMES.iter().map(|(operand, _)| *operand).chain([longest.as_str(), "plain"]) {
        server.ok(&["put", "-t", name, "-p", "7", "first", "second"]);
        server.ok(&["reserve", name, "--bury"]);
    }
    server
}

/// Returns the tube, the state, the priority and the body of each job, in sorted order.
fn essence(export: &str) -> Vec<String> {
    let rest = |line: &str| {
        let (head, tail) =
            (line.split_once("\"tube").expect("a tube").1, line.split_once("\"body\"").expect("a body").1);
        format!("{}{tail}", head.split_once("\"delay\"").expect("a delay").0)
    };
    let mut jobs: Vec<String> = export.lines().map(rest).collect();
    jobs.sort();
    jobs
}

#[test]
fn tubes_with_any_name_are_shown_exported_and_imported() {
    let server = filled();
    let table = server.ok(&["tubes"]);
    let json = server.ok(&["tubes", "--json"]);
    let top = server.ok(&["top", "-b", "-n", "1"]);
    for (operand, printed) in NAMES {
        assert!(table.contains(&format!("\n{printed}\t1\t0\t0\t1\t")), "{printed}: {table}");
        assert!(top.contains(&format!("\n{printed}\t1\t")), "{printed}: {top}");
        for name in [operand, printed] {
            assert_eq!(server.ok(&["tubes", name]).lines().count(), 2);
            assert!(server.ok(&["stats", name]).starts_with(&format!("name\t{printed}\n")));
            assert_eq!(server.ok(&["list", name]).lines().count(), 3);
            assert_eq!(server.ok(&["export", name]).lines().count(), 2);
        }
    }
    for name in
        ["\"name\":\"My::Func\"", "\"name\":\"caf\u{e9}\"", "\"name-base64\":\"/w0K\"", "\"name\":\"a\\\"b\\\\\""]
    {
        assert!(json.contains(name), "{name}: {json}");
    }
    let export = server.ok(&["export"]);
    assert_eq!(export.lines().count(), 16);
    let other = Server::beanpole(&[]);
    let imported = other.feed(&["import"], export.as_bytes());
    assert!(imported.code == 0 && imported.err.contains("imported 16 jobs, 8 of them buried"), "{}", imported.err);
    assert_eq!(essence(&other.ok(&["export"])), essence(&export));
    let tubes: Vec<&str> = table.lines().map(|line| line.split('\t').next().expect("a cell")).collect();
    let again = other.ok(&["tubes"]);
    assert_eq!(again.lines().map(|line| line.split('\t').next().expect("a cell")).collect::<Vec<_>>(), tubes);
}

#[test]
fn tubes_with_any_name_can_be_controlled() {
    let server = filled();
    for (name, _) in NAMES {
        server.ok(&["pause", name, "100"]);
        assert!(server.ok(&["stats", name]).contains("pause\t100\n"), "{name}");
        server.ok(&["resume", name]);
        assert_eq!(server.ok(&["peek", "-t", name]), "second");
        assert_eq!(server.ok(&["kick", "-t", name]), "1\n");
        assert_eq!(server.ok(&["reserve", name, "--delete"]), "first");
        let worked = server.run(&["work", name, "--once", "--", "sh", "-c", "exit 0"]);
        assert!(worked.code == 0 && worked.err.contains("done"), "{}", worked.err);
        server.ok(&["put", "-t", name, "a", "b", "c"]);
        assert_eq!(server.ok(&["move", name, "two  words", "-n", "1", "-y"]), "1\n");
        assert_eq!(server.ok(&["move", "two  words", name, "-y"]), "1\n");
        assert_eq!(server.ok(&["clear", name, "-y"]), "3\n");
    }
}

#[test]
fn a_binlog_with_such_names_is_exported_and_imported() {
    let folder = Folder::new();
    let name = folder.file("").display().to_string();
    let server = Server::beanpole(&["-b", &name]);
    server.ok(&["put", "-t", "My::Func", "a"]);
    server.ok(&["put", "-t", "\"\\xff\"", "b"]);
    let live = server.ok(&["export"]);
    drop(server);
    let ended = crate::daemon::run(&["export", "-b", &name]);
    assert_eq!((ended.code, essence(&ended.out)), (0, essence(&live)), "{}", ended.err);
    assert!(ended.out.contains("\"tube\":\"My::Func\"") && ended.out.contains("\"tube-base64\":\"/w==\""));
}

/// Simulates a server that lists a tube but refuses the tube's name in commands. beanstalkd and older versions of
/// beanpole refuse names such as `My::Func`.
#[test]
fn a_refused_tube_name_does_not_hide_other_tubes() {
    let server = |line: &str| match line.split(' ').next().unwrap_or_default() {
        "list-tubes" => Some("OK 27\r\n---\n- \"My::Func\"\n- default\n\r\n"),
        "stats" => Some("OK 32\r\n---\ncurrent-jobs-ready: 1\npid: 1\r\n"),
        _ if line.contains("My::Func") || line.contains('*') => Some("BAD_FORMAT\r\n"),
        "stats-tube" => Some("OK 40\r\n---\nname: default\ncurrent-jobs-ready: 12\r\n"),
        "list-jobs" if line.contains("ready") => Some("OK 7\r\n---\n- 1\r\n"),
        "list-jobs" => Some("OK 3\r\n---\r\n"),
        "stats-job" => Some("OK 36\r\n---\nid: 1\ntube: default\nstate: ready\r\n"),
        "peek" => Some("FOUND 1 4\r\nbody\r\n"),
        _ => Some("UNKNOWN_COMMAND\r\n"),
    };
    for (arguments, shown) in [
        (&["tubes"][..], "default\t12"),
        (&["tubes", "--json"], "\"name\":\"default\""),
        (&["top", "-b", "-n", "1"], "default\t12"),
        (&["export"], "\"body\":\"body\""),
        (&["stats", "My::Func", "default"], "name\tdefault"),
    ] {
        let ended = run_command(ctl(&pretender(server), arguments));
        assert_eq!(ended.code, 1, "{arguments:?}: {}", ended.err);
        assert!(ended.out.contains(shown), "{arguments:?}: {}", ended.out);
        assert!(
            ended.err.contains("the server does not support quoted tube names: \"My::Func\""),
            "{arguments:?}: {}",
            ended.err
        );
    }
}

#[test]
fn an_import_puts_nothing_into_another_tube() {
    let Some(server) = Server::beanstalkd(&[]) else { return };
    let lines =
        "{\"tube\":\"a\",\"body\":\"1\"}\n{\"tube\":\"My::Func\",\"body\":\"2\"}\n{\"tube\":\"a\",\"body\":\"3\"}\n";
    let ended = server.feed(&["import"], lines.as_bytes());
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("line 2: use: the server does not support quoted tube names"), "{}", ended.err);
    assert!(ended.err.contains("imported 2 jobs, 0 of them buried; 1 lines were refused"), "{}", ended.err);
    assert_eq!(server.count("a", "ready"), 2);
}

/// Control characters and invisible characters that must not be sent to a terminal.
const EVIL: &str = "\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\u{2066}\u{200f}\u{200b}\u{feff}";

fn hostile() -> String {
    let leak = |text: String| -> &'static str { text.leak() };
    let body = move |text: String| leak(format!("OK {}\r\n{text}\r\n", text.len()));
    let figures = body(format!(
        "---\nid: 1\ntube: {EVIL}\nname: {EVIL}\nstate: ready\npri: 1\n{EVIL}: {EVIL}\ncurrent-jobs-ready: {EVIL}\nhostname: \"{EVIL}\"\nsettings: {EVIL}\ncron: {EVIL}\n"
    ));
    let names = body(format!("---\n- default\n- a{EVIL}\n- \"b{EVIL}\"\n"));
    let ids = body("---\n- 1\n".to_owned());
    let job = format!("1 {}\r\n{EVIL}\r\n", EVIL.len());
    let (found, reserved) = (leak(format!("FOUND {job}")), leak(format!("RESERVED {job}")));
    let nonsense = leak(format!("X{EVIL}\r\n"));
    pretender(move |line| {
        Some(match line.split(' ').next().unwrap_or_default() {
            "list-tubes" => names,
            "list-jobs" => ids,
            "stats" | "stats-job" | "stats-tube" => figures,
            "use" => "USING x\r\n",
            "watch" | "ignore" => "WATCHING 1\r\n",
            "reserve" | "reserve-with-timeout" => reserved,
            verb if verb.starts_with("peek") => found,
            _ => nonsense,
        })
    })
}

/// Runs a command on a terminal, and returns its output.
pub fn on_a_terminal(mut command: Command) -> String {
    let pair = openpty(&Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 }, None).expect("a terminal");
    let end = || Stdio::from(pair.slave.try_clone().expect("a file"));
    let mut child = command.stdin(Stdio::null()).stdout(end()).stderr(end()).spawn().expect("the program");
    drop(command);
    let mut master = File::from(pair.master);
    let reading = std::thread::spawn(move || {
        let mut seen = Vec::new();
        // Reading a terminal returns an error after the last process has closed the terminal.
        let _ = master.read_to_end(&mut seen);
        seen
    });
    wait_until("the program exits", || child.try_wait().expect("a child").is_some());
    drop(pair.slave);
    String::from_utf8_lossy(&reading.join().expect("a reader")).into_owned()
}

#[test]
fn control_characters_of_a_hostile_server_do_not_reach_the_terminal() {
    let server = hostile();
    for arguments in [
        &["stats"][..],
        &["stats", "--json"],
        &["stats", "mail", "-i", "1"],
        &["tubes"],
        &["tubes", "--json"],
        &["top", "-b", "-n", "1"],
        &["put", "a"],
        &["reserve"],
        &["reserve", "--json", "--delete"],
        &["peek", "1"],
        &["peek", "1", "--json"],
        &["peek", "-t", "mail"],
        &["tail", "-n", "1"],
        &["tail", "-n", "1", "--json"],
        &["delete", "1"],
        &["kick", "1"],
        &["kick", "-t", "mail"],
        &["bury", "1"],
        &["release", "1"],
        &["wait", "1"],
        &["pause", "mail", "1"],
        &["resume", "mail"],
        &["move", "a", "b", "-y"],
        &["clear", "mail", "-y"],
        &["list", "mail"],
        &["list", "mail", "--json"],
        &["tube", "mail"],
        &["schedules"],
        &["export"],
        &["import"],
        &["work", "--once", "--", "true"],
    ] {
        let mut command = ctl(&server, arguments);
        command.args(["--timeout", "1"]);
        if arguments.contains(&"--") {
            command = ctl(&server, &["work", "--timeout", "1", "--once", "--", "true"]);
        }
        let seen = on_a_terminal(command);
        let evil = seen.chars().find(|letter| EVIL.contains(*letter) && !letter.is_ascii_graphic());
        assert_eq!(evil, None, "{arguments:?}: {seen:?}");
        // Three subcommands may print nothing: `import` has no input, `list` ignores jobs in other tubes, and
        // `schedules` ignores ready jobs.
        assert!(!seen.is_empty() || ["import", "list", "schedules"].contains(&arguments[0]), "{arguments:?}");
    }
    // Tables and messages must be safe even if a pager displays them.
    for arguments in
        [&["tubes"][..], &["stats"], &["top", "-b", "-n", "1"], &["list", "mail"], &["tube", "mail"], &["schedules"]]
    {
        let ended = run_command(ctl(&server, arguments));
        let both = ended.out + &ended.err;
        assert!(
            !both.chars().any(|letter| letter.is_control() && !matches!(letter, '\n' | '\t')),
            "{arguments:?}: {both:?}"
        );
    }
}
