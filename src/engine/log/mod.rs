//! The engine's side of the log: changes to be logged, and the restoration of a queue. Must not import `rules` or
//! `verbs`, because the meaning of a record does not depend on the command that caused the record. `restore.rs` calls
//! methods that these two modules add to `Engine`, but no commands.

mod change;
mod log_room;
mod restore;
mod stored;

pub use self::{change::*, log_room::*, restore::*, stored::*};
