//! A well-behaved client that measures the duration of its round trips during an attack.
//!
//! Owns the samples and their quantiles. Must not depend on the attack.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::wire::{put, Wire};

/// The pause between two round trips. It leaves processor time for other processes.
const PAUSE: Duration = Duration::from_micros(500);

/// A shortage of memory must end within this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The commands that a bystander repeats on its connection.
pub type RoundTrip = fn(&mut Wire);

#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub p50: Duration,
    pub p99: Duration,
    pub worst: Duration,
}

impl Times {
    pub fn of(mut samples: Vec<Duration>) -> Option<Times> {
        samples.sort_unstable();
        let at = |part: usize| samples[(samples.len() - 1) * part / 100];
        let worst = *samples.last()?;
        Some(Times { p50: at(50), p99: at(99), worst })
    }
}

pub struct Bystander {
    samples: Arc<Mutex<Vec<Duration>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bystander {
    pub fn start(stream: TcpStream, trip: RoundTrip) -> Bystander {
        let (samples, stop) = (Arc::<Mutex<Vec<Duration>>>::default(), Arc::<AtomicBool>::default());
        let thread = std::thread::spawn({
            let (samples, stop) = (samples.clone(), stop.clone());
            move || {
                let mut wire = Wire::of(stream);
                while !stop.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    trip(&mut wire);
                    let took = began.elapsed();
                    samples.lock().unwrap_or_else(PoisonError::into_inner).push(took);
                    std::thread::sleep(PAUSE);
                }
            }
        });
        Bystander { samples, stop, thread: Some(thread) }
    }

    pub fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stops after the current round trip. Returns the round-trip times measured since the last `take`. If the thread
    /// has panicked, also returns the panic message.
    pub fn finish(mut self) -> (Vec<Duration>, Option<String>) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().expect("a thread that was not joined").join();
        (self.take(), ended.err().map(|panic| message(&*panic)))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

pub fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

/// Puts, reserves and deletes a job. The connection must use and watch its own tube.
pub fn cycle(wire: &mut Wire) {
    let id = wire.put(b"work", 60);
    finish_cycle(wire, id);
}

/// Like `cycle`, but repeats a put that is refused. The server drops a client only after a shortage of one second.
pub fn patient_cycle(wire: &mut Wire) {
    let began = Instant::now();
    let line = loop {
        wire.send(put(b"job", 60));
        let line = wire.line();
        if line != "OUT_OF_MEMORY" || began.elapsed() > PATIENCE {
            break line;
        }
        std::thread::sleep(PAUSE);
    };
    let id = line.strip_prefix("INSERTED ").and_then(|id| id.parse().ok());
    finish_cycle(wire, id.unwrap_or_else(|| panic!("reply to put: {line}")));
}

/// Like `cycle`, but sends the body later than the command, so that the server must allocate a buffer for it.
pub fn cycle_in_parts(wire: &mut Wire) {
    const SIZE: usize = 500_000;
    wire.send(format!("put 0 0 60 {SIZE}\r\n"));
    std::thread::sleep(PAUSE);
    wire.send([&[b'w'; SIZE][..], b"\r\n"].concat());
    let line = wire.line();
    let id = line.strip_prefix("INSERTED ").and_then(|id| id.parse().ok());
    finish_cycle(wire, id.unwrap_or_else(|| panic!("reply to put: {line}")));
}

fn finish_cycle(wire: &mut Wire, id: u64) {
    wire.send("reserve\r\n");
    let (reserved, _) = wire.job();
    assert_eq!(reserved, id, "another client's job was reserved");
    wire.ask(&format!("delete {id}"), "DELETED");
}

pub fn use_only(wire: &mut Wire, tube: &str) {
    wire.ask(&format!("use {tube}"), &format!("USING {tube}"));
    wire.ask(&format!("watch {tube}"), "WATCHING 2");
    wire.ask("ignore default", "WATCHING 1");
}
