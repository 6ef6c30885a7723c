//! Captures the warnings and errors that the server logs for operators.
//!
//! Owns the captured lines of the current thread. Tests run in separate threads, so each test sees only its own lines.

use std::cell::RefCell;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Lines;

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }
    fn log(&self, record: &log::Record) {
        LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
    }
    fn flush(&self) {}
}

/// Starts to capture warnings and errors, and drops earlier lines.
pub fn forget() {
    // Another test may have installed the logger already.
    let _ = log::set_logger(&Lines);
    log::set_max_level(log::LevelFilter::Warn);
    LINES.take();
}

/// Returns the lines captured since the last call.
pub fn captured() -> Vec<String> {
    LINES.take()
}
