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
    /// Names of test functions, titles of conversations, or paths of test programs that have no test functions.
    tests: BTreeSet<String>,
    /// Names of functions in `tests/sim` that check the promise in simulated worlds.
    checks: BTreeSet<String>,
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
        let &[number, title, enforced, tests, checks, targets, rules] = cells.as_slice() else {
            panic!("wrong number of cells: {row}")
        };
        Promise {
            number: number.to_owned(),
            title: title.to_owned(),
            enforced: quoted(enforced),
            tests: quoted(tests),
            checks: quoted(checks),
            targets: words(targets, " "),
            rules: words(rules, ","),
        }
    })
    .collect()
}

/// Calls `look` with the path and the text of each Rust file and each conversation in `folder` and its subdirectories,
/// except `target`, and except the conversations of released versions.
fn each_source(folder: &Path, look: &mut impl FnMut(&str, &str)) {
    for entry in fs::read_dir(folder).expect("a directory of the repository") {
        let path = entry.expect("an entry").path();
        let ends_in = |end: &str| path.extension().is_some_and(|extension| extension == end);
        if path.is_dir() && !path.ends_with("target") {
            each_source(&path, look);
        } else if ends_in("rs") || path.starts_with("tests/conversations") && ends_in("txt") {
            look(&path.to_string_lossy(), &read(&path));
        }
    }
}

/// Returns the first word and the promise numbers of a comment of the form `// Tests promises P1 and P2 of
/// beanpole-promises(7).`. The comment can also begin with `//! Enforces`, with `// Checks` or, in a conversation, with
/// `# Tests`.
fn cited(line: &str) -> Option<(&str, Vec<String>)> {
    let text = line.trim().trim_start_matches(['/', '!', '#']).strip_prefix(' ')?;
    let (verb, rest) = text.strip_suffix(" of beanpole-promises(7).")?.split_once(' ')?;
    let (form, numbers) = rest.split_once(' ')?;
    let numbers = words(numbers, " and ");
    let number = |word: &String| word.strip_prefix('P').is_some_and(|digits| digits.parse::<u32>().is_ok());
    let is_known = matches!(verb, "Enforces" | "Tests" | "Checks") && line.starts_with("//!") == (verb == "Enforces");
    let is_form = form == if numbers.len() == 1 { "promise" } else { "promises" };
    (is_known && is_form && numbers.iter().all(number)).then_some((verb, numbers))
}

/// Returns `true` for a comment that begins like a citation. Such a comment must have the exact form.
fn seems_to_cite(line: &str) -> bool {
    let text = line.trim().trim_start_matches(['/', '!', '#']);
    let begins = |form: &str| text.strip_prefix(' ').is_some_and(|text| text.starts_with(form));
    text.len() < line.trim().len() && ["Enforces promise", "Tests promise", "Checks promise"].into_iter().any(begins)
}

fn function(line: &str) -> Option<&str> {
    let line = line.trim();
    line.strip_prefix("pub ").unwrap_or(line).strip_prefix("fn ")?.split(['(', '<']).next()
}

/// Returns the name of the function below line `number` with its type, and the lines between.
fn item<'a>(lines: &[&'a str], number: usize) -> Option<(String, Vec<&'a str>)> {
    let above: Vec<&str> = lines[number..].iter().copied().take_while(|line| function(line).is_none()).collect();
    let line = lines.get(number + above.len())?;
    let own = lines[..number].iter().rev().find_map(|line| line.strip_prefix("impl ")?.split([' ', '<']).next());
    let path = own.filter(|_| line.starts_with(' ')).map(|own| format!("{own}::")).unwrap_or_default();
    Some((path + function(line)?, above))
}

/// Returns the cited name of what follows the comment in line `number`: a test function, a whole test program, a
/// conversation or, for `Checks`, another function.
fn name_of(path: &str, lines: &[&str], number: usize, verb: &str) -> Option<String> {
    if path.ends_with(".txt") {
        return lines[number - 1].strip_prefix("== ").map(str::to_owned);
    }
    let (name, above) = item(lines, number)?;
    let is_test = above.iter().any(|line| line.contains("#[test]"));
    match verb {
        "Checks" => (!is_test && path.starts_with("tests/sim")).then_some(name),
        _ if name == "main" => Some(path.to_owned()),
        _ => is_test.then(|| name.rsplit("::").next().unwrap_or_default().to_owned()),
    }
}

/// For each promise, the source files, the tests and the checks that cite it.
#[derive(Default)]
struct Citations {
    files: BTreeMap<String, BTreeSet<String>>,
    tests: BTreeMap<String, BTreeSet<String>>,
    checks: BTreeMap<String, BTreeSet<String>>,
    /// The tests that `make test` does not run, with the arguments of cargo that run them.
    unusual: BTreeMap<String, Vec<String>>,
}

