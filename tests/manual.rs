//! Compares the man pages, the README and the Makefile with the program.
//!
//! Every option must be documented, every documented option must exist, and the examples must work as printed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use beanpole::internals::config::CONNECTION_COST;
use beanpole::internals::ctl::Flag;
use beanpole::internals::engine::{JOB_COST, MAX_KEPT, MAX_OPEN, MAX_OPERATIONS, TIMES_COST, TUBE_COST, WATCH_COST};
use beanpole::internals::gearmand;
use beanpole::internals::options::{usage, BAD_USAGE, OPTIONS};
use beanpole::internals::protocol::beanstalk::{CommandRow, COMMANDS, EXTENSIONS, MAX_LINE, SETTINGS, TAGS};
use beanpole::internals::protocol::http::{metrics, ROUTES};
use beanpole::{Client, Config, Server};

mod daemon;

#[path = "manual/documents.rs"]
mod documents;
#[path = "../benches/picture/drawing.rs"]
mod drawing;
#[path = "tidy/documents.rs"]
mod list;
#[allow(dead_code)] // another program generates RESULTS.md
#[path = "../benches/picture/publish.rs"]
mod publish;

/// Maximum number of lines in the README, which must remain an overview.
const README_LINES: usize = 120;

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn complain(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Returns the heading that the man page must have for an option, for example `Fl p Ar PORT , Fl -port Ar PORT`.
fn heading<A>(opt: &Flag<A>) -> String {
    let value = opt.value.map_or(String::new(), |value| format!(" Ar {value}"));
    if let Some(value) = opt.value.filter(|_| opt.optional) {
        return format!("Fl -{} Ns Op = Ns Ar {value}", opt.long);
    }
    let short = opt.short.map_or(String::new(), |letter| format!("Fl {letter}{value} , "));
    format!("{short}Fl -{}{value}", opt.long)
}

/// Returns the heading and the text of each option in the page.
fn documented(page: &str) -> Vec<(String, String)> {
    let section = page.split(".Sh OPTIONS").nth(1).and_then(|rest| rest.split("\n.Sh ").next()).expect("OPTIONS");
    let items = section.split("\n.It ").skip(1).map(|item| item.split_once('\n').expect("a text after the heading"));
    items.map(|(heading, text)| (heading.to_owned(), text.to_owned())).collect()
}

fn exists(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or_default();
    OPTIONS.iter().any(|opt| match name.strip_prefix("--") {
        Some(long) => opt.long == long,
        None => opt.short.is_some_and(|letter| name.starts_with(&format!("-{letter}"))),
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || "-_%.".contains(letter)))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| !word.is_empty())
}

#[test]
fn the_man_page_has_every_option_and_no_other() {
    let page = read("man/beanpole.8");
    let found: Vec<String> = documented(&page).into_iter().map(|(heading, _)| heading).collect();
    let expected: Vec<String> = OPTIONS.iter().map(heading).collect();
    let of = |these: &[String], those: &[String], what| {
        let missing = these.iter().filter(|heading| !those.contains(heading));
        missing.map(|heading| format!("{what}: {heading}")).collect::<Vec<_>>()
    };
    let mut problems = of(&expected, &found, "not in the man page");
    problems.extend(of(&found, &expected, "only in the man page"));
    // Options that other sections of the page mention must also exist.
    for line in page.lines().filter(|line| line.starts_with('.')) {
        let mut words = line.split(' ').peekable();
        while let Some(word) = words.next() {
            if word.trim_start_matches('.') != "Fl" {
                continue;
            }
            // The macro line "Fl h | v" names two options.
            let mut names = vec![words.next().unwrap_or_default()];
            while words.next_if_eq(&"|").is_some() {
                names.push(words.next().unwrap_or_default());
            }
            let unknown = names.into_iter().filter(|name| !exists(&format!("-{name}")));
            problems.extend(unknown.map(|name| format!("there is no such option: {line} ({name})")));
        }
    }
    complain(problems);
}

