//! Compares the numbered promises in the manual page, the table in ARCHITECTURE.md, the code and the tests.
//!
//! Owns only the comparison. The cited tests, and not this file, check whether the server keeps the promises.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[derive(Debug)]
struct Promise {
    number: String,
    title: String,
    /// Paths of source files, relative to `src`.
    enforced: BTreeSet<String>,
    /// Names of test functions, or paths of test files.
    tests: BTreeSet<String>,
    targets: Vec<String>,
    rules: Vec<String>,
}

fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn words(cell: &str, separator: &str) -> Vec<String> {
    cell.split(separator).map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn table() -> Vec<Promise> {
    let page = read("ARCHITECTURE.md");
    let rows = page.lines().filter(|line| line.starts_with("| P"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let &[number, title, enforced, tests, targets, rules] = cells.as_slice() else {
            panic!("wrong number of cells: {row}")
        };
        Promise {
            number: number.to_owned(),
            title: title.to_owned(),
            enforced: quoted(enforced),
            tests: quoted(tests),
            targets: words(targets, " "),
            rules: words(rules, ","),
        }
    })
    .collect()
}

/// Calls `look` with the path and the text of each Rust file in `folder` and its subdirectories, except `target`.
fn each_source(folder: &Path, look: &mut impl FnMut(&str, &str)) {
    for entry in fs::read_dir(folder).expect("a directory of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            each_source(&path, look);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            look(&path.to_string_lossy(), &read(&path));
        }
    }
}

/// Returns the promise numbers in a comment of the form `// Tests promises P1 and P2 of beanpole-promises(7).`. The
/// comment can also begin with `//! Enforces`.
fn cited(line: &str) -> Option<Vec<String>> {
    let sentence = line.trim().strip_prefix("//! Enforces").or_else(|| line.trim().strip_prefix("// Tests"))?;
    let (form, numbers) = sentence.trim().strip_suffix(" of beanpole-promises(7).")?.split_once(' ')?;
    let numbers = words(numbers, " and ");
    let number = |word: &String| word.strip_prefix('P').is_some_and(|digits| digits.parse::<u32>().is_ok());
    (form == if numbers.len() == 1 { "promise" } else { "promises" } && numbers.iter().all(number)).then_some(numbers)
}

fn function(line: &str) -> Option<&str> {
    line.trim().strip_prefix("fn ")?.split('(').next()
}

/// For each promise, the source files and the test functions that cite it.
#[derive(Default)]
struct Citations {
    files: BTreeMap<String, BTreeSet<String>>,
    tests: BTreeMap<String, BTreeSet<String>>,
}

fn citations() -> Citations {
    let mut found = Citations::default();
    let mut look = |path: &str, text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(promises) = cited(line) else { continue };
            let (kind, name) = if line.starts_with("//!") {
                (&mut found.files, path.strip_prefix("src/").map(str::to_owned))
            } else {
                let name = lines[number..].iter().find_map(|line| function(line));
                let is_test = lines[number..]
                    .iter()
                    .take_while(|line| function(line).is_none())
                    .any(|line| line.contains("#[test]"));
                (&mut found.tests, name.filter(|_| is_test).map(str::to_owned))
            };
            let name = name.unwrap_or_else(|| panic!("{path}: {line}: neither in a file of src nor above a test"));
            for promise in promises {
                kind.entry(promise).or_default().insert(name.clone());
            }
        }
    };
    each_source(Path::new("src"), &mut look);
    each_source(Path::new("tests"), &mut look);
    found
}

#[test]
fn every_promise_is_cited_by_code_and_tests() {
    let found = citations();
    let rows = table();
    for row in &rows {
        let number = &row.number;
        assert!(!row.tests.is_empty() && !row.targets.is_empty(), "{number} has no test");
        assert_eq!(found.files.get(number), Some(&row.enforced), "{number}: the citing files differ from the table");
        let functions: BTreeSet<String> = row.tests.iter().filter(|name| !name.ends_with(".rs")).cloned().collect();
        assert_eq!(
            found.tests.get(number).cloned().unwrap_or_default(),
            functions,
            "{number}: the citing tests differ from the table"
        );
        for path in row.tests.difference(&functions) {
            assert!(Path::new(path).exists(), "{number}: {path} does not exist");
        }
    }
    let numbers: BTreeSet<&String> = rows.iter().map(|row| &row.number).collect();
    let known = |number: &&String| numbers.contains(number);
    let strange: Vec<&String> = found.files.keys().chain(found.tests.keys()).filter(|number| !known(number)).collect();
    assert!(strange.is_empty(), "promises missing from the table: {strange:?}");
}

#[test]
fn the_manual_page_and_the_table_list_the_same_promises() {
    let page = read("man/beanpole-promises.7");
    let items = page.split("\n.It P").skip(1).map(|item| {
        let mut lines = item.lines();
        let number = lines.next().unwrap_or_default();
        let title = lines.next().unwrap_or_default();
        let title = title.strip_prefix(".Em ").and_then(|rest| rest.strip_suffix(" :")).expect("a title");
        (format!("P{number}"), title.to_owned())
    });
    let rows: Vec<(String, String)> = table().into_iter().map(|row| (row.number, row.title)).collect();
    assert_eq!(items.collect::<Vec<_>>(), rows);
    assert!(rows.iter().map(|row| row.0.clone()).eq((1..=rows.len()).map(|number| format!("P{number}"))));
}

#[test]
fn the_table_names_existing_targets_and_rules() {
    let targets = read("pkg/tests.mk");
    let judge = read("benches/JUDGE.md");
    let judged: BTreeSet<String> = judge
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split('|').next())
        .flat_map(|cell| words(cell, ","))
        .collect();
    for row in table() {
        for target in &row.targets {
            assert!(targets.contains(&format!("\n{target}: ")), "{}: no target {target}", row.number);
        }
        for rule in &row.rules {
            let exists = judged.contains(rule) || rule == "counters" && judged.contains("counter ...");
            assert!(exists, "{}: the judge has no rule '{rule}'", row.number);
        }
    }
}
