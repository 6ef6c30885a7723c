//! Checks the public items of the library: types that can grow are `#[non_exhaustive]`, and each item is documented.

use std::fs;

use super::{complain, sources};

/// Returns the types that `src/lib.rs` exports and documents, each with its module.
fn exported() -> Vec<(String, String)> {
    let text = fs::read_to_string("src/lib.rs").expect("the library");
    let mut hidden = false;
    let mut types = Vec::new();
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("pub use ").filter(|_| !hidden) {
            let module = path.split("::").next().unwrap_or_default();
            for name in path.split(['{', '}', ',', ';']).map(str::trim) {
                let name = name.split(" as ").next().and_then(|path| path.rsplit("::").next()).unwrap_or_default();
                if name.starts_with(char::is_uppercase) {
                    types.push((module.to_owned(), name.to_owned()));
                }
            }
        }
        hidden = line == "#[doc(hidden)]";
    }
    types
}

/// Returns the attributes and doc comments directly above line `at`.
fn above<'a>(lines: &'a [&'a str], at: usize) -> impl Iterator<Item = &'a str> {
    let before = lines[..at].iter().rev().map(|line| line.trim_start());
    before.take_while(|line| line.starts_with("#[") || line.starts_with("///"))
}

/// Returns `true` for the declaration of a public member: a method, a constant, a field or, in an enum, a variant.
fn is_member(line: &str, is_enum: bool) -> bool {
    let Some(text) = line.strip_prefix("    ") else { return false };
    text.starts_with("pub ") || is_enum && text.starts_with(char::is_uppercase)
}

/// Returns the problems of a type and its members in one file, and `true` if the file defines the type.
fn problems_of(name: &str, text: &str) -> (Vec<String>, bool) {
    let lines: Vec<&str> = text.lines().collect();
    let (mut problems, mut is_defined) = (Vec::new(), false);
    for (at, line) in lines.iter().enumerate() {
        let mut words = line.split([' ', '(', '<', ';']);
        let head = (words.next(), words.next(), words.next());
        let is_enum = head == (Some("pub"), Some("enum"), Some(name));
        let is_type = is_enum || head == (Some("pub"), Some("struct"), Some(name));
        is_defined |= is_type;
        if !is_type && *line != format!("impl {name} {{") {
            continue;
        }
        let members = lines.iter().enumerate().skip(at + 1).take_while(|(_, line)| **line != "}");
        let members: Vec<usize> = if line.ends_with('{') {
            members.filter(|(_, line)| is_member(line, is_enum)).map(|(at, _)| at).collect()
        } else {
            Vec::new()
        };
        if is_type && !members.is_empty() && !above(&lines, at).any(|line| line == "#[non_exhaustive]") {
            problems.push(format!("{name} is not #[non_exhaustive]"));
        }
        for member in members.into_iter().chain(is_type.then_some(at)) {
            if !above(&lines, member).any(|line| line.starts_with("///") || line == "#[doc(hidden)]") {
                problems.push(format!("{name}: without documentation: {}", lines[member].trim()));
            }
        }
    }
    (problems, is_defined)
}

#[test]
fn public_types_can_grow_and_are_documented() {
    let exported = exported();
    assert!(exported.iter().any(|(module, name)| (module.as_str(), name.as_str()) == ("settings", "Config")));
    let mut problems = Vec::new();
    for (module, name) in exported {
        let found: Vec<_> = sources(&format!("src/{module}")).iter().map(|one| problems_of(&name, &one.code)).collect();
        if !found.iter().any(|(_, is_defined)| *is_defined) {
            problems.push(format!("{name}: no definition in src/{module}"));
        }
        problems.extend(found.into_iter().flat_map(|(problems, _)| problems));
    }
    complain(problems);
}

#[test]
fn incomplete_public_types_are_found() {
    let sample =
        "/// A mode.\npub enum Mode {\n    /// On.\n    On,\n    Off,\n}\n\nimpl Mode {\n    pub fn on() {\n    }\n}";
    let (problems, is_defined) = problems_of("Mode", sample);
    assert!(is_defined);
    let expected = [
        "Mode is not #[non_exhaustive]",
        "Mode: without documentation: Off,",
        "Mode: without documentation: pub fn on() {",
    ];
    assert_eq!(problems, expected);
}