#[test]
fn the_man_page_has_every_default_and_bound() {
    let mut problems = Vec::new();
    for (heading_found, text) in documented(&read("man/beanpole.8")) {
        let Some(opt) = OPTIONS.iter().find(|opt| heading(opt) == heading_found) else { continue };
        let documented: BTreeSet<&str> = words(&text).collect();
        let figures = words(opt.help).filter(|word| word.starts_with(|letter: char| letter.is_ascii_digit()));
        problems.extend(
            figures.filter(|figure| !documented.contains(figure)).map(|figure| format!("--{}: {figure}", opt.long)),
        );
        // The text must also contain the default, even if it is not a number, and the word "default".
        if let Some((_, rest)) = opt.help.split_once("(default") {
            let default = rest.trim_start_matches(':').split([',', ';', ')']).next().unwrap_or_default().trim();
            if !text.replace('\n', " ").contains(default) {
                problems.push(format!("--{}: default {default}", opt.long));
            }
            if !text.contains("default") {
                problems.push(format!("--{}: the text does not name the default", opt.long));
            }
        }
    }
    complain(problems);
}

#[test]
fn the_man_page_s_numbers_are_correct() {
    let pages = ["beanpole.8", "beanpole-access.7", "beanpole-beanstalk.7", "beanpole-gearman.7", "beanpole-memory.7"];
    let page = pages.map(|page| read(&format!("man/{page}"))).join("").replace('\n', " ");
    for figure in [
        format!("A job counts as the size of its body plus {JOB_COST} bytes"),
        format!("A tube counts as the length of its name plus {TUBE_COST} bytes, and as {TIMES_COST} bytes more"),
        format!("A watched tube counts as {WATCH_COST} bytes"),
        format!("A connection counts as {CONNECTION_COST} bytes"),
        format!("at most {MAX_LINE} bytes long, including its CR LF"),
        format!("at most {MAX_KEPT} Gearman functions stay listed"),
        format!("At most {MAX_KEPT} functions stay listed"),
        format!("at most {MAX_OPERATIONS} flushes and moves continue after their clients have disconnected"),
        format!("if {MAX_OPERATIONS} flushes and moves of other disconnected clients are incomplete"),
        format!("at most {MAX_OPEN} running flushes and moves are completed after a crash"),
    ] {
        assert!(page.contains(&figure), "{figure}");
    }
}

/// Compares the keys of `stats` that beanstalkd does not have, and the order of these keys, with the man page.
#[test]
fn the_man_page_has_every_statistic() {
    let page = read("man/beanpole.8");
    let list = page.split("these keys follow beanstalkd's keys:").nth(1).and_then(|rest| rest.split("\n.It").next());
    let listed: Vec<&str> = list
        .expect("a list")
        .lines()
        .filter_map(|line| line.split_once("Ql "))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|(_, key)| key.trim_end_matches([' ', ',', '.']))
        .collect();
    let server = Server::start().expect("a server");
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.write_all(b"stats\r\nquit\r\n").expect("a connection");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    let keys = reply.lines().filter_map(|line| line.split_once(": ")).map(|(key, _)| key);
    let ours: Vec<&str> = keys.skip_while(|key| *key != "platform").skip(1).collect();
    assert_eq!(listed, ours);
}

#[test]
fn the_synopsis_has_every_effective_option() {
    let page = read("man/beanpole.8");
    let synopsis = page.split(".Sh SYNOPSIS").nth(1).and_then(|rest| rest.split(".Sh ").next()).expect("SYNOPSIS");
    let idle = |opt: &&Flag<_>| !opt.help.contains("ignored");
    for opt in OPTIONS.iter().filter(idle) {
        let name = opt.short.map_or(format!("-{}", opt.long), |letter| letter.to_string());
        assert!(synopsis.split([' ', '\n']).any(|word| word == name), "{name} is not in the synopsis");
    }
}

