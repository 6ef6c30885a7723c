//! What the log reports to an operator, line by line.
//!
//! Owns the lines of one test: each test runs on its own thread, and sees what was logged there.

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

/// Starts to record warnings and errors, and drops those recorded so far.
pub fn forget() {
    // Another test may have been first.
    let _ = log::set_logger(&Lines);
    log::set_max_level(log::LevelFilter::Warn);
    LINES.take();
}

/// Returns the lines that were logged since.
pub fn told() -> Vec<String> {
    LINES.take()
}
