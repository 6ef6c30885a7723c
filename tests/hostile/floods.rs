//! Bytes without sense, and sense without end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::daemon::{wait_until, Daemon};
use crate::wire::{calm, put, served, stat, Dice, StopAtEnd, Wire, PROMPT};

/// More memory than this is not held for input that is no command yet, or waits for its turn.
const BOUND: u64 = 16 << 20;

/// Sends something that makes no sense from several clients; all of them can be understood again afterwards.
fn nonsense(bytes: &[u8]) {
    let daemon = Daemon::start(&[]);
    served(&daemon);
    let before = daemon.peak_rss();
    let mut clients: Vec<Wire> = (0..8).map(|_| Wire::to(&daemon)).collect();
    clients.iter_mut().for_each(|client| client.send(bytes));
    calm(&daemon);
    let grown = daemon.peak_rss() - before;
    assert!(grown < BOUND, "{grown} bytes for nonsense");
    for client in &mut clients {
        client.send("\r\nlist-tube-used\r\n");
        client.skip_to("USING default");
    }
    calm(&daemon);
}

#[test]
fn random_bytes() {
    let mut dice = Dice::new(1);
    nonsense(&(0..300_000).map(|_| dice.below(256) as u8).collect::<Vec<u8>>());
}

#[test]
fn random_line_ends_and_zeros() {
    let mut dice = Dice::new(2);
    let letters = b"\r\r\n\n\0a ";
    nonsense(&(0..100_000).map(|_| letters[dice.below(7) as usize]).collect::<Vec<u8>>());
}

#[test]
fn zeros() {
    nonsense(&[0; 300_000]);
}

#[test]
fn a_line_without_end() {
    nonsense(&[b'x'; 8 << 20]);
}

#[test]
fn carriage_returns_without_end() {
    nonsense(&[b'\r'; 1 << 20]);
}

/// One round of commands about one job and one tube, and all that is answered to it.
fn round(id: usize) -> (Vec<u8>, String) {
    let body = format!("body {id}");
    let mut commands = put(body.as_bytes(), 60);
    let rest = "reserve\r\ndelete ID\r\ndelete ID\r\nuse tID\r\nwatch tID\r\nignore default\r\nignore d\r\n\
        watch default\r\nignore tID\r\nuse default\r\n";
    commands.extend(rest.replace("ID", &id.to_string()).bytes());
    let replies = "INSERTED ID\r\nRESERVED ID LENGTH\r\nbody ID\r\nDELETED\r\nNOT_FOUND\r\nUSING tID\r\nWATCHING 2\r\n\
        WATCHING 1\r\nWATCHING 1\r\nWATCHING 2\r\nWATCHING 1\r\nUSING default\r\n";
    (commands, replies.replace("ID", &id.to_string()).replace("LENGTH", &body.len().to_string()))
}

/// One write of very many commands; the client reads only when the server has stopped reading, or has read it all.
#[test]
fn a_hundred_thousand_commands_in_one_write() {
    let daemon = Daemon::start(&[]);
    let client = daemon.tcp();
    let mut writer = client.try_clone().expect("a connection");
    let (mut commands, mut expected) = (Vec::new(), Vec::new());
    for id in 1..=100_000 / 11 + 1 {
        let (asked, answered) = round(id);
        commands.extend(asked);
        expected.extend(answered.into_bytes());
    }
    let sender = std::thread::spawn(move || writer.write_all(&commands).expect("a connection"));
    std::thread::sleep(Duration::from_millis(300));
    serves_without_jobs(&daemon);
    let mut found = vec![0; expected.len()];
    (&client).read_exact(&mut found).expect("all replies");
    let differ = found.iter().zip(&expected).position(|(left, right)| left != right);
    assert_eq!(differ, None, "of {} bytes", expected.len());
    sender.join().expect("a sender");
    calm(&daemon);
}

