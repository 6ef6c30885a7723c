//! The timer thread: sleeps until the engine's next deadline, then lets it tick.
//!
//! Owns how often it makes turns, and gives memory back. Must not know what is due.

use std::time::{Duration, Instant};

use super::hub::{Hub, TurnScratch};

/// Between two turns for what others have left: on a machine with few CPUs, clients and pool threads need them too.
const REST: Duration = Duration::from_micros(50);

/// The least time between two looks whether the allocator should give memory back.
const PAUSE: Duration = Duration::from_secs(1);

/// If it must do so soon, it rests as many times as long as it took: it holds up whoever allocates.
const SHARE: u32 = 20;

pub fn run(hub: &Hub) {
    let mut scratch = TurnScratch::default();
    let (mut given_back, mut took) = (Instant::now(), Duration::ZERO);
    // The tick sets the alarm anew, to what is due next.
    while hub.alarm.wait(hub.clock()) {
        let unfinished = hub.turn(&mut scratch, |core, _, _| core.engine().has_deferred());
        hub.commit(&mut scratch);
        hub.clear_discarded();
        if unfinished {
            std::thread::sleep(REST);
        }
        let pause = if hub.memory().must_let_go() { took * SHARE } else { PAUSE };
        if given_back.elapsed() >= pause {
            let began = Instant::now();
            hub.give_back();
            (given_back, took) = (Instant::now(), began.elapsed());
        }
    }
}
