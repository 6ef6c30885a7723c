//! Where the engine's reference model finds the engine's vocabulary two rooms above itself.

#[path = "../../src/engine/tests/model.rs"]
#[allow(dead_code)] // what only the engine's own tests ask
pub mod model;

#[path = "../../src/engine/tests/figures.rs"]
#[allow(dead_code)]
mod figures;
