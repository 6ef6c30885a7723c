//! Checks the English of documents, comments and messages for discouraged phrases.
//!
//! Owns the list of phrases and the list of checked files. CONTRIBUTING.md describes the style.

use std::fs;
use std::path::{Path, PathBuf};

/// Files and directories that are checked. In Markdown and manual pages, code is skipped. In Rust, only comments and
/// string literals are checked.
const PLACES: [&str; 30] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benches",
    "examples/CLIENTS.md",
    "examples/README.md",
    "examples/demo.rs",
    "examples/rust",
    "man",
    "src/access",
    "src/binlog",
    "src/client",
    "src/cluster",
    "src/ctl",
    "src/engine/data",
    "src/engine/figures",
    "src/engine/log",
    "src/engine/mod.rs",
    "src/engine/rules",
    "src/engine/verbs",
    "src/lib.rs",
    "src/main.rs",
    "src/process",
    "src/protocol",
    "src/server",
    "src/settings",
    "src/shared",
    "tests",
];

/// Discouraged phrases and their replacements. Spaces separate the words of a phrase. A phrase matches regardless of
/// case and line breaks. `is|are` matches either word. Punctuation marks count as words.
const PHRASES: [(&str, &str); 24] = [
    ("has|have|had not a|an|the|any|.|,|;|is|are", "does not have"),
    ("is|are|was|were|be|been told", "receives, is notified, is configured"),
    ("so many|long|much jobs|bytes|seconds|as|,|.|only|a|at|that", "that many, for that long, or the number"),
    ("whoever|whosoever", "anyone who"),
    ("anew", "again, from the beginning"),
    ("for good", "permanently"),
    ("all the same", "anyway"),
    ("tells|told of|that|what|how|whether|the|a|in|so", "reports, shows, logs, describes"),
    ("tell of|what|how|whether", "report, show, log, describe"),
    ("look|looks|looked whether", "check whether"),
    ("end|ends|ended|stop|stops|left in order", "shut down cleanly"),
    ("cannot be had", "fails"),
    ("everybody", "everyone, anyone who"),
    ("mend|mends|mended", "fix, repair"),
    ("heed|heeds", "respect"),
    ("steer|steers", "control"),
    ("and its|their kin", "and similar commands"),
    ("take|takes|took the place of", "replace"),
    ("hold|holds|held up", "delay, block"),
    ("goes|go|went on ,|.|;|over|while|with", "continue"),
    ("take|takes|taken|taking in a|the|that|.|,|and", "import, accept"),
    ("so it is|does|has when|if|with", "the same applies when"),
    ("in one's|its way", "block"),
    ("a hole is", "a vulnerability is"),
];

/// A word or punctuation mark with its line number.
type Word = (String, usize);

/// Returns the files to check at a path: the file itself, or all Rust files, Markdown files and manual pages in the
/// directory. Excludes the file that contains the list of phrases.
fn files(place: &Path) -> Vec<PathBuf> {
    if !place.is_dir() {
        let kinds = ["rs", "md", "1", "5", "7", "8"];
        let is_prose = place.extension().is_some_and(|kind| kinds.iter().any(|known| kind == *known));
        return if is_prose && !place.ends_with(file!()) { vec![place.to_owned()] } else { Vec::new() };
    }
    let entries = fs::read_dir(place).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|entry| files(&entry)).collect()
}

/// Splits a line into words and punctuation marks, and appends them to `words`.
fn split(line: &str, number: usize, words: &mut Vec<Word>) {
    let mut word = String::new();
    for letter in line.chars().chain([' ']) {
        if letter.is_alphanumeric() || "'-_/".contains(letter) {
            word.extend(letter.to_lowercase());
            continue;
        }
        if !word.is_empty() {
            words.push((std::mem::take(&mut word), number));
        }
        // Emphasis and quotation marks do not interrupt a phrase.
        if !letter.is_whitespace() && !"*\"".contains(letter) {
            words.push((letter.to_string(), number));
        }
    }
}

/// Replaces code in backticks with a mark that no phrase contains.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part } else { "`" }).collect()
}

/// Extracts the words of Markdown, excluding code and the table of discouraged phrases.
fn markdown(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let (mut is_fenced, mut is_example) = (false, false);
    for (index, line) in text.lines().enumerate() {
        is_fenced ^= line.starts_with("```");
        is_example = line.starts_with("| instead of") || is_example && line.starts_with('|');
        if !is_fenced && !is_example && !line.starts_with("    ") {
            split(&without_code(line), index + 1, &mut words);
        }
    }
    words
}

/// Extracts the words of a manual page, excluding displays and macro lines. A phrase does not continue after a macro.
fn manual_page(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut is_display = false;
    for (index, line) in text.lines().enumerate() {
        is_display = line.starts_with(".Bd") || is_display && !line.starts_with(".Ed");
        if line.starts_with('.') {
            words.push(("`".to_owned(), index + 1));
        } else if !is_display {
            split(line, index + 1, &mut words);
        }
    }
    words
}

/// Extracts the words of comments and string literals in Rust. Consecutive comment lines form one text.
fn rust(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(comment) = line.trim_start().strip_prefix("//") {
            split(&without_code(comment.trim_start_matches(['/', '!'])), index + 1, &mut words);
            continue;
        }
        for literal in line.split('"').skip(1).step_by(2) {
            words.push(("`".to_owned(), index + 1));
            split(literal, index + 1, &mut words);
        }
        words.push(("`".to_owned(), index + 1));
    }
    words
}

/// Returns the parts of `words` that match `phrase`.
fn matches<'a>(words: &'a [Word], phrase: &'a str) -> impl Iterator<Item = &'a [Word]> {
    let wanted: Vec<Vec<&str>> = phrase.split(' ').map(|word| word.split('|').collect()).collect();
    let is_match =
        move |window: &&[Word]| window.iter().zip(&wanted).all(|((word, _), any)| any.contains(&word.as_str()));
    words.windows(phrase.split(' ').count()).filter(is_match)
}

fn problems(path: &Path, text: &str) -> Vec<String> {
    let words = match path.extension().and_then(|extension| extension.to_str()) {
        Some("md") => markdown(text),
        Some("rs") => rust(text),
        _ => manual_page(text),
    };
    let found = PHRASES.iter().flat_map(|(phrase, instead)| matches(&words, phrase).map(move |found| (found, instead)));
    found
        .map(|(found, instead)| {
            let phrase: Vec<&str> = found.iter().map(|(word, _)| word.as_str()).collect();
            format!("{}:{}: \"{}\": write {instead}", path.display(), found[0].1, phrase.join(" "))
        })
        .collect()
}

#[test]
fn documents_contain_none_of_the_phrases() {
    let files = PLACES.iter().flat_map(|place| files(Path::new(place)));
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    super::complain(files.flat_map(|path| problems(&path, &read(&path))).collect());
}

#[test]
fn phrases_are_found_in_each_kind_of_file_and_not_in_code() {
    let lines = |path: &str, text: &str| problems(Path::new(path), text).len();
    assert_eq!(lines("a.md", "Begin\nanew, and for\n*good*.\n"), 2);
    assert_eq!(
        lines("a.md", "`anew`\n\n    anew\n\n```text\nanew\n```\n| instead of | write |\n| anew | again |\n"),
        0
    );
    assert_eq!(lines("a.7", "Begin\nanew.\n.Bd -literal\nanew\n.Ed\n.Ql anew\n"), 1);
    assert_eq!(lines("a.rs", "/// Begins\n/// anew, `anew`.\nlet anew = \"for good\";\n"), 2);
}
