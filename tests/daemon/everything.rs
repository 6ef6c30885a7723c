//! Fills a queue with every tag, key, limit, pause and setting that the log can store, and with jobs of Gearman and
//! Workq, and parses exports.
//!
//! Owns the commands that fill the queue. `tests/features.rs` reports tags and settings that are missing from this
//! file. All times are longer than any test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Puts jobs 1 to 15, including two schedules, and sets tube settings. The server must be empty.
pub fn fill(mut stream: TcpStream) {
    let put = |tube: &str, head: &str, body: &str| format!("use {tube}\r\nput {head}{body}\r\n");
    let commands = [
        put("t", "5 0 60 1 idp:living:100001", "\r\na"),
        put("t", "5 100002 60 1 con:bound:3", "\r\nb"),
        put("other", "5 0 60 1 tub:t ttl:100003 try:9:5", "\r\nc"),
        put("t", "5 0 60 1 con:other idp:all:100004 try:7 ttl:100005", "\r\nd"),
        // A deleted job whose idempotency key remains. The job's tube no longer exists.
        put("gone", "5 0 60 1 idp:ended:100006", "\r\ne"),
        "use default\r\ndelete 5\r\n".to_owned(),
        // A job with two failed attempts, because each release counts as a failure.
        put("tried", "5 0 60 1 try:4:100000", "\r\nf"),
        "reserve-job 6\r\n".to_owned(),
        "release 6 5 0\r\nreserve-job 6\r\n".to_owned(),
        "release 6 5 0\r\n".to_owned(),
        // A buried job with a time to live.
        put("t", "5 0 60 1 ttl:100007 idp:buried", "\r\ng"),
        "reserve-job 7\r\n".to_owned(),
        "bury 7 8\r\n".to_owned(),
        "limit-tube limited 9\r\nlimit-tube limited-by-class 3 0 4\r\npause-tube t 100008\r\n".to_owned(),
        "limit-tube paused 1\r\npause-tube paused 100009\r\n".to_owned(),
        // A dead letter from a tube with settings, and a failed job that will be retried. Both have a failure reason.
        "set-tube mail try:2:100000 dead:mail-dead max:3 rate:7/2\r\n".to_owned(),
        "set-tube brief ttl:100010 limit:8:7:6\r\n".to_owned(),
        put("mail", "5 0 60 1", "\r\nh"),
        "reserve-job 8\r\nfail 8 5 7\r\nno host\r\nreserve-job 8\r\nfail 8 5 8\r\nno route\r\n".to_owned(),
        put("mail", "5 0 60 1", "\r\ni"),
        "reserve-job 9\r\nfail 9 5 7\r\nrefus\u{e9}!\r\n".to_owned(),
        // A group with one deleted and one remaining member, and jobs that wait for the group.
        put("parts", "5 0 60 1 grp:batch", "\r\nj"),
        put("parts", "5 0 60 1 grp:batch", "\r\nk"),
        put("whole", "5 100011 60 1 aft:batch grp:next", "\r\nl"),
        put("whole", "5 0 60 1 aft:batch:3", "\r\nm"),
        "delete 10\r\n".to_owned(),
        // Schedules that do not run during a test.
        put("nightly", "5 0 60 1 idp:year cron:@yearly try:3:10 ttl:100012 con:bound:2 grp:runs", "\r\nn"),
        put("nightly", "5 100013 60 1 idp:long every:100014", "\r\no"),
    ];
    // Encodes the commands as Latin-1, so that one failure reason is not valid UTF-8.
    let bytes: Vec<u8> = commands.concat().chars().map(|letter| letter as u8).collect();
    stream.write_all(&bytes).expect("a connection");
    let lines = BufReader::new(stream).lines();
    let replies: Vec<String> = lines.take(58).map(|line| line.expect("a reply")).collect();
    let refused = replies.iter().find(|line| ["BAD_FORMAT", "NOT_FOUND", "UNKNOWN_COMMAND"].contains(&line.as_str()));
    assert_eq!(refused, None, "{replies:?}");
}

