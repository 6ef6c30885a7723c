//! Tests stopping the server: cleanly, without delay, and with outstanding replies.

use std::fs;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::daemon::{wait_until, Daemon, Signal, PATIENCE};
use super::{is_socket, read_all};

/// Time limit for slow clients to read their last replies when the server stops.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The size of a body that makes replies long, in bytes.
const BODY: usize = 60_000;

/// Returns the signals that stop the server. Omits signals that the test process ignores, for example under nohup,
/// because the server would inherit this setting.
pub fn ends() -> impl Iterator<Item = Signal> {
    let status = fs::read_to_string("/proc/self/status").expect("the status of this process");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("the mask of ignored signals");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a number");
    let ends = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    ends.into_iter().filter(move |signal| mask >> (*signal as u32 - 1) & 1 == 0)
}

/// Sends a signal. Checks that the server exits with status 0 and without warnings, even if clients are connected.
fn stops(daemon: &Daemon, signal: Signal) {
    daemon.signal(signal);
    assert_eq!(daemon.wait(PATIENCE), 0, "after {signal}");
    let log = daemon.log();
    assert!(log.trim_end().ends_with("stopping"), "after {signal}:\n{log}");
    assert!(!log.contains("panicked") && !log.contains(" WARN "), "after {signal}:\n{log}");
}

/// Sends `replies` peek commands for a job with a large body, then `last`. Waits until the server has executed them.
fn owe(daemon: &Daemon, stream: &mut impl Write, replies: usize, last: &str) {
    let mut other = daemon.client();
    assert_eq!(other.put(&vec![b'x'; BODY], 0, 0, 3600).unwrap(), 1);
    other.reserve(Some(0)).unwrap().expect("the job");
    stream.write_all(("peek 1\r\n".repeat(replies) + last).as_bytes()).unwrap();
    let mut peeked = || other.figure("stats", "cmd-peek").unwrap().parse::<usize>().unwrap();
    wait_until("the commands are executed", || peeked() == replies);
    // Disconnecting would release the job to a waiting client, so the test leaks the connection.
    std::mem::forget(other);
}

/// Returns the length of the outstanding replies in bytes.
fn owed(replies: usize) -> usize {
    replies * (format!("FOUND 1 {BODY}\r\n").len() + BODY + 2)
}

#[test]
fn an_idle_server_stops() {
    for signal in ends() {
        stops(&Daemon::start(&[]), signal);
    }
}

#[test]
fn waiting_clients_are_disconnected() {
    for signal in ends() {
        let daemon = Daemon::start(&["-t", "2"]);
        let mut streams: Vec<_> = (0..8).map(|_| daemon.tcp()).collect();
        for (number, stream) in streams.iter_mut().enumerate() {
            let command = ["reserve\r\n", "reserve-with-timeout 100\r\n", "put 0 0 60 5\r\nhel", ""][number % 4];
            stream.write_all(command.as_bytes()).unwrap();
        }
        let mut client = daemon.client();
        wait_until("four clients wait", || client.figure("stats", "current-waiting").unwrap() == "4");
        stops(&daemon, signal);
        for stream in &mut streams {
            assert_eq!(read_all(stream), b"", "a waiting client must not receive a reply");
        }
    }
}

#[test]
fn many_clients_are_disconnected() {
    let daemon = Daemon::start_unix(&[]);
    let mut streams: Vec<_> = (0..300).map(|_| daemon.unix()).collect();
    for stream in &mut streams {
        stream.write_all(b"put 0 1000 60 1\r\nx\r\nreserve\r\n").unwrap();
    }
    let mut client = daemon.client();
    wait_until("all clients wait", || client.figure("stats", "current-waiting").unwrap() == "300");
    stops(&daemon, Signal::SIGTERM);
    for stream in &mut streams {
        let replies = read_all(stream);
        assert!(replies.starts_with(b"INSERTED ") && replies.ends_with(b"\r\n"), "{replies:?}");
    }
}

#[test]
fn the_stop_does_not_wait_forever_for_a_client_that_never_reads() {
    std::thread::scope(|scope| {
        for signal in ends() {
            scope.spawn(move || {
                let daemon = Daemon::start_unix(&[]);
                let mut stream = daemon.unix();
                owe(&daemon, &mut stream, 12, "");
                stops(&daemon, signal);
                assert!(!is_socket(daemon.path()));
            });
        }
    });
}

#[test]
fn the_stop_does_not_wait_forever_for_a_tcp_client_that_never_reads() {
    let daemon = Daemon::start(&["--max-output", "100M"]);
    let mut stream = daemon.tcp();
    // Together, the replies are larger than the kernel's buffers.
    owe(&daemon, &mut stream, 400, "");
    stops(&daemon, Signal::SIGTERM);
}

