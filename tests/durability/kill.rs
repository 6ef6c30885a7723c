//! Kills the server repeatedly while clients work.
//!
//! Four producers and four workers execute commands. After each kill, every job is compared with the [`Book`]. A
//! command without a reply may have been executed. A kill does not lose written data, so every sync mode must pass.

use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use beanpole::{Client, ClientError};

use super::book::{Book, Operation, BURIED, DELAYED, LONG, READY};
use super::daemon::Daemon;
use super::support::{ask, crash, parse, stop, total, Home, Random};

const PRODUCERS: usize = 4;
const WORKERS: usize = 4;

/// The index of the tube that all workers share. Each tube with a lower index belongs to one worker.
const SHARED: usize = WORKERS;

/// Producers pause while more than this many jobs exist.
const ENOUGH: usize = 400;

const ROUNDS: usize = 4;

/// A time to run, in seconds, longer than any test.
const TTR: u32 = 100_000;

/// The number of IDs to check above the highest known ID.
const BEYOND: u64 = 200;

type Done = Result<(), ClientError>;

struct Site<'a> {
    daemon: &'a Daemon,
    book: &'a Mutex<Book>,
    round: usize,
}

pub fn rounds() -> usize {
    std::env::var("BEANPOLE_KILLS").map_or(ROUNDS, |text| text.parse().expect("a number of rounds"))
}

pub fn seed() -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set").as_nanos() as u64;
    std::env::var("BEANPOLE_SEED").map_or_else(|_| now(), |text| text.parse().expect("a seed"))
}

fn tube_name(tube: usize) -> String {
    format!("tube-{tube}")
}

