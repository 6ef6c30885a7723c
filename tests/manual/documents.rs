//! Checks that the files, make targets and options that the documents mention exist, and that the README shows the
//! published figures.

use std::collections::BTreeSet;
use std::path::Path;

use beanpole::internals::ctl::SUBCOMMANDS;
use beanpole::internals::gearmand;
use beanpole::internals::options::OPTIONS;

use super::{code, complain, files, list::DOCUMENTS, read};

#[test]
fn the_documents_mention_files_that_exist() {
    let mut known = Vec::new();
    for folder in ["src", "tests", "benches", "examples", "man", "pkg", ".ci"] {
        files(Path::new(folder), &mut known);
    }
    let mut problems = Vec::new();
    for document in DOCUMENTS {
        for code in code(&read(document)) {
            let name = code.trim_end_matches('/');
            let is_path = code.ends_with(".rs") || known.iter().any(|path| name.starts_with(&format!("{path}/")));
            let is_path = is_path && !code.contains("X.Y.Z");
            if is_path && !known.iter().any(|path| path == name || path.ends_with(&format!("/{name}"))) {
                problems.push(format!("{document}: there is no {code}"));
            }
        }
    }
    complain(problems);
}

#[test]
fn documented_make_targets_exist() {
    let makefile = read("Makefile") + &read("pkg/packages.mk") + &read("pkg/tests.mk");
    let listed: BTreeSet<&str> =
        makefile.lines().filter(|line| line.contains(" ## ")).filter_map(|line| line.split(':').next()).collect();
    for word in "all run static test lint check compat hostile crash powercut install uninstall dist clean".split(' ') {
        assert!(listed.contains(word), "make help does not list {word}");
    }
    let example = read("examples/shell/queue.mk");
    let known: BTreeSet<&str> =
        makefile.lines().chain(example.lines()).filter_map(|line| line.split(':').next()).collect();
    let mut problems = Vec::new();
    for file in DOCUMENTS {
        for code in code(&read(file)) {
            let target = code.strip_prefix("sudo ").unwrap_or(&code).strip_prefix("make ").unwrap_or_default();
            let target = target.split(' ').next().unwrap_or_default();
            if !target.is_empty() && !target.contains('=') && !known.contains(target) {
                problems.push(format!("{file}: make {target}"));
            }
        }
    }
    complain(problems);
}

/// Options of etcd that the manual pages mention.
const FOREIGN: [&str; 2] = ["--auto-compaction-retention", "--quota-backend-bytes"];

/// Returns the options of beanpole, its subcommands and gearmand, for example `--port` and `-p`.
fn known_options() -> BTreeSet<String> {
    let own = OPTIONS.iter().map(|opt| (opt.long, opt.short));
    let subcommands = SUBCOMMANDS.iter().flat_map(|row| row.options()).map(|opt| (opt.long, opt.short));
    let all = own.chain(subcommands).chain(gearmand::OPTIONS.iter().map(|opt| (opt.long, opt.short)));
    all.flat_map(|(long, short)| [Some(format!("--{long}")), short.map(|letter| format!("-{letter}"))])
        .flatten()
        .collect()
}

/// `--keepalive-*` stands for all options with this prefix, and a number can directly follow a short option.
#[test]
fn documented_options_exist() {
    let known = known_options();
    let workq = read("src/protocol/workq/commands.rs");
    let exists = |option: &str| {
        let option = option.split('=').next().unwrap_or_default();
        let is_short = option.get(..2).is_some_and(|short| known.contains(short))
            && option[2..].chars().all(|letter| letter.is_ascii_digit());
        let is_prefix = |start: &str| known.iter().any(|known| known.starts_with(start));
        is_short
            || known.contains(option)
            || option.strip_suffix('*').is_some_and(is_prefix)
            || workq.contains(&format!("\"{}\"", option.trim_start_matches('-')))
            || FOREIGN.contains(&option)
    };
    let mut problems = Vec::new();
    // The documents in `benches/` describe options of programs other than beanpole, such as the judge.
    for document in DOCUMENTS.into_iter().filter(|document| !document.starts_with("benches/")) {
        for code in code(&read(document)).iter().filter(|code| code.starts_with("--")) {
            let unknown = code.split(' ').next().filter(|option| !exists(option));
            problems.extend(unknown.map(|option| format!("{document}: there is no option {option}")));
        }
    }
    let mut pages = Vec::new();
    files(Path::new("man"), &mut pages);
    for page in pages {
        for line in read(&page).lines().filter(|line| line.starts_with('.')) {
            let words: Vec<&str> = line.split(' ').collect();
            let named = words.windows(2).filter(|pair| pair[0].trim_start_matches('.') == "Fl");
            let unknown = named.map(|pair| format!("-{}", pair[1])).filter(|option| !exists(option));
            problems.extend(unknown.map(|option| format!("{page}: there is no option {option}")));
        }
    }
    complain(problems);
}

/// Returns the figures of beanstalkd and beanpole for a scenario.
fn published(start: &str) -> [f64; 2] {
    let figures = read("benches/figures.csv");
    let row = figures.lines().find_map(|line| line.strip_prefix(start)).expect("the scenario");
    let mut columns = row.split(',').map(|figure| figure.parse().expect("a number"));
    [(); 2].map(|()| columns.next().expect("two columns"))
}

#[test]
fn the_readme_shows_the_published_figures() {
    let readme = read("README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let [theirs, ours] = published("put-50,\"CPU, microseconds an operation\",");
    let less = ((1.0 - ours / theirs) * 100.0).round();
    let [their_job, our_job] = published("mem-jobs,\"bytes for a ready job of 64 bytes\",");
    for figure in [
        format!("With 50 connections, a request takes {less}% less CPU time than in beanstalkd."),
        format!("takes {our_job} bytes of memory; in beanstalkd, it takes {their_job} bytes."),
    ] {
        assert!(readme.contains(&figure), "{figure}");
    }
}
