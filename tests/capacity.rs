//! Tests the server with large numbers of waiting workers, silent connections, reservations and tubes.
//!
//! Workers must be served in the order of their requests, silent connections must cost no processor time, and the cost
//! of a command must not grow with the number of other objects. Absolute times depend on the machine, so the tests
//! only compare processor times of one run, for example with few and with many objects. A mutex ensures that only one
//! test runs at a time, because parallel tests would distort the measurements.

mod daemon;

#[path = "hostile/wire.rs"]
mod wire;

use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use beanpole::internals::engine::{Awaited, Body, ClientId, Engine, Limits, NewJob, ReservePolicy, Span, Time};
use beanpole::Client;
use daemon::{shell, wait_until, Daemon};
use nix::time::{clock_gettime, ClockId};
use wire::{allow_files, at_rest, figure, put, served, stat, Wire};

const WAITING: usize = 5000;

const IDLE: usize = 10_000;

/// The number of file descriptors reserved for purposes other than connections.
const SPARE: usize = 300;

/// The number of tubes that the measured commands do not use.
const OTHER_TUBES: usize = 20_000;

/// A time to run, in seconds, longer than any test takes.
const LONG: u32 = 36_000;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns `wanted`, or a lower number of connections if the open-file limit does not permit that many.
fn affordable(wanted: usize) -> usize {
    let files = allow_files((wanted + SPARE) as u64) as usize;
    let count = wanted.min(files.saturating_sub(SPARE));
    if count < wanted {
        println!("{files} open files are allowed: {count} connections instead of {wanted}");
    }
    count
}

fn per_mille(sorted: &[Duration], share: usize) -> Duration {
    sorted[(sorted.len() - 1) * share / 1000]
}

#[test]
fn waiting_workers_are_served_in_order() {
    let _alone = alone();
    let count = affordable(WAITING);
    let daemon = Daemon::start(&["-t", "1"]);
    let mut observer = daemon.client();
    let mut workers: Vec<Wire> = (0..count).map(|_| Wire::to(&daemon)).collect();
    for (number, worker) in workers.iter_mut().enumerate() {
        worker.send("reserve\r\n");
        // Without this wait, the order of the workers would be undefined.
        wait_until("a worker waits", || figure(&mut observer, "stats-tube default", "current-waiting") > number as u64);
    }
    let mut producer = Wire::to(&daemon);
    let before = cpu_micros(&mut observer);
    assert_eq!(producer.put(b"1", LONG), 1);
    let first = cpu_micros(&mut observer) - before;
    for number in 2..=count {
        producer.send(put(number.to_string().as_bytes(), LONG));
        producer.expect(&format!("INSERTED {number}"));
    }
    let all = cpu_micros(&mut observer) - before;
    println!("with {count} waiting workers, a producer's first job cost {first:.0} µs, and all jobs {all:.0} µs");
    // The first job may cost as much processor time as 100 average jobs, plus 5 ms for the statistics commands.
    assert!(first < 100.0 * all / count as f64 + 5000.0, "{first:.0} µs for the first of {count}, {all:.0} µs for all");
    for (worker, number) in workers.iter_mut().zip(1..) {
        assert_eq!(worker.job(), (number, number.to_string().into_bytes()));
    }
    assert_eq!(figure(&mut observer, "stats", "current-jobs-reserved"), count as u64);
    at_rest(&daemon);
}

