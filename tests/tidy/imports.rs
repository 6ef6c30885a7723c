//! Checks the imports between the files of a module, and between the directories of the engine.

use std::collections::{BTreeMap, BTreeSet};

use super::{complain, component_of, module, sources, statements, Source, ENGINE};

/// Returns all paths in `code` that begin with `super`, `crate` or `self`, as absolute paths. In a `use` item with a
/// list of names, each name has its own path.
fn named_paths(module: &str, code: &str) -> Vec<String> {
    let code: String = statements(code).map(|(_, line)| line.to_owned() + "\n").collect();
    let mut named = Vec::new();
    for start in ["super::", "crate::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || before == '_' || before == ':' {
                continue;
            }
            let mut base: Vec<&str> = module.split('/').collect();
            let mut rest = &code[at..];
            while let Some(further) = rest.strip_prefix("super::") {
                base.pop();
                rest = further;
            }
            if let Some(further) = rest.strip_prefix("crate::") {
                (base, rest) = (Vec::new(), further);
            }
            rest = rest.strip_prefix("self::").unwrap_or(rest);
            let path = rest.chars().take_while(|letter| letter.is_alphanumeric() || "_:".contains(*letter));
            let path = path.collect::<String>();
            let listed = rest[path.len()..].strip_prefix('{').and_then(|list| list.split('}').next()).unwrap_or("");
            let names = listed.split(',').map(|name| name.trim().trim_end_matches("::").to_owned());
            for name in names.chain([String::new()]) {
                let segments = path.split("::").filter(|segment| !segment.is_empty());
                let all: Vec<&str> = base.iter().copied().chain(segments).chain([name.as_str()]).collect();
                named.push(all.join("/").trim_end_matches('/').to_owned());
            }
        }
    }
    named
}

/// Maps the path of each public name in a directory to the file that defines it. The path of a name begins with the
/// path of the directory, because the directory's main file can re-export the name.
pub fn definitions(sources: &[Source]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for source in sources {
        let module = module(&source.path);
        for (_, line) in statements(&source.code).filter(|(_, line)| line.starts_with("pub")) {
            if let (Some(name), Some((folder, _))) = (defined_name(line), module.rsplit_once('/')) {
                found.insert(format!("{folder}/{name}"), module.clone());
            }
        }
    }
    found
}

/// Returns the name of the item that a line of code defines.
fn defined_name(line: &str) -> Option<&str> {
    const KINDS: [&str; 8] = ["struct", "enum", "trait", "fn", "const", "type", "static", "use"];
    let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.skip_while(|word| !KINDS.contains(word)).find(|word| !KINDS.contains(word))
}

/// Returns the original path of each re-exported item. The key is the module that re-exports the item, and the name.
fn reexports(sources: &[Source]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for source in sources {
        let module = module(&source.path);
        for item in source.code.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
            let is_absolute = ["self::", "super::", "crate::"].iter().any(|start| item.starts_with(start));
            let item = if is_absolute { item.to_owned() } else { format!("self::{item}") };
            let paths = named_paths(&module, &item).into_iter();
            let names = paths.map(|path| (format!("{module}/{}", path.rsplit('/').next().unwrap_or_default()), path));
            // Excludes a function that has the name of its file, because `origin` would follow its re-export forever.
            found.extend(names.filter(|(name, path)| !format!("{path}/").starts_with(&format!("{name}/"))));
        }
    }
    found
}

/// Returns the path of the definition that `path` refers to through re-exports.
fn origin(path: String, reexports: &BTreeMap<String, String>) -> String {
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    let found = ends.filter_map(|end| Some(reexports.get(&path[..end])?.clone() + &path[end..])).next();
    found.map_or(path, |path| origin(path, reexports))
}

/// Maps the path of each inline module to the names that it re-exports and the files that define these names.
fn inline_modules(
    sources: &[Source],
    definitions: &BTreeMap<String, String>,
) -> BTreeMap<String, Vec<(String, String)>> {
    let mut found = BTreeMap::new();
    for source in sources {
        for (name, rest) in source.code.split("\nmod ").skip(1).filter_map(|rest| rest.split_once(" {\n")) {
            let inline = format!("{}/{name}", module(&source.path));
            let body = rest.split("\n}").next().unwrap_or_default();
            let items = body.split("use ").skip(1).filter_map(|item| item.split(';').next());
            let mut names: Vec<(String, String)> = Vec::new();
            for path in items.flat_map(|item| named_paths(&inline, item)) {
                if let Some(file) = path.strip_suffix("::*") {
                    // Skips indented lines, which define methods.
                    let owner = sources.iter().filter(|source| module(&source.path) == file);
                    let public = owner.flat_map(|source| source.code.lines()).filter(|line| line.starts_with("pub"));
                    names.extend(public.filter_map(defined_name).map(|name| (name.to_owned(), file.to_owned())));
                } else {
                    let file = definitions.get(&in_folder(&path)).unwrap_or(&path);
                    names.push((path.rsplit('/').next().unwrap_or_default().to_owned(), file.clone()));
                }
            }
            found.insert(inline, names);
        }
    }
    found
}

/// Removes the file from the path of an item, because the keys of [`definitions`] do not contain it.
fn in_folder(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').collect();
    let [folder @ .., _, name] = &segments[..] else { return path.to_owned() };
    folder.iter().chain([name]).copied().collect::<Vec<_>>().join("/")
}

