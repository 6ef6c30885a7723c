//! `put`: jobs from the command line, from stdin, or from files, one per file or one per line.
//!
//! Owns the definition of a job's body. Lines are sent at the server's speed, and their IDs are not printed.

use std::io::IsTerminal;

use super::call::{tube, Call};
use super::feed::{put, Feed};
use super::input::{each_input, Input};
use super::link::{first_word, refusal, Link};
use super::opts::{Flag, AFTER, CON, CRON, DELAY, EVERY, FILE, GROUP, JSON, LINES, PRI, TRY, TTL, TTR, TUBE, UNIQUE};
use super::out::Out;
use super::problem::{Problem, DONE, REFUSED};
use super::tell;
use crate::engine::Recurrence;
use crate::protocol::text::is_tube_name;
use crate::shared::json;

/// The number of refusals that are reported individually.
const TOLD: u64 = 10;

/// The arguments of the puts, and their results.
#[derive(Default)]
struct Put {
    pri: u32,
    delay: u32,
    ttr: u32,
    /// The tags, which the server must know, each preceded by a space.
    tags: String,
    /// `None` if IDs are not printed; `Some(true)` prints them as objects.
    ids: Option<bool>,
    what: &'static str,
    done: u64,
    /// The number of those whose key already had a job.
    known: u64,
    refused: u64,
}

/// The tags that are options, and the server's words for them.
const TAGS: [(&Flag, &str); 8] = [
    (&UNIQUE, "idp"),
    (&CON, "con"),
    (&TTL, "ttl"),
    (&TRY, "try"),
    (&GROUP, "grp"),
    (&AFTER, "aft"),
    (&CRON, "cron"),
    (&EVERY, "every"),
];

/// Returns the tags of the command line. A value that is not a single word must not reach a server.
fn tags(call: &Call) -> Result<Vec<(&'static str, String)>, Problem> {
    let mut tags = Vec::new();
    for (opt, word, value) in
        TAGS.iter().flat_map(|(opt, word)| call.values(opt).into_iter().map(|value| (*opt, *word, value)))
    {
        let is_right = match word {
            "cron" => matches!(Recurrence::parse(value.as_bytes()), Some(Recurrence::Minutes(_))),
            "every" => matches!(Recurrence::parse(value.as_bytes()), Some(Recurrence::Every(_))),
            _ => value.split(':').all(|part| is_tube_name(part.as_bytes())),
        };
        if !is_right {
            return Err(Problem::usage(format!("--{}: {}", opt.long, value.escape_debug())));
        }
        tags.push((word, if word == "cron" { format!(" cron:\"{value}\"") } else { format!(" {word}:{value}") }));
    }
    let has = |wanted: &str| tags.iter().any(|(word, _)| *word == wanted);
    if (has("cron") || has("every")) && !has("idp") {
        return Err(Problem::usage("a job that recurs needs a name: --unique"));
    }
    Ok(tags)
}

/// Requires that the server knows these tags: a server that does not would execute the body as commands.
fn demand(link: &mut Link, tags: &[(&str, String)]) -> Result<(), Problem> {
    for (word, _) in tags {
        if !knows(link, word)? {
            return Err(Problem::refused(format!("the server does not know {word}, which this needs")));
        }
    }
    Ok(())
}

