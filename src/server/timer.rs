//! The timer thread: sleeps until the engine's next deadline, then runs a tick.
//!
//! Owns the frequency of its turns, and returns free memory to the system. Must not know what is due.

use std::time::{Duration, Instant};

use super::hub::{Hub, TurnScratch};

/// Pause between two turns that continue earlier work: on a machine with few CPUs, clients and pool threads need them
/// too.
const REST: Duration = Duration::from_micros(50);

/// Minimum time between two checks whether the allocator should return memory.
const PAUSE: Duration = Duration::from_secs(1);

/// After an urgent return of memory, the pause is this many times its duration: it blocks threads that allocate.
const SHARE: u32 = 20;

pub fn run(hub: &Hub) {
    let mut scratch = TurnScratch::default();
    let (mut given_back, mut took) = (Instant::now(), Duration::ZERO);
    // Each turn sets the alarm to the next deadline.
    while hub.alarm.wait(&hub.clock) {
        let unfinished = hub.turn(&mut scratch, |core, _, _| core.engine().has_deferred());
        if let Some(log) = hub.log() {
            // A sync may take long, and no spare thread takes over this one.
            log.commit(hub, false, &mut scratch.out);
        }
        hub.clear_discarded();
        if unfinished {
            std::thread::sleep(REST);
        }
        let pause = if hub.memory.must_give_back() { took * SHARE } else { PAUSE };
        if given_back.elapsed() >= pause {
            let began = Instant::now();
            hub.give_back();
            (given_back, took) = (Instant::now(), began.elapsed());
        }
    }
}
