//! The parser of the access file. Each line has the form `name credential... right...`.
//!
//! A file that starts with `begin` must end with `end`, so the server never uses a part of such a file. Error
//! messages must not quote text that might be a secret.

use std::collections::HashSet;

use super::right::{hex, Pattern, Right, Rights};
use super::table::{AccessTable, Credential, Digest, Entry};

#[derive(Clone, Copy)]
pub struct Accounts<'a> {
    pub user: &'a dyn Fn(&str) -> Option<u32>,
    pub group: &'a dyn Fn(&str) -> Option<u32>,
}

#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    column: usize,
}

/// The column and the message of an error.
type Invalid = (usize, String);

const CREDENTIALS: &str = "none, cert:, token:sha256:, user: or group:";
const RIGHTS: &str = "put, take, look, admin or all";

/// Calls `report` with the line, the column and the message of each error: at most one per line, and finally a missing
/// `end` or missing names. Returns `None` after any error. A callback needs less memory than a list of all errors.
pub fn parse(bytes: &[u8], accounts: &Accounts, mut report: impl FnMut(usize, usize, String)) -> Option<AccessTable> {
    let (mut table, mut frame, mut is_valid) = (AccessTable::default(), Frame::Unknown, true);
    let mut report = |line, (column, problem)| {
        is_valid = false;
        report(line, column, problem);
    };
    let mut number = 0;
    for line in bytes.split(|&byte| byte == b'\n') {
        number += 1;
        match parse_line(line, number, accounts, &table, &mut frame) {
            Ok(entry) => entry.into_iter().for_each(|entry| table.add(entry)),
            Err(invalid) => report(number, invalid),
        }
    }
    match frame {
        Frame::Begun => {
            report(number, (1, "truncated file: it starts with begin and does not end with end".to_owned()))
        }
        Frame::Unknown => report(number, (1, "the file has no names; to admit nobody, write begin and end".to_owned())),
        Frame::None | Frame::Ended => {}
    }
    is_valid.then_some(table)
}

/// The parser's position relative to the lines `begin` and `end`.
#[derive(Clone, Copy)]
enum Frame {
    /// The parser has read only empty lines and comments.
    Unknown,
    /// The file does not start with `begin`.
    None,
    Begun,
    Ended,
}

impl Frame {
    /// Moves the position past a line. Returns `true` if the line marks the start or the end of the file.
    fn follow(&mut self, words: &[Word]) -> Result<bool, Invalid> {
        let only = if let [word] = words { word.text } else { "" };
        let (next, is_mark) = match (*self, only) {
            (Frame::Unknown, "begin") => (Frame::Begun, true),
            (Frame::Begun, "end") => (Frame::Ended, true),
            (Frame::Ended, _) => return Err((words[0].column, "unexpected text after end".to_owned())),
            (Frame::Unknown, _) => (Frame::None, false),
            (frame, _) => (frame, false),
        };
        *self = next;
        Ok(is_mark)
    }
}

fn words(line: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let (mut column, mut rest) = (1, line);
    loop {
        let trimmed = rest.trim_start_matches([' ', '\t', '\r']);
        column += rest[..rest.len() - trimmed.len()].chars().count();
        let end = trimmed.find([' ', '\t', '\r']).unwrap_or(trimmed.len());
        let text = &trimmed[..end];
        if text.is_empty() || text.starts_with('#') {
            return words;
        }
        words.push(Word { text, column });
        column += text.chars().count();
        rest = &trimmed[end..];
    }
}

