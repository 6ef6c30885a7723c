//! Attacks that keep the server busy continuously.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::daemon::Daemon;
use crate::traffic::{connect_to, EndOnPanic};
use crate::trial::{Trial, MIB};
use crate::wire::Wire;

const LENGTH: Duration = Duration::from_millis(1500);

const PAIRS: usize = 500;

/// Maximum number of unanswered writes. With more of them, a slow server would still be busy long after the attack.
const AHEAD: usize = 4;

pub fn one_flooder(trial: &mut Trial) {
    flood(trial, 1);
}

pub fn eight_flooders(trial: &mut Trial) {
    flood(trial, 8);
}

fn flood(trial: &mut Trial, flooders: usize) {
    let daemon = trial.start(&[], &["-t", "1"]);
    let clients: Vec<(TcpStream, u64)> = (0..flooders).map(|number| flooder(&daemon, number)).collect();
    let began = Instant::now();
    let pairs = trial.beside(&daemon, |_| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                clients.iter().map(|(stream, id)| scope.spawn(|| run_flooder(stream, *id, &stop))).collect();
            std::thread::sleep(LENGTH);
            stop.store(true, Ordering::SeqCst);
            threads.into_iter().map(|thread| thread.join().expect("a flooder")).collect::<Vec<_>>()
        })
    });
    let (all, least) = (pairs.iter().sum::<usize>(), pairs.iter().min().copied().unwrap_or(0));
    trial.note(format!("{} k commands/s", 2 * all / began.elapsed().as_millis() as usize));
    trial.check(least > 0, || "a flooder was not served at all".to_owned());
}

/// Connects a client, and puts a job that this client can reserve and release. Returns the connection and the job's ID.
fn flooder(daemon: &Daemon, number: usize) -> (TcpStream, u64) {
    let mut wire = Wire::to(daemon);
    wire.ask(&format!("use flood{number}"), &format!("USING flood{number}"));
    let id = wire.put(b"x", 60);
    (wire.stream().try_clone().expect("a connection"), id)
}

/// Sends commands until `stop` is set, and reads all replies. Returns the number of pairs of reserve and release.
fn run_flooder(mut stream: &TcpStream, id: u64, stop: &AtomicBool) -> usize {
    let commands = format!("reserve-job {id}\r\nrelease {id} 0 0\r\n").repeat(PAIRS);
    let replies = format!("RESERVED {id} 1\r\nx\r\nRELEASED\r\n").repeat(PAIRS);
    std::thread::scope(|scope| {
        let (sent, received) = std::sync::mpsc::sync_channel(AHEAD);
        let _end = EndOnPanic(stream);
        scope.spawn(move || {
            let mut stream = stream;
            while !stop.load(Ordering::SeqCst) && sent.send(()).is_ok() {
                stream.write_all(commands.as_bytes()).expect("an open connection");
            }
        });
        let mut answer = vec![0; replies.len()];
        let mut count = 0;
        while received.recv().is_ok() {
            stream.read_exact(&mut answer).expect("replies");
            assert_eq!(answer, replies.as_bytes(), "unexpected replies");
            count += PAIRS;
        }
        count
    })
}

/// Submits Gearman jobs of 60 MB whose unique names the server must compute from the data.
pub fn large_bodies_hashed(trial: &mut Trial) {
    const SUBMIT_JOB_BG: u32 = 18;
    const SIZE: usize = 60_000_000;
    let daemon = trial.start(&[], &["-t", "1", "--gearman=127.0.0.1:0"]);
    let mut attacker = connect_to(&daemon, "Gearman");
    let mut body = [b"attack\0-\0".as_slice(), &vec![b'x'; SIZE]].concat();
    trial.beside(&daemon, |trial| {
        for number in 0..3 {
            *body.last_mut().expect("a nonempty body") = number;
            let head = [b"\0REQ".as_slice(), &SUBMIT_JOB_BG.to_be_bytes(), &(body.len() as u32).to_be_bytes()].concat();
            attacker.write_all(&head).and_then(|()| attacker.write_all(&body)).expect("an open connection");
            let mut reply = [0; 12];
            attacker.read_exact(&mut reply).expect("a reply");
            trial.same("the reply", &reply[..8], b"\0RES\0\0\0\x08");
            let mut handle = vec![0; usize::from(reply[11])];
            attacker.read_exact(&mut handle).expect("a handle");
        }
    });
    trial.same("jobs", crate::traffic::tube_figure(&daemon, "attack", "current-jobs-ready"), 3);
    let rss = daemon.rss();
    trial.check(rss < 280 * MIB, || format!("{} MiB of memory for 180 MB of jobs", rss / MIB));
}