impl Site<'_> {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, what: &str, work: impl FnOnce(Client) -> Done) {
        let Ok(client) = Client::connect(self.daemon.address()) else { return };
        if let Err(ClientError::Refused(reply)) = work(client) {
            self.book().problems.push(format!("{what}: {reply}"));
        }
    }

    fn produce(&self, number: usize, mut client: Client, mut random: Random) -> Done {
        for count in 0.. {
            while self.book().jobs.len() > ENOUGH {
                std::thread::sleep(Duration::from_millis(1));
                client.text("stats")?;
            }
            let tube = random.below(WORKERS as u64 + 1) as usize;
            let (pri, delay) = (random.below(5) as u32, [0, 0, 0, 0, 0, 0, 1, LONG][random.below(8) as usize]);
            let mut body = format!("{}-{number}-{count}:", self.round).into_bytes();
            body.resize(body.len() + [0, 10, 100, 3000][random.below(4) as usize], random.below(256) as u8);
            client.use_tube(&tube_name(tube))?;
            self.book().will_put(&body, tube, pri, delay);
            let id = client.put(&body, pri, delay, TTR)?;
            self.book().inserted(id, &body);
        }
        Ok(())
    }

    fn work(&self, own: usize, mut client: Client, mut random: Random) -> Done {
        let tubes = [own, SHARED];
        tubes.iter().try_for_each(|&tube| client.watch(&tube_name(tube)).map(drop))?;
        client.ignore("default")?;
        client.use_tube(&tube_name(own))?;
        loop {
            let job = client.reserve(Some(0))?;
            if job.is_none() || random.below(4) == 0 {
                self.wake(own, &mut client, &mut random)?;
            }
            let Some(job) = job else { continue };
            self.book().reserved(job.id, &job.body, &tubes);
            let pri = random.below(5) as u32;
            let operation = match random.below(10) {
                0..=4 => Operation::Delete,
                5..=6 => Operation::Release { pri, delay: [0, 0, 1, LONG][random.below(4) as usize] },
                7..=8 => Operation::Bury { pri },
                _ => {
                    client.touch(job.id)?;
                    Operation::Release { pri, delay: 0 }
                }
            };
            self.carry_out(&mut client, job.id, operation)?;
        }
    }

    fn carry_out(&self, client: &mut Client, id: u64, operation: Operation) -> Done {
        let number = self.book().will_do(id, operation);
        match operation {
            Operation::Delete => client.delete(id)?,
            Operation::Release { pri, delay } => client.release(id, pri, delay)?,
            Operation::Bury { pri } => client.bury(id, pri)?,
            Operation::Kick => {
                client.send(format!("kick-job {id}\r\n").as_bytes())?;
                let line = client.line()?;
                if line != "KICKED" {
                    return Err(ClientError::Refused(format!("kick-job {id}: {line}")));
                }
            }
        }
        self.book().done(id, number);
        Ok(())
    }

    fn wake(&self, own: usize, client: &mut Client, random: &mut Random) -> Done {
        let mut book = self.book();
        let mut buried = book.buried(own);
        buried.truncate(1 + random.below(3) as usize);
        let sleeper = book.find(own, DELAYED);
        // Only one worker kicks jobs of the shared tube, because the result of concurrent kicks would be unpredictable.
        let shared = (own == 0).then(|| book.find(SHARED, BURIED).or(book.find(SHARED, DELAYED))).flatten();
        let numbers: Vec<_> = buried.iter().map(|&id| (id, book.will_do(id, Operation::Kick))).collect();
        drop(book);
        if !numbers.is_empty() {
            let kicked = client.kick(numbers.len() as u32)?;
            if kicked != numbers.len() as u64 {
                return Err(ClientError::Refused(format!("KICKED {kicked} instead of {numbers:?}")));
            }
            numbers.into_iter().for_each(|(id, number)| self.book().done(id, number));
        }
        if let Some(id) = sleeper {
            self.carry_out(client, id, Operation::Kick)?;
        }
        match shared {
            Some(id) if random.below(2) == 0 => self.carry_out(client, id, Operation::Delete),
            Some(id) => self.carry_out(client, id, Operation::Kick),
            None => Ok(()),
        }
    }

    /// Runs all clients for a random time, and then kills the server.
    fn load(&self, random: &mut Random) {
        let end = random.millis(50, 300);
        std::thread::scope(|scope| {
            for number in 0..PRODUCERS {
                let random = Random::new(random.below(u64::MAX));
                scope.spawn(move || self.run("a producer", |client| self.produce(number, client, random)));
            }
            for number in 0..WORKERS {
                let random = Random::new(random.below(u64::MAX));
                scope.spawn(move || self.run("a worker", |client| self.work(number, client, random)));
            }
            std::thread::sleep(end);
            self.daemon.signal(super::daemon::Signal::SIGKILL);
        });
    }
}

/// Compares every job on the server with the book.
fn verify(daemon: &Daemon, book: &mut Book) {
    let stream = daemon.tcp();
    let mut known: Vec<u64> = book.jobs.keys().copied().collect();
    known.sort_unstable();
    let questions = |word: &str, ids: &[u64]| ids.iter().map(|id| format!("{word} {id}")).collect::<Vec<_>>();
    let facts = ask(&stream, &questions("stats-job", &known));
    let bodies = ask(&stream, &questions("peek", &known));
    for ((&id, (_, facts)), (line, body)) in known.iter().zip(facts).zip(bodies) {
        if line == "NOT_FOUND" {
            book.missed(id);
            continue;
        }
        meet(book, id, &String::from_utf8_lossy(&facts), &body);
    }
    let gone = book.ended_now.clone();
    for (id, (line, _)) in gone.iter().zip(ask(&stream, &questions("peek", &gone))) {
        if line != "NOT_FOUND" {
            book.problems.push(format!("reappeared: job {id} was deleted"));
        }
    }
    let unknown = book.floor + 1..=book.newest + BEYOND;
    let unknown: Vec<u64> = unknown.filter(|id| !book.jobs.contains_key(id) && !book.ended.contains(id)).collect();
    let found: Vec<_> = unknown.iter().copied().zip(ask(&stream, &questions("peek", &unknown))).collect();
    for (id, (_, body)) in found.into_iter().filter(|(_, (line, _))| line != "NOT_FOUND") {
        book.adopt(id, &body);
        let facts = ask(&stream, &questions("stats-job", &[id]));
        if book.jobs.contains_key(&id) {
            meet(book, id, &String::from_utf8_lossy(&facts[0].1), &body);
        }
    }
    book.settle();
    let (there, known) = (total(&mut daemon.client()), book.jobs.len() as u64);
    if there != known {
        book.problems.push(format!("there are {there} jobs instead of {known}"));
    }
    first_buried(&stream, book);
}

