//! Tests the HTTP API. A beanstalk client checks the effects on the same queue.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use beanpole::internals::protocol::Wire;
use beanpole::{Address, Config};

use crate::daemon::wait_until;
use crate::visitor::{serve, Visited};

/// Returns the value of `key`, which must occur only once in `json`.
fn value<'a>(json: &'a str, key: &str) -> &'a str {
    let (_, rest) = json.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {key} in {json}"));
    rest.split([',', '}', ']']).next().expect("a value")
}

/// Returns the numbers of ready, delayed, reserved and buried jobs in a tube.
fn counts(visited: &Visited, tube: &str) -> [u64; 4] {
    let figures = visited.get(&format!("/api/tubes/{tube}"));
    ["ready", "delayed", "reserved", "buried"]
        .map(|state| value(&figures, &format!("current-jobs-{state}")).parse().expect("a number"))
}

#[test]
fn jobs_are_put_and_shown() {
    let visited = serve(|_| ());
    let body = r#"{"body":"<b>\u00e9</b>","pri":5,"delay":10,"ttr":7}"#;
    assert_eq!(visited.post("/api/tubes/mail/put", body), (200, "{\"id\":1}\n".to_owned()));
    visited.clock.advance(Duration::from_secs(3));
    let job = visited.get("/api/jobs/1");
    for (key, found) in [
        ("id", "1"),
        ("tube", "\"mail\""),
        ("state", "\"delayed\""),
        ("pri", "5"),
        ("age", "3"),
        ("delay", "10"),
        ("ttr", "7"),
        ("time-left", "7"),
        ("size", "9"),
        ("body", "\"<b>\u{e9}</b>\""),
        ("truncated", "false"),
    ] {
        assert_eq!(value(&job, key), found, "{key}");
    }
    assert_eq!(visited.post("/api/tubes/mail/put", r#"{"body-base64":"/wA="}"#).0, 200);
    assert_eq!(value(&visited.get("/api/tubes/mail/peek/ready"), "body-base64"), "\"/wA=\"");
    let raw = visited.visitor().get("/api/jobs/1/body");
    assert!(raw.body == "<b>\u{e9}</b>" && raw.head.contains("application/octet-stream"), "{raw:?}");
    assert!(raw.head.contains("Content-Disposition: attachment"), "a browser must not display the body");
    let mut client = visited.client();
    client.watch("mail").expect("a tube");
    let job = client.reserve(Some(0)).expect("a reply").expect("a job");
    assert_eq!((job.id, job.body.as_slice()), (2, b"\xff\0".as_slice()));
}

#[test]
fn a_large_body_is_shown_partially_and_downloadable() {
    let visited = serve(|config| config.max_job_size = 300_000);
    let mut client = visited.client();
    // The response for a job contains at most 64 KiB of the body. This limit is in the middle of a two-byte character.
    let body = format!("x{}", "\u{e9}".repeat(100_000));
    client.put(body.as_bytes(), 0, 0, 60).expect("a job");
    let shown = visited.get("/api/jobs/1");
    assert_eq!((value(&shown, "truncated"), value(&shown, "size")), ("true", "200001"));
    assert_eq!(value(&shown, "body").len(), 65_535 + 2);
    assert_eq!(visited.get("/api/jobs/1/body"), body);
    assert!(visited.get("/api/tubes/default/jobs").len() < 1000);
    let (status, _) = visited.post("/api/tubes/t/put", &format!("{{\"body\":\"{}\"}}", "x".repeat(300_001)));
    assert_eq!(status, 413);
}

#[test]
fn tubes_are_kicked_paused_cleared_and_moved() {
    // With a small step budget, the server serves other clients between the parts of a request.
    let visited = serve(|config| config.turn_steps = 40);
    let mut client = visited.client();
    client.use_tube("a").expect("a tube");
    client.watch("a").expect("a tube");
    for number in 0..60 {
        client.put(b"x", 10, if number < 40 { 0 } else { 100 }, 60).expect("a job");
    }
    for _ in 0..30 {
        let job = client.reserve(Some(0)).expect("a reply").expect("a job");
        client.bury(job.id, 10).expect("the job is reserved");
    }
    assert_eq!(counts(&visited, "a"), [10, 20, 0, 30]);
    assert_eq!(visited.post("/api/tubes/a/kick", r#"{"count":25}"#).1, "{\"kicked\":25}\n");
    assert_eq!(counts(&visited, "a"), [35, 20, 0, 5]);
    assert_eq!(visited.post("/api/tubes/a/move", r#"{"to":"b","state":"delayed"}"#).1, "{\"moved\":20}\n");
    assert_eq!(visited.post("/api/tubes/a/move", r#"{"to":"b","state":"ready","count":15}"#).1, "{\"moved\":15}\n");
    assert_eq!((counts(&visited, "a"), counts(&visited, "b")), ([20, 0, 0, 5], [15, 20, 0, 0]));
    visited.clock.advance(Duration::from_secs(100));
    assert_eq!(counts(&visited, "b"), [35, 0, 0, 0], "the remaining delays have passed");
    assert_eq!(visited.post("/api/tubes/b/pause", r#"{"seconds":50}"#).0, 200);
    client.watch("b").expect("a tube");
    client.ignore("a").expect("another watched tube");
    assert!(client.reserve(Some(0)).expect("a reply").is_none());
    assert_eq!(value(&visited.get("/api/tubes/b"), "pause-time-left"), "50");
    assert_eq!(visited.post("/api/tubes/b/pause", r#"{"seconds":0}"#).0, 200);
    assert!(client.reserve(Some(0)).expect("a reply").is_some());
    for state in ["held", "scheduled", "reserved"] {
        let moved = visited.post("/api/tubes/a/move", &format!(r#"{{"to":"b","state":"{state}"}}"#));
        let deleted = visited.post("/api/tubes/a/clear", &format!(r#"{{"state":"{state}"}}"#));
        let seen = visited.visitor().get(&format!("/api/tubes/a/peek/{state}")).status;
        assert_eq!((moved.0, deleted.0, seen), (400, 400, 400), "{state}");
    }
    assert_eq!(visited.post("/api/tubes/a/clear", r#"{"state":"buried"}"#).1, "{\"deleted\":5}\n");
    assert_eq!(visited.post("/api/tubes/a/clear", "{}").1, "{\"deleted\":20}\n");
    assert_eq!(visited.post("/api/tubes/b/clear", "").1, "{\"deleted\":34}\n");
    assert_eq!(counts(&visited, "b"), [0, 0, 1, 0], "the reserved job must remain");
    visited.server.check();
}

#[test]
fn a_moved_job_is_the_same_job() {
    let visited = serve(|config| {
        config.max_job_size = 3 << 20;
        config.workq = vec![Address::Tcp(None, None)];
    });
    let mut client = visited.client();
    let id = client.put(&vec![b'x'; 2 << 20], 7, 0, 60).expect("a job");
    let held = client.reserve(Some(0)).expect("a reply").expect("a job");
    client.release(held.id, 7, 0).expect("the job is reserved");
    assert_eq!(
        visited.post("/api/tubes/default/move", r#"{"to":"b","state":"ready"}"#),
        (200, "{\"moved\":1}\n".into())
    );
    let moved = visited.get(&format!("/api/jobs/{id}"));
    assert_eq!((value(&moved, "tube"), value(&moved, "pri"), value(&moved, "releases")), ("\"b\"", "7", "1"));
    assert_eq!(value(&moved, "size"), (2 << 20).to_string());
    let address = visited.server.address_of(Wire::Workq).expect("an address");
    let mut workq = crate::visitor::Visitor::to(address);
    workq.send(b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 q 1000 60000 1\r\nx\r\n");
    wait_until("the queue exists", || visited.get("/api/tubes").contains("\"q\""));
    assert_eq!(visited.post("/api/tubes/q/move", r#"{"to":"b","state":"ready"}"#).1, "{\"moved\":1}\n");
    assert_eq!(counts(&visited, "b"), [2, 0, 0, 0]);
    visited.server.drain();
    assert_eq!(visited.post("/api/tubes/t/put", r#"{"body":"x"}"#).0, 503);
    visited.server.check();
}

#[test]
fn single_jobs_are_buried_kicked_and_deleted() {
    let visited = serve(|_| ());
    let mut client = visited.client();
    let id = client.put(b"x", 77, 0, 60).expect("a job");
    let job = format!("/api/jobs/{id}");
    assert_eq!(visited.post(&format!("{job}/bury"), "{}").0, 200);
    let found = visited.get(&job);
    assert_eq!((value(&found, "state"), value(&found, "pri"), value(&found, "buries")), ("\"buried\"", "77", "1"));
    assert_eq!(visited.post(&format!("{job}/kick"), "{}").0, 200);
    assert_eq!(visited.post(&format!("{job}/kick"), "{}").0, 404, "the job is ready");
    let held = client.reserve(Some(0)).expect("a reply").expect("a job");
    for verb in ["bury", "delete", "kick"] {
        assert_eq!(visited.post(&format!("{job}/{verb}"), "{}").0, 404, "the job is reserved: {verb}");
    }
    client.release(held.id, 0, 0).expect("the job is reserved");
    assert_eq!(visited.post(&format!("{job}/delete"), "{}").0, 200);
    assert_eq!(visited.visitor().get(&job).status, 404);
    visited.server.check();
}

#[test]
fn pages_of_lists_contain_everything_once() {
    let visited = serve(|config| config.turn_steps = 50);
    let mut client = visited.client();
    for tube in 0..150 {
        client.use_tube(&format!("tube{tube}")).expect("a tube");
        client.put(b"x", 0, 0, 60).expect("a job");
    }
    for _ in 0..399 {
        client.put(b"x", 0, 0, 60).expect("a job");
    }
    let pages = |path: &str, cursor: &str, name: &str| {
        let (mut next, mut found, mut pages) = ("0".to_owned(), Vec::new(), 0);
        while next != "null" {
            let page = visited.get(&format!("{path}{cursor}={next}"));
            found.extend(
                page.split(&format!("{{\"{name}\":"))
                    .skip(1)
                    .map(|rest| rest.split(',').next().expect("a value").to_owned()),
            );
            next = page.rsplit("\"next\":").next().expect("a cursor").trim_end_matches(['}', '\n']).to_owned();
            pages += 1;
        }
        let count = found.len();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), count, "{path}: an item appears twice");
        (count, pages)
    };
    let (count, number) = pages("/api/tubes?limit=20&", "after", "name");
    assert!(count == 151 && number > 3, "{count} tubes in {number} pages");
    let (count, number) = pages("/api/tubes/tube149/jobs?state=ready&", "from", "id");
    assert!(count == 400 && number > 2, "{count} jobs in {number} pages");
    assert_eq!(pages("/api/tubes/tube149/jobs?state=buried&", "from", "id"), (0, 1));
    assert_eq!(visited.get("/api/tubes?filter=tube14").matches("\"name\"").count(), 11);
    assert_eq!(visited.visitor().get("/api/tubes/none/jobs").status, 404);
}

#[test]
fn names_of_other_protocols_are_shown_and_found() {
    let visited = serve(|config| config.gearman = vec![Address::Tcp(None, None)]);
    let address = visited.server.address_of(Wire::Gearman).expect("an address");
    let mut gearman = crate::visitor::Visitor::to(address);
    for name in [b"a/\"b\xff".as_slice(), b"<i>".as_slice()] {
        let body = [name, b"\0\0x"].concat();
        gearman.send(&[b"\0REQ\0\0\0\x12", (body.len() as u32).to_be_bytes().as_slice(), &body].concat());
    }
    wait_until("the function exists", || visited.get("/api/tubes").contains("<i>"));
    let tubes = visited.get("/api/tubes");
    assert!(tubes.contains("\"name-base64\":\"YS8iYv8=\"") && tubes.contains("\"name\":\"<i>\""), "{tubes}");
    assert_eq!(counts(&visited, "a%2f%22b%FF"), [1, 0, 0, 0]);
    let metrics = visited.get("/metrics");
    assert!(metrics.contains(r#"beanpole_tube_jobs{tube="a/\"b\\xff",state="ready"} 1"#), "{metrics}");
    assert!(metrics.contains("gearman_jobs{function=\"<i>\"} 1\n") && metrics.contains("\ngearman_up 1\n"));
}

#[test]
fn operators_do_not_count_as_clients() {
    let visited = serve(|_| ());
    let mut client = visited.client();
    let mut visitors: Vec<_> = (0..3).map(|_| visited.visitor()).collect();
    visitors.iter_mut().for_each(|visitor| assert_eq!(visitor.post("/api/tubes/t/put", r#"{"body":""}"#).status, 200));
    for (key, wanted) in [("current-connections", "1"), ("total-connections", "1"), ("current-producers", "0")] {
        assert_eq!(client.figure("stats", key).expect("statistics"), wanted, "{key}");
    }
    let figures = visitors[0].get("/api/server").body;
    assert_eq!((value(&figures, "connections-http"), value(&figures, "connections-beanstalk")), ("3", "1"));
    assert!(!client.text("stats").expect("statistics").contains("http"));
}

#[test]
fn health_describes_the_problem() {
    let visited = serve(|_| ());
    assert_eq!(visited.get("/readyz"), "ok\n");
    visited.server.drain();
    let reply = visited.visitor().get("/readyz");
    assert!(reply.status == 503 && reply.body.contains("draining"), "{reply:?}");
    assert_eq!(visited.get("/healthz"), "ok\n");
    let full = serve(|config: &mut Config| config.max_memory = 1 << 20);
    let mut client = full.client();
    while client.put(&[b'x'; 20_000], 0, 0, 60).is_ok() {}
    while client.put(b"", 0, 0, 60).is_ok() {}
    assert_eq!(full.post("/api/tubes/t/put", r#"{"body":"x"}"#).0, 503);
    assert_eq!(full.visitor().get("/healthz").status, 200, "a full server is still healthy");
}

#[test]
fn connections_are_sorted_found_and_revoked() {
    let visited = serve(|_| ());
    let mut workers: Vec<_> = (0..60).map(|_| speak(&visited)).collect();
    for (number, worker) in workers.iter_mut().enumerate() {
        assert_eq!(worker(&format!("name worker-{number}")), "NAMED");
        for _ in 0..number % 4 {
            assert!(worker("put 0 0 60 1\r\nx").starts_with("INSERTED"));
            assert!(worker("reserve").starts_with("RESERVED"));
        }
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = visited.get(&format!("/api/connections?sort=jobs-held&order=desc&limit=25{after}"));
        assert_eq!(value(&page, "total"), "60");
        let objects = page.split("\n{").skip(1);
        seen.extend(objects.map(|it| value(it, "jobs-held").parse::<u64>().expect("a number")));
        match value(&page, "next") {
            "null" => break,
            mark => after = format!("&after={}", mark.trim_matches('"')),
        }
    }
    assert_eq!(seen, [3, 2, 1, 0].map(|held| [held; 15]).concat());
    let busy = visited.get("/api/connections?sort=job-age&order=desc&limit=45");
    assert_eq!(busy.matches("\"job\":").count(), 45, "connections without a job are last");
    visited.clock.advance(Duration::from_secs(9));
    let found = visited.get("/api/connections?filter=worker-59");
    assert_eq!((value(&found, "client"), value(&found, "state")), ("\"worker-59\"", "\"working\""));
    assert!(["8", "9", "10"].contains(&value(&found, "job-age")), "{found}");
    let job = value(&found, "job").to_owned();
    let shown = visited.get(&format!("/api/jobs/{job}"));
    assert_eq!(value(&shown, "holder"), value(&found, "number"));
    assert_eq!(visited.post(&format!("/api/jobs/{job}/revoke"), "{}"), (200, "{\"done\":true}\n".to_owned()));
    assert_eq!(visited.post(&format!("/api/jobs/{job}/revoke"), "{}").0, 404);
    assert_eq!(workers[59](&format!("delete {job}")), "NOT_FOUND");
    for wrong in ["sort=name", "sort=idle&order=up", "after=x", "limit=x"] {
        assert_eq!(visited.visitor().get(&format!("/api/connections?{wrong}")).status, 400, "{wrong}");
    }
}

#[test]
fn a_late_schedule_names_the_job_that_blocks_it() {
    let visited = serve(|_| ());
    let mut queue = speak(&visited);
    assert_eq!(queue("put 0 0 60 1 tub:t idp:nightly cron:@daily\r\nx"), "INSERTED 1 SCHEDULED");
    assert_eq!(queue("kick-job 1"), "KICKED");
    let schedule = visited.get("/api/schedules");
    assert!(!schedule.contains("blocked-by"), "{schedule}");
    assert_eq!(queue("kick-job 1"), "NOT_FOUND");
    let blocker = || {
        let schedule = visited.get("/api/schedules");
        [value(&schedule, "blocked-by"), value(&schedule, "blocked-by-state")].map(str::to_owned)
    };
    assert_eq!(blocker(), ["2", "\"ready\""]);
    assert!(queue("reserve-job 2").starts_with("RESERVED"));
    assert_eq!(queue("bury 2 0"), "BURIED");
    assert_eq!(blocker(), ["2", "\"buried\""]);
}

#[test]
fn the_history_has_pages_and_a_chart_of_the_last_hour() {
    let visited = serve(|config| config.history = 50);
    let mut queue = speak(&visited);
    let reason = "no such host\nand more";
    for number in 1..=60 {
        let tube = if number % 2 == 0 { "even" } else { "odd" };
        assert_eq!(queue(&format!("put 0 0 60 1 tub:{tube}\r\nx")), format!("INSERTED {number}"));
        queue(&format!("reserve-job {number}"));
        visited.clock.advance(Duration::from_millis(1500));
        match number % 3 {
            0 => assert_eq!(queue(&format!("fail {number} 0 {}\r\n{reason}", reason.len())), "BURIED"),
            _ => assert_eq!(queue(&format!("delete {number}")), "DELETED"),
        }
    }
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let page = visited.get(&format!("/api/history?limit=20{before}"));
        seen.extend(page.split("\n{").skip(1).map(|it| value(it, "id").parse::<u64>().expect("a number")));
        match value(&page, "next") {
            "null" => break,
            number => before = format!("&before={number}"),
        }
    }
    assert_eq!(seen, (11..=60).rev().collect::<Vec<_>>());
    let failed = visited.get("/api/history?tube=odd&failed=1&limit=1");
    assert_eq!((value(&failed, "id"), value(&failed, "verdict"), value(&failed, "tries")), ("57", "\"buried\"", "1"));
    // Durations have a precision of one millisecond.
    assert!(["1.499", "1.500", "1.501"].iter().any(|ran| value(&failed, "ran").starts_with(ran)), "{failed}");
    assert_eq!(value(&failed, "reason"), "\"no such host\\nand more\"");
    let found = |query: &str| visited.get(&format!("/api/history?{query}")).matches("\"id\"").count();
    assert_eq!(["id=57", "id=57&tube=even", "id=1", "filter=such", "filter=od"].map(found), [1, 0, 0, 17, 25]);
    assert_eq!(visited.get("/api/history?filter=none"), "{\"history\":[\n\n],\"next\":null}\n");
    let chart = visited.get("/api/overview");
    let sum = |key: &str| {
        let (_, rest) = chart.split_once(&format!("\"{key}\":[")).expect("points");
        let points = rest.split(']').next().expect("an end").split(',');
        points.map(|point| point.parse::<u64>().expect("a number")).collect::<Vec<_>>()
    };
    assert_eq!((sum("done").len(), sum("done").iter().sum::<u64>(), sum("failed").iter().sum::<u64>()), (240, 40, 20));
    // The intervals of a chart begin at multiples of 15 seconds, so a period of 85.5 seconds extends over six or seven
    // intervals.
    let used = sum("failed").iter().filter(|count| **count > 0).count();
    assert!((6..=7).contains(&used), "{chart}");
    assert!(!chart.contains("oldest-ready-tube"), "{chart}");
    queue("put 0 0 60 1 tub:late\r\nx");
    queue("put 0 0 60 1 tub:new\r\nx");
    assert_eq!(value(&visited.get("/api/overview"), "oldest-ready-tube"), "\"late\"");
    let none = serve(|config| config.history = 0);
    assert!(none.get("/api/overview").contains("\"seconds\":15,\"ready\":[],\"done\":[],\"failed\":[]"));
    assert_eq!(none.get("/api/history"), "{\"history\":[\n\n],\"next\":null}\n");
}

#[test]
fn tubes_are_sorted_over_all_pages() {
    let visited = serve(|_| ());
    let mut client = visited.client();
    for place in 0..120 {
        client.use_tube(&format!("tube-{place:03}")).expect("a tube");
        for _ in 0..place % 7 {
            client.put(b"x", 0, 0, 60).expect("a job");
        }
    }
    let mut seen = Vec::new();
    let mut path = "/api/tubes?sort=current-jobs-ready&order=desc&limit=25&filter=tube-".to_owned();
    loop {
        let page = visited.get(&path);
        assert_eq!(value(&page, "total"), "103");
        seen.extend(page.lines().filter(|line| line.contains("\"name\"")).map(|line| {
            (value(line, "current-jobs-ready").parse::<u64>().expect("a number"), value(line, "name").to_owned())
        }));
        match value(&page, "next") {
            "null" => break,
            next => path = format!("{}&after={}", path.split("&after").next().expect("a path"), next.trim_matches('"')),
        }
    }
    let mut sorted = seen.clone();
    sorted.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    sorted.dedup();
    assert_eq!((seen.len(), &seen), (103, &sorted));
    for wrong in ["sort=nothing", "sort=name&order=up", "sort=name&after=x", "sort=name&after=1-zz"] {
        assert_eq!(visited.visitor().get(&format!("/api/tubes?{wrong}")).status, 400, "{wrong}");
    }
}

#[test]
fn jobs_are_listed_by_state_a_page_at_a_time_and_found_by_id() {
    let visited = serve(|_| ());
    let mut client = visited.client();
    client.use_tube("mail").expect("a tube");
    for place in 0..25 {
        client
            .put(format!("body {place}").as_bytes(), 9 - place % 3, if place % 5 == 0 { 60 } else { 0 }, 60)
            .expect("a job");
    }
    let (mut ids, mut from) = (Vec::new(), "0".to_owned());
    while from != "null" {
        let page = visited.get(&format!("/api/tubes/mail/jobs?state=ready&limit=6&from={from}"));
        ids.extend(page.lines().filter(|line| line.contains("\"id\"")).map(|line| value(line, "id").to_owned()));
        from = value(&page, "next").to_owned();
    }
    let expected: Vec<String> = (1..=25).filter(|id| id % 5 != 1).map(|id| id.to_string()).collect();
    assert_eq!(ids, expected);
    assert_eq!(value(&visited.get("/api/jobs?id=7"), "body"), "\"body 6\"");
    assert_eq!(visited.get("/api/jobs?id=99"), "{\"jobs\":[\n\n],\"next\":null}\n");
    assert_eq!(visited.visitor().get("/api/jobs?id=x").status, 400);
}

/// Returns a function that sends a beanstalk command and returns the first line of the reply. The body of a job must
/// not contain line breaks.
fn speak(visited: &Visited) -> impl FnMut(&str) -> String {
    let mut queue = BufReader::new(TcpStream::connect(visited.server.address()).expect("a connection"));
    move |command: &str| {
        queue.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("a connection");
        let mut line = String::new();
        queue.read_line(&mut line).expect("a reply");
        if line.starts_with("RESERVED") {
            queue.read_line(&mut String::new()).expect("a body");
        }
        line.trim_end().to_owned()
    }
}

#[test]
fn failed_jobs_are_grouped_by_reason_and_handled_together() {
    let visited = serve(|_| ());
    let mut talk = speak(&visited);
    // In each tube, every third job fails because of a timeout, and the other jobs fail for another reason. A few jobs
    // are buried without a reason instead.
    for id in 1..=1800 {
        let tube = if id % 2 == 0 { "mail" } else { "web" };
        assert_eq!(talk(&format!("put 0 0 60 0 tub:{tube}\r\n")), format!("INSERTED {id}"));
        assert_eq!(talk(&format!("reserve-job {id}")), format!("RESERVED {id} 0"));
        let reason = if id % 3 == 0 { "timeout" } else { "no such host\nTraceback" };
        if id % 100 == 50 {
            assert_eq!(talk(&format!("bury {id} 0")), "BURIED");
        } else {
            assert_eq!(talk(&format!("fail {id} 0 {}\r\n{reason}", reason.len())), "BURIED");
        }
    }
    let groups = |filter: &str| {
        let page = visited.get(&format!("/api/failed?filter={filter}"));
        let lines = page.lines().filter(|line| line.contains("\"tube\""));
        let row = |line: &str| ["tube", "reason", "count", "newest"].map(|key| value(line, key).to_owned()).join(" ");
        lines.map(row).collect::<Vec<_>>()
    };
    let all = [
        r#""mail" "timeout" 294 1800"#,
        r#""web" "no such host" 600 1799"#,
        r#""mail" "no such host" 588 1798"#,
        r#""web" "timeout" 300 1797"#,
        r#""mail" "" 18 1750"#,
    ];
    assert_eq!(groups(""), all);
    assert_eq!(groups("we"), [all[1], all[3]]);
    assert_eq!(groups("such"), [all[1], all[2]]);
    let (mut ids, mut before) = (Vec::new(), u64::MAX.to_string());
    while before != "null" {
        let page = visited.get(&format!("/api/tubes/mail/failed?reason=no+such+host&limit=100&before={before}"));
        ids.extend(page.lines().filter(|line| line.contains("\"id\"")).map(|line| value(line, "id").to_owned()));
        before = value(&page, "next").to_owned();
    }
    let of_mail = |id: &u64| id % 2 == 0 && id % 3 != 0 && id % 100 != 50;
    let expected: Vec<String> = (1..=1800).rev().filter(of_mail).map(|id: u64| id.to_string()).collect();
    assert_eq!(ids, expected);
    let act = |path: &str, body: &str| visited.post(path, body).1;
    assert_eq!(act("/api/tubes/mail/failed/kick", r#"{"reason":"timeout"}"#), "{\"kicked\":294}\n");
    assert_eq!(act("/api/tubes/mail/failed/delete", r#"{"reason":""}"#), "{\"deleted\":18}\n");
    let moved = act("/api/tubes/mail/failed/move", r#"{"reason":"no such host","to":"later"}"#);
    assert_eq!(moved, "{\"moved\":588}\n");
    assert_eq!(act("/api/jobs/1799/move", r#"{"to":"later"}"#), "{\"done\":true}\n");
    assert_eq!(visited.post("/api/jobs/1800/move", r#"{"to":"later"}"#).0, 404, "the job is ready");
    assert_eq!(act("/api/tubes/web/failed/delete", "{}"), "{\"deleted\":899}\n");
    assert_eq!(groups(""), [r#""later" "no such host" 589 1799"#]);
    assert_eq!(visited.post("/api/tubes/later/failed/move", r#"{"to":"later"}"#).0, 400);
}

#[test]
fn tubes_with_names_of_gearman_functions_can_be_changed() {
    let visited = serve(|_| ());
    let mut talk = speak(&visited);
    for (path, name) in [("My%3A%3AFunc", r#""My::Func""#), ("two%20%ff", r#""two \xff""#), ("-x", r#""-x""#)] {
        assert_eq!(visited.post(&format!("/api/tubes/{path}/put"), r#"{"body":"x"}"#).0, 200, "{name}");
        assert_eq!(visited.post(&format!("/api/tubes/{path}/settings"), r#"{"settings":"max:3"}"#).0, 200, "{name}");
        assert_eq!(talk(&format!("pause-tube {name} 0")), "PAUSED");
    }
    for (to, status) in [(r"My::Func\u0041", 200), (r"a\u0000b", 400), ("", 400), (&"x".repeat(513), 400)] {
        let body = format!(r#"{{"to":"{to}","state":"ready"}}"#);
        assert_eq!(visited.post("/api/tubes/My%3A%3AFunc/move", &body).0, status, "{to}");
    }
    assert_eq!(talk(r#"pause-tube "My::FuncA" 0"#), "PAUSED");
    assert_eq!(visited.post("/api/tubes/a%00b/put", r#"{"body":"x"}"#).0, 400);
    assert_eq!(visited.post("/api/tubes/t/settings", r#"{"settings":"dead:\"a\\x00b\""}"#).0, 400);
}

#[test]
fn a_job_is_put_with_tags() {
    let visited = serve(|_| ());
    let put = |tags: &str| visited.post("/api/tubes/mail/put", &format!(r#"{{"body":"x","tags":"{tags}"}}"#));
    assert_eq!(put("idp:a:60 ttl:90 con:web:2 try:3"), (200, "{\"id\":1}\n".to_owned()));
    assert_eq!(put("idp:a"), (200, "{\"id\":1,\"duplicate-of\":\"ready\"}\n".to_owned()));
    assert_eq!(put(""), (200, "{\"id\":2}\n".to_owned()));
    for wrong in ["tub:other", "ttl:0", "foo", "idp:a idp:b", " "] {
        assert_eq!(put(wrong).0, 400, "{wrong:?}");
    }
    let shown = visited.get("/api/jobs/1");
    for (key, found) in
        [("idempotency-key", "\"a\""), ("idempotency-ttl", "60"), ("concurrency-key", "\"web\""), ("tries-left", "3")]
    {
        assert_eq!(value(&shown, key), found);
    }
    assert!(value(&shown, "expires-in").parse::<u32>().is_ok_and(|left| left <= 90), "{shown}");
    assert_eq!(speak(&visited)("delete 1"), "DELETED");
    assert_eq!(put("idp:a"), (200, "{\"id\":1,\"duplicate-of\":\"deleted\"}\n".to_owned()));
    assert_eq!(put("grp:parts"), (200, "{\"id\":3}\n".to_owned()));
    assert_eq!(put("aft:parts grp:whole"), (200, "{\"id\":4}\n".to_owned()));
    let held = visited.get("/api/jobs/4");
    for (key, found) in [("state", "\"held\""), ("group", "\"whole\""), ("after-group", "\"parts\"")] {
        assert_eq!(value(&held, key), found);
    }
    assert_eq!(put("aft:parts grp:parts").0, 400);
    assert_eq!(put("idp:report every:300 grp:runs"), (200, "{\"id\":5}\n".to_owned()));
    assert_eq!(put("idp:report cron:@hourly"), (200, "{\"id\":5,\"replaced\":true}\n".to_owned()));
    let schedule = visited.get("/api/jobs/5");
    let found = [("state", "\"scheduled\""), ("cron", "\"@hourly\""), ("runs", "0"), ("idempotency-key", "\"report\"")];
    for (key, found) in found {
        assert_eq!(value(&schedule, key), found);
    }
    assert_eq!(visited.get("/api/tubes/mail/jobs?state=scheduled").matches("\"id\"").count(), 1);
    assert_eq!(visited.post("/api/jobs/5/kick", "{}").0, 200);
    assert_eq!(value(&visited.get("/api/jobs/6"), "idempotency-key"), "\"report\"");
    assert_eq!(visited.post("/api/jobs/5/kick", "{}").0, 404, "its copy still exists");
    assert_eq!(put("cron:@daily").0, 400);
}

#[test]
fn settings_are_changed_and_failures_shown() {
    let visited = serve(|_| ());
    let set = |settings: &str| visited.post("/api/tubes/mail/settings", &format!("{{\"settings\":\"{settings}\"}}"));
    assert_eq!(set("try:1 dead:mail-dead max:3"), (200, "{\"done\":true}\n".to_owned()));
    assert_eq!(value(&visited.get("/api/tubes/mail"), "settings"), "\"try:1 dead:mail-dead max:3\"");
    assert_eq!(set("try:0").0, 400);
    assert_eq!(set("dead:mail").0, 409);
    assert_eq!(set("try:1 ttl:60 dead:mail-dead max:3 rate:9/2 limit:8:7:6").0, 200);
    let settings = "\"try:1 ttl:60 dead:mail-dead max:3 rate:9/2 limit:8:7:6\"";
    assert_eq!(value(&visited.get("/api/tubes/mail"), "settings"), settings);
    let mut talk = speak(&visited);
    assert_eq!(talk("put 0 0 60 1 tub:mail\r\nx"), "INSERTED 1");
    assert_eq!(talk("reserve-job 1"), "RESERVED 1 1");
    assert_eq!(talk("fail 1 0 12\r\nno such host"), "BURIED");
    let job = visited.get("/api/jobs/1");
    for (key, found) in
        [("tube", "\"mail-dead\""), ("fails", "1"), ("dead-from", "\"mail\""), ("last-error", "\"no such host\"")]
    {
        assert_eq!(value(&job, key), found);
    }
    assert_eq!(set("").0, 200);
    assert_eq!(visited.visitor().get("/api/tubes/mail").status, 404, "an unused tube must not exist");
}
