//! The model's rules for extensions to beanstalkd: tags, and the commands related to tags.
//!
//! Owns the state of the extensions, in addition to the state of jobs and tubes in `model`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::super::{
    Body, ClientId, Engine, Event, JobEnd, JobId, Outcome, OverLimit, Priority, Refused, Span, State, Tagged, Time,
    TubeEvents,
};
use super::schedules::Schedule;
use super::settings::{Ruled, Settings};
use super::{History, JobTags, Model, Name, Place};

#[derive(Clone, Debug)]
pub struct EndedKey {
    pub id: JobId,
    pub tube: Name,
    pub key: Name,
    pub until: Time,
}

#[derive(Clone, Copy, Debug)]
pub struct Awaiting {
    pub client: ClientId,
    pub job: JobId,
    pub until: Time,
}

#[derive(Clone, Debug, Default)]
pub struct Times {
    pub waits: Vec<Span>,
    pub runs: Vec<Span>,
    pub events: TubeEvents,
}

#[derive(Clone, Debug, Default)]
pub struct Extended {
    pub tags: BTreeMap<JobId, JobTags>,
    pub ended: Vec<EndedKey>,
    pub rules: BTreeMap<Name, Ruled>,
    /// For each failed job, the number of failed tries, the last reason, and the original tube of a dead letter.
    pub failures: BTreeMap<JobId, (u8, Name, Option<Name>)>,
    pub awaiting: Vec<Awaiting>,
    pub schedules: BTreeMap<JobId, Schedule>,
    /// The number of ended members by group.
    pub groups: BTreeMap<Name, u64>,
    /// For each held job, the groups for which it waits, with the number of members that must end. 0 means all.
    pub waits: BTreeMap<JobId, Vec<(Name, u32)>>,
    /// For each revoked job, the previous holder, and the value of `order` with which the job was buried.
    pub revoked: BTreeMap<JobId, (ClientId, u64)>,
    /// Clients that choose tubes at random.
    pub weighted: Vec<ClientId>,
    pub times: BTreeMap<Name, Times>,
    pub expired: u64,
    pub now: Time,
    /// The last ID that was assigned before the last restart.
    pub before: u64,
    /// `true` if the engine uses memory that the model does not count.
    pub uncounted: bool,
}

impl Extended {
    pub fn ends_of_life(&self) -> impl Iterator<Item = (Time, JobId)> + '_ {
        self.tags.iter().filter(|(_, tags)| tags.timed).filter_map(|(id, tags)| Some((tags.expires?, *id)))
    }
}

impl Model {
    pub(super) fn awaits(&self, client: ClientId) -> bool {
        self.extended.awaiting.iter().any(|wait| wait.client == client)
    }

    pub(super) fn wait_ends(&self, client: ClientId) -> Option<Time> {
        let jobs = self.waiting.iter().filter(|wait| wait.client == client).map(|wait| wait.until);
        let ends = self.extended.awaiting.iter().filter(|wait| wait.client == client).map(|wait| wait.until);
        jobs.chain(ends).next()
    }

    /// Returns `true` if the tube has reached its limit on jobs. Buried jobs and schedules do not count.
    pub(super) fn is_full(&self, tube: Name) -> bool {
        let counts = |job: &&super::Job| {
            job.tube == tube && !matches!(job.place, Place::Buried { .. } | Place::Scheduled { .. })
        };
        let limit = self.extended.rules.get(tube).and_then(|rules| rules.settings.limit);
        limit.is_some_and(|limit| self.jobs.iter().filter(counts).count() >= limit as usize)
    }

    pub(super) fn is_blocked(&self, id: JobId) -> bool {
        let bound = |id: &JobId| self.extended.tags.get(id).and_then(|tags| tags.bound);
        let Some((key, _)) = bound(&id) else { return false };
        let reserved = self.jobs.iter().filter(|job| matches!(job.place, Place::Reserved { .. }));
        let bounds: Vec<u32> = reserved
            .filter_map(|job| bound(&job.id))
            .filter(|(other, _)| *other == key)
            .map(|(_, limit)| limit)
            .collect();
        bounds.iter().max().is_some_and(|limit| bounds.len() >= *limit as usize)
    }

    /// Records a run or wait time of a job in `tube`. Skips the tube's first measurement if there is no memory for it.
    pub(super) fn note_time(&mut self, tube: Name, run: Option<Span>, wait: Option<Span>) {
        if self.extended.times.contains_key(tube) || !self.lacks(super::TIMES_COST) {
            let times = self.extended.times.entry(tube).or_default();
            times.runs.extend(run);
            times.waits.extend(wait);
        }
    }

