//! The data structures of a queue. Each file owns one structure and maintains its invariants.
//!
//! Must not contain rules of the queue, or import the other directories of the engine.

mod agenda;
mod bodies;
mod client;
mod groups;
mod heap;
mod job;
mod job_extras;
mod jobs;
mod latency;
mod list;
mod name;
mod past;
mod ready;
mod schedules;
mod store;
mod table;
mod time;
mod tube;

pub use self::{
    agenda::*, bodies::*, client::*, groups::*, heap::*, job::*, job_extras::*, jobs::*, latency::*, list::*, name::*,
    past::*, ready::*, schedules::*, store::*, table::*, time::*, tube::*,
};
