//! Where the engine's reference model and its runs find the engine's vocabulary two rooms above themselves.

pub use beanpole::internals::engine::*;

#[path = "reference_runs.rs"]
mod inner;
#[allow(unused_imports)] // not every test program asks for all
pub use inner::{calls, comparing, model, script};
