//! From the text of a conversation to its steps.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// One conversation.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub title: String,
    /// File and line, for complaints.
    pub place: String,
    /// The option -z, if it is given.
    pub max_job_size: Option<u32>,
    pub steps: Vec<Step>,
}

/// One line of it.
#[derive(Clone, Debug)]
pub struct Step {
    pub line: usize,
    /// Empty for steps that are nobody's.
    pub who: String,
    pub what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    Open,
    Send(Vec<u8>),
    /// Something that must come. `yaml`: it counts into the length of a body.
    Expect {
        pattern: Vec<Piece>,
        yaml: bool,
    },
    /// Any more lines of the body.
    RestOfBody,
    Silence,
    HalfClose,
    Close,
    Eof,
    Pass(Duration),
    Drain,
}

/// A part of what must come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    Bytes(Vec<u8>),
    Digits,
    Any,
    Length,
}

/// Titles of conversations that another server is known not to satisfy, and why.
pub type Differences = BTreeMap<String, String>;

/// All conversations of a folder, and the known differences.
pub fn load(folder: &Path) -> (Vec<Conversation>, Differences) {
    let mut conversations = Vec::new();
    let mut differences = Differences::new();
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("the folder of conversations").map(|it| it.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "txt")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(path).expect("a readable file");
        if name == "differences.txt" {
            differences = read_differences(&text);
        } else {
            read(&name, &text, &mut conversations);
        }
    }
    let mut titles = std::collections::BTreeSet::new();
    for conversation in &conversations {
        assert!(titles.insert(&conversation.title), "{}: the title is used twice", conversation.place);
    }
    for title in differences.keys() {
        assert!(titles.contains(title), "differences.txt names no conversation: {title}");
    }
    (conversations, differences)
}

fn read_differences(text: &str) -> Differences {
    let mut differences = Differences::new();
    let mut title = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        match line.strip_prefix(' ') {
            Some(reason) => differences.get_mut(&title).expect("a title above the reason").push_str(reason.trim()),
            None => {
                title = line.trim_end().to_owned();
                differences.insert(title.clone(), String::new());
            }
        }
    }
    assert!(differences.values().all(|reason| !reason.is_empty()), "every difference has a reason");
    differences
}

fn read(file: &str, text: &str, conversations: &mut Vec<Conversation>) {
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end();
        let place = format!("{file}:{}", number + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            let title = title.to_owned();
            conversations.push(Conversation { title, place, max_job_size: None, steps: Vec::new() });
            continue;
        }
        let conversation = conversations.last_mut().unwrap_or_else(|| panic!("{place}: no title"));
        if let Some(options) = line.strip_prefix("options: -z ") {
            conversation.max_job_size = Some(options.parse().expect("a number"));
            continue;
        }
        let (who, what) = step(line).unwrap_or_else(|| panic!("{place}: what does that mean? {line}"));
        conversation.steps.push(Step { line: number + 1, who: who.to_owned(), what });
    }
}

fn step(line: &str) -> Option<(&str, What)> {
    if let Some(seconds) = line.strip_prefix('+') {
        return Some(("", What::Pass(Duration::from_secs_f64(seconds.parse().ok()?))));
    }
    if line == "drain" {
        return Some(("", What::Drain));
    }
    let end = line.find(|letter: char| !letter.is_ascii_uppercase() && !letter.is_ascii_digit())?;
    let (who, rest) = line.split_at(end);
    let fixed = [
        (" open", What::Open),
        (" close", What::Close),
        (" half-close", What::HalfClose),
        (" eof", What::Eof),
        (".", What::Silence),
        ("|*", What::RestOfBody),
        ("|* ", What::RestOfBody),
    ];
    if let Some((_, what)) = fixed.into_iter().find(|(word, _)| *word == rest) {
        return Some((who, what));
    }
    let expect = |text: &str, end: &str, yaml| What::Expect { pattern: pattern(text, end), yaml };
    let what = if let Some(text) = operand(rest, "::") {
        What::Send(unescape(text))
    } else if let Some(text) = operand(rest, ":") {
        What::Send([unescape(text), b"\r\n".to_vec()].concat())
    } else if let Some(text) = operand(rest, "<<") {
        expect(text, "", false)
    } else if let Some(text) = operand(rest, "<") {
        expect(text, "\r\n", false)
    } else {
        expect(operand(rest, "|")?, "\n", true)
    };
    (!who.is_empty()).then_some((who, what))
}

/// What follows the operator and one space.
fn operand<'a>(rest: &'a str, operator: &str) -> Option<&'a str> {
    let text = rest.strip_prefix(operator)?;
    if text.is_empty() {
        return Some(text);
    }
    text.strip_prefix(' ')
}

fn pattern(text: &str, end: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let wildcards = [("<n>", Piece::Digits), ("<any>", Piece::Any), ("<len>", Piece::Length)];
    while let Some((at, word, piece)) =
        wildcards.iter().filter_map(|(word, piece)| Some((rest.find(word)?, word, piece))).min_by_key(|found| found.0)
    {
        pieces.push(Piece::Bytes(unescape(&rest[..at])));
        pieces.push(piece.clone());
        rest = &rest[at + word.len()..];
    }
    let mut last = unescape(rest);
    last.extend_from_slice(end.as_bytes());
    pieces.push(Piece::Bytes(last));
    pieces.retain(|piece| *piece != Piece::Bytes(Vec::new()));
    pieces
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let (letter, behind) = rest[at + 1..].split_at(1);
        rest = behind;
        match letter {
            "r" => out.push(b'\r'),
            "n" => out.push(b'\n'),
            "t" => out.push(b'\t'),
            "0" => out.push(0),
            "s" => out.push(b' '),
            "\\" => out.push(b'\\'),
            "x" => {
                out.push(u8::from_str_radix(&rest[..2], 16).expect("two hexadecimal digits"));
                rest = &rest[2..];
            }
            "(" => {
                let (inside, count, behind) = repetition(rest);
                out.extend(unescape(inside).repeat(count));
                rest = behind;
            }
            other => panic!("no such escape: \\{other}"),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Splits `text*N)more`.
fn repetition(text: &str) -> (&str, usize, &str) {
    for (star, _) in text.match_indices('*') {
        let behind = &text[star + 1..];
        if let Some((count, more)) = behind.split_once(')') {
            if let Ok(count) = count.parse() {
                return (&text[..star], count, more);
            }
        }
    }
    panic!("a repetition without an end: {text}");
}
