//! Tests the subcommands for dependent and recurring jobs: `put`, `wait` and `schedules`.

use std::thread;
use std::time::Duration;

use crate::daemon::wait_until;
use crate::support::{with_both, Server};

#[test]
fn a_job_waits_for_all_members_of_a_group() {
    let server = Server::beanpole(&[]);
    assert_eq!(server.ok(&["put", "-t", "results", "--after", "square:3", "reduce"]), "1\n");
    let early = server.run(&["wait", "--group", "square", "-w", "0"]);
    assert_eq!((early.code, early.out.as_str()), (2, ""), "no member has been put yet");
    assert!(early.err.contains("1 jobs wait for more members of group square"), "{}", early.err);
    let table = server.ok(&["tubes", "results"]);
    assert_eq!(table.lines().nth(1), Some("results\t0\t0\t0\t0\t1\t0\t1\t0\t0\t0\t-"), "the job is in column `other`");
    assert_eq!(server.feed(&["put", "--lines", "--group", "square"], b"1\n2\n3\n").code, 0);
    assert_eq!(server.figure("stats-job 1", "state"), "held");
    assert!(server.ok(&["list", "results"]).contains("held"));
    let group = server.ok(&["stats", "--group", "square", "--json"]);
    assert!(group.contains("\"pending\":3") && group.contains("\"waiting-jobs\":1"), "{group}");
    let waiting = server.run(&["wait", "--group", "square", "-w", "0"]);
    assert_eq!((waiting.code, waiting.out.as_str()), (2, ""), "{}", waiting.err);
    assert!(waiting.err.contains("3 jobs of group square have not ended"), "{}", waiting.err);
    thread::scope(|scope| {
        let wait = scope.spawn(|| server.ok(&["wait", "--group", "square"]));
        for number in ["1", "2", "3"] {
            assert_eq!(server.ok(&["reserve", "default", "-w", "0", "--delete"]), number);
        }
        assert_eq!(wait.join().expect("a wait that ends"), "square complete\n");
    });
    assert_eq!(server.ok(&["reserve", "results", "-w", "0"]), "reduce");
    server.ok(&["put", "--group", "square", "--group", "all", "4"]);
    server.ok(&["bury", "5"]);
    let buried = server.run(&["wait", "--group", "all"]);
    assert_eq!((buried.code, buried.out.as_str()), (1, "all: 1 buried\n"));
    assert_eq!(server.ok(&["wait", "--group", "none"]), "none complete\n");
    let none = server.run(&["stats", "--group", "none"]);
    assert_eq!((none.code, none.err.contains("group none has no members")), (1, true), "{}", none.err);
    for wrong in
        [&["put", "--group", "a b", "x"][..], &["wait", "--group", "a b"], &["stats", "--group", ""], &["wait"]]
    {
        assert_eq!(server.run(wrong).code, 5, "{wrong:?}");
    }
}

const SCHEDULES_HEADER: &str = "id\ttube\tname\tschedule\tnext run\tmissed\tblocked by\truns\tskipped\tbody\n";

