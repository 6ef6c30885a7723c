//! Rules that apply to jobs regardless of the command. Must not import `verbs` or call verbs.

pub(super) mod completion;
mod concurrency;
mod creation;
pub(super) mod dedup;
pub(super) mod failures;
mod groups;
mod matching;
mod schedules;
mod timers;
mod transitions;
mod tubes;
