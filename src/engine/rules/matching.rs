//! The assignment of ready jobs to waiting clients, and the queues of waiting clients in each tube. Owns the engine's
//! central invariant: **no tube has a ready job and a waiting client at the same time**, unless the tube is closed or
//! being served, or the job is blocked or too large to lease. Serves clients in order of arrival, and notifies idle
//! clients if none waits. Searches of many tubes take several calls. Watches left in queues by old waits are ignored.
//! Enforces promise P6 of beanpole-promises(7).
//! Touches: agenda, clients, limits, news, random_state, store, tubes.

use std::num::NonZeroU16;

use crate::engine::data::*;
use crate::engine::Engine;

/// If ready jobs remain, another worker is notified after this time. A network round trip is usually shorter.
const RENOTIFY_AFTER: Span = Span::from_millis(50);

impl Engine {
    /// Defers serving the tube. Until the tube is served, new requests get none of its jobs.
    pub(in crate::engine) fn serve_later(&mut self, number: u32) {
        let tube = self.tubes.get_mut(number);
        if !std::mem::replace(&mut tube.serving, true) {
            self.agenda.deferred.push_back(Deferred::Serve(self.tubes.handle(number)));
        }
    }

    /// Every engine call that makes a job ready or reopens a closed tube must end by calling this method.
    pub(in crate::engine) fn serve(&mut self, number: u32, now: Time) {
        if self.store.lanes.unblocked.is_empty() {
            return self.serve_tube(number, now);
        }
        self.store.lanes.unblocked.push(self.tubes.handle(number));
        self.serve_all_unblocked(now);
    }

    fn can_serve(&self, number: u32) -> bool {
        let tube = self.tubes.get(number);
        let has_job = || tube.first(ReservePolicy::PerConnection, &self.store.jobs).is_some();
        !tube.closed && !tube.has_no_waiters() && has_job()
    }

    pub(in crate::engine) fn serve_tube(&mut self, number: u32, now: Time) {
        while self.can_serve(number) {
            let Some((client, slot)) = self.next_match(number) else {
                if !self.tubes.get(number).serving {
                    self.notify_idle(number, now);
                }
                return;
            };
            self.hand_over(client, slot, now);
            self.agenda.steps.take(MOVE);
            if self.agenda.steps.are_used_up() && self.can_serve(number) {
                return self.serve_later(number);
            }
        }
    }

    fn next_match(&mut self, number: u32) -> Option<(ClientId, u32)> {
        let holder = self.first_in_queue(number, ReservePolicy::PerConnection);
        let leaser = match self.tubes.get(number).first(ReservePolicy::Lease, &self.store.jobs) {
            // If `first_in_queue` used up the step budget, it has set `serving`. A `PerConnection` client that it did
            // not reach may have waited longer than the leasing client.
            Some(_) if !self.tubes.get(number).serving => self.first_in_queue(number, ReservePolicy::Lease),
            _ => None,
        };
        let since = |client: ClientId| self.clients[client].since;
        let (client, reserve_policy) = match (holder, leaser) {
            (Some(holder), Some(leaser)) if since(leaser) < since(holder) => (leaser, ReservePolicy::Lease),
            (Some(holder), _) => (holder, ReservePolicy::PerConnection),
            (None, leaser) => (leaser?, ReservePolicy::Lease),
        };
        Some((client, self.tubes.get(number).first(reserve_policy, &self.store.jobs)?))
    }

    /// Notifies idle clients. If some remain idle, schedules another notification, because a notified worker may hang.
    fn notify_idle(&mut self, number: u32, now: Time) {
        let wakeups = if self.limits.wakeups == 0 { u32::MAX } else { self.limits.wakeups };
        for _ in 0..wakeups {
            let Some(client) = self.first_in_queue(number, ReservePolicy::Notified) else { return };
            self.notify(client, number);
            if self.limits.wakeups == 0 && self.agenda.steps.are_used_up() {
                if !self.tubes.get(number).idle.is_empty() {
                    self.serve_later(number);
                }
                return;
            }
        }
        let tube = self.tubes.get_mut(number);
        if !tube.idle.is_empty() && tube.renotify_at == Time::NEVER {
            tube.renotify_at = now + RENOTIFY_AFTER;
            self.retime_tube(number);
        }
    }

