//! The table of text commands, and their parser. Command names are case-insensitive, and spaces separate words.

use super::reply::{from_word, push_word};
use crate::access::Need;
use crate::protocol::text::strtoll;

/// The maximum number of words, as in gearmand. The longest command is `maxqueue` with three sizes.
const MAX_WORDS: usize = 5;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdminCommand {
    Version,
    Getpid,
    Verbose,
    List(ListKind),
    CancelJob(Box<[u8]>),
    CreateFunction(Box<[u8]>),
    DropFunction(Box<[u8]>),
    // A function, and limits for high, normal and low priority.
    Maxqueue(Box<[u8]>, [Option<u32>; 3]),
    Shutdown { graceful: bool },
    Wrong(Box<[u8]>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListKind {
    Status,
    PriorityStatus,
    Workers,
    Jobs,
    UniqueJobs,
}

pub struct TextCommand {
    pub words: &'static str,
    pub need: Need,
    pub arguments: &'static str,
    parse: fn(&[&[u8]]) -> Option<AdminCommand>,
    pub summary: &'static str,
}

const fn row(
    words: &'static str,
    need: Need,
    arguments: &'static str,
    parse: fn(&[&[u8]]) -> Option<AdminCommand>,
    summary: &'static str,
) -> TextCommand {
    TextCommand { words, need, arguments, parse, summary }
}

#[rustfmt::skip]
pub const TEXT_COMMANDS: [TextCommand; 13] = [
    row("version", Need::OPEN, "", |_| Some(AdminCommand::Version), "the version of the server"),
    row("getpid", Need::LOOK_ANY, "", |_| Some(AdminCommand::Getpid), "the process ID of the server"),
    row("verbose", Need::OPEN, "", |_| Some(AdminCommand::Verbose), "the log level"),
    row("status", Need::LOOK_ANY, "", |_| Some(AdminCommand::List(ListKind::Status)), "functions with their jobs, running jobs and workers"),
    row("prioritystatus", Need::LOOK_ANY, "", |_| Some(AdminCommand::List(ListKind::PriorityStatus)), "functions with their queued jobs by priority, and workers"),
    row("workers", Need::LOOK_ALL, "", |_| Some(AdminCommand::List(ListKind::Workers)), "connections with their functions"),
    row("show unique jobs", Need::LOOK_ANY, "", |args| args.is_empty().then_some(AdminCommand::List(ListKind::UniqueJobs)), "the unique IDs of all jobs"),
    row("show jobs", Need::LOOK_ANY, "", |args| args.is_empty().then_some(AdminCommand::List(ListKind::Jobs)), "the handles of all jobs"),
    row("cancel job", Need::ADMIN_JOB, "<handle>", |args| args.first().map(|handle| AdminCommand::CancelJob((*handle).into())), "cancel a job"),
    row("create function", Need::ADMIN_NAMED, "<function>", |args| args.first().map(|name| AdminCommand::CreateFunction(from_word(name))), "add a function to the list that status shows"),
    row("drop function", Need::ADMIN_NAMED, "<function>", |args| args.first().map(|name| AdminCommand::DropFunction(from_word(name))), "remove a function from the list that status shows"),
    row("maxqueue", Need::ADMIN_NAMED, "<function> [<size> | <high> <normal> <low>]", maxqueue, "limit the queued and running jobs of a function"),
    row("shutdown", Need::ADMIN_ALL, "[graceful]", shutdown, "stop the server, if --allow-shutdown is set"),
];

/// `line` does not include the line ending. For a valid line, also returns the index of its row in the table.
pub fn parse(line: &[u8]) -> (AdminCommand, Option<usize>) {
    let words: Vec<&[u8]> =
        line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).take(MAX_WORDS + 1).collect();
    let first = words.first().copied().unwrap_or_default();
    if words.len() > MAX_WORDS {
        return (incomplete(first, b"Too+many+arguments+were+sent+to+this+command+"), None);
    }
    for (index, row) in TEXT_COMMANDS.iter().enumerate() {
        let mut rest = words.iter();
        if row.words.split(' ').all(|word| rest.next().is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes())))
        {
            if let Some(command) = (row.parse)(rest.as_slice()) {
                return (command, Some(index));
            }
            break;
        }
    }
    (wrong(first, words.len()), None)
}

