//! Reduction of a failing test run to the few steps that cause the failure.
//!
//! Owns the reduction, and the conversion of panics to errors without any output. The simulation in `tests/sim` also
//! uses this file. Must not depend on the type of the steps.

use std::cell::{Cell, RefCell};
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::sync::Once;

/// Removes steps while the remaining steps still fail and `may_go_on` returns `true`.
pub fn shortened<T: Clone>(mut steps: Vec<T>, may_go_on: impl Fn() -> bool, fails: impl Fn(&Vec<T>) -> bool) -> Vec<T> {
    let mut size = steps.len() / 2;
    while size > 0 && may_go_on() {
        let before = steps.len();
        let mut place = 0;
        while place < steps.len() && may_go_on() {
            let mut fewer = steps.clone();
            fewer.drain(place..(place + size).min(steps.len()));
            if fails(&fewer) {
                steps = fewer;
            } else {
                place += size;
            }
        }
        if size > 1 || steps.len() == before {
            size /= 2;
        }
    }
    steps
}

thread_local! {
    /// `true` if panic messages of this thread are stored, not printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// The last stored panic message.
    static KEPT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Converts a panic of `work` to an error, without printing the panic message.
pub fn quietly<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if QUIET.get() {
                KEPT.set(panic.to_string());
            } else {
                usual(panic);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result.unwrap_or_else(|_| Err(KEPT.take()))
}
