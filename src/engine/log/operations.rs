//! Commands about many jobs that the log has in progress, so that a crash does not leave them half done.
//!
//! Owns which of them are open. A restart completes these as if their clients had disconnected. Must not execute them:
//! the verbs do.
//!
//! Promises: P15.
//! Touches: agenda, tubes.

use crate::engine::data::{Deferred, OpenOperation, MAX_OPEN};
use crate::engine::log::Change;
use crate::engine::Engine;

impl Engine {
    /// Records that an operation is in progress. Returns its number; `None` without a log or without log space.
    pub(in crate::engine) fn open_operation(&mut self, operation: OpenOperation) -> Option<u32> {
        if !self.is_logged() {
            return None;
        }
        let number = (0..MAX_OPEN).find(|number| !self.agenda.open.contains_key(number))?;
        if !self.claim_log_room(operation.names()) {
            return None;
        }
        self.changed(Change::Opened { number, operation: Box::new(operation.clone()) });
        self.agenda.open.insert(number, operation);
        Some(number)
    }

    /// Records that an operation is complete, or given up. Does nothing if the log has no record of it.
    pub(in crate::engine) fn close_operation(&mut self, open: &mut Option<u32>) {
        let Some(number) = open.take() else { return };
        if let Some(operation) = self.agenda.open.remove(&number) {
            self.changed(Change::Closed { number, names: operation.names() });
        }
    }

    /// Records that an operation still has to move this many jobs.
    pub(in crate::engine) fn operation_goes_on(&mut self, open: Option<u32>, left: u64) {
        if let Some(operation) = open.and_then(|number| self.agenda.open.get_mut(&number)) {
            operation.bound = left;
        }
    }

    /// Returns the operation with this number in the log, if it is in progress.
    pub fn operation_at(&self, number: u32) -> Option<&OpenOperation> {
        self.agenda.open.get(&number)
    }

    /// Restores an operation in progress. Returns the length of the names of the one that had its number.
    pub fn restore_operation(&mut self, number: u32, operation: OpenOperation) -> Option<usize> {
        self.agenda.open.insert(number, operation).map(|before| before.names())
    }

    /// Restores the end of an operation from the log. Returns the length of its names.
    pub fn restore_closed(&mut self, number: u32) -> Option<usize> {
        self.agenda.open.remove(&number).map(|operation| operation.names())
    }

    /// Restores the move of a job from the log; operations that move such jobs have one less to move.
    pub(in crate::engine) fn restore_progress(&mut self, from: u32, to: &[u8]) {
        if self.agenda.open.is_empty() {
            return;
        }
        let from = &self.tubes.get(from).name;
        for operation in self.agenda.open.values_mut() {
            if *operation.from == **from && *operation.to == *to {
                operation.bound = operation.bound.saturating_sub(1);
            }
        }
    }

    /// Makes the next turns complete all operations in progress.
    pub(in crate::engine) fn resume_operations(&mut self) {
        let open = self.agenda.open.iter().map(|(&number, operation)| operation.clone().resume(number));
        self.agenda.deferred.extend(open.map(Deferred::LongCommand));
    }
}
