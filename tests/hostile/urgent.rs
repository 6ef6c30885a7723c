//! Tests TCP urgent data. beanstalkd does not read urgent data and therefore polls continuously.

use crate::daemon::{Daemon, Signal};
use crate::wire::{at_rest, calm, Wire};

const MANY: usize = 200;

#[test]
fn an_urgent_byte_of_an_idle_client() {
    let daemon = Daemon::start(&[]);
    let mut client = Wire::to(&daemon);
    client.send_urgent();
    calm(&daemon);
    client.ask("list-tube-used", "USING default");
}

#[test]
fn many_urgent_bytes_of_an_idle_client() {
    let daemon = Daemon::start(&[]);
    let mut client = Wire::to(&daemon);
    for _ in 0..MANY {
        client.send_urgent();
    }
    calm(&daemon);
    // The kernel may have added all urgent bytes except the last to the ordinary data.
    client.send("\r\nlist-tube-used\r\n");
    client.skip_to("USING default");
    calm(&daemon);
}

#[test]
fn urgent_bytes_of_a_client_that_waits_for_a_job() {
    let daemon = Daemon::start(&[]);
    let mut client = Wire::to(&daemon);
    client.ask("watch work", "WATCHING 2");
    client.send("reserve\r\n");
    for _ in 0..MANY {
        client.send_urgent();
    }
    at_rest(&daemon);
    let mut producer = Wire::to(&daemon);
    producer.ask("use work", "USING work");
    let id = producer.put(b"x", 60);
    assert_eq!(client.job(), (id, b"x".to_vec()));
    client.send("\r\n");
    client.send(format!("delete {id}\r\n"));
    client.skip_to("DELETED");
    calm(&daemon);
}

/// A read stops before an urgent byte even if more data follows. The test stops the server until all data has arrived.
#[test]
fn commands_behind_an_urgent_byte_are_answered() {
    let daemon = Daemon::start(&[]);
    let mut client = Wire::to(&daemon);
    client.ask("list-tube-used", "USING default");
    daemon.signal(Signal::SIGSTOP);
    client.send("list-tube-used\r\n");
    client.send_urgent();
    client.send("list-tube-used\r\n");
    daemon.signal(Signal::SIGCONT);
    client.expect("USING default");
    // The kernel can add the urgent byte to the line or omit it. The reply shows which.
    let answer = client.line();
    assert!(["USING default", "UNKNOWN_COMMAND"].contains(&answer.as_str()), "{answer}");
    calm(&daemon);
}

/// Tests a body separately, because the server reads bodies and lines differently.
#[test]
fn an_urgent_byte_within_a_body() {
    let daemon = Daemon::start(&[]);
    let mut client = Wire::to(&daemon);
    client.ask("list-tube-used", "USING default");
    daemon.signal(Signal::SIGSTOP);
    client.send(format!("put 0 0 60 20000\r\n{}", "x".repeat(10_000)));
    client.send_urgent();
    client.send(format!("{}\r\nlist-tube-used\r\n", "x".repeat(10_000)));
    daemon.signal(Signal::SIGCONT);
    // If the kernel has added the urgent byte to the data, the body is one byte too long.
    let answer = client.line();
    assert!(["INSERTED 1", "EXPECTED_CRLF"].contains(&answer.as_str()), "{answer}");
    client.skip_to("USING default");
    calm(&daemon);
}
