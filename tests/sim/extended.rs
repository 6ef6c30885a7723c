//! Commands that beanstalkd does not have, and their expected replies.
//!
//! Owns the choice of commands. The reference model determines the replies. Must not share code with the server.

use beanpole::internals::engine::{ClientId, JobEnd, JobId, NoJob, Refused, Span, State, Tagged, Time};

use crate::predicted::{known, yaml, TUBES, UNATTENDED};
use crate::random::Random;
use crate::reference::model::{Model, Name, Outcome};
use crate::speech::{body, Topic};
use crate::tags::{settings_of, tags_of};

/// Chooses a command without its CR LF. Returns `None` if the caller must choose one of beanstalkd's commands.
pub fn command(random: &mut Random, topic: &Topic) -> Option<String> {
    let (tube, to, job) = (topic.tube(random), topic.tube(random), topic.job(random));
    let state = random.pick(&["ready", "delayed", "buried"]);
    Some(match random.below(36) {
        0..5 if topic.bursts && !topic.enough => {
            let put = format!("put 0 0 60 1 tub:{}\r\nx", random.pick(&UNATTENDED));
            vec![put; 4 + random.below(12) as usize].join("\r\n")
        }
        0..9 if !topic.enough => {
            let (body, tags) = (body(random, topic), tags(random, topic));
            let (pri, delay) = (random.pick(&[0, 1, 5, 4_294_967_295u32]), random.below(3));
            // If a job also waits for a group, the model cannot predict at which point of a long HTTP command the
            // job's delay expires.
            let delay = if topic.predicted && tags.contains(" aft:") { 0 } else { delay };
            format!("put {pri} {delay} {} {}{tags}\r\n{body}", random.below(5), body.len())
        }
        0..11 => format!("reserve-batch {}", 1 + random.below(3)),
        11 | 12 => format!("reserve-batch {} {}", 1 + random.below(3), random.below(4)),
        13 => format!("delete-batch {job} {}", topic.job(random)),
        14 => "touch-all".to_owned(),
        15..18 => format!("wait {job} {}", random.below(4)),
        18 if topic.predicted || topic.sweeps || random.once_in(8) => {
            format!("{} {tube}", if random.once_in(2) { "flush-tube" } else { "flush-buried" })
        }
        19 => "peek-reserved".to_owned(),
        20 => {
            let state = random.pick(&[state, state, state, "held", "scheduled"]);
            format!("list-jobs {tube} {state} {} {}", random.below(8), 1 + random.below(4))
        }
        _ if random.once_in(24) => format!("stats-group {tube}"),
        21 | 22 => format!("move-job {job} {tube} {} {}", random.below(3), random.below(3)),
        27..30 if topic.unattended => format!("move-tube {tube} {to} {state} {}", random.pick(&[3, 100, 100])),
        23 | 24 => format!("move-tube {tube} {to} {state} {}", random.below(4)),
        25 => format!("limit-tube {tube} {}", random.pick(&[0, 0, 2, 6])),
        30 | 31 => format!("set-tube {tube}{}", settings(random, topic)),
        32 if !topic.predicted => format!("fail {job} {} 7\r\nno host", random.below(9)),
        33 | 34 => format!("revoke {job} {}", random.below(9)),
        35 => format!("touch {job} {}/3", random.below(4)),
        26 if random.once_in(6) => "drain".to_owned(),
        26 => "undrain".to_owned(),
        _ => return None,
    })
}

/// Chooses tube settings without retry delays, because these delays vary randomly. Some effects can be checked only
/// with the reference model, so only predicted worlds use the settings that have these effects.
fn settings(random: &mut Random, topic: &Topic) -> String {
    let mut settings = String::new();
    if random.once_in(2) {
        settings += &format!(" try:{}", 1 + random.below(3));
    }
    if random.once_in(3) {
        settings += &format!(" dead:{}", topic.tube(random));
    }
    if random.once_in(3) {
        settings += &format!(" max:{}", 1 + random.below(3));
    }
    if topic.predicted && random.once_in(3) {
        settings += &format!(" rate:{}/{}", 1 + random.below(3), 1 + random.below(2));
    }
    if topic.predicted && random.once_in(4) {
        settings += &format!(" ttl:{}", 1 + random.below(5));
    }
    settings
}

