//! Checks that only `shared/files.rs` and a few other files create files and sockets, and that each use of
//! `shared/files.rs` for this purpose has a test.
//!
//! A server that root starts must not follow a link that another user creates, and must not resolve a path twice.

use std::collections::BTreeSet;
use std::fs;

use super::{complain, sources, statements};

const CREATING: [&str; 15] = [
    "File::create",
    ".create(true)",
    ".create_new(",
    "fs::write(",
    "fs::create_dir",
    "O_CREAT",
    "mkdirat(",
    "mknod",
    "mkfifo",
    "symlink",
    "hard_link",
    "linkat(",
    "SockAddr::unix(",
    "UnixListener::bind(",
    "UnixDatagram::bind(",
];

/// Source files that create entries themselves, with the reason why no other user can redirect the creation.
const EXEMPT: [(&str, &str); 5] = [
    ("shared/files.rs", "the module itself"),
    ("binlog/storage.rs", "creates files in an open directory, without following links"),
    ("cluster/mirror.rs", "runs after the server has switched to its user, who owns the directory"),
    ("shared/system/other.rs", "creates a file with an unused name, on systems without memory files"),
    ("server/socket.rs", "calls `bind_with_mode`, with a path from `fixed_path`"),
];

/// The uses of `shared/files.rs` that create entries: the file, the call, and the test that tries the call with another
/// user's links.
const USES: [(&str, &str, &str); 5] = [
    ("server/log.rs", "open_log(", "the_log_does_not_overwrite_root_s_files"),
    ("process/parent.rs", "FilePlace::open(", "the_pid_file_does_not_overwrite_root_s_files"),
    ("process/parent.rs", "FilePlace::find(", "the_port_file_does_not_overwrite_root_s_files"),
    ("server/host.rs", "FilePlace::find(", "the_binlog_is_not_created_in_root_s_directory"),
    ("server/socket.rs", "FilePlace::find(", "a_socket_is_not_created_in_root_s_directory"),
];

#[test]
fn only_one_module_creates_files() {
    let (mut problems, mut unused) = (Vec::new(), EXEMPT.map(|(file, _)| file).into_iter().collect::<BTreeSet<_>>());
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("/tests.rs");
    for source in sources("src").into_iter().filter(|source| !is_test(&source.path.to_string_lossy())) {
        for (number, line) in statements(&source.code) {
            let Some(word) = CREATING.iter().find(|word| line.contains(*word)) else { continue };
            match EXEMPT.iter().find(|(file, _)| source.path.ends_with(file)) {
                Some((file, _)) => _ = unused.remove(file),
                None => problems.push(format!("{}:{number}: {word} belongs in shared/files", source.path.display())),
            }
        }
    }
    problems.extend(unused.into_iter().map(|file| format!("{file} needs no exemption")));
    complain(problems);
}

#[test]
fn each_use_of_the_module_that_creates_files_has_a_test() {
    let tests = fs::read_to_string("tests/cli/planted.rs").expect("the tests");
    let mut problems = Vec::new();
    for (file, call, test) in USES {
        let source = sources("src").into_iter().find(|source| source.path.ends_with(file));
        if !source.is_some_and(|source| statements(&source.code).any(|(_, line)| line.contains(call))) {
            problems.push(format!("{file} does not call {call}"));
        }
        if !tests.contains(&format!("#[test]\nfn {test}() {{")) {
            problems.push(format!("tests/cli/planted.rs lacks {test}"));
        }
    }
    let calls = USES.map(|(_, call, _)| call);
    for source in sources("src").into_iter().filter(|source| !source.path.ends_with("shared/files.rs")) {
        for (number, line) in statements(&source.code) {
            let is_listed = |call: &str| USES.iter().any(|(file, of, _)| source.path.ends_with(file) && *of == call);
            if let Some(call) = calls.iter().find(|call| line.contains(**call) && !is_listed(call)) {
                problems.push(format!("{}:{number}: {call} needs a test in planted.rs", source.path.display()));
            }
        }
    }
    complain(problems);
}
