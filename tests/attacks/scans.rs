//! Attacks with one command that scans a large number of tubes, names or jobs.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::bursts::watcher;
use crate::bystander::Times;
use crate::daemon::wait_until;
use crate::traffic::{connect_to, list_tubes, pieces, pipeline, tube_figure, Jobs};
use crate::trial::Trial;
use crate::wire::Wire;

/// Repeatedly tries to reserve from a large number of empty tubes.
pub fn reserve_over_many_tubes(trial: &mut Trial) {
    const AT_ONCE: u64 = 200;
    let daemon = trial.start(&[], &["-t", "1"]);
    let attacker = watcher(&daemon, "t", 90_000);
    // Puts one ready job into another tube, because a server without any ready job does not search the tubes.
    Jobs::ready("elsewhere", 1).put(&daemon);
    trial.beside(&daemon, |_| {
        for _ in 0..4 {
            let reserves = pieces(AT_ONCE, |_| b"reserve-with-timeout 0\r\n".to_vec());
            pipeline(&attacker, reserves, AT_ONCE, |line| assert_eq!(line, "TIMED_OUT"));
        }
    });
}

/// Tries to lease from a large number of Workq names that do not exist.
pub fn lease_over_new_names(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1", "--workq=127.0.0.1:0"]);
    let mut attacker = Wire::of(connect_to(&daemon, "Workq"));
    trial.beside(&daemon, |_| {
        for round in 0..4 {
            let names: Vec<String> = (0..99_000).map(|number| format!("{round}n{number}")).collect();
            attacker.send(format!("lease {} 50\r\n", names.join(" ")));
            attacker.expect("-TIMEOUT");
        }
    });
    drop(attacker);
    wait_until("the tubes are removed", || crate::wire::stat(&daemon, "current-tubes") < 10);
}

/// Repeatedly lists one Workq job while a large number of jobs are scheduled.
pub fn inspect_one_of_many(trial: &mut Trial) {
    const MANY: u64 = 1_000_000;
    let daemon = trial.start(&[], &["-t", "1", "--workq=127.0.0.1:0"]);
    Jobs { delay: 3600, ..Jobs::ready("attack", MANY) }.put(&daemon);
    let mut attacker = Wire::of(connect_to(&daemon, "Workq"));
    trial.beside(&daemon, |trial| {
        for offset in [0, 1, MANY / 2, MANY - 1] {
            attacker.send(format!("inspect scheduled-jobs attack {offset} 1\r\n"));
            trial.same("the reply", attacker.line(), "+OK 1".to_owned());
            let head = attacker.line();
            let lines: usize = head.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number of lines");
            (0..lines).for_each(|_| drop(attacker.line()));
        }
    });
    trial.same("delayed", tube_figure(&daemon, "attack", "current-jobs-delayed"), MANY);
}

/// Lists a large number of tubes with long names.
pub fn list_long_names(trial: &mut Trial) {
    const MANY: u64 = 300_000;
    let daemon = trial.start(&[], &["-t", "1"]);
    let name = |number: u64| format!("{}{number:06}", "n".repeat(192));
    let filler = daemon.tcp();
    let puts = pieces(MANY, |number| format!("use {}\r\nput 0 0 60 1\r\nx\r\n", name(number)).into_bytes());
    pipeline(&filler, puts, 2 * MANY, |line| assert!(line.starts_with("USING") || line.starts_with("INSERTED")));
    let mut attacker = daemon.client();
    let listed = trial.beside(&daemon, |_| list_tubes(&mut attacker));
    let known: HashSet<&str> = listed.iter().map(String::as_str).collect();
    trial.same("tubes listed twice", listed.len() - known.len(), 0);
    let missing = (0..MANY).filter(|number| !known.contains(&*name(*number))).count();
    trial.same("tubes not listed", missing, 0);
    trial.check(known.contains("default") && known.contains("bystander"), || "other tubes are missing".to_owned());
}

