//! Tests that jobs of all three protocols survive the exit of the server.
//!
//! A restart must preserve all options of a job. Delays and time limits must also expire while no server runs. After a
//! kill, no acknowledged job may be lost or duplicated, and no job whose end was acknowledged may reappear.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Result, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::daemon::{wait_until, Daemon, Signal};
use super::kill::{rounds, seed};
use super::support::{crash, number, stop, Home, Random};
use super::wires::*;

fn restart(home: &Home, daemon: Daemon, options: &[&str]) -> Daemon {
    crash(daemon);
    home.start(options)
}

/// Formats a time with a resolution of one second, as Workq does.
fn rfc3339(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

fn epoch(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).expect("a clock that is set").as_secs()
}

#[test]
fn workq_options_and_times_survive_a_kill() -> Result<()> {
    let options = [&["-f0"], &ALL[..]].concat();
    let home = Home::new();
    let mut daemon = home.start(&options);
    let mut client = Workq::connect(&daemon)?;
    let ids: Vec<String> = (0..8).map(uuid).collect();
    let began = Instant::now();
    let ask = |client: &mut Workq, text: String| assert_eq!(client.ask(&text).expect("a reply"), "+OK", "{text}");
    for (number, terms) in ["q 9000 900000", "q1 9000 2000", "q2 2000 900000", "q3 9000 900000"].iter().enumerate() {
        ask(&mut client, format!("add {} {terms} 4 -max-fails=2 -max-attempts=7\r\nbody\r\n", ids[number]));
    }
    let added = Instant::now();
    let moment = SystemTime::now() + Duration::from_secs(3);
    ask(&mut client, format!("schedule {} q4 9000 900000 {} 4\r\nbody\r\n", ids[4], rfc3339(moment)));
    assert_eq!(client.lease("q2", 0)?, Some((ids[2].clone(), "body".to_owned())));
    ask(&mut client, format!("fail {} 3\r\nbad\r\n", ids[3]));
    ask(&mut client, format!("add {} q5 9000 900000 4\r\nbody\r\n", ids[5]));
    ask(&mut client, format!("complete {} 6\r\nresult\r\n", ids[5]));
    ask(&mut client, format!("add {} q6 9000 900000 4\r\nbody\r\n", ids[6]));
    ask(&mut client, format!("delete {}\r\n", ids[6]));
    let mut runner = Workq::connect(&daemon)?;
    runner.send(&format!("run {} q7 9000 900000 4\r\nbody\r\n", ids[7]))?;
    wait_until("the job exists", || client.inspect(&ids[7], "state").expect("a reply").is_some());
    // Restarts several times, because a recovered queue must survive further restarts with all properties of its jobs.
    let mut leased = None;
    for _ in 0..3 {
        daemon = restart(&home, daemon, &options);
        client = Workq::connect(&daemon)?;
        let mut look = |number: usize, key: &str| client.inspect(&ids[number], key).expect("a reply");
        for number in [6, 7] {
            assert_eq!(look(number, "state"), None, "job {number}");
        }
        for (number, key, value) in
            [(0, "state", "0"), (0, "max-attempts", "7"), (0, "max-fails", "2"), (3, "fails", "1"), (5, "state", "1")]
        {
            assert_eq!(look(number, key).as_deref(), Some(value), "{key} of job {number}");
        }
        assert_eq!(look(4, "time"), Some(rfc3339(moment)));
        assert_eq!(look(2, "attempts").as_deref(), Some("1"));
        assert_eq!(client.ask(&format!("add {} q 1 1 0\r\n\r\n", ids[0]))?, "-CLIENT-ERROR Duplicate job");
        assert_eq!(client.result(&ids[5])?, Some((true, "result".to_owned())));
        leased = client.lease("q2", 0)?;
        assert!(leased.is_none() || began.elapsed() >= Duration::from_millis(2000), "the lease ended too early");
        if leased.is_some() {
            break;
        }
    }
    // The time to live of job 1 and the lease of job 2 expire while no server runs, unless they have expired before.
    crash(daemon);
    std::thread::sleep(Duration::from_millis(2100).saturating_sub(added.elapsed()));
    let daemon = home.start(&options);
    let mut client = Workq::connect(&daemon)?;
    assert_eq!(client.inspect(&ids[1], "state")?, None, "the job must have expired");
    if leased.is_none() {
        leased = client.lease("q2", 200_000)?;
    }
    assert_eq!(leased, Some((ids[2].clone(), "body".to_owned())));
    assert_eq!(client.lease("q4", 200_000)?, Some((ids[4].clone(), "body".to_owned())));
    assert!(SystemTime::now() >= moment - Duration::from_secs(1));
    ask(&mut client, format!("fail {} 5\r\nworse\r\n", ids[3]));
    assert_eq!(client.result(&ids[3])?, Some((false, "worse".to_owned())));
    stop(daemon);
    Ok(())
}

