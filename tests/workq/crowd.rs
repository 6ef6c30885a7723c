//! Tests many connections over real sockets with the real clock.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use beanpole::internals::protocol::Wire;
use beanpole::{Address, Config, Server};

pub struct Client {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(Duration::from_secs(300))).expect("an option");
        Client { stream: BufReader::new(stream), line: String::new() }
    }

    pub fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).expect("a server that reads");
    }

    /// Returns the next line without its CR LF.
    pub fn line(&mut self) -> &str {
        self.line.clear();
        self.stream.read_line(&mut self.line).expect("a line");
        self.line.strip_suffix("\r\n").expect("a complete line")
    }

    pub fn ok(&mut self) {
        assert_eq!(self.line(), "+OK");
    }

    /// Reads the reply to a `lease` command. Returns the ID of the job, or `None` if the command's timeout has expired.
    pub fn leased(&mut self) -> Option<String> {
        match self.line() {
            "-TIMEOUT" => return None,
            line => assert_eq!(line, "+OK 1"),
        }
        let line = line_parts(self.line());
        let (id, size) = line.expect("an ID and a size");
        let mut data = vec![0; size + 2];
        self.stream.read_exact(&mut data).expect("data");
        Some(id)
    }

    /// Adds jobs of 100 bytes whose IDs contain `numbers`, a thousand at a time.
    pub fn add(&mut self, queue: &str, numbers: std::ops::Range<u64>) {
        let payload = "x".repeat(100);
        let mut next = numbers.start;
        while next < numbers.end {
            let batch = next..numbers.end.min(next + 1000);
            let lines: String = batch
                .clone()
                .map(|number| format!("add {} {queue} 600000 3600000 100\r\n{payload}\r\n", id(number)))
                .collect();
            self.send(&lines);
            batch.clone().for_each(|_| self.ok());
            next = batch.end;
        }
    }
}

/// Splits a line into its first word and the number at its end.
fn line_parts(line: &str) -> Option<(String, usize)> {
    let (first, rest) = line.split_once(' ')?;
    Some((first.to_owned(), rest.rsplit(' ').next()?.parse().ok()?))
}

pub fn id(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

pub fn server() -> (Server, SocketAddr) {
    server_with(Config::embedded())
}

pub fn server_with(config: Config) -> (Server, SocketAddr) {
    let config = config.with(|config| config.workq = vec![Address::Tcp(None, None)]);
    let server = Server::with(config).expect("a server");
    let address = server.address_of(Wire::Workq).expect("an address");
    (server, address)
}

/// Many clients lease all jobs of a queue. Each job must be leased exactly once, and no client may time out while jobs
/// remain.
pub fn lease_all(address: SocketAddr, clients: u64, jobs: std::ops::Range<u64>) {
    let expected = jobs.end - jobs.start;
    Client::connect(address).add("shared", jobs);
    let left = std::sync::atomic::AtomicI64::new(expected as i64);
    let work = || {
        let mut client = Client::connect(address);
        let mut got = Vec::new();
        // Each client decrements the number of remaining jobs before it sends a lease, so a job exists for each lease.
        while left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) > 0 {
            client.send("lease shared 1000\r\n");
            got.push(client.leased().expect("one of the remaining jobs"));
        }
        got
    };
    let got: Vec<Vec<String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that does not panic")).collect()
    });
    let different: HashSet<&String> = got.iter().flatten().collect();
    assert_eq!(different.len() as u64, expected, "a job was leased twice");
    assert_eq!(got.iter().map(Vec::len).sum::<usize>() as u64, expected);
}

/// Adds jobs one at a time, and reads each result before it adds the next job. Waiting clients lease and complete the
/// jobs.
pub fn hand_over(address: SocketAddr, workers: u64, jobs: u64) {
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                loop {
                    client.send("lease work stop 200000\r\n");
                    let id = client.leased().expect("a job");
                    client.send(&format!("complete {id} 36\r\n{id}\r\n"));
                    client.ok();
                    if id.ends_with("ffff") {
                        return;
                    }
                }
            });
        }
        let mut asker = Client::connect(address);
        for number in 0..jobs {
            let id = id(number);
            asker.send(&format!("add {id} work 600000 600000 1\r\nx\r\nresult {id} 200000\r\n"));
            asker.ok();
            assert_eq!(asker.leased().as_deref(), Some(id.as_str()));
        }
        for number in 1..=workers {
            asker.send(&format!("add {} stop 600000 600000 1\r\nx\r\n", id(number << 16 | 0xffff)));
            asker.ok();
        }
    });
}
