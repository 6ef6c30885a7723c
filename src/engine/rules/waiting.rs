//! How clients wait: the search through watched tubes, and the queues of waiting clients in each tube.
//!
//! Owns entering and leaving the queues, and the choice of the next job for one client. For a client that watches many
//! tubes, a search takes several calls, and watches of earlier waits can remain in the queues, where they are ignored.
//! Must not choose between clients: `matching` does.
//!
//! Touches: agenda, clients, limits, news, store, tubes.

use std::num::NonZeroU16;

use crate::engine::data::{
    priority_class, ClientId, Deferred, Event, IdleState, NoJob, Progress, ReserveMode, ReservePolicy, Search, Time,
    Waiting, Watch, NIL,
};
use crate::engine::Engine;

impl Engine {
    /// Makes the client wait. A client that waits for a job enters the queues of all watched tubes.
    pub(in crate::engine) fn wait_for(&mut self, client: ClientId, waiting: Waiting) {
        self.clients[client].waiting = Some(waiting);
        if waiting.is_for_job() {
            self.clients.waiting += 1;
            self.enqueue_all(client);
        }
        self.retime_client(client.0);
    }

    /// Ends the wait of `client` without an event, and removes the client from all queues.
    pub(in crate::engine) fn stop_waiting(&mut self, client: ClientId) {
        let state = &mut self.clients[client];
        state.search = None;
        let waiting = state.waiting.take();
        if waiting.is_some_and(Waiting::is_for_job) {
            self.clients.waiting -= 1;
            self.leave_queues(client);
        }
        self.retime_client(client.0);
    }

    pub(in crate::engine) fn become_active(&mut self, client: ClientId) {
        let state = &mut self.clients[client];
        if std::mem::take(&mut state.idle_state) == IdleState::Idle {
            state.search = None;
            self.leave_queues(client);
        }
    }

    /// Ends the wait and reports `why` in an event.
    pub(in crate::engine) fn end_wait(&mut self, client: ClientId, why: NoJob) {
        self.cancel_wait(client);
        self.news.events.push_back(Event::NoJob { client, why });
    }

    pub(in crate::engine) fn enqueue_all(&mut self, client: ClientId) {
        self.clients.begin_wait(client);
        for position in 0..self.clients[client].watched.len() {
            self.enqueue(client, position);
        }
    }

    /// Adds the client to the queue of the tube at `position` in the client's watch list. The client must be waiting or
    /// idle.
    pub(in crate::engine) fn enqueue(&mut self, client: ClientId, position: usize) {
        let state = &self.clients[client];
        let (number, wait, reserve_policy) = (state.watched[position], state.wait, state.reserve_policy);
        self.dequeue(number, reserve_policy);
        let watch = self.clients.watches.get_mut(number);
        watch.wait = wait;
        let tube = self.tubes.get_mut(watch.tube);
        tube.queue_of(reserve_policy).push_back(number, &mut self.clients.watches);
        self.agenda.steps.take(1);
    }

    /// Removes the watch from the queue of its tube, if queued. `reserve_policy` is that of the client.
    pub(in crate::engine) fn dequeue(&mut self, number: u32, reserve_policy: ReservePolicy) {
        let watch = self.clients.watches.get_mut(number);
        if std::mem::take(&mut watch.wait) != 0 {
            let tube = self.tubes.get_mut(watch.tube);
            tube.queue_of(reserve_policy).remove(number, &mut self.clients.watches);
        }
    }

    fn leave_queues(&mut self, client: ClientId) {
        let state = &self.clients[client];
        let (count, reserve_policy) = (state.watched.len(), state.reserve_policy);
        if count <= self.limits.few_watched {
            for position in 0..count {
                self.dequeue(self.clients[client].watched[position], reserve_policy);
            }
        }
    }

