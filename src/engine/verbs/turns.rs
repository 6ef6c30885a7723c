//! The step budget, and the work that is deferred when the budget is used up.
//!
//! Owns the dispatch of deferred work. Must not depend on deadlines.
//!
//! Touches: agenda, clients, tubes.

use crate::engine::data::{Deferred, LongCommand, Progress, Time, MAX_OPERATIONS, NOBODY};
use crate::engine::{Engine, Steps};

impl Engine {
    pub fn grant_steps(&mut self, steps: u64) {
        self.agenda.steps = Steps::new(steps);
    }

    pub fn steps(&self) -> Steps {
        self.agenda.steps
    }

    pub fn take_steps(&mut self, steps: u64) {
        self.agenda.steps.take(steps);
    }

    pub fn has_deferred(&self) -> bool {
        !self.agenda.deferred.is_empty()
    }

    /// Continues one piece of deferred work. The caller must take the events before the next call.
    pub fn go_on(&mut self, now: Time) {
        let Some(mut work) = self.agenda.deferred.pop_front() else { return };
        let progress = match &mut work {
            Deferred::Disconnect(client) => self.clients.at(*client).map(|client| self.disconnect_on(client, now)),
            Deferred::Search(client) => self.clients.at(*client).map(|client| self.search_on(client, now)),
            Deferred::Serve(tube) => self.tubes.at(*tube).map(|tube| {
                self.tubes.get_mut(tube).serving = false;
                self.serve(tube, now);
                Progress::Done
            }),
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
            // The tube, client or job that the deferred work refers to no longer exists.
            None => self.agenda.steps.take(1),
        }
    }

    /// Completes a command without its client, or abandons the command if too many are pending.
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
}
