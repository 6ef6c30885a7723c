//! Runs clients of all three protocols concurrently against one real server. The clients send batches of random
//! commands for the same few jobs.
//!
//! The test does not check the replies. The queue's invariants must hold after each step. In the end, the server must
//! serve new clients and close all connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use beanpole::internals::protocol::Wire;
use beanpole::{Address, Client, Config, Server};

/// The default number of runs, which `BEANPOLE_WILD` overrides.
const RUNS: u64 = 60;

const STEPS: u64 = 300;

const BREATH: u64 = 12;

/// The protocols of the clients. Successive clients use them in rotation.
const WIRES: [Wire; 3] = [Wire::Beanstalk, Wire::Gearman, Wire::Workq];
const CLIENTS: usize = 9;

const TUBES: [&str; 3] = ["f", "g", "h"];

/// Time limit for closing a connection. A correct server needs much less time.
const PATIENCE: Duration = Duration::from_secs(300);

/// A reproducible random number generator (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn tube(&mut self) -> &'static str {
        TUBES[self.below(3) as usize]
    }

    /// Returns the ID of a recent job. The job may have been deleted.
    fn job(&mut self, step: u64) -> u64 {
        step.saturating_sub(self.below(12)).max(1)
    }
}

fn beanstalk(random: &mut Random, step: u64) -> Vec<u8> {
    let (tube, job) = (random.tube(), random.job(step));
    let delay = if random.below(3) == 0 { random.below(3) } else { 0 };
    let text = match random.below(22) {
        0..5 => format!("put {} {delay} {} 2\r\nab", random.below(3), random.below(4)),
        5..7 => format!("use {tube}"),
        7..9 => format!("watch {tube}"),
        9 => format!("ignore {tube}"),
        10..12 => "reserve-with-timeout 0".to_owned(),
        12 => format!("reserve-with-timeout {}", random.below(3)),
        13 => format!("reserve-job {job}"),
        14 => format!("delete {job}"),
        15 => format!("release {job} 1 {delay}"),
        16 => format!("bury {job} 1"),
        17 => format!("kick {}", random.below(4)),
        18 => format!("kick-job {job}"),
        19 => format!("touch {job}"),
        20 => format!("pause-tube {tube} {}", random.below(3)),
        _ => format!("stats-job {job}"),
    };
    (text + "\r\n").into_bytes()
}

fn gearman(random: &mut Random, step: u64, host: &str) -> Vec<u8> {
    let tube = random.tube();
    let handle = format!("H:{host}:{}", random.job(step));
    let unique = ["", "u", "v", "-"][random.below(4) as usize];
    let (kind, body) = match random.below(28) {
        0..3 => (7, format!("{tube}\0{unique}\0xx")),
        3..5 => (18, format!("{tube}\0{unique}\0xx")),
        5 => (21, format!("{tube}\0{unique}\0xx")),
        6..9 => (1, tube.to_owned()),
        9 => (2, tube.to_owned()),
        10 => (23, format!("{tube}\01000")),
        11 => (3, String::new()),
        12..15 => (4, String::new()),
        15..18 => (9, String::new()),
        18 => (13, format!("{handle}\0result")),
        19 => (14, handle),
        20 => (12, format!("{handle}\01\02")),
        21 => (25, format!("{handle}\0why")),
        22 => (28, format!("{handle}\0part")),
        23 => (15, handle),
        24 => return format!("cancel job {handle}\r\n").into_bytes(),
        25 => return format!("drop function {tube}\r\n").into_bytes(),
        26 => return format!("maxqueue {tube} {}\r\n", random.below(4)).into_bytes(),
        _ => return b"status\r\n".to_vec(),
    };
    let (kind, length) = (u32::to_be_bytes(kind), u32::to_be_bytes(body.len() as u32));
    [b"\0REQ".as_slice(), &kind, &length, body.as_bytes()].concat()
}

