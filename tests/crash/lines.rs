//! What the log tells an operator, line by line.
//!
//! Owns the lines of one test: each runs on a thread of its own, and sees what was logged there.

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

/// Listens from now on, to warnings and errors, and forgets what was told so far.
pub fn forget() {
    // Another test may have been first.
    let _ = log::set_logger(&Lines);
    log::set_max_level(log::LevelFilter::Warn);
    LINES.take();
}

/// What was told since.
pub fn told() -> Vec<String> {
    LINES.take()
}
