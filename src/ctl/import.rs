//! `import`: puts the jobs that `export` has written.
//!
//! Owns how a job gets into its state. One that is to be buried is put out of every worker's reach, reserved by its
//! id and buried, so that nobody is given it meanwhile. What was reserved becomes ready: its worker is not here.

use super::call::{tube, Call};
use super::feed::{put, Feed};
use super::input::{each_input, Input};
use super::link::{first_word, refusal, Link};
use super::moving::OUT_OF_REACH;
use super::name;
use super::opts::{INTO_TUBE, SKIP};
use super::out::Out;
use super::problem::{Problem, DONE, REFUSED};
use super::record::ImportLine;
use super::scan::Wanted;
use super::tell;
use crate::engine::State;

/// Bad lines that are told one by one.
const TOLD: u64 = 10;

/// Bytes of the longest line: a body of 1 GiB in base64, or escaped.
const MAX_LINE: u64 = 6 << 30;

/// A command on its way.
enum Note {
    Use,
    /// `put`, of the job in this line; with its priority if it is to be buried.
    Put(u64, Option<u32>),
    Hold,
    Bury(u64),
}

#[derive(Default)]
struct Import {
    into: Option<String>,
    skip: u64,
    used: String,
    line: u64,
    done: u64,
    /// Lines before this one are put.
    safe: u64,
    buried: u64,
    refused: u64,
    /// Whether the server can reserve a job by its id, once that was asked.
    can_bury: Option<bool>,
    /// Jobs that are put, to be buried, with their priorities and lines.
    to_bury: Vec<(u64, u32, u64)>,
}

pub fn run(call: &Call, _: &mut Out) -> Result<u8, Problem> {
    let into = call.value(&INTO_TUBE);
    let into = into.as_deref().map(tube).transpose()?;
    let skip = call.number(&SKIP, 0, u64::MAX)?.unwrap_or(0);
    let mut link = Link::open(call)?;
    // Nothing is compared for a client that may put jobs and not look.
    let count = |link: &mut Link| match Wanted::default().count(link) {
        Err(problem) if problem.code == REFUSED => Ok(None),
        counts => counts.map(|counts| Some(counts.iter().sum::<u64>())),
    };
    let before = count(&mut link)?;
    let mut state = Import { into, skip, used: "default".to_owned(), ..Import::default() };
    let done = each_input(&call.operands, &mut |input| state.read(input, &mut link));
    if let Err(problem) = done {
        return Err(Problem::new(problem.code, state.how_far(&problem.text)));
    }
    let after = count(&mut link)?;
    tell(&format!(
        "imported {} jobs, {} of them buried; {} lines were refused",
        state.done, state.buried, state.refused
    ));
    if let Some((before, after)) = before.zip(after).filter(|(before, after)| after.wrapping_sub(*before) != state.done)
    {
        tell(&format!("the server counted {before} jobs before, and {after} now: others use it as well"));
    }
    Ok(if state.refused == 0 { DONE } else { REFUSED })
}

impl Import {
    /// What to do after a failure.
    fn how_far(&self, problem: &str) -> String {
        let left = match self.to_bury.len() {
            0 => String::new(),
            left => format!("; {left} more are delayed, not buried"),
        };
        // A job that is not buried yet is put again.
        let buried_up_to = self.to_bury.iter().map(|(.., line)| line - 1).min().unwrap_or(u64::MAX);
        let skip = self.safe.min(buried_up_to).max(self.skip);
        format!("{problem}; {} jobs were imported{left}; to go on: --skip {skip}", self.done)
    }

