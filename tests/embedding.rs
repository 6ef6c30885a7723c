//! Tests the library as other programs use it: an embedded queue, its client, and the manual clock.
//!
//! Owns the tests of the promises in the crate's documentation. Must not test replies in detail, because
//! `tests/conversations` tests them.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use beanpole::{
    Address, Client, ClientError, Config, Extensions, HttpSettings, JobState, JobTotals, PutResult, PutTags, Server,
    WaitResult, Wire,
};

fn socket(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("beanpole-embedding-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn hour() -> Duration {
    Duration::from_secs(3600)
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(result: Result<T, ClientError>, with: &str) {
    match result {
        Err(ClientError::Refused(reply)) => assert_eq!(reply, with),
        other => panic!("{other:?} instead of {with}"),
    }
}

#[test]
fn the_client_has_all_commands() {
    let server = Server::start().unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    client.use_tube("mail").unwrap();
    assert_eq!(client.watch("mail").unwrap(), 2);
    assert_eq!(client.ignore("default").unwrap(), 1);
    is_refused(client.ignore("mail"), "NOT_IGNORED");
    let late = client.put(b"late", 0, 3600, 60).unwrap();
    let id = client.put(b"CR LF\r\ninside", 5, 0, 60).unwrap();
    assert_eq!((client.peek_ready().unwrap().id, client.peek_delayed().unwrap().id), (id, late));
    is_refused(client.peek_buried(), "NOT_FOUND");
    let job = client.reserve(None).unwrap().expect("the job");
    assert_eq!((job.id, job.body.as_slice()), (id, b"CR LF\r\ninside".as_slice()));
    client.touch(id).unwrap();
    client.release(id, 3, 0).unwrap();
    assert_eq!(client.reserve_job(id).unwrap(), job);
    client.bury(id, 1).unwrap();
    assert_eq!(client.peek_buried().unwrap(), job);
    assert_eq!(client.kick(10).unwrap(), 1);
    client.kick_job(late).unwrap();
    is_refused(client.kick_job(late), "NOT_FOUND");
    client.pause_tube("mail", 60).unwrap();
    assert_eq!(client.reserve(Some(0)).unwrap(), None);
    assert_eq!(client.figure("stats-tube mail", "current-jobs-ready").unwrap(), "2");
    assert_eq!(client.text("list-tubes-watched").unwrap(), "---\n- mail\n");
    client.delete(id).unwrap();
    is_refused(client.peek(id), "NOT_FOUND");
    is_refused(client.put(&[0; 70_000], 0, 0, 60), "JOB_TOO_BIG");
    server.drain();
    is_refused(client.put(b"", 0, 0, 60), "DRAINING");
    server.check();
}

/// Names can come from users. A name must not be able to end its command or to add arguments.
#[test]
fn names_cannot_inject_commands() {
    let server = Server::start().unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    let kept = client.put(b"kept", 0, 0, 60).unwrap();
    let is_invalid = |result: Result<(), ClientError>| assert!(matches!(result, Err(ClientError::Invalid(_))));
    let two_commands = [format!("mail\r\ndelete {kept}"), format!("mail\ndelete {kept}")];
    for name in two_commands.iter().map(String::as_str).chain(["mail 5", "", "\"mail\" 5", "\"mail\\\" 5"]) {
        is_invalid(client.use_tube(name));
        is_invalid(client.watch(name).map(drop));
        is_invalid(client.watch_weighted(name, 1).map(drop));
        is_invalid(client.ignore(name).map(drop));
        is_invalid(client.pause_tube(name, 1));
        is_invalid(client.flush_tube(name).map(drop));
        is_invalid(client.flush_buried(name).map(drop));
        is_invalid(client.limit_tube(name, 1));
        is_invalid(client.move_job(kept, name, 0, 0));
        is_invalid(client.move_tube(name, "b", "ready", 1).map(drop));
        is_invalid(client.move_tube("a", name, "ready", 1).map(drop));
        is_invalid(client.move_tube("a", "b", name, 1).map(drop));
        is_invalid(client.list_jobs(name, "ready", 0, 1).map(drop));
        is_invalid(client.list_jobs("default", name, 0, 1).map(drop));
        let changes: [fn(&mut PutTags, String); 5] = [
            |tags, name| tags.groups = vec![name],
            |tags, name| tags.after = vec![(name, None)],
            |tags, name| tags.tube = Some(name),
            |tags, name| tags.unique = Some((name, 1)),
            |tags, name| tags.concurrency = Some((name, 1)),
        ];
        for change in changes {
            let tags = PutTags::default().with(|tags| change(tags, name.to_owned()));
            is_invalid(client.put_tagged(b"x", 0, 0, 60, &tags).map(drop));
        }
    }
    let cron = PutTags::default().with(|tags| tags.cron = Some("* * * * *\" idp:x".to_owned()));
    is_invalid(client.put_tagged(b"x", 0, 0, 60, &cron).map(drop));
    is_invalid(client.set_tube("t", &format!("max:1\r\ndelete {kept}")));
    is_invalid(client.authenticate(format!("token\r\ndelete {kept}").as_bytes()));
    is_invalid(client.text(&format!("stats\r\ndelete {kept}")).map(drop));
    is_invalid(client.figure(&format!("stats\ndelete {kept}"), "pid").map(drop));
    // The client has not sent any part of the invalid commands, so later replies still match their commands.
    assert_eq!(client.peek(kept).unwrap().body, b"kept");
    assert_eq!(client.delete_batch(&[]).unwrap(), 0);
    assert_eq!(client.figure("stats", "cmd-delete").unwrap(), "0");
    client.use_tube("\"two words\"").unwrap();
}

#[test]
fn the_client_has_all_extensions() {
    let server = Server::start().unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    let words = client.extensions().unwrap();
    assert!(["idp", "quote", "export"].into_iter().all(|known| words.iter().any(|word| word == known)), "{words:?}");
    let tags = PutTags::default().with(|tags| {
        tags.unique = Some(("k".to_owned(), 60));
        tags.tube = Some("mail".to_owned());
        tags.tries = Some((1, 5));
        tags.ttl = Some(1000);
        tags.concurrency = Some(("c".to_owned(), 1));
    });
    let duplicate = |id, state: &str| PutResult::Duplicate { id, state: state.to_owned() };
    assert_eq!(client.put_tagged(b"one", 9, 0, 60, &tags).unwrap(), PutResult::New(1));
    assert_eq!(client.put_tagged(b"two", 5, 0, 60, &tags).unwrap(), duplicate(1, "READY"));
    assert_eq!(
        client.put_tagged(b"two", 5, 0, 60, &tags.clone().with(|tags| tags.unique = None)).unwrap(),
        PutResult::New(2)
    );
    assert_eq!(client.put_tagged(b"three", 5, 0, 60, &PutTags::default()).unwrap(), PutResult::New(3));
    assert_eq!(client.watch_weighted("mail", 9999).unwrap(), 2);
    // Two of the jobs share a concurrency limit of 1, so only one of them can be reserved.
    let jobs = client.reserve_batch(10, Some(1)).unwrap();
    let mut ids: Vec<u64> = jobs.iter().map(|job| job.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 3]);
    assert_eq!(client.reserve_batch(10, None).unwrap(), []);
    assert_eq!(client.touch_all().unwrap(), 2);
    client.use_tube("mail").unwrap();
    assert_eq!(client.peek_reserved().unwrap().body, b"one");
    assert_eq!(client.list_jobs("mail", "reserved", 0, 1000).unwrap(), [1]);
    assert_eq!(client.list_jobs("mail", "ready", 1, 1).unwrap(), [2]);
    assert_eq!(client.delete_batch(&[1, 1, 3]).unwrap(), 2);
    assert_eq!(client.put_tagged(b"four", 5, 0, 60, &tags).unwrap(), duplicate(1, "DELETED"));
    client.move_job(2, "other", 3, 0).unwrap();
    is_refused(client.move_job(9, "other", 3, 0), "NOT_FOUND");
    assert_eq!(client.move_tube("other", "mail", "ready", 10).unwrap(), 1);
    assert_eq!(client.wait(2, 0).unwrap(), WaitResult::TimedOut);
    client.reserve_job(2).unwrap();
    client.bury(2, 0).unwrap();
    assert_eq!(client.wait(2, 10).unwrap(), WaitResult::Buried);
    is_refused(client.wait(9, 0), "NOT_FOUND");
    client.limit_tube("mail", 1).unwrap();
    client.put(b"five", 0, 0, 60).unwrap();
    is_refused(client.put(b"six", 0, 0, 60), "TUBE_FULL");
    let mut other = Client::connect(server.address()).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.wait(4, 3600));
        while client.figure("stats", "cmd-wait").unwrap() != "4" {
            std::thread::yield_now();
        }
        client.delete(4).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), WaitResult::Deleted);
    });
    assert_eq!((client.flush_buried("mail").unwrap(), client.flush_tube("mail").unwrap()), (1, 0));
    client.drain(true).unwrap();
    is_refused(client.put(b"", 0, 0, 60), "DRAINING");
    client.drain(false).unwrap();
    client.put(b"", 0, 0, 60).unwrap();
    server.check();
}

