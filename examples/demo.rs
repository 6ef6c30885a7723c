//! Producers and workers that generate traffic: `make demo` runs them with a server.
//!
//! Owns a small fictitious workload of mails, thumbnails and reports. Some jobs are delayed and some fail. The only
//! argument is the address of the server. The program exits when the server exits.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use beanpole::{Client, ClientError};

/// For each tube: the name, the pause between two puts and the duration of a job (both in milliseconds), and a number
/// N. One in N jobs fails.
const WORK: [(&str, u64, u64, u64); 3] = [("mail", 12, 9, 200), ("thumbnails", 40, 45, 60), ("reports", 400, 250, 25)];

fn main() -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:11300".to_owned());
    let threads = WORK.iter().flat_map(|work| {
        let (producer, worker) = (address.clone(), address.clone());
        [thread::spawn(move || produce(&producer, work.0, work.1)), thread::spawn(move || labour(&worker, *work))]
    });
    for thread in threads.collect::<Vec<_>>() {
        if let Err(error) = thread.join().expect("a thread that returns") {
            eprintln!("demo: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Puts jobs until the server exits. Every twentieth job is delayed, and 100 of every 500 jobs are put in a burst.
fn produce(address: &str, tube: &str, rest: u64) -> Result<(), ClientError> {
    let mut client = Client::connect(address)?;
    client.use_tube(tube)?;
    for number in 0_u64.. {
        let body = format!(r#"{{"kind":"{tube}","number":{number},"to":"reader{}@example.org"}}"#, number % 97);
        let delay = if number % 20 == 0 { 30 } else { 0 };
        client.put(body.as_bytes(), 1024, delay, 30)?;
        let rush = number % 500 < 100;
        thread::sleep(Duration::from_millis(if rush { rest / 3 } else { rest }));
    }
    Ok(())
}

fn labour(address: &str, (tube, _, length, fails): (&str, u64, u64, u64)) -> Result<(), ClientError> {
    let mut client = Client::connect(address)?;
    client.watch(tube)?;
    client.ignore("default")?;
    loop {
        let Some(job) = client.reserve(Some(10))? else { continue };
        thread::sleep(Duration::from_millis(length));
        if job.id % fails == 0 {
            client.bury(job.id, 1024)?;
        } else {
            client.delete(job.id)?;
        }
    }
}