    fn hand_over(&mut self, client: ClientId, slot: u32, now: Time) {
        self.stop_waiting(client);
        self.grant(client, slot, Cause::Reserve, now);
        let job = self.store.jobs.get(slot).id;
        self.news.events.push_back(Event::Reserved { client, job });
    }

    fn notify(&mut self, client: ClientId, tube: u32) {
        self.become_active(client);
        self.clients[client].idle_state = IdleState::Notified(tube);
        self.news.events.push_back(Event::Work { client });
        self.agenda.steps.take(NOTIFY);
    }

    pub(in crate::engine) fn head(&self, tube: u32, reserve_policy: ReservePolicy) -> Option<u32> {
        let tube = self.tubes.get(tube);
        tube.first(reserve_policy, &self.store.jobs).filter(|_| !tube.closed && !tube.serving)
    }

    pub(in crate::engine) fn heads(&self, client: ClientId) -> impl Iterator<Item = u32> + '_ {
        let ClientState { watched, reserve_policy, .. } = &self.clients[client];
        watched.iter().copied().filter_map(|watch| self.head(self.clients.watches.get(watch).tube, *reserve_policy))
    }

    /// Prefers the tube of the last notification. Does not change the tube at which the client's next search starts.
    pub(in crate::engine) fn tube_with_work(&self, client: ClientId, idle_state: IdleState) -> Option<u32> {
        match idle_state {
            IdleState::Notified(tube) if tube != NIL && self.head(tube, ReservePolicy::Notified).is_some() => {
                Some(tube)
            }
            _ if self.store.counts.ready == 0 => None,
            _ => self.heads(client).next().map(|slot| self.store.jobs.get(slot).tube),
        }
    }

    pub(in crate::engine) fn wait_for(&mut self, client: ClientId, waiting: Waiting) {
        self.clients[client].waiting = Some(waiting);
        if waiting.is_for_job() {
            self.clients.waiting += 1;
            self.enqueue_all(client);
        }
        self.retime_client(client.0);
    }

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

    /// The client must be waiting or idle.
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

    /// `reserve_policy` must be the policy of the client.
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

    /// If the step budget is used up, returns `None` and schedules the tube to be served later.
    fn first_in_queue(&mut self, tube: u32, reserve_policy: ReservePolicy) -> Option<ClientId> {
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

    /// Ends the wait after the current search, which may still find a job. Returns `false` if there is no search.
    pub fn hurry(&mut self, client: ClientId, now: Time) -> bool {
        let state = &mut self.clients[client];
        let Some(waiting) = state.waiting.as_mut().filter(|_| state.search.is_some()) else { return false };
        waiting.until = waiting.until.min(now);
        true
    }

    pub(in crate::engine) fn watches_many(&self, client: ClientId) -> bool {
        let count = self.clients[client].watched.len();
        count > self.limits.few_watched && count as u64 > self.agenda.steps.left()
    }

    pub(in crate::engine) fn best_watched(&mut self, client: ClientId) -> Option<u32> {
        // Without ready jobs, skip the search, which is expensive if the client watches many tubes.
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

    /// Continues `search` with at most `limit` more tubes. With `PerConnection`, the most urgent job wins or, in a
    /// weighted mode, a random tube. With `Notified`, the most urgent priority class wins, and tubes of equal class
    /// take turns from the last to the first, as in gearmand. With `Lease`, a random tube wins.
    pub(in crate::engine) fn search_tubes(&mut self, client: ClientId, search: &mut Search, limit: usize) {
        let state = &self.clients[client];
        let (reserve_policy, mode, count) = (state.reserve_policy, state.mode, state.watched.len());
        let start = (state.next_start as usize).min(count.saturating_sub(1));
        let is_random = mode != ReserveMode::Urgent || reserve_policy == ReservePolicy::Lease;
        let end = count.min(search.seen.saturating_add(limit));
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

    /// Returns 1000 × `weight`, divided by the average reservation time in seconds (initially one second).
    fn fair_weight(&self, tube: u32, weight: NonZeroU16) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        let times = self.tubes.get(tube).times.as_ref().filter(|times| times.run.samples() > 0);
        let average = times.map_or(SECOND, |times| times.run.average.nanos());
        (u64::from(weight.get()) * 1000 * SECOND / average.max(1000)).max(1)
    }

    /// Returns the found job, or `None` if the job is no longer available. The next search starts with the next tube.
    pub(in crate::engine) fn found(&mut self, client: ClientId, search: &Search) -> Option<u32> {
        let (_, tube, position) = search.best?;
        let slot = self.head(self.tubes.at(tube)?, self.clients[client].reserve_policy)?;
        self.clients[client].next_start = position.checked_sub(1).map_or(NIL, |position| position as u32);
        Some(slot)
    }

    /// Defers a search. The client enters the tubes' queues only if the search finds no job.
    pub(in crate::engine) fn search_later(&mut self, client: ClientId, search: Search) {
        self.clients.begin_wait(client);
        let state = &mut self.clients[client];
        state.search = Some(Box::new(search));
        if !std::mem::replace(&mut state.queued, true) {
            self.agenda.deferred.push_back(Deferred::Search(self.clients.handle(client)));
        }
        self.retime_client(client.0);
    }

    /// Continues a search. If a job is ready while the client joins the tubes' queues, the client receives the job.
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
        // `catch_up` may have ended an expired reservation, and assigned the job to this client again.
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

    /// Returns `false` if the client was not waiting. Also removes an unreserved job that [`Engine::run`] created.
    pub fn cancel_wait(&mut self, client: ClientId) -> bool {
        let Some(waiting) = self.clients[client].waiting else { return false };
        self.stop_waiting(client);
        if !waiting.is_for_job() {
            let found = self.store.extras.find_attached(waiting.outcome, &self.clients[client].attached);
            self.detach(found.expect("an attached client"), client);
            if waiting.run {
                self.orphan(waiting.outcome);
            } else {
                self.after_detach(waiting.outcome);
            }
        }
        true
    }

    /// Removes a job whose outcome no client will query. A reserved job is removed when the reservation ends.
    fn orphan(&mut self, number: u32) {
        if self.store.extras.is_left(number) {
            return;
        }
        let slot = self.store.extras.get(number).slot;
        if self.store.jobs.get(slot).state() == State::Reserved {
            self.store.extras.get_mut(number).rare_mut().orphaned = true;
        } else {
            self.remove_job(slot, Outcome::Gone);
        }
    }

    /// Ends a wait that has timed out, or extends the wait of [`Engine::run`] until the job's current reservation ends.
    pub(in crate::engine) fn give_up(&mut self, client: ClientId, waiting: Waiting) {
        if waiting.run && !self.store.extras.is_left(waiting.outcome) {
            let extras = self.store.extras.get_mut(waiting.outcome);
            let job = self.store.jobs.get(extras.slot);
            extras.rare_mut().last_try |= job.state() == State::Reserved;
            if job.state() == State::Reserved && job.due > waiting.until {
                self.clients[client].waiting = Some(Waiting { until: job.due, ..waiting });
                return self.retime_client(client.0);
            }
        }
        self.end_wait(client, NoJob::TimedOut);
        if waiting.run {
            self.take_back(waiting.outcome);
        }
    }

    /// Ends the wait for a job of [`Engine::run`] whose last try has ended without an outcome.
    pub(in crate::engine) fn end_run(&mut self, number: u32) {
        let mut clients = self.store.extras.attached(number);
        let runs = |waiting: Waiting| waiting.run && waiting.outcome == number;
        let client = clients.find(|&client| self.clients[ClientId(client)].waiting.is_some_and(runs));
        drop(clients);
        if let Some(client) = client {
            self.end_wait(ClientId(client), NoJob::TimedOut);
        }
        self.take_back(number);
    }

    fn take_back(&mut self, number: u32) {
        if let Some(slot) = self.store.extras.orphaned(number) {
            self.remove_job(slot, Outcome::Gone);
        }
    }

    pub(in crate::engine) fn detach(&mut self, member: u32, client: ClientId) -> u32 {
        self.store.extras.detach(member, &mut self.clients[client].attached).extras
    }

    /// Returns a number below `bound`. Clients may be able to predict this number.
    pub(in crate::engine) fn roll(&mut self, bound: u64) -> u64 {
        self.random_state ^= self.random_state << 13;
        self.random_state ^= self.random_state >> 7;
        self.random_state ^= self.random_state << 17;
        self.random_state % bound
    }
}
