//! Reads the whole queue from a server that has just started.
//!
//! Owns the requests, and the checks of new IDs and existing names. Must not compare the queue with a permitted state.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Result;
use std::ops::RangeInclusive;

use crate::book::{Book, TubeView, View, Views};
use crate::change::{Body, Wire};
use crate::check::{Case, Check, Problem, Sight};
use crate::daemon::Daemon;
use crate::talk::{packet, Talk, JOB_CREATED, SUBMIT_JOB_BG};

/// The maximum number of Gearman unique names, and of Workq IDs, that the checks submit again.
const TRIED: usize = 3;

/// The number of requests that are sent before their replies are read.
const AT_A_TIME: usize = 100;

/// The keys and protocols of the jobs to read, and the names of the tubes to read.
#[derive(Default, Debug)]
pub struct Wanted {
    pub jobs: BTreeMap<String, Wire>,
    pub tubes: BTreeSet<String>,
}

/// Parses lines that consist of a key, a separator and a value.
fn parse(text: &[u8], between: &str) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(text);
    let pairs = text.lines().filter_map(|line| line.split_once(between));
    pairs.map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned())).collect()
}

fn number<T: std::str::FromStr>(facts: &BTreeMap<String, String>, key: &str) -> T {
    let value = facts.get(key).and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("no valid {key} in {facts:?}"))
}

/// Sends beanstalk requests. Returns the first line and the body of each reply.
fn ask(talk: &mut Talk, questions: &[String]) -> Result<Vec<(String, Vec<u8>)>> {
    let mut answers = Vec::with_capacity(questions.len());
    for some in questions.chunks(AT_A_TIME) {
        talk.send(some.concat().as_bytes())?;
        for _ in some {
            answers.push(talk.reply()?);
        }
    }
    Ok(answers)
}

/// Converts the statistics and the body of a job to a view.
fn view(wire: Wire, facts: &[u8], body: &[u8]) -> View {
    let facts = parse(facts, ": ");
    let told = wire == Wire::Beanstalk;
    let state = facts["state"].clone();
    View {
        tube: facts["tube"].clone(),
        body: Body::of(body),
        state,
        pri: number(&facts, "pri"),
        delay: if told { number(&facts, "delay") } else { 0 },
        ttr: if told { number(&facts, "ttr") } else { 0 },
        counts: ["reserves", "releases", "buries", "kicks"].map(|key| number(&facts, key)),
        result: None,
        tags: if told { tags(facts) } else { only(facts, &["reducer"]) },
    }
}

fn only(facts: BTreeMap<String, String>, keys: &[&str]) -> BTreeMap<String, String> {
    facts.into_iter().filter(|(key, _)| keys.contains(&key.as_str())).collect()
}

fn tags(facts: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let keys = [
        "idempotency-key",
        "idempotency-ttl",
        "concurrency-key",
        "concurrency-limit",
        "try",
        "backoff",
        "expires-in",
        "group",
        "after-group",
        "every",
        "cron",
        "runs",
        "skipped",
        "tries-left",
        "fails",
        "last-error",
        "dead-from",
    ];
    let mut tags = only(facts, &keys);
    // The remaining time to live and the remaining number of members change over time, so they are not compared.
    for key in ["expires-in", "after-group"] {
        tags.get_mut(key).into_iter().for_each(String::clear);
    }
    tags
}

fn look_at_numbers(daemon: &Daemon, wanted: &Wanted, sight: &mut Sight) -> Result<()> {
    let mut talk = Talk::connect(daemon, Wire::Beanstalk)?;
    let (_, stats) = ask(&mut talk, &["stats\r\n".to_owned()])?.remove(0);
    let stats = parse(&stats, ": ");
    let states = ["ready", "reserved", "delayed", "buried"];
    sight.total = states.iter().map(|state| number::<u64>(&stats, &format!("current-jobs-{state}"))).sum();
    let extended = ["held", "scheduled"].map(|state| stats.get(&format!("current-jobs-{state}")));
    sight.total += extended.into_iter().flatten().map(|count| count.parse::<u64>().expect("a number")).sum::<u64>();
    let keys: Vec<(&String, Wire)> =
        wanted.jobs.iter().filter(|(_, wire)| **wire != Wire::Workq).map(|(key, wire)| (key, *wire)).collect();
    let questions: Vec<String> =
        keys.iter().flat_map(|(key, _)| [format!("stats-job {key}\r\n"), format!("peek {key}\r\n")]).collect();
    for ((key, wire), answers) in keys.iter().zip(ask(&mut talk, &questions)?.chunks(2)) {
        if answers[0].0.starts_with("OK ") {
            sight.views.jobs.insert((*key).clone(), view(*wire, &answers[0].1, &answers[1].1));
        }
    }
    let (_, keys) = ask(&mut talk, &["list-keys\r\n".to_owned()])?.remove(0);
    let keys = String::from_utf8_lossy(&keys).into_owned();
    sight.views.keys = keys.lines().filter_map(|line| line.splitn(3, ", ").nth(2)).map(str::to_owned).collect();
    let questions: Vec<String> = wanted.tubes.iter().map(|tube| format!("stats-tube {tube}\r\n")).collect();
    let answers = ask(&mut talk, &questions)?;
    for (tube, (_, facts)) in wanted.tubes.iter().zip(answers).filter(|(_, (line, _))| line.starts_with("OK ")) {
        let facts = parse(&facts, ": ");
        // Uses the full duration of the pause, because the remaining time changes over time. No client watches these
        // tubes, so each tube that still exists has jobs or settings.
        let pause = if number::<u64>(&facts, "pause-time-left") > 0 { number(&facts, "pause") } else { 0 };
        let buried = ask(&mut talk, &[format!("use {tube}\r\n"), "peek-buried\r\n".to_owned()])?.remove(1).0;
        let buried = buried.strip_prefix("FOUND ").and_then(|rest| rest.split(' ').next()).map(str::to_owned);
        let settings = facts.get("settings").cloned().unwrap_or_default();
        sight.views.tubes.insert(tube.clone(), TubeView { pause, buried, settings });
    }
    Ok(())
}

