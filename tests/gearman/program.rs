//! Tests the real program with the option `--gearman`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::daemon::{wait_until, Daemon, Folder, Signal, PATIENCE};
use crate::talk::{packet, parse, Packet};

fn connect(daemon: &Daemon) -> TcpStream {
    let name = daemon.names().iter().find_map(|name| name.strip_suffix(" (Gearman)")).expect("a Gearman address");
    let stream = TcpStream::connect(name).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Sends packets and reads until `answers` packets have been received.
fn say(stream: &mut TcpStream, packets: &[Vec<u8>], answers: usize) -> Vec<Packet> {
    stream.write_all(&packets.concat()).expect("a connection");
    let mut bytes = Vec::new();
    loop {
        if let Some((found, _)) = parse(&bytes).filter(|(found, _)| found.len() >= answers) {
            return found;
        }
        let mut buffer = [0; 65_536];
        let count = stream.read(&mut buffer).expect("a reply");
        assert!(count > 0, "the server has closed the connection");
        bytes.extend_from_slice(&buffer[..count]);
    }
}

fn line(stream: &mut TcpStream, line: &str) -> String {
    stream.write_all(line.as_bytes()).expect("a connection");
    let mut buffer = [0; 4096];
    let count = stream.read(&mut buffer).expect("a reply");
    String::from_utf8_lossy(&buffer[..count]).into_owned()
}

#[test]
fn background_jobs_survive_a_restart_and_handles_are_not_reused() {
    let folder = Folder::new();
    let place = folder.file("log");
    std::fs::create_dir(&place).expect("a directory");
    let arguments = ["-b", place.to_str().expect("a path"), "-f0", "--gearman=127.0.0.1:0"];
    let daemon = Daemon::start(&arguments);
    let mut client = connect(&daemon);
    let submits = [
        packet(18, b"f\0u\0background"),
        packet(7, b"f\0v\0foreground"),
        packet(36, b"f\0w\x009999999999\0later"),
        packet(38, b"f\0x\0reducer\0\0reduce"),
        packet(32, b"f\0\0high"),
        packet(18, b"f\0v\0joined"),
    ];
    let created = say(&mut client, &submits, 6);
    assert!(created.iter().all(|(kind, _)| *kind == 8), "{created:?}");
    assert_eq!(created[1], created[5], "the last job must join the second");
    daemon.signal(Signal::SIGKILL);
    wait_until("the server has exited", || !daemon.runs());
    let daemon = Daemon::start(&arguments);
    let mut worker = connect(&daemon);
    let again = say(&mut worker, &[packet(18, b"f\0u\0once more"), packet(18, b"f\0\0new")], 2);
    assert_eq!(again[0], created[0], "the unique ID must survive the restart");
    assert!(!created.contains(&again[1]), "handles must not be reused");
    let grabs: Vec<Vec<u8>> = std::iter::once(packet(1, b"f")).chain((0..6).map(|_| packet(39, b""))).collect();
    let got = say(&mut worker, &grabs, 6);
    let ends: Vec<(u32, bool)> = ["high", "background", "foreground", "reducer\0reduce", "new"]
        .iter()
        .zip(&got)
        .map(|(end, (kind, body))| (*kind, body.ends_with(end.as_bytes())))
        .collect();
    assert_eq!(ends, [(31, true), (31, true), (31, true), (40, true), (31, true)], "{got:?}");
    assert_eq!(got[5].0, 10, "the scheduled job must not be due");
}

#[test]
fn shutdown_is_accepted_if_the_option_permits_it() {
    let daemon = Daemon::start(&["--gearman=127.0.0.1:0"]);
    assert!(line(&mut connect(&daemon), "shutdown\n").starts_with("ERR UNKNOWN_COMMAND"));
    assert!(daemon.runs());
    let daemon = Daemon::start(&["--gearman=127.0.0.1:0", "--allow-shutdown"]);
    assert_eq!(line(&mut connect(&daemon), "shutdown\n"), "OK\n");
    assert_eq!(daemon.wait(PATIENCE), 0);
}

#[test]
fn a_graceful_shutdown_waits_for_the_jobs() {
    let daemon = Daemon::start(&["--gearman=127.0.0.1:0", "--allow-shutdown"]);
    let mut worker = connect(&daemon);
    let got = say(&mut worker, &[packet(18, b"f\0\0x"), packet(1, b"f"), packet(9, b"")], 2);
    let handle = got[0].1.clone();
    assert_eq!(line(&mut connect(&daemon), "shutdown graceful\n"), "OK\n");
    std::thread::sleep(Duration::from_millis(300));
    assert!(daemon.runs(), "the server must wait for the job");
    worker.write_all(&packet(13, &[&handle[..], b"\0done"].concat())).expect("a connection");
    assert_eq!(daemon.wait(PATIENCE), 0);
}

#[test]
fn a_client_that_does_not_read_its_job_s_updates_is_dropped() {
    let daemon = Daemon::start(&["--gearman=127.0.0.1:0", "--max-output", "100K"]);
    let mut client = connect(&daemon);
    let handle = say(&mut client, &[packet(7, b"f\0\0x")], 1).remove(0).1;
    let mut worker = connect(&daemon);
    say(&mut worker, &[packet(1, b"f"), packet(9, b"")], 1);
    let data = packet(28, &[&handle[..], b"\0", &vec![b'd'; 500_000]].concat());
    for _ in 0..60 {
        worker.write_all(&data).expect("a connection");
    }
    say(&mut worker, &[packet(16, b"on")], 1);
    let dropped = format!("{}: dropped", client.local_addr().expect("a bound socket"));
    wait_until("the client is dropped", || daemon.log().contains(&dropped));
    assert!(daemon.peak_rss() < 30_000_000, "{} bytes", daemon.peak_rss());
    let alive = say(&mut connect(&daemon), &[packet(16, b"alive")], 1);
    assert_eq!(alive, [(17, b"alive".to_vec())]);
}

/// Submits the same foreground job 20,000 times. Then a worker, or the client itself, grabs the job. Returns the job's
/// handle.
fn awaited_very_often(client: &mut TcpStream, worker: Option<&mut TcpStream>) -> Vec<u8> {
    let mut handle = Vec::new();
    for _ in 0..40 {
        handle = say(client, &vec![packet(7, b"f\0u\0x"); 500], 500).remove(0).1;
    }
    say(worker.unwrap_or(client), &[packet(1, b"f"), packet(9, b"")], 1);
    handle
}

#[test]
fn updates_for_very_many_clients_are_stored_once() {
    let daemon = Daemon::start(&["--gearman=127.0.0.1:0", "--max-output", "100K"]);
    let (mut client, mut worker) = (connect(&daemon), connect(&daemon));
    let handle = awaited_very_often(&mut client, Some(&mut worker));
    let data = packet(28, &[&handle[..], b"\0", &[b'd'; 4000]].concat());
    say(&mut worker, &[data.clone(), packet(13, &data[12..]), packet(16, b"on")], 1);
    assert!(daemon.peak_rss() < 30_000_000, "{} bytes", daemon.peak_rss());
}

#[test]
fn a_client_that_sends_itself_updates_gets_them_as_it_reads() {
    let daemon = Daemon::start(&["--gearman=127.0.0.1:0", "--max-output", "100K"]);
    let mut client = connect(&daemon);
    let handle = awaited_very_often(&mut client, None);
    let data = packet(28, &[&handle[..], b"\0", &[b'd'; 200]].concat());
    client.write_all(&data).expect("a connection");
    // Other clients must not be affected.
    assert_eq!(line(&mut connect(&daemon), "getpid\n").split(' ').next(), Some("OK"));
    assert!(daemon.peak_rss() < 30_000_000, "{} bytes", daemon.peak_rss());
    let replies = say(&mut client, &[packet(16, b"on")], 20_001);
    let (last, all) = replies.split_last().expect("replies");
    assert!(all.iter().all(|(kind, _)| *kind == 28) && *last == (17, b"on".to_vec()));
    assert!(daemon.peak_rss() < 30_000_000, "{} bytes", daemon.peak_rss());
}
