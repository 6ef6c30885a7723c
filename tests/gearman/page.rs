//! Checks that the man page describes all packets and commands with the summaries in the program's tables, and all
//! options of gearmand.

use beanpole::internals::gearmand::OPTIONS;
use beanpole::internals::protocol::gearman::{PACKETS, TEXT_COMMANDS};

fn page() -> String {
    std::fs::read_to_string("man/beanpole-gearman.7").expect("the man page")
}

/// Converts a summary from a table into a sentence of the man page.
fn sentence(summary: &str) -> String {
    format!("{}{}.", summary[..1].to_uppercase(), &summary[1..])
}

#[test]
fn every_packet_is_documented_with_its_arguments() {
    let page = page();
    for row in PACKETS.iter().filter(|row| !["UNUSED", "ALL_YOURS"].contains(&row.name)) {
        // Packets that are sent in both directions are in the page's list of requests.
        let arguments: String = row.arguments.iter().map(|name| format!(" Ar {name}")).collect();
        let data = if row.data { " Ar data" } else { "" };
        let item = format!("\n.It {} Sy {}{arguments}{data}\n{}\n", row.kind as u32, row.name, sentence(row.summary));
        assert!(page.contains(&item), "{item}");
    }
}

#[test]
fn every_option_of_gearmand_is_documented() {
    let page = page();
    let section = page.split(".Sh STARTED AS GEARMAND").nth(1).and_then(|rest| rest.split("\n.Sh ").next());
    let section = section.expect("the section");
    for opt in &OPTIONS {
        let short = opt.short.map_or(String::new(), |letter| format!("Fl {letter} , "));
        let value = if opt.value.is_some() { " Ar ARG" } else { "" };
        let item = format!("\n.It {short}Fl -{}{value}\n{}\n", opt.long, sentence(opt.help));
        assert!(section.contains(&item), "{item}");
    }
    assert_eq!(section.matches("\n.It ").count(), OPTIONS.len());
}

#[test]
fn every_text_command_is_documented() {
    let page = page();
    for row in &TEXT_COMMANDS {
        let item = format!("\n.It Cm {}", row.words);
        let found = page.split(&item).nth(1).unwrap_or_else(|| panic!("{item}"));
        let (rest, text) = found.split_once('\n').expect("a description");
        assert_eq!(rest.is_empty(), row.arguments.is_empty(), "{}: {rest}", row.words);
        assert!(text.starts_with(&sentence(row.summary)), "{}", row.words);
    }
}
