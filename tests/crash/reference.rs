//! Re-exports the engine's types, because the reference model imports them from the module two levels above its own.

pub use beanpole::internals::engine::*;

#[path = "reference_runs.rs"]
mod inner;
#[allow(unused_imports)] // not every test program uses all of the types
pub use inner::{calls, comparing, model, script};
