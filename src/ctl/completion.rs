//! `completion`: the completion of command lines in shells.
//!
//! Owns the three scripts, which are generated from the tables of options and subcommands. Only the generated scripts
//! may query a server, for the names of tubes.

use super::call::{Call, OperandKind, Subcommand};
use super::opts::{Flag, HELP};
use super::out::Out;
use super::problem::{Problem, DONE};
use super::table::SUBCOMMANDS;
use crate::protocol::beanstalk::SETTINGS;
use crate::settings::options::OPTIONS;

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let text = match call.operands[0].as_str() {
        "bash" => bash(),
        "zsh" => zsh(),
        "fish" => fish(),
        other => {
            let other = other.escape_debug();
            return Err(Problem::usage(format!(
                "there are no completions for {other}; there are some for bash, zsh, fish"
            )));
        }
    };
    out.line(text.trim_end())?;
    Ok(DONE)
}

fn options_of(row: &Subcommand) -> impl Iterator<Item = &'static Flag> {
    row.options().into_iter().chain([&HELP])
}

/// Returns the settings of a tube, each up to its value.
fn settings() -> String {
    SETTINGS.map(|row| format!("{}:", row.word)).join(" ")
}

/// Returns the completion of the operands in bash.
fn operands(kind: OperandKind) -> &'static str {
    match kind {
        OperandKind::Tube => "tubes",
        OperandKind::Settings => "[ \"$COMP_CWORD\" = 2 ] && tubes || settings",
        OperandKind::Command => "words '--'; tubes",
        OperandKind::File => "files -f",
        OperandKind::Folder => "files -d",
        OperandKind::Shell => "words 'bash zsh fish'",
        OperandKind::Job | OperandKind::Text => "words ''",
    }
}

fn bash() -> String {
    let mut text = String::from(
        "# bash completion for beanpole(8) and beanpole-ctl(1)\n\
         _beanpole_tubes() {\n    beanpole tubes --timeout 1 2>/dev/null </dev/null | sed -n '2,$s/\\t.*//p'\n}\n\
         _beanpole() {\n    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n    COMPREPLY=()\n    \
         words() { COMPREPLY=($(compgen -W \"$1\" -- \"$word\")); }\n    \
         tubes() {\n        local tube\n        while IFS= read -r tube; do\n            \
         [[ $tube == \"$word\"* ]] && COMPREPLY+=(\"$(printf %q \"$tube\")\")\n        \
         done < <(_beanpole_tubes)\n    }\n    \
         files() { compopt -o filenames; COMPREPLY=($(compgen \"$1\" -- \"$word\")); }\n    \
         if [ \"$COMP_CWORD\" = 1 ] || [[ ${COMP_WORDS[1]} == -* ]]; then\n",
    );
    let server: Vec<String> = OPTIONS.iter().map(|opt| format!("--{}", opt.long)).collect();
    let all: Vec<&str> = SUBCOMMANDS.iter().map(|row| row.name).collect();
    text += &format!("        case $word in\n        -*) words '{}' ;;\n", server.join(" "));
    text += &format!("        *) [ \"$COMP_CWORD\" = 1 ] && words '{}' || files -f ;;\n        esac\n", all.join(" "));
    text += &format!("        return\n    fi\n    settings() {{ compopt -o nospace; words '{}'; }}\n", settings());
    text += "    case $before in\n    -t | --tube) tubes; return ;;\n    \
             -f | --file | --cacert | --cert | --key | --token-file) files -f; return ;;\n    --state) words 'ready delayed buried reserved held scheduled'; return ;;\n    esac\n    \
             case ${COMP_WORDS[1]} in\n";
    for row in &SUBCOMMANDS {
        let options = options_of(row).flat_map(Flag::names).collect::<Vec<_>>().join(" ");
        let operands = operands(row.takes);
        text +=
            &format!("    {})\n        case $word in -*) words '{options}' ;; *) {operands} ;; esac ;;\n", row.name);
    }
    text + "    esac\n}\ncomplete -F _beanpole beanpole\n"
}

/// Escapes a help text for single quotes and brackets in zsh, where colons and brackets have a meaning.
fn zsh_help(text: &str) -> String {
    text.replace('\'', "'\\''").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:")
}

