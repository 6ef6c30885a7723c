//! Checks that the files and the code that ARCHITECTURE.md names exist.
//!
//! Must not check names in code blocks.

use std::collections::BTreeSet;
use std::fs;

use super::{complain, sources, Source, FOLDERS};

/// Returns the names in backticks in a Markdown document, excluding code blocks.
fn quoted_names(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

#[test]
fn architecture_names_existing_files_and_code() {
    let sources: Vec<Source> = FOLDERS.into_iter().flat_map(sources).collect();
    let words_of: Vec<BTreeSet<&str>> = sources.iter().map(|source| words(&source.text).collect()).collect();
    let exists = |name: &str| {
        if name.ends_with(".rs") {
            return sources.iter().any(|source| source.path.ends_with(name));
        }
        // A file must contain both the type and the member of `Type::member`.
        let parts: Vec<&str> = name.trim_end_matches("()").rsplit("::").take(2).collect();
        let is_code = parts.len() == 2 || name.contains('_') || name.chars().skip(1).any(char::is_uppercase);
        let is_identifier = parts.iter().all(|part| words(part).eq([*part]));
        !is_code || !is_identifier || words_of.iter().any(|words| parts.iter().all(|part| words.contains(part)))
    };
    let text = fs::read_to_string("ARCHITECTURE.md").expect("a document");
    complain(quoted_names(&text).filter(|name| !exists(name)).map(str::to_owned).collect());
}
