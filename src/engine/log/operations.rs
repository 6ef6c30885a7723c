//! Long commands that the log records as in progress, so that a crash does not leave a command incomplete.
//!
//! Owns the set of open operations. After a restart, the server completes open operations without a client. Must not
//! execute operations: `verbs` does.
//!
//! Enforces promise P15 of beanpole-promises(7).
//! Touches: agenda, tubes.

use crate::engine::data::{Deferred, OpenOperation, MAX_OPEN};
use crate::engine::log::Change;
use crate::engine::Engine;

impl Engine {
    /// Returns `None` without a log, without log space, or with [`MAX_OPEN`] open operations.
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

    pub(in crate::engine) fn close_operation(&mut self, open: &mut Option<u32>) {
        let Some(number) = open.take() else { return };
        if let Some(operation) = self.agenda.open.remove(&number) {
            self.changed(Change::Closed { number, names: operation.names() });
        }
    }

    pub(in crate::engine) fn operation_goes_on(&mut self, open: Option<u32>, left: u64) {
        if let Some(operation) = open.and_then(|number| self.agenda.open.get_mut(&number)) {
            operation.bound = left;
        }
    }

    pub fn operation_at(&self, number: u32) -> Option<&OpenOperation> {
        self.agenda.open.get(&number)
    }

    /// Returns the length in bytes of the names in a replaced operation.
    pub fn restore_operation(&mut self, number: u32, operation: OpenOperation) -> Option<usize> {
        self.agenda.open.insert(number, operation).map(|before| before.names())
    }

    pub fn restore_closed(&mut self, number: u32) -> Option<usize> {
        self.agenda.open.remove(&number).map(|operation| operation.names())
    }

    /// Counts a restored move of a job as progress of the operations from `from` to `to`.
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

    pub(in crate::engine) fn resume_operations(&mut self) {
        let open = self.agenda.open.iter().map(|(&number, operation)| operation.clone().resume(number));
        self.agenda.deferred.extend(open.map(Deferred::LongCommand));
    }
}
