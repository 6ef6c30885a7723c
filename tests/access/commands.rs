//! Tests each beanstalk, Gearman and Workq command with each right: the command is executed, or it is refused and has
//! no effect.

use std::collections::BTreeSet;

use beanpole::internals::protocol::{beanstalk, gearman, workq};

use super::{user, Guarded, Talk};

const RIGHTS: [&str; 4] = ["put", "take", "look", "admin"];

pub const TUBE: &str = "t";

pub const OTHER: &str = "o";

/// The rights that permit each command. Any one of these rights is sufficient. `open` means that no right is needed.
const BEANSTALK: [(&str, &[&str]); 50] = [
    ("put", &["put"]),
    ("peek", &["look"]),
    ("peek-ready", &["look"]),
    ("peek-delayed", &["look"]),
    ("peek-buried", &["look"]),
    ("reserve-with-timeout", &["take"]),
    ("reserve-with-abort", &["take"]),
    ("reserve-job", &["take"]),
    ("reserve", &["take"]),
    // Another client has put the job, so the right `put` is not enough.
    ("delete", &["admin"]),
    ("release", &["take"]),
    ("bury", &["take"]),
    ("kick", &["admin"]),
    ("kick-job", &["admin"]),
    ("touch", &["take"]),
    ("stats-job", &["look"]),
    ("stats-tube", &["look"]),
    ("stats-tubes", &["look"]),
    ("stats", &["look"]),
    ("use", &["put", "look", "admin"]),
    ("watch", &["take"]),
    ("ignore", &["open"]),
    ("list-tubes-watched", &["open"]),
    ("list-tube-used", &["open"]),
    ("list-tubes", &["look"]),
    ("quit", &["open"]),
    ("pause-tube", &["admin"]),
    ("auth", &["open"]),
    ("peek-reserved", &["look"]),
    ("reserve-batch", &["take"]),
    ("reserve-mode", &["open"]),
    ("touch-all", &["take"]),
    ("wait", &["put", "look"]),
    ("flush-tube", &["admin"]),
    ("flush-buried", &["admin"]),
    ("list-jobs", &["look"]),
    ("stats-group", &["look"]),
    ("list-keys", &["look"]),
    ("limit-tube", &["admin"]),
    ("list-connections", &["look"]),
    ("list-history", &["look"]),
    ("name", &["open"]),
    ("revoke", &["admin"]),
    ("set-tube", &["admin"]),
    ("fail", &["take"]),
    ("delete-batch", &["admin"]),
    // Commands that require a right on all tubes.
    ("drain", &[]),
    ("undrain", &[]),
    // No right on this tube suffices, because the command also requires a right on the destination tube.
    ("move-job", &[]),
    ("move-tube", &[]),
];

/// Waits until all other connections are closed, and returns the statistics that a refused command must not change.
fn figures(operator: &mut Talk) -> Vec<String> {
    operator.wait_until_alone();
    let passing = ["cmd-stats:", "rusage", "uptime", "current-connections", "total-connections", "current-workers"];
    let also = ["memory", "current-producers", "cmd-use:", "cmd-list-tube-used:", "cmd-watch:", "cmd-stats-tube"];
    let ages = ["-age:", "-left:"];
    let text = operator.body("stats") + &operator.body(&format!("stats-tube {TUBE}"));
    let lines = text.lines().filter(|line| !passing.iter().chain(&also).chain(&ages).any(|word| line.contains(word)));
    lines.map(str::to_owned).collect()
}

fn new_job(operator: &mut Talk) -> u64 {
    assert_eq!(operator.ask(&format!("use {TUBE}")), format!("USING {TUBE}"));
    operator.send(b"put 0 0 60 1\r\nx\r\n");
    operator.line().strip_prefix("INSERTED ").expect("an ID").parse().expect("a number")
}

/// Tries all commands with each right. `one` sends a command and returns `true` if the server refused it.
pub fn walk(rows: &[(&str, &[&str])], mut one: impl FnMut(&Guarded, &str, u64) -> bool) {
    let guarded = Guarded::start_frozen("");
    for right in RIGHTS {
        guarded.change(&format!("me {} {right}:{TUBE}", user()));
        for (command, rights) in rows {
            let mut operator = guarded.operator();
            let id = new_job(&mut operator);
            let before = figures(&mut operator);
            let refused = one(&guarded, command, id);
            let is_open = rights.contains(&"open");
            assert_eq!(refused, !is_open && !rights.contains(&right), "{command} with {right}");
            if refused {
                assert_eq!(figures(&mut operator), before, "{command} with {right} was refused, but had an effect");
            }
            operator.ask(&format!("delete {id}"));
        }
    }
    guarded.server.check();
}

