//! The list of fuzz targets by name.
//!
//! Also contains short targets. A target must be deterministic, must not access files or sockets other than socket
//! pairs, and must panic on an error.

use beanpole::internals::access::{self, Accounts, Right};
use beanpole::internals::protocol::Wire;
use beanpole::internals::{gearmand, options};

use crate::{calls, conversation, files, peers};

pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 12] = [
    ("beanstalk", |bytes| conversation::hold(Wire::Beanstalk, bytes)),
    ("gearman", |bytes| conversation::hold(Wire::Gearman, bytes)),
    ("workq", |bytes| conversation::hold(Wire::Workq, bytes)),
    ("http", |bytes| conversation::hold(Wire::Http, bytes)),
    ("log", files::log),
    ("import", files::import),
    ("options", command_line),
    ("access", access_file),
    ("engine", calls::make),
    ("entry", peers::entry),
    ("response", peers::response),
    ("reply", peers::reply),
];

/// Splits the input at zero bytes, and parses the words as the command line of beanpole and of gearmand.
fn command_line(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let words: Vec<String> = text.split('\0').map(str::to_owned).collect();
    if let Err(problem) = options::parse(&words) {
        assert!(!problem.is_empty());
    }
    // Skips input with options that may look up host names or read configuration files. A fuzz target must do neither.
    if !text.contains('L') && !text.contains("--l") && !text.contains("--c") {
        if let Err(problem) = gearmand::parse(&words, None) {
            assert!(!problem.is_empty());
        }
    }
}

/// Parses an access file. Valid lines must take effect. Errors must contain a line number and a column.
fn access_file(bytes: &[u8]) {
    let number = |name: &str| name.strip_prefix('u').and_then(|number| number.parse().ok());
    let lines = bytes.split(|&byte| byte == b'\n').count();
    let mut errors = 0;
    let table = access::parse(bytes, &Accounts { user: &number, group: &number }, |line, column, problem| {
        errors += 1;
        assert!(line <= lines && column > 0, "{line}:{column}: {problem}");
    });
    match table {
        None => assert!(errors > 0),
        Some(table) => {
            assert_eq!(errors, 0);
            for entry in &table.entries {
                let found = table.name(&entry.name).expect("an entry by its name");
                assert!(std::sync::Arc::ptr_eq(found, entry));
                let all = entry.rights.allow_everywhere(&[Right::ALL[0]]);
                assert!(!all || entry.rights.allow(&[Right::ALL[0]], b"any.tube"));
                assert!(entry.rights.cover(&entry.rights), "rights must cover themselves");
                for other in table.entries.iter().filter(|other| entry.rights.cover(&other.rights)) {
                    for tube in [&b"a"[..], b"mail", b"mail.out", b"default", b"x-1"] {
                        for right in Right::ALL {
                            let narrower = other.rights.allow(&[right], tube);
                            assert!(!narrower || entry.rights.allow(&[right], tube), "{:?} allows less", entry.name);
                        }
                    }
                }
            }
        }
    }
}
