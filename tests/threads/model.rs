//! Tests the interaction of the server's threads in many different interleavings (`make threads`).
//!
//! Owns the scenes and their checks: no reply is lost, duplicated, reordered or early, and no thread sleeps forever.
//! shuttle panics when all threads are blocked. The modules in `server/` include the server's own files. If a schedule
//! fails, the program prints it. To replay the schedule, set the variables `THREADS_REPLAY` and `SCENE`.

extern crate self as crossbeam_channel;
extern crate self as mio;
extern crate self as parking_lot;

#[allow(dead_code)] // parts that only the syncer's other modes use
mod binlog;
mod scenes;
#[allow(dead_code)]
mod server;
mod shared;
mod shims;

/// The paths under which the server's files import the engine.
mod engine {
    pub use beanpole::internals::engine::{BodyRef, Time};
}
mod access {
    pub use beanpole::internals::access::AccessTable;
}
mod protocol {
    pub use beanpole::internals::protocol::{Output, Request};

    pub mod text {
        pub fn upto<T>(all: &[T], count: usize) -> &[T] {
            &all[..count.min(all.len())]
        }
    }
}
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};

pub use shims::{unbounded, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, Receiver, Sender, Waker};

const SCHEDULES: usize = 5000;

/// Maximum number of steps in a schedule. Most schedules need several hundred steps. A schedule that needs more than
/// the maximum probably contains a loop without progress.
const STEPS: usize = 10_000;

/// The number of forced thread switches per schedule of [`PctScheduler`].
const DEPTH: usize = 3;

/// The number of thread schedules in which the current scene has run so far.
static PLAYED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

fn main() {
    // Suppresses shuttle's warning that it treats all atomics as sequentially consistent.
    std::env::set_var("SHUTTLE_SILENCE_WARNINGS", "1");
    let configured = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let schedules = configured("SCHEDULES").map_or(SCHEDULES, |text| text.parse().expect("a number of schedules"));
    let only = configured("SCENE");
    for (name, scene) in scenes::SCENES {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        if let Some(schedule) = configured("THREADS_REPLAY") {
            shuttle::replay(scene, &schedule);
            continue;
        }
        let counted = move || {
            PLAYED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            scene();
        };
        PLAYED.store(0, std::sync::atomic::Ordering::Relaxed);
        let result = std::panic::catch_unwind(move || {
            let mut config = Config::new();
            config.max_steps = MaxSteps::FailAfter(STEPS);
            Runner::new(RandomScheduler::new(schedules), config.clone()).run(counted);
            Runner::new(PctScheduler::new(DEPTH, schedules), config).run(counted);
        });
        let played = PLAYED.load(std::sync::atomic::Ordering::Relaxed);
        if result.is_err() {
            println!("{name}: FAILED in schedule {played}");
            std::process::exit(1);
        }
        println!("{name}: {played} schedules, half random and half by priority");
    }
}