/// For each wildcard import from an inline module, returns the files that define the imported names that `code` uses.
fn wildcard_imports(name: &str, code: &str, inline: &BTreeMap<String, Vec<(String, String)>>) -> Vec<String> {
    // Omits string literals, except those that span several lines.
    let code_of = |line: &str| line.replace("\\\"", "").split('"').step_by(2).collect::<Vec<_>>().join(" ") + "\n";
    let lines: String = statements(code).map(|(_, line)| code_of(line)).collect();
    let wildcards = lines.lines().filter_map(|line| line.strip_prefix("use ")?.strip_suffix("::*;"));
    let provided = wildcards.flat_map(|path| named_paths(name, path)).filter_map(|path| inline.get(&path)).flatten();
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    // A name after a dot is a method or a field.
    let is_used = |word: &str| {
        lines.match_indices(word).any(|(at, _)| {
            let (before, after) = (lines[..at].chars().next_back(), lines[at + word.len()..].chars().next());
            !before.is_some_and(|letter| is_letter(letter) || letter == '.') && !after.is_some_and(is_letter)
        })
    };
    provided.filter(|(word, _)| is_used(word)).map(|(_, file)| file.clone()).collect()
}

/// Maps each file to the files of the same module that it imports, directly or through re-exports. Omits the main file
/// of a directory, because it declares the other files.
fn imports_within_components() -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources("src");
    let (mut definitions, reexports) = (definitions(&sources), reexports(&sources));
    definitions.retain(|_, module| !module.starts_with("engine/tests"));
    let inline = inline_modules(&sources, &definitions);
    let modules: BTreeSet<String> = sources.iter().map(|source| module(&source.path)).collect();
    let is_folder = |name: &str| modules.iter().any(|other| other.starts_with(&format!("{name}/")));
    let component = |name: &str| component_of(&name.split('/').collect::<Vec<_>>());
    let mut imports = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_folder(&module(&source.path))) {
        let name = module(&source.path);
        let named = named_paths(&name, &source.code).into_iter().filter_map(|path| {
            let path = origin(path, &reexports);
            let mut path = path.as_str();
            while !modules.contains(path) {
                if let Some(file) = definitions.get(path) {
                    return Some(file.clone());
                }
                path = path.rsplit_once('/')?.0;
            }
            Some(path.to_owned())
        });
        let named = named.chain(wildcard_imports(&name, &source.code, &inline));
        let others = named.filter(|other| component(other) == component(&name) && *other != name && !is_folder(other));
        imports.insert(name.clone(), others.collect());
    }
    imports
}

#[test]
fn files_of_a_module_have_no_import_cycles() {
    let imports = imports_within_components();
    let reached = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(name) = next.pop() {
            next.extend(imports[name].iter().filter(|other| seen.insert((*other).clone())));
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> = imports.keys().map(|name| (name, reached(name))).collect();
    let mut circles = BTreeMap::new();
    for (name, reached) in reach.iter().filter(|(name, reached)| reached.contains(**name)) {
        let circle: Vec<&String> = reached.iter().filter(|other| reach[*other].contains(*name)).collect();
        circles.insert(circle[0].clone(), circle);
    }
    let problems = circles.into_values().map(|circle| format!("these import each other: {circle:?}")).collect();
    complain(problems);
}

#[test]
fn directories_of_the_engine_import_only_permitted_ones() {
    let mut problems = Vec::new();
    let reexports = reexports(&sources("src/engine"));
    for source in sources("src/engine") {
        let name = module(&source.path);
        let mut parts = name.split('/').skip(1);
        let Some((_, may)) = parts.next().and_then(|own| ENGINE.iter().find(|(name, _)| *name == own)) else {
            continue;
        };
        let own = name.split('/').nth(1).unwrap_or_default();
        for path in named_paths(&name, &source.code).into_iter().map(|path| origin(path, &reexports)) {
            let Some(other) = path.strip_prefix("engine/").and_then(|path| path.split('/').next()) else { continue };
            if other != own && !may.contains(&other) && ENGINE.iter().any(|(name, _)| *name == other) {
                problems.push(format!("{}: {own} imports {path}", source.path.display()));
            }
        }
    }
    complain(problems);
}

/// Checks that the code in each engine directory calls only `Engine` methods that are defined in this directory or in a
/// directory that [`ENGINE`] permits. Recovery may also call methods of `rules`, and `figures` may call all methods
/// that change nothing. Method names with several definitions are ignored.
#[test]
fn directories_of_the_engine_call_only_permitted_ones() {
    let sources: Vec<Source> = sources("src/engine").into_iter().collect();
    let directory = |source: &Source| {
        let name = module(&source.path);
        let own = name.split('/').nth(1).unwrap_or_default().to_owned();
        ENGINE.iter().find(|(name, _)| *name == own)
    };
    let mut definitions: BTreeMap<&str, Vec<(&str, bool)>> = BTreeMap::new();
    for source in &sources {
        let Some((own, _)) = directory(source) else { continue };
        for (before, rest) in source.code.match_indices("fn ").map(|(at, _)| source.code.split_at(at + 3)) {
            if before.ends_with(" fn ") {
                let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next();
                let changes = rest.split(')').next().is_some_and(|parameters| parameters.contains("&mut self"));
                definitions.entry(name.unwrap_or_default()).or_default().push((own, changes));
            }
        }
    }
    let mut problems = Vec::new();
    for source in &sources {
        let Some((own, may)) = directory(source) else { continue };
        let is_restore = source.path.ends_with("log/restore.rs");
        for rest in ["self.", "engine."].iter().flat_map(|receiver| source.code.split(receiver).skip(1)) {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
            let Some(&[(other, changes)]) = definitions.get(&rest[..end]).map(Vec::as_slice) else { continue };
            let is_exception = is_restore && other == "rules" || *own == "figures" && !changes;
            let is_permitted = other == *own || may.contains(&other) || is_exception;
            if rest[end..].starts_with('(') && !is_permitted {
                problems.push(format!("{}: {own} calls {} of {other}", source.path.display(), &rest[..end]));
            }
        }
    }
    complain(problems);
}
