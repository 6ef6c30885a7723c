//! Failed jobs: buried jobs, grouped by tube and reason, and changes to all jobs of a group.
//! The data that an interrupted search keeps are bounded, and count toward the memory limit.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::action::{Arguments, HttpAction, Parsed};
use super::commands::FULL;
use super::lists::{JobRows, JsonList};
use super::reply::{changed, HttpAnswer};
use crate::engine::{beginning, BuriedWalk, Engine, JobExtras, JobId, JobView, OverLimit, Progress, Smallest, State};
use crate::protocol::text::has_part;
use crate::protocol::{sees, Context};

/// The maximum length of a summary in bytes. Longer summaries are truncated.
const SUMMARY: usize = 120;
/// The maximum number of listed groups. Jobs of further groups are only counted.
const MAX_GROUPS: usize = 500;
/// Engine steps for each job, in addition to the steps for finding the job.
const STEPS_PER_JOB: u64 = 3;

/// Returns the start of the reason's first line. Jobs in the same tube with the same summary form a group.
fn summary(reason: &[u8]) -> &[u8] {
    let line = reason.split(|&byte| byte == b'\n' || byte == b'\r').next().unwrap_or_default();
    beginning(line, SUMMARY)
}

fn summary_of<'a>(engine: &'a Engine, job: &JobView) -> &'a [u8] {
    summary(engine.extras(job).map_or(&[], JobExtras::reason))
}

struct FailedGroup {
    tube: Box<[u8]>,
    /// `None` for all buried jobs of the tube.
    reason: Option<Box<[u8]>>,
}

impl FailedGroup {
    fn has(&self, engine: &Engine, job: &JobView) -> bool {
        job.state() == State::Buried
            && engine.tube_of(job) == &*self.tube
            && self.reason.as_ref().is_none_or(|reason| summary_of(engine, job) == &**reason)
    }
}

struct Failures {
    count: u64,
    /// The most recently buried job: its rank in the order of burial, and its ID.
    newest: (u64, JobId),
}

struct FailedGroups {
    filter: Box<[u8]>,
    walk: BuriedWalk,
    /// A key contains the length of the tube name (2 bytes), the tube name and the summary.
    groups: HashMap<Box<[u8]>, Failures>,
    /// The number of jobs that are in none of the first `MAX_GROUPS` groups.
    others: u64,
    key: Vec<u8>,
}

pub fn groups(it: &mut Arguments) -> Parsed {
    let (walk, groups, key) = (BuriedWalk::new(None), HashMap::new(), Vec::new());
    Ok(Box::new(FailedGroups { filter: it.filter(), walk, groups, others: 0, key }))
}

impl HttpAction for FailedGroups {
    fn footprint(&self) -> u64 {
        let keys: usize = self.groups.keys().map(|key| key.len()).sum();
        let groups = keys + self.groups.capacity() * (size_of::<(Box<[u8]>, Failures)>() + 16);
        (self.key.capacity() + self.filter.len() + groups) as u64 + self.walk.footprint()
    }

    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        while let Some(id) = context.engine.next_buried(&mut self.walk) {
            context.engine.take_steps(STEPS_PER_JOB);
            self.add(id, context);
        }
        if context.engine.walked_buried(&self.walk) == Progress::More {
            return None;
        }
        let mut groups: Vec<_> = std::mem::take(&mut self.groups).into_iter().collect();
        groups.sort_unstable_by_key(|(_, failures)| Reverse(failures.newest));
        context.engine.take_steps(4 * groups.len() as u64);
        let mut list = JsonList::default();
        for (key, Failures { count, newest }) in groups {
            let Some((length, rest)) = key.split_first_chunk() else { continue };
            let (tube, reason) = rest.split_at(u16::from_le_bytes(*length).into());
            list.add(|members| {
                members.bytes("tube", tube);
                members.bytes("reason", reason);
                members.number("count", count);
                members.number("newest", newest.1 .0);
            });
        }
        Some(list.finish("failed", &format!("\"others\":{}", self.others)))
    }
}

impl FailedGroups {
    fn add(&mut self, id: JobId, context: &Context) {
        let engine = &*context.engine;
        let Some(job) = engine.job(id) else { return };
        let tube = engine.tube_of(&job);
        let reason = summary_of(engine, &job);
        let is_wanted = has_part(tube, &self.filter) || has_part(reason, &self.filter);
        if !is_wanted || !sees(&context.access, tube) {
            return;
        }
        self.key.clear();
        self.key.extend_from_slice(&(tube.len() as u16).to_le_bytes());
        self.key.extend_from_slice(tube);
        self.key.extend_from_slice(reason);
        let newest = (job.due().nanos(), id);
        if let Some(failures) = self.groups.get_mut(&*self.key) {
            failures.count += 1;
            failures.newest = failures.newest.max(newest);
        } else if self.groups.len() < MAX_GROUPS {
            self.groups.insert(self.key.as_slice().into(), Failures { count: 1, newest });
        } else {
            self.others += 1;
        }
    }
}

