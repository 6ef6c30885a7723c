//! Re-exports the engine's types, which the reference model imports from two modules above its own.

pub use beanpole::internals::engine::*;

#[path = "reference_runs.rs"]
mod inner;
#[allow(unused_imports)] // not every test program uses all of the types
pub use inner::{calls, comparing, model, script};
