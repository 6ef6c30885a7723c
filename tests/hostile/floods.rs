//! Tests floods of meaningless bytes and of valid commands.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use beanpole::Client;

use crate::daemon::{wait_until, Daemon, Folder};
use crate::wire::{calm, figure, put, served, stat, Random, StopAtEnd, Wire};

/// Maximum memory for incomplete commands and for commands that the server has not executed yet, in bytes.
const BOUND: u64 = 16 << 20;

/// Sends meaningless bytes from several clients. The clients must then be able to send valid commands.
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
    let mut random = Random::new(1);
    nonsense(&(0..300_000).map(|_| random.below(256) as u8).collect::<Vec<u8>>());
}

// Tests promise P24 of beanpole-promises(7).
#[test]
fn random_line_ends_and_zeros() {
    let mut random = Random::new(2);
    let letters = b"\r\r\n\n\0a ";
    nonsense(&(0..100_000).map(|_| letters[random.below(7) as usize]).collect::<Vec<u8>>());
}

#[test]
fn zeros() {
    nonsense(&[0; 300_000]);
}

#[test]
fn an_endless_line() {
    nonsense(&[b'x'; 8 << 20]);
}

#[test]
fn endless_carriage_returns() {
    nonsense(&[b'\r'; 1 << 20]);
}

/// Returns a batch of commands for one job and one tube, together with the expected replies.
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

/// A client writes many commands, and begins to read the replies after 300 ms. By then, the server has usually stopped
/// reading or has read all commands.
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
    assert_eq!(differ, None, "the first difference in {} bytes of replies", expected.len());
    sender.join().expect("a sender");
    calm(&daemon);
}

/// Checks that the server serves clients. Puts no job, because the tests expect consecutive IDs.
fn serves_without_jobs(daemon: &Daemon) {
    Wire::to(daemon).ask("list-tube-used", "USING default");
}

/// The server must buffer commands behind a waiting reserve, up to a limit, and execute them after the reserve.
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
    wait_until("all clients wait", || stat(&daemon, "current-waiting") == CLIENTS as u64);
    calm(&daemon);
    let grown = daemon.peak_rss() - before;
    println!("{CLIENTS} x {COMMANDS} commands behind a reserve cost {} kB", grown / 1024);
    assert!(grown < BOUND, "{grown} bytes for buffered commands");
    let mut producer = Wire::to(&daemon);
    let mut clients: Vec<Wire> = clients.into_iter().map(Wire::of).collect();
    (0..CLIENTS).for_each(|_| assert!(producer.put(b"go", 3600) > 0));
    // Each client gets one of the jobs, in undefined order.
    clients.iter_mut().for_each(|client| assert_eq!(client.job().1, b"go"));
    for client in &mut clients {
        (0..COMMANDS).for_each(|number| client.expect(&format!("USING t{number}")));
    }
    calm(&daemon);
}

/// Sends commands continuously and reads all replies until `stop` is set.
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
        // The server may have closed the connection already.
        let _ = stream.shutdown(Shutdown::Both);
    });
}

/// A server with one thread and a Unix socket. When `send` returns, the sent bytes are in the server's socket buffer.
struct Flooded {
    daemon: Daemon,
    /// A client that reads from the statistics how many commands the server has executed.
    bystander: Client,
    _folder: Folder,
}

impl Flooded {
    fn start() -> Flooded {
        let folder = Folder::new();
        let unix = format!("unix:{}", folder.file("socket").display());
        let daemon = Daemon::start(&["-t", "1", "-l", "127.0.0.1:0", "-l", &unix]);
        let bystander = Client::connect_unix(daemon.path()).expect("a connection");
        Flooded { daemon, bystander, _folder: folder }
    }

    /// Returns a connection that has received a reply, which proves that the server has accepted it.
    fn client(&self) -> Client {
        let mut client = Client::connect_unix(self.daemon.path()).expect("a connection");
        client.send(b"use default\r\n").expect("buffer space");
        assert_eq!(client.line().expect("a reply"), "USING default");
        client
    }

    /// While the server is stopped, each client sends `command` `count` times, and then the bystander sends a command.
    /// Returns how many commands were executed before the bystander's command, according to the statistic `key`.
    fn ahead(&mut self, clients: &mut [Client], command: &str, count: usize, key: &str) -> u64 {
        let before = figure(&mut self.bystander, "stats", key);
        let commands = format!("{command}\r\n").repeat(count);
        self.daemon.freeze();
        clients.iter_mut().for_each(|client| client.send(commands.as_bytes()).expect("buffer space"));
        self.bystander.send(b"stats\r\n").expect("buffer space");
        self.daemon.thaw();
        let reply = self.bystander.reply().expect("a reply");
        let stats = String::from_utf8_lossy(&reply.body).into_owned();
        let value = stats.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).expect("a figure");
        let after: u64 = value.parse().expect("a number");
        for client in clients {
            (0..count).for_each(|_| drop(client.reply().expect("a reply")));
        }
        after - before
    }

    /// Returns the maximum of [`Flooded::ahead`] over several runs.
    fn max_ahead(&mut self, clients: &mut [Client], command: &str, count: usize, key: &str) -> u64 {
        let max = (0..5).map(|_| self.ahead(clients, command, count, key)).max().expect("five runs");
        println!("{} x {count} {command}: {max} before the bystander's command", clients.len());
        max
    }
}

