//! Checks that each part of the project supports every tag of `put` and every tube setting.
//!
//! Owns the list of parts and their exceptions. Searches only source text; other tests check the behavior.

use std::fs;
use std::path::{Path, PathBuf};

use beanpole::internals::protocol::beanstalk::{SETTINGS, TAGS};

/// The words that a part must contain: tags or settings as clients write them, tags in quotes, the engine's fields, or
/// the keys in `stats-job` that show the tags.
enum Needs {
    Tags,
    Settings,
    Quoted,
    Fields,
    Keys,
}

use Needs::{Fields, Keys, Quoted, Settings, Tags};

/// A part of the project: its files, the required words, and the exceptions.
struct Part {
    name: &'static str,
    paths: &'static [&'static str],
    needs: &'static [Needs],
    lacks: &'static [&'static str],
}

#[rustfmt::skip]
const PARTS: &[Part] = &[
    // Reasons for some exceptions: `err` occurs only in exports. The simulated worlds have no calendar schedules and no
    // limits of tubes. Subcommands have an option instead of `tub`, and exports contain `try` instead of `tries-left`.
    Part { name: "conversations", paths: &["tests/conversations"], needs: &[Tags, Settings], lacks: &[] },
    Part { name: "simulated worlds", paths: &["tests/sim"], needs: &[Tags, Settings], lacks: &["err", "limit", "cron"] },
    Part { name: "model", paths: &["src/engine/tests"], needs: &[Fields], lacks: &[] },
    Part { name: "crash tests", paths: &["tests/crash"], needs: &[Fields], lacks: &[] },
    Part { name: "kill, export, import, failover", paths: &["tests/daemon/everything.rs"], needs: &[Tags, Settings], lacks: &["err"] },
    Part { name: "power cuts", paths: &["tests/powercut"], needs: &[Tags, Settings], lacks: &[] },
    Part { name: "HTTP", paths: &["tests/http"], needs: &[Tags, Settings, Keys], lacks: &["err"] },
    Part { name: "page", paths: &["src/protocol/http/page.html"], needs: &[Settings, Keys], lacks: &[] },
    Part { name: "export and import", paths: &["src/ctl/record.rs"], needs: &[Keys], lacks: &["tries-left"] },
    Part { name: "subcommands", paths: &["src/ctl/put.rs"], needs: &[Quoted], lacks: &["tub", "err"] },
    Part { name: "tests of subcommands", paths: &["tests/ctl"], needs: &[Settings], lacks: &[] },
    Part { name: "statistics in the manual", paths: &["man/beanpole-beanstalk.7"], needs: &[Keys], lacks: &[] },
    Part { name: "memory account", paths: &["tests/memory.rs", "tests/memory"], needs: &[Tags], lacks: &["try", "ttl", "con"] },
    // These client libraries do not support tags. In Workq, every job has its own time to live, so `ttl` is not tested.
    Part { name: "greenstalk", paths: &["tests/compat/settings_greenstalk.py"], needs: &[Settings], lacks: &["limit"] },
    Part { name: "beaneater", paths: &["tests/compat/settings_beaneater.rb"], needs: &[Settings], lacks: &["limit"] },
    Part { name: "Pheanstalk", paths: &["tests/compat/settings_pheanstalk.php"], needs: &[Settings], lacks: &["limit"] },
    Part { name: "libgearman", paths: &["tests/compat/settings_gearman.php"], needs: &[Settings], lacks: &["limit"] },
    Part { name: "Workq", paths: &["tests/compat/workq"], needs: &[Settings], lacks: &["limit", "ttl"] },
    Part { name: "first screen of the README", paths: &["README.md"], needs: &[Settings], lacks: &[] },
];

/// For each tag and setting, the engine field that stores it, and the key in `stats-job` that shows the tag.
const FIELDS: [(&str, &str, &str); 14] = [
    ("con", "concurrency", "concurrency-key"),
    ("idp", "key", "idempotency-key"),
    ("tub", "tube", "tube"),
    ("try", "tries", "tries-left"),
    ("ttl", "ttl", "expires-in"),
    ("err", "reason", "last-error"),
    ("grp", "groups", "group"),
    ("aft", "groups", "after-group"),
    ("cron", "recurs", "cron"),
    ("every", "recurs", "every"),
    ("dead", "dead", ""),
    ("max", "max", ""),
    ("rate", "rate", ""),
    ("limit", "max_jobs", ""),
];

fn text_of(path: &Path) -> String {
    if path.is_file() {
        return String::from_utf8_lossy(&fs::read(path).expect("a file")).into_owned();
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| text_of(path)).collect()
}

/// `true` if the text contains `word:` at the start of a word.
fn has_word(text: &str, word: &str) -> bool {
    let word = format!("{word}:");
    let is_start = |before: Option<char>| before.is_none_or(|before| !before.is_ascii_alphanumeric() && before != '-');
    text.match_indices(&word).any(|(at, _)| is_start(text[..at].chars().next_back()))
}

fn words(needs: &Needs) -> Vec<&'static str> {
    let tags = TAGS.iter().map(|(tag, _)| std::str::from_utf8(tag).expect("text").trim_end_matches(':'));
    let settings = SETTINGS.iter().copied();
    let field = |word| FIELDS.iter().find(|(known, ..)| *known == word).unwrap_or_else(|| panic!("{word}: no field"));
    match needs {
        Tags | Quoted => tags.collect(),
        Settings => settings.collect(),
        Fields => tags.chain(settings).map(|word| field(word).1).collect(),
        Keys => tags.map(|word| field(word).2).collect(),
    }
}

#[test]
fn every_part_supports_every_tag_and_setting() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for part in PARTS {
        let text: String = part.paths.iter().map(|path| text_of(&folder.join(path))).collect();
        for needs in part.needs {
            for word in words(needs) {
                let found = match needs {
                    Fields => text.contains(&format!(".{word}")) || has_word(&text, word),
                    Quoted => text.contains(&format!("\"{word}\"")),
                    Keys => text.split(|letter: char| !letter.is_alphanumeric() && letter != '-').any(|it| it == word),
                    Tags | Settings => has_word(&text, word),
                };
                match part.lacks.contains(&word) {
                    false if !found => wrong.push(format!("{}: {word} is missing", part.name)),
                    true if found => wrong.push(format!("{}: {word} is not missing", part.name)),
                    _ => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
