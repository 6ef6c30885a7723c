//! Provides the engine's vocabulary two modules above the reference model, where the model expects it.

pub use beanpole::internals::engine::*;

#[path = "reference_runs.rs"]
mod inner;
#[allow(unused_imports)] // not every test program asks for all
pub use inner::{calls, comparing, model, script};