fn tags(random: &mut Random, topic: &Topic) -> String {
    let mut tags = String::new();
    // Keys have the same names as tubes.
    let key = random.pick(&TUBES);
    match random.below(6) {
        0 => tags += &format!(" idp:{key}"),
        1 => tags += &format!(" idp:{key}:{}", 1 + random.below(4)),
        2 => tags += &format!(" con:{key}"),
        3 => tags += &format!(" con:{key}:2"),
        4 => tags += &format!(" try:{}", 1 + random.below(3)),
        _ => tags += &format!(" try:{}:{}", 1 + random.below(3), 1 + random.below(2)),
    }
    if topic.unattended || random.once_in(4) {
        tags += &format!(" tub:{}", topic.tube(random));
    }
    if random.once_in(4) && (topic.predicted || random.once_in(8)) {
        tags += &format!(" ttl:{}", 1 + random.below(4));
    }
    groups(random, &mut tags);
    if tags.contains(" idp:") && !tags.contains(" aft:") && random.once_in(4) {
        tags += &format!(" every:{}", 1 + random.below(4));
    }
    tags
}

/// Adds up to two groups to the tags of a job. Groups have the same names as tubes.
fn groups(random: &mut Random, tags: &mut String) {
    let first = random.below(TUBES.len() as u64) as usize;
    for place in 0..random.pick(&[0, 0, 1, 1, 2]) {
        let group = TUBES[(first + place) % TUBES.len()];
        *tags += &match random.below(8) {
            0..4 => format!(" grp:{group}"),
            4 | 5 => format!(" aft:{group}"),
            6 => format!(" aft:{group}:0"),
            _ => format!(" aft:{group}:{}", 1 + random.below(3)),
        };
    }
}

