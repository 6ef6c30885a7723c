//! Tests the metrics for Prometheus.

use std::collections::BTreeMap;
use std::time::Duration;

use beanpole::internals::protocol::http::metrics;
use beanpole::internals::protocol::Wire;
use beanpole::{Address, Server};

use crate::visitor::serve;

/// Checks the syntax of a metrics page, and returns the samples by name and labels.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let (mut found, mut family, mut seen) = (BTreeMap::new(), "", Vec::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().expect("a name");
            assert!(!seen.contains(&family), "the samples of {family} are not contiguous");
            seen.push(family);
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            assert!(name.starts_with(family), "{name} in {family}");
            assert!(found.insert(name, value.parse().expect("a number")).is_none(), "{name} appears twice");
        }
    }
    found
}

#[test]
fn the_metrics_are_those_of_the_table() {
    let visited = serve(|config| config.gearman = vec![Address::Tcp(None, None)]);
    let text = visited.get("/metrics");
    samples(&text);
    let types: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let alone = metrics().filter(|metric| !metric.shared);
    let wanted: Vec<String> = alone.map(|metric| format!("{} {}", metric.name, metric.kind)).collect();
    assert_eq!(types[..types.len() - 1], wanted, "only gearman_up may follow the metrics of the table");
    assert!(text.ends_with("gearman_up 1\n"));
    assert!(!serve(|_| ()).get("/metrics").contains("\ngearman"));
}

#[test]
fn histograms_count_each_wait_and_each_run_in_its_bucket() {
    let visited = serve(|_| ());
    let mut client = visited.client();
    let pass = |seconds| visited.clock.advance(Duration::from_secs(seconds));
    // The job becomes ready after 10 s, is reserved 14 s later, and is deleted 3 s after it was last touched.
    let late = client.put(b"x", 0, 10, 60).expect("a job");
    pass(24);
    assert_eq!(client.reserve(Some(0)).expect("a reply").expect("a job").id, late);
    pass(5);
    client.touch(late).expect("the job is reserved");
    pass(3);
    client.delete(late).expect("the job is reserved");
    // A job's wait time is recorded only when the job is reserved for the first time, and is not recorded at all if the
    // job was kicked before. The run time is not recorded if another client deletes the job.
    let twice = client.put(b"x", 0, 0, 60).expect("a job");
    client.reserve(Some(0)).expect("a reply").expect("a job");
    client.release(twice, 0, 0).expect("the job is reserved");
    pass(100);
    client.reserve(Some(0)).expect("a reply").expect("a job");
    client.bury(twice, 0).expect("the job is reserved");
    client.delete(twice).expect("the job is buried");
    let kicked = client.put(b"x", 0, 1000, 60).expect("a job");
    client.kick_job(kicked).expect("the job is delayed");
    client.reserve(Some(0)).expect("a reply").expect("a job");
    let text = visited.get("/metrics");
    let found = samples(&text);
    let of = |name: &str| found[name];
    assert_eq!(of("beanpole_job_wait_seconds_count"), 2.0);
    assert_eq!(of("beanpole_job_wait_seconds_sum"), 14.0);
    assert_eq!(of("beanpole_job_wait_seconds_bucket{le=\"5\"}"), 1.0);
    assert_eq!(of("beanpole_job_wait_seconds_bucket{le=\"15\"}"), 2.0);
    assert_eq!(of("beanpole_job_wait_seconds_bucket{le=\"+Inf\"}"), 2.0);
    assert_eq!((of("beanpole_job_run_seconds_count"), of("beanpole_job_run_seconds_sum")), (1.0, 3.0));
    // The tube's metrics must contain the same values.
    assert_eq!(of("beanpole_tube_job_wait_seconds_count{tube=\"default\"}"), 2.0);
    assert_eq!(of("beanpole_tube_job_wait_seconds_sum{tube=\"default\"}"), 14.0);
    assert_eq!(of("beanpole_tube_job_wait_seconds_bucket{tube=\"default\",le=\"+Inf\"}"), 2.0);
    assert_eq!(of("beanpole_tube_job_run_seconds_sum{tube=\"default\"}"), 3.0);
    assert!(of("beanpole_turn_seconds_count") > 10.0);
    assert!(!found.contains_key("beanpole_binlog_sync_seconds_count"), "there is no binlog");
}