#[test]
fn schedules_are_put_listed_run_and_replaced() {
    let server = Server::beanpole(&[]);
    let nightly = ["put", "-t", "reports", "--unique", "nightly", "--cron", "30 4 * * mon-fri", "--try", "3", "report"];
    assert_eq!(server.ok(&nightly), "1\n");
    assert_eq!(server.ok(&["put", "--unique", "beat", "--every", "86400", "tick", "--json"]), "{\"id\":2}\n");
    let listed = server.ok(&["schedules"]);
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 3, "{listed}");
    assert!(rows[1].contains(&"30 4 * * mon-fri") && listed.contains(" 04:30:00Z"), "{listed}");
    assert!(rows[2].contains(&"every 86400 s") && rows[2].contains(&"beat"), "{listed}");
    assert_eq!(server.ok(&["schedules", "default"]).lines().count(), 2);
    assert!(server.ok(&["schedules", "reports", "--json"]).contains("\"cron\":\"30 4 * * mon-fri\""));
    assert_eq!(server.ok(&["schedules", "none"]), SCHEDULES_HEADER);
    assert_eq!(server.ok(&["schedules", "none", "--json"]), "");
    let headings = "ended\tid\ttube\tverdict\twaited\tran\ttries\treason\tbody\n";
    let none = server.run(&["history", "-t", "none"]);
    assert_eq!((none.code, none.out.as_str()), (0, headings));
    assert!(none.err.contains("no such jobs of tube none"), "{}", none.err);
    let help = server.ok(&["history", "-h"]);
    assert!(help.contains("only jobs of this tube") && !help.contains("instead of IDs"), "{help}");
    server.ok(&["kick", "1"]);
    let skipped = server.run(&["kick", "1"]);
    assert_eq!((skipped.code, skipped.err.contains("still in the tube")), (1, true), "{}", skipped.err);
    assert!(
        server.ok(&["schedules", "reports"]).ends_with("\t1\t3\t1\t1\treport\n"),
        "missed, blocked by, runs, skipped"
    );
    let late = server.ok(&["schedules", "reports", "--json"]);
    assert!(late.contains(",\"next-run\":") && late.contains(",\"missed\":1,\"blocked-by\":3,\"body\""), "{late}");
    let next: u64 =
        late.split("next-run\":").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok()).expect("a time");
    assert_eq!(next % 86_400, 4 * 3600 + 30 * 60);
    assert_eq!([server.figure("stats-job 1", "blocked-by"), server.figure("stats", "late-schedules")], ["3", "1"]);
    assert_eq!(server.ok(&["reserve", "reports", "-w", "0", "--delete"]), "report");
    let row = server.ok(&["schedules", "reports", "--json"]);
    assert!(row.contains("\"runs\":1,\"skipped\":1"), "{row}");
    assert!(!server.ok(&["stats", "-i", "1"]).contains("blocked-by"));
    let replaced = ["put", "-t", "reports", "--unique", "nightly", "--cron", "@daily", "--json", "report"];
    assert_eq!(server.ok(&replaced), "{\"id\":1,\"replaced\":true}\n");
    assert_eq!(server.figure("stats", "late-schedules"), "0");
    server.ok(&["delete", "1"]);
    assert_eq!(server.ok(&["schedules", "reports"]), SCHEDULES_HEADER);
    for wrong in [
        &["put", "--cron", "@daily", "x"][..],
        &["put", "--unique", "a", "--cron", "60 * * * *", "x"],
        &["put", "--unique", "a", "--cron", "* * * * *\" grp:g", "x"],
        &["put", "--unique", "a", "--cron", "300", "x"],
        &["put", "--unique", "a", "--every", "0", "x"],
    ] {
        assert_eq!(server.run(wrong).code, 5, "{wrong:?}");
    }
}

#[test]
fn a_schedule_of_one_second_runs_by_the_real_clock() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "--unique", "beat", "--every", "1", "tick"]);
    for _ in 0..2 {
        assert_eq!(server.ok(&["reserve", "-w", "20", "--delete"]), "tick");
    }
    // The schedule skips runs while the job of its previous run is still in the queue.
    wait_until("a run is skipped", || {
        thread::sleep(Duration::from_millis(100));
        server.figure("stats-job 1", "skipped") != "0"
    });
    assert_eq!(server.figure("stats-job 1", "runs"), "3");
}

#[test]
fn tags_are_not_sent_to_a_server_without_these_extensions() {
    with_both(|server| {
        if server.ok(&["stats"]).contains("extensions") {
            return;
        }
        for tags in [&["--group", "g"][..], &["--unique", "a", "--every", "9"], &["--unique", "a", "--cron", "@daily"]]
        {
            let ended = server.run(&[&["put"], tags, &["x"]].concat());
            assert_eq!((ended.code, server.count("default", "ready")), (1, 0), "{}", ended.err);
        }
    });
}