/// One client sends 4000 commands at once. Other clients must not wait until the server has executed all of these
/// commands.
#[test]
fn one_client_floods_with_an_expensive_command() {
    let mut flooded = Flooded::start();
    let max = flooded.max_ahead(&mut [flooded.client()], "stats", 4000, "cmd-stats");
    assert!(max <= 400, "{max} of 4000 commands came first");
    calm(&flooded.daemon);
}

/// Each command scans 50,000 tubes, so the server may execute fewer of these commands before it serves other clients.
#[test]
fn one_client_floods_with_a_very_expensive_command() {
    const WATCHED: usize = 50_000;
    let mut flooded = Flooded::start();
    let mut watcher = flooded.client();
    for first in (0..WATCHED).step_by(1000) {
        let commands: String = (first..first + 1000).map(|tube| format!("watch t{tube}\r\n")).collect();
        watcher.send(commands.as_bytes()).expect("a connection");
        (0..1000).for_each(|number| {
            assert_eq!(watcher.line().expect("a reply"), format!("WATCHING {}", first + number + 2));
        });
    }
    // Puts a ready job into another tube, because `reserve` scans the tubes only if a ready job exists.
    let mut elsewhere = Wire::to(&flooded.daemon);
    elsewhere.ask("use elsewhere", "USING elsewhere");
    elsewhere.put(b"x", 60);
    let key = "cmd-reserve-with-timeout";
    let max = flooded.max_ahead(&mut [watcher], "reserve-with-timeout 0", 100, key);
    assert!(max <= 10, "{max} of 100 commands came first");
    calm(&flooded.daemon);
}

/// A client that sends one command must not wait for all commands of many flooding clients.
#[test]
fn many_clients_flood() {
    const CROWD: usize = 100;
    let mut flooded = Flooded::start();
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| flooded.client()).collect();
    // The server first gives each client a turn. With 101 active connections, a turn is a third of a batch of 128
    // commands.
    let first = flooded.ahead(&mut crowd, "delete 1", 1000, "cmd-delete");
    assert!(first <= 4400, "{first} of 100,000 commands came first");
    let max = flooded.max_ahead(&mut crowd, "delete 1", 1000, "cmd-delete");
    assert!(max <= 400, "{max} of 100,000 commands came first");
    calm(&flooded.daemon);
}

/// After a long flood has ended, a flood from another client must not delay other clients longer than without the first
/// flood.
#[test]
fn one_client_floods_for_long() {
    let mut flooded = Flooded::start();
    let first = flooded.max_ahead(&mut [flooded.client()], "delete 1", 4000, "cmd-delete");
    let (stop, commands) = (AtomicBool::new(false), b"delete 1\r\n".repeat(20_000));
    let stream = flooded.daemon.tcp();
    std::thread::scope(|scope| {
        scope.spawn(|| flood(stream, &commands, &stop));
        let _stop = StopAtEnd(&stop);
        wait_until("a million commands are executed", || stat(&flooded.daemon, "cmd-delete") > 1_000_000);
    });
    calm(&flooded.daemon);
    let last = flooded.max_ahead(&mut [flooded.client()], "delete 1", 4000, "cmd-delete");
    assert!(first <= 400 && last <= 400, "{first} and {last} of 4000 commands came first");
    calm(&flooded.daemon);
}

/// Buffered input must not prevent the allocator from returning the memory of deleted jobs to the system.
#[test]
fn the_memory_of_jobs_put_in_a_flood_is_released() {
    const JOBS: usize = 150_000;
    let daemon = Daemon::start(&["-t", "1"]);
    let mut client = Wire::to(&daemon);
    let mut flood = client.stream().try_clone().expect("one more descriptor");
    let writer = std::thread::spawn(move || flood.write_all(&put(&[b'x'; 64], 60).repeat(JOBS)).expect("a connection"));
    (1..=JOBS).for_each(|id| client.expect(&format!("INSERTED {id}")));
    writer.join().expect("a writer");
    let full = daemon.rss();
    for first in (1..=JOBS).step_by(1000) {
        client.send((first..first + 1000).map(|id| format!("delete {id}\r\n")).collect::<String>());
        (0..1000).for_each(|_| client.expect("DELETED"));
    }
    wait_until("the memory is released", || daemon.rss() < full / 2);
}