    /// Returns the longest-waiting client, and removes watches of earlier waits from the queue. If the step budget is
    /// used up, returns `None` and schedules the tube to be served later.
    pub(in crate::engine) fn first_in_queue(&mut self, tube: u32, reserve_policy: ReservePolicy) -> Option<ClientId> {
        loop {
            let number = self.tubes.get_mut(tube).queue_of(reserve_policy).first()?;
            let watch = self.clients.watches.get(number);
            let client = ClientId(watch.client);
            let state = &self.clients[client];
            if state.is_queued(watch) {
                return Some(client);
            }
            if self.agenda.steps.are_used_up() {
                self.serve_later(tube);
                return None;
            }
            self.dequeue(number, state.reserve_policy);
            self.agenda.steps.take(1);
        }
    }

    /// Ends the wait after the current search, which may still find a job. Returns `false` if the client is not
    /// searching.
    pub fn hurry(&mut self, client: ClientId, now: Time) -> bool {
        let state = &mut self.clients[client];
        match &mut state.waiting {
            Some(waiting) if state.search.is_some() => {
                waiting.until = waiting.until.min(now);
                true
            }
            _ => false,
        }
    }

    /// Returns `true` if the step budget does not allow checking all watched tubes now.
    pub(in crate::engine) fn watches_many(&self, client: ClientId) -> bool {
        let count = self.clients[client].watched.len();
        count > self.limits.few_watched && count as u64 > self.agenda.steps.left()
    }

    /// Skips closed tubes, and tubes that are scheduled to be served.
    pub(in crate::engine) fn best_watched(&mut self, client: ClientId) -> Option<u32> {
        // With many tubes, a search without ready jobs would be expensive.
        if self.store.counts.ready == 0 {
            return None;
        }
        let state = &self.clients[client];
        if state.reserve_policy == ReservePolicy::PerConnection {
            self.agenda.steps.take(state.watched.len() as u64);
            if state.mode == ReserveMode::Urgent {
                // Fast path for the default mode of beanstalk clients, if the client watches few tubes.
                return self.heads(client).min_by_key(|&slot| self.store.jobs.get(slot).ready_key());
            }
        }
        let mut search = Search::default();
        self.search_tubes(client, &mut search, usize::MAX);
        self.found(client, &search)
    }

    /// Continues `search` with at most `limit` more tubes. With `PerConnection`, the most urgent job wins, or a random
    /// tube in a weighted mode. With `Notified`, the best priority class wins, and tubes of equal class take turns from
    /// the last to the first, as in gearmand. With `Lease`, a random tube wins.
    pub(in crate::engine) fn search_tubes(&mut self, client: ClientId, search: &mut Search, limit: usize) {
        let state = &self.clients[client];
        let (reserve_policy, next_start, count) =
            (state.reserve_policy, state.next_start as usize, state.watched.len());
        let mode = state.mode;
        let is_random = mode != ReserveMode::Urgent || reserve_policy == ReservePolicy::Lease;
        let end = count.min(search.seen.saturating_add(limit));
        let start = next_start.min(count.saturating_sub(1));
        self.agenda.steps.take((end - search.seen) as u64);
        for step in search.seen..end {
            let position =
                if reserve_policy == ReservePolicy::Notified { (start + count - step) % count } else { step };
            let Watch { tube, weight, .. } = *self.clients.watches.get(self.clients[client].watched[position]);
            let Some(slot) = self.head(tube, reserve_policy) else { continue };
            let weight = if mode == ReserveMode::Fair { self.fair_weight(tube, weight) } else { weight.get().into() };
            search.found += weight;
            let job = self.store.jobs.get(slot);
            let rank = match reserve_policy {
                ReservePolicy::PerConnection => job.ready_key(),
                ReservePolicy::Notified | ReservePolicy::Lease => (priority_class(job.pri) as u32, Time::default()),
            };
            let better = match search.best {
                None => true,
                Some(_) if is_random => self.roll(search.found) < weight,
                Some((best, ..)) => rank < best,
            };
            if better {
                search.best = Some((rank, self.tubes.handle(tube), position));
            }
        }
        search.seen = end;
    }

