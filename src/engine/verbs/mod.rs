//! The requests that clients can make. A *verb* is the method that executes a request. Verbs must not leave an
//! invariant broken.

pub(super) mod job_verbs;
pub(super) mod long_commands;
pub(super) mod reserve;
pub(super) mod submit;
pub(super) mod tubes;