/// Parses a line. `before` contains the entries of earlier lines. Returns `None` for a line without an entry.
fn parse_line(
    line: &[u8],
    number: usize,
    accounts: &Accounts,
    before: &AccessTable,
    frame: &mut Frame,
) -> Result<Option<Entry>, Invalid> {
    let line = std::str::from_utf8(line).map_err(|error| {
        let valid = String::from_utf8_lossy(&line[..error.valid_up_to()]).chars().count();
        (valid + 1, "the line is not valid UTF-8".to_owned())
    })?;
    let words = words(line);
    let Some((name, rest)) = words.split_first() else { return Ok(None) };
    if frame.follow(&words)? {
        return Ok(None);
    }
    if let Some(other) = before.name(name.text) {
        return Err((name.column, format!("duplicate name, already in line {}", other.line)));
    }
    let end = line.chars().count() + 1;
    let mut entry = Entry { name: name.text.into(), line: number, credentials: Vec::new(), rights: Rights::default() };
    ensure!(!rest.is_empty(), (end, format!("missing credential; must be {CREDENTIALS}")));
    let mut own = HashSet::new();
    let credentials = rest.iter().take_while(|word| is_credential(word.text)).count().max(1);
    for word in &rest[..credentials] {
        let credential = credential(*word, name.text, accounts)?;
        let line = before.credential(&credential).map(|other| other.line);
        if let Some(line) = line.or(own.contains(&credential).then_some(number)) {
            return Err((word.column, format!("duplicate credential, already in line {line}")));
        }
        own.insert(credential.clone());
        entry.credentials.push(credential);
    }
    rest[credentials..].iter().try_for_each(|word| rights(*word, &mut entry.rights))?;
    let has_right = rest.len() > credentials;
    has_right.then_some(Some(entry)).ok_or_else(|| (end, format!("missing right; must be {RIGHTS}")))
}

fn is_credential(word: &str) -> bool {
    word == "none" || ["cert:", "token:", "user:", "group:"].iter().any(|kind| word.starts_with(kind))
}

fn credential(word: Word, name: &str, accounts: &Accounts) -> Result<Credential, Invalid> {
    let invalid = |problem: String| (word.column, problem);
    if word.text == "none" {
        let problem = || invalid("only the name * may have the credential none".to_owned());
        return (name == "*").then_some(Credential::Nothing).ok_or_else(problem);
    }
    let (kind, value) = word.text.split_once(':').unwrap_or((word.text, ""));
    let number = |find: &dyn Fn(&str) -> Option<u32>| {
        let found = value.parse().ok().or_else(|| find(value));
        found.ok_or_else(|| invalid(format!("no such {kind}: {}", value.escape_debug())))
    };
    let credential = match kind {
        "cert" | "user" | "group" if value.is_empty() => return Err(invalid(format!("missing value after {kind}:"))),
        "cert" => Credential::Certificate(value.to_ascii_lowercase().into()),
        "token" => {
            let problem =
                || invalid("invalid or empty token; must be token:sha256: and 64 hexadecimal digits".to_owned());
            Credential::Token(digest(value).ok_or_else(problem)?)
        }
        "user" => Credential::User(number(accounts.user)?),
        "group" => Credential::Group(number(accounts.group)?),
        // The text after the colon can be a secret, so the message omits it.
        _ => return Err(invalid(format!("unknown credential: {}; must be {CREDENTIALS}", kind.escape_debug()))),
    };
    let problem = || invalid("the name *, for clients without a credential, needs the credential none".to_owned());
    (name != "*").then_some(credential).ok_or_else(problem)
}

/// Rejects the hash of an empty token, which results from an unset variable.
fn digest(text: &str) -> Option<Digest> {
    let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64)?;
    let bytes: Vec<u8> = digits.as_bytes().chunks(2).map(hex).collect::<Option<_>>()?;
    bytes.try_into().ok().map(Digest).filter(|digest| digest.0 != Digest::of(b"").0)
}