struct FailedJobs {
    group: FailedGroup,
    before: u64,
    limit: usize,
    walk: BuriedWalk,
    newest: Smallest<Reverse<(u64, JobId)>>,
    rows: Option<JobRows>,
}

pub fn jobs(it: &mut Arguments) -> Parsed {
    let group = FailedGroup { tube: it.part(0), reason: it.query("reason").map(Into::into) };
    let (before, limit) = (it.query_number("before", u64::MAX)?, it.limit(100, 100)?);
    let (walk, newest) = (BuriedWalk::new(Some(group.tube.clone())), Smallest::new(0, limit + 1));
    Ok(Box::new(FailedJobs { group, before, limit, walk, newest, rows: None }))
}

impl HttpAction for FailedJobs {
    fn footprint(&self) -> u64 {
        let FailedGroup { tube, reason } = &self.group;
        let group = (tube.len() + reason.as_ref().map_or(0, |reason| reason.len())) as u64 + self.newest.footprint();
        group + self.walk.footprint() + self.rows.as_ref().map_or(0, JobRows::footprint)
    }

    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        if self.rows.is_none() {
            while let Some(id) = context.engine.next_buried(&mut self.walk) {
                context.engine.take_steps(STEPS_PER_JOB);
                let job = context.engine.job(id).filter(|job| self.group.has(context.engine, job));
                let rank = job.map(|job| job.due().nanos()).filter(|rank| *rank < self.before);
                rank.into_iter().for_each(|rank| self.newest.offer(Reverse((rank, id))));
            }
            if context.engine.walked_buried(&self.walk) == Progress::More {
                return None;
            }
            let found = self.newest.finish().unwrap_or_default();
            self.rows = Some(JobRows::new(found.into_iter().map(|Reverse(job)| job).collect(), self.limit));
        }
        self.rows.as_mut()?.advance(context, |engine, job| self.group.has(engine, job))
    }
}

pub enum Remedy {
    Kick,
    Delete,
    /// Moves the jobs to this tube, in which they stay buried.
    Move(Box<[u8]>),
}

struct Sweep {
    group: FailedGroup,
    remedy: Remedy,
    walk: BuriedWalk,
    done: u64,
}

pub fn sweep(it: &mut Arguments, remedy: Remedy) -> Parsed {
    let reason = it.bytes("reason", "reason-base64")?.map(Vec::into_boxed_slice);
    let group = FailedGroup { tube: it.part(0), reason };
    Ok(Box::new(Sweep { walk: BuriedWalk::new(Some(group.tube.clone())), group, remedy, done: 0 }))
}

impl HttpAction for Sweep {
    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        let mut stopped = None;
        while let (Some(id), None) = (context.engine.next_buried(&mut self.walk), stopped) {
            context.engine.take_steps(STEPS_PER_JOB);
            if context.engine.job(id).is_some_and(|job| self.group.has(context.engine, &job)) {
                let Context { engine, client, now, .. } = &mut *context;
                let applied = match &self.remedy {
                    Remedy::Kick if !engine.claim_log_room(0) => Err(OverLimit),
                    Remedy::Kick => engine.kick_job(id, *now).map_err(|_| OverLimit),
                    Remedy::Delete => Ok(engine.delete(*client, id, *now)),
                    Remedy::Move(to) => engine.move_buried(*client, id, to, *now),
                };
                match applied {
                    Ok(applied) => self.done += u64::from(applied),
                    Err(OverLimit) => stopped = Some(FULL),
                }
            }
        }
        if stopped.is_none() && context.engine.walked_buried(&self.walk) == Progress::More {
            return None;
        }
        let key = match self.remedy {
            Remedy::Kick => "kicked",
            Remedy::Delete => "deleted",
            Remedy::Move(_) => "moved",
        };
        Some(changed(key, self.done, stopped))
    }

    fn footprint(&self) -> u64 {
        self.walk.footprint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_the_beginning_of_the_first_line() {
        let long = [b"\xc3\xa4".repeat(60), b"\xc3\xa4".to_vec()].concat();
        for (reason, expected) in [
            (b"".as_slice(), b"".as_slice()),
            (b"no such host", b"no such host"),
            (b"exit status 1\nTraceback", b"exit status 1"),
            (b"one\r\ntwo", b"one"),
            (&long, &long[..120]),
            (&[b"x", long.as_slice()].concat(), &[b"x", &long[..118]].concat()),
        ] {
            assert_eq!(summary(reason), expected);
        }
    }
}
