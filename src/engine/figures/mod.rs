//! Statistics of the queue, and pages of long lists. Must not change anything except the step budget.

pub(super) mod pages;
pub(super) mod stats;