fn result(talk: &mut Talk, id: &str) -> Result<Option<Body>> {
    talk.send(format!("result {id} 0\r\n").as_bytes())?;
    if talk.line()? != "+OK 1" {
        return Ok(None);
    }
    let head = talk.line()?;
    let length = head.rsplit(' ').next().and_then(|length| length.parse().ok()).unwrap_or(0);
    Ok(Some(Body::of(&talk.data(length)?)))
}

fn look_at_ids(daemon: &Daemon, wanted: &Wanted, sight: &mut Sight) -> Result<()> {
    let ids = || wanted.jobs.iter().filter(|(_, wire)| **wire == Wire::Workq).map(|(id, _)| id);
    if ids().next().is_none() {
        return Ok(());
    }
    let mut talk = Talk::connect(daemon, Wire::Workq)?;
    for id in ids() {
        talk.send(format!("inspect job {id}\r\n").as_bytes())?;
        if talk.line()? != "+OK 1" {
            continue;
        }
        let head = talk.line()?;
        let lines = head.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
        let lines: Vec<String> = (0..lines).map(|_| talk.line()).collect::<Result<_>>()?;
        let facts = parse(lines.join("\n").as_bytes(), " ");
        let over = ["1", "2"].contains(&facts["state"].as_str());
        let view = View {
            tube: facts["name"].clone(),
            body: Body::of(facts["payload"].as_bytes()),
            state: facts["state"].clone(),
            pri: 0,
            delay: 0,
            ttr: 0,
            counts: [number(&facts, "attempts"), number(&facts, "fails"), 0, 0],
            result: if over { result(&mut talk, id)? } else { None },
            tags: only(facts, &["max-attempts", "max-fails"]),
        };
        sight.views.jobs.insert(id.clone(), view);
    }
    Ok(())
}

/// Reads the state of the queue. No other client may be connected.
pub fn look(daemon: &Daemon, wanted: &Wanted) -> Result<Sight> {
    let mut sight = Sight { views: Views::default(), total: 0 };
    look_at_numbers(daemon, wanted, &mut sight)?;
    look_at_ids(daemon, wanted, &mut sight)?;
    Ok(sight)
}

/// Checks behavior that statistics do not show: new jobs must get new IDs, submissions with an existing unique name
/// must join the existing job, and existing Workq IDs must be refused. The checks modify the queue.
pub fn probe(daemon: &Daemon, books: &[Book], seen: &[RangeInclusive<u64>], case: &Case) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let mut talk = Talk::connect(daemon, Wire::Beanstalk)?;
    for _ in 0..2 {
        talk.send(b"put 0 0 60 1\r\nx\r\n")?;
        let line = talk.line()?;
        let id = line.strip_prefix("INSERTED ").and_then(|id| id.parse::<u64>().ok());
        let Some(id) = id else {
            problems.push((Check::Start, format!("unexpected reply to a put: {line}")));
            break;
        };
        if seen.iter().any(|range| range.contains(&id)) {
            problems
                .push((case.given_again(id), format!("the next job got the ID {id}, which a client has already seen")));
        }
    }
    problems.extend(join(daemon, books)?);
    problems.extend(repeat(daemon, books)?);
    Ok(problems)
}

/// Submits Gearman jobs with existing unique names, and checks that the server joins them with the existing jobs.
fn join(daemon: &Daemon, books: &[Book]) -> Result<Option<Problem>> {
    let named = books.iter().flat_map(|book| &book.jobs).filter(|(_, job)| !job.unique.is_empty() && !job.volatile);
    let mut talk = None;
    for (key, job) in named.take(TRIED) {
        let talk = match &mut talk {
            Some(talk) => talk,
            none => none.insert(Talk::connect(daemon, Wire::Gearman)?),
        };
        talk.send(&packet(SUBMIT_JOB_BG, &[job.tube.as_bytes(), job.unique.as_bytes(), b"again"]))?;
        let (kind, arguments) = talk.packet()?;
        let handle = String::from_utf8_lossy(&arguments[0]).into_owned();
        if kind != JOB_CREATED || handle.rsplit(':').next() != Some(key) {
            return Ok(Some((Check::ExtrasStore, format!("joining job {key} returns {kind} {handle}"))));
        }
    }
    Ok(None)
}

/// Checks that the server refuses existing Workq IDs.
fn repeat(daemon: &Daemon, books: &[Book]) -> Result<Option<Problem>> {
    let ids = books.iter().flat_map(|book| &book.jobs).filter(|(_, job)| job.wire == Wire::Workq && !job.volatile);
    let mut talk = None;
    for (id, job) in ids.take(TRIED) {
        let talk = match &mut talk {
            Some(talk) => talk,
            none => none.insert(Talk::connect(daemon, Wire::Workq)?),
        };
        talk.send(format!("add {id} {} 1000 1000 1\r\nx\r\n", job.tube).as_bytes())?;
        let line = talk.line()?;
        if line != "-CLIENT-ERROR Duplicate job" {
            return Ok(Some((Check::ExtrasStore, format!("adding {id} again returns {line}"))));
        }
    }
    Ok(None)
}
