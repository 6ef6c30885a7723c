//! Tests that jobs survive a restart with a log, and that times to live and leases continue to run while the server is
//! down. In the original Workq server, a restart reset these times.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use beanpole::internals::protocol::Wire;
use beanpole::{Address, Config, Server};

use super::crowd::{id, Client};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("beanpole-workq-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(folder: &Path) -> (Server, Client) {
    start_with(folder, Config::embedded())
}

fn start_with(folder: &Path, config: Config) -> (Server, Client) {
    let door = vec![Address::Tcp(None, None)];
    let config = config.with(|config| {
        config.log_folder = Some(folder.to_owned());
        config.workq = door.clone();
        config.gearman = door;
    });
    let server = Server::with(config).expect("a server");
    let client = Client::connect(server.address_of(Wire::Workq).expect("an address"));
    (server, client)
}

/// Sends a command. Reads and returns `lines` lines of the reply.
fn ask(client: &mut Client, text: &str, lines: usize) -> Vec<String> {
    client.send(text);
    (0..lines).map(|_| client.line().to_owned()).collect()
}

/// Returns the part of the reply to `inspect job` from the key `max-attempts` to the key `state`, or `gone` if there is
/// no such job.
fn look(client: &mut Client, number: u64) -> String {
    let lines = ask(client, &format!("inspect job {}\r\n", id(number)), 1);
    if lines[0] == "-NOT-FOUND" {
        return "gone".to_owned();
    }
    let keys: usize = client.line().rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a count");
    let values: Vec<String> = (0..keys).map(|_| client.line().to_owned()).collect();
    values[5..11].join(", ")
}

fn state(attempts: u32, fails: u32, state: u32) -> String {
    format!("max-attempts 9, attempts {attempts}, max-fails 2, fails {fails}, priority 3, state {state}")
}

#[test]
fn jobs_and_results_are_recovered() {
    let folder = Scratch::new("restart");
    let (server, mut client) = start(&folder.0);
    for number in 1..=6 {
        let queue = if number == 5 { "leased" } else { "q" };
        let flags = "-max-attempts=9 -max-fails=2 -priority=3";
        let line = format!("add {} {queue} 600000 3600000 4 {flags}\r\nbody\r\n", id(number));
        assert_eq!(ask(&mut client, &line, 1), ["+OK"]);
    }
    let line = format!("schedule {} q 1000 60000 2500-01-01T00:00:00Z 1\r\nx\r\n", id(7));
    assert_eq!(ask(&mut client, &line, 1), ["+OK"]);
    assert_eq!(ask(&mut client, &format!("complete {} 4\r\ndone\r\n", id(2)), 1), ["+OK"]);
    for _ in 0..2 {
        assert_eq!(ask(&mut client, &format!("fail {} 3\r\nbad\r\n", id(3)), 1), ["+OK"]);
    }
    assert_eq!(ask(&mut client, &format!("delete {}\r\n", id(4)), 1), ["+OK"]);
    assert_eq!(ask(&mut client, "lease leased 1000\r\n", 3)[0], "+OK 1");
    assert_eq!(ask(&mut client, &format!("fail {} 3\r\nbad\r\n", id(6)), 1), ["+OK"]);
    client.send(&format!("run {} r 1000 600000 1\r\nx\r\n", id(8)));
    let mut other = Client::connect(server.address_of(Wire::Workq).expect("an address"));
    while look(&mut other, 8) == "gone" {}
    drop(server);

    let (_server, mut client) = start(&folder.0);
    assert_eq!(look(&mut client, 1), state(0, 0, 0));
    assert_eq!(look(&mut client, 2), state(0, 0, 1));
    assert_eq!(look(&mut client, 3), state(0, 2, 2));
    assert_eq!(look(&mut client, 4), "gone");
    assert_eq!(look(&mut client, 5), state(1, 0, 4));
    assert_eq!(look(&mut client, 6), state(0, 1, 0));
    assert_eq!(look(&mut client, 8), "gone");
    let shown = ask(&mut client, &format!("inspect job {}\r\n", id(7)), 15);
    assert_eq!((&*shown[3], &*shown[14]), ("ttr 1000", "time 2500-01-01T00:00:00Z"));
    let result = |number: u64, success: u32, size: u32| format!("{} {success} {size}", id(number));
    assert_eq!(ask(&mut client, &format!("result {} 0\r\n", id(2)), 3), ["+OK 1", &result(2, 1, 4), "done"]);
    assert_eq!(ask(&mut client, &format!("result {} 0\r\n", id(3)), 3), ["+OK 1", &result(3, 0, 3), "bad"]);
    assert_eq!(ask(&mut client, &format!("add {} q 1 1 0\r\n\r\n", id(2)), 1), ["-CLIENT-ERROR Duplicate job"]);
    assert_eq!(ask(&mut client, &format!("complete {} 2\r\nok\r\n", id(5)), 1), ["+OK"]);
    assert_eq!(ask(&mut client, "lease q 0\r\n", 3)[1], format!("{} q 600000 4", id(1)));
}

