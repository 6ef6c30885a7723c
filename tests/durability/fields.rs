//! Tests that all properties of jobs and paused tubes survive a clean stop and a kill.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use beanpole::{Client, Config, Server};

use super::daemon::{wait_until, Daemon};
use super::support::{crash, facts, number, stop, total, Home};

type Facts = BTreeMap<String, String>;

fn again(home: &Home, daemon: Daemon, clean: bool, options: &[&str]) -> Daemon {
    if clean {
        stop(daemon);
    } else {
        crash(daemon);
    }
    home.start(options)
}

/// Runs a test with a clean stop and with a kill, in separate directories.
fn both(test: impl Fn(&Home, bool)) {
    for clean in [true, false] {
        test(&Home::new(), clean);
    }
}

fn take(client: &mut Client, id: u64) {
    client.send(format!("reserve-job {id}\r\n").as_bytes()).unwrap();
    let line = client.line().unwrap();
    assert!(line.starts_with(&format!("RESERVED {id} ")), "{line}");
    assert_eq!(client.line().unwrap(), "body");
}

fn kick_job(client: &mut Client, id: u64) {
    client.send(format!("kick-job {id}\r\n").as_bytes()).unwrap();
    assert_eq!(client.line().unwrap(), "KICKED");
}

/// Puts jobs in every state and with nonzero counters. `client` continues to hold some of the jobs.
fn fill(client: &mut Client) -> Vec<u64> {
    client.use_tube("some").unwrap();
    client.watch("some").unwrap();
    let plain = client.put(b"body", 7, 0, 100).unwrap();
    let delayed = client.put(b"body", 4_294_967_295, 5000, 200).unwrap();
    let short = client.put(b"body", 0, 0, 1).unwrap();
    take(client, short);
    wait_until("the reservation expires", || facts(client, short).unwrap()["timeouts"] == "1");
    let buried = client.put(b"body", 1, 0, 60).unwrap();
    take(client, buried);
    client.bury(buried, 9).unwrap();
    let released = client.put(b"body", 1, 0, 4_294_967_295).unwrap();
    for pri in [5, 6] {
        take(client, released);
        client.release(released, pri, 0).unwrap();
    }
    let later = client.put(b"body", 1, 0, 60).unwrap();
    take(client, later);
    client.release(later, 2, 700).unwrap();
    let kicked = client.put(b"body", 1, 0, 60).unwrap();
    for _ in 0..3 {
        take(client, kicked);
        client.bury(kicked, 3).unwrap();
        kick_job(client, kicked);
    }
    let woken = client.put(b"body", 1, 900, 60).unwrap();
    kick_job(client, woken);
    let held = client.put(b"body", 1, 0, 60).unwrap();
    take(client, held);
    client.touch(held).unwrap();
    client.use_tube("default").unwrap();
    let other = client.put(b"body", 1, 0, 60).unwrap();
    take(client, other);
    // The reply to this put guarantees that the preceding reservation is durable.
    let last = client.put(b"body", 1, 0, 60).unwrap();
    vec![plain, delayed, short, buried, released, later, kicked, woken, held, other, last]
}

/// Compares the statistics of a job before and after a restart. A reserved job must become ready. The age may grow, and
/// the remaining time may shrink, by up to `seconds`.
fn compare(id: u64, before: &Facts, after: &Facts, seconds: u64) {
    for (key, value) in before {
        let now = &after[key];
        match key.as_str() {
            "state" if value == "reserved" => assert_eq!(now, "ready", "job {id}"),
            "time-left" if before["state"] == "reserved" => {}
            "age" | "time-left" => {
                let (was, is): (u64, u64) = (value.parse().unwrap(), now.parse().unwrap());
                let (min, max) = if key == "age" { (was, is) } else { (is, was) };
                assert!(min <= max && max - min <= seconds, "job {id}: {key} was {was}, is {is} after {seconds} s");
            }
            "file" => {}
            _ => assert_eq!(value, now, "job {id}: {key}: {before:?} {after:?}"),
        }
    }
}

