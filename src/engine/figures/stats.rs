//! Statistics of the queue, tubes, groups and jobs, as plain data.
//!
//! Owns the collection of statistics. Must not format statistics, because each protocol has a different format.
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
    pub timeouts: u64,
    pub tubes: usize,
    pub connections: usize,
    pub producers: usize,
    pub workers: usize,
    pub waiting: usize,
    pub total_connections: u64,
    pub draining: bool,
    pub memory: Account,
    pub max_memory: u64,
    /// The number of jobs that expired before they were finished.
    pub evicted: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TubeStats<'a> {
    pub name: &'a [u8],
    pub jobs: JobCounts,
    pub kept: bool,
    pub priority_classes: [u32; 3],
    /// The number of ready jobs that are too large to be leased.
    pub large: u64,
    pub total_jobs: u64,
    pub using: u32,
    pub watching: u32,
    /// The number of watching clients with [`ReservePolicy::Notified`](crate::engine::ReservePolicy).
    pub sleepers: u32,
    pub waiting: usize,
    pub deletes: u64,
    pub pauses: u64,
    pub pause: Span,
    pub pause_left: Span,
    pub times: Option<&'a TubeTimes>,
    pub settings: Option<&'a TubeSettings>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupStats {
    /// Counts in the order of [`State::UNFINISHED`].
    pub members: [u32; State::UNFINISHED.len()],
    pub ended: u64,
    /// The number of held jobs that wait for the group, counted once per `aft:` tag.
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
    /// The time until the time to run or the delay ends, or until a schedule is due. Zero in other states.
    pub left: Span,
    pub history: History,
    pub fails: u8,
    pub tries_left: Option<u8>,
    /// The number of skipped copies of a schedule since the last put.
    pub missed: u32,
    /// The existing copy of a schedule whose last run was skipped.
    pub blocked_by: Option<JobId>,
    pub dead_from: Option<&'a [u8]>,
    /// The connection that holds the job; `None` if the job is leased or not reserved.
    pub holder: Option<u32>,
    pub progress: Option<(u32, u32)>,
}

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

    pub fn tube_stats(&self, name: &[u8], now: Time) -> Option<TubeStats<'_>> {
        let tube = self.tubes.get(self.tubes.find(name)?);
        let waiting = self.count_waiting(&tube.waiting) + self.count_waiting(&tube.leasing);
        Some(TubeStats { waiting, ..tube_figures(tube, now) })
    }

    /// Returns the number of clients that wait in `queue`. If the queue is long, also counts watches of earlier waits.
    fn count_waiting(&self, queue: &List) -> usize {
        if queue.len() > COUNTED {
            return queue.len();
        }
        let watches = queue.iter(&self.clients.watches).map(|watch| self.clients.watches.get(watch));
        watches.filter(|watch| self.clients[ClientId(watch.client)].is_queued(watch)).count()
    }

    /// A group exists while any job is a member or waits for the group.
    pub fn group_stats(&self, name: &Name) -> Option<GroupStats> {
        let group = self.store.groups.get(self.find_group(name)?);
        Some(GroupStats { members: group.members, ended: group.count.ended, waiting: group.waiting() as u64 })
    }

    pub fn job_stats(&self, id: JobId, now: Time) -> Option<JobStats<'_>> {
        let job = self.job(id)?;
        let left = match job.state() {
            State::Reserved | State::Delayed | State::Scheduled => job.due.since(now),
            State::Ready | State::Buried | State::Held | State::Finished => Span::ZERO,
        };
        let schedule = (job.state() == State::Scheduled).then(|| self.store.schedules.get(job.holder));
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
            missed: schedule.map_or(0, |schedule| schedule.missed),
            blocked_by: schedule.filter(|it| it.missed > 0).and_then(|it| self.copy_of(job.tube, &it.name)),
            dead_from: self.dead_from(&job),
            holder: (job.state() == State::Reserved && !job.is_leased()).then(|| self.connection(ClientId(job.holder))),
            progress: self.progress(&job),
        })
    }

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