pub fn state(name: &str) -> State {
    match name {
        "ready" => State::Ready,
        "delayed" => State::Delayed,
        "buried" => State::Buried,
        "held" => State::Held,
        "scheduled" => State::Scheduled,
        other => panic!("unexpected state: {other}"),
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

/// Executes a put with tags. `words` are the words of the command line.
pub fn put(model: &mut Model, client: ClientId, words: &[&str], body: &[u8], now: Time) -> String {
    let seconds = |word: &str| Span::from_secs(number(word));
    let terms = (number(words[1]) as u32, seconds(words[2]), Span::from_secs(number(words[3]).max(1)));
    let tags = tags_of(&words[5..], known);
    match model.put_tagged(client, terms, body.to_vec(), tags, now) {
        Ok(Tagged::New(id)) => format!("INSERTED {}", id.0),
        Ok(Tagged::Duplicate { id, state, raised }) => {
            // In the reply, a job that waits for a group has the state DELAYED.
            let state = if state == State::Held { State::Delayed } else { state };
            let name = format!("{state:?}").to_uppercase();
            format!("INSERTED {} {name}{}", id.0, raised.map_or(String::new(), |pri| format!(" {pri}")))
        }
        Ok(Tagged::Ended(id)) => format!("INSERTED {} DELETED", id.0),
        Ok(Tagged::Scheduled { id, replaced }) => {
            format!("INSERTED {} {}", id.0, if replaced { "REPLACED" } else { "SCHEDULED" })
        }
        Err(why) => refused(why),
    }
}

pub fn refused(why: Refused) -> String {
    match why {
        Refused::QueueFull => "TUBE_FULL".to_owned(),
        Refused::Draining => "DRAINING".to_owned(),
        other => panic!("{other:?} in a world without limits"),
    }
}

/// Returns a reply that consists of `word`, the ID of the job, the size of its body, and the body.
pub fn shown(model: &Model, word: &str, id: JobId) -> Vec<u8> {
    let job = model.job(id).expect("a job");
    let head = format!("{word} {} {}\r\n", id.0, job.body.len());
    [head.as_bytes(), &job.body, b"\r\n"].concat()
}

/// Executes a one-line command. Returns an empty reply if the client waits. Returns `None` for unknown commands and for
/// the commands of beanstalkd.
pub fn carry_out(model: &mut Model, client: ClientId, half_closed: bool, words: &[&str], now: Time) -> Option<Vec<u8>> {
    let job = |place: usize| JobId(number(words[place]));
    let text = match words[0] {
        "reserve-batch" => return Some(reserve_batch(model, client, half_closed, words, now)),
        "delete-batch" => {
            let deleted = (1..words.len()).filter(|place| model.delete(client, job(*place))).count();
            format!("DELETED_BATCH {deleted} {}", words.len() - 1 - deleted)
        }
        "touch-all" => format!("TOUCHED_ALL {}", model.touch_all(client, now)),
        "wait" => {
            let timeout = if half_closed { Span::ZERO } else { Span::from_secs(number(words[2])) };
            match model.wait_end(client, job(1), timeout, now) {
                JobEnd::Waiting => return Some(Vec::new()),
                JobEnd::Buried => format!("BURIED {}", words[1]),
                JobEnd::NotFound => "NOT_FOUND".to_owned(),
                JobEnd::TimedOut => "TIMED_OUT".to_owned(),
                JobEnd::OutOfMemory => panic!("the model has no memory limit"),
            }
        }
        "flush-tube" | "flush-buried" => {
            format!("FLUSHED {}", model.flush(known(words[1]), words[0] == "flush-buried"))
        }
        "peek-reserved" => match model.peek_reserved(client) {
            Some(id) => return Some(shown(model, "FOUND", id)),
            None => "NOT_FOUND".to_owned(),
        },
        "list-jobs" => {
            let limit = number(words[4]) as usize;
            match model.list_ids(known(words[1]), state(words[2]), number(words[3]), limit) {
                Some(ids) => return Some(yaml(ids.iter().map(|id| id.0))),
                None => "NOT_FOUND".to_owned(),
            }
        }
        "stats-group" => match model.group(known(words[1])) {
            Some(figures) => return Some(group(model, known(words[1]), figures)),
            None => "NOT_FOUND".to_owned(),
        },
        "move-job" => {
            let terms = (number(words[3]) as u32, Span::from_secs(number(words[4])));
            let moved = model.move_job(client, job(1), known(words[2]), terms, now).expect("memory for a tube");
            if moved { "MOVED" } else { "NOT_FOUND" }.to_owned()
        }
        "move-tube" => {
            let tubes: (Name, Name) = (known(words[1]), known(words[2]));
            let moved = model.move_jobs(client, tubes, state(words[3]), number(words[4]), now);
            format!("MOVED {}", moved.expect("memory for a tube"))
        }
        "limit-tube" => {
            let limit = Some(number(words[2]) as u32).filter(|limit| *limit > 0);
            model.limit(client, known(words[1]), limit).expect("memory for a tube");
            "LIMITED".to_owned()
        }
        "revoke" => if model.revoke(job(1), number(words[2]) as u32, now) { "REVOKED" } else { "NOT_FOUND" }.to_owned(),
        "set-tube" => match model.set_tube(client, known(words[1]), settings_of(&words[2..], known), now) {
            Ok(()) => "SET".to_owned(),
            Err(_) => "BAD_FORMAT".to_owned(),
        },
        "drain" => {
            model.draining = true;
            "DRAINING".to_owned()
        }
        "undrain" => {
            model.draining = false;
            "NOT_DRAINING".to_owned()
        }
        _ => return None,
    };
    Some((text + "\r\n").into_bytes())
}

fn group(model: &Model, name: Name, (pending, waiting, ended): (u64, u64, u64)) -> Vec<u8> {
    let of = |state| model.members_in(name, state);
    let text = format!(
        "---\nname: \"{name}\"\npending: {pending}\nburied: {}\ncomplete: {}\nwaiting-jobs: {waiting}\n\
         ready: {}\nreserved: {}\ndelayed: {}\nheld: {}\ndeleted: {ended}\n",
        of(State::Buried),
        pending == 0,
        of(State::Ready),
        of(State::Reserved),
        of(State::Delayed),
        of(State::Held)
    );
    format!("OK {}\r\n{text}\r\n", text.len()).into_bytes()
}

fn reserve_batch(model: &mut Model, client: ClientId, half_closed: bool, words: &[&str], now: Time) -> Vec<u8> {
    let seconds = words.get(2).filter(|_| !half_closed).map_or(0, |word| number(word));
    let mut ids = match model.reserve(client, Some(Span::from_secs(seconds)), now) {
        Outcome::Waiting => return Vec::new(),
        Outcome::NoJob(NoJob::DeadlineSoon) => return b"DEADLINE_SOON\r\n".to_vec(),
        Outcome::NoJob(_) => return b"RESERVED_BATCH 0\r\n".to_vec(),
        Outcome::Job(id) => vec![id],
    };
    while ids.len() < number(words[1]) as usize {
        let Some(id) = model.reserve_more(client, now) else { break };
        ids.push(id);
    }
    let head = format!("RESERVED_BATCH {}\r\n", ids.len()).into_bytes();
    ids.into_iter().map(|id| shown(model, "RESERVED", id)).fold(head, |all, one| [all, one].concat())
}
