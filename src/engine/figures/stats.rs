//! The engine's figures, as plain data.
//!
//! Owns the gathering. Must not format: each protocol shows these figures in its own way.
//!
//! Touches: clients, limits, store, tubes.

use crate::engine::data::{
    Account, ClientId, History, Job, JobCounts, JobExtras, JobId, List, Name, Priority, Span, State, Time, Tube,
    TubeSettings, TubeTimes,
};
use crate::engine::Engine;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    pub jobs: JobCounts,
    pub total_jobs: u64,
    /// Reservations that ended because their time to run did.
    pub timeouts: u64,
    pub tubes: usize,
    pub connections: usize,
    pub producers: usize,
    pub workers: usize,
    pub waiting: usize,
    pub total_connections: u64,
    /// `true` if no new jobs are accepted.
    pub draining: bool,
    pub memory: Account,
    /// The limit on the sum of the four figures above.
    pub max_memory: u64,
    /// Jobs whose time to live ended before they were finished.
    pub evicted: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TubeStats<'a> {
    pub name: &'a [u8],
    pub jobs: JobCounts,
    /// `true` if the tube stays even if nothing refers to it.
    pub kept: bool,
    pub priority_classes: [u32; 3],
    /// Ready jobs that are too large to be leased.
    pub large: u64,
    pub total_jobs: u64,
    pub using: u32,
    pub watching: u32,
    /// Watching clients that are notified of work, by [`ReservePolicy::Notified`](crate::engine::ReservePolicy).
    pub sleepers: u32,
    /// Clients that watch it and wait for a job.
    pub waiting: usize,
    pub deletes: u64,
    pub pauses: u64,
    /// The full length of the pause in progress; zero if there is none.
    pub pause: Span,
    /// The remaining time of the pause.
    pub pause_left: Span,
    /// The waiting and running times of its jobs, if one was reserved.
    pub times: Option<&'a TubeTimes>,
    pub settings: Option<&'a TubeSettings>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupStats {
    /// Members by state, in the order of [`State::UNFINISHED`].
    pub members: [u32; State::UNFINISHED.len()],
    /// Members that have ended since the group was created.
    pub ended: u64,
    /// Waits of held jobs for the group.
    pub waiting: u64,
}

impl GroupStats {
    pub fn members_in(&self, state: State) -> u64 {
        self.members.get(state as usize).copied().unwrap_or(0).into()
    }

    pub fn pending(&self) -> u64 {
        self.members.iter().map(|&count| u64::from(count)).sum()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobStats<'a> {
    pub id: JobId,
    pub tube: &'a [u8],
    pub state: State,
    pub pri: Priority,
    pub age: Span,
    pub delay: Span,
    pub ttr: Span,
    /// Reserved or delayed: the remaining time to run or delay; otherwise zero.
    pub left: Span,
    pub history: History,
    /// The number of failed tries since it was put or kicked.
    pub fails: u8,
    /// The number of remaining tries, if its tags or its tube limit them.
    pub tries_left: Option<u8>,
    /// Of a schedule: the number of runs without a copy since the last copy was put.
    pub missed: u32,
    /// The origin of a dead letter.
    pub dead_from: Option<&'a [u8]>,
    /// The number of the connection that has it reserved; `None` for leases.
    pub holder: Option<u32>,
    /// The last progress report of its worker: numerator and denominator.
    pub progress: Option<(u32, u32)>,
}

/// The maximum number of watches in a queue that are counted one by one.
const COUNTED: usize = 1024;

impl Engine {
    pub fn stats(&self) -> Stats {
        Stats {
            jobs: self.store.counts,
            total_jobs: self.store.total,
            timeouts: self.store.timeouts,
            evicted: self.store.evicted,
            tubes: self.tubes.len(),
            connections: self.clients.len() - 1 - self.clients.leaving,
            producers: self.clients.producers,
            workers: self.clients.workers,
            waiting: self.clients.waiting,
            total_connections: self.clients.connected,
            draining: self.draining,
            memory: self.memory(),
            max_memory: self.limits.max_memory,
        }
    }

    /// Returns the figures of the tube with this name, if it exists.
    pub fn tube_stats(&self, name: &[u8], now: Time) -> Option<TubeStats<'_>> {
        let tube = self.tubes.get(self.tubes.find(name)?);
        let waiting = self.count_waiting(&tube.waiting) + self.count_waiting(&tube.leasing);
        Some(TubeStats { waiting, ..tube_figures(tube, now) })
    }

    /// Returns the number of clients that wait in this queue, including outdated watches if it is very long.
    fn count_waiting(&self, queue: &List) -> usize {
        if queue.len() > COUNTED {
            return queue.len();
        }
        let watches = queue.iter(&self.clients.watches).map(|watch| self.clients.watches.get(watch));
        watches.filter(|watch| self.clients[ClientId(watch.client)].is_queued(watch)).count()
    }

    /// Returns the figures of the group with this name, if it exists: a job is a member of it or waits for it.
    pub fn group_stats(&self, name: &Name) -> Option<GroupStats> {
        let group = self.store.groups.get(self.find_group(name)?);
        Some(GroupStats { members: group.members, ended: group.count.ended, waiting: group.waiting() as u64 })
    }

    /// Returns the figures of the job with this ID, if it exists.
    pub fn job_stats(&self, id: JobId, now: Time) -> Option<JobStats<'_>> {
        let job = self.job(id)?;
        let left = match job.state() {
            State::Reserved | State::Delayed | State::Scheduled => job.due.since(now),
            State::Ready | State::Buried | State::Held | State::Finished => Span::ZERO,
        };
        Some(JobStats {
            id,
            tube: &self.tubes.get(job.tube).name,
            state: job.state(),
            pri: job.pri,
            age: now.since(job.created),
            delay: job.delay(),
            ttr: job.ttr(),
            left,
            history: job.history(),
            fails: job.fails,
            tries_left: self.tries_left(&job),
            missed: match job.state() {
                State::Scheduled => self.store.schedules.get(job.holder).missed,
                _ => 0,
            },
            dead_from: self.dead_from(&job),
            holder: (job.state() == State::Reserved && !job.is_leased()).then(|| self.connection(ClientId(job.holder))),
            progress: self.progress(&job),
        })
    }

    /// Returns the last progress report of the worker that has reserved this job.
    pub fn progress(&self, job: &Job) -> Option<(u32, u32)> {
        let progress = self.extras(job).map(JobExtras::progress);
        progress.filter(|(_, total)| *total > 0 && job.state() == State::Reserved)
    }
}

pub(in crate::engine) fn tube_figures(tube: &Tube, now: Time) -> TubeStats<'_> {
    TubeStats {
        name: &tube.name,
        jobs: tube.counts,
        priority_classes: tube.priority_classes,
        large: tube.large_jobs() as u64,
        total_jobs: tube.total_jobs,
        using: tube.using,
        watching: tube.watching,
        sleepers: tube.sleepers,
        waiting: tube.waiting.len() + tube.leasing.len(),
        deletes: tube.deletes,
        pauses: tube.pauses,
        pause: tube.pause.as_ref().map_or(Span::ZERO, |pause| pause.length),
        pause_left: tube.pause.as_ref().map_or(Span::ZERO, |pause| pause.until.since(now)),
        kept: tube.kept,
        times: tube.times.as_deref(),
        settings: tube.rules.as_ref().map(|rules| &rules.settings),
    }
}