#[test]
fn syncs_and_the_binlog_are_reported() {
    let folder = std::env::temp_dir().join(format!("beanpole-http-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new directory");
    let visited = {
        let mut config = beanpole::Config::embedded().with(|config| config.http = vec![Address::Tcp(None, None)]);
        config.log_folder = Some(folder.clone());
        config.log.mode = beanpole::internals::binlog::SyncMode::Always;
        Server::with(config).expect("a server")
    };
    let mut client = beanpole::Client::connect(visited.address()).expect("a connection");
    client.put(b"x", 0, 0, 60).expect("a job");
    let address = visited.address_of(beanpole::internals::protocol::Wire::Http).expect("an address");
    let text = crate::visitor::Visitor::to(address).get("/metrics").body;
    let found = samples(&text);
    assert!(found["beanpole_binlog_sync_seconds_count"] >= 1.0, "a reply was sent, so the log must have been synced");
    assert_eq!(found["beanpole_binlog_up"], 1.0);
    assert!(found["beanpole_binlog_records_total{kind=\"written\"}"] >= 1.0);
    assert!(found["process_resident_memory_bytes"] > 1e6 && found["beanpole_binlog_bytes"] > 0.0);
    drop(visited);
    std::fs::remove_dir_all(folder).expect("a directory");
}

#[test]
fn commands_of_all_protocols_are_counted() {
    let visited = serve(|config| {
        config.gearman = vec![Address::Tcp(None, None)];
        config.workq = vec![Address::Tcp(None, None)];
    });
    let mut client = visited.client();
    client.put(b"x", 0, 0, 60).expect("a job");
    assert!(client.text("frobnicate").is_err());
    let requests = |protocol: &str, command: &str| {
        let text = visited.get("/metrics");
        let name = format!("beanpole_commands_total{{protocol=\"{protocol}\",command=\"{command}\"}}");
        samples(&text).get(&*name).copied()
    };
    assert_eq!((requests("beanstalk", "put"), requests("beanstalk", "reserve")), (Some(1.0), Some(0.0)));
    assert_eq!(
        (requests("workq", "add"), requests("gearman", "JOB_CREATED")),
        (Some(0.0), None),
        "JOB_CREATED is not a request"
    );
    assert_eq!(requests("http", "metrics"), Some(5.0));
    let submit: &[u8] = b"\0REQ\0\0\0\x12\0\0\0\x04f\0u\0";
    for (wire, request, command) in [
        (Wire::Gearman, &b"nonsense\nVersion\n"[..], "version"),
        (Wire::Gearman, submit, "SUBMIT_JOB_BG"),
        (Wire::Gearman, b"show jobs\n", "show jobs"),
        (Wire::Workq, b"inspect\r\ninspect server\r\n", "inspect server"),
    ] {
        let mut visitor = crate::visitor::Visitor::to(visited.server.address_of(wire).expect("an address"));
        visitor.send(request);
        let counted = (0..10_000).any(|_| requests(wire.name(), command) == Some(1.0));
        assert!(counted, "{command}");
    }
    // Metrics of disabled protocols must not exist.
    assert!(!serve(|_| ()).get("/metrics").contains("protocol=\"workq\",command"));
}

#[test]
fn ages_events_and_limits_are_reported() {
    let visited = serve(|_| ());
    let mut client = visited.client();
    let pass = |seconds| visited.clock.advance(Duration::from_secs(seconds));
    client.use_tube("mail").expect("a tube");
    client.watch("mail").expect("a tube");
    let buried = client.put(b"x", 0, 0, 60).expect("a job");
    pass(10);
    client.put(b"x", 5, 0, 60).expect("a job");
    pass(5);
    client.put(b"x", 1, 0, 60).expect("a job");
    client.reserve(Some(0)).expect("a reply").expect("a job");
    client.release(buried, 0, 0).expect("the job is reserved");
    client.reserve(Some(0)).expect("a reply").expect("a job");
    pass(60);
    client.reserve(Some(0)).expect("a reply").expect("a job");
    client.bury(buried, 0).expect("the job is reserved");
    let tags = beanpole::PutTags::default().with(|tags| tags.ttl = Some(1));
    client.put_tagged(b"x", 0, 0, 60, &tags).expect("a job");
    let tags = beanpole::PutTags::default().with(|tags| {
        (tags.unique, tags.every, tags.tube) = (Some(("s".to_owned(), 0)), Some(1), Some("scheduled".to_owned()));
    });
    assert!(matches!(client.put_tagged(b"x", 0, 0, 60, &tags), Ok(beanpole::PutResult::New(_))));
    pass(1);
    pass(1);
    let text = visited.get("/metrics");
    let found = samples(&text);
    for (name, value) in [
        ("beanpole_oldest_job_age_seconds{state=\"ready\"}", 67.0),
        ("beanpole_oldest_job_age_seconds{state=\"buried\"}", 77.0),
        ("beanpole_tube_oldest_job_age_seconds{tube=\"mail\",state=\"ready\"}", 67.0),
        ("beanpole_tube_oldest_job_age_seconds{tube=\"mail\",state=\"buried\"}", 77.0),
        ("beanpole_tube_oldest_job_age_seconds{tube=\"default\",state=\"ready\"}", 0.0),
        ("beanpole_tube_timeouts_total{tube=\"mail\"}", 1.0),
        ("beanpole_tube_releases_total{tube=\"mail\"}", 1.0),
        ("beanpole_tube_buries_total{tube=\"mail\"}", 1.0),
        ("beanpole_jobs_expired_total", 1.0),
        ("beanpole_schedule_runs_total", 1.0),
        ("beanpole_schedule_skips_total", 1.0),
        ("beanpole_schedule_delay_seconds", 0.0),
        ("beanpole_jobs{state=\"scheduled\"}", 1.0),
        ("beanpole_auth_failures_total", 0.0),
        ("beanpole_binlog_skipped_records", 0.0),
        ("beanpole_connections_dropped_total", 0.0),
    ] {
        assert_eq!(found.get(name), Some(&value), "{name}");
    }
    assert!(found["process_open_fds"] > 3.0 && found["process_max_fds"] >= found["process_open_fds"]);
    assert!(found["beanpole_connections_limit"] >= 1.0);
    for (key, value) in [("oldest-ready-age", "67"), ("timeouts", "1"), ("releases", "1"), ("buries", "1")] {
        assert_eq!(client.figure("stats-tube mail", key).expect("a figure"), value, "{key}");
    }
}

#[test]
fn a_buried_job_is_reported_among_very_many_tubes() {
    let visited = serve(|config| {
        config.protocols.http.metrics_tubes = 20;
        config.turn_steps = 100;
    });
    let mut client = visited.client();
    for tube in 0..2000 {
        client.watch(&format!("t{tube}")).expect("a tube");
    }
    for tube in [1700, 1990] {
        client.use_tube(&format!("t{tube}")).expect("a tube");
        client.put(b"x", 0, 0, 60).expect("a job");
    }
    let buried = client.reserve(Some(0)).expect("a reply").expect("a job");
    client.bury(buried.id, 0).expect("the job is reserved");
    let has =
        |path: &str, tube: &str| visited.get(path).contains(&format!("beanpole_tube_jobs_total{{tube=\"{tube}\"}}"));
    let text = visited.get("/metrics");
    let found = samples(&text);
    let counts = |state: &str| {
        let state = format!("state=\"{state}\"");
        let of_tube = |name: &str| name.starts_with("beanpole_tube_jobs{") && name.contains(&state);
        found.iter().filter(|(name, _)| of_tube(name)).map(|(_, count)| *count).sum::<f64>()
    };
    assert_eq!((counts("buried"), counts("ready")), (1.0, 1.0), "tubes with jobs come first");
    assert_eq!(found["beanpole_tubes_omitted"], 2001.0 - 20.0);
    // The metrics must contain only the tubes that match the filter.
    assert!(has("/metrics?filter=t199", "t1990") && has("/metrics?filter=t199", "t199"));
    assert!(!has("/metrics?filter=t199", "t1700") && has("/metrics?filter=1999", "t1999"));
    assert!(has("/metrics?state=buried", "t1700") != has("/metrics?state=buried", "t1990"));
    assert!(has("/metrics?state=ready", "t1700") != has("/metrics?state=ready", "t1990"));
    assert!(visited.get("/metrics?filter=t19").contains("\nbeanpole_tubes_omitted 91\n"));
    assert!(visited.get("/metrics?state=delayed").contains("\nbeanpole_tubes_omitted 0\n"));
    assert_eq!(visited.visitor().get("/metrics?state=lost").status, 400);
}

#[test]
fn some_of_very_many_tubes_are_omitted_unless_requested() {
    let visited = serve(|config| {
        config.protocols.http.metrics_tubes = 300;
        config.turn_steps = 100;
    });
    let mut client = visited.client();
    for tube in 0..2000 {
        client.use_tube(&format!("t{tube}")).expect("a tube");
        client.put(b"x", 0, 0, 60).expect("a job");
    }
    let text = visited.get("/metrics");
    let found = samples(&text);
    let shown = found.keys().filter(|name| name.starts_with("beanpole_tube_jobs_total{")).count();
    assert_eq!((shown, found["beanpole_tubes_omitted"]), (300, 1701.0));
    assert_eq!(samples(&visited.get("/metrics?tube=t1999"))["beanpole_tube_jobs{tube=\"t1999\",state=\"ready\"}"], 1.0);
    assert_eq!(visited.visitor().get("/metrics?tube=none").status, 404);
    // While the server generates the long page of all tubes, it must serve other clients.
    let all = serve(|config| {
        config.protocols.http.metrics_tubes = 1_000_000;
        config.turn_steps = 100;
    });
    let mut client = all.client();
    for tube in 0..3000 {
        client.use_tube(&format!("t{tube}")).expect("a tube");
        client.put(b"x", 0, 0, 60).expect("a job");
    }
    let mut visitor = all.visitor();
    visitor.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for _ in 0..500 {
        client.put(b"y", 0, 0, 60).expect("a job");
    }
    let text = visitor.reply().body;
    let found = samples(&text);
    assert_eq!(found["beanpole_tubes_omitted"], 0.0);
    assert_eq!(found.keys().filter(|name| name.starts_with("beanpole_tube_waiting{")).count(), 3001);
}
