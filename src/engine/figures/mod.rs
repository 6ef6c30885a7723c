//! What the queue shows of itself: statistics and pages of lists.
//!
//! Owns its files. Changes nothing but the remaining steps.

pub(super) mod ages;
pub(super) mod connections;
pub(super) mod pages;
pub(super) mod stats;