#[test]
fn every_field_and_counter_of_a_job() {
    both(|home, clean| {
        let start = Instant::now();
        let mut daemon = home.start(&["-f0"]);
        let mut client = daemon.client();
        let ids = fill(&mut client);
        let mut before: Vec<Facts> = ids.iter().map(|&id| facts(&mut client, id).unwrap()).collect();
        for _ in 0..2 {
            daemon = again(home, daemon, clean, &["-f0"]);
            let mut client = daemon.client();
            let seconds = start.elapsed().as_secs() + 1;
            for (id, before) in ids.iter().zip(&mut before) {
                let after = facts(&mut client, *id).unwrap_or_else(|| panic!("job {id} is lost: {before:?}"));
                compare(*id, before, &after, seconds);
                assert_eq!(client.peek(*id).unwrap().body, b"body");
                *before = after;
            }
            assert_eq!(total(&mut client), ids.len() as u64);
        }
        let timeouts = &before[2]["timeouts"];
        assert_eq!(timeouts, "1");
    });
}

// Tests promise P39 of beanpole-promises(7).
#[test]
fn delays_continue_while_the_server_is_down() {
    both(|home, clean| {
        let daemon = home.start(&["-f0"]);
        let mut client = daemon.client();
        let begun = Instant::now();
        let (soon, later) = (client.put(b"x", 0, 1, 60).unwrap(), client.put(b"x", 0, 10_000, 60).unwrap());
        let state = facts(&mut client, soon).unwrap()["state"].clone();
        assert!(state == "delayed" || begun.elapsed() >= Duration::from_secs(1), "{state}");
        if clean {
            stop(daemon);
        } else {
            crash(daemon);
        }
        std::thread::sleep(Duration::from_millis(1200));
        let daemon = home.start(&["-f0"]);
        let mut client = daemon.client();
        let job = client.reserve(Some(0)).unwrap().expect("a job whose delay is over");
        assert_eq!(job.id, soon);
        let later = facts(&mut client, later).unwrap();
        let left: u64 = later["time-left"].parse().unwrap();
        assert!(later["state"] == "delayed" && (9000..=9998).contains(&left), "{later:?}");
    });
}

/// The first server's clock is ahead of the system clock, so to the second server, the clock appears to have been set
/// back.
// Tests promise P11 of beanpole-promises(7).
#[test]
fn setting_the_clock_back_extends_no_delay() {
    let home = Home::new();
    let config = || Config::embedded().with(|config| config.log_folder = Some(home.path().to_owned()));
    let (server, clock) = Server::with_manual_clock(config()).expect("a server");
    let mut client = Client::connect(server.address()).unwrap();
    let over = client.put(b"over", 0, 60, 60).unwrap();
    let later = client.put(b"later", 0, 86_400 + 3600, 60).unwrap();
    client.send(b"put 0 0 60 4 idp:tick every:3600\r\ntick\r\n").unwrap();
    assert!(client.line().unwrap().starts_with("INSERTED 3 SCHEDULED"));
    clock.advance(Duration::from_secs(86_400));
    drop((server, clock));
    let server = Server::with(config()).expect("a server");
    let mut client = Client::connect(server.address()).unwrap();
    assert_eq!(client.reserve(Some(0)).unwrap().expect("a job whose delay was over").id, over);
    let later = facts(&mut client, later).unwrap();
    let left: u64 = later["time-left"].parse().unwrap();
    assert!(later["state"] == "delayed" && (3000..=3600).contains(&left), "{later:?}");
    let schedule = facts(&mut client, 3).unwrap();
    assert!((1..=3600).contains(&schedule["time-left"].parse::<u64>().unwrap()), "{schedule:?}");
}

// Tests promise P3 of beanpole-promises(7).
#[test]
fn bodies_survive_a_restart_with_a_lower_limit() {
    both(|home, clean| {
        let daemon = home.start(&["-f0"]);
        let mut client = daemon.client();
        let all: Vec<u8> = (0..=255).collect();
        let bodies = [vec![], all.repeat(256)[..65_535].to_vec(), all, b"\r\n".to_vec(), vec![0; 1000], b"x".to_vec()];
        let ids: Vec<u64> = bodies.iter().map(|body| client.put(body, 0, 0, 60).unwrap()).collect();
        let daemon = again(home, daemon, clean, &["-f0", "-z", "100"]);
        let daemon = again(home, daemon, clean, &["-f0", "-z", "100", "-s", "4096"]);
        let mut client = daemon.client();
        for (&id, body) in ids.iter().zip(&bodies) {
            assert_eq!(&client.peek(id).unwrap().body, body);
            let job = client.reserve(Some(0)).unwrap().expect("a job");
            assert_eq!((job.id, &job.body), (id, body));
        }
        assert!(client.put(&[0; 101], 0, 0, 60).is_err());
        // The log must accept new jobs although it contains jobs that are larger than the limit.
        let id = client.put(b"new", 0, 0, 60).unwrap();
        let daemon = again(home, daemon, clean, &[]);
        assert_eq!(total(&mut daemon.client()), ids.len() as u64 + 1);
        assert_eq!(daemon.client().peek(id).unwrap().body, b"new");
    });
}

