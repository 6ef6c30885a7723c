//! The engine's own reference model, for use outside the engine.
//!
//! Owns the vocabulary that it expects above itself.

pub use beanpole::internals::engine::*;

#[path = "model.rs"]
mod inner;
pub use inner::model;
