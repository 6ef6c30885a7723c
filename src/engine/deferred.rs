//! Work that verbs have left for other turns.
//!
//! Owns the queue of it. A verb whose work may be very long does what fits into the steps of its turn and leaves the
//! rest here, if no connection is there to call it again; whoever owns the engine then calls [`Engine::go_on`], turn
//! after turn. Between two turns every invariant holds, and what the rest is about may go: it names tubes and clients by
//! handles, and is dropped with them. Must not know deadlines.

use std::sync::Arc;

use super::event::Outcome;
use super::handle::{ClientHandle, TubeHandle};
use super::job::JobId;
use super::steps::Progress;
use super::time::Time;
use super::{Engine, Steps};

/// Work that is not done.
#[derive(Debug)]
pub(super) enum Deferred {
    /// A client has disconnected, and holds jobs or watches tubes.
    Disconnect(ClientHandle),
    /// A client waits or is idle, and its search is not over.
    Search(ClientHandle),
    /// A tube has ready jobs, and clients that wait; until all of them are served, nobody else may take its jobs.
    Serve(TubeHandle),
    /// Clients wait until this job is gone or set aside, and it was set aside.
    Buried(JobId),
    /// Clients wait for the outcome of a job that is over, by these extras, which has no job any more and stays until this
    /// is done.
    Tell { extras: u32, job: JobId, outcome: Arc<Outcome>, logged: bool },
}

/// Every kind of it; tests go through all of them.
#[cfg(test)]
pub const DEFERRED: [&str; 5] = ["disconnect", "search", "serve", "buried", "tell"];

#[cfg(test)]
impl Engine {
    /// The kinds of work that is not done.
    pub fn deferred_kinds(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.deferred.iter().map(|work| match work {
            Deferred::Disconnect(_) => DEFERRED[0],
            Deferred::Search(_) => DEFERRED[1],
            Deferred::Serve(_) => DEFERRED[2],
            Deferred::Buried(_) => DEFERRED[3],
            Deferred::Tell { .. } => DEFERRED[4],
        })
    }
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
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Goes on with one piece of what is not done. Its events must be taken before the next call.
    pub fn go_on(&mut self, now: Time) {
        let Some(work) = self.deferred.pop_front() else { return };
        let progress = match &work {
            Deferred::Disconnect(client) => self.clients.at(*client).map(|client| self.disconnect_on(client, now)),
            Deferred::Search(client) => self.clients.at(*client).map(|client| self.search_on(client, now)),
            Deferred::Serve(tube) => self.tubes.at(*tube).map(|tube| self.serve_on(tube, now)),
            Deferred::Buried(job) => Some(self.tell_buried(*job)),
            Deferred::Tell { extras, job, outcome, logged } => Some(self.tell_on(*extras, *job, outcome, *logged)),
        };
        match progress {
            Some(Progress::More) => self.deferred.push_back(work),
            Some(Progress::Done) => {}
            // What it was about is gone.
            None => self.steps.take(1),
        }
    }

    /// The rest of those who stand in the queue of this tube are served in another turn. Until then it gives no job to
    /// anybody else, who would be served out of turn.
    pub(super) fn serve_later(&mut self, number: u32) {
        let tube = self.tubes.get_mut(number);
        if !std::mem::replace(&mut tube.serving, true) {
            self.deferred.push_back(Deferred::Serve(self.tubes.handle(number)));
        }
    }

    fn serve_on(&mut self, number: u32, now: Time) -> Progress {
        self.tubes.get_mut(number).serving = false;
        self.serve(number, now);
        Progress::Done
    }
}
