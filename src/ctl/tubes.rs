//! Subcommands for tubes: `stats`, `tubes`, `tube`, `pause`, `resume`, `move` and `clear`. `move` and `clear` have
//! fallbacks for servers that lack `move-tube` or `flush-tube`. Tubes can disappear between two queries.

use super::jobs::{for_each, free_state, state_of};
use super::lists::name_holder;
use super::prelude::*;
use crate::engine::State;
use crate::protocol::beanstalk::read_settings;

/// Headings, and keys in the server's reply. The empty key stands for held jobs and schedules.
#[rustfmt::skip]
const COLUMNS: [(&str, &str); 12] = [
    ("tube", "name"), ("ready", "current-jobs-ready"), ("reserved", "current-jobs-reserved"),
    ("delayed", "current-jobs-delayed"), ("buried", "current-jobs-buried"), ("other", ""),
    ("waiting", "current-waiting"), ("total", "total-jobs"), ("deleted", "cmd-delete"), ("paused", "pause-time-left"),
    ("watching", "current-watching"), ("oldest ready", "oldest-ready-age"),
];

pub fn stats(call: &Call, out: &mut Out) -> Result<u8> {
    let mut commands: Vec<String> = call.tubes()?.iter().map(|name| format!("stats-tube {name}")).collect();
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
        let value = if yaml::NAMES.contains(&key) { value.into() } else { yaml::name_bytes(value) };
        let (key, value) = (on_one_line(key.as_bytes()), on_one_line(&value));
        out.line(&if out.is_terminal { format!("{key:width$}  {value}") } else { format!("{key}\t{value}") })?;
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
            code = report_refused(&[format!("there is no tube {name}")]);
            Ok(())
        }
        Some(stats) => list.add(&|| stats.object(), &|| {
            let numbers = COLUMNS.iter().skip(1).map(|(_, key)| match *key {
                "" => stats.other_jobs().to_string(),
                "oldest-ready-age" if stats.number("current-jobs-ready") == 0 => "-".to_owned(),
                key => stats.text(key).to_owned(),
            });
            [name.to_owned()].into_iter().chain(numbers).collect()
        }),
    })?;
    code = code.max(report_refused(&refused));
    list.finish(&COLUMNS.map(|(head, _)| head)).map(|()| code)
}

