//! The real program under a steady mixture of all protocols, with a log, for as long as it is told to.
//!
//! Owns what must not grow: memory, descriptors, threads, the log; and that each job which was acknowledged is done
//! once it is all over. For `make soak MINUTES=n`; the time only says how long, never whether it passes.

#[path = "daemon/mod.rs"]
mod daemon;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use beanpole::Client;
use daemon::{Daemon, Folder};

/// Jobs that wait at the most, so that what is held is steady.
const WAITING: usize = 2000;

/// What memory may have grown by between the first part and the end, beside three tenths.
const SLACK: u64 = 8 << 20;

/// What all clients together have done.
#[derive(Default)]
struct Book {
    open: Mutex<BTreeSet<u64>>,
    /// Jobs of each protocol that were done.
    done: [AtomicU64; 3],
    over: AtomicBool,
}

impl Book {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

fn produce(address: SocketAddr, book: &Book) {
    let mut client = Client::connect(address).expect("a connection");
    let mut number = 0;
    while book.goes_on() {
        if book.open.lock().expect("the book").len() > WAITING {
            std::thread::yield_now();
            continue;
        }
        number += 1;
        let body = vec![b'x'; if number % 100 == 0 { 40_000 } else { number % 300 }];
        // Taken while the book is locked: a worker may have it before its producer hears of it.
        let mut open = book.open.lock().expect("the book");
        let id = client.put(&body, number as u32 % 5, u32::from(number % 50 == 0), 60).expect("a job");
        assert!(open.insert(id), "the id {id} was given twice");
    }
}

fn work(address: SocketAddr, book: &Book) {
    let mut client = Client::connect(address).expect("a connection");
    let mut number = 0u64;
    while book.goes_on() {
        let Some(job) = client.reserve(Some(1)).expect("an answer") else { continue };
        number += 1;
        match number % 10 {
            0 => client.release(job.id, 1, 0).expect("a job of ours"),
            1 => {
                client.bury(job.id, 1).expect("a job of ours");
                client.kick_job(job.id).expect("a buried job");
            }
            _ => {
                client.delete(job.id).expect("a job of ours");
                assert!(book.open.lock().expect("the book").remove(&job.id), "job {} was done twice", job.id);
                book.done[0].fetch_add(1, Ordering::Relaxed);
            }
        }
        if number % 500 == 0 {
            client = Client::connect(address).expect("a connection");
        }
    }
}

fn packet(kind: u32, body: &[u8]) -> Vec<u8> {
    [b"\0REQ".as_slice(), &kind.to_be_bytes(), &(body.len() as u32).to_be_bytes(), body].concat()
}

fn response(stream: &mut TcpStream) -> (u32, Vec<u8>) {
    let mut header = [0; 12];
    stream.read_exact(&mut header).expect("a packet");
    let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let mut body = vec![0; number(8) as usize];
    stream.read_exact(&mut body).expect("its body");
    (number(4), body)
}

/// Submits a job of Gearman, works at it on another connection, and is told its result.
fn gearman(address: SocketAddr, book: &Book) {
    let connect = || TcpStream::connect(address).expect("a connection");
    let (mut client, mut worker) = (connect(), connect());
    worker.write_all(&packet(1, b"soak")).expect("a server");
    while book.goes_on() {
        client.write_all(&packet(7, b"soak\0\0work")).expect("a server");
        let (kind, handle) = response(&mut client);
        assert_eq!(kind, 8, "a job is created");
        worker.write_all(&packet(9, b"")).expect("a server");
        let (kind, _) = response(&mut worker);
        assert_eq!(kind, 11, "there is a job");
        worker.write_all(&packet(13, &[&handle[..], b"\0done"].concat())).expect("a server");
        assert_eq!(response(&mut client), (13, [&handle[..], b"\0done"].concat()));
        book.done[1].fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds a job of Workq, leases it, completes it and looks at its result.
fn workq(address: SocketAddr, book: &Book) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut number = 0u64;
    let mut say = |words: String, lines: usize| {
        stream.write_all(words.as_bytes()).expect("a server");
        let (mut text, mut byte) = (Vec::new(), [0]);
        while text.iter().filter(|&&byte| byte == b'\n').count() < lines {
            stream.read_exact(&mut byte).expect("an answer");
            text.push(byte[0]);
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    while book.goes_on() {
        number += 1;
        let id = format!("00000000-1111-4111-8111-{number:012}");
        assert_eq!(say(format!("add {id} ping 60000 60000 2\r\nab\r\n"), 1), "+OK\r\n");
        let leased = say("lease ping 0\r\n".to_owned(), 3);
        assert!(leased.contains(&id), "{leased}");
        assert_eq!(say(format!("complete {id} 1\r\ny\r\n"), 1), "+OK\r\n");
        assert_eq!(say(format!("delete {id}\r\n"), 1), "+OK\r\n");
        book.done[2].fetch_add(1, Ordering::Relaxed);
    }
}

/// What must stay flat: resident bytes, descriptors, threads, and bytes of the log.
fn figures(server: &Daemon, folder: &std::path::Path) -> [u64; 4] {
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).map_or(0, Iterator::count) as u64;
    let sizes = std::fs::read_dir(folder).expect("the log's folder").map(|entry| {
        // It may be gone by now.
        entry.expect("an entry").metadata().map_or(0, |file| file.len())
    });
    [server.rss(), files, server.threads(), sizes.sum()]
}

fn addresses(server: &Daemon) -> [SocketAddr; 3] {
    let plain = |name: &String| name.split(' ').next().and_then(|address| address.parse().ok());
    let found: Vec<SocketAddr> = server.names().iter().filter_map(plain).collect();
    found.try_into().expect("three addresses")
}

#[test]
#[ignore = "takes as long as it is told to; see make soak"]
fn nothing_grows_and_nothing_is_lost() {
    let minutes = std::env::var("MINUTES").ok().filter(|text| !text.is_empty());
    let minutes: f64 = minutes.map_or(1.0, |text| text.parse().expect("a number of minutes"));
    let folder = Folder::new();
    let path = folder.file("log");
    std::fs::create_dir(&path).expect("a folder");
    let log = path.to_str().expect("a plain path");
    let mut server =
        Daemon::start(&["-b", log, "-f", "50", "--gearman=127.0.0.1:0", "--workq=127.0.0.1:0", "-s", "1048576"]);
    server.live_on();
    let [beanstalk, gearman_at, workq_at] = addresses(&server);
    let book = Book::default();
    let length = Duration::from_secs_f64(minutes * 60.0);
    let start = Instant::now();
    let (mut early, mut last) = ([0; 4], [0; 4]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| produce(beanstalk, &book));
            scope.spawn(|| work(beanstalk, &book));
        }
        scope.spawn(|| gearman(gearman_at, &book));
        scope.spawn(|| workq(workq_at, &book));
        while start.elapsed() < length {
            std::thread::sleep(length / 20);
            last = figures(&server, &path);
            if start.elapsed() < length / 4 {
                for (early, last) in early.iter_mut().zip(last) {
                    *early = last.max(*early);
                }
            }
        }
        book.over.store(true, Ordering::Relaxed);
    });
    let done = book.done.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("{minutes} minutes: {done:?} jobs by beanstalk, Gearman, Workq");
    println!("resident bytes, descriptors, threads, bytes of log: {early:?}, at the end {last:?}");
    let mut client = Client::connect(beanstalk).expect("a connection");
    let open = std::mem::take(&mut *book.open.lock().expect("the book"));
    client.kick(1_000_000).expect("an answer");
    for id in &open {
        client.delete(*id).unwrap_or_else(|error| panic!("job {id} was acknowledged, and is gone: {error:?}"));
    }
    assert_eq!(client.figure("stats", "current-jobs-ready").expect("a figure"), "0");
    assert!(done.iter().all(|count| *count > 0), "somebody got nothing done");
    assert!(last[0] <= early[0] * 13 / 10 + SLACK, "memory grows");
    assert!(last[1] <= early[1] + 4 && last[2] <= early[2], "descriptors or threads grow");
    assert!(last[3] <= early[3] * 2 + (4 << 20), "the log grows");
}