/// Lists a large number of long idempotency keys that outlive their jobs. The server writes most bytes as four bytes.
pub fn list_long_keys(trial: &mut Trial) {
    const MANY: u64 = 50_000;
    let daemon = trial.start(&[], &["-t", "1"]);
    let filler = daemon.tcp();
    let put = |number| format!("put 0 0 60 1 idp:\"{number:06}{}\":3600\r\nx\r\n", r"\xff".repeat(500)).into_bytes();
    let mut ids = Vec::new();
    pipeline(&filler, pieces(MANY, put), MANY, |line| {
        let id = line.strip_prefix("INSERTED ").and_then(|id| id.parse::<u64>().ok());
        ids.push(id.unwrap_or_else(|| panic!("reply to put: {line}")));
    });
    let delete = |place: u64| format!("delete {}\r\n", ids[place as usize]).into_bytes();
    pipeline(&filler, pieces(MANY, delete), MANY, |line| assert_eq!(line, "DELETED"));
    let mut attacker = daemon.client();
    let listed = trial.beside(&daemon, |_| {
        let (mut count, mut from) = (0, 0);
        loop {
            let text = attacker.text(&format!("list-keys {from}")).expect("a list");
            let number = |line: &str| line.strip_prefix("- [")?.split(',').next()?.parse::<u64>().ok();
            let numbers: Vec<u64> = text.lines().filter_map(number).collect();
            let Some(last) = numbers.last() else { break count };
            (count, from) = (count + numbers.len() as u64, last + 1);
        }
    });
    trial.same("keys listed", listed, MANY);
}

/// Repeatedly searches the properties of connections that watch tubes with long names.
pub fn search_connections(trial: &mut Trial) {
    const CONNECTIONS: usize = 1000;
    let daemon = trial.start(&[], &["-t", "1", "--http=127.0.0.1:0", "--http-admin"]);
    let watch = |number: usize, tube: u64| format!("watch \"{number:04}{tube:02}{}\"\r\n", r"\xff".repeat(500));
    let connect = |number| {
        let stream = daemon.tcp();
        let watches = pieces(16, |tube| watch(number, tube).into_bytes());
        pipeline(&stream, watches, 16, |line| assert!(line.starts_with("WATCHING"), "{line}"));
        stream
    };
    let crowd: Vec<_> = (0..CONNECTIONS).map(connect).collect();
    trial.beside(&daemon, |trial| {
        for _ in 0..20 {
            let mut attacker = connect_to(&daemon, "HTTP");
            let request =
                b"GET /api/connections?filter=nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            attacker.write_all(request).expect("an open connection");
            let mut reply = String::new();
            attacker.read_to_string(&mut reply).expect("a reply");
            trial.check(reply.contains("\"total\":0"), || format!("unexpected reply: {reply}"));
        }
    });
    drop(crowd);
}

/// Puts a job for a waiting client that watches a large number of tubes. Measures the duration of the put.
pub fn hand_over_to_a_watcher_of_many(trial: &mut Trial) {
    const ROUNDS: usize = 300;
    let daemon = trial.start(&[], &["-t", "1"]);
    let mut producer = Wire::to(&daemon);
    producer.ask("use t1", "USING t1");
    let mut few = Wire::of(watcher(&daemon, "t", 2));
    trial.seen.before = Times::of(hand_over(&mut producer, &mut few, ROUNDS));
    drop(few);
    let mut many = Wire::of(watcher(&daemon, "t", 30_000));
    trial.seen.during = Times::of(hand_over(&mut producer, &mut many, ROUNDS));
}

fn hand_over(producer: &mut Wire, worker: &mut Wire, rounds: usize) -> Vec<Duration> {
    let one = |_| {
        worker.send("reserve\r\n");
        // Gives the worker's `reserve` time to arrive, so that the worker is already waiting when the job is put.
        std::thread::sleep(Duration::from_millis(2));
        let began = Instant::now();
        let id = producer.put(b"work", 60);
        let took = began.elapsed();
        assert_eq!(worker.job().0, id);
        worker.ask(&format!("delete {id}"), "DELETED");
        took
    };
    (0..rounds).map(one).collect()
}