fn workq(random: &mut Random) -> Vec<u8> {
    let id = format!("{}-1111-4111-8111-111111111111", random.below(6).to_string().repeat(8));
    let (tube, ttr, wait) = (random.tube(), 1 + random.below(3000), random.below(3) * 500);
    let limits = format!("-max-attempts={} -max-fails={}", random.below(3), random.below(3));
    let text = match random.below(18) {
        0..5 => format!("add {id} {tube} {ttr} {} 1 {limits}\r\nx", 1 + random.below(6000)),
        5 => format!("run {id} {tube} {ttr} {wait} 1\r\nx"),
        6..8 => format!("result {id} {wait}"),
        8..12 => format!("lease {tube} {wait}"),
        12 => format!("lease f g h {wait}"),
        13..15 => format!("complete {id} 1\r\ny"),
        15 => format!("fail {id} 1\r\ny"),
        16 => format!("delete {id}"),
        _ => format!("inspect jobs {tube} 0 10"),
    };
    (text + "\r\n").into_bytes()
}

/// A client with a thread that reads and discards all replies.
struct Talker {
    stream: TcpStream,
    reader: JoinHandle<()>,
}

impl Talker {
    fn new(server: &Server, number: usize) -> Talker {
        let address = server.address_of(WIRES[number % 3]).expect("an address for this protocol");
        let stream = TcpStream::connect(address).expect("a connection");
        let mut answers = stream.try_clone().expect("a copy of the connection");
        answers.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let reader = std::thread::spawn(move || loop {
            match answers.read(&mut [0; 4096]) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("the server does not close the connection")
                }
                Ok(0) | Err(_) => return,
            }
        });
        Talker { stream, reader }
    }

    /// Shuts down the connection, and waits until the server has closed its side.
    fn end(self, how: Shutdown) {
        // The server may have closed the connection already.
        let _ = self.stream.shutdown(how);
        self.reader.join().expect("a closed connection");
    }
}

fn run(seed: u64, host: &str) {
    let mut random = Random(seed);
    let anywhere = vec![Address::Tcp(None, None)];
    let doors = Config::embedded().with(|config| {
        config.gearman = anywhere.clone();
        config.workq = anywhere;
    });
    let (server, clock) = Server::with_manual_clock(doors.with(|config| {
        // With more than two threads, several connections can share a turn, for which the server locks the engine once.
        config.threads = if seed % 2 == 0 { 2 } else { 3 };
        config.job_retries = Some(2);
    }))
    .expect("a server");
    let mut talkers: Vec<Talker> = (0..CLIENTS).map(|number| Talker::new(&server, number)).collect();
    for step in 0..STEPS {
        let number = random.below(CLIENTS as u64) as usize;
        let mut breath = Vec::new();
        for _ in 0..1 + random.below(BREATH) {
            breath.extend(match WIRES[number % 3] {
                Wire::Beanstalk => beanstalk(&mut random, step),
                Wire::Gearman => gearman(&mut random, step, host),
                Wire::Workq => workq(&mut random),
                _ => unreachable!("WIRES contains no other protocol"),
            });
        }
        // The server closes the connection after some protocol errors.
        let gone = talkers[number].stream.write_all(&breath).is_err();
        match random.below(12) {
            0 | 1 => clock.advance(Duration::from_millis(random.below(1500))),
            2 if !gone => drop(talkers[number].stream.shutdown(Shutdown::Write)),
            3 => std::mem::replace(&mut talkers[number], Talker::new(&server, number)).end(Shutdown::Both),
            _ if gone => talkers[number] = Talker::new(&server, number),
            _ => {}
        }
        server.check();
    }
    for _ in 0..4 {
        let mut client = Client::connect(server.address()).expect("a connection");
        client.text("stats").expect("a reply");
    }
    talkers.into_iter().for_each(|talker| talker.end(Shutdown::Write));
    server.check();
}

// Tests promise P1 of beanpole-promises(7).
#[test]
fn concurrent_clients_of_all_protocols_do_no_harm() {
    let wanted = std::env::var("BEANPOLE_WILD").ok().map(|text| text.parse().expect("a number of runs"));
    let uname = nix::sys::utsname::uname().expect("a host name");
    let host = uname.nodename().to_string_lossy();
    (0..wanted.unwrap_or(RUNS)).for_each(|seed| run(seed, &host));
}