// Tests promise P25 of beanpole-promises(7).
#[test]
fn each_beanstalk_command_with_each_right() {
    let named: BTreeSet<&str> = BEANSTALK.iter().map(|(name, _)| *name).collect();
    assert_eq!(named, beanstalk::COMMANDS.iter().map(|row| row.word.trim()).collect());
    walk(&BEANSTALK, |guarded, command, id| {
        let mut client = guarded.connect("beanstalk");
        let line = match command {
            "put" => "put 0 0 60 1\r\nx".to_owned(),
            "peek" | "reserve-job" | "delete" | "kick-job" | "touch" | "stats-job" => format!("{command} {id}"),
            "release" => format!("release {id} 0 0"),
            "bury" | "revoke" => format!("{command} {id} 0"),
            "kick" => "kick 1".to_owned(),
            "reserve-with-timeout" | "reserve-with-abort" => format!("{command} 0"),
            "stats-group" | "stats-tube" | "use" | "name" | "watch" | "ignore" => format!("{command} {TUBE}"),
            "pause-tube" => format!("pause-tube {TUBE} 0"),
            "auth" => format!("auth {}", super::OPERATOR),
            "reserve-batch" => "reserve-batch 1 0".to_owned(),
            "reserve-mode" => "reserve-mode fifo".to_owned(),
            "wait" => format!("wait {id} 0"),
            "flush-tube" | "flush-buried" => format!("{command} {TUBE}"),
            "list-jobs" => format!("list-jobs {TUBE} ready"),
            "limit-tube" => format!("limit-tube {TUBE} 1000"),
            "set-tube" => format!("set-tube {TUBE} try:9"),
            "fail" => format!("fail {id} 0 1\r\nx"),
            "delete-batch" => format!("delete-batch {id}"),
            "move-job" => format!("move-job {id} {OTHER} 0 0"),
            "move-tube" => format!("move-tube {TUBE} {OTHER} ready 1"),
            _ => command.to_owned(),
        };
        // Prepares the connection for the command. The server may refuse `use` or `watch`.
        client.ask(&format!("use {TUBE}"));
        if command.starts_with("reserve") && client.ask(&format!("watch {TUBE}")) != "FORBIDDEN" {
            assert_eq!(client.ask("ignore default"), "WATCHING 1");
        }
        let answer = client.ask(&line);
        if answer == "FORBIDDEN" {
            assert!(client.ask("list-tube-used").starts_with("USING "), "{command}: the connection is out of sync");
        }
        answer == "FORBIDDEN"
    });
}

#[test]
fn a_tag_cannot_name_a_tube_without_the_put_right() {
    let guarded = Guarded::start("");
    guarded.change(&format!("me {} put:{TUBE},default", user()));
    let mut client = guarded.connect("beanstalk");
    assert_eq!(client.ask(&format!("put 0 0 60 1 tub:{OTHER}\r\nx")), "FORBIDDEN");
    assert!(client.ask(&format!("put 0 0 60 1 tub:{TUBE}\r\nx")).starts_with("INSERTED "));
    assert!(client.ask("put 0 0 60 1 ttl:60\r\nx").starts_with("INSERTED "));
}

// Tests promise P26 of beanpole-promises(7).
#[test]
fn a_tag_cannot_name_a_group_without_the_put_right() {
    let guarded = Guarded::start("");
    guarded.change(&format!("me {} put:{TUBE},default look:{TUBE}", user()));
    let mut client = guarded.connect("beanstalk");
    for tags in [format!("grp:{OTHER}"), format!("aft:{OTHER}"), format!("grp:{TUBE} aft:{OTHER}:2")] {
        assert_eq!(client.ask(&format!("put 0 0 60 1 {tags}\r\nx")), "FORBIDDEN", "{tags}");
    }
    assert_eq!(client.ask(&format!("stats-group {OTHER}")), "FORBIDDEN");
    assert_eq!(client.ask(&format!("stats-group {TUBE}")), "NOT_FOUND");
    assert!(client.ask(&format!("put 0 0 60 1 grp:{TUBE}\r\nx")).starts_with("INSERTED "));
    assert!(client.ask(&format!("put 0 0 60 1 aft:{TUBE}\r\nx")).starts_with("INSERTED "));
}