/// If an existing foreground job is submitted again in the background, the server makes the job durable. A short
/// command can therefore cause a large write.
#[test]
fn foreground_jobs_become_durable_when_submitted_in_the_background() -> Result<()> {
    const LARGE: usize = 40_000;
    let options = [&["-f0", "-s", "65536"], &ALL[..]].concat();
    let home = Home::new();
    let mut daemon = home.start(&options);
    let (mut client, mut handles) = (Gearman::connect(&daemon)?, Vec::new());
    for number in 0..30 {
        // The bodies' sizes differ, so that different amounts of space remain in the segments of 64 KiB. The server
        // creates a new segment when half of the current segment is used.
        client.submit(SUBMIT_JOB_BG, &["fill", "", &"f".repeat(number * 997)])?;
        let (unique, body) = (format!("u{number}"), "x".repeat(LARGE));
        let handle = client.submit(SUBMIT_JOB, &["f", &unique, &body])?;
        if number % 2 == 0 {
            assert_eq!(client.submit(SUBMIT_JOB_BG, &["f", &unique, "x"])?, handle);
        } else {
            let id = handle.rsplit(':').next().expect("a number");
            let mut producer = BufReader::new(daemon.tcp());
            producer.get_mut().write_all(format!("put 0 0 60 1 tub:f idp:{unique}\r\nx\r\n").as_bytes())?;
            let mut reply = String::new();
            producer.read_line(&mut reply)?;
            assert_eq!(reply, format!("INSERTED {id} READY 0\r\n"));
        }
        handles.push(handle);
    }
    daemon = restart(&home, daemon, &options);
    client = Gearman::connect(&daemon)?;
    for handle in handles {
        assert!(client.knows(&handle)?, "{handle}");
    }
    stop(daemon);
    Ok(())
}

