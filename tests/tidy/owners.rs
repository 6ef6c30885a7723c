//! Checks that each file of the engine names the owners of the state that it can reach.

use std::collections::BTreeSet;
use std::fs;

use super::imports::definitions;
use super::{complain, module, sources, statements};

/// Types of data that functions of the engine pass on as `&mut`, with the owners of the data.
const LENT: [(&str, &str); 4] =
    [("Job", "store"), ("Search", "clients"), ("TubeEvents", "tubes"), ("TubeTimes", "tubes")];

/// Types of `engine/data` that belong to the callers of functions: the progress of a command, and the steps of a turn.
const OWNED_BY_CALLERS: [&str; 3] = ["Flush", "MoveJobs", "Steps"];

/// Returns the fields of `Engine`, each with its type.
fn engine_fields() -> Vec<(String, String)> {
    let text = fs::read_to_string("src/engine/mod.rs").expect("the engine");
    let body = text.split("pub struct Engine {\n").nth(1).and_then(|rest| rest.split("\n}").next());
    let fields = body
        .expect("the fields of Engine")
        .lines()
        .filter_map(|line| line.trim().trim_end_matches(',').split_once(": "));
    fields.map(|(field, kind)| (field.to_owned(), kind.to_owned())).collect()
}

/// Returns `true` if `code` contains the name `word`. If `word` begins with a period, method calls do not count.
fn mentions(code: &str, word: &str) -> bool {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(word).any(|(at, _)| {
        let (before, rest) = (&code[..at], &code[at + word.len()..]);
        let is_call = word.starts_with('.') && rest.starts_with('(');
        !is_call && !rest.starts_with(is_name) && (word.starts_with('.') || !before.ends_with(is_name))
    })
}

/// Returns the functions in `code` whose signatures contain `&mut` before a type that `engine/data` defines, each with
/// this type.
fn lenders(code: &str, data: &BTreeSet<String>) -> Vec<(String, String)> {
    let signatures = code.split("fn ").skip(1).map(|rest| rest.split('{').next().unwrap_or_default());
    let lent = signatures.flat_map(|signature| {
        let name = signature.split(['(', '<']).next().unwrap_or_default();
        signature.split("&mut ").skip(1).map(move |rest| {
            let kind = rest.chars().take_while(|letter| letter.is_alphanumeric()).collect::<String>();
            (name.to_owned(), kind)
        })
    });
    lent.filter(|(_, kind)| !OWNED_BY_CALLERS.contains(&kind.as_str()) && data.contains(kind)).collect()
}

/// A file can reach an owner through a field of `Engine`, through the owner's type, or through a function that passes
/// on a `&mut` reference to the owner's data. Patterns and aliases of `Engine` are forbidden, because they would hide
/// uses of its fields.
#[test]
fn files_of_the_engine_name_the_owners_they_touch() {
    let all: Vec<(String, String, String)> = sources("src/engine")
        .into_iter()
        .filter(|source| !source.path.starts_with("src/engine/tests"))
        .map(|source| {
            let code = statements(&source.code).map(|(_, line)| line.to_owned() + " ").collect::<String>();
            (module(&source.path), code.replace(" .", ".").replace("r#", ""), source.text)
        })
        .collect();
    let is_data = |name: &str| name.starts_with("engine/data");
    let types = definitions(&sources("src/engine")).into_iter().filter(|(_, file)| is_data(file));
    let data: BTreeSet<String> =
        types.map(|(path, _)| path.rsplit('/').next().unwrap_or_default().to_owned()).collect();
    let mut fields = engine_fields();
    fields.sort();
    let lent: BTreeSet<(String, String)> =
        all.iter().filter(|(name, ..)| !is_data(name)).flat_map(|(_, code, _)| lenders(code, &data)).collect();
    let mut problems = Vec::new();
    for (_, kind) in lent.iter().filter(|(_, kind)| !LENT.iter().any(|(name, _)| name == kind)) {
        problems.push(format!("a function passes on &mut {kind}, which is not in LENT"));
    }
    for (name, code, text) in &all {
        // `engine/data` defines the owners and `engine/mod.rs` declares all of them, so neither needs to list owners.
        if is_data(name) || name == "engine" {
            if is_data(name) && mentions(code, "Engine") {
                problems.push(format!("{name}: names Engine"));
            }
            continue;
        }
        let hidden = code.replace("impl Engine {", "");
        if ["Engine {", "Self {", "Engine as ", "= Engine;", "macro_rules!"].iter().any(|it| hidden.contains(it)) {
            problems.push(format!("{name}: hides which fields of Engine it uses"));
        }
        let borrows = |field: &str| {
            lent.iter().any(|(function, kind)| {
                let is_called = code.contains(&format!(".{function}(")) || code.contains(&format!("fn {function}("));
                is_called && LENT.iter().any(|(name, owner)| name == kind && *owner == field)
            })
        };
        let is_type = |kind: &str| kind.starts_with(char::is_uppercase) && mentions(code, kind);
        let touches =
            |(field, kind): &&(String, String)| mentions(code, &format!(".{field}")) || is_type(kind) || borrows(field);
        let touched: Vec<&str> = fields.iter().filter(touches).map(|(field, _)| field.as_str()).collect();
        let named = text.lines().find_map(|line| line.strip_prefix("//! Touches: ")?.strip_suffix('.'));
        let named: Vec<&str> = named.into_iter().flat_map(|names| names.split(", ")).collect();
        if touched != named {
            problems.push(format!("{name}: touches {touched:?}, but names {named:?}"));
        }
    }
    complain(problems);
}

/// Each owner counts its own memory, so only `engine/data` may change an account.
#[test]
fn only_owners_count_memory() {
    let mut problems = Vec::new();
    let all = sources("src/engine")
        .into_iter()
        .filter(|source| !["src/engine/data", "src/engine/tests"].iter().any(|folder| source.path.starts_with(folder)));
    for source in all {
        for (number, line) in statements(&source.code) {
            let is_lent = line.contains("&mut ") && mentions(line, ".memory");
            if is_lent || ["memory += ", "memory -= ", "memory = "].iter().any(|change| line.contains(change)) {
                problems.push(format!("{}:{number}: counts memory outside its owner", source.path.display()));
            }
        }
    }
    complain(problems);
}