#[test]
fn silent_connections_use_memory_but_no_processor_time() {
    let _alone = alone();
    let count = affordable(IDLE + WAITING);
    let (idle, waiting) = (count * 2 / 3, count / 3);
    let (alone, daemon) = (Daemon::start(&[]), Daemon::start(&[]));
    served(&daemon);
    let empty = daemon.rss();
    let _idle: Vec<TcpStream> = (0..idle).map(|_| daemon.tcp()).collect();
    wait_until("all clients are connected", || stat(&daemon, "current-connections") > idle as u64);
    let with_idle = daemon.rss();
    let mut workers: Vec<Wire> = (0..waiting).map(|_| Wire::to(&daemon)).collect();
    workers.iter_mut().for_each(|worker| worker.send("reserve\r\n"));
    wait_until("all workers wait", || stat(&daemon, "current-waiting") == waiting as u64);
    let with_all = daemon.rss();
    let each = |more: u64, less: u64, count: usize| (more - less.min(more)) / count as u64;
    println!("an idle connection costs {} bytes of RSS", each(with_idle, empty, idle));
    println!("a connection blocked in reserve costs {} bytes of RSS", each(with_all, with_idle, waiting));
    let [few, many] = costs([&alone, &daemon], "active");
    println!("put, reserve or delete: {few:.2} µs, with {count} silent connections {many:.2} µs: x {:.2}", many / few);
    // The factor of 4 tolerates a busy machine. A cost proportional to the number of connections would be many times
    // larger.
    assert!(many <= 4.0 * few);
    at_rest(&daemon);
    // The connections still work.
    let mut producer = Wire::to(&daemon);
    (0..workers.len()).for_each(|_| assert!(producer.put(b"x", LONG) > 0));
    // The workers sent `reserve` concurrently, so the assignment of the jobs is undefined.
    workers.iter_mut().for_each(|worker| assert_eq!(worker.job().1, b"x"));
    drop(workers);
}

/// Lets the reservations of one client expire while another client waits for the jobs. Returns, for each job, the time
/// from the expiration to the other client's reservation.
fn hold_and_lose(daemon: &Daemon, number: usize, jobs: usize) -> Vec<Duration> {
    std::thread::sleep(Duration::from_millis(10) * number as u32);
    let (mut holder, mut other) = (Wire::to(daemon), Wire::to(daemon));
    for client in [&mut holder, &mut other] {
        client.send(format!("use h{number}\r\nwatch h{number}\r\nignore default\r\n"));
        client.skip_to("WATCHING 1");
    }
    let mut deadlines = Vec::new();
    for job in 0..jobs {
        let ttr = 1 + job as u32 % 3;
        let id = holder.put(job.to_string().as_bytes(), ttr);
        // The server's deadline is never earlier than this deadline, because the server receives the command later.
        deadlines.push(Instant::now() + Duration::from_secs(ttr.into()));
        holder.send(format!("reserve-job {id}\r\n"));
        assert_eq!(holder.job().0, id);
    }
    let mut late = Vec::new();
    other.send("reserve\r\n");
    for _ in 0..jobs {
        let (id, body) = other.job();
        let now = Instant::now();
        let job: usize = String::from_utf8_lossy(&body).parse().expect("a number");
        let after = now.checked_duration_since(deadlines[job]);
        late.push(after.unwrap_or_else(|| panic!("job {job} was reserved {:?} too early", deadlines[job] - now)));
        other.send(format!("delete {id}\r\nreserve-with-timeout 200\r\n"));
        other.expect("DELETED");
    }
    late
}

#[test]
fn every_reservation_expires_in_time() {
    const HOLDERS: usize = 100;
    const JOBS: usize = 100;
    let _alone = alone();
    allow_files(2048);
    let daemon = Daemon::start(&[]);
    let mut late: Vec<Duration> = std::thread::scope(|scope| {
        let daemon = &daemon;
        let holders: Vec<_> =
            (0..HOLDERS).map(|number| scope.spawn(move || hold_and_lose(daemon, number, JOBS))).collect();
        holders.into_iter().flat_map(|holder| holder.join().expect("no panic")).collect()
    });
    late.sort_unstable();
    assert_eq!(late.len(), HOLDERS * JOBS);
    assert!(stat(&daemon, "job-timeouts") >= late.len() as u64);
    let [half, most, all] = [500, 990, 1000].map(|share| per_mille(&late, share));
    println!("{} reservations expired: late by {half:?} (50 %), {most:?} (99 %), {all:?} (100 %)", late.len());
    at_rest(&daemon);
}

