//! Requests of HTTP clients, and their expected responses.
//!
//! Owns the choice of requests, and the exact responses to the requests that the reference model supports. Must not
//! share code with the server.

use beanpole::internals::engine::{ClientId, JobId, JobStats, Refused, Span, State, Time};

use crate::extended::state;
use crate::predicted::known;
use crate::random::Random;
use crate::reference::model::{GroupTie, Model, Name};
use crate::speech::{body, Topic};

/// The headers that follow Content-Length in every response.
const HEADERS: &str = "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\nCache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n";

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}

fn post(path: &str, object: &str) -> Vec<u8> {
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Beanpole: 1\r\nContent-Type: application/json\r\n");
    format!("{head}Content-Length: {}\r\n\r\n{object}", object.len()).into_bytes()
}

pub fn request(random: &mut Random, topic: &Topic) -> Vec<u8> {
    let (tube, job) = (topic.tube(random), topic.job(random));
    let state = random.pick(&["ready", "delayed", "buried"]);
    match random.below(24) {
        0..6 if !topic.enough => {
            let (body, pri) = (body(random, topic), random.pick(&[0, 1, 5, 4_294_967_295u32]));
            let (delay, ttr) = (random.below(3), random.below(5));
            post(
                &format!("/api/tubes/{tube}/put"),
                &format!("{{\"body\":\"{body}\",\"pri\":{pri},\"delay\":{delay},\"ttr\":{ttr}}}"),
            )
        }
        0..8 => get(&format!("/api/tubes/{tube}/peek/{state}")),
        8 | 9 => get(&format!("/api/jobs/{job}")),
        10 => get(&format!("/api/jobs/{job}/body")),
        11..14 => post(&format!("/api/tubes/{tube}/kick"), &format!("{{\"count\":{}}}", random.below(4))),
        14 => post(&format!("/api/tubes/{tube}/pause"), &format!("{{\"seconds\":{}}}", random.below(4))),
        // This request replaces most clears, because after a clear, the books no longer record which jobs exist.
        15 if !topic.predicted && !random.once_in(8) => get("/metrics"),
        15 if topic.sweeps || random.once_in(3) => {
            post(&format!("/api/tubes/{tube}/clear"), &format!("{{\"state\":\"{state}\"}}"))
        }
        15 if random.once_in(4) => post(&format!("/api/tubes/{tube}/clear"), "{}"),
        16 | 17 => post(&format!("/api/jobs/{job}/bury"), "{}"),
        18 | 19 => post(&format!("/api/jobs/{job}/kick"), "{}"),
        20 => post(&format!("/api/jobs/{job}/delete"), "{}"),
        // The model does not support these requests.
        21 if !topic.predicted => get(random.pick(&["/metrics", "/api/server", "/api/tubes", "/readyz", "/", "/no"])),
        22 if !topic.predicted => get(&format!("/api/tubes/{tube}/jobs")),
        23 if topic.extended && !topic.predicted && random.once_in(4) => {
            let to = topic.tube(random);
            post(&format!("/api/tubes/{tube}/move"), &format!("{{\"to\":\"{to}\",\"state\":\"{state}\"}}"))
        }
        _ => get("/healthz"),
    }
}

/// Returns the length of the complete request at the beginning of `bytes`, or `None` if the request is incomplete.
pub fn whole(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).expect("plain text");
    let length = text.split("Content-Length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let end = head + length.map_or(0, |length| length.parse::<usize>().expect("a length"));
    (bytes.len() >= end).then_some(end)
}