#[test]
fn gearman_background_jobs_and_handles_survive_a_kill() -> Result<()> {
    let options = [&["-f0"], &ALL[..]].concat();
    let home = Home::new();
    let mut daemon = home.start(&options);
    let mut client = Gearman::connect(&daemon)?;
    let named = client.submit(SUBMIT_JOB_BG, &["f", "name", "one"])?;
    let by_body = client.submit(SUBMIT_JOB_BG, &["f", "-", "two"])?;
    let moment = SystemTime::now() + Duration::from_secs(3);
    let later = client.submit(SUBMIT_JOB_EPOCH, &["late", "later", &epoch(moment).to_string(), "three"])?;
    let volatile = client.submit(SUBMIT_JOB, &["f", "volatile", "four"])?;
    let joined = client.submit(SUBMIT_JOB, &["f", "joined", "five"])?;
    assert_eq!(Gearman::connect(&daemon)?.submit(SUBMIT_JOB_BG, &["f", "joined", "five"])?, joined);
    let held = client.submit(SUBMIT_JOB_BG, &["held", "", "six"])?;
    let done = client.submit(SUBMIT_JOB_BG, &["done", "", "seven"])?;
    let mut worker = Gearman::connect(&daemon)?;
    worker.send(CAN_DO, &["held"])?;
    assert_eq!(worker.grab()?, Some((held.clone(), "six".to_owned())));
    let mut other = Gearman::connect(&daemon)?;
    other.send(CAN_DO, &["done"])?;
    assert_eq!(other.grab()?, Some((done.clone(), "seven".to_owned())));
    other.send(WORK_COMPLETE, &[&done, "result"])?;
    // The reply to the grab shows that the server has executed all earlier requests.
    assert_eq!(other.grab()?, None);
    let mut handles: HashSet<String> =
        [&named, &by_body, &later, &volatile, &joined, &held, &done].into_iter().cloned().collect();
    assert_eq!(handles.len(), 7);
    for _ in 0..2 {
        daemon = restart(&home, daemon, &options);
        client = Gearman::connect(&daemon)?;
        for (handle, there) in [(&named, true), (&later, true), (&joined, true), (&held, true)] {
            assert_eq!(client.knows(handle)?, there, "{handle}");
        }
        assert!(!client.knows(&volatile)? && !client.knows(&done)?);
        assert_eq!(client.submit(SUBMIT_JOB_BG, &["f", "name", "one"])?, named);
        assert_eq!(client.submit(SUBMIT_JOB_BG, &["f", "-", "two"])?, by_body);
        let new = client.submit(SUBMIT_JOB_BG, &["new", "", "new"])?;
        assert!(handles.insert(new.clone()), "handle {new} was used before");
    }
    let mut worker = Gearman::connect(&daemon)?;
    worker.send(CAN_DO, &["held"])?;
    assert_eq!(worker.grab()?, Some((held, "six".to_owned())));
    let mut late = Gearman::connect(&daemon)?;
    late.send(CAN_DO, &["late"])?;
    wait_until("the scheduled job is due", || late.grab().expect("a reply").is_some());
    // The protocol's times have a resolution of one second.
    assert!(SystemTime::now() >= moment - Duration::from_secs(1), "the job was due too early");
    stop(daemon);
    Ok(())
}

/// The known state of all jobs. The payload identifies a job.
#[derive(Default)]
struct Book {
    sent: HashSet<String>,
    acknowledged: HashSet<String>,
    /// Jobs that a worker has begun to complete or delete. If the worker has received no reply, the job may or may not
    /// exist.
    ending: HashSet<String>,
    ended: HashSet<String>,
    /// For each held job, the round of the reservation and the time of the request.
    held: HashMap<String, (usize, Instant)>,
    /// The Workq IDs of the jobs by payload.
    results: HashMap<String, String>,
    /// For each job, the number of reported failures and the number of acknowledged failures.
    fails: HashMap<String, (u32, u32)>,
    problems: Vec<String>,
}

/// Returns the unique prefix of a payload.
fn name(payload: &str) -> &str {
    payload.split('x').next().unwrap_or_default()
}

impl Book {
    /// Records that a client received a job in round `round`. `asked` is the time of the client's request.
    fn taken(&mut self, payload: &str, round: usize, asked: Instant) {
        if self.ended.contains(payload) {
            self.problems.push(format!("reappeared: {} was done", name(payload)));
        }
        if !self.sent.contains(payload) {
            self.problems.push(format!("{} was never submitted", name(payload)));
        }
        // On a very busy machine, the earlier reservation may have expired.
        let before = self.held.insert(payload.to_owned(), (round, asked));
        if before.is_some_and(|(other, since)| other == round && since.elapsed() < HELD) {
            self.problems.push(format!("duplicate: {} is reserved twice", name(payload)));
        }
        self.ending.remove(payload);
    }

    fn done(&mut self, payload: &str) {
        self.ended.insert(payload.to_owned());
        self.held.remove(payload);
    }
}

struct Site<'a> {
    daemon: &'a Daemon,
    book: &'a Mutex<Book>,
    next: &'a AtomicU64,
    round: usize,
}

/// The shortest time to run of any job. After this time, another worker can receive a reserved job.
const HELD: Duration = Duration::from_secs(5);

/// Producers pause when this many jobs are unfinished.
const ENOUGH: usize = 300;

