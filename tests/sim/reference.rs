//! Includes the engine's reference model, for use outside the engine.
//!
//! Re-exports the types that the model imports from its parent module.

pub use beanpole::internals::engine::*;

#[path = "model.rs"]
mod inner;
pub use inner::model;
