//! Tests the state of the queue when a standby takes over from a killed server.
//!
//! Owns the checks that schedules run exactly once, that large jobs are complete, and that a takeover is fast. Must not
//! test which server can take over, which is the subject of `table`.

use std::io::Read;
use std::time::{Duration, Instant};

use beanpole::{Client, PutTags};

use super::daemon::{wait_until, Signal, PATIENCE};
use super::engine::Served;
use super::member::Member;
use super::program::begin_put;

/// Schedules are due when the active server fails. Each due run must happen exactly once: either the first server has
/// logged the job together with the time of the next run, or the second server executes the run.
// Tests promise P31 of beanpole-promises(7).
#[test]
fn schedules_that_are_due_during_a_failover_run_exactly_once() {
    const COUNT: u32 = 25;
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let second = Member::start(&served, "b", &[]);
    let mut producer = first.client();
    let mut schedules = Vec::new();
    for number in 0..COUNT {
        let tags = PutTags::default().with(|tags| {
            tags.unique = Some((format!("s{number}"), 0));
            tags.tube = Some(format!("t{number}"));
            tags.every = Some(100_000);
        });
        let put = producer.put_tagged(number.to_string().as_bytes(), 0, 2, 60, &tags).expect("a schedule");
        schedules.push(put.id());
        std::thread::sleep(Duration::from_millis(40));
    }
    // Deletes the jobs of the schedules until the server fails or no job is left. Counts the acknowledged deletes of
    // each schedule, and records deletes without a reply.
    let work = |mut worker: Client, deleted: &mut [u32], unknown: &mut [bool]| loop {
        let Ok(Some(job)) = worker.reserve(Some(5)) else { return };
        let number: usize = String::from_utf8_lossy(&job.body).parse().expect("a number");
        match worker.delete(job.id) {
            Ok(()) => deleted[number] += 1,
            Err(_) => return unknown[number] = true,
        }
    };
    let watcher = |member: &Member| {
        let mut worker = member.client();
        for number in 0..COUNT {
            worker.watch(&format!("t{number}")).expect("a tube");
        }
        worker
    };
    let (mut deleted, mut unknown) = ([0; COUNT as usize], [false; COUNT as usize]);
    let worker = watcher(&first);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| work(worker, &mut deleted, &mut unknown));
        wait_until("about half of the schedules have run", || {
            let runs = |id: &u64| first.client().figure(&format!("stats-job {id}"), "runs").expect("a schedule");
            runs(&schedules[COUNT as usize / 2]) == "1"
        });
        first.daemon.signal(Signal::SIGKILL);
        working.join().expect("no panic");
    });
    let before: u32 = deleted.iter().sum();
    second.wait_active();
    work(watcher(&second), &mut deleted, &mut unknown);
    let mut client = second.client();
    for (number, id) in schedules.iter().enumerate() {
        let runs = client.figure(&format!("stats-job {id}"), "runs").expect("a schedule");
        let copies = deleted[number] + u32::from(unknown[number]);
        assert!(
            runs == "1" && (copies == 1 || copies == 2 && unknown[number]),
            "schedule {number}: {runs} runs, {copies} copies"
        );
    }
    assert!(0 < before && before < COUNT, "{before} of {COUNT} copies were deleted before the failure");
    assert_eq!(client.figure("stats", "current-jobs-ready").expect("a figure"), "0");
}

/// Prints the duration, which depends on the machine. A unit test of `node` limits the times that a standby waits.
// Tests promise P38 of beanpole-promises(7).
#[test]
fn a_standby_takes_over_from_a_killed_server() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let second = Member::start(&served, "b", &[]);
    let id = first.client().put(b"x", 0, 0, 60).expect("a job");
    let held = first.figure("journal-entry");
    wait_until("b has caught up", || second.get("/metrics").1.contains(&format!("\nbeanpole_journal_entry {held}\n")));
    first.daemon.signal(Signal::SIGKILL);
    let killed = Instant::now();
    second.wait_active();
    assert_eq!(second.client().peek(id).expect("the job").body, b"x");
    println!("the takeover took {:?}", killed.elapsed());
}

#[test]
fn a_small_put_overtakes_the_pieces_of_a_large_body() {
    let served = Served::start();
    let options = ["-z", "8000000"];
    let first = Member::start(&served, "a", &options);
    first.wait_active();
    let standby = Member::start(&served, "b", &options);
    first.client().put(b"x", 0, 0, 60).expect("a job");
    let next = first.figure("journal-entry").parse::<u64>().expect("a number") + 1;
    served.engine().held = next + 1;
    let body: Vec<u8> = (0..4 << 20).map(|index: u32| (index % 251) as u8).collect();
    let (address, sent) = (first.beanstalk, body.clone());
    let large = std::thread::spawn(move || {
        let mut client = Client::connect(address).expect("the active server");
        client.put(&sent, 0, 0, 60).expect("a job")
    });
    wait_until("a piece is under way", || served.engine().arrived.contains(&(next + 1)));
    let mut small = begin_put(&first);
    small.set_read_timeout(Some(PATIENCE)).expect("a socket");
    wait_until("the small job is under way as well", || served.engine().arrived.contains(&(next + 2)));
    // Delays a later piece of the large body.
    served.engine().held = next + 3;
    small.read_exact(&mut [0; 8]).expect("a reply before the large body is complete");
    wait_until("the next piece is under way", || served.engine().arrived.contains(&(next + 3)));
    assert!(!large.is_finished());
    served.engine().held = 0;
    let id = large.join().expect("no panic");
    first.kill();
    standby.wait_active();
    assert_eq!(standby.figure("current-jobs-ready"), "3");
    assert_eq!(standby.client().peek(id).expect("the large job").body, body);
}

#[test]
fn a_server_that_loses_its_lease_during_the_takeover_becomes_a_standby() {
    let served = Served::start();
    // `Member::start` waits for the HTTP listener, which closes at the takeover. The takeover must therefore not begin
    // before `start` returns.
    served.engine().is_away = true;
    let member = Member::start(&served, "a", &[]);
    {
        let mut engine = served.engine();
        // Delays the append of entry 2, which follows the claim.
        engine.held = 2;
        engine.is_away = false;
    }
    wait_until("the server creates a segment", || served.engine().arrived.contains(&2));
    {
        let mut engine = served.engine();
        engine.claim("y 127.0.0.1:1");
        engine.held = 0;
    }
    member.daemon.wait_log("active as a, epoch 3");
    member.wait_active();
}