fn rights(word: Word, granted: &mut Rights) -> Result<(), Invalid> {
    let split = word.text.split_once(':');
    let (name, patterns) = split.map_or((word.text, None), |(name, patterns)| (name, Some(patterns)));
    let rights: Vec<Right> = Right::ALL.into_iter().filter(|right| [right.name(), "all"].contains(&name)).collect();
    if rights.is_empty() {
        let problem = match is_credential(word.text) {
            true => "credentials must precede rights".to_owned(),
            false => format!("unknown right: {}; must be {RIGHTS}", name.escape_debug()),
        };
        return Err((word.column, problem));
    }
    let Some(patterns) = patterns else {
        rights.into_iter().for_each(|right| granted.grant(right, Pattern::all()));
        return Ok(());
    };
    let mut column = word.column + name.chars().count() + 1;
    for text in patterns.split(',') {
        let pattern = Pattern::parse(text)
            .map_err(|(bytes, problem)| (column + text[..bytes].chars().count(), problem.to_owned()))?;
        rights.iter().for_each(|right| granted.grant(*right, pattern.clone()));
        column += text.chars().count() + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::table::COMPARED;
    use super::*;

    const ACCOUNTS: Accounts =
        Accounts { user: &|name| (name == "root").then_some(0), group: &|name| (name == "adm").then_some(4) };

    fn table(text: &str) -> AccessTable {
        parse(text.as_bytes(), &ACCOUNTS, |line, column, problem| panic!("{line}:{column}: {problem}"))
            .expect("a table")
    }

    fn errors(text: &[u8]) -> Vec<(usize, usize, String)> {
        let mut errors = Vec::new();
        let table = parse(text, &ACCOUNTS, |line, column, problem| errors.push((line, column, problem)));
        assert_eq!(table, None);
        errors
    }

    const DIGEST: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

    #[test]
    fn a_line_is_a_name_its_credentials_and_its_rights() {
        let text = format!(
            "# name credential rights\n\nmailer cert:Mailer put:mail* take:mail*\r\n\tweb token:sha256:{DIGEST}  put:mail*,push.* # x\n\
             ops user:root group:adm group:77 all\n* none look\n"
        );
        let table = table(&text);
        let names: Vec<_> = table.entries.iter().map(|entry| (&*entry.name, entry.line)).collect();
        assert_eq!(names, [("mailer", 3), ("web", 4), ("ops", 5), ("*", 6)]);
        let mailer = &table.name("mailer").expect("a line").rights;
        assert!(mailer.allow(&[Right::Put], b"mail.x") && mailer.allow(&[Right::Take], b"mail"));
        assert!(!mailer.allow(&[Right::Look, Right::Admin], b"mail") && !mailer.allow(&[Right::Put], b"push"));
        let web = table.name("web").expect("a line");
        assert!(web.rights.allow(&[Right::Put], b"push.") && !web.rights.allow(&[Right::Put], b"push"));
        assert_eq!(table.credential(&web.credentials[0]).map(|entry| &*entry.name), Some("web"));
        assert_eq!(table.credential(&Credential::Token(Digest([0; 32]))), None);
        let named = |credential: Credential| table.prove(&[credential]).map(|(entry, _)| entry.name.to_string());
        assert_eq!(named(Credential::Certificate("mailer".into())).as_deref(), Some("mailer"));
        assert_eq!(named(Credential::User(0)).as_deref(), Some("ops"));
        assert_eq!(named(Credential::Group(77)).as_deref(), Some("ops"));
        assert_eq!(named(Credential::User(4)), None);
        assert_eq!(named(Credential::Nothing).as_deref(), Some("*"));
        assert!(table.name("ops").expect("a line").rights.allow_everywhere(&[Right::Admin]));
    }

    #[test]
    fn every_invalid_line_is_reported_with_its_position() {
        let token = format!("token:sha256:{DIGEST}");
        for (line, column, problem) in [
            ("a", 2, "missing credential"),
            ("a user:0", 9, "missing right"),
            ("a none look", 3, "only the name * may have the credential none"),
            ("* user:0 look", 3, "the name *, for clients without a credential"),
            ("a  what:x look", 4, "unknown credential: what;"),
            ("a look", 3, "unknown credential: look;"),
            ("a cert: look", 3, "missing value after cert:"),
            ("a user: look", 3, "missing value after user:"),
            ("a token:sha256:00 look", 3, "invalid or empty token"),
            ("a token:hunter2 look", 3, "invalid or empty token"),
            (
                "a token:sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 look",
                3,
                "invalid or empty token",
            ),
            ("a user:nobody-here look", 3, "no such user: nobody-here"),
            ("a group:nobody-here look", 3, "no such group: nobody-here"),
            ("a user:0 look cert:x", 15, "credentials must precede rights"),
            ("a user:0 peek", 10, "unknown right: peek;"),
            ("a user:0 put:", 14, "missing pattern"),
            ("a user:0 put:x,,y", 16, "missing pattern"),
            ("a user:0 put:x*y", 15, "a star may only be at the end"),
            ("ä user:0 put:ä,%4", 16, "two hexadecimal digits"),
            ("a user:0 user:root look", 10, "duplicate credential, already in line 1"),
        ] {
            let found = &errors(line.as_bytes())[..];
            let [(1, at, message)] = found else { panic!("{line}: {found:?}") };
            assert!(*at == column && message.starts_with(problem), "{line}: {found:?}");
        }
        let text = format!("a {token} look\na user:0 look\nb {token} put\n\n c group:4 pat\n");
        let found = errors(text.as_bytes());
        let places: Vec<_> = found.iter().map(|(line, column, _)| (*line, *column)).collect();
        assert_eq!(places, [(2, 1), (3, 3), (5, 12)]);
        assert_eq!(found[0].2, "duplicate name, already in line 1");
        let not_text = (2, 4, "the line is not valid UTF-8".to_owned());
        assert_eq!(errors(b"a\nab \xff\n").last(), Some(&not_text));
    }

    #[test]
    fn a_file_with_begin_needs_end() {
        let whole = "# ours\n\nbegin # of it\na user:0 look\n* none look\nend\n\n# nothing\n";
        assert_eq!(table(whole).entries.len(), 2);
        // A file that is truncated before `end` is rejected, even if the last line is complete.
        for length in 0..whole.find("end\n").expect("an end") + 2 {
            assert!(!errors(&whole.as_bytes()[..length]).is_empty(), "{}", &whole[..length]);
        }
        for (text, line, column, problem) in [
            ("begin\na user:0 look\n", 3, 1, "truncated file"),
            ("begin\nend\n a user:0 look", 3, 2, "unexpected text after end"),
            ("# later\n", 2, 1, "the file has no names"),
        ] {
            let found = &errors(text.as_bytes())[0];
            assert!((found.0, found.1) == (line, column) && found.2.starts_with(problem), "{found:?}");
        }
        assert!(table("begin\nend").entries.is_empty());
        // Except at the start of the file, `begin` is a name. In a file that does not start with `begin`, so is `end`.
        for text in ["a user:0 look\nend\n", "a user:0 look\nbegin\n", "begin\nbegin\nend\n"] {
            let found = errors(text.as_bytes());
            assert!(
                matches!(&found[..], [(2, _, problem)] if problem.starts_with("missing credential")),
                "{text}: {found:?}"
            );
        }
        assert_eq!(table("begin user:0 look\nend user:1 look\n").entries.len(), 2);
    }

    #[test]
    fn a_search_does_not_depend_on_the_number_of_lines() {
        const NAMES: u64 = 2000;
        let token = |number: u64| format!("token:sha256:{:064x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let lines: String = (0..NAMES).map(|number| format!("n{number} {} look\n", token(number))).collect();
        COMPARED.set(0);
        let table = table(&lines);
        // The hash map compares a digest only with digests that have the same hash value.
        assert!(COMPARED.get() <= NAMES, "{} comparisons to read {NAMES} lines", COMPARED.get());
        COMPARED.set(0);
        for number in 0..2 * NAMES {
            let digest = digest(&token(number)["token:".len()..]).expect("a digest");
            let expected = (number < NAMES).then(|| format!("n{number}"));
            assert_eq!(table.credential(&Credential::Token(digest)).map(|entry| entry.name.to_string()), expected);
        }
        assert!(COMPARED.get() <= 4 * NAMES, "{} comparisons for {} tokens", COMPARED.get(), 2 * NAMES);
    }

    #[test]
    fn a_problem_never_shows_what_may_be_a_token() {
        for line in ["a token:hunter2 look", "a tocken:sha256:hunter2 look", "a pass:hunter2 look"] {
            let (.., problem) = &errors(line.as_bytes())[0];
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn rights_that_only_grow_cover_the_old_ones() {
        let rights = |text: &str| table(&format!("a user:0 {text}")).entries[0].rights.clone();
        for (new, old, expected) in [
            ("put:mail*", "put:mail.a put:mail.b", true),
            ("put take:x", "put:mail*", true),
            ("put:mail*", "put", false),
            ("put:mail*", "put:mail* look:y", false),
            ("all", "put:a take:b look admin:c*", true),
        ] {
            assert_eq!(rights(new).cover(&rights(old)), expected, "{new} and {old}");
        }
    }
}
