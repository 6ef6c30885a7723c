//! Tests of the engine as a whole: random runs compared with a model of it, and tests of the subtle rules.
//!
//! Owns only its modules:
//!
//! - `model` implements every rule of the queue again, slowly and simply; `figures` are its statistics.
//! - `calls` runs the same verb on the engine and on the model.
//! - `comparing` does so and compares everything visible afterwards.
//! - `edges` has tests for small changes of the code that all other tests miss.
//! - `script` generates runs from a seed.
//! - `runs` plays them, and shortens a failing run; `tests/crash` plays them with restarts from the log.
//! - `small` tries all short sequences of calls in a small world.
//! - `rules` has the named tests.
//! - `tagged` measures the costs of tags and their commands.
//! - `worlds` has very much work, in turns of few steps.

mod calls;
mod comparing;
mod edges;
mod figures;
mod groups;
mod model;
mod rules;
mod runs;
mod schedules;
mod script;
mod settings;
mod shortening;
mod small;
mod tagged;
mod told;
mod worlds;