// Tests promise P26 of beanpole-promises(7).
#[test]
fn a_dead_letter_tube_requires_the_right_too() {
    let guarded = Guarded::start("");
    guarded.change(&format!("me {} admin:{TUBE}", user()));
    let mut client = guarded.connect("beanstalk");
    assert_eq!(client.ask(&format!("set-tube {TUBE} dead:{OTHER}")), "FORBIDDEN");
    assert_eq!(client.ask(&format!("set-tube {TUBE} try:3")), "SET");
}

#[test]
fn only_clients_with_the_take_right_can_cause_a_dead_letter() {
    let guarded = Guarded::start("");
    guarded.change(&format!("me {} put:{TUBE} take:{TUBE},mine,default", user()));
    let mut client = guarded.connect("beanstalk");
    assert_eq!(client.ask(&format!("put 0 0 60 1 tub:{TUBE}\r\nx")), "INSERTED 1");
    assert_eq!(client.ask(&format!("watch {TUBE}")), "WATCHING 2");
    assert_eq!(client.ask("reserve-with-timeout 0"), "RESERVED 1 1");
    assert_eq!(client.line(), "x");
    assert_eq!(client.ask(&format!("bury 1 0 from:{OTHER}")), "FORBIDDEN");
    assert_eq!(client.ask("bury 1 0 from:mine"), "BURIED");
}

/// Sends a packet and an echo request. Returns the bodies of the packets that arrive before the echo reply.
fn packets(client: &mut Talk, kind: u32, arguments: &[&str], data: &str) -> Vec<u8> {
    let mut body = arguments.join("\0");
    if !data.is_empty() {
        body += &format!("\0{data}");
    }
    let packet = |kind: u32, body: &str| {
        [b"\0REQ".as_slice(), &kind.to_be_bytes(), &(body.len() as u32).to_be_bytes(), body.as_bytes()].concat()
    };
    client.send(&packet(kind, &body));
    client.send(&packet(16, "echo behind it"));
    let mut answers = Vec::new();
    loop {
        let header = client.take(12);
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let body = client.take(number(8) as usize);
        if number(4) == 17 && body == b"echo behind it" {
            return answers;
        }
        answers.extend(body);
    }
}

#[test]
fn each_gearman_packet_with_each_right() {
    let submit: &[&str] = &["put"];
    let rows: Vec<(&str, &[&str])> = gearman::PACKETS
        .iter()
        .filter(|row| row.is_request)
        .map(|row| match row.name {
            name if name.starts_with("SUBMIT_") => (name, submit),
            name @ ("GET_STATUS" | "GET_STATUS_UNIQUE") => (name, ["put", "look"].as_slice()),
            name @ ("CANT_DO" | "RESET_ABILITIES" | "ECHO_REQ" | "OPTION_REQ" | "SET_CLIENT_ID") => {
                (name, ["open"].as_slice())
            }
            name => (name, ["take"].as_slice()),
        })
        .collect();
    walk(&rows, |guarded, name, id| {
        let row = gearman::PACKETS.iter().find(|row| row.name == name).expect("a packet");
        let mut client = guarded.connect("gearman");
        let handle = format!("h:{id}");
        let value = |argument: &&'static str| match *argument {
            "function" => TUBE,
            "handle" => handle.as_str(),
            "unique" => "",
            "option" => "exceptions",
            "minute" | "hour" | "day-of-month" | "month" | "day-of-week" => "",
            _ => "0",
        };
        let arguments: Vec<&str> = row.arguments.iter().map(value).collect();
        let answer = packets(&mut client, row.kind as u32, &arguments, if row.data { "data" } else { "" });
        answer.starts_with(b"FORBIDDEN\0")
    });
}

#[test]
fn each_gearman_text_command_with_each_right() {
    let rows: [(&str, &[&str]); 13] = [
        ("version", &["open"]),
        ("getpid", &["look"]),
        ("verbose", &["open"]),
        ("status", &["look"]),
        ("prioritystatus", &["look"]),
        // The reply contains the addresses of all clients.
        ("workers", &[]),
        ("show unique jobs", &["look"]),
        ("show jobs", &["look"]),
        ("cancel job", &["admin"]),
        ("create function", &["admin"]),
        ("drop function", &["admin"]),
        ("maxqueue", &["admin"]),
        // Requires the right `admin` on all tubes.
        ("shutdown", &[]),
    ];
    let named: BTreeSet<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(named, gearman::TEXT_COMMANDS.iter().map(|row| row.words).collect());
    walk(&rows, |guarded, words, id| {
        let mut client = guarded.connect("gearman");
        let line = match words {
            "cancel job" => format!("cancel job h:{id}"),
            "create function" | "drop function" | "maxqueue" => format!("{words} {TUBE}"),
            _ => words.to_owned(),
        };
        let answer = client.ask(&line);
        if answer.starts_with("ERR FORBIDDEN") {
            assert!(client.ask("version").starts_with("OK "), "{words}: the connection is out of sync");
        }
        answer.starts_with("ERR FORBIDDEN")
    });
}

