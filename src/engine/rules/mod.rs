//! Rules that apply to jobs regardless of the command. Must not import `verbs`.

pub(super) mod completion;
mod concurrency;
pub(super) mod dedup;
pub(super) mod failures;
mod groups;
mod matching;
mod schedules;
mod timers;
mod transitions;
