//! Tests that lists and statistics show only the tubes, jobs and clients that the requester has a right to see.

use super::{user, Guarded};

pub fn put(guarded: &Guarded, tubes: &[&str]) {
    let mut operator = guarded.operator();
    for tube in tubes {
        assert_eq!(operator.ask(&format!("use {tube}")), format!("USING {tube}"));
        operator.send(b"put 0 0 60 1\r\nx\r\n");
        assert!(operator.line().starts_with("INSERTED "));
    }
}

#[test]
fn only_visible_tubes_and_jobs_are_listed() {
    let guarded = Guarded::start(&format!("me {} look:mail*", user()));
    put(&guarded, &["mail.in", "mail.out", "push", "secret"]);
    let mut client = guarded.connect("beanstalk");
    assert_eq!(client.body("list-tubes"), "---\n- mail.in\n- mail.out\n\r\n");
    assert_eq!(client.body("list-jobs * ready"), "---\n- 1\n- 2\n\r\n");
    assert_eq!(client.body("list-jobs * buried"), "---\n\r\n");
    assert_eq!(guarded.operator().body("list-jobs * ready"), "---\n- 1\n- 2\n- 3\n- 4\n\r\n");
    let stats = client.body("stats");
    for line in ["current-jobs-ready: 2", "current-jobs-urgent: 2", "total-jobs: 2", "current-tubes: 2"] {
        assert!(stats.contains(&format!("\n{line}\n")) || stats.contains(&format!("{line}\n")), "no {line} in {stats}");
    }
    let mut operator = guarded.operator();
    assert_eq!(operator.ask("pause-tube secret 60"), "PAUSED");
    assert!(operator.body("stats").contains("paused-tubes: 1\n"));
    assert!(client.body("stats").contains("paused-tubes: 0\n"));
    let all = operator.body("stats");
    assert!(all.contains("current-jobs-ready: 4\n") && all.contains("current-tubes: 5\n"), "{all}");
    let mut admin = guarded.connect("gearman");
    admin.send(b"status\n");
    let mut listed = vec![admin.line(), admin.line(), admin.line()];
    listed.sort();
    assert_eq!(listed, [".", "mail.in\t1\t0\t0", "mail.out\t1\t0\t0"]);
    admin.send(b"show jobs\n");
    let lines = [admin.line(), admin.line(), admin.line()];
    assert_eq!(lines[2], ".", "{lines:?}");
    let mut inspector = guarded.connect("workq");
    assert_eq!(inspector.ask("inspect queues 0 9"), "+OK 2");
    assert_eq!(inspector.line(), "mail.in 2");
}

#[test]
fn the_history_contains_only_visible_tubes() {
    let guarded = Guarded::start(&format!("me {} look:mail*", user()));
    put(&guarded, &["mail", "secret"]);
    let mut operator = guarded.operator();
    assert_eq!((operator.ask("delete 1"), operator.ask("delete 2")), ("DELETED".to_owned(), "DELETED".to_owned()));
    let list = guarded.connect("beanstalk").body("list-history");
    assert!(list.contains("id: 1\n") && !list.contains("id: 2\n") && !list.contains("secret"), "{list}");
    assert_eq!(operator.body("list-history").matches("verdict: deleted").count(), 2);
}

#[test]
fn only_connections_of_visible_tubes_are_listed() {
    let guarded = Guarded::start(&format!("me {} look:mail* take:mail*", user()));
    let (mut own, mut other) = (guarded.operator(), guarded.operator());
    for (talk, tube, name) in [(&mut own, "mail", "mailer"), (&mut other, "secret", "spy")] {
        assert_eq!(talk.ask(&format!("use {tube}")), format!("USING {tube}"));
        assert_eq!(talk.ask(&format!("watch {tube}")), "WATCHING 2");
        assert_eq!(talk.ask("ignore default"), "WATCHING 1");
        assert_eq!(talk.ask(&format!("name {name}")), "NAMED");
    }
    // The client may see the connection that has reserved the job, but not the tube of the job.
    assert_eq!(own.ask("watch secret"), "WATCHING 2");
    put(&guarded, &["secret"]);
    own.send(b"reserve\r\n");
    assert_eq!((own.line(), own.line()), ("RESERVED 1 1".to_owned(), "x".to_owned()));
    let mut client = guarded.connect("beanstalk");
    let list = client.body("list-connections");
    assert!(list.contains("client: \"mailer\"") && list.contains("watches: \"mail\"\n"), "{list}");
    assert!(list.contains("state: working\n") && !list.contains("job:"), "{list}");
    assert!(!list.contains("secret") && !list.contains("spy"), "{list}");
    // The list must not reveal that another connection exists.
    assert_eq!(list.matches("- number:").count(), 1, "{list}");
    let all = guarded.operator().body("list-connections");
    assert!(all.contains("client: \"spy\"") && all.contains("job: 1\n  job-tube: secret\n"), "{all}");
    assert!(all.contains("user: \"operator\"") || all.contains("user:"), "{all}");
}

#[test]
fn filtered_lists_can_take_several_turns() {
    let guarded = Guarded::start(&format!("me {} look:a*", user()));
    let mut operator = guarded.operator();
    for number in 0..3000 {
        let tube = format!("{}{number}", if number % 3 == 0 { "a" } else { "b" });
        assert_eq!(operator.ask(&format!("watch {tube}")), format!("WATCHING {}", number + 2));
    }
    let mut client = guarded.connect("beanstalk");
    let list = client.body("list-tubes");
    assert_eq!(list.lines().filter(|line| line.starts_with("- ")).count(), 1000);
    assert!(!list.contains("- b"), "{list}");
    assert!(client.body("stats").contains("current-tubes: 1000\n"));
}
