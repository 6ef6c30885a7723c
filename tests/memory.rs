//! Tests that the program's memory account includes all received data, including incomplete input on many connections.
//!
//! A new protocol must add its input to [`inputs`]. `tests/tls/memory.rs` covers TLS.

mod daemon;

#[path = "memory/growth.rs"]
mod growth;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use beanpole::internals::protocol::Wire;
use daemon::{wait_until, Daemon, Folder, Signal, PATIENCE};
use growth::Growth;

struct Input {
    name: &'static str,
    bytes: Vec<u8>,
    connections: usize,
    /// `true` if the server keeps the received bytes. The memory account must then show at least half of them.
    is_kept: bool,
}

/// Creates an incomplete input, whose bytes the server keeps until the rest arrives.
fn half(name: &'static str, connections: usize, bytes: impl Into<Vec<u8>>) -> Input {
    Input { name, bytes: bytes.into(), connections, is_kept: true }
}

/// Creates a complete input, to which the server replies.
fn whole(name: &'static str, connections: usize, bytes: impl Into<Vec<u8>>) -> Input {
    Input { name, bytes: bytes.into(), connections, is_kept: false }
}

fn joined(head: &str, filling: &str, count: usize) -> Vec<u8> {
    format!("{head}{}", filling.repeat(count)).into_bytes()
}

/// Returns many short commands, which one turn decodes, and the bytes behind them.
fn many(command: &str, rest: &str) -> String {
    command.repeat(90) + rest
}

/// Returns a packet whose header announces `announced` bytes of data.
fn packet(kind: u32, announced: u32, data: &[u8]) -> Vec<u8> {
    [&b"\0REQ"[..], &kind.to_be_bytes(), &announced.to_be_bytes(), data].concat()
}

/// Returns one example of each kind of input that the protocol has.
fn inputs(wire: Wire) -> Vec<Input> {
    const ID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c4";
    let filling = vec![b'x'; 500_000];
    let post = |path: &str, length: usize| {
        format!(
            "POST /api/tubes/{path} HTTP/1.1\r\nHost: localhost\r\nX-Beanpole: 1\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    match wire {
        Wire::Beanstalk => vec![
            half("line", 500, joined("use ", "x", 180)),
            half("list of ids", 300, joined("delete-batch", " 1", 100)),
            half("tags", 500, joined("put 0 0 60 5 idp:", "k", 150)),
            half("groups", 500, joined("put 0 0 60 5 grp:a aft:b:2 aft:", "g", 150)),
            half("schedule", 500, joined("put 0 0 60 5 every:9 cron:", "*", 150)),
            half("quoted tube", 500, joined("put 0 0 60 5 tub:\"", r"\xff", 500)),
            half("settings", 500, joined("set-tube t dead:\"", r"\xff", 400)),
            half("body", 400, joined("put 0 0 60 65535\r\n", "x", 60_000)),
            half("reason", 400, joined("fail 1 0 65535\r\n", "x", 60_000)),
            half("tags before the body", 700, {
                let groups: String = (0..16).map(|number| format!(" grp:{number:0200}")).collect();
                let [reason, name] = [4096, 512].map(|length| "x".repeat(length));
                format!("put 0 0 60 10 err:\"{reason}\" tub:\"{name}\" idp:\"{name}\"{groups}\r\n")
            }),
            whole("half a line after many", 1500, many("use t\r\n", "use")),
            whole("a command behind a waiting one", 1500, many("use t\r\n", "reserve\r\nuse t\r\n")),
            whole("waiting commands", 50, joined("reserve\r\n", "use some.tube\r\n", 2000)),
        ],
        Wire::Gearman => vec![
            half("line of text", 500, joined("sta", "x", 180)),
            whole("half a line after many", 1500, many("version\r\n", "ver")),
            half("packet", 500, packet(1, 64, b"func")),
            half("body", 50, packet(7, 600_000, &[b"f\0u\0", &filling[..]].concat())),
            half(
                "handle before the data",
                700,
                packet(13, 8192 + 20, &[&filling[..8191], b"\0", &[b'x'; 10]].concat()),
            ),
        ],
        Wire::Workq => vec![
            half("line", 500, joined("add ", "x", 180)),
            whole("half a line after many", 1500, many("delete\r\n", "del")),
            half("lease of many names", 25, joined("lease", " name", 180_000)),
            half("body", 25, joined(&format!("add {ID} ping 1000 60000 1048576\r\n"), "x", 900_000)),
            whole(
                "whole lease of many names",
                1,
                joined("lease", " q", 520_000).into_iter().chain(*b" 1\r\n").collect::<Vec<u8>>(),
            ),
            whole("many flags", 1, joined("delete", " -a=b", 200_000).into_iter().chain(*b"\r\n").collect::<Vec<u8>>()),
        ],
        Wire::Http => {
            let put = post("t/put", 1_048_576);
            let list = |head: &str| [put.as_bytes(), head.as_bytes(), &b"0,".repeat(524_288 - head.len() / 2)].concat();
            vec![
                half("head", 50, joined("GET / HTTP/1.1\r\nA: ", "b", 8000)),
                half("body", 30, [&put, "{\"body\":\"", &"x".repeat(1_000_000)].concat()),
                half("path before the body", 50, post(&format!("{}/kick", "x".repeat(8000)), 20) + "{\"count\""),
                whole("query before the body", 50, post(&format!("x/kick?{}", "a&".repeat(3900)), 20) + "{\"count\""),
                whole("list", 1, list("{\"body\":[ ")),
                whole("unknown list", 1, list("{\"list\":[ ")),
                whole("nested objects", 1, [put.as_bytes(), &b"{\"body\":".repeat(131_072)].concat()),
            ]
        }
        wire => unreachable!("no input of {wire:?}"),
    }
}

fn start() -> Daemon {
    let places = ["--gearman=127.0.0.1:0", "--workq=127.0.0.1:0", "--http=127.0.0.1:0", "--http-admin"];
    Daemon::start(&[&["-t", "2", "--max-memory", "256M", "--max-job-size", "1M"], &places[..]].concat())
}

fn connect(daemon: &Daemon, wire: Wire) -> TcpStream {
    let sign = match wire {
        Wire::Beanstalk => return daemon.tcp(),
        Wire::Gearman => "(Gearman)",
        Wire::Workq => "(Workq)",
        Wire::Http => "http://",
        wire => unreachable!("no address of {wire:?}"),
    };
    let name = daemon.names().iter().find(|name| name.contains(sign)).unwrap_or_else(|| panic!("{:?}", daemon.names()));
    let address = name.trim_start_matches("http://").split([' ', '/']).next().expect("an address");
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a connection");
    stream
}

/// Returns `true` if the peer's kernel has acknowledged all sent bytes.
fn has_read(stream: &TcpStream) -> bool {
    let mut unsent = 0;
    // SAFETY: the descriptor is open, and the kernel writes one integer to `unsent`.
    #[allow(unsafe_code)]
    let asked = unsafe { nix::libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(stream), nix::libc::TIOCOUTQ, &mut unsent) };
    asked == 0 && unsent == 0
}

