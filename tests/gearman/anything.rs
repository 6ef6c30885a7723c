//! Sends random requests. No packet may stop the server, all replies must be well-formed, and each waiting client must
//! receive the outcome of its job exactly once.

use std::time::Duration;

use beanpole::internals::protocol::gearman::PACKETS;
use beanpole::Config;

use crate::script::{Patience, Wire, World};
use crate::talk::{packet, parse};
use crate::within::Within;

/// A reproducible random number generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Returns one seed for each run. The environment variable `BEANPOLE_WILD` sets the number of runs.
fn runs() -> std::ops::Range<u64> {
    let wanted = std::env::var("BEANPOLE_WILD").ok().map(|text| text.parse().expect("a number of runs"));
    0..wanted.unwrap_or(60)
}

const STEPS: usize = 150;

const FUNCTIONS: [&str; 3] = ["f", "g", "h"];

/// Returns a random argument. Most arguments are valid for the parameter `name`.
fn argument(name: &str, random: &mut Random) -> Vec<u8> {
    let odd: [&[u8]; 6] = [b"", b"-", b"\xff\n", b"99999999999999999999", b"-1", b"x y"];
    // The server may read an invalid time as a time far in the future, and clients would wait for the job until then.
    if random.below(12) == 0 && name != "time" {
        return random.pick(&odd).to_vec();
    }
    match name {
        "function" => random.pick(&FUNCTIONS).as_bytes().to_vec(),
        "unique" => random.pick(&["", "", "u", "v", "-"]).as_bytes().to_vec(),
        "handle" => format!("H:h:{}", random.below(30) + 1).into_bytes(),
        "time" => (crate::talk::NOW + random.below(20) as u64).to_string().into_bytes(),
        "option" => b"exceptions".to_vec(),
        "timeout" => random.pick(&["0", "1000", "2500"]).as_bytes().to_vec(),
        _ => random.below(70).to_string().into_bytes(),
    }
}

/// Returns a packet with the correct number of arguments.
fn sound(kind: u32, random: &mut Random) -> Vec<u8> {
    let row = &PACKETS[kind as usize - 1];
    let mut body = row.arguments.iter().map(|name| argument(name, random)).collect::<Vec<_>>().join(&0);
    if row.data {
        if !row.arguments.is_empty() {
            body.push(0);
        }
        body.extend(vec![b'd'; *random.pick(&[0, 1, 5, 5000])]);
    }
    packet(kind, &body)
}

fn work(random: &mut Random) -> Vec<u8> {
    let kind = *random.pick(&[1, 1, 2, 3, 4, 4, 9, 9, 9, 30, 39, 12, 13, 13, 14, 25, 28, 29, 23, 15, 41, 22, 16, 26]);
    sound(kind, random)
}

fn submit(random: &mut Random) -> Vec<u8> {
    let kind = *random.pick(&[7, 21, 33, 37]);
    sound(kind, random)
}

const LINES: [&str; 10] = [
    "status",
    "prioritystatus",
    "workers",
    "show jobs",
    "show unique jobs",
    "cancel job H:h:3",
    "maxqueue f 4",
    "drop function f",
    "create function h",
    "nonsense\x01",
];

#[derive(Default)]
struct Book {
    created: usize,
    ended: usize,
}

impl Book {
    fn read(&mut self, bytes: &[u8]) {
        let (packets, _) = parse(bytes).expect("complete packets and lines");
        for (kind, _) in packets {
            self.created += usize::from(kind == 8);
            self.ended += usize::from(matches!(kind, 13 | 14 | 25));
        }
    }
}

fn orderly_run(seed: u64) {
    let random = &mut Random(seed);
    let retries = *random.pick(&[None, Some(0), Some(1)]);
    let wakeup = *random.pick(&[0, 1, 2]);
    let config = Config::embedded().with(|config| {
        config.job_retries = retries;
        config.worker_wakeup = wakeup;
    });
    let (clients, mut workers) = (["c0", "c1"], vec!["w0".to_owned(), "w1".to_owned(), "w2".to_owned()]);
    let mut world = crate::talk::world(&config, &clients);
    workers.iter().for_each(|name| world.open(name, Wire::Gearman).expect("a connection"));
    world.open("admin", Wire::Gearman).expect("a connection");
    let mut books = [Book::default(), Book::default()];
    for step in 0..STEPS {
        match random.below(20) {
            0 => world.pass(Duration::from_millis(random.below(1500) as u64)),
            1 => {
                let place = random.below(workers.len());
                world.close(&workers[place]);
                workers[place] = format!("n{step}");
                world.open(&workers[place], Wire::Gearman).expect("a connection");
            }
            2 => world.send("admin", format!("{}\n", random.pick(&LINES)).as_bytes()),
            3 => world.send("admin", &sound(*random.pick(&[18, 32, 34, 36, 38]), random)),
            4..=8 => {
                let client = random.below(2);
                world.send(clients[client], &submit(random));
            }
            _ => {
                let worker = random.pick(&workers).clone();
                world.send(&worker, &work(random));
            }
        }
    }
    drain(&mut world, &workers);
    for (client, book) in clients.iter().zip(&mut books) {
        book.read(&world.receive(client, Patience::Must));
        assert!(!world.ended(client), "seed {seed}: {client} was closed");
        assert_eq!(book.created, book.ended, "seed {seed}: {client} waits forever, or was notified twice");
    }
    let (_, lines) = parse(&world.receive("admin", Patience::Must)).expect("complete packets and lines");
    assert!(lines.iter().all(|line| line.ends_with(b"\n")));
}