fn meet(book: &mut Book, id: u64, facts: &str, body: &[u8]) {
    let facts = parse(facts);
    let number = |key: &str| facts[key].parse::<u32>().expect("a number");
    let state = match facts["state"].as_str() {
        "ready" => READY,
        "delayed" => DELAYED,
        "buried" => BURIED,
        other => panic!("job {id} is {other}"),
    };
    let tube = facts["tube"].strip_prefix("tube-").expect("a tube").parse().expect("a number");
    let counts = ["reserves", "releases", "buries", "kicks"].map(number);
    if number("timeouts") != 0 || number("ttr") != TTR {
        book.problems.push(format!("job {id} is {facts:?}"));
    }
    book.met(id, tube, body, state, number("pri"), counts);
}

/// Checks the first buried job of each tube, because a restart must preserve the order in which jobs were buried.
fn first_buried(stream: &TcpStream, book: &mut Book) {
    for tube in 0..WORKERS {
        let answers = ask(stream, &[format!("use {}", tube_name(tube)), "peek-buried".to_owned()]);
        let first = answers[1].0.strip_prefix("FOUND ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        let right = book.buried(tube).first().copied();
        if first != right {
            book.problems.push(format!("the first buried job of tube {tube} is {first:?} instead of {right:?}"));
        }
    }
}

/// Puts and deletes a job. Returns its ID, which is higher than all earlier IDs. Because of this job, at least one ID
/// is assigned in each round, even on a busy machine.
fn passing(daemon: &Daemon) -> u64 {
    let mut client = daemon.client();
    let id = client.put(b"passing", 0, 0, TTR).expect("a job");
    client.delete(id).expect("a job");
    id
}

fn check(options: &[&str]) {
    let (seed, rounds) = (seed(), rounds());
    println!("{options:?}: BEANPOLE_SEED={seed}");
    let home = Home::new();
    let options = [options, &["-s", "65536"]].concat();
    let mut random = Random::new(seed);
    let book = Mutex::<Book>::default();
    for round in 0..rounds {
        let daemon = home.start(&options);
        let site = Site { daemon: &daemon, book: &book, round };
        verify(&daemon, &mut site.book());
        site.book().begin(passing(&daemon));
        site.load(&mut random);
        let problems = std::mem::take(&mut site.book().problems);
        assert!(problems.is_empty(), "seed {seed}, round {round}, {options:?}:\n{}", problems.join("\n"));
        crash(daemon);
    }
    let daemon = home.start(&options);
    let mut book = book.into_inner().unwrap_or_else(PoisonError::into_inner);
    verify(&daemon, &mut book);
    stop(daemon);
    println!(
        "{options:?}: {rounds} kills, {} jobs acknowledged, {} ended, {} live, {} with a command in flight; {} problems",
        book.puts,
        book.ended.len(),
        book.jobs.len(),
        book.in_flight,
        book.problems.len(),
    );
    assert!(book.problems.is_empty(), "seed {seed}, {options:?}:\n{}", book.problems.join("\n"));
}

// Tests promise P12 of beanpole-promises(7).
#[test]
fn kill_loop_with_a_sync_before_every_reply() {
    check(&["-f0"]);
}

#[test]
fn kill_loop_with_a_sync_in_50_ms() {
    check(&["-f50"]);
}

#[test]
fn kill_loop_without_syncs() {
    check(&["-F"]);
}