#[test]
fn each_workq_command_with_each_right() {
    let rows: [(&str, &[&str]); 14] = [
        ("add", &["put"]),
        ("schedule", &["put"]),
        ("run", &["put"]),
        ("result", &["put", "look"]),
        ("lease", &["take"]),
        ("complete", &["take"]),
        ("fail", &["take"]),
        ("delete", &["admin"]),
        ("inspect server", &["look"]),
        ("inspect queues", &["look"]),
        ("inspect queue", &["look"]),
        ("inspect jobs", &["look"]),
        ("inspect scheduled-jobs", &["look"]),
        ("inspect job", &["look"]),
    ];
    let names = workq::COMMANDS.iter().map(|row| format!("{} {}", row.word, row.object).trim_end().to_owned());
    assert_eq!(rows.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>(), names.collect());
    let mut number = 0;
    walk(&rows, |guarded, command, id| {
        number += 1;
        let own = format!("00000000-0000-4000-8000-{number:012x}");
        let id: String =
            workq::derive(beanpole::internals::engine::JobId(id)).iter().map(|byte| format!("{byte:02x}")).collect();
        let id = format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]);
        let line = match command {
            "add" => format!("add {own} {TUBE} 60000 60000 1\r\nx"),
            "schedule" => format!("schedule {own} {TUBE} 1000 1000 2100-01-01T00:00:00Z 1\r\nx"),
            "run" => format!("run {own} {TUBE} 1000 0 1\r\nx"),
            "result" => format!("result {id} 0"),
            "lease" => format!("lease {TUBE} 0"),
            "complete" | "fail" => format!("{command} {id} 1\r\nx"),
            "delete" | "inspect job" => format!("{command} {id}"),
            "inspect queues" => "inspect queues 0 9".to_owned(),
            "inspect queue" => format!("inspect queue {TUBE}"),
            "inspect jobs" | "inspect scheduled-jobs" => format!("{command} {TUBE} 0 9"),
            _ => command.to_owned(),
        };
        let mut client = guarded.connect("workq");
        let answer = client.ask(&line);
        if answer == "-CLIENT-ERROR Forbidden" {
            assert_eq!(client.ask("what?"), "-CLIENT-ERROR Unknown command", "{command}: out of sync");
        }
        answer == "-CLIENT-ERROR Forbidden"
    });
}

#[test]
fn a_right_applies_only_to_matching_tubes() {
    let guarded = Guarded::start(&format!("me {} all:{TUBE} put:p.* take:p.*", user()));
    let mut client = guarded.connect("beanstalk");
    for line in
        ["use o", "watch o", "stats-tube o", "pause-tube o 0", "use p", "reserve-with-timeout 0", "put 0 0 1 0\r\n"]
    {
        assert_eq!(client.ask(line), "FORBIDDEN", "{line}");
    }
    assert_eq!(client.ask("use p.x"), "USING p.x");
    assert_eq!(client.ask("peek-ready"), "FORBIDDEN");
    assert_eq!(client.ask("watch p.y"), "WATCHING 2");
    assert_eq!(client.ask("reserve-with-timeout 0"), "FORBIDDEN", "the client still watches the default tube");
    assert_eq!(client.ask("ignore default"), "WATCHING 1");
    assert_eq!(client.ask("reserve-with-timeout 0"), "TIMED_OUT");
    let mut worker = guarded.connect("gearman");
    assert!(packets(&mut worker, 1, &[OTHER], "").starts_with(b"FORBIDDEN\0"));
    assert!(packets(&mut worker, 1, &["p.z"], "").is_empty());
    let mut leaser = guarded.connect("workq");
    assert_eq!(leaser.ask("lease p.a p.b o 0"), "-CLIENT-ERROR Forbidden");
    assert_eq!(leaser.ask("lease p.a p.b t 0"), "-TIMEOUT");
}

