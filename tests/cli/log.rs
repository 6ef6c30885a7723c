//! Tests the program's log: the format of lines and the logged events.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant, SystemTime};

use beanpole::Client;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::daemon::{command, shell, wait_until, Daemon, Folder, Signal, PATIENCE};
use super::read_all;

/// A token file that all users can read must cause a warning, unlike one that only its owner and group can read.
#[test]
fn a_token_that_all_users_can_read_is_reported() {
    let folder = Folder::new();
    let path = folder.file("token");
    std::fs::write(&path, "0123456789abcdef\n").unwrap();
    for (mode, is_reported) in [(0o640, false), (0o644, true)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let daemon = Daemon::start(&["--http=127.0.0.1:0", "--http-token", path.to_str().unwrap()]);
        assert_eq!(daemon.log().contains("all users can read"), is_reported, "{mode:o}: {}", daemon.log());
    }
}

/// Runs various commands, and returns the log and a client's address.
fn lived(arguments: &[&str]) -> (String, String) {
    let daemon = Daemon::start(arguments);
    let mut client = daemon.client();
    let id = client.put(b"secret", 0, 0, 60).unwrap();
    client.reserve(Some(0)).unwrap().expect("the job");
    client.delete(id).unwrap();
    client.send(b"nonsense\r\nput x\r\n").unwrap();
    assert_eq!(client.line().unwrap(), "UNKNOWN_COMMAND");
    assert_eq!(client.line().unwrap(), "BAD_FORMAT");
    let mut second = daemon.tcp();
    let peer = second.local_addr().expect("a connection").to_string();
    second.write_all(b"list-tube-used\r\nquit\r\n").unwrap();
    assert_eq!(read_all(&mut second), b"USING default\r\n");
    wait_until("one connection is left", || client.figure("stats", "current-connections").unwrap() == "1");
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_log("draining");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
    (daemon.log(), peer)
}

fn level(line: &str) -> &str {
    line.get(25..30).unwrap_or_default().trim_end()
}

