//! How much there may be of everything: waiting workers, silent connections, reservations, tubes.
//!
//! Owns the server's promises about numbers: waiting workers are served in order, a connection that does nothing costs
//! a little memory and no time, every time to run ends, and cost depends on the work, not on what else exists. Figures
//! are printed; asserted is only what holds on any machine. One case runs at a time, so that the figures mean
//! something.

mod daemon;

#[path = "hostile/wire.rs"]
mod wire;

use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use beanpole::internals::engine::{Awaited, Body, ClientId, Engine, Limits, NewJob, ReservePolicy, Span, Time};
use beanpole::Client;
use daemon::{wait_until, Daemon};
use wire::{allow_files, at_rest, figure, put, served, stat, Wire};

/// Workers that wait for a job.
const WAITING: usize = 5000;

/// Connections that have never said anything.
const IDLE: usize = 10_000;

/// Files that this process keeps for everything else.
const SPARE: usize = 300;

/// Tubes that have nothing to do with the work that is measured.
const OTHER_TUBES: usize = 20_000;

/// No round trip may take longer, whatever else there is.
const BOUND: Duration = Duration::from_secs(1);

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many connections, or as many of them as this process may have open.
fn affordable(wanted: usize) -> usize {
    let files = allow_files((wanted + SPARE) as u64) as usize;
    let count = wanted.min(files.saturating_sub(SPARE));
    if count < wanted {
        println!("{files} open files are allowed: {count} connections instead of {wanted}");
    }
    count
}

/// The value below which so many per mille of the sorted values are.
fn per_mille(sorted: &[Duration], share: usize) -> Duration {
    sorted[(sorted.len() - 1) * share / 1000]
}

#[test]
fn waiting_workers_are_served_in_the_order_of_their_reserves() {
    let _alone = alone();
    let count = affordable(WAITING);
    let daemon = Daemon::start(&["-t", "1"]);
    let mut observer = daemon.client();
    let mut workers: Vec<Wire> = (0..count).map(|_| Wire::to(&daemon)).collect();
    for (number, worker) in workers.iter_mut().enumerate() {
        worker.send("reserve\r\n");
        // The next one asks when this one waits, so that there is one order.
        wait_until("a worker waits", || figure(&mut observer, "stats-tube default", "current-waiting") > number as u64);
    }
    let began = Instant::now();
    let mut producer = Wire::to(&daemon);
    let first = producer.put(b"1", 60);
    let took = began.elapsed();
    println!("beside {count} waiting workers a new producer's first job took {took:?}");
    assert!(took < BOUND);
    assert_eq!(first, 1);
    for number in 2..=count {
        producer.send(put(number.to_string().as_bytes(), 60));
        producer.expect(&format!("INSERTED {number}"));
    }
    println!("and all {count} jobs {:?}", began.elapsed());
    for (worker, number) in workers.iter_mut().zip(1..) {
        assert_eq!(worker.job(), (number, number.to_string().into_bytes()));
    }
    assert_eq!(figure(&mut observer, "stats", "current-jobs-reserved"), count as u64);
    at_rest(&daemon);
}

/// Round trips of one client that works, in a tube of its own.
fn work(daemon: &Daemon, tube: &str, rounds: usize) -> Vec<Duration> {
    let mut client = Wire::to(daemon);
    client.ask(&format!("use {tube}"), &format!("USING {tube}"));
    client.ask(&format!("watch {tube}"), "WATCHING 2");
    client.ask("ignore default", "WATCHING 1");
    let mut times = Vec::new();
    for _ in 0..rounds {
        let began = Instant::now();
        let id = client.put(b"work", 60);
        times.push(began.elapsed());
        let began = Instant::now();
        client.send("reserve\r\n");
        assert_eq!(client.job().0, id);
        times.push(began.elapsed());
        let began = Instant::now();
        client.ask(&format!("delete {id}"), "DELETED");
        times.push(began.elapsed());
    }
    times
}