/// Sends the commands in chunks, and reads `lines` reply lines for each command.
fn all(client: &mut Wire, commands: impl Iterator<Item = String>, lines: usize) {
    let commands: Vec<String> = commands.collect();
    for piece in commands.chunks(500) {
        client.send(piece.concat());
        (0..piece.len() * lines).for_each(|_| {
            let line = client.line();
            assert!(["WATCHING", "USING", "INSERTED"].iter().any(|word| line.starts_with(word)), "{line}");
        });
    }
}

/// Returns the server's total processor time in microseconds. The server's statistics are more precise than /proc,
/// which counts clock ticks.
fn cpu_micros(client: &mut Client) -> f64 {
    let mut seconds = |key| client.figure("stats", key).expect("statistics").parse::<f64>().expect("seconds");
    (seconds("rusage-utime") + seconds("rusage-stime")) * 1e6
}

/// Puts, reserves and deletes jobs in batches. Returns the server's processor time per command in microseconds.
fn cost(client: &mut Wire, observer: &mut Client) -> f64 {
    const BUNCH: usize = 50;
    const BUNCHES: usize = 60;
    let before = cpu_micros(observer);
    for _ in 0..BUNCHES {
        client.send(put(b"a body of some length, as jobs have", 60).repeat(BUNCH));
        (0..BUNCH).for_each(|_| assert!(client.line().starts_with("INSERTED ")));
        client.send("reserve\r\n".repeat(BUNCH));
        let ids: Vec<u64> = (0..BUNCH).map(|_| client.job().0).collect();
        client.send(ids.iter().map(|id| format!("delete {id}\r\n")).collect::<String>());
        (0..BUNCH).for_each(|_| client.expect("DELETED"));
    }
    (cpu_micros(observer) - before) / (3 * BUNCH * BUNCHES) as f64
}

