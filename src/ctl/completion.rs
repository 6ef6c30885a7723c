//! The subcommand `completion`, which inserts the options and subcommands into the templates in `completion/`.

use super::prelude::*;
use super::SUBCOMMANDS;
use crate::protocol::beanstalk::SETTINGS;
use crate::settings::options::OPTIONS;

pub fn run(call: &Call, out: &mut Out) -> Result<u8> {
    let wrong = |name| format!("unknown shell: {name}; must be one of bash, zsh, fish");
    let [options, names, subcommands, script] = match call.operands[0].as_str() {
        "bash" => bash(),
        "zsh" => zsh(),
        "fish" => fish(),
        other => return Err(Problem::usage(wrong(other.escape_debug()))),
    };
    let script = script.replace("@OPTIONS@", &options).replace("@NAMES@", &names);
    // The subcommands can contain `@SETTINGS@`, so replace it last.
    let script = script.replace("@SUBCOMMANDS@", &subcommands);
    out.line(script.replace("@SETTINGS@", &SETTINGS.map(|word| format!("{word}:")).join(" ")).trim_end()).map(|()| DONE)
}

fn options_of(row: &Subcommand) -> impl Iterator<Item = &'static Flag> {
    row.options().into_iter().chain([&HELP])
}

/// Returns the code that completes the operands in bash, zsh and fish.
fn operands(row: &Subcommand) -> [&'static str; 3] {
    match row.takes {
        OperandKind::Tube => ["tubes", "'*:tube:_beanpole_tubes'", "-a '(__beanpole_tubes)'"],
        OperandKind::Command => ["words '--'; tubes", "'*:tube:_beanpole_tubes'", "-a '(__beanpole_tubes)'"],
        OperandKind::Settings => [
            "[ \"$COMP_CWORD\" = 2 ] && tubes || settings",
            "'1:tube:_beanpole_tubes' '*:setting:_beanpole_settings'",
            "-a '(__beanpole_tubes) @SETTINGS@'",
        ],
        OperandKind::File => ["files -f", "'*:file:_files'", "-F"],
        OperandKind::Folder => ["files -d", "'*:folder:_files -/'", "-F"],
        OperandKind::Shell => ["words 'bash zsh fish'", "'*:shell:(bash zsh fish)'", "-a 'bash zsh fish'"],
        OperandKind::Job | OperandKind::Text => ["words ''", "'*:text: '", ""],
    }
}

/// Returns the code for an option's value in zsh and fish.
fn value(opt: &Flag) -> [&'static str; 2] {
    match opt.long {
        "tube" => ["_beanpole_tubes", "-x -a '(__beanpole_tubes)'"],
        "file" | "cacert" | "cert" | "key" | "token-file" => ["_files", "-r -F"],
        "binlog" => ["_files -/", "-r -F"],
        "state" => {
            ["(ready delayed buried reserved held scheduled)", "-x -a 'ready delayed buried reserved held scheduled'"]
        }
        _ => [" ", "-x"],
    }
}

/// Returns the options, the names of the subcommands, the code for the subcommands, and the template.
fn bash() -> [String; 4] {
    let mut subcommands = String::new();
    for row in &SUBCOMMANDS {
        let options = options_of(row).flat_map(Flag::names).collect::<Vec<_>>().join(" ");
        let [operands, ..] = operands(row);
        subcommands +=
            &format!("    {})\n        case $word in -*) words '{options}' ;; *) {operands} ;; esac ;;\n", row.name);
    }
    let options = OPTIONS.iter().map(|opt| format!("--{}", opt.long)).collect::<Vec<_>>().join(" ");
    let names = SUBCOMMANDS.iter().map(|row| row.name).collect::<Vec<_>>().join(" ");
    [options, names, subcommands, include_str!("completion/beanpole.bash").to_owned()]
}

fn zsh_help(text: &str) -> String {
    text.replace('\'', "'\\''").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:")
}

fn zsh() -> [String; 4] {
    let (mut names, mut subcommands) = (String::new(), String::new());
    for row in &SUBCOMMANDS {
        names += &format!("    '{}:{}'\n", row.name, zsh_help(row.help));
        let mut specs = String::new();
        for opt in options_of(row) {
            let value = opt.value.map_or(String::new(), |name| format!(":{name}:{}", value(opt)[0]));
            for name in opt.names() {
                specs += &format!("'*{name}[{}]{value}' ", zsh_help(opt.help));
            }
        }
        let [_, operands, _] = operands(row);
        subcommands +=
            &format!("  {})\n    shift words; (( CURRENT-- ))\n    _arguments {specs}{operands} ;;\n", row.name);
    }
    let options = OPTIONS.iter().map(|opt| format!(" '*--{}[{}]'", opt.long, zsh_help(opt.help))).collect();
    [options, names, subcommands, include_str!("completion/beanpole.zsh").to_owned()]
}

fn fish() -> [String; 4] {
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let short = |letter: Option<char>| letter.map_or(String::new(), |letter| format!(" -s {letter}"));
    let mut options = String::new();
    for opt in &OPTIONS {
        let value = if opt.value.is_some() && !opt.optional { " -r" } else { "" };
        let (short, help) = (short(opt.short), quoted(opt.help));
        options += &format!("complete -c beanpole -n __fish_use_subcommand{short} -l {}{value} -d {help}\n", opt.long);
    }
    let mut subcommands = String::new();
    for row in &SUBCOMMANDS {
        let help = quoted(row.help);
        subcommands += &format!("complete -c beanpole -n __fish_use_subcommand -a {} -d {help}\n", row.name);
        let when = format!("complete -c beanpole -n '__fish_seen_subcommand_from {}'", row.name);
        for opt in options_of(row) {
            let value = opt.value.map_or(String::new(), |_| format!(" {}", value(opt)[1]));
            subcommands += &format!("{when}{} -l {}{value} -d {}\n", short(opt.short), opt.long, quoted(opt.help));
        }
        match operands(row)[2] {
            "" => {}
            operands => subcommands += &format!("{when} {operands}\n"),
        }
    }
    [options, String::new(), subcommands, include_str!("completion/beanpole.fish").to_owned()]
}