pub fn tube_settings(call: &Call, out: &mut Out) -> Result<u8> {
    let name = tube(&call.operands[0])?;
    let settings = call.operands[1..].join(" ");
    let none = call.has(&NONE);
    let are_valid = read_settings(settings.as_bytes()).is_some();
    Problem::check_usage(are_valid, &format!("tube: invalid settings: {}", settings.escape_debug()))?;
    Problem::check_usage(!none || settings.is_empty(), "tube: --none cannot be used with settings")?;
    let mut link = Link::open(call)?;
    if none || !settings.is_empty() {
        return link.expect(format!("set-tube {name} {settings}").trim_end(), "SET").map(|_| DONE);
    }
    let stats = link.existing(&format!("stats-tube {name}"))?;
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

const BATCH: usize = 100;

/// If the fallback for servers without `move-tube` fails, no job is lost, but a job can exist in both tubes.
pub fn move_jobs(call: &Call, out: &mut Out) -> Result<u8> {
    let (from, to) = (tube(&call.operands[0])?, tube(&call.operands[1])?);
    Problem::check_usage(from != to, "move: the two tubes are the same")?;
    let state = state_of(call)?;
    let limit = call.number(&MOVED, 1, u64::MAX)?;
    let some = limit.map_or(String::new(), |limit| format!("at most {limit} "));
    confirm(&format!("Move {some}{state} jobs from {from} to {to}?"), call.has(&YES))?;
    let mut link = Link::open(call)?;
    let limit = limit.unwrap_or(u64::MAX);
    // The wait for the reply to `move-tube` has no time limit, so check first that the server responds.
    let stats = link.visible_tube(&from)?.ok_or_else(|| refusal(&format!("stats-tube {from}"), "NOT_FOUND"))?;
    let command = format!("move-tube {from} {to} {state} {}", limit.min(u32::MAX.into()));
    let reply = link.ask_within(&command, None)?;
    let moved = match (first_word(&reply.line), reply.number("MOVED")) {
        (_, Some(moved)) => moved,
        ("UNKNOWN_COMMAND", _) => {
            tell("the server does not support move-tube: jobs are put again, with new IDs, ages and counts");
            // A producer could add jobs forever, so move only as many as existed initially.
            let limit = limit.min(stats.number(&format!("current-jobs-{state}")));
            move_one_by_one(&mut link, &from, &to, &state, limit)?
        }
        _ => return Err(refusal(&command, &reply.line)),
    };
    out.line(&moved.to_string()).map(|()| DONE)
}

fn move_one_by_one(link: &mut Link, from: &str, to: &str, state: &str, limit: u64) -> Result<u64> {
    link.use_tube(from)?;
    link.watch(&[from.to_owned()])?;
    let mut progress = ProgressBar::new("jobs moved");
    let (mut moved, mut attempts) = (0, 0..limit.saturating_mul(2));
    while moved < limit && attempts.next().is_some() {
        let Some((id, _)) = link.peek_next(state)? else { break };
        let stats = link.query(&format!("stats-job {id}"))?;
        let record = stats.as_ref().and_then(JobLine::of);
        let Some(record) = record.filter(|record| record.state.word() == state) else { continue };
        let reply = link.ask(&format!("reserve-job {id}"))?;
        // Skip a job that another client has reserved.
        let Some((_, body)) = job_of("reserve-job", reply)? else { continue };
        if let Err(problem) = put_copy(link, to, &record, &body) {
            give_back(link, &record);
            return Err(problem);
        }
        link.expect(&format!("delete {id}"), "DELETED")?;
        link.use_tube(from)?;
        moved += 1;
        progress.update(moved, Some((moved, limit)));
    }
    Ok(moved)
}

fn put_copy(link: &mut Link, to: &str, record: &JobLine, body: &[u8]) -> Result {
    link.use_tube(to)?;
    let is_buried = record.state == State::Buried;
    let delay = if is_buried { MAX_DELAY } else { record.delay };
    let mut bytes = Vec::new();
    put(&mut bytes, (record.pri, delay, record.ttr), "", body);
    link.send(&bytes)?;
    let reply = link.reply()?;
    let id = reply.number("INSERTED").ok_or_else(|| refusal("put", &reply.line))?;
    if is_buried {
        link.expect(&format!("reserve-job {id}"), "RESERVED")?;
        link.expect(&format!("bury {id} {}", record.pri), "BURIED")?;
    }
    Ok(())
}

/// Buries or releases the job again. If this fails, closing the connection makes the job ready.
fn give_back(link: &mut Link, record: &JobLine) {
    let JobLine { id, pri, delay, .. } = record;
    let _ = match record.state {
        State::Buried => link.ask(&format!("bury {id} {pri}")),
        _ => link.ask(&format!("release {id} {pri} {delay}")),
    };
}

pub fn clear(call: &Call, out: &mut Out) -> Result<u8> {
    let names = call.tubes()?;
    let mut states = call.values(&STATES).into_iter().map(free_state).collect::<Result<Vec<_>, _>>()?;
    let all = states.is_empty();
    if all {
        states = ["ready", "delayed", "buried"].map(str::to_owned).to_vec();
    }
    confirm(&format!("Delete the {} jobs of {}?", states.join(" and "), names.join(", ")), call.has(&YES))?;
    let mut link = Link::open(call)?;
    for name in &names {
        // The wait for the reply to `flush-tube` has no time limit, so check first that the server responds.
        let stats = match link.visible_tube(name)? {
            Some(hidden) if !all && hidden.text("name").is_empty() => return Err(refusal("stats-tube", "FORBIDDEN")),
            found => found.unwrap_or_default(),
        };
        let flushed = if all { flush(&mut link, name)? } else { None };
        let deleted = flushed.map_or_else(|| delete_jobs(&mut link, name, &states, &stats), Ok)?;
        out.line(&deleted.to_string())?;
        let reserved = link.visible_tube(name)?.unwrap_or_default().number("current-jobs-reserved");
        if all && reserved > 0 {
            tell(&format!("{name}: {reserved} reserved jobs remain"));
        }
    }
    Ok(DONE)
}

fn flush(link: &mut Link, name: &str) -> Result<Option<u64>> {
    let command = format!("flush-tube {name}");
    let reply = link.ask_within(&command, None)?;
    match first_word(&reply.line) {
        "FLUSHED" => Ok(reply.number("FLUSHED")),
        "UNKNOWN_COMMAND" => Ok(None),
        _ => Err(refusal(&command, &reply.line)),
    }
}

fn delete_jobs(link: &mut Link, name: &str, states: &[String], stats: &StatsReply) -> Result<u64> {
    let mut progress = ProgressBar::new("jobs deleted");
    let mut deleted = 0;
    // A producer could add jobs forever, so delete only as many as existed initially.
    let limit = states.iter().map(|state| stats.number(&format!("current-jobs-{state}"))).sum();
    link.use_tube(name)?;
    if states.iter().any(|state| state == "ready") {
        link.watch(&[name.to_owned()])?;
        while deleted < limit {
            let some @ 1.. = delete_batch(link)? else { break };
            deleted += some;
            progress.update(deleted, None);
        }
    }
    // Ready jobs of a paused tube cannot be reserved, so delete the remaining jobs one by one.
    for state in states {
        for _ in 0..limit.saturating_sub(deleted) {
            let Some((id, _)) = link.peek_next(state)? else { break };
            deleted += deleted_by(&link.ask(&format!("delete {id}"))?.line)?;
            progress.update(deleted, None);
        }
    }
    Ok(deleted)
}

/// Returns 0 if the job no longer exists or another client has reserved it.
fn deleted_by(line: &str) -> Result<u64> {
    match line {
        "DELETED" => Ok(1),
        "NOT_FOUND" => Ok(0),
        line => Err(refusal("delete", line)),
    }
}

fn delete_batch(link: &mut Link) -> Result<u64> {
    link.send("reserve-with-timeout 0\r\n".repeat(BATCH).as_bytes())?;
    let mut deletes = String::new();
    for _ in 0..BATCH {
        let reply = link.reply()?;
        match (first_word(&reply.line), reply.number("RESERVED")) {
            (_, Some(id)) => deletes += &format!("delete {id}\r\n"),
            ("TIMED_OUT" | "DEADLINE_SOON", _) => {}
            _ => return Err(refusal("reserve-with-timeout", &reply.line)),
        }
    }
    link.send(deletes.as_bytes())?;
    deletes.lines().try_fold(0, |deleted, _| Ok(deleted + deleted_by(&link.reply()?.line)?))
}
