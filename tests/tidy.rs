//! Checks the structure and the style of the code.
//!
//! Owns the rules of ARCHITECTURE.md: permitted imports between modules, no import cycles between the files of a
//! module, names that pure modules must not use, and the maximum length of functions and files. Do not circumvent a
//! rule that is too strict: change the rule in this file and state the reason.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "tidy/creation.rs"]
mod creation;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/library.rs"]
mod library;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/owners.rs"]
mod owners;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/prose.rs"]
mod prose;

/// Maximum number of lines in a function, including the signature.
const MAX_FUNCTION: usize = 70;

/// Maximum number of lines in a file before its tests.
const MAX_FILE: usize = 600;

/// Maximum number of columns of a comment. rustfmt limits the columns of code.
const MAX_COLUMNS: usize = 120;

/// A doc comment with at most this number of words probably only repeats the name of its item.
const IDLE_DOC: usize = 4;

const FOLDERS: [&str; 4] = ["src", "tests", "benches", "examples"];

/// Names that pure modules must not use, because the named items have side effects.
const IMPURE: [&str; 19] = [
    "std::net",
    "std::fs",
    "std::thread",
    "std::env",
    "std::process",
    "std::os",
    "std::io",
    "Instant",
    "SystemTime",
    "std::sync::atomic",
    "Mutex",
    "RwLock",
    "Condvar",
    "RandomState",
    "parking_lot",
    "crossbeam",
    "mio::",
    "nix::",
    "log::",
];

/// Directories in which each file counts as a separate module.
const GROUPS: [&str; 3] = ["process", "settings", "shared"];

/// For each module, the other modules that it may import, as in ARCHITECTURE.md. `*` permits all modules.
const COMPONENTS: [(&str, &[&str]); 25] = [
    ("access", &[]),
    ("engine", &[]),
    ("shared/base64", &[]),
    ("shared/files", &["shared/lock_order", "shared/system"]),
    ("shared/json", &["shared/base64"]),
    ("shared/lock_order", &[]),
    ("shared/log_figures", &[]),
    ("shared/pem", &["shared/files"]),
    ("shared/role", &["shared/atomic", "shared/lock_order", "shared/system"]),
    ("shared/system", &[]),
    ("protocol", &["access", "engine", "shared/base64", "shared/json", "shared/log_figures", "shared/role"]),
    (
        "binlog",
        &["engine", "shared/atomic", "shared/files", "shared/lock_order", "shared/log_figures", "shared/system"],
    ),
    ("client", &["shared/pem"]),
    ("cluster", &["binlog", "client", "shared/base64", "shared/json", "shared/lock_order", "shared/role"]),
    ("settings/config", &["binlog", "protocol", "shared/role", "shared/system"]),
    ("settings/options", &["binlog", "cluster", "settings/config", "settings/words", "shared/system"]),
    ("settings/gearmand", &["settings/config", "settings/options", "settings/words", "shared/system"]),
    ("settings/words", &[]),
    (
        "server",
        &[
            "access",
            "binlog",
            "engine",
            "protocol",
            "settings/config",
            "shared/atomic",
            "shared/files",
            "shared/json",
            "shared/lock_order",
            "shared/pem",
            "shared/role",
            "shared/system",
        ],
    ),
    (
        "ctl",
        &[
            "access",
            "binlog",
            "client",
            "cluster",
            "engine",
            "protocol",
            "settings/options",
            "settings/words",
            "shared/files",
            "shared/base64",
            "shared/json",
            "shared/system",
        ],
    ),
    ("process/allocator", &[]),
    ("process/parent", &[]),
    ("process/standby", &[]),
    ("lib", &["*"]),
    ("main", &["*"]),
];

/// For each directory of the engine, the other directories that it may import. Every directory may import the
/// declarations in `engine/mod.rs`.
const ENGINE: [(&str, &[&str]); 5] = [
    ("data", &[]),
    ("log", &["data"]),
    ("rules", &["data", "log"]),
    ("figures", &["data"]),
    ("verbs", &["data", "log", "rules", "figures"]),
];

struct Source {
    path: PathBuf,
    /// The text of the file before its tests.
    code: String,
    text: String,
}

fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a directory").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&entry).expect("a source file");
                let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned();
                found.push(Source { path: entry, code, text });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(!found.is_empty(), "{folder} has no sources");
    found
}