    /// Counts an event in the job's tube, unless the tube has no measurements yet and there is no memory for them.
    pub(super) fn note_event(&mut self, id: JobId, which: fn(&mut TubeEvents) -> &mut u64) {
        let tube = self.job(id).expect("a job").tube;
        self.note_time(tube, None, None);
        if let Some(times) = self.extended.times.get_mut(tube) {
            *which(&mut times.events) += 1;
        }
    }

    /// Records the waiting time of a job that is about to be reserved for the first time and has never been kicked.
    pub(super) fn note_wait(&mut self, id: JobId, now: Time) {
        let job = self.job(id).expect("a job");
        if let History { reserves: 0, kicks: 0, .. } = job.history {
            let (tube, wait) = (job.tube, now.since(job.created + job.delay));
            self.note_time(tube, None, Some(wait));
        }
    }

    pub(super) fn end(&mut self, id: JobId, outcome: Outcome, keeps_key: bool) {
        self.remove(id, outcome, keeps_key);
        self.end_tubes();
        self.serve(self.extended.now);
    }

    fn remove(&mut self, id: JobId, outcome: Outcome, keeps_key: bool) {
        let now = self.extended.now;
        let tube = self.job(id).expect("a job").tube;
        let key = self.extended.tags.get(&id).and_then(|tags| tags.key);
        if let Some((key, keep @ 1..)) = key.filter(|_| keeps_key) {
            self.extended.ended.retain(|ended| (ended.tube, ended.key) != (tube, key));
            self.extended.ended.push(EndedKey { id, tube, key, until: now + Span::from_secs(keep.into()) });
        }
        self.tell_awaiting(id, &outcome);
        self.tube_mut(tube).deletes += 1;
        self.jobs.retain(|job| job.id != id);
        let tags = self.extended.tags.remove(&id);
        self.unschedule(id);
        self.extended.failures.remove(&id);
        self.untie(tags.map(|tags| tags.groups).unwrap_or_default());
    }

    fn tell_awaiting(&mut self, id: JobId, outcome: &Outcome) {
        let (notified, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.extended.awaiting).into_iter().partition(|wait| wait.job == id);
        self.extended.awaiting = waiting;
        let outcome = Arc::new(outcome.clone());
        let event = |wait: Awaiting| {
            let (client, outcome) = (wait.client, outcome.clone());
            Event::Outcome { client, job: id, outcome, logged: true }
        };
        self.events.extend(notified.into_iter().map(event));
    }

    pub(super) fn bury_last(&mut self, id: JobId, pri: Priority, now: Time) {
        self.lay_aside(id, pri);
        self.serve(now);
    }

    /// Revokes a reserved job. The previous holder cannot delete the job while the job is buried.
    pub fn revoke(&mut self, id: JobId, pri: Priority, now: Time) -> bool {
        let Some(Place::Reserved { by, .. }) = self.job(id).map(|job| job.place) else { return false };
        self.take_ended(by, now);
        if !self.holds(by, id) {
            return false;
        }
        self.extended.failures.entry(id).or_default().1 = "revoked";
        self.extended.uncounted = true;
        self.extended.revoked.insert(id, (by, self.burials + 1));
        self.bury_last(id, pri, now);
        true
    }

    pub fn is_revoked(&self, id: JobId, from: ClientId) -> bool {
        let place = self.job(id).map(|job| job.place);
        let revoked = self.extended.revoked.get(&id);
        revoked.is_some_and(|&(by, order)| by == from && place == Some(Place::Buried { order }))
    }

    pub(super) fn lay_aside(&mut self, id: JobId, pri: Priority) {
        self.burials += 1;
        self.note_event(id, |events| &mut events.buries);
        let order = self.burials;
        let job = self.job_mut(id);
        job.pri = pri;
        job.history.buries += 1;
        job.place = Place::Buried { order };
        self.tell_awaiting(id, &Outcome::Failed(Body::default()));
    }

    /// Handles a reservation that ended because the holder disconnected or the time to run expired.
    pub fn lose(&mut self, id: JobId, now: Time) {
        self.extended.now = now;
        if self.is_last_try(id) {
            let pri = self.job(id).expect("a job").pri;
            self.abandon(id, pri);
            return self.serve(now);
        }
        let backoff = self.backoff(id);
        let job = self.job_mut(id);
        job.place = Place::Ready;
        if backoff > Span::ZERO {
            job.delay = backoff;
            job.place = Place::Delayed { until: now + job.delay };
        }
        self.serve_living(id, now);
    }

