//! The subcommands `stats`, `tubes`, `tube`, `pause` and `resume`.
//!
//! Owns the columns of the tube table, and pipelined queries for many tubes. Must tolerate tubes that disappear between
//! two queries.

use super::jobs::for_each;
use super::lists::name_holder;
use super::prelude::*;
use crate::protocol::beanstalk::read_settings;

/// Headings, and keys in the server's reply, or [`OTHER`].
#[rustfmt::skip]
const COLUMNS: [(&str, &str); 12] = [
    ("tube", "name"), ("ready", "current-jobs-ready"), ("reserved", "current-jobs-reserved"),
    ("delayed", "current-jobs-delayed"), ("buried", "current-jobs-buried"), ("other", OTHER),
    ("waiting", "current-waiting"), ("total", "total-jobs"), ("deleted", "cmd-delete"), ("paused", "pause-time-left"),
    ("watching", "current-watching"), ("oldest ready", "oldest-ready-age"),
];

/// Held jobs and schedules, of which most tubes have none.
const OTHER: &str = "";

pub fn stats(call: &Call, out: &mut Out) -> Result<u8> {
    let mut commands = Vec::new();
    for name in &call.operands {
        commands.push(format!("stats-tube {}", tube(name)?));
    }
    for id in call.values(&JOB) {
        commands.push(format!("stats-job {}", number("--job", &id, 1, u64::MAX)?));
    }
    commands.extend(call.groups()?.iter().map(|group| format!("stats-group {group}")));
    if commands.is_empty() {
        commands.push("stats".to_owned());
    }
    let mut is_first = true;
    for_each(call, commands, &mut |link, command| {
        let is_next = !std::mem::take(&mut is_first);
        let mut stats = link.existing(&command)?;
        if call.has(&JSON) {
            return out.line(&stats.object());
        }
        name_holder(link, &mut stats)?;
        if is_next && out.is_terminal {
            out.line("")?;
        }
        print(&stats, out)
    })
}

fn print(stats: &StatsReply, out: &mut Out) -> Result {
    let width = stats.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    for (key, value) in stats.iter() {
        let value = if yaml::NAMES.contains(&key) { value.into() } else { name::bytes(value) };
        let (key, value) = (on_one_line(key.as_bytes()), on_one_line(&value));
        match out.is_terminal {
            true => out.line(&format!("{key:width$}  {value}"))?,
            false => out.line(&format!("{key}\t{value}"))?,
        }
    }
    Ok(())
}

pub fn tubes(call: &Call, out: &mut Out) -> Result<u8> {
    let named = call.tubes()?;
    let mut link = Link::open(call)?;
    let names = if named.is_empty() { link.tubes()? } else { named };
    let (mut list, mut code) = (Listing::new(out, call.has(&JSON)), DONE);
    let refused = each_tube(&mut link, &names, &mut |name, stats| match stats {
        // A listed tube can disappear before the query.
        None if call.operands.is_empty() => Ok(()),
        None => {
            print_stderr(&format!("there is no tube {name}"));
            code = REFUSED;
            Ok(())
        }
        Some(stats) => list.add(&|| stats.object(), &|| {
            let numbers = COLUMNS.iter().skip(1).map(|(_, key)| match *key {
                OTHER => stats.other_jobs().to_string(),
                "oldest-ready-age" if stats.number("current-jobs-ready") == 0 => "-".to_owned(),
                key => stats.text(key).to_owned(),
            });
            [name.to_owned()].into_iter().chain(numbers).collect()
        }),
    })?;
    if report_refused(&refused) {
        code = REFUSED;
    }
    list.finish(&COLUMNS.map(|(head, _)| head)).map(|()| code)
}

type OnTube<'a> = &'a mut dyn FnMut(&str, Option<StatsReply>) -> Result;

/// Passes name and statistics to `each`, or `None` if there is no such tube. Returns a message for each rejected query.
pub fn each_tube(link: &mut Link, names: &[String], each: OnTube) -> Result<Vec<String>> {
    let mut refused = Vec::new();
    ask_each(link, "stats-tube", &mut names.iter().cloned(), &mut |index, reply| {
        let name = &names[index];
        match stats_of(&format!("stats-tube {name}"), &reply) {
            Ok(stats) => each(name, stats)?,
            Err(problem) => refused.push(format!("{name}: {}", problem.text)),
        }
        Ok(())
    })?;
    Ok(refused)
}

pub fn report_refused(refused: &[String]) -> bool {
    refused.iter().for_each(|text| print_stderr(text));
    !refused.is_empty()
}

pub fn tube_settings(call: &Call, out: &mut Out) -> Result<u8> {
    let name = tube(&call.operands[0])?;
    let settings = call.operands[1..].join(" ");
    let none = call.has(&NONE);
    if read_settings(settings.as_bytes()).is_none() {
        return Err(Problem::usage(format!("tube: invalid settings: {}", settings.escape_debug())));
    }
    if none && !settings.is_empty() {
        return Err(Problem::usage("tube: --none cannot be used with settings"));
    }
    let mut link = Link::open(call)?;
    if none || !settings.is_empty() {
        return link.expect(format!("set-tube {name} {settings}").trim_end(), "SET").map(|_| DONE);
    }
    let stats = link.tube(&name)?;
    out.line(&on_one_line(stats.text("settings").as_bytes())).map(|()| DONE)
}

pub fn pause(call: &Call, _: &mut Out) -> Result<u8> {
    let name = tube(&call.operands[0])?;
    let seconds = number("pause", &call.operands[1], 0, u32::MAX.into())?;
    Link::open(call)?.expect(&format!("pause-tube {name} {seconds}"), "PAUSED").map(|_| DONE)
}

pub fn resume(call: &Call, _: &mut Out) -> Result<u8> {
    for_each(call, call.tubes()?, &mut |link, name| link.expect(&format!("pause-tube {name} 0"), "PAUSED").map(drop))
}
