//! Re-exports the engine's types. The reference model imports them from two modules above its own.

#[path = "../../src/engine/tests/model.rs"]
#[allow(dead_code)] // parts that only the engine's own tests use
pub mod model;

#[path = "../../src/engine/tests/figures.rs"]
#[allow(dead_code)]
mod figures;
