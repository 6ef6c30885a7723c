//! Tests behavior that becomes visible only after many repetitions, on a virtual clock.

use std::time::Duration;

use beanpole::Config;

use super::crowd::{server_with, Client};
use crate::script::{Patience, Wire, World};
use crate::within::{Pieces, Within};

struct One(Within);

impl One {
    fn new() -> One {
        let mut world = Within::new(&Config::embedded(), Pieces::AsSent);
        world.open("W", Wire::Workq).expect("a connection");
        One(world)
    }

    fn ask(&mut self, text: &str) -> String {
        self.0.send("W", text.as_bytes());
        String::from_utf8(self.0.receive("W", Patience::Must)).expect("text")
    }
}

/// The original Workq server preferred some names, and never served other names.
#[test]
fn the_queues_of_a_lease_are_equally_likely() {
    let mut one = One::new();
    for number in 0..600 {
        let name = ["a", "b", "c"][number % 3];
        let answer = one.ask(&format!(
            "add 00000000-0000-4000-8000-{number:012} {name} 600000 600000 0 -priority={number}\r\n\r\n"
        ));
        assert_eq!(answer, "+OK\r\n");
    }
    let mut counts = [0; 3];
    for _ in 0..300 {
        let answer = one.ask("lease a b c 0\r\n");
        let name = answer.split(' ').nth(2).expect("a name");
        counts[["a", "b", "c"].iter().position(|known| *known == name).expect("a requested name")] += 1;
    }
    // The expected count is 100, with a standard deviation of 8.
    assert!(counts.iter().all(|count| (55..145).contains(count)), "{counts:?}");
}

/// The original Workq server removed a job silently at its 256th lease.
#[test]
fn without_a_limit_a_job_can_be_leased_any_number_of_times() {
    let mut one = One::new();
    assert_eq!(one.ask("add 00000000-0000-4000-8000-000000000000 q 1 600000 0\r\n\r\n"), "+OK\r\n");
    for _ in 0..300 {
        assert!(one.ask("lease q 0\r\n").starts_with("+OK 1\r\n"));
        one.0.pass(Duration::from_millis(1));
    }
    let shown = one.ask("inspect job 00000000-0000-4000-8000-000000000000\r\n");
    assert!(shown.contains("attempts 300\r\n") && shown.contains("state 3\r\n"), "{shown}");
}

/// The names in a lease must not affect later leases, even if the server refuses the lease because of too many names.
#[test]
fn names_of_a_lease_do_not_affect_later_leases() {
    let (_server, address) = server_with(Config::embedded().with(|config| config.max_watched = 3));
    let mut client = Client::connect(address);
    for (names, answer) in [
        ("a b c", "-TIMEOUT"),
        ("d e f", "-TIMEOUT"),
        ("a b c d", "-SERVER-ERROR Too many names"),
        ("a", "-TIMEOUT"),
        ("a a b b b c", "-TIMEOUT"),
        ("g h i j", "-SERVER-ERROR Too many names"),
        ("g h i", "-TIMEOUT"),
    ] {
        client.send(&format!("lease {names} 0\r\n"));
        assert_eq!(client.line(), answer, "{names}");
    }
    client.send("inspect queues 0 10\r\n");
    assert_eq!(client.line(), "+OK 3");
}
