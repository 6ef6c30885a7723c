//! Tests of the whole engine: random runs compared with a model, and tests of the subtle rules.
//!
//! Owns the list of test modules:
//!
//! - `model` implements every rule of the queue again, slowly and simply; `figures` computes its statistics.
//! - `calls` runs the same call on the engine and on the model.
//! - `comparing` makes a call on the engine and on the model, and compares all visible state.
//! - `edges` detects small mistakes in the code that all other tests miss.
//! - `script` generates runs from a seed.
//! - `runs` performs the generated runs; `shortening` reduces failing runs; `tests/crash` adds restarts from the log.
//! - `small` tries all short sequences of calls with few clients, jobs and tubes.
//! - `rules` tests the subtle rules one by one; `imports` tests how jobs are buried for imports.
//! - `tagged`, `groups`, `schedules` and `settings` mainly test the costs of tags, tag commands and tube settings.
//! - `worlds` and `notified` test large amounts of work with small step budgets.

mod calls;
mod comparing;
mod edges;
mod figures;
mod groups;
mod imports;
mod model;
mod notified;
mod rules;
mod runs;
mod schedules;
mod script;
mod settings;
mod shortening;
mod small;
mod tagged;
mod worlds;