/// Returns `true` if the server knows this tag. Sends a put whose tag is malformed and whose body is a harmless
/// command, which only a server that does not know the tag executes. Unlike `stats`, this needs no right.
pub fn knows(link: &mut Link, word: &str) -> Result<bool, Problem> {
    const BODY: &str = "list-tube-used";
    const END: &str = "no-such-command";
    link.send(format!("put 0 0 1 {} {word}:\r\n{BODY}\r\n{END}\r\n", BODY.len()).as_bytes())?;
    let mut replies = Vec::new();
    while replies.last().is_none_or(|line| line != "UNKNOWN_COMMAND") {
        replies.push(link.reply()?.line);
    }
    Ok(replies.len() <= 2)
}

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let name = tube(&call.value(&TUBE).unwrap_or_else(|| "default".to_owned()))?;
    let lines = call.has(&LINES);
    let files = call.values(&FILE);
    if !call.operands.is_empty() && (lines || !files.is_empty()) {
        return Err(Problem::usage("either bodies or --lines or --file"));
    }
    let ids = if lines && !call.has(&JSON) { None } else { Some(call.has(&JSON)) };
    let tags = tags(call)?;
    let mut state = Put {
        pri: call.short_number(&PRI)?.unwrap_or(1024),
        delay: call.short_number(&DELAY)?.unwrap_or(0),
        ttr: call.short_number(&TTR)?.unwrap_or(60),
        tags: tags.iter().map(|(_, tag)| tag.as_str()).collect(),
        ids,
        what: if lines { "line" } else { "job" },
        ..Put::default()
    };
    let reads = call.operands.is_empty();
    if reads && files.is_empty() && !lines && std::io::stdin().is_terminal() {
        return Err(Problem::usage("a body, --lines, --file, or a body on stdin"));
    }
    let mut link = Link::open(call)?;
    demand(&mut link, &tags)?;
    link.expect(&format!("use {name}"), "USING")?;
    let mut feed = Feed::new();
    for body in &call.operands {
        state.add(&mut feed, &mut link, out, body.as_bytes())?;
    }
    if reads {
        each_input(&files, &mut |mut input| match lines {
            true => state.add_lines(&mut feed, &mut link, out, &mut input),
            false => state.add(&mut feed, &mut link, out, &input.rest()?),
        })?;
    }
    feed.finish(&mut link, &mut |(), reply| state.hear(out, &reply.line))?;
    if lines {
        out.flush()?;
        let known = if state.known > 0 { format!(", {} had been put before", state.known) } else { String::new() };
        tell(&format!("{} jobs are in tube {name}{known}, {} were refused", state.done, state.refused));
    }
    Ok(if state.refused == 0 { DONE } else { REFUSED })
}

impl Put {
    fn add(&mut self, feed: &mut Feed<()>, link: &mut Link, out: &mut Out, body: &[u8]) -> Result<(), Problem> {
        put(feed.add(()), (self.pri, self.delay, self.ttr), &self.tags, body);
        feed.flow(link, &mut |(), reply| self.hear(out, &reply.line))
    }

    fn add_lines(
        &mut self,
        feed: &mut Feed<()>,
        link: &mut Link,
        out: &mut Out,
        input: &mut Input,
    ) -> Result<(), Problem> {
        let mut body = Vec::new();
        while input.line(&mut body, u64::MAX, self.done)? {
            self.add(feed, link, out, body.strip_suffix(b"\n").unwrap_or(&body))?;
        }
        Ok(())
    }

    fn hear(&mut self, out: &mut Out, line: &str) -> Result<(), Problem> {
        let place = self.done + self.refused + 1;
        match first_word(line) {
            "INSERTED" => self.done += 1,
            // The server has no room for this job, nor for the others.
            "DRAINING" | "OUT_OF_MEMORY" | "TUBE_FULL" => {
                let problem = refusal("put", line);
                return Err(Problem::refused(format!(
                    "{} {place}: {}; {} were put",
                    self.what, problem.text, self.done
                )));
            }
            // In both cases there is no ID with which to continue.
            "BURIED" => return Err(Problem::refused(format!("{} {place}: the server has no memory left", self.what))),
            _ => {
                self.refused += 1;
                if self.refused <= TOLD {
                    tell(&format!("{} {place}: {}", self.what, refusal("put", line).text));
                }
                return Ok(());
            }
        }
        let mut words = line.split(' ').skip(1);
        let id = words.next().and_then(|id| id.parse().ok()).unwrap_or(0);
        let known = words.next().filter(|word| *word != "SCHEDULED");
        let (is_replaced, known) = (known == Some("REPLACED"), known.filter(|word| *word != "REPLACED"));
        self.known += u64::from(known.is_some());
        match self.ids {
            None => Ok(()),
            Some(false) => out.line(&id.to_string()),
            Some(true) => out.line(&json::object(|json| {
                json.number("id", id);
                if is_replaced {
                    json.truth("replaced", true);
                }
                if let Some(state) = known {
                    json.text("duplicate-of", state.to_ascii_lowercase().as_bytes());
                }
            })),
        }
    }
}
