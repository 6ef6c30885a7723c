//! Statistics of the queue, tubes, groups, jobs and connections, and the ages of the oldest jobs. Must not format
//! statistics, because each protocol has a different format. The search for the oldest job in a state raises a lower
//! bound on the job's ID, so that no ID is checked twice.
//! Touches: agenda, clients, draining, limits, store, tubes.

use crate::engine::data::*;
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
    /// The number of members in each state, in the order of [`State::UNFINISHED`].
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
    /// The remaining time to run, the remaining delay, or the time until a schedule is due. Zero in other states.
    pub left: Span,
    pub history: History,
    pub fails: u8,
    pub tries_left: Option<u8>,
    /// The number of runs that a schedule has skipped since its last copy or the server's start, whichever is later.
    pub missed: u32,
    /// If a schedule's last run was skipped, the ID of the copy that still exists, if any.
    pub blocked_by: Option<JobId>,
    pub dead_from: Option<&'a [u8]>,
    /// The connection that holds the job; `None` if the job is leased or not reserved.
    pub holder: Option<u32>,
    pub progress: Option<(u32, u32)>,
}

/// If a queue of watches is longer than this, its waiting clients are not counted one by one.
const COUNTED: usize = 1024;
/// The maximum number of tubes shown for a client. Only these tubes determine which users may see the client.
pub const SHOWN_TUBES: usize = 16;

#[derive(Debug)]
pub struct ClientStats<'a> {
    pub client: ClientId,
    /// The connection number, which is never reused. 0 stands for the pseudo-client that holds leased jobs.
    pub number: u32,
    /// `None` if each command names a tube.
    pub used: Option<&'a [u8]>,
    pub watching: usize,
    pub watched: Vec<&'a [u8]>,
    pub waits: bool,
    pub held: usize,
    /// The reserved job whose time to run expires first.
    pub job: Option<JobView<'a>>,
    pub age: Span,
    pub idle: Span,
}

/// The searched states, in the order of [`OldestIds`].
const STATES: [State; 3] = [State::Ready, State::Delayed, State::Buried];
/// If more queued jobs than this would have to be compared, the oldest job is found by ID or by slot instead.
const SHORT: usize = 128;

/// The ID and the creation time of the oldest job.
type Oldest = (JobId, Time);

#[derive(Debug, Default)]
pub struct FindOldest {
    /// `None` searches the jobs of all tubes.
    tube: Option<Box<[u8]>>,
    /// In the order of [`STATES`]; `None` for a state without jobs.
    found: Vec<Option<Oldest>>,
    /// If IDs are sparse, the next slot of a walk over all jobs, and the smallest ID that the walk has found so far.
    walk: Option<(u32, u64)>,
    /// The next ID of a search by ID. Exceeds the lower bound if older jobs have entered the state during the search.
    reached: u64,
}

impl FindOldest {
    pub fn new(tube: Box<[u8]>) -> FindOldest {
        FindOldest { tube: Some(tube), ..FindOldest::default() }
    }

    pub fn tube(&self) -> &[u8] {
        self.tube.as_deref().unwrap_or_default()
    }

    pub fn ages(&self, now: Time) -> [Span; 3] {
        [0, 1, 2].map(|position| self.oldest(position).map_or(Span::ZERO, |(_, put)| now.since(put)))
    }

    pub fn oldest_ready(&self) -> Option<JobId> {
        self.oldest(0).map(|(id, _)| id)
    }

    fn oldest(&self, position: usize) -> Option<Oldest> {
        self.found.get(position).copied().flatten()
    }

