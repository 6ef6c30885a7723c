//! Warnings about dead letters that could not be moved to a dead-letter tube.
//!
//! Owns the rate of the warnings: at most one per second, because clients can cause them. Must not decide where dead
//! letters are moved.

use std::sync::Arc;

use crate::engine::{JobId, Span, Time};
use crate::shared::lock_order::LeafMutex;

const PAUSE: Span = Span::from_secs(1);

/// A dead letter, its tube, and the full dead-letter tube.
pub type Stay = (JobId, Arc<[u8]>, Arc<[u8]>);

/// The earliest time of the next warning, and the number of unlogged dead letters.
#[derive(Debug, Default)]
pub struct Stays(LeafMutex<(Time, u64)>);

impl Stays {
    pub fn log(&self, stays: &mut Vec<Stay>, now: Time) {
        let mut state = self.0.lock();
        let count = state.1 + stays.len() as u64;
        let Some((job, from, dead)) = stays.drain(..).next_back() else { return };
        if now < state.0 {
            state.1 = count;
            return;
        }
        *state = (now + PAUSE, 0);
        drop(state);
        let (from, dead) = (from.escape_ascii(), dead.escape_ascii());
        let others = if count > 1 { format!("; so were {} others", count - 1) } else { String::new() };
        log::warn!("job {}: buried in tube {from}, since its dead-letter tube {dead} cannot take it{others}", job.0);
    }
}