// Tests promise P39 of beanpole-promises(7).
#[test]
fn times_continue_while_the_server_is_down() {
    let folder = Scratch::new("times");
    let (server, mut client) = start(&folder.0);
    for (number, ttr, ttl) in [(1, 600_000, 400), (2, 400, 600_000), (3, 600_000, 600_000)] {
        let line = format!("add {} q{number} {ttr} {ttl} 1\r\nx\r\n", id(number));
        assert_eq!(ask(&mut client, &line, 1), ["+OK"]);
    }
    assert_eq!(ask(&mut client, "lease q2 0\r\n", 3)[0], "+OK 1");
    drop(server);
    std::thread::sleep(Duration::from_millis(500));

    let (_server, mut client) = start(&folder.0);
    assert_eq!(look(&mut client, 1), "gone");
    assert!(look(&mut client, 2).ends_with("attempts 1, max-fails 0, fails 0, priority 0, state 3"));
    assert!(look(&mut client, 3).ends_with("state 0"));
}

/// The client that leased the job has disconnected. An administrator has lowered the limit on the lease duration of
/// jobs without a time to run.
#[test]
fn a_restart_applies_the_new_limit_to_leases_without_a_time_to_run() {
    let folder = Scratch::new("lease-limit");
    let (server, mut client) = start_with(&folder.0, Config::embedded().with(|config| config.lease_limit = 86_400));
    let address = server.address_of(Wire::Gearman).expect("an address");
    let mut producer = std::net::TcpStream::connect(address).expect("a connection");
    producer.write_all(b"\0REQ\0\0\0\x12\0\0\0\x05q\0\0hi").expect("a connection");
    producer.read_exact(&mut [0; 13]).expect("a reply");
    let leased = ask(&mut client, "lease q 60000\r\n", 3);
    assert!(leased[1].ends_with(" q 86400000 2") && leased[2] == "hi", "{leased:?}");
    drop((client, server));
    let (_server, mut client) = start_with(&folder.0, Config::embedded().with(|config| config.lease_limit = 1));
    let leased = ask(&mut client, "lease q 60000\r\n", 3);
    assert!(leased[1].ends_with(" q 1000 2") && leased[2] == "hi", "{leased:?}");
}

#[test]
fn results_of_large_jobs_have_space() {
    let folder = Scratch::new("large");
    let (server, mut client) = start(&folder.0);
    let payload = "x".repeat(900_000);
    for number in 0..60 {
        let line = format!("add {} q 600000 3600000 {}\r\n{payload}\r\n", id(number), payload.len());
        assert_eq!(ask(&mut client, &line, 1), ["+OK"], "{number}");
    }
    let lines: String = (0..60).map(|number| format!("complete {} 2\r\nok\r\n", id(number))).collect();
    assert_eq!(ask(&mut client, &lines, 60), vec!["+OK"; 60]);
    drop(server);
    let (_server, mut client) = start(&folder.0);
    for number in 0..60 {
        assert_eq!(ask(&mut client, &format!("result {} 0\r\n", id(number)), 3)[2], "ok");
    }
}
