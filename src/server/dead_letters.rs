//! Warnings about dead letters that could not be moved to their dead-letter tube.
//!
//! Owns their rate: clients cause them, so at most one line a second is written, outside the engine's lock. Must not
//! decide where dead letters go.

use std::sync::Arc;

use crate::engine::{JobId, Span, Time};
use crate::shared::lock_order::LeafMutex;

/// Minimum time between two lines.
const PAUSE: Span = Span::from_secs(1);

/// A dead letter, its tube, and the full dead-letter tube.
pub type Stay = (JobId, Arc<[u8]>, Arc<[u8]>);

/// When the next line may be written, and the number of dead letters since the last one.
#[derive(Debug, Default)]
pub struct Stays(LeafMutex<(Time, u64)>);

impl Stays {
    /// Logs dead letters of a turn, or counts them for a later line.
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
