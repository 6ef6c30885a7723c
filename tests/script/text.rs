//! Parses the text of conversations.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::packets;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    Beanstalk,
    Gearman,
    Workq,
}

impl Wire {
    fn from_word(word: &str) -> Option<Wire> {
        [("beanstalk", Wire::Beanstalk), ("gearman", Wire::Gearman), ("workq", Wire::Workq)]
            .into_iter()
            .find_map(|(name, wire)| (name == word).then_some(wire))
    }
}

#[derive(Clone, Debug)]
pub struct Conversation {
    pub title: String,
    /// The file and the line of the title, for messages.
    pub place: String,
    /// The value of the option `-z`, if the conversation has this option.
    pub max_job_size: Option<u32>,
    /// The other options in their original form.
    #[allow(dead_code)] // not every test program starts servers with options
    pub options: Vec<String>,
    /// The protocol of the connections whose names have no protocol prefix.
    pub wire: Wire,
    pub steps: Vec<Step>,
}

impl Conversation {
    /// Returns the protocol of the connection named `who`.
    pub fn wire_of(&self, who: &str) -> Wire {
        match who.split_once(':') {
            Some(("b", _)) => Wire::Beanstalk,
            Some(("g", _)) => Wire::Gearman,
            Some(("w", _)) => Wire::Workq,
            _ => self.wire,
        }
    }

    /// Returns `true` if all connections use the protocol.
    #[allow(dead_code)] // only the comparisons with other servers use the method
    pub fn is_all(&self, wire: Wire) -> bool {
        self.steps.iter().all(|step| step.who.is_empty() || self.wire_of(&step.who) == wire)
    }
}

#[derive(Clone, Debug)]
pub struct Step {
    pub line: usize,
    /// The name of the connection, or an empty string for a step without a connection.
    pub who: String,
    pub what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    Open,
    Send(Vec<u8>),
    /// Expected text. With `yaml`, the text is a line of a body, and its length counts toward the announced length.
    Expect {
        pattern: Vec<Piece>,
        yaml: bool,
    },
    ExpectPacket {
        kind: u32,
        pattern: Vec<Piece>,
    },
    RestOfBody,
    Silence,
    HalfClose,
    Close,
    Eof,
    Pass(Duration),
    Drain,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    Bytes(Vec<u8>),
    Digits,
    Any,
    Length,
}

/// The titles of the conversations that are expected to fail with another server, with the reasons.
pub type Differences = BTreeMap<String, String>;

/// Loads all conversations in a directory and the list of known differences. `host` is the server's host name.
pub fn load(folder: &Path, host: &str) -> (Vec<Conversation>, Differences) {
    let mut conversations = Vec::new();
    let mut differences = Differences::new();
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("the directory of conversations").map(|it| it.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "txt")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(path).expect("a readable file");
        if name == "differences.txt" {
            differences = read_differences(&text);
        } else {
            read(&path.display().to_string(), &text, host, &mut conversations);
        }
    }
    let mut titles = std::collections::BTreeSet::new();
    for conversation in &conversations {
        assert!(titles.insert(&conversation.title), "{}: the title is used twice", conversation.place);
    }
    for title in differences.keys() {
        assert!(titles.contains(title), "differences.txt names an unknown conversation: {title}");
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
    assert!(differences.values().all(|reason| !reason.is_empty()), "every difference must have a reason");
    differences
}

fn read(file: &str, text: &str, host: &str, conversations: &mut Vec<Conversation>) {
    let mut file_wire = Wire::Beanstalk;
    let mut in_conversation = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end();
        let place = format!("{file}:{}", number + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            let (title, wire) = (title.to_owned(), file_wire);
            in_conversation = true;
            let (options, steps) = (Vec::new(), Vec::new());
            conversations.push(Conversation { title, place, max_job_size: None, options, wire, steps });
            continue;
        }
        if let Some(word) = line.strip_prefix("wire ") {
            let wire = Wire::from_word(word).unwrap_or_else(|| panic!("{place}: unknown protocol: {word}"));
            match conversations.last_mut().filter(|_| in_conversation) {
                Some(conversation) => conversation.wire = wire,
                None => file_wire = wire,
            }
            continue;
        }
        assert!(in_conversation, "{place}: no title");
        let conversation = conversations.last_mut().expect("a conversation");
        if let Some(options) = line.strip_prefix("options: ") {
            match options.strip_prefix("-z ") {
                Some(size) => conversation.max_job_size = Some(size.parse().expect("a number")),
                None => conversation.options.extend(options.split(' ').map(str::to_owned)),
            }
            continue;
        }
        let line = line.replace("\\H", &format!("H:{host}:"));
        let (who, what) = step(&line).unwrap_or_else(|| panic!("{place}: invalid step: {line}"));
        conversation.steps.push(Step { line: number + 1, who: who.to_owned(), what });
    }
}

/// Returns the end of the connection name at the beginning of a line. A name consists of capital letters and digits.
/// With a protocol prefix, it can also contain lowercase letters.
fn name_end(line: &str) -> Option<usize> {
    if ["b:", "g:", "w:"].iter().any(|prefix| line.starts_with(prefix)) {
        return Some(2 + line[2..].find(|letter: char| !letter.is_ascii_alphanumeric())?);
    }
    line.find(|letter: char| !letter.is_ascii_uppercase() && !letter.is_ascii_digit())
}

fn step(line: &str) -> Option<(&str, What)> {
    if let Some(seconds) = line.strip_prefix('+') {
        return Some(("", What::Pass(Duration::from_secs_f64(seconds.parse().ok()?))));
    }
    if line == "drain" {
        return Some(("", What::Drain));
    }
    let (who, rest) = line.split_at(name_end(line)?);
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
    } else if let Some(text) = operand(rest, "!") {
        let (kind, body) = packet(text)?;
        What::Send(packets::request(kind, &unescape(body)))
    } else if let Some(text) = operand(rest, "=") {
        let (kind, body) = packet(text)?;
        // A wildcard matches only before other bytes, so the pattern ends with CR LF. `expect_packet` appends CR LF to
        // the body of the received packet, too.
        What::ExpectPacket { kind, pattern: pattern(body, "\r\n") }
    } else {
        expect(operand(rest, "|")?, "\n", true)
    };
    (!who.is_empty()).then_some((who, what))
}

/// Parses a packet's type, which is a name or a number. Returns the type and the text of the packet's body.
fn packet(text: &str) -> Option<(u32, &str)> {
    let (name, body) = text.split_once(' ').unwrap_or((text, ""));
    Some((name.parse().ok().or_else(|| packets::kind(name))?, body))
}

/// Returns the text after the operator and one space.
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
            other => panic!("unknown escape: \\{other}"),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Splits `text*N)more` into the text, the number and the remainder.
fn repetition(text: &str) -> (&str, usize, &str) {
    for (star, _) in text.match_indices('*') {
        let behind = &text[star + 1..];
        if let Some((count, more)) = behind.split_once(')') {
            if let Ok(count) = count.parse() {
                return (&text[..star], count, more);
            }
        }
    }
    panic!("unterminated repetition: {text}");
}
