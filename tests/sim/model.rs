//! Includes the files of the reference model, which imports the engine's types from the parent of this module.

#[path = "../../src/engine/tests/model.rs"]
#[allow(dead_code)] // parts that only the engine's own tests use
pub mod model;

#[path = "../../src/engine/tests/figures.rs"]
#[allow(dead_code)]
mod figures;
