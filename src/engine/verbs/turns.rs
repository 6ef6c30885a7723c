//! Turns: the steps granted to a turn, and the work that verbs have left for other turns.
//!
//! Owns the dispatch of each kind of deferred work. Must not know deadlines.
//!
//! Touches: agenda, clients, tubes.

use crate::engine::data::{Deferred, LongCommand, Progress, Time, MAX_OPERATIONS, NOBODY};
use crate::engine::{Engine, Steps};

impl Engine {
    /// Grants the steps for the verbs, ticks and [`Engine::go_on`] up to the next call.
    pub fn grant_steps(&mut self, steps: u64) {
        self.agenda.steps = Steps::new(steps);
    }

    pub fn steps(&self) -> Steps {
        self.agenda.steps
    }

    /// Takes the steps that any call of a verb costs.
    pub fn take_steps(&mut self, steps: u64) {
        self.agenda.steps.take(steps);
    }

    /// Returns `true` if [`Engine::go_on`] has something to do.
    pub fn has_deferred(&self) -> bool {
        !self.agenda.deferred.is_empty()
    }

    /// Continues one piece of unfinished work. Its events must be taken before the next call.
    pub fn go_on(&mut self, now: Time) {
        let Some(mut work) = self.agenda.deferred.pop_front() else { return };
        let progress = match &mut work {
            Deferred::Disconnect(client) => self.clients.at(*client).map(|client| self.disconnect_on(client, now)),
            Deferred::Search(client) => self.clients.at(*client).map(|client| self.search_on(client, now)),
            Deferred::Serve(tube) => self.tubes.at(*tube).map(|tube| self.serve_on(tube, now)),
            Deferred::Buried(job) => Some(self.notify_buried(*job)),
            Deferred::Notify { extras, job, outcome, logged } => {
                Some(self.notify_some(*extras, *job, outcome, *logged))
            }
            Deferred::Release(group) => {
                let progress = self.release_on(*group);
                self.serve_unblocked(now);
                progress
            }
            Deferred::LongCommand(LongCommand::Flush(flush)) => Some(self.flush(flush, now)),
            Deferred::LongCommand(LongCommand::Move(moving)) => {
                Some(self.move_jobs(NOBODY, moving, now).unwrap_or(Progress::Done))
            }
        };
        match progress {
            Some(Progress::More) => self.agenda.deferred.push_back(work),
            Some(Progress::Done) => {}
            // Its tube, client or job no longer exists.
            None => self.agenda.steps.take(1),
        }
    }

    /// Completes a command whose client has disconnected, in the next turns.
    pub fn complete_alone(&mut self, mut operation: LongCommand) {
        let others = self.agenda.deferred.iter().filter(|work| matches!(work, Deferred::LongCommand(_))).count();
        if others < MAX_OPERATIONS {
            self.agenda.deferred.push_back(Deferred::LongCommand(operation));
            return;
        }
        match &mut operation {
            LongCommand::Flush(flush) => self.close_operation(&mut flush.open),
            LongCommand::Move(moving) => self.close_operation(&mut moving.open),
        }
    }

    fn serve_on(&mut self, number: u32, now: Time) -> Progress {
        self.tubes.get_mut(number).serving = false;
        self.serve(number, now);
        Progress::Done
    }
}
