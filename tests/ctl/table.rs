//! Compares the table of subcommands with the man page and the shell completions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use beanpole::internals::ctl::{Flag, Subcommand, SUBCOMMANDS};
use beanpole::internals::protocol::beanstalk::SETTINGS;

use crate::daemon::{path, run, Folder};
use crate::support::Server;

fn page() -> String {
    fs::read_to_string("man/beanpole-ctl.1").expect("the man page")
}

/// Returns the part of the page that describes a subcommand.
fn part<'a>(page: &'a str, row: &Subcommand) -> &'a str {
    let head = format!("\n.It Cm {}", row.name);
    let found = page.match_indices(&head).find(|(at, _)| {
        let rest = &page[at + head.len()..];
        rest.starts_with('\n') || rest.starts_with(' ')
    });
    let (at, _) = found.unwrap_or_else(|| panic!("{} is not in the man page", row.name));
    let rest = &page[at + 1..];
    let end = ["\n.It Cm ", "\n.Sh ", "\n.Ss "].iter().filter_map(|mark| rest.find(mark)).min();
    &rest[..end.unwrap_or(rest.len())]
}

/// Returns the heading that the man page must have for an option.
fn heading(opt: &Flag) -> String {
    let value = opt.value.map_or(String::new(), |value| format!(" Ar {value}"));
    let short = opt.short.map_or(String::new(), |letter| format!("Fl {letter}{value} , "));
    format!(".It {short}Fl -{}{value}\n", opt.long)
}

#[test]
fn the_man_page_has_every_subcommand_with_its_options() {
    let page = page();
    let common =
        page.split(".Sh COMMON OPTIONS").nth(1).and_then(|rest| rest.split("\n.Sh ").next()).expect("a section");
    let mut problems = Vec::new();
    for row in &SUBCOMMANDS {
        let part = part(&page, row);
        let operands: Vec<String> =
            row.operands.split(' ').map(|word| word.trim_matches(['[', ']', '.']).to_owned()).collect();
        for word in operands.iter().filter(|word| !word.is_empty() && *word != "--") {
            if !part.lines().next().is_some_and(|line| line.contains(word.as_str())) {
                problems.push(format!("{}: the operand {word}", row.name));
            }
        }
        let mut documented: Vec<String> =
            part.lines().filter(|line| line.starts_with(".It Fl")).map(|line| format!("{line}\n")).collect();
        for opt in row.options() {
            let heading = heading(opt);
            let place = documented.iter().position(|line| *line == heading);
            match place {
                Some(place) => drop(documented.remove(place)),
                None if common.contains(&heading) => {}
                None => problems.push(format!("{}: not in the man page: {}", row.name, heading.trim())),
            }
            // Numbers in the option's help, such as defaults and limits, must appear in the page.
            let text = if place.is_some() { part } else { common };
            let figures = opt.help.split(|letter: char| !letter.is_ascii_digit()).filter(|word| !word.is_empty());
            let missing = figures.filter(|figure| !text.contains(figure));
            problems.extend(missing.map(|figure| format!("{} --{}: {figure}", row.name, opt.long)));
        }
        problems
            .extend(documented.into_iter().map(|line| format!("{}: only in the man page: {}", row.name, line.trim())));
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    let heads = page.lines().filter(|line| line.starts_with(".It Cm ")).count();
    assert_eq!(heads, SUBCOMMANDS.len());
}

#[test]
fn options_do_not_clash_and_the_help_fits_100_columns() {
    for row in &SUBCOMMANDS {
        let letters: Vec<char> = row.options().iter().filter_map(|opt| opt.short).chain(['h']).collect();
        assert_eq!(letters.iter().collect::<BTreeSet<_>>().len(), letters.len(), "{}", row.name);
        assert!(row.usage().lines().all(|line| line.len() <= 100), "{}", row.usage());
    }
    assert!(
        beanpole::internals::ctl::usage().lines().all(|line| line.len() <= 100),
        "{}",
        beanpole::internals::ctl::usage()
    );
    let names: BTreeSet<&str> = SUBCOMMANDS.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), SUBCOMMANDS.len());
}

/// Returns the completions that bash offers for the last word.
fn bash(script: &Path, words: &[&str], server: &str) -> BTreeSet<String> {
    let code = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _beanpole; \
                printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut command = Command::new("bash");
    command.args(["-c", code, "bash"]).arg(script).args(words).env("PATH", path()).env("BEANPOLE_SERVER", server);
    let output = command.output().expect("bash");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn is_here(program: &str) -> bool {
    let here = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !here {
        println!("skipped: {program} is not installed");
    }
    here
}

#[test]
fn bash_completes() {
    if !is_here("bash") {
        return;
    }
    let folder = Folder::new();
    let script = folder.file("beanpole");
    fs::write(&script, run(&["completion", "bash"]).out).expect("a file");
    let server = Server::beanpole(&[]);
    server.ok(&["put", "-t", "mail", "a"]);
    server.ok(&["put", "-t", "mint", "a"]);
    server.ok(&["put", "-t", "\"my tube\"", "a"]);
    let address = server.address().to_string();
    let offers = |words: &[&str]| bash(&script, words, &address);
    let all: BTreeSet<String> = SUBCOMMANDS.iter().map(|row| row.name.to_owned()).collect();
    assert_eq!(offers(&["beanpole", ""]), all);
    assert_eq!(offers(&["beanpole", "re"]), ["release", "reserve", "resume", "revoke"].map(str::to_owned).into());
    assert!(offers(&["beanpole", "--max-"]).contains("--max-memory"));
    assert_eq!(offers(&["beanpole", "put", "--pr"]), ["--pri".to_owned()].into());
    assert_eq!(offers(&["beanpole", "tubes", "mi"]), ["mint".to_owned()].into());
    assert_eq!(offers(&["beanpole", "put", "-t", "m"]), ["mail", "mint"].map(str::to_owned).into());
    assert_eq!(offers(&["beanpole", "tubes", "\"m"]), [r#"\"my\ tube\""#.to_owned()].into());
    assert_eq!(offers(&["beanpole", "tube", "mi"]), ["mint".to_owned()].into());
    let settings: BTreeSet<String> = SETTINGS.iter().map(|word| format!("{word}:")).collect();
    assert_eq!(offers(&["beanpole", "tube", "mail", ""]), settings);
    assert!(offers(&["beanpole", "work", "mail", ""]).contains("--"));
    assert_eq!(offers(&["beanpole", "completion", "z"]), ["zsh".to_owned()].into());
}

#[test]
fn all_completions_are_complete_and_well_formed() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        let ended = run(&["completion", shell]);
        assert_eq!((ended.code, ended.err.as_str()), (0, ""));
        for row in &SUBCOMMANDS {
            assert!(ended.out.contains(row.name), "{shell}: {}", row.name);
            row.options().iter().for_each(|opt| assert!(ended.out.contains(opt.long), "{shell}: {}", opt.long));
        }
        beanpole::internals::options::OPTIONS
            .iter()
            .for_each(|opt| assert!(ended.out.contains(opt.long), "{shell}: {}", opt.long));
        let file = folder.file(shell);
        fs::write(&file, ended.out).expect("a file");
        if is_here(shell) {
            let output = Command::new(shell).arg("-n").arg(&file).output().expect("a shell");
            assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