    fn read(&mut self, mut input: Input, link: &mut Link) -> Result<(), Problem> {
        let mut feed = Feed::new();
        let mut line = Vec::new();
        while input.line(&mut line, MAX_LINE, self.done)? {
            self.line += 1;
            if self.line > self.skip && !line.trim_ascii().is_empty() {
                match ImportLine::parse(&line) {
                    Ok(job) => self.add(&mut feed, link, job)?,
                    Err(problem) => self.refuse(self.line, &problem),
                }
            }
        }
        feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))?;
        self.bury(link)
    }

    fn add(&mut self, feed: &mut Feed<Note>, link: &mut Link, job: ImportLine) -> Result<(), Problem> {
        let tube = self.into.clone().or(job.tube).unwrap_or_else(|| "default".to_owned());
        if tube != self.used {
            let command = format!("use {tube}");
            if name::is_foreign(&tube) {
                // A server may know no such names, and the job must not go into another tube.
                feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))?;
                match link.expect(&command, "USING") {
                    Err(problem) if problem.code == REFUSED => {
                        self.refuse(self.line, &problem.text);
                        return Ok(());
                    }
                    used => used?,
                };
            } else {
                feed.add(Note::Use).extend_from_slice(format!("{command}\r\n").as_bytes());
            }
            self.used = tube;
        }
        let is_buried = job.state == State::Buried;
        if is_buried && !self.can_bury(feed, link)? {
            self.refuse(self.line, "the server has no reserve-job, so nothing can be buried");
            return Ok(());
        }
        let delay = match job.state {
            State::Buried => OUT_OF_REACH,
            State::Delayed => job.delay,
            _ => 0,
        };
        let bytes = feed.add(Note::Put(self.line, is_buried.then_some(job.pri)));
        put(bytes, (job.pri, delay, job.ttr), "", &job.body);
        feed.flow(link, &mut |note, reply| self.hear(note, &reply.line))?;
        if self.to_bury.len() < super::feed::AHEAD / 2 {
            return Ok(());
        }
        feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))?;
        self.bury(link)
    }

    /// Whether the server knows `reserve-job`, which 1.12 has brought.
    fn can_bury(&mut self, feed: &mut Feed<Note>, link: &mut Link) -> Result<bool, Problem> {
        if let Some(known) = self.can_bury {
            return Ok(known);
        }
        feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))?;
        // No job has this id.
        let reply = link.ask("reserve-job 18446744073709551615")?;
        let known = reply.line == "NOT_FOUND";
        self.can_bury = Some(known);
        Ok(known)
    }

    fn refuse(&mut self, line: u64, problem: &str) {
        self.refused += 1;
        if self.refused <= TOLD {
            tell(&format!("line {line}: {problem}"));
        }
    }

    fn hear(&mut self, note: Note, line: &str) -> Result<(), Problem> {
        match (note, first_word(line)) {
            (Note::Use, "USING") | (Note::Hold, "RESERVED") => {}
            (Note::Put(place, pri), "INSERTED") => {
                self.safe = place;
                let id = line.split(' ').nth(1).and_then(|id| id.parse().ok()).unwrap_or(0);
                match pri {
                    None => self.done += 1,
                    Some(pri) => self.to_bury.push((id, pri, place)),
                }
            }
            (Note::Put(place, _), "JOB_TOO_BIG") => self.refuse(place, &refusal("put", line).text),
            (Note::Put(place, _), _) => {
                return Err(Problem::refused(format!("line {place}: {}", refusal("put", line).text)));
            }
            (Note::Bury(id), "BURIED") => {
                self.to_bury.retain(|(waiting, ..)| *waiting != id);
                (self.done, self.buried) = (self.done + 1, self.buried + 1);
            }
            (Note::Use, _) => return Err(refusal("use", line)),
            (Note::Hold, _) => return Err(refusal("reserve-job", line)),
            (Note::Bury(_), _) => return Err(refusal("bury", line)),
        }
        Ok(())
    }

    /// Buries what waits for that.
    fn bury(&mut self, link: &mut Link) -> Result<(), Problem> {
        let waiting = std::mem::take(&mut self.to_bury);
        let mut feed = Feed::new();
        for (id, pri, _) in &waiting {
            feed.add(Note::Hold).extend_from_slice(format!("reserve-job {id}\r\n").as_bytes());
            feed.add(Note::Bury(*id)).extend_from_slice(format!("bury {id} {pri}\r\n").as_bytes());
        }
        self.to_bury = waiting;
        feed.finish(link, &mut |note, reply| self.hear(note, &reply.line))
    }
}
