//! Tests the state of the queue when a standby takes over from a killed server.
//!
//! Owns the check that schedules run exactly once. Must not test which server can take over: `table` does.

use std::time::Duration;

use beanpole::{Client, PutTags};

use super::daemon::{wait_until, Signal};
use super::engine::Served;
use super::member::Member;

/// Schedules are due when the active server fails. Each runs exactly once: either the first server logged the job
/// together with the time of the next run, or the second server runs the schedule.
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
    // Deletes the schedules' jobs until the server fails or no job is left. Counts acknowledged deletes by schedule,
    // and records deletes without a reply.
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
        wait_until("about half have run", || {
            let runs = |id: &u64| first.client().figure(&format!("stats-job {id}"), "runs").expect("a schedule");
            runs(&schedules[COUNT as usize / 2]) == "1"
        });
        first.daemon.signal(Signal::SIGKILL);
        working.join().expect("a worker");
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
            "{number}: {runs} runs, {copies} copies"
        );
    }
    assert!(0 < before && before < COUNT, "{before} of {COUNT} copies were deleted before the failure");
    assert_eq!(client.figure("stats", "current-jobs-ready").expect("a figure"), "0");
}