    /// Serves clients after a job became ready or delayed. Ends the job instead if its time to live has expired.
    pub(super) fn serve_living(&mut self, id: JobId, now: Time) {
        self.extended.now = now;
        if self.begin_life(id).is_some_and(|expires| expires <= now) {
            self.expire(id);
        } else {
            self.serve(now);
        }
    }

    /// Schedules the expiry of the job's time to live, if the job has one.
    pub(super) fn begin_life(&mut self, id: JobId) -> Option<Time> {
        let tags = self.extended.tags.get_mut(&id)?;
        tags.timed = tags.expires.is_some();
        tags.expires
    }

    fn expire(&mut self, id: JobId) {
        self.extended.expired += 1;
        self.end(id, Outcome::Gone, true);
    }

    pub(super) fn ring_life(&mut self, id: JobId) {
        let place = self.job(id).expect("a job").place;
        if matches!(place, Place::Ready | Place::Delayed { .. } | Place::Held) {
            self.expire(id);
        } else {
            self.extended.tags.get_mut(&id).expect("tags").timed = false;
        }
    }
}

impl Model {
    pub fn keyed(&self, tube: Name, key: Name) -> Option<JobId> {
        let has =
            |id: &JobId| self.extended.tags.get(id).and_then(|tags| tags.key).is_some_and(|(other, _)| other == key);
        let ids = self.jobs.iter().filter(|job| job.tube == tube).map(|job| job.id);
        let keyed = ids.filter(|id| has(id) && self.dead_from(*id).is_none());
        keyed.min_by_key(|id| (self.state_of(*id) == Some(State::Buried), *id))
    }

    pub(super) fn ended_key(&self, tube: Name, key: Name, now: Time) -> Option<JobId> {
        let ended = self.extended.ended.iter().filter(|ended| (ended.tube, ended.key) == (tube, key));
        ended.filter(|ended| ended.until > now).map(|ended| ended.id).next()
    }

    #[allow(dead_code)] // unused in some of the crates that include this file
    pub fn expires(&self, id: JobId) -> Option<Time> {
        self.extended.tags.get(&id)?.expires
    }

    pub fn state_of(&self, id: JobId) -> Option<State> {
        self.job(id).map(|job| job.place.state())
    }

    pub fn put_tagged(
        &mut self,
        client: ClientId,
        (pri, delay, ttr): (Priority, Span, Span),
        body: Vec<u8>,
        tags: JobTags,
        now: Time,
    ) -> Result<Tagged, Refused> {
        self.mark_producer(client);
        self.extended.uncounted = true;
        self.tidy_groups();
        if self.draining {
            return Err(Refused::Draining);
        }
        if let Some(every) = tags.every {
            return self.put_schedule(client, (pri, delay, ttr), body, (tags, every), now);
        }
        let tube = tags.tube.unwrap_or(self.used(client));
        if let Some((key, _)) = tags.key {
            if let Some(id) = self.keyed(tube, key) {
                let raises = pri < self.job(id).expect("a job").pri;
                let job = self.job_mut(id);
                job.pri = job.pri.min(pri);
                let state = self.state_of(id).expect("a job");
                return Ok(Tagged::Duplicate { id, state, raised: raises.then_some(pri) });
            }
            if let Some(id) = self.ended_key(tube, key, now) {
                return Ok(Tagged::Ended(id));
            }
        }
        self.find_or_create(client, tube).map_err(|_| Refused::OutOfMemory)?;
        let id = self.take_in(tube, (pri, delay, ttr), body, now).inspect_err(|_| self.end_tubes())?;
        self.extended.tags.insert(id, JobTags { ..tags });
        self.date(id, now);
        self.tie(id);
        self.serve(now);
        Ok(Tagged::New(id))
    }

    pub fn reserve_more(&mut self, client: ClientId, now: Time) -> Option<JobId> {
        self.take_ended(client, now);
        let id = self.best_for(client)?;
        self.give(id, client, now);
        Some(id)
    }

    /// Returns the jobs that a client may receive if it chooses tubes at random: the best job of each tube.
    pub fn chances(&mut self, client: ClientId, now: Time) -> Vec<JobId> {
        self.take_ended(client, now);
        let watched = &self.client(client).expect("a client").watched;
        let open = watched.iter().filter(|name| !self.is_closed(name));
        open.filter_map(|name| self.in_order(name, State::Ready).first().copied()).collect()
    }

    pub fn mark_worker(&mut self, client: ClientId) {
        self.client_mut(client).worker = true;
    }