/// Closes the workers' connections, and completes all remaining jobs with a new worker.
fn drain(world: &mut Within, workers: &[String]) {
    for worker in workers {
        let bytes = world.receive(worker, Patience::Must);
        parse(&bytes).expect("complete packets and lines");
        world.close(worker);
    }
    // Advances the clock until scheduled jobs are due.
    world.pass(Duration::from_secs(30));
    world.open("last", Wire::Gearman).expect("a connection");
    for function in FUNCTIONS.iter().map(|name| name.as_bytes()).chain([b"-".as_slice(), b"\xff\n", b"x y", b"-1"]) {
        world.send("last", &packet(1, function));
    }
    world.send("last", &packet(1, b"99999999999999999999"));
    loop {
        world.send("last", &packet(9, b""));
        let (packets, _) = parse(&world.receive("last", Patience::Must)).expect("complete packets");
        match &packets[..] {
            [(11, body)] => {
                let handle = body.split(|&byte| byte == 0).next().expect("a handle");
                world.send("last", &packet(13, &[handle, b"\0"].concat()));
            }
            [(10, _)] => return,
            other => panic!("unexpected reply to GRAB_JOB: {other:?}"),
        }
    }
}

#[test]
fn every_client_learns_each_outcome_once() {
    runs().for_each(orderly_run);
}

/// Sends random bytes, packets and lines. Some of the packets and lines have changed, missing or inserted bytes. Sends
/// all input in pieces of random sizes.
fn wild_run(seed: u64) {
    let random = &mut Random(seed ^ 0xdead_beef);
    let mut config = Config::embedded();
    config.protocols.max_packet = 20_000;
    let mut world = crate::talk::world(&config, &[]);
    let mut names: Vec<String> = (0..4).map(|number| format!("p{number}")).collect();
    names.iter().for_each(|name| world.open(name, Wire::Gearman).expect("a connection"));
    for step in 0..STEPS {
        let mut bytes = match random.below(6) {
            0 => format!("{}\r\n", random.pick(&LINES)).into_bytes(),
            1 => submit(random),
            2 => (0..random.below(40)).map(|_| random.next() as u8).collect(),
            3 => sound(random.below(42) as u32 + 1, random),
            _ => work(random),
        };
        for _ in 0..[0, 0, 1, 3][random.below(4)] {
            let place = random.below(bytes.len().max(1));
            match random.below(3) {
                0 if place < bytes.len() => bytes[place] = *random.pick(&[0, 1, 0xff, b'\n', random_byte(seed, step)]),
                1 => bytes.truncate(place),
                _ => bytes.insert(place.min(bytes.len()), random_byte(seed, step)),
            }
        }
        let place = random.below(names.len());
        for piece in bytes.chunks(random.below(30) + 1) {
            world.send(&names[place], piece);
        }
        parse(&world.receive(&names[place], Patience::Must)).expect("complete packets and lines");
        if world.ended(&names[place]) || random.below(40) == 0 {
            if !world.ended(&names[place]) {
                world.close(&names[place]);
            }
            names[place] = format!("n{step}");
            world.open(&names[place], Wire::Gearman).expect("a connection");
        }
        if random.below(20) == 0 {
            world.pass(Duration::from_millis(700));
        }
    }
    world.open("alive", Wire::Gearman).expect("a connection");
    world.send("alive", &packet(16, b"still"));
    let (packets, _) = parse(&world.receive("alive", Patience::Must)).expect("a packet");
    assert_eq!(packets, [(17, b"still".to_vec())], "seed {seed}");
}

fn random_byte(seed: u64, step: usize) -> u8 {
    Random(seed.wrapping_mul(31) + step as u64).next() as u8
}

#[test]
fn no_input_stops_the_server() {
    runs().for_each(wild_run);
}