    pub fn footprint(&self) -> u64 {
        (self.tube().len() + self.found.capacity() * size_of::<Option<Oldest>>()) as u64
    }
}

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

    /// Counts the clients that wait in `queue`. In a long queue, also counts watches left over from earlier waits.
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
        let holder = self.clients.get(job.holder);
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
            holder: holder.filter(|_| job.state() == State::Reserved && !job.is_leased()).map(|it| it.connection),
            progress: self.progress(&job),
        })
    }

    pub fn progress(&self, job: &Job) -> Option<(u32, u32)> {
        self.extras(job).map(JobExtras::progress).filter(|(_, total)| *total > 0 && job.state() == State::Reserved)
    }

    /// Client 0 is the pseudo-client that holds the leased jobs. It has no statistics while no job is leased.
    pub fn client_stats(&self, number: u32, now: Time) -> Option<ClientStats<'_>> {
        let state = self.clients.get(number).filter(|state| state.leaving.is_none())?;
        let ClientState { connection, used, watched, connected, last_active, .. } = state;
        let reserved = state.reserved();
        if *connection == 0 && reserved.len() == 0 {
            return None;
        }
        let name = |tube: u32| &*self.tubes.get(tube).name;
        let shown = watched.iter().copied().take(SHOWN_TUBES).map(|watch| name(self.clients.watches.get(watch).tube));
        Some(ClientStats {
            client: ClientId(number),
            number: *connection,
            used: (*used != NIL).then(|| name(*used)),
            watching: watched.len(),
            watched: shown.collect(),
            waits: state.waiting.is_some() || state.idle_state != IdleState::Active,
            held: reserved.len(),
            job: reserved.first().map(|(_, slot)| self.store.jobs.view(slot)),
            age: time_since(*connected, now),
            idle: time_since(*last_active, now),
        })
    }

    /// May overlook jobs that enter a state after the search has passed their IDs. Otherwise, a search might never end.
    pub fn find_oldest(&mut self, find: &mut FindOldest) -> Progress {
        while find.found.len() < STATES.len() {
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
            let number = find.tube.as_ref().map(|name| self.tubes.find(name));
            if matches!(number, Some(None)) {
                break;
            }
            let Some(oldest) = self.oldest_of(number.flatten(), find) else { return Progress::More };
            find.found.push(oldest);
            (find.walk, find.reached) = (None, 0);
            self.agenda.steps.take(1);
        }
        Progress::Done
    }

    /// Returns the oldest job, `Some(None)` if there is no job, or `None` if the step budget is used up.
    fn oldest_of(&mut self, number: Option<u32>, find: &mut FindOldest) -> Option<Option<Oldest>> {
        let position = find.found.len();
        let state = STATES[position];
        let mut counts = number.map_or(self.store.counts, |number| self.tubes.get(number).counts);
        if counts.sum(&[state]) == 0 {
            return Some(None);
        }
        if let Some(slot) = number.and_then(|number| self.oldest_in_queue(number, state)) {
            let job = self.store.jobs.get(slot);
            let oldest = (job.id, job.created);
            self.bounds(number)[position] = oldest.0 .0;
            return Some(Some(oldest));
        }
        loop {
            let bound = self.bounds(number)[position];
            let from = bound.max(find.reached);
            // If IDs are sparse, a walk over all jobs is faster than a search by ID.
            let rows = self.store.last_id.saturating_sub(from) / 16;
            if find.walk.is_some() || rows > u64::from(self.store.jobs.slots.end()) {
                return self.walk_all(number, state, &mut find.walk);
            }
            if self.agenda.steps.are_used_up() {
                return None;
            }
            let mut checked = 1;
            let entered = (bound < from).then(|| self.store.jobs.find(JobId(bound))).flatten();
            let row = self.store.jobs.ids.row_above(JobId(from.saturating_sub(1)));
            let found = entered.into_iter().chain(row).find(|&slot| {
                checked += 1;
                self.is_in(slot, number, state)
            });
            let found = found.map(|slot| self.store.jobs.get(slot)).map(|job| (job.id, job.created));
            self.agenda.steps.take(checked);
            // If no job was found, continue after the current row of 16 IDs.
            find.reached = found.map_or((from.max(1) | 15) + 1, |(id, _)| id.0);
            if bound == from {
                self.bounds(number)[position] = find.reached;
            }
            if found.is_some() || find.reached > self.store.last_id {
                return Some(found);
            }
        }
    }

    fn oldest_in_queue(&mut self, number: u32, state: State) -> Option<u32> {
        let tube = self.tubes.get(number);
        let (delayed, buried) = (&tube.delayed, &tube.buried);
        let id = |slot: &u32| self.store.jobs.get(*slot).id;
        let (slot, checked) = match state {
            State::Ready if !tube.displaced && tube.ready.len() as u64 == tube.counts.ready => {
                tube.ready.oldest(&self.store.jobs, SHORT)?
            }
            State::Delayed if delayed.len() <= SHORT => {
                (delayed.iter().map(|(_, slot)| slot).min_by_key(id)?, delayed.len())
            }
            State::Buried if buried.len() <= SHORT => (buried.iter(&self.store.jobs).min_by_key(id)?, buried.len()),
            _ => return None,
        };
        self.agenda.steps.take(checked as u64);
        Some(slot)
    }

    /// Does not raise the bound, because older jobs can enter the state during the walk.
    fn walk_all(&mut self, tube: Option<u32>, state: State, walk: &mut Option<(u32, u64)>) -> Option<Option<Oldest>> {
        let (mut from, mut smallest) = walk.unwrap_or((0, u64::MAX));
        while let Some(slot) = self.next_job(&mut from) {
            if self.is_in(slot, tube, state) {
                smallest = smallest.min(self.store.jobs.get(slot).id.0);
            }
        }
        if self.walked_to(from) == Progress::More {
            *walk = Some((from, smallest));
            return None;
        }
        let job = self.store.jobs.find(JobId(smallest)).map(|slot| self.store.jobs.get(slot));
        Some(job.map(|job| (job.id, job.created)))
    }

    fn is_in(&self, slot: u32, number: Option<u32>, state: State) -> bool {
        let job = self.store.jobs.get(slot);
        job.state() == state && number.is_none_or(|number| number == job.tube)
    }

    fn bounds(&mut self, number: Option<u32>) -> &mut [u64; 3] {
        match number {
            Some(number) => &mut self.tubes.get_mut(number).oldest.0,
            None => &mut self.store.oldest.0,
        }
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
