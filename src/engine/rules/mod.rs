//! Rules about jobs that do not depend on the command. Must not import `verbs`.

pub(super) mod completion;
mod concurrency;
pub(super) mod dedup;
pub(super) mod failures;
mod groups;
mod matching;
mod schedules;
mod timers;
mod transitions;