/// Somebody else is served, without a job, whose number would be missing from those that are counted on.
fn serves_without_jobs(daemon: &Daemon) {
    let asked = Instant::now();
    Wire::to(daemon).ask("list-tube-used", "USING default");
    assert!(asked.elapsed() < PROMPT);
}

/// Commands behind a reserve that waits are kept, in bounds, and answered in order when it has ended.
#[test]
fn thousands_of_commands_behind_a_blocked_reserve() {
    const CLIENTS: usize = 10;
    const COMMANDS: usize = 20_000;
    let daemon = Daemon::start(&[]);
    served(&daemon);
    let before = daemon.peak_rss();
    let mut commands = String::from("reserve\r\n");
    (0..COMMANDS).for_each(|number| commands.push_str(&format!("use t{number}\r\n")));
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| daemon.tcp()).collect();
    clients.iter_mut().for_each(|client| client.write_all(commands.as_bytes()).expect("a connection"));
    wait_until("all wait", || stat(&daemon, "current-waiting") == CLIENTS as u64);
    calm(&daemon);
    let grown = daemon.peak_rss() - before;
    println!("{CLIENTS} x {COMMANDS} commands behind a reserve cost {} kB", grown / 1024);
    assert!(grown < BOUND, "{grown} bytes for commands that wait");
    let mut producer = Wire::to(&daemon);
    let mut clients: Vec<Wire> = clients.into_iter().map(Wire::of).collect();
    for client in &mut clients {
        let id = producer.put(b"go", 60);
        // First come, first served, though they came in no order that a client can know: whoever it is, all get one.
        assert!(id > 0);
        assert_eq!(client.job().1, b"go");
    }
    for client in &mut clients {
        (0..COMMANDS).for_each(|number| client.expect(&format!("USING t{number}")));
    }
    calm(&daemon);
}

/// Sends commands without a pause and reads all replies, until told to stop.
fn flood(stream: TcpStream, commands: &[u8], stop: &AtomicBool) {
    let mut replies = stream.try_clone().expect("a connection");
    let mut stream = stream;
    stream.set_write_timeout(Some(Duration::from_millis(100))).expect("a connection");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            while matches!(replies.read(&mut buffer), Ok(1..)) {}
        });
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            match stream.write(&commands[sent % commands.len()..]) {
                Ok(count) => sent += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        // It may have been closed already.
        let _ = stream.shutdown(Shutdown::Both);
    });
}

/// One client sends commands as fast as it can and reads all replies. That is its right, but not that others wait for
/// it. Returns how long the round trips of another client of the same thread took, in order.
fn beside_a_flood(command: &str, length: Duration) -> Vec<Duration> {
    let daemon = Daemon::start(&["-t", "1"]);
    let stream = daemon.tcp();
    beside_a_flood_of(&daemon, stream, command, length)
}

/// The same of a client that has prepared itself.
fn beside_a_flood_of(daemon: &Daemon, stream: TcpStream, command: &str, length: Duration) -> Vec<Duration> {
    let stop = AtomicBool::new(false);
    let commands = format!("{command}\r\n").repeat(20_000).into_bytes();
    let mut bystander = Wire::to(daemon);
    let mut waits = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| flood(stream, &commands, &stop));
        let _stop = StopAtEnd(&stop);
        let end = Instant::now() + length;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
            let asked = Instant::now();
            bystander.ask("list-tube-used", "USING default");
            waits.push(asked.elapsed());
        }
    });
    calm(daemon);
    waits
}

/// The median and the longest.
fn summary(waits: &[Duration]) -> (Duration, Duration) {
    let mut waits = waits.to_vec();
    waits.sort_unstable();
    (waits[waits.len() / 2], waits[waits.len() - 1])
}

#[test]
fn one_client_floods_with_a_dear_command() {
    let (median, longest) = summary(&beside_a_flood("stats", Duration::from_secs(3)));
    println!("beside a flood of stats: median {median:?}, longest {longest:?}");
    assert!(longest < Duration::from_secs(1), "a bystander waited for {longest:?}, half of the time {median:?}");
}

