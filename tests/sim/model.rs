//! Provides the engine's vocabulary two modules above the reference model, where the model expects it.

#[path = "../../src/engine/tests/model.rs"]
#[allow(dead_code)] // what only the engine's own tests ask
pub mod model;

#[path = "../../src/engine/tests/figures.rs"]
#[allow(dead_code)]
mod figures;
