//! Attacks that exhaust the system's memory. The server must refuse puts and keep executing other commands.

use crate::daemon::wait_until;
use crate::traffic::{pieces, pipeline, Jobs};
use crate::trial::{last_words, Trial};
use crate::wire::{figure, Wire};

/// The shell command that limits the address space to 400 MiB. ulimit(1) expects kilobytes.
const LIMIT: &str = "ulimit -v 409600";

const HELD: u64 = 1000;

/// Puts more large jobs than the server can store.
pub fn large_jobs(trial: &mut Trial) {
    fill(trial, &[], 8_000, &[b'x'; 60_000]);
}

/// Puts more small jobs than the server can store.
pub fn small_jobs(trial: &mut Trial) {
    fill(trial, &[], 3_000_000, &[b'x'; 100]);
}

/// Like `large_jobs`, with `--max-memory` above the system's limit.
pub fn large_jobs_with_a_limit(trial: &mut Trial) {
    fill(trial, &["--max-memory", "4G"], 8_000, &[b'x'; 60_000]);
}

/// Like `small_jobs`, with `--max-memory` above the system's limit.
pub fn small_jobs_with_a_limit(trial: &mut Trial) {
    fill(trial, &["--max-memory", "4G"], 3_000_000, &[b'x'; 100]);
}

fn fill(trial: &mut Trial, ours: &[&str], count: u64, body: &[u8]) {
    let daemon = trial.start_within(LIMIT, &[], &[&["-t", "1"], ours].concat());
    let mut worker = Wire::to(&daemon);
    let jobs = Jobs { body, ..Jobs::ready("default", count) };
    let put = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| jobs.put_some(&daemon)));
    let Ok((_, refused)) = put else {
        // If the put caused a crash, the process may still exist for a moment after the connection is closed.
        std::thread::sleep(std::time::Duration::from_millis(200));
        let state = if daemon.runs() { "still runs" } else { "has exited" };
        trial.check(false, || format!("a producer was disconnected; the program {state}: {}", last_words(&daemon)));
        return;
    };
    trial.note(format!("{} jobs, then OUT_OF_MEMORY", count - refused));
    trial.check(refused > 0, || "no put was refused".to_owned());
    // Workers and observers must be served although memory is exhausted.
    let mut client = daemon.client();
    let ready = figure(&mut client, "stats", "current-jobs-ready");
    trial.same("ready", ready, count - refused);
    for _ in 0..100 {
        worker.send("reserve\r\n");
        let (id, taken) = worker.job();
        assert_eq!(taken, body);
        worker.ask(&format!("delete {id}"), "DELETED");
    }
    let mut producer = Wire::to(&daemon);
    wait_until("a put is accepted again", || {
        producer.send(crate::wire::put(body, 60));
        producer.line().starts_with("INSERTED")
    });
    // Disconnecting must not require memory.
    let stream = daemon.tcp();
    pipeline(&stream, pieces(HELD, |_| b"reserve-with-timeout 0\r\n".to_vec()), HELD * 2, |_| {});
    drop(stream);
    wait_until("the jobs are ready again", || figure(&mut client, "stats", "current-jobs-reserved") == 0);
    trial.same("ready at the end", figure(&mut client, "stats", "current-jobs-ready"), ready - 99);
    trial.check(daemon.runs(), || "the program has exited".to_owned());
}
