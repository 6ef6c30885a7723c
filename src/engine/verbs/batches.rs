//! Verbs about many jobs of one client at once.
//!
//! Owns the further jobs of a batch, and the touching of all jobs that a client holds. Must not decide which job is
//! next.
//!
//! Touches: agenda, clients, store.

use crate::engine::data::{Cause, ClientId, JobId, JobView, Progress, State, Time, MOVE};
use crate::engine::Engine;

/// The progress of [`Engine::touch_all`], which restarts the times to run of all jobs that a client holds.
#[derive(Clone, Copy, Debug)]
pub struct TouchAll {
    /// The moment at which the times to run start.
    begin: Time,
    /// The heap index to check next. All jobs before it are done.
    at: usize,
    /// The number of jobs that the client held at the end of the last turn: if some are gone, others are in their
    /// places.
    held: usize,
}

impl TouchAll {
    /// Creates the state for times to run that start at this moment.
    pub fn new(begin: Time) -> TouchAll {
        TouchAll { begin, at: 0, held: 0 }
    }
}

impl Engine {
    /// Reserves one more job of the tubes that the client watches, if one is found at once; never waits.
    pub fn reserve_more(&mut self, client: ClientId, now: Time) -> Option<JobView<'_>> {
        if self.catch_up(client, now) == Progress::More || self.watches_many(client) {
            return None;
        }
        let slot = self.best_watched(client)?;
        self.grant(client, slot, Cause::Reserve, now);
        self.agenda.steps.take(MOVE);
        Some(self.store.jobs.view(slot))
    }

    /// Notes whether the client requests a batch or a single job: this determines the format of the reply when its wait
    /// ends.
    pub fn set_batch(&mut self, client: ClientId, batch: bool) {
        self.clients[client].batch = batch;
    }

    /// Returns `true` if the client's last wait was for a batch.
    pub fn is_batch(&self, client: ClientId) -> bool {
        self.clients[client].batch
    }

    /// Restarts the times to run of all jobs that the client holds, and returns their number.
    pub fn touch_all(&mut self, client: ClientId, touch: &mut TouchAll, now: Time) -> (Progress, usize) {
        if self.catch_up(client, now) == Progress::More {
            return (Progress::More, 0);
        }
        if self.clients[client].reserved().len() != touch.held {
            touch.at = 0;
        }
        let mut progress = Progress::Done;
        while touch.at < self.clients[client].reserved().len() {
            if self.agenda.steps.are_used_up() {
                progress = Progress::More;
                break;
            }
            self.agenda.steps.take(1);
            let slot = self.clients[client].reserved().member_at(touch.at);
            let job = self.store.jobs.get_mut(slot);
            let due = touch.begin + job.ttr();
            if job.due >= due {
                touch.at += 1;
                continue;
            }
            // The job sinks, and the job that rises into its place is checked next.
            job.due = due;
            let (place, key) = (job.place(), job.due_key());
            self.clients[client].reserved_mut().change(place, key, &mut self.store.jobs);
        }
        self.retime_client(client.0);
        touch.held = self.clients[client].reserved().len();
        (progress, touch.held)
    }

    /// Returns `true` if the job with this ID is buried.
    pub fn is_buried(&self, id: JobId) -> bool {
        self.job(id).is_some_and(|job| job.state() == State::Buried)
    }
}
