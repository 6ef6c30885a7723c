//! State transitions of jobs, moves to other tubes, and the queues that contain jobs by state and tube. Owns every
//! state change that [`State::after`] permits. Must not decide which client gets a job, or when a job ends.
//! Enforces promises P2 and P7 of beanpole-promises(7).
//! Touches: clients, job_times, limits, store, tubes.

use crate::engine::data::*;
use crate::engine::log::Change;
use crate::engine::{Engine, NOBODY};

impl Engine {
    /// Panics if [`State::after`] does not define the transition.
    pub(in crate::engine) fn transfer(&mut self, slot: u32, cause: Cause) {
        self.transfer_with(slot, cause, |_| {});
    }

    pub(in crate::engine) fn transfer_with(&mut self, slot: u32, cause: Cause, change: impl FnOnce(&mut Job)) {
        self.leave(slot);
        let job = self.store.jobs.get_mut(slot);
        job.transition(cause);
        change(job);
        self.enter(slot);
    }

    pub(in crate::engine) fn enter(&mut self, slot: u32) {
        // `has_more` avoids the lookup of extras and groups for most jobs.
        let job = self.store.jobs.get_mut(slot);
        let has_more = job.has_more();
        match (job.state(), job.completion) {
            (State::Ready, CompletionPolicy::Drop) => job.due = Time::from_nanos(job.id.0),
            (State::Ready, _) => {
                let (rank, job) = (self.rank_of(slot), self.store.jobs.get_mut(slot));
                job.due = Time::from_nanos(rank);
                let (number, displaced) = (job.tube, rank != job.id.0);
                self.tubes.get_mut(number).displaced |= displaced;
            }
            _ => {}
        }
        let lane = if has_more { self.lane_of(slot) } else { None };
        let job = self.store.jobs.get(slot);
        let (number, holder, key, id, pri) = (job.tube, job.holder, job.due_key(), job.id, job.pri);
        let (state, is_large) = (job.state(), self.is_large(job));
        let tube = self.tubes.get_mut(number);
        // Every state change executes this match. A second match, for the counts, would slow down every command.
        match state {
            State::Ready => {
                tube.counts.add_ready(pri);
                self.store.counts.add_ready(pri);
                tube.priority_classes[priority_class(pri)] += 1;
                tube.oldest.enter(OldestIds::READY, id, tube.counts.ready);
                self.store.oldest.enter(OldestIds::READY, id, self.store.counts.ready);
                match lane {
                    Some(lane) => self.enter_lane(lane, slot),
                    None => tube.push_ready(slot, is_large, &mut self.store.jobs),
                }
            }
            State::Finished | State::Held => {
                *tube.counts.of(state) += 1;
                *self.store.counts.of(state) += 1;
            }
            State::Scheduled => {
                tube.counts.scheduled += 1;
                self.store.counts.scheduled += 1;
                self.store.schedules.enter(key.0, slot, &mut self.store.jobs);
                self.retime_schedules();
            }
            State::Buried => {
                tube.counts.buried += 1;
                self.store.counts.buried += 1;
                tube.oldest.enter(OldestIds::BURIED, id, tube.counts.buried);
                self.store.oldest.enter(OldestIds::BURIED, id, self.store.counts.buried);
                tube.buried.push_back(slot, &mut self.store.jobs);
            }
            State::Delayed => {
                tube.counts.delayed += 1;
                self.store.counts.delayed += 1;
                tube.priority_classes[priority_class(pri)] += 1;
                tube.oldest.enter(OldestIds::DELAYED, id, tube.counts.delayed);
                self.store.oldest.enter(OldestIds::DELAYED, id, self.store.counts.delayed);
                tube.delayed.push(key, slot, &mut self.store.jobs);
                self.retime_tube(number);
            }
            State::Reserved => {
                tube.counts.reserved += 1;
                self.store.counts.reserved += 1;
                let client = &mut self.clients[ClientId(holder)];
                client.reserved_mut().push(key, slot, &mut self.store.jobs);
                self.retime_client(holder);
                if let Some(lane) = lane {
                    self.count_reserved(lane, slot, true);
                }
            }
        }
        if has_more {
            self.enter_more(slot);
        }
    }

    #[inline(never)] // cold: few jobs have extras or groups
    fn enter_more(&mut self, slot: u32) {
        self.enter_groups(slot);
        self.report_freed(slot);
        match (self.bound(slot), self.store.jobs.get(slot).state()) {
            (Some(_), State::Buried) => self.change_family(slot, true),
            (Some(number), State::Reserved) => self.store.extras.forget_progress(number),
            _ => {}
        }
        self.count_life(slot);
    }

