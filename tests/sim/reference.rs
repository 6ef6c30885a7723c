//! The engine's reference model, for use outside the engine.
//!
//! Owns the vocabulary that the model expects above itself.

pub use beanpole::internals::engine::*;

#[path = "model.rs"]
mod inner;
pub use inner::model;
