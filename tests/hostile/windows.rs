//! Tests clients that read their replies slowly or not at all.
//!
//! The total size of a client's unsent replies must be limited, whatever commands the client sends and however long the
//! connection lasts.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::daemon::{wait_until, Daemon, PATIENCE};
use crate::wire::{at_rest, calm, figure, served, stat, Wire};

const JOBS: usize = 7;

/// Pairs of body sizes in bytes. The server copies small bodies into replies. Replies share large bodies with the job.
const SIZES: [[usize; 2]; 3] = [[4000, 3000], [60_000, 50_000], [5000, 100]];

/// Maximum memory for several clients that do not read, in bytes. The unsent replies to a client are limited to 1 MiB,
/// plus the replies to one batch of commands and the overhead of growing buffers.
const BOUND: u64 = 24 << 20;

/// Puts jobs with bodies of alternating sizes. Returns the reply to a `peek` of each job.
fn jobs(daemon: &Daemon, sizes: [usize; 2]) -> Vec<Vec<u8>> {
    let mut producer = Wire::to(daemon);
    let put = |number: usize| {
        let body = vec![b'a' + number as u8; sizes[number % 2] + number];
        let id = producer.put(&body, 60);
        [format!("FOUND {id} {}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat()
    };
    (0..JOBS).map(put).collect()
}

fn peeks(count: usize) -> String {
    (0..count).map(|number| format!("peek {}\r\n", number % JOBS + 1)).collect()
}

fn read_all(client: &mut Wire, replies: &[Vec<u8>], count: usize) {
    let mut found = Vec::new();
    for number in 0..count {
        let expected = &replies[number % JOBS];
        found.resize(expected.len(), 0);
        client.reader().read_exact(&mut found).unwrap_or_else(|error| panic!("reply {number}: {error}"));
        assert!(found == *expected, "reply {number}: {:?}...", String::from_utf8_lossy(&found[..20]));
    }
}

/// Returns a connection with a small receive window and a realistic segment size.
fn narrow(daemon: &Daemon) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    socket.set_recv_buffer_size(16 * 1024).expect("a socket");
    socket.set_tcp_mss(1460).expect("a socket");
    socket.connect(&daemon.address().into()).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a connection");
    socket.into()
}

fn reads_late(half_close: bool) {
    for sizes in SIZES {
        let daemon = Daemon::start(&[]);
        let replies = jobs(&daemon, sizes);
        let count = (20 << 20) / (sizes[0] + sizes[1]) * 2;
        let mut client = Wire::to(&daemon);
        client.send(peeks(count));
        if half_close {
            client.stream().shutdown(Shutdown::Write).expect("a connection");
        }
        calm(&daemon);
        read_all(&mut client, &replies, count);
        if half_close {
            client.expect_end();
        } else {
            client.ask("list-tube-used", "USING default");
        }
        calm(&daemon);
    }
}

#[test]
fn half_closed_with_a_full_window() {
    reads_late(true);
}

#[test]
fn open_with_a_full_window() {
    reads_late(false);
}

/// The client half-closes the connection and then closes it. Because of the unread replies, the kernel sends a reset.
#[test]
fn half_closed_with_a_full_window_then_disconnected() {
    let daemon = Daemon::start(&[]);
    jobs(&daemon, SIZES[1]);
    let mut client = Wire::to(&daemon);
    client.send(peeks(2000));
    client.stream().shutdown(Shutdown::Write).expect("a connection");
    at_rest(&daemon);
    drop(client);
    let mut observer = daemon.client();
    wait_until("the connection is closed", || figure(&mut observer, "stats", "current-connections") == 1);
    calm(&daemon);
}

/// Sends commands until the server is idle and has stopped reading. Returns the number of accepted bytes.
fn stuff(daemon: &Daemon, stream: &mut TcpStream, commands: &[u8]) -> usize {
    stream.set_nonblocking(true).expect("a connection");
    let (mut sent, mut at_last_rest) = (0, None);
    loop {
        match stream.write(&commands[sent % commands.len()..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock && at_last_rest == Some(sent) => return sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                at_rest(daemon);
                at_last_rest = Some(sent);
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 200 << 20, "the server keeps reading from a client that does not read");
    }
}

#[test]
fn clients_that_never_read() {
    for sizes in SIZES {
        let daemon = Daemon::start(&[]);
        jobs(&daemon, sizes);
        let before = daemon.rss();
        let commands = peeks(JOBS * 1000).into_bytes();
        let mut clients: Vec<TcpStream> = (0..4).map(|_| daemon.tcp()).collect();
        for client in &mut clients {
            stuff(&daemon, client, &commands);
            served(&daemon);
        }
        calm(&daemon);
        for client in &mut clients {
            let more = stuff(&daemon, client, &commands);
            assert!(more < 1 << 20, "another {more} bytes were read");
        }
        let grown = daemon.peak_rss().saturating_sub(before);
        println!("{sizes:?}: 4 clients that never read cost {} kB", grown / 1024);
        assert!(grown < BOUND, "{grown} bytes for 4 clients that never read");
        calm(&daemon);
    }
}

/// The client reads slowly, and always has unread replies. The server must release the memory of sent replies.
#[test]
fn a_client_that_reads_slowly_for_long() {
    let daemon = Daemon::start(&[]);
    let replies = jobs(&daemon, SIZES[0]);
    let before = daemon.rss();
    let count = 20_000;
    let stream = narrow(&daemon);
    let mut writer = stream.try_clone().expect("a connection");
    let sender = std::thread::spawn(move || writer.write_all(peeks(count).as_bytes()).expect("a connection"));
    let mut client = Wire::of(stream);
    // Unsent replies accumulate during the first pause. Their total size remains roughly constant during later pauses.
    std::thread::sleep(Duration::from_millis(200));
    for round in 0..count / JOBS / 4 {
        read_all(&mut client, &replies, JOBS * 4);
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let grown = daemon.peak_rss().saturating_sub(before);
    println!("a slow reader of {} MB cost {} kB", (count * 3500) >> 20, grown / 1024);
    read_all(&mut client, &replies, count % (JOBS * 4));
    sender.join().expect("a sender");
    assert!(grown < BOUND, "{grown} bytes for one client that reads slowly");
    calm(&daemon);
}

/// The server must not execute commands of a client that has too many unread replies, so the client gets no job.
#[test]
fn a_reserve_behind_unread_replies_takes_no_job() {
    let daemon = Daemon::start(&[]);
    let replies = jobs(&daemon, SIZES[1]);
    let mut worker = Wire::to(&daemon);
    worker.send("watch work\r\nignore default\r\n");
    worker.send(peeks(500));
    worker.send("reserve\r\n");
    at_rest(&daemon);
    let mut other = Wire::to(&daemon);
    other.ask("use work", "USING work");
    other.ask("watch work", "WATCHING 2");
    other.ask("ignore default", "WATCHING 1");
    let id = other.put(b"first", 60);
    other.send("reserve\r\n");
    assert_eq!(other.job(), (id, b"first".to_vec()));
    worker.expect("WATCHING 2");
    worker.expect("WATCHING 1");
    read_all(&mut worker, &replies, 500);
    let id = other.put(b"second", 60);
    assert_eq!(worker.job(), (id, b"second".to_vec()));
    calm(&daemon);
}

/// Returns `true` if the server has dropped this client to free memory, because the client had not read for a second.
fn is_dropped(daemon: &Daemon, reader: &TcpStream) -> bool {
    let address = reader.local_addr().expect("a bound socket");
    daemon.log().contains(&format!("{address}: dropped, since memory is short"))
}

/// While the server sends the body of a deleted job, the body must still count toward the memory limit.
#[test]
fn deleted_bodies_that_are_being_sent_are_charged() {
    const BODY: usize = 8 << 20;
    let daemon = Daemon::start(&["-z", "8M", "--max-memory", "40M"]);
    let body = vec![b'x'; BODY];
    let mut producer = Wire::to(&daemon);
    let mut slow: Vec<TcpStream> = Vec::new();
    // Stops after 20 clients, because on a slow machine, memory might never be exhausted: the server drops clients that
    // have not read for a second.
    while slow.len() < 20 {
        producer.send(format!("put 0 0 60 {BODY}\r\n"));
        producer.send(&body);
        producer.send("\r\n");
        let line = producer.line();
        // On a busy machine, the server may already have dropped the first clients.
        let held = |slow: &[TcpStream]| slow.iter().filter(|reader| !is_dropped(&daemon, reader)).count();
        if line == "OUT_OF_MEMORY" {
            assert!(slow.len() >= 4, "only {} bodies of 8 MiB in 40 MiB", slow.len());
            break;
        }
        wait_until("the bodies in memory are within the limit", || held(&slow) <= 3);
        let id = line.strip_prefix("INSERTED ").expect("an id").to_owned();
        let mut reader = narrow(&daemon);
        reader.write_all(format!("peek {id}\r\n").as_bytes()).expect("an open connection");
        reader.read_exact(&mut [0; 5]).expect("the beginning of a reply");
        producer.ask(&format!("delete {id}"), "DELETED");
        slow.push(reader);
    }
    let last = slow.pop().expect("a reader");
    let mut rest = vec![0; format!(" 1 {BODY}\r\n").len() + BODY + 2];
    let whole = (&last).read_exact(&mut rest).is_ok();
    wait_until("the last reader has the whole body or is dropped", || whole || is_dropped(&daemon, &last));
    drop((last, slow));
    wait_until("the memory for replies is released", || stat(&daemon, "current-memory") < 1 << 20);
    assert!(producer.put(&body, 60) > 0);
    calm(&daemon);
}

/// The list of tubes has no size limit. The server must refuse a list that does not fit into the available memory.
#[test]
fn unread_long_lists_are_charged() {
    const TUBES: usize = 20_000;
    let daemon = Daemon::start(&["--max-memory", "40M"]);
    let mut operator = Wire::to(&daemon);
    for number in 0..TUBES {
        operator.send(format!("watch {}{number:05}\r\n", "x".repeat(195)));
    }
    (0..TUBES).for_each(|number| assert_eq!(operator.line(), format!("WATCHING {}", number + 2)));
    let length = 4 + "- default\n".len() + TUBES * 203;
    let mut readers = Vec::new();
    // Stops after 20 clients, because on a slow machine, the server might drop clients before memory is exhausted.
    while readers.len() < 20 {
        let mut reader = narrow(&daemon);
        reader.write_all(b"list-tubes\r\n").expect("an open connection");
        let mut start = [0; 3];
        reader.read_exact(&mut start).expect("the beginning of a reply");
        if start == *b"OUT" {
            break;
        }
        assert_eq!(start, *b"OK ");
        readers.push(reader);
        let memory = stat(&daemon, "current-memory");
        assert!(memory <= 40 << 20, "{} lists of 4 MB take {memory} bytes", readers.len());
    }
    assert!(readers.len() >= 3, "only {} lists", readers.len());
    operator.ask("list-tube-used", "USING default");
    let mut last = Wire::of(readers.pop().expect("a reader"));
    assert_eq!(last.line(), format!("{length}"));
    let mut list = vec![0; length + 2];
    last.reader().read_exact(&mut list).expect("a complete list");
    assert!(list.starts_with(b"---\n- default\n- xxx") && list.ends_with(b"19999\n\r\n"));
    drop(readers);
    wait_until("the memory for replies is released", || stat(&daemon, "current-memory") < 16 << 20);
    calm(&daemon);
}

/// When slow readers disconnect, the server must return the memory of their replies to the system.
#[test]
fn memory_is_released_when_readers_disconnect() {
    const READERS: usize = 60;
    let daemon = Daemon::start(&["-t", "2"]);
    let mut producer = Wire::to(&daemon);
    producer.put(&[b'x'; 1024], 60);
    let before = daemon.rss();
    let commands = "peek-ready\r\n".repeat(9000);
    let mut readers: Vec<TcpStream> = (0..READERS).map(|_| narrow(&daemon)).collect();
    readers.iter_mut().for_each(|reader| reader.write_all(commands.as_bytes()).expect("an open connection"));
    // The replies to each client are larger than the buffers of the system and the server together. Waits until these
    // buffers are full.
    let mut last = 0;
    wait_until("the server is idle", || {
        let now = stat(&daemon, "cmd-peek-ready");
        std::thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut last, now) == now
    });
    let full = daemon.rss();
    drop(readers);
    wait_until("the memory is released", || daemon.rss() < before + (full - before) / 4 + (4 << 20));
    assert!(producer.put(b"x", 60) > 0);
    calm(&daemon);
}