    /// Returns the rank among ready jobs of the same priority. The rank is usually the job ID, so that a released job
    /// returns to its old position. A [`CompletionPolicy::Tell`] job whose worker was lost goes to the end.
    /// [`CompletionPolicy::Keep`] jobs with a start time come last, in the order in which they became ready.
    fn rank_of(&mut self, slot: u32) -> u64 {
        const STARTED: u64 = 1 << 63;
        let job = self.store.jobs.get(slot);
        if job.completion == CompletionPolicy::Tell && job.history().timeouts > 0 {
            // Consume an ID as the rank. The rank is larger than all existing IDs and smaller than all later IDs.
            self.store.last_id += 1;
            return self.store.last_id;
        }
        if job.completion == CompletionPolicy::Keep && self.extras(job).and_then(JobExtras::start).is_some() {
            let number = self.store.extras.of(slot);
            let rare = self.store.extras.get_mut(number).rare_mut();
            if rare.order == 0 {
                self.store.last_id += 1;
                rare.order = STARTED | self.store.last_id;
            }
            return rare.order;
        }
        job.id.0
    }

    pub(in crate::engine) fn leave(&mut self, slot: u32) {
        let job = self.store.jobs.get(slot);
        let (lane, is_tied) = (if job.has_more() { self.lane_of(slot) } else { None }, job.is_tied());
        let (number, holder, position, pri) = (job.tube, job.holder, job.position(), job.pri);
        let (state, is_leaving, is_large) = (job.state(), job.has(JobFlag::Leaving), self.is_large(job));
        let tube = self.tubes.get_mut(number);
        let has_rules = tube.rules.is_some();
        match state {
            State::Finished | State::Held => {
                *tube.counts.of(state) -= 1;
                *self.store.counts.of(state) -= 1;
            }
            State::Scheduled => {
                tube.counts.scheduled -= 1;
                self.store.counts.scheduled -= 1;
                self.store.schedules.leave(slot, &mut self.store.jobs);
                self.retime_schedules();
            }
            State::Ready => {
                tube.counts.subtract_ready(pri);
                self.store.counts.subtract_ready(pri);
                tube.priority_classes[priority_class(pri)] -= 1;
                match lane {
                    Some(lane) => self.quit_lane(lane, slot),
                    None => tube.remove_ready(slot, is_large, &mut self.store.jobs),
                }
            }
            State::Buried => {
                tube.counts.buried -= 1;
                self.store.counts.buried -= 1;
                tube.buried.remove(slot, &mut self.store.jobs);
                if holder != NIL {
                    self.forget_origin(slot);
                }
                self.change_family(slot, false);
            }
            State::Delayed => {
                tube.counts.delayed -= 1;
                self.store.counts.delayed -= 1;
                tube.priority_classes[priority_class(pri)] -= 1;
                tube.delayed.remove(position, &mut self.store.jobs);
                self.retime_tube(number);
            }
            State::Reserved => {
                tube.counts.reserved -= 1;
                self.store.counts.reserved -= 1;
                let client = &mut self.clients[ClientId(holder)];
                match &mut client.leaving {
                    Some(leaving) if is_leaving => drop(leaving.remove(position, &mut self.store.jobs)),
                    _ => drop(client.reserved_mut().remove(position, &mut self.store.jobs)),
                }
                let job = self.store.jobs.get_mut(slot);
                job.holder = NIL;
                job.set(JobFlag::Leaving, false);
                self.retime_client(holder);
                if let Some(lane) = lane {
                    self.count_reserved(lane, slot, false);
                }
                if has_rules {
                    self.count_end(number);
                }
            }
        }
        if is_tied {
            self.leave_groups(slot);
        }
    }

    pub(in crate::engine) fn grant(&mut self, client: ClientId, slot: u32, cause: Cause, now: Time) {
        self.count_wait(slot, now);
        let leased = self.clients[client].reserve_policy == ReservePolicy::Lease;
        let limit = self.time_limit(client, slot);
        let number = self.store.jobs.get(slot).tube;
        self.transfer_with(slot, cause, |job| {
            job.holder = if leased { NOBODY.0 } else { client.0 };
            job.due = now + job.ttr().min(limit);
            job.take(now);
            job.count(Count::Reserves);
        });
        if self.tubes.get(number).rules.is_some() {
            self.count_reservation(number, now);
        }
        self.changed_if(|| if leased { Change::Lease(slot) } else { Change::Reserve(slot) });
    }

    pub(in crate::engine) fn time_limit(&self, client: ClientId, slot: u32) -> Span {
        let state = &self.clients[client];
        match state.reserve_policy {
            ReservePolicy::PerConnection => return Span::MAX,
            ReservePolicy::Lease => return self.lease_of(self.store.jobs.get(slot)),
            ReservePolicy::Notified => {}
        }
        let watch = state.watched.find(self.store.jobs.get(slot).tube, &self.clients.watches);
        match watch.map_or(0, |watch| self.clients.watches.get(watch).limit) {
            0 => Span::MAX,
            limit => Span::from_millis(limit.into()),
        }
    }

