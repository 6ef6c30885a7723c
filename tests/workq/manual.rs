//! Compares the man page beanpole-workq(7) with the program.

use std::fs;

use beanpole::internals::protocol::workq::{CommandRow, COMMANDS, MAX_DATA, MAX_LINE, MAX_NAME, MAX_TTR};

use super::crowd::{server, Client};

fn page() -> String {
    fs::read_to_string("man/beanpole-workq.7").expect("the page")
}

/// Returns the heading that the man page must have for a command.
fn heading(row: &CommandRow) -> String {
    let mut words = [".It Ic", row.word, row.object].join(" ").trim_end().to_owned();
    for argument in row.arguments.split(' ').filter(|argument| !argument.is_empty()) {
        let bare: String = argument.chars().filter(|letter| !"<>[]".contains(*letter)).collect();
        words += &match (bare.strip_prefix('-'), bare.strip_suffix("...")) {
            (Some(flag), _) => format!(" Oo Fl {flag} Ns Ar N Oc"),
            (_, Some(name)) => format!(" Ar {name} ..."),
            _ => format!(" Ar {bare}"),
        };
    }
    words
}

#[test]
fn the_page_has_every_command_and_no_other() {
    let page = page();
    let section = page.split(".Sh COMMANDS").nth(1).and_then(|rest| rest.split("\n.Sh ").next()).expect("COMMANDS");
    let mut found: Vec<&str> = section.lines().filter(|line| line.starts_with(".It ")).collect();
    let mut expected: Vec<String> = COMMANDS.iter().map(heading).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn the_page_has_every_reply_and_number() {
    let page = page();
    let replies = fs::read_to_string("src/protocol/workq/reply.rs").expect("the replies");
    let errors: Vec<&str> = replies.split("= b\"-").skip(1).filter_map(|rest| rest.split("\\r").next()).collect();
    assert!(errors.len() > 25);
    let missing = errors.iter().filter(|error| !page.contains(&format!(".It Ql -{error}\n")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
    for figure in [
        format!("to {MAX_DATA} (1 MiB)"),
        format!("longer than {MAX_LINE} bytes"),
        format!("1 to {MAX_NAME} characters"),
        format!("from 1 to {MAX_TTR} (24 hours)"),
    ] {
        assert!(page.contains(&figure), "{figure}");
    }
}

/// Returns `true` if the server sends the line. The conversation contains the lines `ping` and `pong` twice each. The
/// reader types them the first time, and the server sends them the second time.
fn is_reply(line: &str, typed: &[&str]) -> bool {
    line.starts_with(['+', '-']) || line.starts_with("6ba7b810") || line == "ping" && typed.contains(&"ping") || {
        line == "pong" && typed.contains(&"pong")
    }
}

#[test]
fn the_documented_conversation_works() {
    let (_server, address) = server();
    let mut client = Client::connect(address);
    let page = page();
    let shown = page.split("$ telnet 127.0.0.1 9922\n").nth(1).and_then(|rest| rest.split(".Ed").next());
    let mut typed = Vec::new();
    for line in shown.expect("a conversation").lines() {
        if is_reply(line, &typed) {
            assert_eq!(client.line(), line);
        } else {
            client.send(&format!("{line}\r\n"));
            typed.push(line);
        }
    }
    assert_eq!(typed.len(), 6);
}