impl Site<'_> {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number and the payload of a new job, or `None` if enough jobs exist.
    fn new_job(&self, kind: char) -> Option<(u64, String)> {
        let mut book = self.book();
        if book.acknowledged.len() >= book.ended.len() + ENOUGH {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let payload = format!("{kind}-{number}-{}", "x".repeat([0, 30, 2000][number as usize % 3]));
        book.sent.insert(payload.clone());
        Some((number, payload))
    }

    fn produce(&self, kind: char) -> Option<()> {
        let mut workq = Workq::connect(self.daemon).ok()?;
        let mut gearman = Gearman::connect(self.daemon).ok()?;
        let mut beanstalk = beanpole::Client::connect(self.daemon.address()).ok()?;
        beanstalk.use_tube("q").ok()?;
        loop {
            let Some((number, payload)) = self.new_job(kind) else {
                std::thread::sleep(Duration::from_millis(1));
                // The command fails after the server is killed. This failure ends the loop.
                beanstalk.text("stats").ok()?;
                continue;
            };
            match kind {
                'w' => {
                    let (id, size) = (uuid(number), payload.len());
                    let line = format!("add {id} q 5000 3600000 {size} -max-fails=255\r\n{payload}\r\n");
                    // Records the ID now, because another client may finish the job before the reply arrives.
                    self.book().results.insert(payload.clone(), id);
                    assert_eq!(workq.ask(&line).ok()?, "+OK");
                }
                'g' => drop(gearman.submit(SUBMIT_JOB_BG, &["g", &number.to_string(), &payload]).ok()?),
                _ => drop(beanstalk.put(payload.as_bytes(), 0, 0, 5).ok()?),
            }
            self.book().acknowledged.insert(payload);
        }
    }

    fn work_workq(&self, mut random: Random) -> Option<()> {
        let mut client = Workq::connect(self.daemon).ok()?;
        loop {
            let asked = Instant::now();
            let Some((id, payload)) = client.lease("q", 20).ok()? else { continue };
            self.book().taken(&payload, self.round, asked);
            if payload.starts_with('w') && random.below(3) == 0 {
                let mut book = self.book();
                book.held.remove(&payload);
                book.fails.entry(payload.clone()).or_default().0 += 1;
                drop(book);
                assert_eq!(client.ask(&format!("fail {id} 3\r\nbad\r\n")).ok()?, "+OK");
                self.book().fails.entry(payload).or_default().1 += 1;
                continue;
            }
            self.book().ending.insert(payload.clone());
            let line = format!("complete {id} {}\r\n{payload}\r\n", payload.len());
            assert_eq!(client.ask(&line).ok()?, "+OK");
            self.book().done(&payload);
        }
    }

    fn work_gearman(&self) -> Option<()> {
        let mut client = Gearman::connect(self.daemon).ok()?;
        client.send(CAN_DO, &["g"]).ok()?;
        client.send(CAN_DO, &["q"]).ok()?;
        let mut before: Option<String> = None;
        loop {
            let asked = Instant::now();
            let job = client.grab().ok()?;
            if let Some(payload) = before.take() {
                // The reply to the grab shows that all earlier requests are executed and durable.
                self.book().done(&payload);
            }
            let Some((handle, payload)) = job else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            self.book().taken(&payload, self.round, asked);
            self.book().ending.insert(payload.clone());
            client.send(WORK_COMPLETE, &[&handle, &payload]).ok()?;
            before = Some(payload);
        }
    }

    fn work_beanstalk(&self) -> Option<()> {
        let mut client = beanpole::Client::connect(self.daemon.address()).ok()?;
        client.watch("q").ok()?;
        client.watch("g").ok()?;
        loop {
            let asked = Instant::now();
            let Some(job) = client.reserve(Some(1)).ok()? else { continue };
            let payload = String::from_utf8_lossy(&job.body).into_owned();
            self.book().taken(&payload, self.round, asked);
            self.book().ending.insert(payload.clone());
            client.delete(job.id).ok()?;
            let mut book = self.book();
            // A job has no result if a beanstalk worker has deleted the job.
            book.results.remove(&payload);
            book.done(&payload);
        }
    }

    /// Runs all clients for a random time, and then kills the server.
    fn load(&self, random: &mut Random) {
        let end = random.millis(50, 300);
        std::thread::scope(|scope| {
            for kind in ['w', 'g', 'b', 'w'] {
                scope.spawn(move || self.produce(kind));
            }
            for _ in 0..2 {
                let random = Random::new(random.below(u64::MAX));
                scope.spawn(move || self.work_workq(random));
                scope.spawn(move || self.work_gearman());
            }
            scope.spawn(move || self.work_beanstalk());
            std::thread::sleep(end);
            self.daemon.signal(Signal::SIGKILL);
        });
    }
}

