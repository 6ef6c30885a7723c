//! What a verbose server logs of a command and of its reply.
//!
//! Owns the words. The body of a job is never among them: it is nobody's business but that of producer and worker.

use super::{beanstalk, Output, Request};
use crate::engine::{Engine, JobId, Time};

/// Bytes of a reply's first line that are logged at most.
const MOST: usize = 200;

/// Replies whose line names a job.
const WITH_JOB: [&str; 3] = ["INSERTED ", "RESERVED ", "FOUND "];

/// The command, with the tube of the job that it names; before it is carried out, since that may be the job's end.
pub fn of_request(request: &Request, engine: &Engine, now: Time) -> String {
    let Request::Beanstalk(request) = request else { return request.name().to_owned() };
    let name = request.counts.map_or("no command", beanstalk::CommandName::name);
    let (words, job) = request.command.words();
    let space = if words.is_empty() { "" } else { " " };
    format!("{name}{space}{words}{}", job.map_or(String::new(), |id| tube_of(id, engine, now)))
}

/// The first line of what stands in `out` behind its first `before` bytes, with the tube of the job that it names, if
/// it is a beanstalk client's; else its size.
pub fn of_reply(out: &Output, before: usize, is_text: bool, engine: &Engine, now: Time) -> String {
    let size = out.len().saturating_sub(before);
    if size == 0 {
        return "no reply yet".to_owned();
    }
    if !is_text {
        return format!("{size} bytes");
    }
    let bytes = out.chunks().flatten().skip(before).take(MOST);
    let line: Vec<u8> = bytes.take_while(|byte| **byte != b'\r').copied().collect();
    let line = line.escape_ascii().to_string();
    let id = WITH_JOB.iter().find_map(|word| line.strip_prefix(word)?.split(' ').next()?.parse().ok());
    let tube = id.map_or(String::new(), |id| tube_of(JobId(id), engine, now));
    line + &tube
}

fn tube_of(id: JobId, engine: &Engine, now: Time) -> String {
    engine.job_stats(id, now).map_or(String::new(), |job| format!(" (tube {})", job.tube.escape_ascii()))
}