/// Returns the module of a file: the file or directory directly below `src`, or below a directory in [`GROUPS`].
fn component(path: &Path) -> String {
    let below = path.strip_prefix("src").expect("a source of the crate").to_string_lossy().replace(".rs", "");
    component_of(&below.split('/').collect::<Vec<_>>())
}

/// Returns the module that a path in the code refers to.
fn component_of(path: &[&str]) -> String {
    let segments = if path.first().is_some_and(|first| GROUPS.contains(first)) { 2 } else { 1 };
    path.iter().take(segments).copied().collect::<Vec<_>>().join("/")
}

/// Returns the numbered lines of code, excluding comments.
fn statements(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = code.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    lines.filter(|(_, line)| !line.starts_with("//"))
}

fn complain(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn comments_are_no_wider_than_code() {
    let mut problems = Vec::new();
    for source in FOLDERS.into_iter().flat_map(sources) {
        for (number, line) in source.text.lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > MAX_COLUMNS {
                problems.push(format!("{}:{}: {} columns", source.path.display(), number + 1, line.chars().count()));
            }
        }
    }
    complain(problems);
}

#[test]
fn doc_comments_say_more_than_the_name() {
    let mut problems = Vec::new();
    for source in sources("src") {
        let lines: Vec<&str> = source.code.lines().map(str::trim).collect();
        let is_doc = |number: &usize| lines.get(*number).is_some_and(|line| line.starts_with("///"));
        for start in
            (0..lines.len()).filter(|number| is_doc(number) && !number.checked_sub(1).is_some_and(|n| is_doc(&n)))
        {
            let words = (start..).take_while(is_doc).flat_map(|number| lines[number][3..].split_whitespace());
            if words.count() <= IDLE_DOC {
                problems.push(format!("{}:{}: {}", source.path.display(), start + 1, lines[start]));
            }
        }
    }
    complain(problems);
}

#[test]
fn public_types_have_unique_names() {
    let mut owners: HashMap<String, PathBuf> = HashMap::new();
    let mut problems = Vec::new();
    let is_test = |source: &Source| source.path.components().any(|part| part.as_os_str() == "tests");
    for source in sources("src").into_iter().filter(|source| !is_test(source)) {
        for (number, line) in statements(&source.code) {
            let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let is_type = words.next() == Some("pub")
                && words.next().is_some_and(|word| ["struct", "enum", "trait", "type"].contains(&word));
            let Some(name) = words.next().filter(|_| is_type) else { continue };
            let owner = owners.entry(name.to_owned()).or_insert_with(|| source.path.clone());
            // Protocols may use the same names: for example, each protocol has a `Decoder` and a `Request`.
            if component(owner) != component(&source.path) {
                problems.push(format!("{}:{number}: {name} is also in {}", source.path.display(), owner.display()));
            }
        }
    }
    complain(problems);
}

#[test]
fn pure_modules_use_nothing_impure() {
    let pure = ["src/access", "src/engine", "src/protocol"].into_iter().flat_map(sources);
    let mut problems = Vec::new();
    for source in pure {
        for (number, line) in statements(&source.code) {
            // `::log::` refers to the engine's directory `log`, and not to the crate with the same name.
            let line = line.replace("::log::", "::");
            if let Some(word) = IMPURE.iter().find(|word| line.contains(*word)) {
                problems.push(format!("{}:{number}: {word} in a pure component", source.path.display()));
            }
        }
    }
    complain(problems);
}

/// Ranked locks assert in debug builds that they are acquired in the order of their ranks, and that no lock is acquired
/// while a lock of the highest rank is held. Other locks have no such check.
#[test]
fn every_lock_that_server_threads_share_has_a_rank() {
    let mut problems = Vec::new();
    for folder in ["src/server", "src/binlog", "src/cluster", "src/shared"] {
        for source in sources(folder).into_iter().filter(|source| !source.path.ends_with("shared/lock_order.rs")) {
            for (number, line) in statements(&source.text) {
                if line.contains("parking_lot") || line.contains("std::sync::{Mutex") || line.contains("sync::Mutex") {
                    problems.push(format!("{}:{number}: use shared/lock_order.rs", source.path.display()));
                }
            }
        }
    }
    complain(problems);
}

