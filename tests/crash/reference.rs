//! Re-exports the engine's types two modules above the reference model, because the model imports them from there.

pub use beanpole::internals::engine::*;

#[path = "reference_runs.rs"]
mod inner;
#[allow(unused_imports)] // not every test program uses all of the types
pub use inner::{calls, comparing, model, script};