#[test]
fn the_help_matches_the_table() {
    let daemon::Ended { code, out: help, err } = daemon::run(&["-h"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(help, format!("{}\n{}", usage(), beanpole::internals::ctl::usage()));
    assert_eq!(help.lines().find(|line| line.len() > 100), None, "the help must fit in 100 columns");
    let options = usage();
    // If the name of an option is too long for its column, `--help` prints the help text on a separate line.
    let options = options.replace(&format!("\n{:33}", ""), " ");
    let lines: Vec<&str> = options.lines().filter(|line| line.trim_start().starts_with('-')).collect();
    assert_eq!(lines.len(), OPTIONS.len());
    for (line, opt) in lines.iter().zip(&OPTIONS) {
        assert!(line.contains(&format!("--{}", opt.long)) && line.ends_with(opt.help), "{line}");
    }
}

/// Returns the lines of all inline code and code blocks.
fn code(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            found.push(line.trim().to_owned());
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found
}

#[test]
fn the_readme_is_short_and_mentions_what_exists() {
    let readme = read("README.md");
    let mut problems = Vec::new();
    let lines = readme.lines().count();
    if lines > README_LINES {
        problems.push(format!("README.md has {lines} lines"));
    }
    // These two commands must be on the first screen.
    let commands = readme.lines().take(40).filter(|line| line.starts_with("    make "));
    let commands: Vec<_> = commands.map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(commands, ["make run", "make test"]);
    for code in code(&readme) {
        let mut words = code.split(' ').peekable();
        let program = words.next_if(|word| !word.starts_with('-')).unwrap_or("beanpole");
        let row =
            beanpole::internals::ctl::SUBCOMMANDS.iter().find(|row| words.peek().is_some_and(|word| *word == row.name));
        if let Some(row) = row {
            // Arguments after `--` are the arguments of another program.
            let own = words.take_while(|word| *word != "--").filter(|word| word.starts_with('-'));
            let known = |word: &&str| {
                let names = row
                    .options()
                    .into_iter()
                    .map(|opt| (format!("--{}", opt.long), opt.short.map(|s| format!("-{s}"))));
                names.into_iter().any(|(long, short)| **word == long || short.as_deref() == Some(*word))
            };
            let options = own.filter(|word| !known(word));
            problems.extend(options.map(|option| format!("beanpole {} has no option {option}", row.name)));
        } else if program == "beanpole" {
            let options = words.filter(|word| word.starts_with('-') && !exists(word));
            problems.extend(options.map(|option| format!("there is no such option: {option}")));
        }
    }
    for target in readme.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        if !target.contains("://") && !Path::new(target).exists() {
            problems.push(format!("there is no such file: {target}"));
        }
    }
    complain(problems);
}

fn files(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        found.push(entry.display().to_string());
        if entry.is_dir() {
            files(&entry, found);
        }
    }
}

