//! Re-exports the engine's types. The reference model imports them from two modules above its own.

pub use beanpole::internals::engine::*;

#[path = "reference_runs.rs"]
mod inner;
#[allow(unused_imports)] // not every test program uses all of the types
pub use inner::{calls, comparing, model, script};