fn citations() -> Citations {
    let mut found = Citations::default();
    let mut look = |path: &str, text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some((verb, promises)) = cited(line) else {
                assert!(path == file!() || !seems_to_cite(line), "{path}: {line}: malformed citation");
                continue;
            };
            let (kind, name) = match verb {
                "Enforces" => (&mut found.files, path.strip_prefix("src/").map(str::to_owned)),
                "Checks" => (&mut found.checks, name_of(path, &lines, number, verb)),
                _ => (&mut found.tests, name_of(path, &lines, number, verb)),
            };
            let name = name.unwrap_or_else(|| panic!("{path}: {line}: not above anything that can cite a promise"));
            let program = path.trim_start_matches("tests/").split(['/', '.']).next().unwrap_or_default();
            let is_ignored = item(&lines, number).is_some_and(|it| it.1.iter().any(|line| line.contains("#[ignore")));
            if name.ends_with(".rs") && path == name || is_ignored {
                let mut arguments = vec![format!("--test {program} ")];
                arguments.extend(is_ignored.then(|| "--ignored".to_owned()));
                found.unusual.insert(name.clone(), arguments);
            }
            for promise in promises {
                kind.entry(promise).or_default().insert(name.clone());
            }
        }
    };
    each_source(Path::new("src"), &mut look);
    each_source(Path::new("tests"), &mut look);
    found
}

/// Returns the commands of a make target.
fn commands(target: &str) -> String {
    let makefile = read("pkg/tests.mk");
    let rule = makefile.split_once(&format!("\n{target}: ")).map_or("", |(_, rest)| rest);
    rule.lines().skip(1).take_while(|line| line.starts_with('\t')).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_promise_is_cited_by_code_and_tests() {
    let found = citations();
    let rows = table();
    for row in &rows {
        let number = &row.number;
        assert!(!row.tests.is_empty(), "{number} has no test");
        assert_eq!(found.files.get(number), Some(&row.enforced), "{number}: the citing files differ from the table");
        let cited = |kind: &BTreeMap<String, BTreeSet<String>>| kind.get(number).cloned().unwrap_or_default();
        assert_eq!(cited(&found.tests), row.tests, "{number}: the citing tests differ from the table");
        assert_eq!(cited(&found.checks), row.checks, "{number}: the citing checks differ from the table");
        let simulated = row.targets.iter().any(|target| target == "sim");
        assert_eq!(simulated, !row.checks.is_empty(), "{number}: exactly the promises of `make sim` need checks");
        for (test, arguments) in found.unusual.iter().filter(|(test, _)| row.tests.contains(*test)) {
            let runs = |target: &String| arguments.iter().all(|words| commands(target).contains(words));
            assert!(row.targets.iter().any(runs), "{number}: no make target of the row runs {test}");
        }
    }
    let numbers: BTreeSet<&String> = rows.iter().map(|row| &row.number).collect();
    let known = |number: &&String| numbers.contains(number);
    let kinds = [&found.files, &found.tests, &found.checks];
    let strange: Vec<&String> = kinds.into_iter().flat_map(BTreeMap::keys).filter(|number| !known(number)).collect();
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
    let promises = page.split_once(".Sh PROMISES\n").and_then(|(_, rest)| rest.split("\n.Sh ").next());
    let listed = promises.expect("the section").lines().filter(|line| line.starts_with(".It ")).count();
    assert_eq!(listed, rows.len(), "a promise in beanpole-promises(7) has no number");
    assert!(rows.iter().map(|row| row.0.clone()).eq((1..=rows.len()).map(|number| format!("P{number}"))));
}

#[test]
fn the_table_names_existing_targets_and_rules() {
    let targets = read("pkg/tests.mk");
    let judge = read("benches/JUDGE.md");
    let (_, rules) = judge.split_once("| rule | broken if |\n|---|---|\n").expect("the rules");
    let judged: BTreeSet<String> = rules
        .lines()
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.strip_prefix("| ")?.split('|').next())
        .flat_map(|cell| words(cell, ","))
        .collect();
    let rows = table();
    let used: BTreeSet<&String> = rows.iter().flat_map(|row| &row.rules).collect();
    let unused: Vec<&String> = judged.iter().filter(|rule| !used.contains(rule) && *rule != "counter ...").collect();
    assert!(unused.is_empty(), "no promise uses these rules of the judge: {unused:?}");
    for row in &rows {
        assert_eq!(
            row.rules.is_empty(),
            !row.targets.contains(&"judge".to_owned()),
            "{}: rules without judge",
            row.number
        );
        for target in &row.targets {
            assert!(targets.contains(&format!("\n{target}: ")), "{}: no target {target}", row.number);
        }
        for rule in &row.rules {
            let exists = judged.contains(rule) || rule == "counters" && judged.contains("counter ...");
            assert!(exists, "{}: the judge has no rule '{rule}'", row.number);
        }
    }
}
