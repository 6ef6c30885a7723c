//! Verbs about many jobs of one client at once.
//!
//! Owns the further jobs of a batch, and what it takes to touch all that a client holds. Must not decide which job is
//! next.
//!
//! Touches: agenda, clients, store.

use crate::engine::data::handle::ClientId;
use crate::engine::data::job::{Cause, JobId, JobView, State};
use crate::engine::data::steps::{Progress, MOVE};
use crate::engine::data::time::Time;
use crate::engine::Engine;

/// The times to run of all that a client holds begin again; how far [`Engine::touch_all`] is with that.
#[derive(Clone, Copy, Debug)]
pub struct TouchAll {
    /// The moment at which the times to run begin.
    begin: Time,
    /// The place that is looked at next. Whatever stands before it is done.
    at: usize,
    /// How many the client held at the end of the last turn: if some are gone, others stand in their places.
    held: usize,
}

impl TouchAll {
    /// Starts with times to run that begin at this moment.
    pub fn new(begin: Time) -> TouchAll {
        TouchAll { begin, at: 0, held: 0 }
    }
}

impl Engine {
    /// Asks for one more job of the tubes that the client watches, if there is one that is found at once; never waits.
    pub fn reserve_more(&mut self, client: ClientId, now: Time) -> Option<JobView<'_>> {
        if self.catch_up(client, now) == Progress::More || self.watches_many(client) {
            return None;
        }
        let slot = self.best_watched(client)?;
        self.grant(client, slot, Cause::Reserve, now);
        self.agenda.steps.take(MOVE);
        Some(self.store.jobs.view(slot))
    }

    /// The client asks for a batch of jobs, or for a job by itself: so it is answered when its wait is over.
    pub fn set_batch(&mut self, client: ClientId, batch: bool) {
        self.clients[client].batch = batch;
    }

    /// Whether the last that the client waited for was a batch.
    pub fn is_batch(&self, client: ClientId) -> bool {
        self.clients[client].batch
    }

    /// Starts the times to run of all jobs again that the client holds, and tells how many those are.
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
            // It sinks, and what rises into its place is looked at next.
            job.due = due;
            let (place, key) = (job.place(), job.due_key());
            self.clients[client].reserved_mut().change(place, key, &mut self.store.jobs);
        }
        self.retime_client(client.0);
        touch.held = self.clients[client].reserved().len();
        (progress, touch.held)
    }

    /// Whether a job is the one of this id and set aside.
    pub fn is_buried(&self, id: JobId) -> bool {
        self.job(id).is_some_and(|job| job.state() == State::Buried)
    }
}