    /// A job without a time to run gets `Limits::lease_limit`, because nothing reports the loss of a leasing client.
    pub fn lease_of(&self, job: &Job) -> Span {
        let limit = if job.ttr() == Span::MAX { self.limits.lease_limit } else { MAX_LEASE };
        job.ttr().min(limit)
    }

    pub(in crate::engine) fn is_large(&self, job: &Job) -> bool {
        job.body.len() > self.limits.largest_leased
    }

    /// The `origin` is [`NIL`] except for dead letters.
    pub(in crate::engine) fn move_unchanged(&mut self, slot: u32, to: u32, origin: u32) {
        let position = (self.store.jobs.get(slot).state() == State::Buried).then(|| {
            // In the new tube, the job is the last in the order of burial.
            self.store.last_bury += 1;
            Time::from_nanos(self.store.last_bury)
        });
        self.change_tube(slot, to, |job| (job.due, job.holder) = (position.unwrap_or(job.due), origin));
    }

    pub(in crate::engine) fn may_move_lane(&self, slot: u32, tube: &[u8]) -> bool {
        let number = self.tubes.find(tube).unwrap_or(NIL);
        let bound = self.lane_of(slot).map(|lane| self.store.lanes.key_of(lane));
        bound.is_none_or(|key| self.has_lane(key, number, self.is_large(self.store.jobs.get(slot))))
    }

    /// Like [`Engine::may_move_lane`], but also `false` if a current or ended job of `tube` has the same dedup key.
    pub(in crate::engine) fn may_move(&mut self, slot: u32, tube: &[u8], now: Time) -> bool {
        if !self.may_move_lane(slot, tube) {
            return false;
        }
        let Some(DedupKey::Name(name)) = self.extras_at(slot).map(|extras| &extras.dedup_key) else { return true };
        let (name, key) = (name.clone(), DedupKey::Name(name.clone()));
        let found = self.tubes.find(tube).map_or(Ok(None), |number| self.find_keyed(&key, number));
        found.is_ok_and(|other| other.is_none_or(|other| other == slot)) && self.find_ended(tube, &name, now).is_none()
    }

    pub(in crate::engine) fn change_tube(&mut self, slot: u32, to: u32, change: impl FnOnce(&mut Job)) {
        self.leave(slot);
        let before = self.logged_size(slot);
        self.leave_family(slot, false);
        let from = std::mem::replace(&mut self.store.jobs.get_mut(slot).tube, to);
        change(self.store.jobs.get_mut(slot));
        self.join_family(slot, false);
        self.change_lane(slot);
        self.enter(slot);
        let sizes = (before, self.logged_size(slot));
        self.changed(Change::Move { slot, sizes });
        self.close_tube_if_idle(from);
    }

    /// Updates the lane of a job that has changed its tube. The job must not be in a queue.
    pub(in crate::engine) fn change_lane(&mut self, slot: u32) {
        if let Some((key, limit)) = self.leave_lane(slot) {
            self.join_lane(slot, key, limit);
        }
    }

    pub(in crate::engine) fn has_expired(&self, slot: u32, now: Time) -> bool {
        let job = self.store.jobs.get(slot);
        job.completion != CompletionPolicy::Keep && self.extras_at(slot).is_some_and(|extras| extras.expires <= now)
    }

    /// Measures the wait of a job that is about to be reserved, unless it was reserved or kicked before.
    pub(in crate::engine) fn count_wait(&mut self, slot: u32, now: Time) {
        let job = self.store.jobs.get(slot);
        let History { reserves: 0, kicks: 0, .. } = job.history() else { return };
        let wait = now.since(job.created + job.delay());
        let number = job.tube;
        self.job_times.wait.observe(wait);
        if let Some(times) = self.tube_times(number) {
            times.wait.observe(wait);
        }
    }

    pub(in crate::engine) fn count_run(&mut self, slot: u32, now: Time) {
        let job = self.store.jobs.get(slot);
        // Without a time to run, the start of the reservation cannot be calculated from its end.
        if job.due == Time::NEVER {
            return;
        }
        let limit = if job.is_leased() { self.lease_of(job) } else { self.time_limit(ClientId(job.holder), slot) };
        let (number, run) = (job.tube, now.since(job.due - job.ttr().min(limit)));
        self.job_times.run.observe(run);
        if let Some(times) = self.tube_times(number) {
            times.run.observe(run);
        }
    }

    pub(in crate::engine) fn count_event(&mut self, slot: u32, which: fn(&mut TubeEvents) -> &mut u64) {
        let number = self.store.jobs.get(slot).tube;
        if let Some(times) = self.tube_times(number) {
            *which(&mut times.events) += 1;
        }
    }

    fn tube_times(&mut self, number: u32) -> Option<&mut TubeTimes> {
        if self.tubes.get(number).times.is_none() && !self.has_memory(TIMES_COST) {
            return None;
        }
        Some(self.tubes.measure(number))
    }
}