    pub fn give_chosen(&mut self, id: JobId, client: ClientId, now: Time) {
        self.give(id, client, now);
    }

    pub fn touch_all(&mut self, client: ClientId, now: Time) -> u64 {
        self.take_ended(client, now);
        let held: Vec<JobId> = self.held(client).map(|(_, id)| id).collect();
        for id in &held {
            self.job_mut(*id).touch(now);
        }
        held.len() as u64
    }

    /// Deletes all jobs of a tube, or only the buried jobs. The keys of the deleted jobs can be used again immediately.
    pub fn flush(&mut self, tube: Name, buried: bool) -> u64 {
        let all = State::UNFINISHED;
        self.flush_states(tube, if buried { &[State::Buried] } else { &all })
    }

    /// Deletes the jobs of a tube in these states, including jobs blocked by concurrency keys.
    pub fn flush_states(&mut self, tube: Name, states: &[State]) -> u64 {
        let (last, mut flushed) = (self.last_id, 0);
        // Also delete jobs that an earlier deletion in this loop released, but not jobs that are put later.
        while let Some(id) = self.flushed_first(tube, states, last) {
            self.remove(id, Outcome::Gone, false);
            flushed += 1;
        }
        // Serve clients only at the end, because they must not receive a job that the flush deletes.
        self.end_tubes();
        self.serve(self.extended.now);
        flushed
    }

    /// Returns the next job to delete. Held jobs are deleted first, so that they are not released.
    fn flushed_first(&self, tube: Name, states: &[State], last: u64) -> Option<JobId> {
        let jobs = self.jobs.iter().filter(|job| job.tube == tube && job.id.0 <= last);
        let meant = jobs.filter(|job| states.contains(&job.place.state()));
        meant.map(|job| (job.place != Place::Held, job.id)).min().map(|(_, id)| id)
    }

    pub fn peek_reserved(&self, client: ClientId) -> Option<JobId> {
        let tube = self.used(client);
        let until = |job: &super::Job| match job.place {
            Place::Reserved { until, .. } if job.tube == tube => Some((until, job.id)),
            _ => None,
        };
        self.jobs.iter().filter_map(until).min().map(|(_, id)| id)
    }

    pub fn list_ids(&self, tube: Name, state: State, above: u64, limit: usize) -> Option<Vec<JobId>> {
        self.tube(tube)?;
        let ids = self.jobs.iter().filter(|job| job.tube == tube && job.id.0 > above).map(|job| job.id);
        let mut ids: Vec<JobId> = ids.filter(|id| self.state_of(*id) == Some(state)).collect();
        ids.sort();
        ids.truncate(limit);
        Some(ids)
    }

    /// Returns the ages of a tube's oldest ready, delayed and buried jobs, or zero for a state without jobs.
    pub fn ages(&self, tube: Name, now: Time) -> [Span; 3] {
        [State::Ready, State::Delayed, State::Buried].map(|state| {
            let first = self.list_ids(tube, state, 0, 1).and_then(|ids| ids.first().copied());
            first.and_then(|id| self.job(id)).map_or(Span::ZERO, |job| now.since(job.created))
        })
    }

    fn has_expired(&self, id: JobId, now: Time) -> bool {
        self.extended.tags.get(&id).and_then(|tags| tags.expires).is_some_and(|expires| expires <= now)
    }

    /// Returns `true` if no other job and no ended job in `tube` has the job's key.
    pub(super) fn may_move(&self, id: JobId, tube: Name, now: Time) -> bool {
        let Some((key, _)) = self.extended.tags.get(&id).and_then(|tags| tags.key) else { return true };
        self.keyed(tube, key).is_none_or(|other| other == id) && self.ended_key(tube, key, now).is_none()
    }

    pub fn move_job(
        &mut self,
        client: ClientId,
        id: JobId,
        tube: Name,
        (pri, delay): (Priority, Span),
        now: Time,
    ) -> Result<bool, OverLimit> {
        if self.state_of(id) == Some(State::Reserved) {
            self.take_ended(client, now);
            if !self.holds(client, id) {
                return Ok(false);
            }
        }
        if self.job(id).is_none() || self.next_run(id).is_some() {
            return Ok(false);
        }
        if self.has_expired(id, now) {
            self.expire(id);
            return Ok(false);
        }
        if !self.may_move(id, tube, now) {
            return Ok(false);
        }
        self.find_or_create(client, tube)?;
        let job = self.job_mut(id);
        (job.tube, job.pri, job.delay) = (tube, pri, delay);
        job.place = if delay == Span::ZERO { Place::Ready } else { Place::Delayed { until: now + delay } };
        self.begin_life(id);
        self.end_tubes();
        self.serve(now);
        Ok(true)
    }