#[test]
fn the_client_reports_failures() {
    let server = Server::start().unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    is_refused(client.set_tube("default", "try:0"), "BAD_FORMAT");
    client.set_tube("default", "try:2:10").unwrap();
    client.put(b"retried", 0, 0, 60).unwrap();
    let once = PutTags::default().with(|tags| tags.tries = Some((1, 0)));
    client.put_tagged(b"tried once", 0, 0, 60, &once).unwrap();
    assert_eq!(client.reserve(Some(0)).unwrap().unwrap().id, 1);
    assert!(matches!(client.fail(1, 0, b"no such address").unwrap(), Some(10..=11)));
    assert_eq!(client.figure("stats-job 1", "last-error").unwrap(), "\"no such address\"");
    assert_eq!(client.reserve(Some(0)).unwrap().unwrap().id, 2);
    assert_eq!(client.fail(2, 0, b"").unwrap(), None);
    is_refused(client.fail(2, 0, b"").map(drop), "NOT_FOUND");
}

#[test]
fn dropping_a_server_closes_its_connections_and_port() {
    // Uses an address that no other process uses. On a shared address, a parallel test could take the port.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let host = Some(format!("127.90.{high}.{low}"));
    let config = |port| Config::embedded().with(|config| config.listen = vec![Address::Tcp(host.clone(), port)]);
    let server = Server::with(config(None)).unwrap();
    let address = server.address();
    let mut client = Client::connect(address).unwrap();
    client.put(b"x", 0, 0, 60).unwrap();
    drop(server);
    assert!(matches!(client.reserve(Some(0)), Err(ClientError::Io(_))));
    let refused = Client::connect(address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // The first server's connections in the state TIME_WAIT must not prevent the second server from using the port.
    let server = Server::with(config(Some(address.port()))).unwrap();
    assert_eq!(Client::connect(address).unwrap().reserve(Some(0)).unwrap(), None, "the second queue must be empty");
    drop(server);
    drop(TcpListener::bind(address).unwrap());
}

/// Two servers run in the test process. A client sends `shutdown` to one of them.
#[test]
fn a_client_shuts_down_only_its_server() {
    for command in [&b"shutdown\n"[..], b"shutdown graceful\n"] {
        let mut config = Config::embedded().with(|config| config.gearman = vec![Address::Tcp(None, None)]);
        config.protocols.allow_shutdown = true;
        let (server, other) = (Server::with(config).unwrap(), Server::start().unwrap());
        let mut client = Client::connect(server.address()).unwrap();
        assert!(client.reserve(Some(0)).unwrap().is_none() && !server.is_stopped());
        let gearman = server.address_of(Wire::Gearman).expect("an address for Gearman");
        let mut admin = TcpStream::connect(gearman).unwrap();
        admin.write_all(command).unwrap();
        let mut answer = String::new();
        admin.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "OK\n");
        server.wait();
        assert!(server.is_stopped());
        assert!(matches!(client.reserve(Some(0)), Err(ClientError::Io(_))), "the connection must be closed");
        assert_eq!(Client::connect(server.address()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(TcpStream::connect(gearman).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(Client::connect(other.address()).unwrap().put(b"x", 0, 0, 60).unwrap(), 1);
        assert!(!other.is_stopped());
        // Stopping a stopped server must have no effect.
        server.stop();
    }
}

#[test]
fn a_server_can_be_stopped_and_waited_for() {
    let server = Server::start().unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    client.put(b"x", 0, 0, 60).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| server.wait());
        server.stop();
        waits.join().unwrap();
    });
    assert!(server.is_stopped() && client.reserve(Some(0)).is_err());
}

