//! What the log must remember, and how a queue is rebuilt from it.
//!
//! Owns its files. Imports the data alone: what a record means is the same for every verb.

pub(super) mod change;
pub(super) mod groups;
pub(super) mod log_room;
pub(super) mod news;
pub(super) mod operations;
pub(super) mod restore;
pub(super) mod schedules;
pub(super) mod stored;
