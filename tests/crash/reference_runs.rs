//! Includes the engine's reference model and the generator of random calls.

#[path = "../../src/engine/tests/calls.rs"]
#[allow(dead_code)] // parts that only the engine's own tests use
pub mod calls;
#[path = "../../src/engine/tests/comparing.rs"]
#[allow(dead_code)]
pub mod comparing;
#[path = "../../src/engine/tests/figures.rs"]
#[allow(dead_code)]
mod figures;
#[path = "../../src/engine/tests/model.rs"]
#[allow(dead_code)]
pub mod model;
#[path = "../../src/engine/tests/script.rs"]
#[allow(dead_code)]
pub mod script;
