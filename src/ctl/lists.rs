//! The subcommands `list`, `schedules`, `history` and `connections`. All times are in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use super::prelude::*;
use crate::engine::{push_moment, State};

#[rustfmt::skip]
const CONNECTION_COLUMNS: [(&str, &str); 12] = [
    ("number", "number"), ("client", "client"), ("address", "address"), ("protocol", "protocol"), ("state", "state"),
    ("job", "job"), ("tube", "job-tube"), ("for", "job-age"), ("left", "time-left"), ("progress", "progress"),
    ("silent", "idle"), ("watches", "watches"),
];

const PAGE: usize = 1000;

fn limit(call: &Call) -> Result<u64> {
    Ok(call.number(&SHOWN, 0, u64::MAX)?.map_or(100, |limit| if limit == 0 { u64::MAX } else { limit }))
}

pub fn list(call: &Call, out: &mut Out) -> Result<u8> {
    let name = tube(&call.operands[0])?;
    let limit = limit(call)?;
    let above = call.number(&FROM, 0, u64::MAX)?.unwrap_or(0);
    let known = State::LISTED.map(State::word).join(", ");
    let unknown = |name: &str| Problem::usage(format!("--state: invalid state: {name}; must be one of {known}"));
    let named = |name: &String| State::named(name.as_bytes()).ok_or_else(|| unknown(name));
    let states = call.values(&STATES).iter().map(named).collect::<Result<_, _>>()?;
    let mut link = Link::open(call)?;
    link.existing(&format!("stats-tube {name}"))?;
    let mut scan = Scan::run(&mut link, &Wanted { tubes: vec![name], states, above })?;
    if !scan.was_listed {
        tell("the server does not support list-jobs: all IDs were tried");
    }
    let all = scan.jobs.len();
    scan.jobs.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let headings = [&["id", "state", "pri", "delay", "ttr", "age"][..], &COUNTS, &["reason", "body"]].concat();
    print(call, out, &mut link, &scan, &headings, (&JobLine::line, &job_row))?;
    if scan.jobs.len() < all {
        out.flush()?;
        tell(&format!("showing {} of {all} jobs; use -n 0 to list all", scan.jobs.len()));
    }
    Ok(report_refused(&scan.refused))
}

type Format<'a, T> = &'a dyn Fn(&JobLine, &str, &[u8]) -> T;
type Formats<'a> = (Format<'a, String>, Format<'a, Vec<String>>);

fn print(call: &Call, out: &mut Out, link: &mut Link, scan: &Scan, heads: &[&str], (line, row): Formats) -> Result {
    let mut list = Listing::new(out, call.has(&JSON));
    scan.peek(link, &mut |job, tube, body| list.add(&|| line(job, tube, body), &|| row(job, tube, body)))?;
    list.finish(heads)
}

fn job_row(job: &JobLine, _: &str, body: &[u8]) -> Vec<String> {
    let mut row = vec![job.id.to_string(), job.state.word().to_owned()];
    row.extend([job.pri, job.delay, job.ttr].map(|number| number.to_string()));
    row.push(job.age.to_string());
    row.extend(job.counts.map(|count| count.to_string()));
    row.extend([excerpt(&job.tags.0.bytes("last-error")), excerpt(body)]);
    row
}

pub fn schedules(call: &Call, out: &mut Out) -> Result<u8> {
    let wanted = Wanted { tubes: call.tubes()?, states: vec![State::Scheduled], above: 0 };
    let mut link = Link::open(call)?;
    let scan = Scan::run(&mut link, &wanted)?;
    let line: Format<String> = &|job, tube, body| {
        let mut job = job.clone();
        let (next, blocked_by) = (next_run(&job).to_string(), job.blocked_by.clone());
        for (key, value) in [("next-run", next), ("missed", job.missed.to_string()), ("blocked-by", blocked_by)] {
            if !value.is_empty() {
                job.tags.0.push(key, value);
            }
        }
        job.line(tube, body)
    };
    let row: Format<Vec<String>> = &|job, tube, body| {
        let stats = &job.tags.0;
        let (name, when) = (job.tags.key().to_owned(), stats.recurrence());
        let mut row = vec![job.id.to_string(), tube.into(), name, when, date(next_run(job)), job.missed.to_string()];
        row.push(job.blocked_by.clone());
        row.extend(["runs", "skipped"].map(|key| stats.number(key).to_string()));
        row.push(excerpt(body));
        row
    };
    let headings = ["id", "tube", "name", "schedule", "next run", "missed", "blocked by", "runs", "skipped", "body"];
    print(call, out, &mut link, &scan, &headings, (line, row))?;
    Ok(report_refused(&scan.refused))
}