/// Small processors such as mips, armv5 and powerpc do not have 64-bit atomics.
#[test]
fn nothing_needs_atomics_of_64_bits() {
    let mut problems = Vec::new();
    for source in sources("src") {
        for (number, line) in statements(&source.text) {
            if !source.path.ends_with("shared/mod.rs")
                && line.contains("std::sync::atomic")
                && (line.contains("U64") || line.contains("I64"))
            {
                problems.push(format!("{}:{number}: use shared::atomic", source.path.display()));
            }
        }
    }
    complain(problems);
}

/// Nightly versions of Rust 1.97 miscompile `==` between nested options, but compile `matches!` correctly.
#[test]
fn nested_options_are_not_compared() {
    let has_comparison = |code: &str| ["== Some(None)", "!= Some(None)"].iter().any(|found| code.contains(found));
    let found = sources("src").into_iter().filter(|source| has_comparison(&source.code));
    complain(found.map(|source| format!("{}: use matches!(…, Some(None))", source.path.display())).collect());
}

/// If only one function names the program, the environment variable `BEANPOLE_PROGRAM` can make all tests run another
/// program, for example the static one.
#[test]
fn only_one_function_names_the_program_under_test() {
    let names = |source: &Source| source.text.contains(concat!("CARGO_BIN", "_EXE"));
    let found = sources("tests").into_iter().filter(|source| names(source) && !source.path.ends_with("daemon/mod.rs"));
    complain(found.map(|source| format!("{}: use daemon::program()", source.path.display())).collect());
}

/// `shared/system` hides differences between systems: for example, on macOS, `File::sync_all` and `sync_data` also
/// flush the disk's cache.
#[test]
fn only_one_module_depends_on_the_operating_system() {
    const LINUX: [&str; 11] = [
        "target_os",
        "os::linux",
        "\"/proc/",
        "syscall",
        "sys::memfd",
        "sys::prctl",
        "sys::statfs",
        "sys::sysinfo",
        "OFlag::O_PATH",
        "fsync(",
        "fdatasync(",
    ];
    // `shared/system` contains all system-specific calls. `process/mod.rs` needs a constructor that depends on the C
    // library.
    let is_exempt = |path: &Path| component(path) == "shared/system" || path.ends_with("process/mod.rs");
    let mut problems = Vec::new();
    for source in sources("src").into_iter().filter(|source| !is_exempt(&source.path)) {
        for (number, line) in statements(&source.code).filter(|(_, line)| !line.contains("system::")) {
            if let Some(word) = LINUX.iter().find(|word| line.contains(*word)) {
                problems.push(format!("{}:{number}: {word} belongs in shared/system", source.path.display()));
            }
        }
    }
    complain(problems);
}

#[test]
fn modules_import_only_permitted_ones() {
    let mut problems = Vec::new();
    for source in sources("src") {
        let component = component(&source.path);
        if GROUPS.iter().any(|group| component == format!("{group}/mod")) {
            continue;
        }
        let (_, may) =
            COMPONENTS.iter().find(|(name, _)| *name == component).unwrap_or_else(|| panic!("{component} has no rule"));
        for (number, line) in statements(&source.text) {
            for other in line.match_indices("crate::").map(|(at, word)| &line[at + word.len()..]) {
                let path = other.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':');
                let path: Vec<&str> = path.take(1).flat_map(|path| path.split("::")).collect();
                let other = component_of(&path);
                if other != component && !may.contains(&other.as_str()) && may != &["*"] {
                    problems.push(format!("{}:{number}: {component} imports {other}", source.path.display()));
                }
            }
        }
    }
    complain(problems);
}

#[test]
fn architecture_shows_the_permitted_imports() {
    let page = fs::read_to_string("ARCHITECTURE.md").expect("the page");
    let mut problems = Vec::new();
    for (component, may) in COMPONENTS.iter().filter(|(_, may)| *may != ["*"]) {
        let row = page.lines().find(|line| {
            let path = line.strip_prefix("| `src/").and_then(|rest| rest.split('`').next());
            path.is_some_and(|path| path.trim_end_matches(".rs").trim_end_matches('/') == *component)
        });
        let documented = row.and_then(|row| row.trim_end_matches([' ', '|']).rsplit(" | ").next());
        let mut may = may.to_vec();
        may.sort_unstable();
        let rule = if may.is_empty() { "nothing".to_owned() } else { may.join(", ") };
        let documented = documented.unwrap_or("no row").split(" (").next().expect("a first part");
        if documented != rule {
            problems.push(format!("{component} may import {rule}, but ARCHITECTURE.md says: {documented}"));
        }
    }
    complain(problems);
}