/// The server waits a second for its clients.
#[test]
fn a_stopped_server_sends_the_rest_of_a_large_reply() {
    const SIZE: usize = 60 << 20;
    let server = Server::with(Config::embedded().with(|config| config.max_job_size = SIZE as u32)).unwrap();
    Client::connect(server.address()).unwrap().put(&vec![b'x'; SIZE], 0, 0, 60).unwrap();
    let mut reader = TcpStream::connect(server.address()).unwrap();
    reader.write_all(b"peek 1\r\n").unwrap();
    let mut reply = vec![0; 1 << 20];
    reader.read_exact(&mut reply).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| server.stop());
        reader.read_to_end(&mut reply).unwrap();
    });
    assert_eq!(reply.len(), format!("FOUND 1 {SIZE}\r\n").len() + SIZE + 2);
}

#[test]
fn two_servers_are_two_queues() {
    let (first, second) = (Server::start().unwrap(), Server::start().unwrap());
    assert_ne!(first.address(), second.address());
    let mut of_second = Client::connect(second.address()).unwrap();
    Client::connect(first.address()).unwrap().put(b"x", 0, 0, 60).unwrap();
    assert_eq!(of_second.reserve(Some(0)).unwrap(), None);
    drop(first);
    assert_eq!(of_second.put(b"y", 0, 0, 60).unwrap(), 1);
}

