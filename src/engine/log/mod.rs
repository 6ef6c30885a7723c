//! The engine's side of the log: changes to be logged, and the restoration of a queue.
//!
//! Owns the meaning of log records. Must not import `rules` or `verbs`, because the meaning of a record does not depend
//! on the command that caused it.

pub(super) mod change;
pub(super) mod groups;
pub(super) mod log_room;
pub(super) mod operations;
pub(super) mod restore;
pub(super) mod schedules;
pub(super) mod stored;

pub use self::{change::*, log_room::*, restore::*, schedules::*, stored::*};