    /// Returns `weight` divided by the average reservation time, in thousandths per second. Before the first
    /// measurement, assumes one second.
    fn fair_weight(&self, tube: u32, weight: NonZeroU16) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        let times = self.tubes.get(tube).times.as_ref().filter(|times| times.run.samples() > 0);
        let average = times.map_or(SECOND, |times| times.run.average.nanos());
        (u64::from(weight.get()) * 1000 * SECOND / average.max(1000)).max(1)
    }

    /// Returns the job that the completed `search` found, if it is still available. The next search starts with the
    /// next tube in search order.
    pub(in crate::engine) fn found(&mut self, client: ClientId, search: &Search) -> Option<u32> {
        let (_, tube, position) = search.best?;
        let slot = self.head(self.tubes.at(tube)?, self.clients[client].reserve_policy)?;
        self.clients[client].next_start = position.checked_sub(1).map_or(NIL, |position| position as u32);
        Some(slot)
    }

    /// Schedules the search of a client that watches too many tubes to search now. Only if no job is found, the client
    /// enters the queues.
    pub(in crate::engine) fn search_later(&mut self, client: ClientId, search: Search) {
        self.clients.begin_wait(client);
        let state = &mut self.clients[client];
        state.search = Some(Box::new(search));
        if !std::mem::replace(&mut state.queued, true) {
            self.agenda.deferred.push_back(Deferred::Search(self.clients.handle(client)));
        }
        self.retime_client(client.0);
    }

    /// Checks all tubes, and if no job is found, enters the queue of each tube. A job that becomes ready meanwhile is
    /// assigned immediately.
    pub(in crate::engine) fn search_on(&mut self, client: ClientId, now: Time) -> Progress {
        let state = &mut self.clients[client];
        // If a Gearman client is in `GRAB_JOB`, only its next `GRAB_JOB` continues the search.
        if state.search.is_none() || !(state.waits_for_job() || state.idle_state == IdleState::Idle) {
            state.queued = false;
            self.agenda.steps.take(1);
            return Progress::Done;
        }
        if self.catch_up(client, now) == Progress::More {
            return Progress::More;
        }
        // `catch_up` may have assigned an expired job to this client.
        let state = &mut self.clients[client];
        let Some(mut search) = state.search.take() else {
            state.queued = false;
            return Progress::Done;
        };
        let progress = if search.enqueueing || self.clients[client].idle_state == IdleState::Idle {
            self.enqueue_some(client, &mut search, now)
        } else {
            self.search_more(client, &mut search, now)
        };
        match progress {
            Progress::More => self.clients[client].search = Some(search),
            Progress::Done => {
                self.clients[client].queued = false;
                self.retime_client(client.0);
            }
        }
        progress
    }

    fn search_more(&mut self, client: ClientId, search: &mut Search, now: Time) -> Progress {
        if self.store.counts.ready > 0 {
            let count = usize::try_from(self.agenda.steps.left()).unwrap_or(usize::MAX).max(1);
            self.search_tubes(client, search, count);
            if search.seen < self.clients[client].watched.len() && !search.is_over() {
                return Progress::More;
            }
            if search.best.is_some() {
                let Some(slot) = self.found(client, search) else {
                    *search = Search::again();
                    return Progress::More;
                };
                self.hand_over(client, slot, now);
                return Progress::Done;
            }
        }
        let state = &self.clients[client];
        let until = state.waiting.map_or(Time::NEVER, |waiting| waiting.until);
        if state.in_margin(now) || until <= now {
            let why = if state.in_margin(now) { NoJob::DeadlineSoon } else { NoJob::TimedOut };
            self.end_wait(client, why);
            return Progress::Done;
        }
        *search = Search { enqueueing: true, ..Search::default() };
        self.enqueue_some(client, search, now)
    }

    fn enqueue_some(&mut self, client: ClientId, search: &mut Search, now: Time) -> Progress {
        while search.seen < self.clients[client].watched.len() {
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
            let watch = self.clients[client].watched[search.seen];
            let tube = self.clients.watches.get(watch).tube;
            if let Some(slot) = self.head(tube, self.clients[client].reserve_policy) {
                if self.clients[client].idle_state == IdleState::Idle {
                    self.notify(client, tube);
                } else {
                    self.hand_over(client, slot, now);
                }
                return Progress::Done;
            }
            self.enqueue(client, search.seen);
            search.seen += 1;
        }
        Progress::Done
    }
}
