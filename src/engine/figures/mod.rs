//! Statistics of the queue, and pages of long lists.
//!
//! Owns the list of modules. The modules must not change anything except the step budget.

pub(super) mod ages;
pub(super) mod connections;
pub(super) mod pages;
pub(super) mod stats;
