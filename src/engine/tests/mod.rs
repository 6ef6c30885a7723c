//! Tests of the engine as a whole: random runs beside a model of it, and the subtle rules one by one.
//!
//! Owns nothing but its rooms:
//!
//! - `model` says every rule of the queue once more, slowly and plainly; `figures` are its statistics.
//! - `calls` puts the same verb to the engine and to the model.
//! - `comparing` does that and compares everything that can be seen afterwards.
//! - `edges` are what nothing else would miss: each test was written for a small change that all others let pass.
//! - `script` makes up runs out of a seed.
//! - `runs` plays them, and cuts a failing run short; `tests/crash` plays them with restarts from the log.
//! - `small` tries all short ways through a small world.
//! - `rules` are the named tests.
//! - `tagged` is what tags and their commands cost.
//! - `worlds` are those in which very much is to be done, in turns of few steps.

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
