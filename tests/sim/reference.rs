//! Includes the engine's reference model, for use outside the engine.
//!
//! Re-exports the engine's types, which the model imports from the module two levels above its own.

pub use beanpole::internals::engine::*;

#[path = "model.rs"]
mod inner;
pub use inner::model;
