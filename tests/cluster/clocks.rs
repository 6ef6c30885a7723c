//! Tests servers of a cluster while their clocks are set.

use std::time::Duration;

use super::daemon::{can_preload, wait_until, Signal};
use super::engine::Served;
use super::member::{Clocks, Member};

// Tests promise P11 of beanpole-promises(7).
#[test]
fn setting_the_clock_of_an_active_server_moves_no_deadline() {
    if !can_preload() {
        return;
    }
    let (served, clocks) = (Served::start(), Clocks::new());
    clocks.set(Duration::from_secs(86_400), Duration::ZERO);
    let member = clocks.start(&served, "a");
    member.wait_active();
    let mut client = member.client();
    let later = client.put(b"later", 0, 3600, 60).expect("a job");
    let held = client.put(b"held", 0, 0, 3600).expect("a job");
    client.reserve_job(held).expect("a job");
    // Sets the clock back by a day, and then forward by two days.
    for wall in [0, 2 * 86_400] {
        clocks.set(Duration::from_secs(wall), Duration::ZERO);
        let soon = client.put(b"soon", 0, 1, 60).expect("a job");
        assert_eq!(client.reserve(Some(1000)).expect("a reply").map(|job| job.id), Some(soon));
        client.delete(soon).expect("the job is deleted");
        for id in [later, held] {
            let left = client.figure(&format!("stats-job {id}"), "time-left").expect("a figure");
            let left: u64 = left.parse().expect("a number");
            assert!((1800..=3600).contains(&left), "{left} s are left of job {id}, with a clock of +{wall} s");
        }
    }
}

#[test]
fn a_clock_jump_before_a_takeover_does_not_end_delays() {
    if !can_preload() {
        return;
    }
    let (served, clocks) = (Served::start(), Clocks::new());
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let id = first.client().put(b"x", 0, 3000, 60).expect("a job");
    let second = clocks.start(&served, "b");
    let held = first.figure("journal-entry");
    wait_until("b has caught up", || second.get("/metrics").1.contains(&format!("\nbeanpole_journal_entry {held}\n")));
    // The standby derives the queue's time from heartbeats, so it must see several heartbeats before the takeover.
    let (beats, seen) = (served.engine().beats(), 5);
    wait_until("the active server has sent several heartbeats", || served.engine().beats() >= beats + seen);
    first.daemon.signal(Signal::SIGKILL);
    clocks.set(Duration::from_secs(3600), Duration::ZERO);
    second.wait_active();
    let left: u64 = second.client().figure(&format!("stats-job {id}"), "time-left").expect("a figure").parse().unwrap();
    assert!((2400..=3000).contains(&left), "the job's delay moved with the clock: {left}");
}

/// The active server loses its lease because etcd does not respond, and becomes active again.
#[test]
fn a_clock_jump_while_no_server_is_active_does_not_end_delays() {
    if !can_preload() {
        return;
    }
    let (served, clocks) = (Served::start(), Clocks::new());
    let member = clocks.start(&served, "a");
    member.wait_active();
    let id = member.client().put(b"x", 0, 3000, 60).expect("a job");
    served.engine().is_away = true;
    member.daemon.wait_log("no longer active");
    clocks.set(Duration::from_secs(3600), Duration::ZERO);
    wait_until("the server stands by", || member.daemon.log().matches("standing by as a").count() == 2);
    served.engine().is_away = false;
    member.daemon.wait_log("active as a, epoch 2");
    member.wait_active();
    let left: u64 = member.client().figure(&format!("stats-job {id}"), "time-left").expect("a figure").parse().unwrap();
    assert!((2400..=3000).contains(&left), "the job's delay moved with the clock: {left}");
}