/// Submits a background job with a reducer over Gearman. Its unique ID is not valid UTF-8.
pub fn fill_gearman(mut stream: impl Read + Write) {
    let submit = b"func\0unique \"name\"\xff\0sum\0\0body";
    let head = [&b"\0REQ"[..], &38u32.to_be_bytes(), &(submit.len() as u32).to_be_bytes()].concat();
    stream.write_all(&[&head[..], submit].concat()).expect("a connection");
    let mut created = [0; 12];
    stream.read_exact(&mut created).expect("a reply");
    assert_eq!(created[..8], *b"\0RES\0\0\0\x08");
}

/// Adds a job over Workq.
pub fn fill_workq(stream: impl Read + Write) {
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let add = format!("add {id} steps 60000 100016000 4 -max-fails=3 -max-attempts=5\r\nbody\r\n");
    assert_eq!(ask_workq(stream, &add, 1), "+OK\r\n");
}

/// A finished job and a leased job of Workq.
const FINISHED: &str = "6ba7b811-9dad-11d1-80b4-00c04fd430c8";
const LEASED: &str = "6ba7b812-9dad-11d1-80b4-00c04fd430c8";

/// Adds two jobs over Workq, stores a result for the first job, and leases the second job.
pub fn fill_outcomes(mut stream: impl Read + Write) {
    for (id, number) in [(FINISHED, 17), (LEASED, 18)] {
        let add = format!("add {id} done 60000 1000{number}000 4\r\nwork\r\n");
        assert_eq!(ask_workq(&mut stream, &add, 1), "+OK\r\n");
        let leased = ask_workq(&mut stream, "lease done 0\r\n", 3);
        assert_eq!(leased, format!("+OK 1\r\n{id} done 60000 4\r\nwork\r\n"));
        if id == FINISHED {
            assert_eq!(ask_workq(&mut stream, &format!("complete {id} 6\r\nresult\r\n"), 1), "+OK\r\n");
        }
    }
}

/// Returns what the server reports about the jobs of [`fill_outcomes`].
pub fn outcomes(stream: impl Read + Write) -> String {
    let commands = format!("inspect job {FINISHED}\r\nresult {FINISHED} 0\r\ninspect job {LEASED}\r\n");
    ask_workq(stream, &commands, 14 + 3 + 14)
}

fn ask_workq(mut stream: impl Read + Write, commands: &str, lines: usize) -> String {
    stream.write_all(commands.as_bytes()).expect("a connection");
    let mut reply = Vec::new();
    while reply.iter().filter(|&&byte| byte == b'\n').count() < lines {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply");
        reply.push(byte[0]);
    }
    String::from_utf8(reply).expect("text")
}

/// Returns an export of jobs of all protocols without the properties that only jobs of Gearman and Workq have. An
/// import does not store these properties.
pub fn without_protocols(export: &str) -> String {
    let unstored = [
        r#","protocol":"gearman""#,
        r#","protocol":"workq""#,
        r#","unique":"id","try":5,"max-fails":3"#,
        r#","unique":"id""#,
        r#","reducer":"sum""#,
    ];
    unstored.iter().fold(export.to_owned(), |text, part| text.replace(part, ""))
}

/// Returns the lines of an export without the fields that an import does not preserve. Replaces each large number with
/// the word `long`.
pub fn fields(export: &str) -> Vec<String> {
    let unkept = ["id", "age", "reserves", "timeouts", "releases", "buries", "kicks"];
    let field = |field: &str| {
        let (key, value) = field.split_once(':').unwrap_or_else(|| panic!("{field}"));
        let is_long = value.parse().is_ok_and(|number: u64| number > 50_000);
        let key = key.trim_matches('"');
        (!unkept.contains(&key)).then(|| format!("{key}={}", if is_long { "long" } else { value }))
    };
    let line = |line: &str| {
        let line = line.trim_start_matches('{').trim_end_matches('}');
        line.split(',').filter_map(field).collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = export.lines().map(line).collect();
    lines.sort();
    lines
}