// Tests promise P5 of beanpole-promises(7).
#[test]
fn the_orders_of_priorities_and_of_burying_survive() {
    both(|home, clean| {
        let daemon = home.start(&["-f0"]);
        let mut client = daemon.client();
        let ids: Vec<u64> = (0..6).map(|pri| client.put(b"body", 10 + pri, 0, 60).unwrap()).collect();
        for place in [2, 0, 1] {
            take(&mut client, ids[place]);
            client.bury(ids[place], 1).unwrap();
        }
        take(&mut client, ids[5]);
        client.release(ids[5], 0, 0).unwrap();
        let daemon = again(home, daemon, clean, &["-f0"]);
        let daemon = again(home, daemon, clean, &["-f0"]);
        let mut client = daemon.client();
        let reserve = |client: &mut Client| client.reserve(Some(0)).unwrap().map(|job| job.id);
        let ready: Vec<_> = (0..3).map(|_| reserve(&mut client)).collect();
        assert_eq!(ready, [Some(ids[5]), Some(ids[3]), Some(ids[4])]);
        for place in [2, 0, 1] {
            assert_eq!(client.kick(1).unwrap(), 1);
            assert_eq!(reserve(&mut client), Some(ids[place]));
        }
    });
}

// Tests promise P39 of beanpole-promises(7).
#[test]
fn a_pause_continues_after_a_restart_and_ends_in_time() {
    both(|home, clean| {
        let daemon = home.start(&["-f0"]);
        let mut client = daemon.client();
        for (tube, pause) in [("long", 100_000), ("short", 1)] {
            client.use_tube(tube).unwrap();
            client.watch(tube).unwrap();
            client.put(tube.as_bytes(), 0, 0, 60).unwrap();
            client.pause_tube(tube, pause).unwrap();
        }
        let daemon = again(home, daemon, clean, &["-f0"]);
        let daemon = again(home, daemon, clean, &["-f0"]);
        let mut client = daemon.client();
        client.watch("long").unwrap();
        assert!(client.reserve(Some(0)).unwrap().is_none());
        assert_eq!(number(&mut client, "stats-tube long", "pause"), 100_000);
        let left = number(&mut client, "stats-tube long", "pause-time-left");
        assert!((90_000..=100_000).contains(&left), "{left}");
        client.watch("short").unwrap();
        let job = client.reserve(Some(200)).unwrap().expect("a job of a tube whose pause is over");
        assert_eq!(job.body, b"short");
        assert_eq!(number(&mut client, "stats-tube short", "pause"), 0);
    });
}

// Tests promise P4 of beanpole-promises(7).
#[test]
fn ids_are_never_reused_even_in_an_empty_queue() {
    both(|home, clean| {
        let mut daemon = home.start(&["-f0", "-s", "4096"]);
        let mut newest = 0;
        for _ in 0..3 {
            let mut client = daemon.client();
            for _ in 0..50 {
                let id = client.put(&[b'x'; 200], 0, 0, 60).unwrap();
                assert!(id > newest, "{id} after {newest}");
                newest = id;
                client.delete(id).unwrap();
            }
            daemon = again(home, daemon, clean, &["-f0", "-s", "4096"]);
            assert_eq!(total(&mut daemon.client()), 0);
            daemon = again(home, daemon, clean, &["-f0", "-s", "4096"]);
        }
    });
}

#[test]
fn a_kick_larger_than_the_log_s_free_space_completes() {
    let options = ["-f0", "-s", "4096"];
    let home = Home::new();
    let daemon = home.start(&options);
    let mut client = daemon.client();
    client.use_tube("some").unwrap();
    for _ in 0..1000 {
        client.put(b"body", 7, 5000, 100).unwrap();
    }
    // The kicks arrive in one packet. Each kick must be complete before the next kick begins.
    client.send(b"kick 900\r\nkick 1000\r\nkick 1\r\n").unwrap();
    let lines = [client.line().unwrap(), client.line().unwrap(), client.line().unwrap()];
    assert_eq!(lines, ["KICKED 900", "KICKED 100", "KICKED 0"]);
    crash(daemon);
    let daemon = home.start(&options);
    let mut client = daemon.client();
    assert_eq!(number(&mut client, "stats", "current-jobs-ready"), 1000);
    stop(daemon);
}