#[test]
fn a_unix_socket_is_removed_with_its_server() {
    let path = socket("gone");
    let server = Server::start_unix(&path).unwrap();
    assert_eq!(server.names(), [format!("unix:{}", path.display())]);
    assert_eq!(Client::connect_unix(&path).unwrap().put(b"x", 0, 0, 60).unwrap(), 1);
    assert_eq!(Server::start_unix(&path).unwrap_err().code, 111, "the socket must be in use");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn failed_starts_return_the_program_s_exit_code() {
    let code = |config| Server::with(config).map(|server| server.names()).unwrap_err().code;
    // RFC 5737 reserves this address for documentation, so no machine uses it.
    let elsewhere = Address::Tcp(Some("192.0.2.1".to_owned()), None);
    assert_eq!(code(Config::embedded().with(|config| config.listen = vec![elsewhere])), 75);
    let unresolvable = Address::Tcp(Some("x".repeat(64)), None);
    assert_eq!(code(Config::embedded().with(|config| config.listen = vec![unresolvable])), 75);
    assert_eq!(code(Config::embedded().with(|config| config.user = Some("no-such-user".to_owned()))), 33);
    assert_eq!(code(Config::embedded().with(|config| config.log_folder = Some("/proc/nothing/log".into()))), 10);
}

/// A program can change each setting without naming a hidden module.
#[test]
fn protocol_settings_have_public_types() {
    let http: HttpSettings = Config::default().protocols.http;
    assert!(!http.admin && http.metrics_tubes == 1000);
    assert_eq!(Extensions::from_list("idp,nosuch"), Err("nosuch"));
    let server = Server::with(Config::embedded().with(|config| {
        config.protocols.extensions = Extensions::from_list("idp").expect("an extension");
        config.protocols.http.admin = true;
    }));
    let server = server.unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    assert_eq!(client.extensions().unwrap(), ["idp"]);
}

#[test]
fn a_manual_clock_ends_delays_reservations_and_pauses() {
    let (server, clock) = Server::with_manual_clock(Config::embedded()).unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    let mut other = Client::connect(server.address()).unwrap();
    let id = client.put(b"x", 0, 24 * 3600, 3600).unwrap();
    clock.advance(Duration::from_secs(24 * 3600 - 1));
    assert_eq!(client.reserve(Some(0)).unwrap(), None);
    clock.advance(Duration::from_secs(1));
    assert_eq!(client.reserve(Some(0)).unwrap().expect("a job that is due").id, id);
    assert_eq!(other.reserve(Some(0)).unwrap(), None);
    clock.advance(hour());
    is_refused(client.touch(id), "NOT_FOUND");
    client.pause_tube("default", 7200).unwrap();
    clock.advance(hour());
    assert_eq!(other.reserve(Some(0)).unwrap(), None);
    clock.advance(hour());
    assert_eq!(other.reserve(Some(0)).unwrap().expect("a job whose reservation has expired").id, id);
    is_refused(other.delete(id + 1), "NOT_FOUND");
    assert_eq!(client.figure(&format!("stats-job {id}"), "timeouts").unwrap(), "1");
    // A waiting client must receive DEADLINE_SOON when a job that it holds has less than a second left.
    clock.advance(hour() - Duration::from_millis(500));
    is_refused(other.reserve(Some(60)), "DEADLINE_SOON");
    clock.advance(hour() * 24 * 365);
    server.check();
    assert_eq!(client.figure("stats", "current-jobs-ready").unwrap(), "1");
    // A caller may advance the clock of a dropped server.
    drop(server);
    clock.advance(hour());
}

#[test]
fn a_manual_clock_handles_each_deadline_in_order() {
    let (server, clock) = Server::with_manual_clock(Config::embedded()).unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    let id = client.put(b"x", 0, 10, 5).unwrap();
    client.send(b"reserve\r\n").unwrap();
    let mut other = Client::connect(server.address()).unwrap();
    while other.figure("stats", "current-waiting").unwrap() != "1" {
        std::thread::yield_now();
    }
    // The delay expires after 10 seconds, and the waiting client gets the job. The reservation expires 5 seconds later.
    clock.advance(Duration::from_secs(20));
    assert_eq!(client.line().unwrap(), format!("RESERVED {id} 1"));
    let mut figure = |key: &str| other.figure(&format!("stats-job {id}"), key).unwrap();
    assert_eq!([figure("state"), figure("timeouts"), figure("age")], ["ready", "1", "20"]);
}

#[test]
fn an_embedding_test_can_inspect_and_clear_the_queue() {
    let (server, clock) = Server::with_manual_clock(Config::embedded()).unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    client.use_tube("mail").unwrap();
    let held = client.put(b"held", 0, 0, 60).unwrap();
    client.watch("mail").unwrap();
    assert_eq!(client.reserve(Some(0)).unwrap().expect("the job").id, held);
    let late = client.put(b"late", 7, 3600, 60).unwrap();
    client.use_tube("other").unwrap();
    client.put(b"ready", 0, 0, 60).unwrap();
    let counts = |jobs: JobTotals| [jobs.ready, jobs.reserved, jobs.delayed, jobs.buried];
    let stats = server.stats();
    assert_eq!((counts(stats.jobs), stats.total_jobs, stats.connections, stats.waiting), ([1, 1, 1, 0], 3, 1, 0));
    let mail = server.tubes().into_iter().find(|tube| tube.name == b"mail").expect("a tube");
    assert_eq!((counts(mail.jobs), mail.watching), ([0, 1, 1, 0], 1));
    clock.advance(Duration::from_secs(10));
    let mut jobs = server.jobs("mail");
    jobs.sort_by_key(|job| job.id);
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [held, late]);
    assert_eq!((jobs[0].state, jobs[0].reserves, jobs[0].time_left), (JobState::Reserved, 1, Duration::from_secs(50)));
    assert_eq!((jobs[1].state, jobs[1].priority, &jobs[1].body[..]), (JobState::Delayed, 7, &b"late"[..]));
    assert_eq!(server.clear(), 3);
    assert_eq!((server.stats().jobs, server.jobs("mail"), server.clear()), (JobTotals::default(), Vec::new(), 0));
    is_refused(client.delete(held), "NOT_FOUND");
    let next = client.put(b"next", 0, 0, 60).unwrap();
    assert_eq!(server.jobs("other")[0].id, next);
    server.check();
}