#[test]
fn the_holder_of_a_job_can_finish_it() {
    let guarded = Guarded::start(&format!("me {} take:{TUBE}", user()));
    let mut operator = guarded.operator();
    let (mine, other) = (new_job(&mut operator), new_job(&mut operator));
    let mut client = guarded.connect("beanstalk");
    assert_eq!(client.ask(&format!("reserve-job {mine}")), format!("RESERVED {mine} 1"));
    assert_eq!(client.line(), "x");
    assert_eq!(client.ask(&format!("delete {other}")), "FORBIDDEN");
    assert_eq!(client.ask(&format!("delete {mine}")), "DELETED");
    // The reply is not FORBIDDEN, because the job does not exist.
    assert_eq!(client.ask(&format!("delete {mine}")), "NOT_FOUND");
}

#[test]
fn a_batch_delete_is_all_or_nothing() {
    let guarded = Guarded::start(&format!("me {} admin:{TUBE} take:{OTHER}", user()));
    let mut operator = guarded.operator();
    let (one, two) = (new_job(&mut operator), new_job(&mut operator));
    assert_eq!(operator.ask(&format!("use {OTHER}")), format!("USING {OTHER}"));
    let mut other = || {
        operator.send(b"put 0 0 60 1\r\nx\r\n");
        operator.line().strip_prefix("INSERTED ").expect("an ID").to_owned()
    };
    let (held, free) = (other(), other());
    let mut client = guarded.connect("beanstalk");
    assert_eq!(client.ask(&format!("reserve-job {held}")), format!("RESERVED {held} 1"));
    assert_eq!(client.line(), "x");
    assert_eq!(client.ask(&format!("delete-batch {one} {held} {free} {two}")), "FORBIDDEN");
    assert_eq!(client.ask(&format!("delete-batch {one} {held} 99 {two}")), "DELETED_BATCH 3 1");
    assert!(guarded.operator().ask(&format!("peek {free}")).starts_with("FOUND "));
    // Puts more jobs than the server checks before it serves other clients.
    let ids: Vec<String> = (0..1000).map(|_| new_job(&mut guarded.operator()).to_string()).collect();
    assert_eq!(client.ask(&format!("delete-batch {} {free}", ids[1..].join(" "))), "FORBIDDEN");
    assert_eq!(client.ask(&format!("delete-batch {}", ids.join(" "))), "DELETED_BATCH 1000 0");
}

#[test]
fn a_move_requires_the_right_on_both_tubes() {
    let guarded = Guarded::start("");
    for (rights, allowed) in [("admin:a", false), ("admin:b all:c", false), ("admin:a,b", true)] {
        let mut operator = guarded.operator();
        assert_eq!(operator.ask("use a"), "USING a");
        operator.send(b"put 0 0 60 1\r\nx\r\n");
        let id = operator.line().replace("INSERTED ", "");
        guarded.change(&format!("me {} {rights}", user()));
        let mut client = guarded.connect("beanstalk");
        assert_eq!(client.ask("move-tube a b ready 1") == "MOVED 1", allowed, "{rights}");
        let answer = client.ask(&format!("move-job {id} b 0 0"));
        assert_eq!(answer, if allowed { "MOVED" } else { "FORBIDDEN" }, "{rights}");
        assert_eq!(client.ask("list-tube-used"), "USING default");
    }
}

#[test]
fn a_lease_of_very_many_names_is_checked_in_pieces() {
    let guarded = Guarded::start(&format!("me {} take:p*", user()));
    let mut client = guarded.connect("workq");
    let names: String = (0..50_000).map(|number| format!("p{number} ")).collect();
    assert_eq!(client.ask(&format!("lease {names} o 0")), "-CLIENT-ERROR Forbidden");
    assert_eq!(client.ask(&format!("lease {names} 0")), "-TIMEOUT");
}

#[test]
fn very_many_watched_tubes_are_checked_in_pieces() {
    let guarded = Guarded::start(&format!("me {} take:p*", user()));
    let mut client = guarded.connect("beanstalk");
    for number in 0..3000 {
        client.send(format!("watch p{number}\r\n").as_bytes());
        assert_eq!(client.line(), format!("WATCHING {}", number + 2));
    }
    assert_eq!(client.ask("reserve-with-timeout 0"), "FORBIDDEN");
    assert_eq!(client.ask("ignore default"), "WATCHING 3000");
    assert_eq!(client.ask("reserve-with-timeout 0"), "TIMED_OUT");
}
