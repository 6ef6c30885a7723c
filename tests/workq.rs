//! Workq tests that the files in tests/conversations cannot express: random schedules that are compared with a model,
//! random input, many connections, many repetitions, restarts, memory usage, and the manual page.

mod daemon;
#[allow(dead_code, unused_imports)] // the tests use only the world inside the test process
mod script;
#[allow(dead_code)]
#[path = "script/within.rs"]
mod within;

#[path = "workq/bytes.rs"]
mod bytes;
#[path = "workq/crowd.rs"]
mod crowd;
#[path = "workq/hostile.rs"]
mod hostile;
#[path = "workq/manual.rs"]
mod manual;
#[path = "workq/model.rs"]
mod model;
#[path = "workq/often.rs"]
mod often;
#[path = "workq/races.rs"]
mod races;
#[path = "workq/random.rs"]
mod random;
#[path = "workq/restart.rs"]
mod restart;

#[test]
fn random_schedules_match_the_model() {
    let commands: usize = (0..120).map(|seed| races::race(seed, 400)).sum();
    assert!(commands > 30_000, "only {commands} commands before simultaneous events");
}

#[test]
fn random_input_does_no_harm() {
    let survivors: usize = (0..12).map(|seed| hostile::nonsense(seed, 100)).sum();
    assert!((100..1100).contains(&survivors), "{survivors} connections of 1200 survived");
}

#[test]
fn fifty_clients_lease_a_full_queue() {
    let (server, address) = crowd::server();
    crowd::lease_all(address, 50, 0..20_000);
    server.check();
}

#[test]
fn every_job_is_delivered_immediately() {
    let (server, address) = crowd::server();
    crowd::hand_over(address, 20, 2000);
    server.check();
}
