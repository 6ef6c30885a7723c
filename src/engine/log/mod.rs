//! The engine's side of the log: changes to be logged, and the restoration of a queue. Must not import `rules` or
//! `verbs`, because the meaning of a record does not depend on the command that caused the record. `restore.rs` calls
//! methods that `rules` adds to `Engine`, but no verbs.

mod change;
mod log_room;
mod restore;
mod stored;

pub use self::{change::*, log_room::*, restore::*, stored::*};
