//! Rules that apply to jobs whatever the command: state transitions, matching, timers, keys, limits and outcomes.
//!
//! Owns the list of rule modules. Rules use `data` and `log`, and must not import `verbs`.

pub(super) mod completion;
pub(super) mod concurrency;
pub(super) mod dedup;
pub(super) mod ended_keys;
pub(super) mod failures;
pub(super) mod groups;
pub(super) mod history;
pub(super) mod matching;
pub(super) mod memory;
pub(super) mod quotas;
pub(super) mod relocation;
pub(super) mod schedules;
pub(super) mod timers;
pub(super) mod transitions;
pub(super) mod waiting;
