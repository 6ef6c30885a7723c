//! Tests of the engine as a whole: random runs beside a model of it, and the subtle rules one by one.
//!
//! Owns nothing but its rooms:
//!
//! - `model` says every rule of the queue once more, slowly and plainly; `figures` are its statistics.
//! - `calls` puts the same verb to the engine and to the model.
//! - `script` makes up runs out of a seed.
//! - `runs` plays them, compares everything that can be seen after every step, and cuts a failing run short.
//! - `small` tries all short ways through a small world.
//! - `rules` are the named tests.
//! - `tagged` is what tags and their commands cost.
//! - `worlds` are those in which very much is to be done, in turns of few steps.

mod calls;
mod figures;
mod model;
mod rules;
mod runs;
mod script;
mod small;
mod tagged;
mod told;
mod worlds;
