//! A queue inside another program, beyond what the examples of the library's page show.

use std::time::Duration;

use beanpole::{Client, Config, Server};

#[test]
fn a_clock_moved_by_hand_passes_each_moment_on_its_way() {
    let (server, clock) = Server::with_manual_clock(Config::embedded()).expect("a server");
    let mut client = Client::connect(server.address()).expect("a connection");
    let id = client.put(b"x", 0, 10, 5).expect("a job");
    client.send(b"reserve\r\n").expect("a connection");
    let mut other = Client::connect(server.address()).expect("a connection");
    while other.figure("stats", "current-waiting").expect("a figure") != "1" {
        std::thread::yield_now();
    }
    // It is ready after 10 seconds, reserved at once, and lost again after 15.
    clock.advance(Duration::from_secs(20));
    assert_eq!(client.line().expect("a reply"), format!("RESERVED {id} 1"));
    let mut figure = |key: &str| other.figure(&format!("stats-job {id}"), key).expect("a figure");
    assert_eq!([figure("state"), figure("timeouts"), figure("age")], ["ready", "1", "20"]);
}