fn zsh() -> String {
    let mut text = String::from(
        "#compdef beanpole\n# zsh completion for beanpole(8) and beanpole-ctl(1)\n\
         _beanpole_tubes() {\n  local -a tubes\n  \
         tubes=(${(f)\"$(beanpole tubes --timeout 1 2>/dev/null </dev/null | sed -n '2,$s/\\t.*//p')\"})\n  \
         compadd -a tubes\n}\n",
    );
    text += &format!("_beanpole_settings() {{\n  compadd -S '' -- {}\n}}\n", settings());
    text += "_beanpole() {\n  local -a subcommands\n  subcommands=(\n";
    for row in &SUBCOMMANDS {
        text += &format!("    '{}:{}'\n", row.name, zsh_help(row.help));
    }
    text += "  )\n  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n    _describe subcommand subcommands\n    \
             return\n  fi\n  local word=$words[2]\n  case $word in\n";
    for row in &SUBCOMMANDS {
        let specs = options_of(row).flat_map(|opt| {
            let value = opt.value.map_or(String::new(), |value| format!(":{value}:{}", zsh_value(opt)));
            opt.names().map(move |name| format!("'*{name}[{}]{value}'", zsh_help(opt.help)))
        });
        let operand = match row.takes {
            OperandKind::Tube | OperandKind::Command => "'*:tube:_beanpole_tubes'",
            OperandKind::Settings => "'1:tube:_beanpole_tubes' '*:setting:_beanpole_settings'",
            OperandKind::File => "'*:file:_files'",
            OperandKind::Folder => "'*:folder:_files -/'",
            OperandKind::Shell => "'*:shell:(bash zsh fish)'",
            OperandKind::Job | OperandKind::Text => "'*:text: '",
        };
        let specs: Vec<String> = specs.chain([operand.to_owned()]).collect();
        text += &format!("  {})\n    shift words; (( CURRENT-- ))\n    _arguments {} ;;\n", row.name, specs.join(" "));
    }
    text += "  *)\n    _arguments";
    for opt in &OPTIONS {
        text += &format!(" '*--{}[{}]'", opt.long, zsh_help(opt.help));
    }
    text + " ;;\n  esac\n}\n_beanpole \"$@\"\n"
}

fn zsh_value(opt: &Flag) -> &'static str {
    match opt.long {
        "tube" => "_beanpole_tubes",
        "file" | "cacert" | "cert" | "key" | "token-file" => "_files",
        "binlog" => "_files -/",
        "state" => "(ready delayed buried reserved held scheduled)",
        _ => " ",
    }
}

fn fish() -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut text = String::from(
        "# fish completion for beanpole(8) and beanpole-ctl(1)\n\
         function __beanpole_tubes\n    beanpole tubes --timeout 1 2>/dev/null </dev/null | sed -n '2,$s/\\t.*//p'\nend\n\
         complete -c beanpole -f\n",
    );
    for opt in &OPTIONS {
        let value = if opt.value.is_some() && !opt.optional { " -r" } else { "" };
        let short = opt.short.map_or(String::new(), |letter| format!(" -s {letter}"));
        let help = quoted(opt.help);
        text += &format!("complete -c beanpole -n __fish_use_subcommand{short} -l {}{value} -d {help}\n", opt.long);
    }
    for row in &SUBCOMMANDS {
        let help = quoted(row.help);
        text += &format!("complete -c beanpole -n __fish_use_subcommand -a {} -d {help}\n", row.name);
        let when = format!("complete -c beanpole -n '__fish_seen_subcommand_from {}'", row.name);
        for opt in options_of(row) {
            let short = opt.short.map_or(String::new(), |letter| format!(" -s {letter}"));
            let value = match (opt.value, opt.long) {
                (None, _) => "",
                (_, "tube") => " -x -a '(__beanpole_tubes)'",
                (_, "state") => " -x -a 'ready delayed buried reserved held scheduled'",
                (_, "file" | "binlog" | "cacert" | "cert" | "key" | "token-file") => " -r -F",
                _ => " -x",
            };
            text += &format!("{when}{short} -l {}{value} -d {}\n", opt.long, quoted(opt.help));
        }
        match row.takes {
            OperandKind::Tube | OperandKind::Command => text += &format!("{when} -a '(__beanpole_tubes)'\n"),
            OperandKind::Settings => text += &format!("{when} -a '(__beanpole_tubes) {}'\n", settings()),
            OperandKind::File | OperandKind::Folder => text += &format!("{when} -F\n"),
            OperandKind::Shell => text += &format!("{when} -a 'bash zsh fish'\n"),
            OperandKind::Job | OperandKind::Text => {}
        }
    }
    text
}
