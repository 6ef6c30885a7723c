//! The contents of the log, and how a queue is rebuilt from it.
//!
//! Owns its files. Imports only the data: a record has the same meaning for every verb.

pub(super) mod change;
pub(super) mod groups;
pub(super) mod log_room;
pub(super) mod operations;
pub(super) mod restore;
pub(super) mod schedules;
pub(super) mod stored;

pub use self::{change::*, log_room::*, restore::*, schedules::*, stored::*};
