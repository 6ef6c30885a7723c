//! What verbs have left for other turns.
//!
//! Owns the queue of it. A verb whose work may be very long does what fits into the steps of its turn and leaves the rest
//! here, if no connection is there to call it again; whoever owns the engine then calls [`Engine::go_on`], turn after turn.
//! Between two turns every invariant holds. Must not know deadlines.

use std::sync::Arc;

use super::client::{ClientId, IdleState};
use super::event::{Event, Outcome};
use super::heap::Heap;
use super::job::{Cause, JobId};
use super::list::NIL;
use super::steps::{Progress, MOVE};
use super::time::Time;
use super::{Engine, Steps};

/// Work that is not done.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// A client has disconnected, and holds jobs or watches tubes.
    Disconnect(ClientId),
    /// A client waits or sleeps, and its search is not over.
    Search(ClientId),
    /// A tube has ready jobs, and clients that wait; until all of them are served, nobody else may take its jobs.
    Serve(u32),
    /// Clients wait for the outcome of a job that is over, by this extras, which has no job any more.
    Tell { extras: u32, job: JobId, outcome: Arc<Outcome> },
}

impl Engine {
    /// What the verbs, ticks and [`Engine::go_on`] up to the next call may do.
    pub fn grant_steps(&mut self, steps: u64) {
        self.steps = Steps::new(steps);
    }

    /// What is left of that.
    pub fn steps(&self) -> Steps {
        self.steps
    }

    /// A verb was called, which costs so many steps whatever it does.
    pub fn take_steps(&mut self, steps: u64) {
        self.steps.take(steps);
    }

    /// Whether [`Engine::go_on`] has something to do.
    pub fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Goes on with one piece of what is not done. Its events must be taken before the next call.
    pub fn go_on(&mut self, now: Time) {
        let Some(work) = self.unfinished.pop_front() else { return };
        let progress = match &work {
            Unfinished::Disconnect(client) => self.disconnect_on(*client, now),
            Unfinished::Search(client) => self.search_on(*client, now),
            Unfinished::Serve(tube) => self.serve_on(*tube, now),
            Unfinished::Tell { extras, job, outcome } => self.tell_on(*extras, *job, outcome),
        };
        if progress == Progress::More {
            self.unfinished.push_back(work);
        }
    }

    /// The client is gone: what it held is lost to it, what it waited for goes to others. Its number may be given again when
    /// all of that is done.
    pub fn disconnect(&mut self, client: ClientId, now: Time) {
        self.cancel_wait(client);
        if self.clients[client.0 as usize].idle_state == IdleState::Idle {
            self.wake_up(client);
        }
        let state = &mut self.clients[client.0 as usize];
        state.leaving = Some(Box::new(Heap::new()));
        state.search = None;
        self.producers -= usize::from(std::mem::take(&mut state.producer));
        self.workers -= usize::from(std::mem::take(&mut state.worker));
        self.leaving += 1;
        self.retime_client(client.0);
        if self.disconnect_on(client, now) == Progress::More {
            self.unfinished.push_back(Unfinished::Disconnect(client));
        }
    }

    /// Its jobs go back in the order in which they are served, so that whoever waits gets the best of them, as if all came
    /// back at once.
    fn disconnect_on(&mut self, client: ClientId, now: Time) -> Progress {
        let number = client.0 as usize;
        loop {
            let state = &mut self.clients[number];
            if let Some(member) = state.attached.first() {
                let extras = self.detach(member, client);
                self.orphaned(extras);
                self.steps.take(MOVE);
            } else if let Some(slot) = state.reserved.pop_last() {
                let job = self.jobs.get_mut(slot);
                job.set_leaving(true);
                let key = (job.pri, job.id);
                let leaving = state.leaving.as_mut().expect("a client that leaves");
                leaving.push(key, slot, &mut self.jobs);
                self.steps.take(1);
            } else if let Some((_, slot)) = state.leaving.as_ref().and_then(|leaving| leaving.first()) {
                self.end_reservation(slot, Cause::HangUp, now);
                self.steps.take(MOVE);
            } else if let Some(watch) = state.watched.last() {
                self.unwatch(client, self.watches.get(watch).tube, now);
                self.steps.take(1);
            } else {
                let used = self.clients.remove(number).used;
                self.leaving -= 1;
                if used != NIL {
                    self.tubes.get_mut(used).using -= 1;
                    self.close_tube_if_idle(used);
                }
                return Progress::Done;
            }
            if self.steps.are_used_up() {
                return Progress::More;
            }
        }
    }

    /// The rest of those who stand in the queue of this tube are served in another turn. Until then it gives no job to
    /// anybody else, who would come before his time.
    pub(super) fn serve_later(&mut self, number: u32) {
        let tube = self.tubes.get_mut(number);
        if !std::mem::replace(&mut tube.serving, true) {
            self.unfinished.push_back(Unfinished::Serve(number));
        }
    }

    fn serve_on(&mut self, number: u32, now: Time) -> Progress {
        // The tube may be gone, and its number another's, which is served in vain.
        if self.tubes.contains(number) {
            self.tubes.get_mut(number).serving = false;
            self.serve(number, now);
        }
        Progress::Done
    }

    /// Tells some of those who wait for an outcome; nobody does afterwards.
    pub(super) fn tell_on(&mut self, extras: u32, job: JobId, outcome: &Arc<Outcome>) -> Progress {
        while let Some((member, client)) = self.extras_store.first_attached(extras) {
            let client = ClientId(client);
            self.detach(member, client);
            let state = &self.clients[client.0 as usize];
            if state.waiting.is_some_and(|waiting| waiting.outcome == extras) {
                self.stop_waiting(client);
            }
            self.events.push_back(Event::Outcome { client, job, outcome: outcome.clone() });
            self.steps.take(MOVE);
            if self.steps.are_used_up() && self.extras_store.first_attached(extras).is_some() {
                return Progress::More;
            }
        }
        if self.extras_store.is_left(extras) {
            self.memory.jobs -= self.extras_store.remove(extras).cost();
        }
        Progress::Done
    }
}