/// Returns the path of a file's module below `src`. The path of a directory's main file is the path of the directory.
fn module(path: &Path) -> String {
    let below = path.strip_prefix("src").expect("a source of the crate").with_extension("");
    let name = if below.ends_with("mod") { below.parent().expect("a directory").to_owned() } else { below };
    name.to_string_lossy().into_owned()
}

#[test]
fn architecture_shows_the_files_of_the_engine() {
    let page = fs::read_to_string("ARCHITECTURE.md").expect("the page");
    let tree = page.split("\nsrc/engine/\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the tree");
    let mut shown = BTreeSet::new();
    let mut folder = "";
    for line in tree.lines() {
        let words = line.split_whitespace();
        if let Some(name) = line.split_whitespace().next().and_then(|word| word.strip_suffix('/')) {
            folder = name;
        }
        shown.extend(words.filter(|word| word.ends_with(".rs")).map(|word| format!("engine/{folder}/{word}")));
    }
    let files = sources("src/engine").into_iter().map(|source| format!("{}.rs", module(&source.path)));
    let files: BTreeSet<String> =
        files.filter(|file| file.matches('/').count() == 2 && !file.starts_with("engine/tests")).collect();
    let folders: BTreeSet<String> = ENGINE.iter().map(|(name, _)| format!("engine/{name}.rs")).collect();
    assert_eq!(
        shown,
        files.difference(&folders).cloned().collect(),
        "the tree in ARCHITECTURE.md must show the files of the engine"
    );
}

#[test]
fn every_file_has_a_module_comment_and_is_short() {
    let mut problems = Vec::new();
    let all = FOLDERS.into_iter().flat_map(sources);
    for source in all {
        let path = source.path.display();
        if !source.text.starts_with("//! ") {
            problems.push(format!("{path}: does not begin with a module comment"));
        }
        let length = source.code.lines().count();
        if length > MAX_FILE {
            problems.push(format!("{path}: {length} lines"));
        }
    }
    complain(problems);
}

#[test]
fn every_prescribed_inlining_has_its_reason() {
    let mut problems = Vec::new();
    for source in sources("src") {
        for (number, line) in statements(&source.code) {
            let is_prescribed = ["#[inline(never)]", "#[inline(always)]"].iter().any(|start| line.starts_with(start));
            if is_prescribed && !line.contains(" // ") {
                problems.push(format!("{}:{number}: {line} without a reason", source.path.display()));
            }
        }
    }
    complain(problems);
}

#[test]
fn every_function_fits_a_screen() {
    let mut problems = Vec::new();
    for source in FOLDERS.into_iter().flat_map(sources) {
        let lines: Vec<&str> = source.text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let words = line.trim_start().split('(').next().unwrap_or_default();
            // A declaration has no body.
            if !words.split(' ').any(|word| word == "fn") || words.starts_with("//") || line.ends_with(';') {
                continue;
            }
            // In formatted code, the closing brace of a function has the same indentation as its first line.
            let is_end =
                |line: &&&str| line.trim_end().ends_with('}') && line.len() - line.trim_start().len() == indent;
            let length = lines[start..].iter().take_while(|line| !is_end(line)).count() + 1;
            if lines[start..].iter().any(|line| is_end(&line)) && length > MAX_FUNCTION {
                problems.push(format!("{}:{}: {length} lines", source.path.display(), start + 1));
            }
        }
    }
    complain(problems);
}

/// Asks cargo for the packages, because Cargo.lock also contains packages for other systems, tests and features.
#[test]
fn the_program_has_few_dependencies() {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    let tree = cargo.args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none"]).output();
    let tree = String::from_utf8(tree.expect("cargo").stdout).expect("text");
    let packages: std::collections::BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    assert!((2..=26).contains(&packages.len()), "{} packages: {packages:?}", packages.len());
}

#[test]
fn each_dependency_has_its_reason() {
    let manifest = fs::read_to_string("Cargo.toml").expect("a manifest");
    let dependencies = manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next());
    let lines = dependencies.expect("dependencies").lines().filter(|line| line.contains('='));
    complain(lines.filter(|line| !line.contains(" # ")).map(|line| format!("no reason: {line}")).collect());
}