fn wrong(first: &[u8], words: usize) -> AdminCommand {
    let is = |word: &str| first.eq_ignore_ascii_case(word.as_bytes());
    if is("show") && words > 1 {
        return AdminCommand::Wrong(b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n".as_slice().into());
    }
    if is("cancel") && words > 2 {
        return AdminCommand::Wrong(b"ERR UNKNOWN_ERROR\r\n".as_slice().into());
    }
    if is("create") || is("drop") || is("maxqueue") {
        return incomplete(first, b"An+incomplete+set+of+arguments+was+sent+to+this+command+");
    }
    unknown(first)
}

fn incomplete(word: &[u8], text: &[u8]) -> AdminCommand {
    line_about(b"ERR INVALID_ARGUMENTS ", text, word)
}

pub fn unknown(word: &[u8]) -> AdminCommand {
    line_about(b"ERR UNKNOWN_COMMAND ", b"Unknown+server+command", word)
}

fn line_about(code: &[u8], text: &[u8], word: &[u8]) -> AdminCommand {
    let mut line = [code, text].concat();
    push_word(&mut line, word);
    line.extend_from_slice(b"\r\n");
    AdminCommand::Wrong(line.into())
}

/// A single size applies to all three priorities. A missing, invalid, zero or negative size means unlimited.
fn maxqueue(args: &[&[u8]]) -> Option<AdminCommand> {
    let (name, sizes) = args.split_first()?;
    let size =
        |text: &&[u8]| strtoll(text).filter(|size| *size > 0).map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    let sizes = match sizes {
        [] => [None; 3],
        [all] => [size(all); 3],
        [high, normal] => [size(high), size(normal), None],
        [high, normal, low, ..] => [size(high), size(normal), size(low)],
    };
    Some(AdminCommand::Maxqueue(from_word(name), sizes))
}

fn shutdown(args: &[&[u8]]) -> Option<AdminCommand> {
    match args {
        [] => Some(AdminCommand::Shutdown { graceful: false }),
        [word] if word.eq_ignore_ascii_case(b"graceful") => Some(AdminCommand::Shutdown { graceful: true }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(line: &str) -> String {
        match parse(line.as_bytes()).0 {
            AdminCommand::Wrong(line) => String::from_utf8(line.into()).expect("text"),
            other => panic!("{line:?} is {other:?}"),
        }
    }

    #[test]
    fn case_and_additional_spaces_are_ignored() {
        assert_eq!(parse(b"StaTus").0, AdminCommand::List(ListKind::Status));
        assert_eq!(parse(b"  show   unique  JOBS ").0, AdminCommand::List(ListKind::UniqueJobs));
        assert_eq!(parse(b"show jobs").0, AdminCommand::List(ListKind::Jobs));
        assert_eq!(parse(b"version please").0, AdminCommand::Version);
        assert_eq!(parse(b"create function F%20g").0, AdminCommand::CreateFunction(b"F g".as_slice().into()));
        assert_eq!(parse(b"shutdown GRACEFUL").0, AdminCommand::Shutdown { graceful: true });
    }

    #[test]
    fn queue_sizes_are_positive() {
        let f: Box<[u8]> = b"f".as_slice().into();
        for (line, sizes) in [
            ("maxqueue f", [None; 3]),
            ("maxqueue f 7", [Some(7); 3]),
            ("maxqueue f 0", [None; 3]),
            ("maxqueue f -3", [None; 3]),
            ("maxqueue f 1 2 3", [Some(1), Some(2), Some(3)]),
            ("maxqueue f 1 0 99999999999", [Some(1), None, Some(u32::MAX)]),
        ] {
            assert_eq!(parse(line.as_bytes()).0, AdminCommand::Maxqueue(f.clone(), sizes), "{line}");
        }
    }

    #[test]
    fn errors_have_the_texts_of_gearmand() {
        let incomplete =
            |word| format!("ERR INVALID_ARGUMENTS An+incomplete+set+of+arguments+was+sent+to+this+command+{word}\r\n");
        assert_eq!(answer("foo"), "ERR UNKNOWN_COMMAND Unknown+server+commandfoo\r\n");
        assert_eq!(answer(""), "ERR UNKNOWN_COMMAND Unknown+server+command\r\n");
        assert_eq!(answer("show"), "ERR UNKNOWN_COMMAND Unknown+server+commandshow\r\n");
        assert_eq!(answer("show x"), "ERR UNKNOWN_SHOW_ARGUMENTS\r\n");
        assert_eq!(answer("show jobs x"), "ERR UNKNOWN_SHOW_ARGUMENTS\r\n");
        assert_eq!(answer("cancel job"), "ERR UNKNOWN_COMMAND Unknown+server+commandcancel\r\n");
        assert_eq!(answer("cancel foo bar"), "ERR UNKNOWN_ERROR\r\n");
        assert_eq!(answer("create foo bar"), incomplete("create"));
        assert_eq!(answer("drop function"), incomplete("drop"));
        assert_eq!(answer("maxqueue"), incomplete("maxqueue"));
        assert!(answer("a b c d e f").starts_with("ERR INVALID_ARGUMENTS Too+many"));
    }

    #[test]
    fn errors_do_not_contain_line_ends() {
        assert_eq!(answer("a\rOK\t"), "ERR UNKNOWN_COMMAND Unknown+server+commanda%0DOK%09\r\n");
    }
}
