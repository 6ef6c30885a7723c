//! The data structures of a queue: jobs, tubes, clients, and their containers.
//!
//! Each file owns one structure and maintains its invariants. Must not contain rules of the queue, or import the other
//! directories of the engine.

pub(super) mod agenda;
pub(super) mod bodies;
pub(super) mod body;
pub(super) mod calendar;
pub(super) mod client;
pub(super) mod deadlines;
pub(super) mod details;
pub(super) mod ended_keys;
pub(super) mod event;
pub(super) mod groups;
pub(super) mod handle;
pub(super) mod heap;
pub(super) mod ids;
pub(super) mod job;
pub(super) mod job_extras;
pub(super) mod job_options;
pub(super) mod jobs;
pub(super) mod lanes;
pub(super) mod latency;
pub(super) mod list;
pub(super) mod name;
pub(super) mod operations;
pub(super) mod origins;
pub(super) mod past;
pub(super) mod ready;
pub(super) mod recurrence;
pub(super) mod schedules;
pub(super) mod slots;
pub(super) mod smallest;
pub(super) mod store;
pub(super) mod table;
pub(super) mod time;
pub(super) mod tube;
pub(super) mod tube_settings;

pub use self::{
    agenda::*, bodies::*, body::*, calendar::*, client::*, deadlines::*, details::*, ended_keys::*, event::*,
    groups::*, handle::*, heap::*, ids::*, job::*, job_extras::*, job_options::*, jobs::*, lanes::*, latency::*,
    list::*, name::*, operations::*, origins::*, past::*, ready::*, recurrence::*, schedules::*, slots::*, smallest::*,
    store::*, table::*, time::*, tube::*, tube_settings::*,
};
