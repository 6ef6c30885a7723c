//! Re-exports the engine's types two modules above the reference model, because the model imports them from there.

#[path = "../../src/engine/tests/model.rs"]
#[allow(dead_code)] // parts that only the engine's own tests use
pub mod model;

#[path = "../../src/engine/tests/figures.rs"]
#[allow(dead_code)]
mod figures;
