//! Tests each subcommand with only the rights that the man page lists, on a single tube.

use std::process::Stdio;

use super::{user, Guarded};
use crate::daemon::{command, run_command, Ended};

/// One command line for each row of the table in beanpole-ctl(1). Job 1 is ready, job 2 is buried.
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

/// Returns each subcommand in the man page's table with its rights.
fn table() -> Vec<(String, Vec<String>)> {
    let page = std::fs::read_to_string("man/beanpole-ctl.1").expect("the man page");
    let part = page.split("\n.Sh RIGHTS\n").nth(1).expect("the section");
    let rows = part.lines().filter_map(|line| line.strip_prefix(".It ")?.split_once(" Ta "));
    rows.map(|(name, rights)| (name.to_owned(), rights.split(' ').map(str::to_owned).collect())).collect()
}

fn run(guarded: &Guarded, name: &str, arguments: &[&str]) -> Ended {
    let server = format!("unix:{}", guarded.folder.file("beanstalk").display());
    let mut command = command(&[&[name, "-s", &server], arguments].concat());
    if name == "import" {
        let file = guarded.folder.file("jobs");
        std::fs::write(&file, "{\"tube\":\"t\",\"body\":\"a\"}\n").expect("a file");
        command.stdin(Stdio::from(std::fs::File::open(file).expect("a file")));
    }
    run_command(command)
}

#[test]
fn subcommands_need_the_rights_that_the_manual_lists() {
    let rows = table();
    assert_eq!(rows.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), LINES.map(|line| line.0));
    for ((name, rights), (_, arguments)) in rows.iter().zip(LINES) {
        let line = |rights: String| format!("me {} {rights}", user());
        let scoped = |right: &String| format!("{right}:t,u");
        let guarded = Guarded::start(&line(rights.iter().map(scoped).collect::<Vec<_>>().join(" ")));
        let mut operator = guarded.operator();
        let mut put = |tube: &str| {
            assert_eq!(operator.ask(&format!("use {tube}")), format!("USING {tube}"));
            assert!(operator.ask("put 5 0 60 1\r\nx").starts_with("INSERTED"));
        };
        put("t");
        put("t");
        put("other");
        operator.ask("reserve-job 2");
        operator.take(3);
        assert_eq!(operator.ask("bury 2 5"), "BURIED");
        if name == "revoke" {
            operator.ask("reserve-job 1");
            operator.take(3);
        }
        let ended = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&guarded, name, arguments));
            while !running.is_finished() {
                match name.as_str() {
                    "tail" => drop(operator.ask("use t\r\nput 5 0 60 1\r\nx").to_owned() + &operator.line()),
                    "wait" => drop(operator.ask("delete 1").to_owned() + &operator.ask("delete 2")),
                    _ => {}
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            running.join().expect("an end")
        });
        // If the job is deleted before `wait` begins, `wait` reports an error.
        let is_late = name == "wait" && ended.err.contains("does not exist");
        assert!(ended.code == 0 || is_late, "{name}: {ended:?}");
        let refused = Guarded::start(&line(if rights[0] == "admin" { "look" } else { "admin" }.to_owned()));
        let mut operator = refused.operator();
        assert_eq!(operator.ask("use t"), "USING t");
        assert_eq!(operator.ask("put 5 0 60 1\r\nx"), "INSERTED 1");
        assert_ne!(run(&refused, name, arguments).code, 0, "{name} without the right");
    }
}
