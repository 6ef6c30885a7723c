//! The requests that clients can make: one file for each group of verbs.
//!
//! Owns its files. A verb checks its arguments, applies rules, and leaves every invariant intact when it returns.

pub(super) mod disconnect;
pub(super) mod flush;
pub(super) mod job_verbs;
pub(super) mod moves;
pub(super) mod recurring;
pub(super) mod reserve;
pub(super) mod submit;
pub(super) mod tagged;
pub(super) mod tube_settings;
pub(super) mod turns;
pub(super) mod watching;
