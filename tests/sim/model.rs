//! Re-exports the engine's types, which the reference model imports from two modules above its own.

#[path = "../../src/engine/tests/model.rs"]
#[allow(dead_code)] // parts that only the engine's own tests use
pub mod model;

#[path = "../../src/engine/tests/figures.rs"]
#[allow(dead_code)]
mod figures;
