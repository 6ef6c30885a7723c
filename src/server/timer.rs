//! The timer thread, which sleeps until the engine's next deadline.
//!
//! Owns the pauses of the thread, and the return of free memory to the system. Must not depend on the work that is due.

use std::time::{Duration, Instant};

use super::hub::{Hub, TurnScratch};

/// Pause while deferred work is left, so that other threads get CPU time even with few CPUs.
const REST: Duration = Duration::from_micros(50);

const PAUSE: Duration = Duration::from_secs(1);

/// The pause after an urgent return of memory, as a multiple of its duration, because it blocks other threads.
const SHARE: u32 = 20;

pub fn run(hub: &Hub) {
    let mut scratch = TurnScratch::default();
    let (mut given_back, mut took) = (Instant::now(), Duration::ZERO);
    // [`Hub::turn`] sets the alarm to the next deadline.
    while hub.alarm.wait(&hub.clock) {
        let unfinished = hub.turn(&mut scratch, |core, _, _| core.engine.has_deferred());
        if let Some(log) = &hub.log {
            // During a slow sync of this thread, no spare thread would take over.
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