fn reply(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{HEADERS}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn json(text: &str) -> Vec<u8> {
    reply("200 OK", "application/json", format!("{text}\n").as_bytes())
}

fn missing(what: &str) -> Vec<u8> {
    reply("404 Not Found", "application/json", format!("{{\"error\":\"there is no such {what}\"}}\n").as_bytes())
}

fn done(yes: bool, what: &str) -> Vec<u8> {
    if yes {
        json("{\"done\":true}")
    } else {
        missing(what)
    }
}

/// Returns the number that is the value of `key` in the JSON object of a request.
fn member(object: &str, key: &str) -> u64 {
    let rest = object.split(&format!("\"{key}\":")).nth(1).expect("the key");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

pub fn carry_out(model: &mut Model, client: ClientId, request: &[u8], now: Time) -> Vec<u8> {
    let text = std::str::from_utf8(request).expect("plain text");
    let (head, object) = text.split_once("\r\n\r\n").expect("a head");
    let target = head.split(' ').nth(1).expect("a path");
    let path: Vec<&str> = target.trim_start_matches('/').split('/').collect();
    let job = |id: &str| JobId(id.parse().expect("a number"));
    match path[..] {
        ["healthz"] => reply("200 OK", "text/plain; charset=utf-8", b"ok\n"),
        ["api", "tubes", tube, "put"] => put(model, client, known(tube), object, now),
        ["api", "tubes", tube, "peek", _] if model.tube(tube).is_none() => missing("tube"),
        ["api", "tubes", tube, "peek", name] => match model.in_order(known(tube), state(name)).first() {
            Some(id) => shown(model, *id, now),
            None => missing("job"),
        },
        ["api", "tubes", tube, "kick"] if model.tube(tube).is_none() => missing("tube"),
        ["api", "tubes", tube, "kick"] => {
            let kicked =
                elsewhere(model, client, known(tube), |model| model.kick(client, member(object, "count"), now));
            json(&format!("{{\"kicked\":{kicked}}}"))
        }
        ["api", "tubes", tube, "pause"] => {
            done(model.pause(known(tube), Span::from_secs(member(object, "seconds")), now), "tube")
        }
        ["api", "tubes", tube, "clear"] => clear(model, known(tube), object),
        ["api", "jobs", id, "kick"] => {
            let what = "job that is buried, delayed, held or leased, or schedule without a copy in the tube";
            model.kick_job(job(id), now).map_or_else(refused, |kicked| done(kicked, what))
        }
        ["api", "jobs", id, "delete"] => done(model.delete(client, job(id)), "job that nobody has reserved"),
        ["api", "jobs", id, "bury"] => {
            let pri = model.job(job(id)).map(|job| job.pri);
            let taken = model.reserve_job(client, job(id), now);
            done(taken && model.bury(client, job(id), pri.unwrap_or_default(), now), "job that nobody has reserved")
        }
        ["api", "jobs", id] if model.job(job(id)).is_some() => shown(model, job(id), now),
        ["api", "jobs", id, "body"] if model.job(job(id)).is_some() => {
            let body = &model.job(job(id)).expect("a job").body;
            reply("200 OK", "application/octet-stream\r\nContent-Disposition: attachment", body)
        }
        ["api", "jobs", ..] => missing("job"),
        _ => panic!("unexpected target: {target}"),
    }
}

fn elsewhere<R>(model: &mut Model, client: ClientId, tube: Name, work: impl FnOnce(&mut Model) -> R) -> R {
    model.use_tube(client, tube).expect("memory for a tube");
    let result = work(model);
    model.use_tube(client, "default").expect("the default tube");
    result
}

fn put(model: &mut Model, client: ClientId, tube: Name, object: &str, now: Time) -> Vec<u8> {
    let body = object.split("\"body\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a body");
    let (delay, ttr) = (Span::from_secs(member(object, "delay")), Span::from_secs(member(object, "ttr").max(1)));
    let terms = (member(object, "pri") as u32, delay, ttr);
    match elsewhere(model, client, tube, |model| model.put(client, terms, body.into(), now)) {
        Ok(id) => json(&format!("{{\"id\":{}}}", id.0)),
        Err(why) => refused(why),
    }
}

fn refused(why: Refused) -> Vec<u8> {
    match why {
        Refused::QueueFull => reply("409 Conflict", "application/json", b"{\"error\":\"the tube is full\"}\n"),
        _ => reply("503 Service Unavailable", "application/json", b"{\"error\":\"the server is draining\"}\n"),
    }
}

fn clear(model: &mut Model, tube: Name, object: &str) -> Vec<u8> {
    let named = object.split("\"state\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let states = named.map_or(vec![State::Ready, State::Delayed, State::Buried, State::Held], |name| vec![state(name)]);
    let deleted = model.flush_states(tube, &states);
    json(&format!("{{\"deleted\":{deleted}}}"))
}

/// Returns the JSON fields that only some jobs have.
fn marks(model: &Model, stats: &JobStats, now: Time) -> String {
    let schedule = model.extended.schedules.get(&stats.id);
    let tags = schedule.map(|schedule| &schedule.tags).or(model.extended.tags.get(&stats.id));
    let tags = tags.cloned().unwrap_or_default();
    let mut marks = String::new();
    if let Some(schedule) = schedule {
        let (every, runs, skipped) = (schedule.every, schedule.runs, schedule.skipped);
        marks += &format!("\"every\":{every},\"runs\":{runs},\"skipped\":{skipped},");
    }
    let number = |marks: &mut String, key: &str, value: u64| {
        if value > 0 {
            *marks += &format!("\"{key}\":{value},");
        }
    };
    number(&mut marks, "missed", stats.missed.into());
    number(&mut marks, "blocked-by", stats.blocked_by.map_or(0, |id| id.0));
    let text = |marks: &mut String, key: &str, value: &str| {
        if !value.is_empty() {
            *marks += &format!("\"{key}\":\"{value}\",");
        }
    };
    let (key, keep) = tags.key.unwrap_or_default();
    text(&mut marks, "idempotency-key", key);
    number(&mut marks, "idempotency-ttl", keep.into());
    let (key, limit) = tags.bound.unwrap_or_default();
    text(&mut marks, "concurrency-key", key);
    number(&mut marks, "concurrency-limit", limit.into());
    let members = tags.groups.iter().filter(|(_, tie)| *tie == GroupTie::Member).map(|(name, _)| *name);
    text(&mut marks, "group", &members.collect::<Vec<_>>().join(","));
    let left = |(name, need): (&str, u32)| match need {
        0 => name.to_owned(),
        need => format!("{name}:{}", u64::from(need) - model.group(known(name)).map_or(0, |(.., ended)| ended)),
    };
    text(&mut marks, "after-group", &model.waits(stats.id).into_iter().map(left).collect::<Vec<_>>().join(","));
    number(&mut marks, "try", tags.tries.into());
    if let Some(left) = stats.tries_left {
        marks += &format!("\"tries-left\":{left},");
    }
    number(&mut marks, "backoff", tags.backoff.into());
    if let (Some(_), Some(ttl)) = (schedule, tags.ttl) {
        number(&mut marks, "ttl", ttl.secs());
    }
    if let Some(expires) = model.expires(stats.id) {
        marks += &format!("\"expires-in\":{},", expires.since(now).nanos().div_ceil(1_000_000_000));
    }
    number(&mut marks, "fails", stats.fails.into());
    text(&mut marks, "dead-from", &String::from_utf8_lossy(stats.dead_from.unwrap_or_default()));
    if let Some(holder) = stats.holder {
        marks += &format!("\"holder\":{holder},");
    }
    text(&mut marks, "last-error", model.reason(stats.id));
    let copy = stats.blocked_by.and_then(|id| model.state_of(id));
    text(&mut marks, "blocked-by-state", copy.map_or("", State::word));
    marks
}

fn shown(model: &Model, id: JobId, now: Time) -> Vec<u8> {
    let (job, stats) = (model.job(id).expect("a job"), model.job_stats(id, now).expect("a job"));
    let name = stats.state.word();
    let numbers =
        |pairs: &[(&str, u64)]| pairs.iter().map(|(key, value)| format!("\"{key}\":{value},")).collect::<String>();
    let history = stats.history;
    let first = numbers(&[("id", id.0)]);
    let rest = numbers(&[
        ("pri", stats.pri.into()),
        ("age", stats.age.secs()),
        ("delay", stats.delay.secs()),
        ("ttr", stats.ttr.secs()),
        ("time-left", stats.left.secs()),
    ]);
    let mut age = numbers(&[("job-age", job.taken_for(now).secs())]);
    if stats.state != State::Reserved {
        age.clear();
    }
    let counts = numbers(&[
        ("reserves", history.reserves.into()),
        ("timeouts", history.timeouts.into()),
        ("releases", history.releases.into()),
        ("buries", history.buries.into()),
        ("kicks", history.kicks.into()),
    ]);
    let rest = rest + &age + &counts + &marks(model, &stats, now) + &numbers(&[("size", job.body.len() as u64)]);
    let body = String::from_utf8_lossy(&job.body);
    let tube = job.tube;
    json(&format!("{{{first}\"tube\":\"{tube}\",\"state\":\"{name}\",{rest}\"body\":\"{body}\",\"truncated\":false}}"))
}