#[test]
fn very_many_jobs_are_cleared_a_turn_at_a_time() {
    let server = Server::with(Config::embedded().with(|config| config.turn_steps = 16)).unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    for _ in 0..1000 {
        client.put(b"", 0, 0, 60).unwrap();
    }
    assert_eq!((server.jobs("default").len(), server.clear(), server.stats().jobs.ready), (1000, 1000, 0));
    server.check();
}

/// If a client watches a tube again without a weight, the weight becomes 1.
#[test]
fn watching_a_tube_again_resets_its_weight() {
    const JOBS: usize = 40;
    let server = Server::start().expect("a server");
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    let puts = "put 0 0 60 1\r\nx\r\nput 0 0 60 1 tub:t\r\ny\r\n".repeat(JOBS);
    let reserves = "reserve\r\n".repeat(JOBS);
    let watch = "watch t 9999\r\nwatch t\r\nreserve-mode weighted\r\n";
    stream.write_all(format!("{puts}{watch}{reserves}quit\r\n").as_bytes()).expect("a connection");
    let mut output = String::new();
    stream.read_to_string(&mut output).expect("replies");
    assert_eq!(output.matches("RESERVED ").count(), JOBS, "{output}");
    // With the old weight of 9999, all forty jobs would almost certainly be from one tube.
    let count = |body: &str| output.lines().filter(|line| *line == body).count();
    assert!(count("x") > 0 && count("y") > 0, "{output}");
}
