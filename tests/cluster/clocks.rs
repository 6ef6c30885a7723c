//! Tests an active server of a cluster while its clock is set.
//!
//! Must not test takeovers, which are the subject of `program` and `failover`.

use std::time::Duration;

use super::daemon::can_preload;
use super::engine::Served;
use super::member::Clocks;

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