/// Compares the failure counts of jobs, the results of ended jobs, and the remaining jobs with the book. Deletes the
/// remaining jobs, and returns their number.
fn verify(daemon: &Daemon, book: &mut Book) -> usize {
    let mut client = daemon.client();
    let mut workq = Workq::connect(daemon).expect("a connection");
    for (payload, (reported, known)) in &book.fails {
        let id = &book.results.get(payload);
        let fails = id.and_then(|id| workq.inspect(id, "fails").expect("a reply"));
        let fails: Option<u32> = fails.map(|fails| fails.parse().expect("a number"));
        if fails.is_some_and(|fails| fails < *known || fails > *reported) {
            book.problems.push(format!("{} failed {fails:?} times, not {known} to {reported}", name(payload)));
        }
    }
    for (payload, id) in book.results.iter().filter(|(payload, _)| book.ended.contains(*payload)) {
        let result = workq.result(id).expect("a reply");
        if result.as_ref().is_none_or(|(done, result)| !done || result != payload) {
            book.problems.push(format!(
                "the result of {} is {:?}",
                name(payload),
                result.map(|(done, result)| (done, name(&result).to_owned()))
            ));
        }
    }
    wait_until("all leases have ended", || number(&mut client, "stats", "current-jobs-reserved") == 0);
    for tube in ["q", "g"] {
        client.watch(tube).expect("a tube");
    }
    let mut left = HashMap::<String, usize>::new();
    while let Some(job) = client.reserve(Some(0)).expect("a reply") {
        *left.entry(String::from_utf8_lossy(&job.body).into_owned()).or_default() += 1;
        client.delete(job.id).expect("a reserved job");
    }
    for (payload, count) in &left {
        if *count > 1 || book.ended.contains(payload) || !book.sent.contains(payload) {
            let ended = book.ended.contains(payload);
            book.problems.push(format!("{} exists {count} times, ended: {ended}", name(payload)));
        }
    }
    let lost = |payload: &&String| {
        !left.contains_key(*payload) && !book.ended.contains(*payload) && !book.ending.contains(*payload)
    };
    let lost = book.acknowledged.iter().filter(lost);
    let lost: Vec<String> = lost.map(|payload| format!("lost: {}", name(payload))).collect();
    book.problems.extend(lost);
    left.len()
}

fn check(options: &[&str]) {
    let (seed, rounds) = (seed(), rounds());
    println!("{options:?}: BEANPOLE_SEED={seed}");
    let home = Home::new();
    let options = [options, &ALL, &["-s", "65536"]].concat();
    let (mut random, book, next) = (Random::new(seed), Mutex::<Book>::default(), AtomicU64::new(1));
    for round in 0..rounds {
        let daemon = home.start(&options);
        Site { daemon: &daemon, book: &book, next: &next, round }.load(&mut random);
        crash(daemon);
    }
    let mut book = book.into_inner().expect("an unpoisoned lock");
    let daemon = home.start(&options);
    let left = verify(&daemon, &mut book);
    stop(daemon);
    println!(
        "{options:?}: {rounds} kills, {} jobs acknowledged, {} ended, {left} left; {} problems",
        book.acknowledged.len(),
        book.ended.len(),
        book.problems.len()
    );
    assert!(book.problems.is_empty(), "seed {seed}, {options:?}:\n{}", book.problems.join("\n"));
}

#[test]
fn kill_loop_of_three_protocols_with_a_sync_before_every_reply() {
    check(&["-f0"]);
}

#[test]
fn kill_loop_of_three_protocols_with_a_sync_in_50_ms() {
    check(&["-f50"]);
}