#[test]
fn silent_connections_cost_memory_but_no_time() {
    let _alone = alone();
    let count = affordable(IDLE + WAITING);
    let (idle, waiting) = (count * 2 / 3, count / 3);
    let daemon = Daemon::start(&[]);
    served(&daemon);
    let empty = daemon.rss();
    let began = Instant::now();
    let _idle: Vec<TcpStream> = (0..idle).map(|_| daemon.tcp()).collect();
    wait_until("all are connected", || stat(&daemon, "current-connections") > idle as u64);
    println!("{idle} connections were made in {:?}", began.elapsed());
    let with_idle = daemon.rss();
    let mut workers: Vec<Wire> = (0..waiting).map(|_| Wire::to(&daemon)).collect();
    workers.iter_mut().for_each(|worker| worker.send("reserve\r\n"));
    wait_until("all wait", || stat(&daemon, "current-waiting") == waiting as u64);
    let with_all = daemon.rss();
    let each = |more: u64, less: u64, count: usize| (more - less.min(more)) / count as u64;
    println!("an idle connection costs {} bytes of RSS", each(with_idle, empty, idle));
    println!("a connection blocked in reserve costs {} bytes of RSS", each(with_all, with_idle, waiting));
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let daemon = &daemon;
        let clients = (0..4).map(|number| scope.spawn(move || work(daemon, &format!("active{number}"), 250)));
        let clients: Vec<_> = clients.collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    times.sort_unstable();
    let longest = per_mille(&times, 1000);
    println!("{} round trips beside them: median {:?}, longest {longest:?}", times.len(), per_mille(&times, 500));
    assert!(longest < BOUND, "{longest:?}");
    at_rest(&daemon);
    // They all still mean what they said.
    let mut producer = Wire::to(&daemon);
    for worker in &mut workers {
        let id = producer.put(b"x", 60);
        // In the order of arrival, which is nearly that of sending; each of them gets one in any case.
        assert!(id > 0);
        assert_eq!(worker.job().1, b"x");
    }
    drop(workers);
}

/// One holder and one that waits for what the holder loses, in a tube of their own. Returns how late each job came.
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
        // The time to run starts when the server reads this; it cannot be earlier.
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
        late.push(after.unwrap_or_else(|| panic!("job {job} came {:?} early", deadlines[job] - now)));
        other.send(format!("delete {id}\r\nreserve-with-timeout 10\r\n"));
        other.expect("DELETED");
    }
    late
}

#[test]
fn every_time_to_run_ends() {
    const HOLDERS: usize = 100;
    const JOBS: usize = 100;
    let _alone = alone();
    allow_files(2048);
    let daemon = Daemon::start(&[]);
    let mut late: Vec<Duration> = std::thread::scope(|scope| {
        let daemon = &daemon;
        let holders: Vec<_> =
            (0..HOLDERS).map(|number| scope.spawn(move || hold_and_lose(daemon, number, JOBS))).collect();
        holders.into_iter().flat_map(|holder| holder.join().expect("a holder")).collect()
    });
    late.sort_unstable();
    assert_eq!(late.len(), HOLDERS * JOBS);
    assert_eq!(stat(&daemon, "job-timeouts"), late.len() as u64);
    let [half, most, all] = [500, 990, 1000].map(|share| per_mille(&late, share));
    println!("{} times to run ended: late by {half:?} (50 %), {most:?} (99 %), {all:?} (100 %)", late.len());
    assert!(all < BOUND, "a time to run ended {all:?} late");
    at_rest(&daemon);
}

/// Sends commands in pieces and reads one line for each.
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

/// Processor time of the server so far, in microseconds, which is finer than the kernel's ticks.
fn cpu_micros(client: &mut Client) -> f64 {
    let mut seconds = |key| client.figure("stats", key).expect("statistics").parse::<f64>().expect("seconds");
    (seconds("rusage-utime") + seconds("rusage-stime")) * 1e6
}

/// Puts, reserves and deletes jobs in bunches; returns the server's processor time for one of these commands, in µs.
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