    /// Moves jobs in queue order. Jobs that cannot be moved count toward the bound. After a ready job that cannot be
    /// moved, jobs with the same concurrency key are not moved either.
    pub fn move_jobs(
        &mut self,
        client: ClientId,
        (from, to): (Name, Name),
        state: State,
        bound: u64,
        now: Time,
    ) -> Result<u64, OverLimit> {
        let ids = self.in_order(from, state);
        if from == to || ids.is_empty() {
            return Ok(0);
        }
        self.find_or_create(client, to)?;
        let (mut left, mut moved, mut held_up) = (bound, 0, Vec::new());
        for id in ids {
            let bound = self.extended.tags.get(&id).and_then(|tags| tags.bound).filter(|_| state == State::Ready);
            if left == 0 || bound.is_some_and(|(key, _)| held_up.contains(&key)) {
                continue;
            }
            left -= 1;
            if self.has_expired(id, now) || !self.may_move(id, to, now) {
                held_up.extend(bound.map(|(key, _)| key));
                continue;
            }
            self.burials += u64::from(state == State::Buried);
            let order = self.burials;
            let job = self.job_mut(id);
            job.tube = to;
            if let Some(failure) = self.extended.failures.get_mut(&id) {
                failure.2 = None;
            }
            let job = self.job_mut(id);
            if state == State::Buried {
                job.place = Place::Buried { order };
            }
            moved += 1;
        }
        self.end_tubes();
        self.serve(now);
        Ok(moved)
    }

    pub fn limit(&mut self, client: ClientId, tube: Name, limit: Option<u32>) -> Result<(), OverLimit> {
        if limit.is_some() {
            self.find_or_create(client, tube)?;
        }
        if self.tube(tube).is_some() {
            let rules = self.extended.rules.entry(tube).or_default();
            rules.settings.limit = limit;
            if rules.settings == Settings::default() {
                self.extended.rules.remove(tube);
            }
            self.end_tubes();
        }
        Ok(())
    }

    pub fn wait_end(&mut self, client: ClientId, id: JobId, timeout: Span, now: Time) -> JobEnd {
        match self.state_of(id) {
            None => JobEnd::NotFound,
            Some(State::Buried) => JobEnd::Buried,
            Some(_) if timeout == Span::ZERO => JobEnd::TimedOut,
            Some(_) => {
                self.extended.uncounted = true;
                self.extended.awaiting.push(Awaiting { client, job: id, until: now + timeout });
                JobEnd::Waiting
            }
        }
    }

    /// Restarts the server with its log. The model cannot predict the last ID, the number of jobs put since the
    /// restart, or the order of tubes, so it copies them from `engine`.
    #[allow(dead_code)] // unused in some of the crates that include this file
    pub fn restart(&mut self, engine: &Engine, now: Time) {
        self.clients.clear();
        self.waiting.clear();
        self.draining = false;
        (self.total_connections, self.timeouts) = (0, 0);
        let Extended { tags, mut ended, mut rules, failures, groups, waits, schedules, uncounted, .. } =
            std::mem::take(&mut self.extended);
        ended.retain(|key| key.until > now);
        rules.values_mut().for_each(|rules| (rules.taken, rules.window_end) = (0, Time::default()));
        let kept =
            Extended { tags, ended, rules, failures, groups, waits, schedules, uncounted, ..Extended::default() };
        self.extended = Extended { now, ..kept };
        self.restart_schedules(now);
        for job in &mut self.jobs {
            match job.place {
                Place::Reserved { .. } => job.place = Place::Ready,
                Place::Delayed { until } if until <= now => job.place = Place::Ready,
                _ => {}
            }
        }
        for tags in self.extended.tags.values_mut() {
            tags.timed = tags.expires.is_some();
        }
        self.last_id = self.last_id.max(engine.last_id());
        self.extended.before = self.last_id - engine.stats().total_jobs;
        let listed: Vec<&[u8]> = engine.tube_names().collect();
        let place = |name: Name| listed.iter().position(|other| *other == name.as_bytes());
        for tube in &mut self.tubes {
            (tube.total_jobs, tube.deletes, tube.pauses, tube.opener) = (0, 0, 0, None);
            tube.pause = tube.pause.filter(|(_, until)| *until > now);
        }
        self.end_tubes();
        self.tubes.sort_by_key(|tube| place(tube.name));
    }
}
