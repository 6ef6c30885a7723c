//! The subcommand `check-access`, which verifies an access file and explains its rules.
//!
//! Owns the format of the results. Must not decide about access, because the decisions must be the same as in the
//! server.

use std::path::Path;
use std::sync::Arc;

use super::prelude::*;
use crate::access::{self, AccessTable, Accounts, ClientAccess, Need, Right, Scope};
use crate::protocol::needs;
use crate::shared::machine;

pub fn run(call: &Call, out: &mut Out) -> Result<u8> {
    let (file, question) = match call.operands.as_slice() {
        [file] => (file, None),
        [file, name, command, tube] => (file, Some((name, command, tube))),
        _ => return Err(Problem::usage("usage: beanpole check-access FILE [NAME COMMAND TUBE]")),
    };
    let path = Path::new(file);
    let failed = |text| Problem::new(EMPTY, text);
    let bytes = std::fs::read(path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
    let accounts = Accounts { user: &machine::user_number, group: &machine::group_number };
    let mut printed = Ok(());
    let table = access::parse(&bytes, &accounts, |line, column, problem| {
        if printed.is_ok() {
            printed = out.line(&format!("{}:{line}:{column}: {problem}", path.display()));
        }
    });
    printed?;
    let Some(table) = table else { return Ok(REFUSED) };
    let Some((name, command, tube)) = question else {
        out.line(&format!("{}: names: {}", path.display(), table.entries.len()))?;
        return Ok(DONE);
    };
    let found = needs(command);
    if found.is_empty() {
        return Err(failed(format!("no protocol has the command {}", command.escape_debug())));
    }
    let mut code = DONE;
    for (protocol, command, need) in found {
        let (allowed, text) = decide(&table, name, need, tube).map_err(failed)?;
        if !allowed {
            code = REFUSED;
        }
        out.line(&format!("{protocol} {command}: {text}"))?;
    }
    Ok(code)
}

/// Returns `true` if the client may execute the command, and the reason.
fn decide(table: &AccessTable, name: &str, need: Need, tube: &str) -> Result<(bool, String), String> {
    let entry = table.name(name).or_else(|| table.name("*"));
    let entry = entry.ok_or_else(|| format!("the file has no line for {} or *", name.escape_debug()))?;
    let access = ClientAccess::new(Arc::new(table.clone()), &entry.credentials, true);
    let tube = Some(tube.as_bytes());
    let (line, by) = (entry.line, &entry.name);
    if access.check(need, tube).is_ok() {
        return Ok((true, format!("allowed by line {line} ({by})")));
    }
    if need.scope == Scope::OwnJob && access.check(Need::TAKE_JOB, tube).is_ok() {
        return Ok((true, format!("allowed by line {line} ({by}) for jobs that the client has reserved")));
    }
    let rights: Vec<&str> = need.rights.iter().map(|right| Right::name(*right)).collect();
    let scope = match need.scope {
        Scope::AllTubes => " on every tube",
        Scope::AnyTube | Scope::Open => "",
        _ => " on this tube",
    };
    Ok((false, format!("refused: line {line} ({by}) does not give {}{scope}", rights.join(" or "))))
}