/// A command may cost what it has to look at, but then fewer of them are carried out in a row.
#[test]
fn one_client_floods_with_a_very_dear_command() {
    const WATCHED: usize = 50_000;
    let daemon = Daemon::start(&["-t", "1"]);
    let mut watcher = Wire::to(&daemon);
    for first in (0..WATCHED).step_by(1000) {
        watcher.send((first..first + 1000).map(|tube| format!("watch t{tube}\r\n")).collect::<String>());
        (0..1000).for_each(|number| watcher.expect(&format!("WATCHING {}", first + number + 2)));
    }
    // Else it could be told at once that there is nothing.
    let mut elsewhere = Wire::to(&daemon);
    elsewhere.ask("use elsewhere", "USING elsewhere");
    elsewhere.put(b"x", 60);
    let stream = watcher.stream().try_clone().expect("a connection");
    let waits = beside_a_flood_of(&daemon, stream, "reserve-with-timeout 0", Duration::from_secs(3));
    let (median, longest) = summary(&waits);
    println!("beside a flood of long reserves: median {median:?}, longest {longest:?}");
    assert!(longest < Duration::from_secs(1), "a bystander waited for {longest:?}, half of the time {median:?}");
}

/// The same of many clients at once, which do not even read: somebody with one command need not wait for all of theirs.
#[test]
fn a_crowd_floods() {
    const CROWD: usize = 100;
    let daemon = Daemon::start(&["-t", "1"]);
    let mut bystander = Wire::to(&daemon);
    let crowd: Vec<TcpStream> = (0..CROWD).map(|_| daemon.tcp()).collect();
    let commands = "stats\r\n".repeat(2000).into_bytes();
    for mut stream in &crowd {
        stream.set_nonblocking(true).expect("a connection");
        stream.write_all(&commands).expect("room for the commands");
    }
    let mut waits = Vec::new();
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        let asked = Instant::now();
        bystander.ask("list-tube-used", "USING default");
        waits.push(asked.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (median, longest) = summary(&waits);
    println!("beside a crowd's floods of stats: median {median:?}, longest {longest:?}");
    assert!(median < Duration::from_millis(500), "a bystander waits for {median:?} as a rule, {longest:?} at worst");
    calm(&daemon);
}

/// However long it goes on, the flood gets no more turns than others.
#[test]
fn one_client_floods_for_long() {
    let waits = beside_a_flood("delete 1", Duration::from_secs(5));
    let (first, last) = (summary(&waits[..waits.len() / 4]), summary(&waits[waits.len() * 3 / 4..]));
    println!("beside a flood of delete: at first median {:?}, longest {:?}", first.0, first.1);
    println!("beside a flood of delete: at last median {:?}, longest {:?}", last.0, last.1);
    assert!(last.0 < Duration::from_millis(30), "a bystander waits ever longer: {:?} in the end", last.0);
    assert!(last.1 < Duration::from_secs(1));
}

/// What is read ahead must not teach the allocator to keep what the queue gives back.
#[test]
fn the_memory_of_jobs_that_came_in_a_flood_comes_back() {
    const JOBS: usize = 150_000;
    let daemon = Daemon::start(&["-t", "1"]);
    let mut client = Wire::to(&daemon);
    let mut flood = client.stream().try_clone().expect("one more descriptor");
    let writer = std::thread::spawn(move || flood.write_all(&put(&[b'x'; 64], 60).repeat(JOBS)).expect("a connection"));
    (1..=JOBS).for_each(|id| client.expect(&format!("INSERTED {id}")));
    writer.join().expect("all is written");
    let full = daemon.rss();
    for first in (1..=JOBS).step_by(1000) {
        client.send((first..first + 1000).map(|id| format!("delete {id}\r\n")).collect::<String>());
        (0..1000).for_each(|_| client.expect("DELETED"));
    }
    wait_until("the memory is given back", || daemon.rss() < full / 2);
}