/// Returns the minimum [`cost`] of each server. Measures the servers alternately, so that the load of the machine
/// affects both.
fn costs(daemons: [&Daemon; 2], tube: &str) -> [f64; 2] {
    let mut clients = daemons.map(|daemon| {
        let mut client = Wire::to(daemon);
        client.ask(&format!("use {tube}"), &format!("USING {tube}"));
        client.ask(&format!("watch {tube}"), "WATCHING 2");
        client.ask("ignore default", "WATCHING 1");
        (client, daemon.client())
    });
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..7 {
        for (costs, (client, observer)) in costs.iter_mut().zip(&mut clients) {
            let cost = cost(client, observer);
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    costs.map(|costs| costs.into_iter().fold(f64::INFINITY, f64::min))
}

#[test]
fn costs_do_not_depend_on_the_number_of_tubes() {
    let _alone = alone();
    let (few, many) = (Daemon::start(&["-t", "1"]), Daemon::start(&["-t", "1"]));
    let mut watcher = Wire::to(&many);
    all(&mut watcher, (0..OTHER_TUBES).map(|number| format!("watch other{number}\r\n")), 1);
    assert!(stat(&many, "current-tubes") > OTHER_TUBES as u64);
    let [few, many] = costs([&few, &many], "active");
    println!("put, reserve or delete: {few:.2} µs, with {OTHER_TUBES} other tubes {many:.2} µs: x {:.2}", many / few);
    // The factor of 4 tolerates a busy machine. A cost proportional to the number of tubes would be many times larger.
    assert!(many <= 4.0 * few);
}

/// Creates tubes in ten batches. The median cost of the last three may be at most four times that of the first three,
/// plus 10 ms. The second half may cost at most four times as much as the first half, plus 50 ms. If the cost of a tube
/// grew in proportion to the number of tubes, the last three would take almost six times as long.
fn creates(what: &str, lines: usize, command: impl Fn(usize) -> String) {
    let daemon = Daemon::start(&["-t", "1"]);
    let (mut client, mut observer) = (Wire::to(&daemon), daemon.client());
    let piece = OTHER_TUBES / 10;
    let cost = |number: usize| {
        let before = cpu_micros(&mut observer);
        all(&mut client, (number * piece..(number + 1) * piece).map(&command), lines);
        cpu_micros(&mut observer) - before
    };
    let mut costs: Vec<f64> = (0..10).map(cost).collect();
    let halves = [&costs[..5], &costs[5..]].map(|half| half.iter().sum::<f64>());
    let [few, more] = halves;
    println!("{what} creates {} tubes in {few:.0} µs of CPU time, as many again in {more:.0} µs", OTHER_TUBES / 2);
    assert!(stat(&daemon, "current-tubes") > OTHER_TUBES as u64);
    costs[..3].sort_by(f64::total_cmp);
    costs[7..].sort_by(f64::total_cmp);
    let (first, last) = (costs[1], costs[8]);
    assert!(last <= 4.0 * first + 10_000.0, "{what}: {piece} tubes in {first:.0} µs and {last:.0} µs");
    assert!(more <= 4.0 * few + 50_000.0, "{what}: {few:.0} µs and {more:.0} µs");
}

#[test]
fn the_cost_of_creating_tubes_does_not_grow_with_their_number() {
    let _alone = alone();
    creates("watch", 1, |number| format!("watch t{number}\r\n"));
    // Only the job keeps the tube in existence after the client uses another tube.
    creates("use, with a put,", 2, |number| format!("use t{number}\r\nput 0 0 60 0\r\n\r\n"));
}

fn own_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the thread's CPU clock").into()
}

/// Disconnects many clients that wait for the same result, in the order that `order` sets. Returns the processor time.
fn leaving(order: impl Fn(&mut Vec<ClientId>)) -> Duration {
    let mut engine = Engine::new(Limits::NONE);
    let now = Time::from_nanos(1);
    let producer = engine.connect();
    let new = NewJob { pri: 0, delay: Span::ZERO, ttr: Span::MAX, body: Body::default() };
    let job = engine.put(producer, new, now).expect("a job");
    let mut clients: Vec<ClientId> = (0..IDLE).map(|_| engine.connect_as(ReservePolicy::Lease)).collect();
    for &client in &clients {
        assert!(matches!(engine.wait_outcome(client, Some(job), Span::from_secs(60), now), Awaited::Waiting));
    }
    order(&mut clients);
    let before = own_time();
    clients.into_iter().for_each(|client| engine.disconnect(client, now));
    own_time() - before
}

#[test]
fn disconnecting_outcome_waiters_costs_the_same_in_any_order() {
    let _alone = alone();
    let (first, last) = (leaving(|_| {}), leaving(|clients| clients.reverse()));
    println!("disconnecting {IDLE} clients that wait for one outcome: {first:?} in order, {last:?} in reverse order");
    assert!(last < first * 10 + Duration::from_millis(50));
}

/// The start counts all descriptors that the server needs, including those that its listeners keep in reserve.
#[test]
fn a_server_with_few_descriptors_serves_a_client_or_does_not_start() {
    let listeners =
        ["-l", "127.0.0.1", "-p", "0", "--gearman=127.0.0.1:0", "--workq=127.0.0.1:0", "--http=127.0.0.1:0"];
    let mut served = 0;
    for files in (10..=40).step_by(2) {
        let command = shell(&format!("ulimit -n {files}; exec \"$0\" \"$@\""), &listeners);
        let daemon = match Daemon::try_spawn(command) {
            Ok(daemon) => daemon,
            Err(log) => {
                let is_refused = ["open files are too few", "(os error 24)"].iter().any(|text| log.contains(text));
                assert!(is_refused, "{files} descriptors: {log}");
                continue;
            }
        };
        let figure = daemon.client().figure("stats", "current-connections");
        assert_eq!(figure.expect("a reply"), "1", "{files} descriptors: {}", daemon.log());
        served += 1;
    }
    assert!(served > 5, "only {served} servers have started");
}