#[test]
fn work_costs_the_same_beside_many_other_tubes() {
    let _alone = alone();
    let (few, many) = (Daemon::start(&["-t", "1"]), Daemon::start(&["-t", "1"]));
    let mut watcher = Wire::to(&many);
    all(&mut watcher, (0..OTHER_TUBES).map(|number| format!("watch other{number}\r\n")), 1);
    assert!(stat(&many, "current-tubes") > OTHER_TUBES as u64);
    let mut clients = [&few, &many].map(|daemon| (Wire::to(daemon), daemon.client()));
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..7 {
        for (costs, (client, observer)) in costs.iter_mut().zip(&mut clients) {
            let cost = cost(client, observer);
            // The first round warms up caches and the allocator.
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    let [few, many] = costs.map(|mut costs| {
        costs.sort_by(f64::total_cmp);
        costs[costs.len() / 2]
    });
    println!("put, reserve or delete: {few:.2} µs, beside {OTHER_TUBES} other tubes {many:.2} µs: x {:.2}", many / few);
    assert!(many <= 2.0 * few);
}

/// Creates tubes in ten pieces and compares the first three with the last three, by their medians. If each tube cost
/// more the more there are, the last would take almost six times as long.
fn creates(what: &str, lines: usize, command: impl Fn(usize) -> String) {
    let daemon = Daemon::start(&["-t", "1"]);
    let mut client = Wire::to(&daemon);
    let piece = OTHER_TUBES / 10;
    let time = |number: usize| {
        let began = Instant::now();
        all(&mut client, (number * piece..(number + 1) * piece).map(&command), lines);
        began.elapsed()
    };
    let mut times: Vec<Duration> = (0..10).map(time).collect();
    let halves = [&times[..5], &times[5..]].map(|half| half.iter().sum::<Duration>());
    println!("{what} creates {} tubes in {:?}, as many more in {:?}", OTHER_TUBES / 2, halves[0], halves[1]);
    assert!(stat(&daemon, "current-tubes") > OTHER_TUBES as u64);
    times[..3].sort_unstable();
    times[7..].sort_unstable();
    let (first, last) = (times[1], times[8]);
    assert!(last <= 4 * first + Duration::from_millis(10), "{what}: {piece} tubes in {first:?} and {last:?}");
    assert!(halves[1] <= 4 * halves[0] + Duration::from_millis(50), "{what}: {halves:?}");
}

#[test]
fn creating_tubes_takes_the_same_time_however_many_there_are() {
    let _alone = alone();
    creates("watch", 1, |number| format!("watch t{number}\r\n"));
    // A tube that is used no longer stays while a job is in it.
    creates("use, with a put,", 2, |number| format!("use t{number}\r\nput 0 0 60 0\r\n\r\n"));
}

/// How long it takes that many clients who wait for one outcome go away, in this order.
fn leaving(order: impl Fn(&mut Vec<ClientId>)) -> Duration {
    let mut engine = Engine::new(Limits::NONE);
    let now = Time::from_nanos(1);
    let producer = engine.connect();
    let new = NewJob { pri: 0, delay: Span::ZERO, ttr: Span::MAX, body: Body::default() };
    let job = engine.put(producer, new, now).expect("room for a job");
    let mut clients: Vec<ClientId> = (0..IDLE).map(|_| engine.connect_as(ReservePolicy::Lease)).collect();
    for &client in &clients {
        assert!(matches!(engine.wait_outcome(client, job, Span::from_secs(60), now), Awaited::Waiting));
    }
    order(&mut clients);
    let began = Instant::now();
    clients.into_iter().for_each(|client| engine.disconnect(client, now));
    began.elapsed()
}

#[test]
fn leaving_those_who_wait_for_an_outcome_costs_the_same_in_any_order() {
    let _alone = alone();
    let (first, last) = (leaving(|_| {}), leaving(|clients| clients.reverse()));
    println!("{IDLE} clients who wait for one outcome go: the first one first {first:?}, the last one first {last:?}");
    assert!(last < first * 10 + Duration::from_millis(50));
}