/// Like [`read_all`], but waits first. A server that does not wait for slow clients would close the connection during
/// this time.
fn read_late(daemon: &Daemon, stream: &mut impl Read) -> Vec<u8> {
    wait_until("the socket file is removed", || !daemon.path().exists());
    std::thread::sleep(Duration::from_millis(50));
    read_all(stream)
}

/// Returns `whole`. Panics if the reply is incomplete although the client has read within the server's time limit. If
/// the client was too slow, the caller can retry.
fn is_whole(whole: bool, signalled: Instant) -> bool {
    let took = signalled.elapsed();
    assert!(whole || took >= LAST_WORDS, "replies are missing although the client read them within {took:?}");
    whole
}

fn arrive(last: &str) {
    wait_until("replies are read in time", || {
        let daemon = Daemon::start_unix(&[]);
        let mut stream = daemon.unix();
        owe(&daemon, &mut stream, 12, last);
        let signalled = Instant::now();
        daemon.signal(Signal::SIGTERM);
        let length = read_late(&daemon, &mut stream).len();
        assert!(length <= owed(12), "{length} of {} bytes", owed(12));
        let whole = is_whole(length == owed(12), signalled);
        assert_eq!(daemon.wait(PATIENCE), 0);
        whole
    });
}

/// The server must send all outstanding replies, including those that did not fit into the socket buffer.
#[test]
fn outstanding_replies_arrive() {
    arrive("");
}

#[test]
fn outstanding_replies_to_a_waiting_worker_arrive() {
    arrive("reserve\r\n");
}

/// Closing a TCP connection with unread input resets the connection, and discards data that the peer has not received.
#[test]
fn outstanding_replies_arrive_despite_unread_commands() {
    wait_until("replies are read in time", arrive_though_more_commands_do_not);
}

fn arrive_though_more_commands_do_not() -> bool {
    let daemon = Daemon::start(&[]);
    let mut stream = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // With a small receive buffer in the client, the last replies stay in the server's send buffer after the server has
    // written all replies.
    stream.set_recv_buffer_size(4096).unwrap();
    stream.connect(&daemon.address().into()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut other = daemon.client();
    other.put(&vec![b'x'; BODY], 0, 0, 3600).unwrap();
    stream.write_all("peek 1\r\n".repeat(2000).as_bytes()).unwrap();
    let mut peeked = || other.figure("stats", "cmd-peek").unwrap().parse::<usize>().unwrap();
    let (mut replies, mut looks) = (0, 0);
    wait_until("the server stops reading from a client that does not read", || {
        let now = peeked();
        looks = if now == replies { looks + 1 } else { 0 };
        replies = now;
        replies > 0 && looks >= 20
    });
    stream.write_all(b"list-tubes\r\n").unwrap();
    let signalled = Instant::now();
    daemon.signal(Signal::SIGTERM);
    daemon.wait_log("stopping");
    let length = read_all(&mut stream).len();
    let whole = is_whole(length >= owed(replies), signalled);
    assert_eq!(daemon.wait(PATIENCE), 0);
    whole
}

#[test]
fn a_second_signal_while_stopping_has_no_effect() {
    let daemon = Daemon::start_unix(&[]);
    let mut stream = daemon.unix();
    owe(&daemon, &mut stream, 12, "");
    daemon.signal(Signal::SIGTERM);
    daemon.wait_log("stopping");
    for signal in [Signal::SIGINT, Signal::SIGUSR1, Signal::SIGTERM] {
        daemon.signal(signal);
    }
    assert_eq!(daemon.wait(PATIENCE), 0);
    assert!(!is_socket(daemon.path()));
}

/// A client that keeps sending commands must not delay the shutdown.
#[test]
fn a_busy_client_does_not_delay_the_stop() {
    let daemon = Daemon::start(&[]);
    let mut stream = daemon.tcp();
    let mut reader = stream.try_clone().unwrap();
    let asking = std::thread::spawn(move || while stream.write_all(b"stats\r\n").is_ok() {});
    let reading = std::thread::spawn(move || while matches!(reader.read(&mut [0; 65_536]), Ok(1..)) {});
    let mut client = daemon.client();
    wait_until("the server is busy", || client.figure("stats", "cmd-stats").unwrap().parse::<u64>().unwrap() > 100);
    stops(&daemon, Signal::SIGTERM);
    asking.join().expect("no panic");
    reading.join().expect("no panic");
}