// Tests promise P21 of beanpole-promises(7).
#[test]
fn every_input_is_charged_as_it_arrives() {
    for wire in [Wire::Beanstalk, Wire::Gearman, Wire::Workq, Wire::Http] {
        for input in inputs(wire) {
            let what = format!("{}: {}", wire.name(), input.name);
            let daemon = start();
            drop(connect(&daemon, wire));
            let growth = Growth::begin(&daemon);
            let streams: Vec<TcpStream> = (0..input.connections).map(|_| connect(&daemon, wire)).collect();
            for mut stream in &streams {
                // The server may refuse the input, and close the connection before the write is complete.
                let sent = stream.write_all(&input.bytes);
                assert!(sent.is_ok() || !input.is_kept, "{what}: {sent:?}");
            }
            if input.is_kept {
                wait_until("all input has arrived", || streams.iter().all(has_read));
                let least = (input.bytes.len() * input.connections) as u64 / 2;
                growth.check(&what, streams, least);
            } else if input.connections == 1 {
                let mut answer = BufReader::new(&streams[0]);
                let mut line = String::new();
                answer.read_line(&mut line).expect("a reply");
                println!("{what}: {}", line.trim_end());
                growth.check_peak(&what);
            } else {
                growth.check(&what, streams, 0);
            }
        }
    }
}

#[test]
fn reloading_the_access_file_leaks_no_memory() {
    // A reload can keep three tables of this many names in memory, and their size must not hide a leak.
    const NAMES: usize = 1000;
    let folder = Folder::new();
    let path = folder.file("access");
    let line = |number: usize| format!("n{number} token:sha256:{number:064x} put:tube{number} take:tube{number}*\n");
    let right: String = (0..NAMES).map(line).chain(["* none look\n".to_owned()]).collect();
    std::fs::write(&path, &right).expect("a file");
    let daemon = Daemon::start(&["-t", "2", "--access", path.to_str().expect("a name")]);
    let growth = Growth::begin(&daemon);
    // The damaged access file consists of the original lines, followed by many invalid lines.
    let wrong = right.clone() + &"half a line\n".repeat(100_000);
    for round in 1..=10 {
        for (text, answer) in [(&wrong, "keeping the previous"), (&right, "configuration files reloaded")] {
            let before = daemon.log().matches(answer).count();
            std::fs::write(&path, text).expect("a file");
            daemon.signal(Signal::SIGHUP);
            wait_until("the access file has been read", || daemon.log().matches(answer).count() > before);
        }
        println!("{round}: {}", daemon.rss());
    }
    growth.check("access file", Vec::new(), 0);
}

/// Puts and deletes jobs in tubes that exist only as long as their job. Fills the history first with short names, so
/// that all of its entries are in memory, and then with long names.
#[test]
fn names_of_deleted_tubes_in_the_history_are_charged() {
    const ENTRIES: usize = 12_000;
    let daemon = Daemon::start(&["-t", "2", "--max-memory", "256M", "--history", &ENTRIES.to_string()]);
    let fill = |first: usize, filling: &str| {
        let mut stream = BufReader::new(daemon.tcp());
        for id in first..first + ENTRIES {
            let commands = format!("put 0 0 9 0 tub:\"{id:07}{filling}\"\r\n\r\ndelete {id}\r\n");
            stream.get_mut().write_all(commands.as_bytes()).expect("the server reads");
            for expected in [format!("INSERTED {id}\r\n"), "DELETED\r\n".to_owned()] {
                let mut line = String::new();
                stream.read_line(&mut line).expect("a reply");
                assert_eq!(line, expected);
            }
        }
    };
    fill(1, "");
    let growth = Growth::begin(&daemon);
    fill(1 + ENTRIES, &"x".repeat(500));
    growth.check("history", Vec::new(), 499 * ENTRIES as u64);
}