#[test]
fn each_line_has_a_timestamp_a_level_and_a_message() {
    // Timestamps in the log are truncated to milliseconds, and can therefore be up to 1 ms too early.
    let before = SystemTime::now() - Duration::from_millis(1);
    let (log, _) = lived(&["-VV", "-c"]);
    let after = SystemTime::now();
    assert!(log.ends_with('\n'));
    for line in log.lines() {
        let stamp = line.get(..24).unwrap_or_default();
        let time = humantime::parse_rfc3339(stamp).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(stamp.ends_with('Z') && before <= time && time <= after, "{line}");
        assert!(["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level(line)), "{line}");
        assert!(line.len() > 31 && line.as_bytes()[24] == b' ' && line.as_bytes()[30] == b' ', "{line}");
        assert!(line.as_bytes()[31] != b' ' && line.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{line}");
    }
}

#[test]
fn by_default_the_log_contains_rare_events() {
    let (log, peer) = lived(&[]);
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(lines.iter().all(|line| level(line) == "INFO"), "{log}");
    let version = concat!("beanpole ", env!("CARGO_PKG_VERSION"), " is listening on 127.0.0.1:");
    assert!(lines[0].contains(version), "{log}");
    assert!(lines[1].contains("draining") && lines[2].ends_with("stopping"), "{log}");
    assert!(!log.contains(&peer), "{log}");
}

#[test]
fn verbose_logs_connections() {
    let (log, peer) = lived(&["-V"]);
    let connected = log.lines().find(|line| line.ends_with(&format!("connected from {peer}")));
    assert_eq!(level(connected.unwrap_or_else(|| panic!("no {peer}:\n{log}"))), "DEBUG");
    assert_eq!(log.matches(": connected from 127.0.0.1:").count(), 2, "{log}");
    assert!(log.contains(": disconnected"), "{log}");
    assert!(!log.lines().any(|line| level(line) == "TRACE"), "{log}");
}

#[test]
fn twice_verbose_logs_commands() {
    for verbose in ["-VV", "-VVVV"] {
        let (log, _) = lived(&[verbose]);
        let traces: Vec<&str> = log.lines().filter(|line| level(line) == "TRACE").collect();
        for wanted in [
            "put client=1 tube=default size=6 pri=0 delay=0 ttr=60 reply=\"INSERTED 1\"",
            "reserve-with-timeout client=1 tube=default timeout=0 reply=\"RESERVED 1 6\"",
            "delete client=1 id=1 tube=default reply=DELETED",
            "\"no command\" client=1 reply=UNKNOWN_COMMAND",
        ] {
            let wanted = wanted.replace("\"no command\"", "no command");
            assert!(traces.iter().any(|line| line.ends_with(&wanted)), "no {wanted}:\n{log}");
        }
        assert!(traces.iter().any(|line| line.contains(" stats client=1 reply=\"OK ")), "{log}");
        assert!(!log.contains("secret") && !log.contains("nonsense"), "the log contains input of clients:\n{log}");
    }
}

/// The reply that ends a client's wait is logged on a separate line, after the line of the client's command.
#[test]
fn twice_verbose_includes_later_replies_to_waiting_clients() {
    let daemon = Daemon::start(&["-VV"]);
    let mut worker = daemon.tcp();
    worker.write_all(b"watch mail\r\nreserve\r\n").unwrap();
    daemon.wait_log("reserve client=1 reply=waits");
    let mut producer = daemon.client();
    producer.use_tube("mail").unwrap();
    producer.put(b"secret", 0, 0, 60).unwrap();
    let log = daemon.wait_log("told client=1 tube=mail reply=\"RESERVED 1 6\"");
    assert!(log.contains("watch client=1 tube=mail reply=\"WATCHING 2\"") && !log.contains("secret"), "{log}");
}

#[test]
fn waits_and_http_requests_are_logged() {
    let daemon = Daemon::start(&["-VV", "--http=127.0.0.1:0", "--http-admin"]);
    let mut client = daemon.client();
    client.send(b"watch mail\r\nreserve\r\n").unwrap();
    daemon.wait_log("reserve client=1 reply=waits");
    let port = daemon.log().split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()?.parse().ok());
    let mut http = std::net::TcpStream::connect(("127.0.0.1", port.expect("a port"))).unwrap();
    let headers = "Host: localhost\r\nX-Beanpole: 1\r\nContent-Type: application/json\r\nContent-Length: 14";
    write!(http, "POST /api/tubes/mail/put HTTP/1.1\r\n{headers}\r\n\r\n{{\"body\":\"abc\"}}").unwrap();
    daemon.wait_log("put client=2 tube=mail size=3 reply=\"HTTP/1.1 200 OK\"");
}

#[test]
fn json_lines_are_objects() {
    let (log, _) = lived(&["-VV", "--log-format", "json"]);
    for line in log.lines() {
        let rest = line.strip_prefix("{\"time\":\"").unwrap_or_else(|| panic!("{line}"));
        assert!(humantime::parse_rfc3339(&rest[..24]).is_ok() && line.ends_with('}'), "{line}");
        assert!(rest[24..].starts_with("\",\"level\":\""), "{line}");
    }
    let put =
        "\"level\":\"trace\",\"text\":\"put\",\"client\":1,\"tube\":\"default\",\"size\":6,\"pri\":0,\"delay\":0,\"ttr\":60,\"reply\":\"INSERTED 1\"}";
    assert!(log.contains(put), "{log}");
}

#[test]
fn only_slow_commands_are_logged() {
    let folder = Folder::new();
    let path = folder.file("");
    let path = path.to_str().expect("a UTF-8 path");
    // With `--slow 0`, every command is slow.
    let (log, _) = lived(&["--slow", "0", "-b", path, "-f0"]);
    let slow =
        |with: &str| log.lines().any(|line| level(line) == "WARN" && line.contains(" slow ") && line.contains(with));
    assert!(slow(" client=1 command=put commands=1 total-ms="), "{log}");
    assert!(slow(" lock-ms=") && slow(" command=put binlog-ms="), "{log}");
    let (log, _) = lived(&["--slow", "3600000"]);
    assert!(!log.contains("slow"), "{log}");
}

#[test]
fn unix_socket_connections_are_logged() {
    let daemon = Daemon::start_unix(&["-V"]);
    drop(daemon.client());
    let log = daemon.wait_log(": disconnected");
    assert!(log.contains(": connected from unix\n"), "{log}");
}

/// Clients control the number of dead letters, so one log line per dead letter could flood the log.
#[test]
fn stuck_dead_letters_are_logged_once_per_second() {
    const JOBS: usize = 500;
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    client.set_tube("full", "limit:1").unwrap();
    client.use_tube("full").unwrap();
    client.put(b"x", 0, 0, 60).unwrap();
    client.use_tube("default").unwrap();
    client.set_tube("default", "try:1 dead:full").unwrap();
    let begun = Instant::now();
    for id in 2..JOBS as u64 + 2 {
        assert_eq!(client.put(b"x", 0, 0, 60).unwrap(), id);
        client.reserve_job(id).unwrap();
        client.fail(id, 0, b"no").unwrap();
    }
    let log = daemon.wait_log("buried in tube default, since its dead-letter tube full cannot take it");
    let lines = log.matches("cannot take it").count();
    assert!((1..=1 + begun.elapsed().as_secs() as usize).contains(&lines), "{lines} lines: {log}");
    assert!(log.contains("job 2: buried"), "{log}");
    // After this pause, the next failure is logged on a separate line.
    std::thread::sleep(Duration::from_secs(1));
    client.put(b"x", 0, 0, 60).unwrap();
    client.reserve(Some(0)).unwrap().expect("the job");
    client.fail(JOBS as u64 + 2, 0, b"no").unwrap();
    let log = daemon.wait_log(&format!("job {}: buried", JOBS + 2));
    let others = log.split("; so were ").skip(1).map(|rest| rest.split(' ').next().unwrap().parse::<usize>().unwrap());
    assert_eq!(others.sum::<usize>() + log.matches("cannot take it").count(), JOBS + 1, "{log}");
}

/// systemd sets JOURNAL_STREAM to the device and inode of stderr. The journal adds timestamps and parses log levels.
#[test]
fn the_journal_gets_levels_and_no_timestamps() {
    let script = "export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2); exec \"$0\" \"$@\"";
    let daemon = Daemon::spawn(shell(script, &["-p", "0", "-VVc"]));
    // Keeps the connection open until the server stops, because a disconnection would add a log line.
    let mut client = daemon.client();
    client.put(b"x", 0, 0, 60).unwrap();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
    let log = daemon.log();
    let level = |line: &str| -> u32 {
        let number = line.strip_prefix('<').and_then(|rest| rest.split_once('>')).map(|(number, _)| number.parse());
        number.and_then(Result::ok).unwrap_or_else(|| panic!("no level: {line}"))
    };
    assert!(log.lines().all(|line| matches!(level(line), 3..=7)), "{log}");
    assert!(log.starts_with("<4>-c and -n"), "{log}");
    assert!(log.contains("\n<6>beanpole ") && log.ends_with("<6>stopping\n"), "{log}");
    assert!(log.contains("\n<7>"), "{log}");
}

/// JOURNAL_STREAM may describe another stream if the variable was inherited from a parent process.
#[test]
fn other_streams_than_the_journal_get_timestamps() {
    for stream in ["1:1", "", "x", "8:12:3"] {
        let daemon = Daemon::start_with(&[("JOURNAL_STREAM", stream)], &[]);
        let log = daemon.log();
        assert!(humantime::parse_rfc3339(log.get(..24).unwrap_or_default()).is_ok(), "{stream}: {log}");
    }
}

#[test]
fn an_unwritable_log_does_not_stop_the_server() {
    let folder = Folder::new();
    let path = folder.file("s");
    let mut command = command(&["-VV", "-l", &format!("unix:{}", path.display())]);
    command.stderr(File::options().write(true).open("/dev/full").expect("/dev/full"));
    let mut child = command.spawn().expect("a child process");
    // Stops the daemon even if a check panics.
    let result = std::panic::catch_unwind(|| {
        wait_until("the server serves clients", || path.exists() && Client::connect_unix(&path).is_ok());
        let mut client = Client::connect_unix(&path).expect("a connection");
        client.put(b"x", 0, 0, 60).expect("a job");
    });
    let runs = child.try_wait().expect("a child process").is_none();
    let _ = child.kill();
    let _ = child.wait();
    assert!(result.is_ok() && runs);
}

/// A server that logs to a full socket; killed when dropped.
struct Deaf {
    child: Child,
    folder: Folder,
    reader: UnixStream,
    /// The number of bytes in the socket before the server's first line.
    filled: usize,
}

impl Deaf {
    fn start(options: &[&str]) -> Deaf {
        let (reader, writer) = UnixStream::pair().expect("a pair of sockets");
        writer.set_nonblocking(true).expect("a socket");
        let mut filled = 0;
        while let Ok(count) = (&writer).write(&[b'.'; 512]) {
            filled += count;
        }
        writer.set_nonblocking(false).expect("a socket");
        let folder = Folder::new();
        let mut command = command(&["-l", &format!("unix:{}", folder.file("s").display())]);
        let child = command.args(options).stderr(OwnedFd::from(writer)).spawn().expect("a child process");
        let server = Deaf { child, folder, reader, filled };
        wait_until("the server listens", || Client::connect_unix(server.folder.file("s")).is_ok());
        server
    }

    fn client(&self) -> Client {
        Client::connect_unix(self.folder.file("s")).expect("a connection")
    }

    fn stops(&mut self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).expect("a child process");
        wait_until("the server exits", || self.child.try_wait().expect("a child process").is_some());
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_unread_log_does_not_block_clients() {
    let mut server = Deaf::start(&["-V"]);
    for _ in 0..50 {
        server.client().put(b"x", 0, 0, 60).expect("a job");
    }
    server.stops();
}

#[test]
fn dropped_log_lines_are_counted() {
    let mut server = Deaf::start(&["-V"]);
    server.client().put(b"x", 0, 0, 60).expect("a job");
    let mut filling = vec![0; server.filled];
    server.reader.read_exact(&mut filling).expect("the filler bytes");
    server.stops();
    let mut log = String::new();
    server.reader.read_to_string(&mut log).expect("the log");
    assert!(log.contains(" lines of this log that were lost, since nobody read them: "), "{log}");
    assert!(log.contains("INFO  stopping\n"), "{log}");
}
