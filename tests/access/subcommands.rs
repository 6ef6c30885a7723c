//! Tests each subcommand with only the rights that the man page lists, granted for only one or two tubes.

use std::process::Stdio;

use super::{user, Guarded, Talk};
use crate::daemon::{command, run_command, Ended};

/// One command line per row of the table in beanpole-ctl(1). Job 1 is ready (in the row of `revoke`, it is reserved).
/// Job 2 is buried.
const LINES: [(&str, &[&str]); 25] = [
    ("stats", &["t", "-i", "1"]),
    ("tubes", &[]),
    ("top", &["-b", "-n", "1"]),
    ("put", &["-t", "t", "--unique", "k", "--ttl", "90", "--try", "3", "x"]),
    ("reserve", &["t", "--json", "--bury"]),
    ("peek", &["--json", "-t", "t"]),
    ("tail", &["t", "-n", "1", "--interval", "0"]),
    ("delete", &["1"]),
    ("kick", &["-t", "t"]),
    ("bury", &["1"]),
    ("release", &["2"]),
    ("wait", &["1", "2"]),
    ("pause", &["t", "9"]),
    ("resume", &["t"]),
    ("tube", &["t"]),
    ("move", &["t", "u", "--yes"]),
    ("clear", &["t", "--yes"]),
    ("list", &["t"]),
    ("schedules", &["t"]),
    ("connections", &[]),
    ("history", &["--failed"]),
    ("revoke", &["-p", "5", "1"]),
    ("export", &[]),
    ("import", &[]),
    ("work", &["t", "--once", "--", "true"]),
];

/// Uses that differ from the rows of the table: a command line, all rights that it needs, and a part of its output.
/// Without the last of these rights, the subcommand must fail. The tube `t` contains the jobs 1 and 2 described at
/// [`LINES`]. A job in `other` and a job in `default` are ready.
const USES: [(&[&str], &[&str], &str); 13] = [
    (&["work", "t", "--once", "--", "false"], &["take:t"], "try 2 in 1 s"),
    (&["work", "t", "--once", "--retries", "0", "--", "false"], &["take:t"], "buried after try 1"),
    (&["work", "--once", "--", "true"], &["take:default"], ""),
    (&["tail", "-n", "2", "--interval", "0"], &["look:t"], "\tt\tready"),
    (&["reserve", "--json"], &["take:default"], "\"tube\":\"default\""),
    (&["reserve", "--delete"], &["take:default"], ""),
    (&["revoke", "1"], &["admin:t", "look:t"], ""),
    (&["tube", "t", "try:3"], &["admin:t"], ""),
    (&["tube", "t", "dead:u"], &["admin:t", "admin:u"], ""),
    (&["clear", "t", "--state", "buried", "--yes"], &["admin:t", "look:t"], "1"),
    (&["clear", "t", "--state", "ready", "--yes"], &["admin:t", "look:t", "take:t"], "1"),
    (&["peek", "2"], &["look:t"], "x"),
    (&["stats", "t"], &["look:t"], "current-jobs-buried"),
];

/// Returns each subcommand in the man page's table with its rights.
fn table() -> Vec<(String, Vec<String>)> {
    let page = std::fs::read_to_string("man/beanpole-ctl.1").expect("the man page");
    let part = page.split("\n.Sh RIGHTS\n").nth(1).expect("the section RIGHTS");
    let rows = part.lines().filter_map(|line| line.strip_prefix(".It ")?.split_once(" Ta "));
    rows.map(|(name, rights)| (name.to_owned(), rights.split(' ').map(str::to_owned).collect())).collect()
}

fn run(guarded: &Guarded, name: &str, arguments: &[&str]) -> Ended {
    let server = format!("unix:{}", guarded.folder.file("beanstalk").display());
    let mut command = command(&[&[name, "-s", &server], arguments].concat());
    command.stdin(Stdio::null());
    if name == "import" {
        let file = guarded.folder.file("jobs");
        std::fs::write(&file, "{\"tube\":\"t\",\"body\":\"a\"}\n").expect("a file");
        command.stdin(Stdio::from(std::fs::File::open(file).expect("a file")));
    }
    run_command(command)
}

/// Returns a server that grants `rights`, and an operator's connection. Buries job 2. If `is_revoked`, reserves job 1.
fn start(rights: &str, is_revoked: bool) -> (Guarded, Talk) {
    let guarded = Guarded::start(&format!("me {} {rights}", user()));
    let mut operator = guarded.operator();
    for tube in ["t", "t", "other", "default"] {
        assert_eq!(operator.ask(&format!("use {tube}")), format!("USING {tube}"));
        assert!(operator.ask("put 5 0 60 1\r\nx").starts_with("INSERTED"));
    }
    operator.ask("reserve-job 2");
    operator.take(3);
    assert_eq!(operator.ask("bury 2 5"), "BURIED");
    if is_revoked {
        operator.ask("reserve-job 1");
        operator.take(3);
    }
    (guarded, operator)
}

/// Runs the subcommand while the operator puts or deletes the jobs for which the subcommand waits.
fn run_beside(guarded: &Guarded, operator: &mut Talk, (name, arguments): (&str, &[&str])) -> Ended {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(guarded, name, arguments));
        while !running.is_finished() {
            match name {
                "tail" => {
                    for tube in ["other", "t"] {
                        operator.ask(&format!("use {tube}\r\nput 5 0 60 1\r\nx"));
                        operator.line();
                    }
                }
                "wait" => drop(operator.ask("delete 1").to_owned() + &operator.ask("delete 2")),
                _ => {}
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        running.join().expect("no panic")
    })
}

#[test]
fn subcommands_need_the_rights_that_the_manual_lists() {
    let rows = table();
    assert_eq!(rows.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), LINES.map(|line| line.0));
    for ((name, rights), (_, arguments)) in rows.iter().zip(LINES) {
        let scoped = |right: &String| format!("{right}:t,u");
        let (guarded, mut operator) = start(&rights.iter().map(scoped).collect::<Vec<_>>().join(" "), name == "revoke");
        let ended = run_beside(&guarded, &mut operator, (name, arguments));
        // If the job is deleted before `wait` begins, `wait` reports an error.
        let is_late = name == "wait" && ended.err.contains("does not exist");
        assert!(ended.code == 0 || is_late, "{name}: {ended:?}");
        let (refused, _) = start(if rights[0] == "admin" { "look" } else { "admin" }, false);
        assert_ne!(run(&refused, name, arguments).code, 0, "{name} succeeded without the right");
    }
}

#[test]
fn other_uses_of_subcommands_need_the_rights_that_the_manual_lists() {
    for (line, rights, printed) in USES {
        let (name, arguments) = line.split_first().expect("a name");
        let (guarded, mut operator) = start(&rights.join(" "), *name == "revoke");
        let ended = run_beside(&guarded, &mut operator, (name, arguments));
        let is_failure = line.ends_with(&["false"]);
        assert_eq!(ended.code, i32::from(is_failure), "{line:?}: {ended:?}");
        assert!(format!("{}{}", ended.out, ended.err).contains(printed), "{line:?}: {ended:?}");
        let fewer = match rights.split_last().expect("a right").1 {
            [] => "put:t".to_owned(),
            fewer => fewer.join(" "),
        };
        let (refused, _operator) = start(&fewer, *name == "revoke");
        let ended = run(&refused, name, arguments);
        assert!(ended.code != 0 && ended.err.contains("permission denied"), "{line:?} with {fewer}: {ended:?}");
    }
}
