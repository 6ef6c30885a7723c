//! Checks that the documents name only files and code that exist, and that measurements are dated.
//!
//! Must not check names in code blocks.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::{complain, documents::DOCUMENTS, sources, FOLDERS};

/// Names that belong to the kernel or to other programs.
const FOREIGN: [&str; 5] =
    ["ETCD_ELECTION_TIMEOUT", "ETCD_HEARTBEAT_INTERVAL", "INTERNAL_ERROR", "PR_SET_NO_NEW_PRIVS", "epoll_wait"];

/// Returns the names in backticks in a Markdown document, excluding code blocks.
fn quoted_names(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// Returns the paths and texts of the sources, the examples, the Makefile, and the files of the packages.
fn texts() -> Vec<(PathBuf, String)> {
    let mut found: Vec<(PathBuf, String)> =
        FOLDERS.into_iter().flat_map(sources).map(|source| (source.path, source.text)).collect();
    let mut paths = vec![PathBuf::from("Makefile"), PathBuf::from("examples"), PathBuf::from("pkg")];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_none_or(|kind| kind != "rs" && kind != "md") {
            found.extend(fs::read_to_string(&path).ok().map(|text| (path, text)));
        }
    }
    found
}

fn pages() -> impl Iterator<Item = PathBuf> {
    fs::read_dir("man").expect("a directory").map(|entry| entry.expect("an entry").path())
}

#[test]
fn documents_name_existing_files_and_code() {
    let texts = texts();
    let words_of: Vec<BTreeSet<&str>> = texts.iter().map(|(_, text)| words(text).collect()).collect();
    let exists = |name: &str| {
        if name.ends_with(".rs") {
            return texts.iter().any(|(path, _)| path.ends_with(name));
        }
        // A file must contain both the type and the member of `Type::member`.
        let parts: Vec<&str> = name.trim_end_matches("()").rsplit("::").take(2).collect();
        let is_code = parts.len() == 2 || name.contains('_') || name.chars().skip(1).any(char::is_uppercase);
        let is_identifier = parts.iter().all(|part| words(part).eq([*part]));
        let is_known = || words_of.iter().any(|words| parts.iter().all(|part| words.contains(part)));
        !is_code || !is_identifier || FOREIGN.contains(&name) || is_known()
    };
    let mut problems = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(document).expect("a document");
        let unknown = quoted_names(&text).filter(|name| !exists(name));
        problems.extend(unknown.map(|name| format!("{document}: there is no {name}")));
    }
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let displays = text.split("\n.Bd ").enumerate();
        let prose = displays
            .map(|(index, part)| if index == 0 { part } else { part.split_once("\n.Ed").map_or("", |(_, rest)| rest) });
        let names = prose.flat_map(words).filter(|word| word.contains('_'));
        problems
            .extend(names.filter(|name| !exists(name)).map(|name| format!("{}: there is no {name}", page.display())));
    }
    complain(problems);
}

/// Each paragraph about a measurement must contain a year, except in RESULTS.md and JUDGE.md, which are dated as a
/// whole. Other tests compare other figures with the program or with RESULTS.md.
#[test]
fn measurements_are_dated() {
    let mut problems = Vec::new();
    let documents = DOCUMENTS.into_iter().filter(|document| !document.starts_with("benches/"));
    for path in documents.map(PathBuf::from).chain(pages()) {
        let text = fs::read_to_string(&path).expect("a document");
        for paragraph in text.split("\n\n").flat_map(|part| part.split("\n.Pp")) {
            let words: Vec<&str> = words(paragraph).collect();
            let is_measured =
                words.windows(2).any(|pair| matches!(pair, ["was" | "were", "measured"] | ["a", "measurement"]));
            let is_year = |word: &&str| word.len() == 4 && word.starts_with("20") && word.parse::<u16>().is_ok();
            if is_measured && !words.iter().any(is_year) {
                problems.push(format!("{}: undated measurement:{paragraph}", path.display()));
            }
        }
    }
    complain(problems);
}
