//! The requests that clients can make.
//!
//! Owns the list of modules, one for each group of requests. A *verb* is the method that executes a request. Verbs
//! check their arguments, apply the rules, and must not leave an invariant broken.

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
