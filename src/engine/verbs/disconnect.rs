//! The end of reservations when a client disconnects or releases all its jobs.
//!
//! Owns the removal of a client, which takes several calls if the client holds many jobs. Must not decide what happens
//! to the jobs: `completion` does.
//!
//! Enforces promise P10 of beanpole-promises(7).
//! Touches: agenda, clients, store, tubes.

use crate::engine::data::{Cause, ClientId, Deferred, IdleState, Job, JobFlag, JobId, Progress, Time, MOVE, NIL};
use crate::engine::Engine;

/// Progress of [`Engine::give_back`] between calls.
#[derive(Clone, Copy, Debug)]
pub struct GiveBack {
    /// Jobs from this heap index on have been checked.
    at: usize,
    /// The number of held jobs at the end of the last call.
    held: usize,
}

impl Engine {
    /// Ends the reservations and waits of `client`. Its number can be reused after all of its deferred work.
    pub fn disconnect(&mut self, client: ClientId, now: Time) {
        self.cancel_wait(client);
        if self.clients[client].idle_state == IdleState::Idle {
            self.become_active(client);
        }
        self.clients.begin_to_leave(client);
        self.retime_client(client.0);
        if self.disconnect_on(client, now) == Progress::More {
            self.agenda.deferred.push_back(Deferred::Disconnect(self.clients.handle(client)));
        }
    }

    /// Releases the jobs in the order of priority and ID, even over several calls.
    pub(in crate::engine) fn disconnect_on(&mut self, client: ClientId, now: Time) -> Progress {
        loop {
            let state = &mut self.clients[client];
            if let Some(member) = state.attached.first() {
                let extras = self.detach(member, client);
                self.after_detach(extras);
                self.agenda.steps.take(MOVE);
            } else if let Some(slot) = state.reserved_mut().pop_last() {
                let job = self.store.jobs.get_mut(slot);
                job.set(JobFlag::Leaving, true);
                let key = (job.pri, job.id);
                let leaving = state.leaving.as_mut().expect("a client that leaves");
                leaving.push(key, slot, &mut self.store.jobs);
                self.agenda.steps.take(1);
            } else if let Some((_, slot)) = state.leaving.as_ref().and_then(|leaving| leaving.first()) {
                self.end_reservation(slot, Cause::HangUp, now);
                self.agenda.steps.take(MOVE);
            } else if let Some(watch) = state.watched.last().copied() {
                self.unwatch(client, self.clients.watches.get(watch).tube, now);
                self.agenda.steps.take(1);
            } else {
                let used = self.clients.remove(client).used;
                self.clients.leaving -= 1;
                if used != NIL {
                    self.tubes.get_mut(used).using -= 1;
                    self.close_tube_if_idle(used);
                }
                return Progress::Done;
            }
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
        }
    }

    /// Ends the reservations in `tube`, or in all tubes. `position` is `None` on the first call.
    pub fn give_back(
        &mut self,
        client: ClientId,
        tube: Option<&[u8]>,
        position: &mut Option<GiveBack>,
        now: Time,
    ) -> Progress {
        let tube = tube.map(|name| self.tubes.find(name).unwrap_or(NIL));
        let is_meant = |job: &Job| tube.is_none_or(|tube| tube == job.tube);
        let held = self.clients[client].reserved();
        if position.is_none() && held.len() as u64 * MOVE <= self.agenda.steps.left() {
            let jobs = held.iter().map(|(_, slot)| self.store.jobs.get(slot)).filter(|job| is_meant(job));
            let mut ids: Vec<JobId> = jobs.map(|job| job.id).collect();
            ids.sort_unstable();
            self.agenda.steps.take(ids.len() as u64 * MOVE);
            for id in ids {
                // Other clients may be served during the loop, but cannot get jobs that `client` still holds.
                let slot = self.store.jobs.find(id).expect("a job that it holds");
                self.end_reservation(slot, Cause::HangUp, now);
            }
            return Progress::Done;
        }
        // The last job, which has been checked, replaces a removed job, so iterate backwards. If other reservations
        // have ended since the last call, start again.
        let same = position.filter(|position| position.held == held.len());
        let mut at = same.map_or(held.len(), |position| position.at);
        while at > 0 {
            if self.agenda.steps.are_used_up() {
                *position = Some(GiveBack { at, held: self.clients[client].reserved().len() });
                return Progress::More;
            }
            at -= 1;
            self.agenda.steps.take(1);
            let held = self.clients[client].reserved();
            let slot = held.entries[at].1;
            if is_meant(self.store.jobs.get(slot)) {
                // Unchecked jobs will move behind this position, so the walk must start again.
                let again = held.rises(at);
                self.end_reservation(slot, Cause::HangUp, now);
                self.agenda.steps.take(MOVE);
                if again {
                    at = self.clients[client].reserved().len();
                }
            }
        }
        Progress::Done
    }

    /// Returns `true` if the client waits, is idle, holds a job, or needs an outcome.
    pub fn is_engaged(&self, client: ClientId) -> bool {
        let state = &self.clients[client];
        let holds = state.reserved().first().is_some() || !state.attached.is_empty();
        holds || state.waiting.is_some() || state.idle_state == IdleState::Idle
    }
}