fn unit_words(unit: &str, key: &str) -> BTreeSet<String> {
    let text = read(unit);
    let lines = text.lines().filter_map(|line| line.strip_prefix(key));
    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

/// Starting a unit with `Conflicts=` stops the conflicting unit, even if a condition then prevents the start.
#[test]
fn no_unit_conflicts_with_another_unit() {
    for unit in ["beanpole.service", "beanpole.socket", "beanstalkd.service", "beanstalkd.socket"] {
        assert!(unit_words(&format!("pkg/systemd/{unit}"), "Conflicts=").is_empty(), "{unit}");
    }
    for unit in ["pkg/systemd/beanpole.service", "pkg/systemd/beanpole.socket"] {
        assert!(unit_words(unit, "ConditionPathIsSymbolicLink=").contains("!/usr/bin/beanstalkd"), "{unit}");
    }
}

/// After a permanent error, a restart would fail again, and repeated restarts would fill the log.
#[test]
fn the_units_do_not_restart_after_permanent_errors() {
    let page = read("man/beanpole.8");
    for (name, usage) in
        [("beanpole", BAD_USAGE), ("beanstalkd", BAD_USAGE), ("gearman-job-server", gearmand::BAD_USAGE)]
    {
        let unit = format!("pkg/systemd/{name}.service");
        let codes = unit_words(&unit, "RestartPreventExitStatus=");
        assert_eq!(codes, [usage, 10, 32, 33, 34, 111].map(|code| code.to_string()).into(), "{unit}");
        for code in codes {
            let is_documented =
                page.lines().any(|line| line.starts_with(".It ") && words(line).any(|word| word == code));
            assert!(is_documented, "EXIT STATUS has no {code}");
        }
    }
}

#[test]
fn the_services_have_the_same_settings() {
    for file in ["pkg/systemd/beanpole.service", "pkg/sysv/beanpole", "pkg/openrc/beanpole", "pkg/beanpole.default"] {
        assert!(read(file).contains("BEANPOLE_OPTIONS"), "{file}");
        assert!(read(file).contains("-l 127.0.0.1 -p 11300 -b /var/lib/beanpole"), "{file}");
    }
    assert!(unit_words("pkg/systemd/beanpole.service", "StateDirectory=").contains("beanpole"));
    for file in ["pkg/sysusers.d/beanpole.conf", "pkg/tmpfiles.d/beanpole.conf", "pkg/debian/beanpole.postinst"] {
        assert!(read(file).contains("/var/lib/beanpole"), "{file}");
    }
}

/// Two quotation macros on one line would not be rendered correctly.
#[test]
fn no_quotation_contains_another() {
    let mut problems = Vec::new();
    let mut pages = Vec::new();
    files(Path::new("man"), &mut pages);
    for path in pages {
        for (number, line) in read(&path).lines().enumerate().filter(|(_, line)| line.starts_with('.')) {
            if line.split(' ').filter(|word| word.trim_start_matches('.') == "Ql").count() > 1 {
                problems.push(format!("{path}:{}: {line}", number + 1));
            }
        }
    }
    complain(problems);
}

#[test]
fn the_page_of_http_has_every_path_and_every_metric() {
    let page = read("man/beanpole-http.7");
    let mut problems = Vec::new();
    for route in &ROUTES {
        let method = format!("{:?}", route.method).to_uppercase();
        let heading = format!(".It Cm {method} Pa {}\n", route.path);
        let short = format!(".It Pa {}\n", route.path);
        let Some((_, rest)) = page.split_once(&heading).or_else(|| page.split_once(&short)) else {
            problems.push(format!("not in the manual page: {method} {}", route.path));
            continue;
        };
        let text = rest.split("\n.It ").next().unwrap_or_default();
        let named =
            |argument: &&&str| text.contains(&format!(".Ql {argument}")) || page.contains(&format!("?{argument}="));
        let missing = route.arguments.iter().filter(|argument| !named(argument));
        problems.extend(missing.map(|argument| format!("{}: {argument}", route.path)));
    }
    let paths = page.lines().filter_map(|line| line.split_once(" Pa ")).map(|(_, path)| path);
    let unknown = paths.filter(|path| *path != "/api/" && !ROUTES.iter().any(|route| route.path == *path));
    problems.extend(unknown.map(|path| format!("there is no such path: {path}")));
    let heads = page.lines().filter(|line| line.starts_with(".It Sy ") && line.contains(" Pq ")).count();
    assert_eq!(heads, metrics().count());
    let rows = metrics().map(|it| format!(".It Sy {} Pq {}\n{}\n", it.name, it.kind, it.help.trim_end_matches('.')));
    problems.extend(rows.filter(|row| !page.contains(row)).map(|row| format!("missing: {row}")));
    complain(problems);
}

/// Returns the bytes of the example segment in beanpole-binlog(5).
fn shown_segment() -> Vec<u8> {
    let page = read("man/beanpole-binlog.5");
    let block = page.split(".Bd -literal\n").nth(1).and_then(|rest| rest.split(".Ed").next()).expect("an example");
    let digits = block.lines().flat_map(|line| line[9..50].chars().filter(char::is_ascii_hexdigit));
    let digits: Vec<u8> = digits.map(|digit| digit.to_digit(16).expect("a digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect()
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("beanpole-manual-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_documented_segment_is_readable() {
    let folder = Scratch::new("segment");
    let shown = shown_segment();
    assert_eq!(shown.len(), 253);
    fs::write(folder.0.join("segment.0000000001"), &shown).expect("a file");
    let config = Config::embedded().with(|config| config.log_folder = Some(folder.0.clone()));
    let server = Server::with(config).expect("a server");
    let mut client = Client::connect(server.address()).expect("a connection");
    assert_eq!(client.peek(1).expect("the job").body, b"hello");
    for (key, value) in [("tube", "\"mail\""), ("ttr", "60"), ("state", "ready"), ("pri", "0"), ("delay", "0")] {
        assert_eq!(client.figure("stats-job 1", key).expect("statistics"), value, "{key}");
    }
    assert_eq!(client.figure("stats", "binlog-state").expect("statistics"), "ok");
    assert_eq!(client.figure("stats", "binlog-records-skipped").expect("statistics"), "0");
    let next = client.put(b"next", 0, 0, 60).expect("a job");
    // The server skips the reserved IDs, because a server that has not stopped cleanly may have assigned them.
    assert_eq!(next, (1 << 20) + 1);
    assert!(read("man/beanpole-binlog.5").contains("IDs up to 1048576 may be assigned"));
    let begun = fs::read(folder.0.join("segment.0000000002")).expect("a second segment");
    assert_eq!(begun[..20], shown[..20]);
    assert_eq!(begun[20..28], 2_u64.to_le_bytes());
}

#[test]
fn the_page_names_each_subcommand() {
    let page = read("man/beanpole.8");
    let section =
        page.split(".Sh SUBCOMMANDS").nth(1).and_then(|rest| rest.split("\n.Sh ").next()).expect("SUBCOMMANDS");
    let documented: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix(".Cm ")?.split(' ').next()).collect();
    assert_eq!(documented, beanpole::internals::ctl::SUBCOMMANDS.iter().map(|row| row.name).collect::<Vec<_>>());
}

#[test]
fn the_pages_describe_the_binlog() {
    let page = read("man/beanpole.8");
    for words in [
        ".Xr beanpole-binlog 5",
        ".Ql binlog-state",
        ".Ql binlog-records-skipped",
        ".Ql binlog-segments-lost",
        ".Ql binlog-segments-stuck",
        ".Ql binlog-size",
        ".It 10\n",
        ".Fl -strict",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let format = read("man/beanpole-binlog.5");
    for kind in [
        "P :", "J :", "R ,", "X ,", "K :", "L :", "B :", "D :", "Z :", "N :", "C :", "I :", "S :", "G :", "F :", "Y :",
        "H :",
    ] {
        assert!(format.contains(&format!(".Sy {kind}\n")), "kind {kind}");
    }
    for name in ["lock", "segment.begun", "import.begun", "import.done", "damaged/", "beanstalkd/"] {
        assert!(format.contains(&format!(".It Pa {name}\n")), "file {name}");
    }
    for option in ["-b", "-f0", "-F", "-s"] {
        assert!(read("README.md").contains(option), "{option}");
    }
}

/// Returns the lines of each conversation. `true` marks a line that the reader types.
fn conversations(text: &str) -> Vec<Vec<(bool, String)>> {
    let is_command = |line: &str| COMMANDS.iter().any(|row| line.starts_with(row.word));
    let has_body = |line: &str| line.starts_with("put ") || line.starts_with("fail ");
    let blocks = text
        .split("\n.Bd ")
        .flat_map(|block| block.split("\n```"))
        .filter(|block| block.lines().any(|line| line == "quit"));
    let mut found = Vec::new();
    for block in blocks {
        let lines = block.lines().skip(1).skip_while(|line| !is_command(line));
        let mut is_body = false;
        let mut conversation = Vec::new();
        for line in lines.take_while(|line| !line.starts_with(".Ed")) {
            conversation.push((is_command(line) || is_body, line.to_owned()));
            is_body = has_body(line) && !is_body;
        }
        assert!(conversation.last().is_some_and(|(typed, line)| *typed && line == "quit"), "{conversation:?}");
        found.push(conversation);
    }
    assert!(!found.is_empty(), "no conversation");
    found
}

#[test]
fn documented_conversations_work_as_shown() {
    let mut commands = String::new();
    for file in ["README.md", "man/beanpole.8", "man/beanpole-beanstalk.7"] {
        for conversation in conversations(&read(file)) {
            let server = Server::start().expect("a server");
            let mut client = Client::connect(server.address()).expect("a connection");
            for (typed, line) in conversation {
                if typed {
                    commands += &format!("{file}: {line} ");
                    client.send(format!("{line}\r\n").as_bytes()).expect("a connection");
                } else {
                    assert_eq!(client.line().expect("a reply"), line, "{file}");
                }
            }
            assert!(client.line().is_err(), "{file}: quit must close the connection");
        }
    }
    let set_tubes: String =
        commands.split("man/beanpole-beanstalk.7: ").filter(|it| it.starts_with("set-tube ")).collect();
    for word in SETTINGS {
        assert!(set_tubes.contains(&format!(" {word}:")), "no conversation in beanpole-beanstalk(7) for {word}");
    }
    for word in ["fail", "reserve-mode weighted-fair", "reserve-with-abort"] {
        assert!(commands.contains(&format!("man/beanpole-beanstalk.7: {word} ")), "no conversation for {word}");
    }
}

/// Returns the heading that the protocol's man page must have for a command.
fn command_heading(row: &CommandRow) -> String {
    let mut heading = format!(".It Ic {}", row.word.trim());
    let arguments = row.arguments.replace(['<', '>'], "");
    let (needed, optional) = arguments.split_once('[').unwrap_or((&arguments, ""));
    if !needed.trim().is_empty() {
        heading += &format!(" Ar {}", needed.trim());
    }
    for word in optional.split('[').map(|word| word.trim_matches(|letter| " ]".contains(letter))) {
        if !word.is_empty() {
            heading += &format!(" Op Ar {word}");
        }
    }
    heading
}

#[test]
fn the_page_of_the_protocol_has_every_command_and_extension_and_no_other() {
    let page = read("man/beanpole-beanstalk.7");
    let mut expected: BTreeSet<String> = COMMANDS.iter().map(command_heading).collect();
    let found: BTreeSet<String> = page.lines().filter(|line| line.starts_with(".It Ic ")).map(str::to_owned).collect();
    let tags: BTreeSet<String> = found.iter().filter(|line| line.contains(" : Ns ")).cloned().collect();
    let tag_words: BTreeSet<&str> = tags.iter().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(
        tag_words,
        TAGS.iter().map(|(word, _)| std::str::from_utf8(word).unwrap().trim_end_matches(':')).collect(),
        "the tags"
    );
    expected.extend(tags);
    assert_eq!(found, expected);
    for word in SETTINGS {
        assert!(page.contains(&format!(".It Cm {word} : Ns ")), "the setting {word}");
    }
    for (_, word) in EXTENSIONS {
        assert!(page.contains(&format!(".It Ql {word}\n")), "the extension {word}");
    }
}

/// If this test fails, run `make picture`.
#[test]
fn the_picture_shows_the_published_results() {
    let drawn = drawing::draw(&read("benches/RESULTS.md")).expect("figures");
    assert!(read("README.md").contains("(benches/figures.svg)"));
    assert!(drawn == read("benches/figures.svg"), "make picture");
    assert_eq!(publish::csv(&read("benches/RESULTS.md")).unwrap(), read("benches/figures.csv"), "make picture");
    let figures = read("benches/figures.csv");
    for start in ["put-50,\"CPU, ", "mem-jobs,\"bytes for a ready job "] {
        let row = figures.lines().find(|line| line.starts_with(start)).expect("a row");
        for figure in row.rsplit(',').take(2) {
            let figure: f64 = figure.parse().expect("a number");
            assert!(drawn.contains(&format!(">{figure}<")), "{row}");
        }
    }
    assert_eq!(drawing::draw("| scenario | what |\n|---|---|\n| put-50 | a put |\n"), None);
}

#[test]
fn new_results_replace_only_the_tables_and_the_commit() {
    let columns = "a | b | c | d | e | f | g | h | i | j | k | l | m | n | o | p | q";
    let columns = columns.replacen("a | b", "scenario | what", 1);
    let measured = format!(
        "| {columns} |\n|---|---|\n| put-50 | a put | 1.5k | 2.25M | 2 | 2 | 4.00 | 2.00 | 0.5 |  | 1 / 2 / 3 | 4 / 5 / 6 |\n\n\
         | scenario | figure | peer | ours | × | goal |\n|---|---|\n| mem-jobs | bytes | 300 | 100 | 0.33 | ≤ 120 ✓ |\n\n- a note\n"
    );
    let before = read("benches/RESULTS.md");
    let mut results = before.clone();
    for commit in ["1234abc", "5678def"] {
        results = publish::published(&results, &measured, commit).expect("tables");
        assert!(results.contains(&format!("\nMeasured at commit {commit}.\n\n| scenario | what |")));
        assert_eq!(results.matches("Measured at commit").count(), 1);
        assert!(results.contains("|\n| put-50 | a put | 1.5k | 2.25M | 2 | 2 | 4.00 | 2.00 | 0.5 | – |\n\n"));
        assert!(results.contains("|\n| mem-jobs | bytes | 300 | 100 | 0.33 | ≤ 120 ✓ |\n\n"));
    }
    let rest = |text: &str| -> Vec<String> {
        let is_kept =
            |line: &&str| !line.starts_with('|') && !line.is_empty() && !line.starts_with("Measured at commit");
        text.lines().filter(is_kept).map(str::to_owned).collect()
    };
    assert_eq!(rest(&results), rest(&before));
    let csv = "scenario,figure,beanstalkd,beanpole\nput-50,\"operations a second\",1500,2250000\n\
        put-50,\"CPU, microseconds an operation\",4.00,2.00\nmem-jobs,\"bytes\",300,100\n";
    assert_eq!(publish::csv(&results).expect("tables"), csv);
}
