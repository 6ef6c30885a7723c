//! The subcommand `put`, which puts jobs from arguments, files or stdin.

use std::io::IsTerminal;

use super::prelude::*;
use crate::engine::Recurrence;
use crate::protocol::text::is_tube_name;

pub const MAX_REPORTS: u64 = 10;

struct Put<'a> {
    link: Link,
    pipeline: Pipeline<()>,
    /// Priority, delay and time to run.
    numbers: (u32, u32, u32),
    tags: String,
    results: Results<'a>,
}

struct Results<'a> {
    out: &'a mut Out,
    /// `Some(true)` for JSON, `Some(false)` for text, `None` to print no IDs.
    ids: Option<bool>,
    what: &'static str,
    done: u64,
    known: u64,
    refused: u64,
}

#[rustfmt::skip]
const TAGS: [(&Flag, &str); 8] = [
    (&UNIQUE, "idp"), (&CON, "con"), (&TTL, "ttl"), (&TRY, "try"), (&GROUP, "grp"), (&AFTER, "aft"), (&CRON, "cron"),
    (&EVERY, "every"),
];

/// Returns the name and the text of each tag. Rejects invalid values, which could change the rest of the command.
fn tags(call: &Call) -> Result<Vec<(&'static str, String)>> {
    let mut tags = Vec::new();
    for (opt, word) in TAGS {
        for value in call.values(opt) {
            let is_valid = match word {
                "cron" => matches!(Recurrence::parse(value.as_bytes()), Some(Recurrence::Minutes(_))),
                "every" => matches!(Recurrence::parse(value.as_bytes()), Some(Recurrence::Every(_))),
                _ => value.split(':').all(|part| is_tube_name(part.as_bytes())),
            };
            Problem::check_usage(is_valid, &format!("--{}: invalid value: {}", opt.long, value.escape_debug()))?;
            tags.push((word, if word == "cron" { format!(" cron:\"{value}\"") } else { format!(" {word}:{value}") }));
        }
    }
    let has = |wanted: &str| tags.iter().any(|(word, _)| *word == wanted);
    let is_named = has("idp") || !has("cron") && !has("every");
    Problem::check_usage(is_named, "--cron and --every require --unique, the name of the schedule")?;
    Ok(tags)
}

pub fn run(call: &Call, out: &mut Out) -> Result<u8> {
    let name = tube(&call.value(&TUBE).unwrap_or_else(|| "default".to_owned()))?;
    let lines = call.has(&LINES);
    let files = call.values(&FILE);
    let has_one_source = call.operands.is_empty() || !lines && files.is_empty();
    Problem::check_usage(has_one_source, "put: bodies cannot be used with --lines or --file")?;
    let ids = if lines && !call.has(&JSON) { None } else { Some(call.has(&JSON)) };
    let tags = tags(call)?;
    let number = |opt: &Flag, default| call.short_number(opt).map(|number| number.unwrap_or(default));
    let numbers = (number(&PRI, 1024)?, number(&DELAY, 0)?, number(&TTR, 60)?);
    let reads = call.operands.is_empty();
    let has_body = !reads || !files.is_empty() || lines || !std::io::stdin().is_terminal();
    Problem::check_usage(has_body, "put requires a body, --lines, --file, or a body on stdin")?;
    let mut link = Link::open(call)?;
    for (word, _) in &tags {
        // A server that does not support the tag would execute the job body as commands.
        let unknown = || Problem::refused(format!("the server does not support the tag {word}, which this requires"));
        ensure!(knows(&mut link, word)?, unknown());
    }
    link.use_tube(&name)?;
    let what = if lines { "line" } else { "job" };
    let results = Results { out, ids, what, done: 0, known: 0, refused: 0 };
    let tags = tags.into_iter().map(|(_, tag)| tag).collect();
    let mut state = Put { link, pipeline: Pipeline::new(), numbers, tags, results };
    call.operands.iter().try_for_each(|body| state.add(body.as_bytes()))?;
    if reads {
        each_input(&files, &mut |mut input| {
            if !lines {
                return state.add(&input.rest()?);
            }
            let mut line = Vec::new();
            while input.line(&mut line, u64::MAX, state.results.done)? {
                state.add(line.strip_suffix(b"\n").unwrap_or(&line))?;
            }
            Ok(())
        })?;
    }
    let Put { link, pipeline, results, .. } = &mut state;
    pipeline.finish(link, &mut |(), reply| results.add(&reply.line))?;
    if lines {
        results.out.flush()?;
        let known = if results.known > 0 { format!(", {} already existed", results.known) } else { String::new() };
        tell(&format!("{} jobs are in tube {name}{known}, {} were refused", results.done, results.refused));
    }
    Ok(if results.refused == 0 { DONE } else { REFUSED })
}

impl Put<'_> {
    fn add(&mut self, body: &[u8]) -> Result {
        let Put { link, pipeline, results, .. } = self;
        put(pipeline.add(()), self.numbers, &self.tags, body);
        pipeline.send_full_batch(link, &mut |(), reply| results.add(&reply.line))
    }
}

impl Results<'_> {
    fn add(&mut self, line: &str) -> Result {
        let number = self.done + self.refused + 1;
        match first_word(line) {
            "INSERTED" => self.done += 1,
            // All following jobs would fail too.
            "DRAINING" | "OUT_OF_MEMORY" | "TUBE_FULL" => {
                let text = format!("{} {number}: {}; {} were put", self.what, refusal("put", line).text, self.done);
                return Err(Problem::refused(text));
            }
            "BURIED" => return Err(Problem::refused(format!("{} {number}: the server is out of memory", self.what))),
            _ => {
                self.refused += 1;
                if self.refused <= MAX_REPORTS {
                    tell(&format!("{} {number}: {}", self.what, refusal("put", line).text));
                }
                return Ok(());
            }
        }
        let mut words = line.split(' ').skip(1);
        let id = words.next().and_then(|id| id.parse().ok()).unwrap_or(0);
        let state = words.next().filter(|word| *word != "SCHEDULED");
        let (is_replaced, duplicate) = (state == Some("REPLACED"), state.filter(|word| *word != "REPLACED"));
        self.known += u64::from(duplicate.is_some());
        match self.ids {
            None => Ok(()),
            Some(false) => self.out.line(&id.to_string()),
            Some(true) => self.out.line(&json::object(|json| {
                json.number("id", id);
                if is_replaced {
                    json.truth("replaced", true);
                }
                duplicate.iter().for_each(|it| json.text("duplicate-of", it.to_ascii_lowercase().as_bytes()));
            })),
        }
    }
}