fn next_run(job: &JobLine) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let next = now.as_nanos().div_ceil(1_000_000_000) as u64 + u64::from(job.left);
    match job.tags.0.text("cron") {
        "" => next,
        // Cron schedules run at the beginning of a minute, so round the time. The reply may be a second old.
        _ => (next + 30) / 60 * 60,
    }
}

fn date(seconds: u64) -> String {
    let mut text = Vec::new();
    push_moment(&mut text, seconds);
    format!("{}Z", String::from_utf8_lossy(&text)).replace('T', " ")
}

pub fn history(call: &Call, out: &mut Out) -> Result<u8> {
    let of_tube = call.value(&ONLY_TUBE).map(|name| tube(&name)).transpose()?;
    let limit = limit(call)?;
    let mut link = Link::open(call)?;
    let (mut list, mut count, mut below, mut is_whole) = (Listing::new(out, call.has(&JSON)), 0, u64::MAX, true);
    while below > 0 {
        let page = yaml::objects(&link.expect(&format!("list-history {below} {PAGE}"), "OK")?.body);
        let next = page.last().map_or(0, |last| last.number("number"));
        check_progress(next < below)?;
        below = next;
        for stats in page {
            let is_failure = matches!(stats.text("verdict"), "failed" | "buried");
            let is_of_tube = of_tube.as_ref().is_none_or(|tube| stats.text("tube") == tube);
            if !is_of_tube || call.has(&FAILED) && !is_failure {
                continue;
            }
            if count == limit {
                (below, is_whole) = (0, false);
                break;
            }
            count += 1;
            list.add(&|| stats.object(), &|| history_row(&stats))?;
        }
    }
    if let Some(tube) = of_tube.filter(|_| count == 0) {
        tell(&format!("the history contains no such jobs of tube {tube}"));
    }
    list.finish(&["ended", "id", "tube", "verdict", "waited", "ran", "tries", "reason", "body"])?;
    if !is_whole {
        out.flush()?;
        tell(&format!("showing only the newest {}; use -n 0 to list all", job_count(count)));
    }
    Ok(DONE)
}

fn history_row(stats: &StatsReply) -> Vec<String> {
    let ended = stats.text("ended").split('.').next().and_then(|text| text.parse().ok());
    let mut row = vec![date(ended.unwrap_or(0))];
    row.extend(["id", "tube", "verdict", "waited", "ran", "tries"].map(|key| stats.text(key).to_owned()));
    row.extend(["reason", "body"].map(|key| excerpt(&stats.bytes(key))));
    row
}

pub fn connections(call: &Call, out: &mut Out) -> Result<u8> {
    let mut link = Link::open(call)?;
    let mut list = Listing::new(out, call.has(&JSON));
    each_connection(&mut link, usize::MAX, &mut |stats| {
        list.add(&|| stats.object(), &|| {
            // Every connection watches `default` at first, so clients count as workers only if they watch another tube.
            let is_worker = !["", "default"].contains(&stats.text("watches"));
            let text = |key: &str| match stats.text(key) {
                "" => "-",
                "idle" if key == "state" && is_worker => "not reserving",
                text => text,
            };
            CONNECTION_COLUMNS.iter().map(|(_, key)| text(key).to_owned()).collect()
        })
    })?;
    list.finish(&CONNECTION_COLUMNS.map(|(head, _)| head)).map(|()| DONE)
}

pub fn who(it: &StatsReply) -> String {
    let names = ["client", "address", "protocol"].map(|key| it.text(key));
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_default().to_owned()
}

/// Adds the name of the connection that holds the job.
pub fn name_holder(link: &mut Link, job: &mut StatsReply) -> Result {
    let Some(above) = job.number("holder").checked_sub(1) else { return Ok(()) };
    let reply = link.ask(&format!("list-connections {above} 1"))?;
    if let Some(holder) = yaml::objects(&reply.body).first().filter(|it| it.number("number") == above + 1) {
        job.push("holder-name", who(holder));
    }
    Ok(())
}

pub fn each_connection(link: &mut Link, limit: usize, act: &mut dyn FnMut(&StatsReply) -> Result) -> Result {
    let (mut above, mut count) = (0, 0);
    loop {
        let page = yaml::objects(&link.expect(&format!("list-connections {above} {PAGE}"), "OK")?.body);
        page.iter().try_for_each(&mut *act)?;
        count += page.len();
        let Some(last) = page.last().filter(|_| page.len() == PAGE && count < limit) else { return Ok(()) };
        let next = last.number("number");
        check_progress(next > above)?;
        above = next;
    }
}
