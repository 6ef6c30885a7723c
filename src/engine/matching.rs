//! Which waiting client gets which ready job.
//!
//! Owns the meeting of the two, and with it the engine's central promise: **no unpaused tube has a ready job and a waiting
//! client at the same time.** Every verb that makes a job ready, or lets a tube go on, ends in [`Engine::serve`], inside the
//! same call, so a job can neither be given twice nor be missed between a wake-up and a grab. If that is too much for one
//! turn, nobody else is given a job of the tube before it is done. Waiting clients are served strictly first come, first
//! served; if none waits, a sleeping one is woken for each job. Nothing here looks at other tubes than the one that
//! changed, or at other clients than the one that is served.

use super::change::Change;
use super::client::{ClientId, ClientState, IdleState, ReservePolicy, LONGEST_LEASE};
use super::deadlines::TimerKey;
use super::details::Count;
use super::event::{Event, NoJob};
use super::job::{priority_class, Cause, Job, JobId, State};
use super::job_extras::JobExtras;
use super::job_options::CompletionPolicy;
use super::list::NIL;
use super::steps::{Progress, MOVE};
use super::time::{Span, Time};
use super::{Engine, NOBODY};

/// A worker that was woken has so long to come, before the next one is woken. Most need a round trip on the network.
const PATIENCE: Span = Span::from_millis(50);

impl Engine {
    /// Moves the job in `slot` to the state that `cause` leads to; the state must allow it.
    pub(super) fn transfer(&mut self, slot: u32, cause: Cause) {
        let state = self.jobs.get(slot).state.after(cause).expect("a cause that applies");
        self.leave(slot);
        self.jobs.get_mut(slot).state = state;
        self.enter(slot);
    }

    /// Puts the job in `slot` where its state says.
    pub(super) fn enter(&mut self, slot: u32) {
        if self.jobs.get(slot).state == State::Ready {
            self.jobs.get_mut(slot).due = Time::from_nanos(self.place_of(slot));
        }
        let job = self.jobs.get(slot);
        let (number, holder, key, is_large) = (job.tube, job.holder, job.due_key(), self.is_large(job));
        let tube = self.tubes.get_mut(number);
        tube.counts.add(job);
        self.counts.add(job);
        tube.priority_classes[priority_class(job.pri)] += u32::from(is_queued(job));
        match job.state {
            State::Ready => {
                tube.push_ready(slot, is_large, &mut self.jobs);
                self.count_life(slot);
            }
            State::Finished => {}
            State::Buried => tube.buried.push_back(slot, &mut self.jobs),
            State::Delayed => {
                tube.delayed.push(key, slot, &mut self.jobs);
                self.retime_tube(number);
                self.count_life(slot);
            }
            State::Reserved => {
                let client = &mut self.clients[holder as usize];
                client.reserved.push(key, slot, &mut self.jobs);
                self.retime_client(holder);
            }
        }
    }

    /// The place of the job in `slot` among ready jobs of its priority: by id, and a job that was taken comes back to its old
    /// place. But one that is told and was lost goes to the end, and one that had a start of its own stands behind those that
    /// had none, by that start: it gets its place when that has come.
    fn place_of(&mut self, slot: u32) -> u64 {
        const STARTED: u64 = 1 << 63;
        let job = self.jobs.get(slot);
        if job.completion == CompletionPolicy::Tell && job.history().timeouts > 0 {
            // An id that no job gets: the places of all others are before it, and of all to come behind.
            self.last_id += 1;
            return self.last_id;
        }
        if job.completion == CompletionPolicy::Keep && self.extras(job).and_then(JobExtras::start).is_some() {
            let number = self.extras_store.of(slot);
            let rare = self.extras_store.get_mut(number).rare_mut();
            if rare.order == 0 {
                self.last_id += 1;
                rare.order = STARTED | self.last_id;
            }
            return rare.order;
        }
        job.id.0
    }

    /// Takes the job in `slot` out of where its state says it stands.
    pub(super) fn leave(&mut self, slot: u32) {
        let job = self.jobs.get(slot);
        let (number, holder, place, is_leaving) = (job.tube, job.holder, job.place(), job.is_leaving());
        let is_large = self.is_large(job);
        let tube = self.tubes.get_mut(number);
        tube.counts.subtract(job);
        self.counts.subtract(job);
        tube.priority_classes[priority_class(job.pri)] -= u32::from(is_queued(job));
        match job.state {
            State::Finished => {}
            State::Ready => tube.remove_ready(slot, is_large, &mut self.jobs),
            State::Buried => tube.buried.remove(slot, &mut self.jobs),
            State::Delayed => {
                tube.delayed.remove(place, &mut self.jobs);
                self.retime_tube(number);
            }
            State::Reserved => {
                let client = &mut self.clients[holder as usize];
                match &mut client.leaving {
                    Some(leaving) if is_leaving => drop(leaving.remove(place, &mut self.jobs)),
                    _ => drop(client.reserved.remove(place, &mut self.jobs)),
                }
                let job = self.jobs.get_mut(slot);
                job.holder = NIL;
                job.set_leaving(false);
                self.retime_client(holder);
            }
        }
    }

    /// Gives the job in `slot` to `client`; its time to run starts now.
    pub(super) fn grant(&mut self, client: ClientId, slot: u32, cause: Cause, now: Time) {
        let state = self.jobs.get(slot).state.after(cause).expect("a job that may be reserved");
        self.leave(slot);
        let leased = self.takes_leases(client);
        let limit = self.time_limit(client, slot);
        let job = self.jobs.get_mut(slot);
        job.state = state;
        job.holder = if leased { NOBODY.0 } else { client.0 };
        job.due = now + job.ttr().min(limit);
        job.count(Count::Reserves);
        self.changed(if leased { Change::Lease(slot) } else { Change::Reserve(slot) });
        self.enter(slot);
    }

    /// The most time that `client` gives itself for the job in `slot`.
    fn time_limit(&self, client: ClientId, slot: u32) -> Span {
        let state = &self.clients[client.0 as usize];
        match state.reserve_policy {
            ReservePolicy::PerConnection => return Span::MAX,
            ReservePolicy::Lease => return self.lease_of(self.jobs.get(slot)),
            ReservePolicy::Notified => {}
        }
        let watch = state.watched.find(self.jobs.get(slot).tube, &self.watches);
        match watch.map_or(0, |watch| self.watches.get(watch).limit) {
            0 => Span::MAX,
            limit => Span::from_millis(limit.into()),
        }
    }

    /// Whether no client that leases gets this job, which must not be over.
    pub(super) fn is_large(&self, job: &Job) -> bool {
        job.body.len() > self.limits.largest_leased
    }

    /// How long a lease of this job lasts. Without a time to run, the job's producer counted on the loss of a worker being
    /// noticed, which that of a client that leases never is.
    pub fn lease_of(&self, job: &Job) -> Span {
        let most = if job.ttr() == Span::MAX { self.limits.lease_limit } else { LONGEST_LEASE };
        job.ttr().min(most)
    }

    /// Hands ready jobs of this tube to the clients that wait for them, and wakes one that sleeps if there are more.
    pub(super) fn serve(&mut self, number: u32, now: Time) {
        loop {
            let tube = self.tubes.get(number);
            if tube.pause.is_some()
                || tube.is_lonely()
                || tube.first(ReservePolicy::PerConnection, &self.jobs).is_none()
            {
                return;
            }
            let Some((client, slot)) = self.next_meeting(number) else { break };
            self.hand_over(client, slot, now);
            self.steps.take(MOVE);
            if self.steps.are_used_up() {
                let tube = self.tubes.get(number);
                if !tube.is_lonely() && tube.first(ReservePolicy::PerConnection, &self.jobs).is_some() {
                    self.serve_later(number);
                }
                return;
            }
        }
        if !self.tubes.get(number).serving {
            self.notify_next(number, now);
        }
    }

    /// Of those who wait in this tube and for whom there is a job, the one that has waited longest, and its job.
    fn next_meeting(&mut self, number: u32) -> Option<(ClientId, u32)> {
        let holder = self.first_in_queue(number, ReservePolicy::PerConnection);
        let leaser = match self.tubes.get(number).first(ReservePolicy::Lease, &self.jobs) {
            // Not if the search for a holder is to go on.
            Some(_) if !self.tubes.get(number).serving => self.first_in_queue(number, ReservePolicy::Lease),
            _ => None,
        };
        let since = |client: ClientId| self.clients[client.0 as usize].since;
        let (client, reserve_policy) = match (holder, leaser) {
            (Some(holder), Some(leaser)) if since(leaser) < since(holder) => (leaser, ReservePolicy::Lease),
            (Some(holder), _) => (holder, ReservePolicy::PerConnection),
            (None, leaser) => (leaser?, ReservePolicy::Lease),
        };
        Some((client, self.tubes.get(number).first(reserve_policy, &self.jobs)?))
    }

    /// Wakes those who have slept longest with an eye on this tube: as many as the limits say. If others sleep on, it is looked
    /// again later: a worker that hangs does not come.
    fn notify_next(&mut self, number: u32, now: Time) {
        let wakeups = if self.limits.wakeups == 0 { u32::MAX } else { self.limits.wakeups };
        for _ in 0..wakeups {
            let Some(client) = self.first_in_queue(number, ReservePolicy::Notified) else { return };
            self.wake_for(client, number);
            if self.limits.wakeups == 0 && self.steps.are_used_up() {
                return self.serve_later(number);
            }
        }
        let tube = self.tubes.get_mut(number);
        if !tube.sleeping.is_empty() && tube.renotify_at == Time::NEVER {
            tube.renotify_at = now + PATIENCE;
            self.retime_tube(number);
        }
    }

    /// The job that a tube would give next to clients of this reserve policy.
    pub(super) fn head(&self, tube: u32, reserve_policy: ReservePolicy) -> Option<u32> {
        let tube = self.tubes.get(tube);
        tube.first(reserve_policy, &self.jobs).filter(|_| tube.pause.is_none() && !tube.serving)
    }

    pub(super) fn heads(&self, client: ClientId) -> impl Iterator<Item = u32> + '_ {
        let ClientState { watched, reserve_policy, .. } = &self.clients[client.0 as usize];
        watched.iter().filter_map(|watch| self.head(self.watches.get(watch).tube, *reserve_policy))
    }

    /// A tube with a job for `client`: the one that it was told of, or any. This is not a turn of that tube's.
    pub(super) fn tube_with_work(&self, client: ClientId, idle_state: IdleState) -> Option<u32> {
        match idle_state {
            IdleState::Notified(tube) if tube != NIL && self.head(tube, ReservePolicy::Notified).is_some() => {
                Some(tube)
            }
            _ if self.counts.ready == 0 => None,
            _ => self.heads(client).next().map(|slot| self.jobs.get(slot).tube),
        }
    }

    /// Runs what is due first, and tells whether that was all. One thing at a time, since the next one may undo what its events
    /// tell.
    pub fn tick(&mut self, now: Time) -> bool {
        match self.deadlines.first() {
            Some((at, owner)) if at <= now => match owner {
                TimerKey::ClientState(number) => self.client_due(ClientId(number), now),
                TimerKey::Tube(number) => self.tube_due(number, now),
                TimerKey::ExtrasStore => self.extras_due(now),
                TimerKey::Keys => self.key_due(),
            },
            _ => {}
        }
        self.next_deadline() > now
    }

    /// One thing that is due for a client. What it holds expires before it is warned or told to go: after a stall over
    /// both moments there is nothing left to warn of.
    fn client_due(&mut self, client: ClientId, now: Time) {
        let state = &self.clients[client.0 as usize];
        let waiting = state.waiting;
        match state.reserved.first() {
            Some(((end, _), slot)) if end <= now => return self.expire(slot, now),
            _ => {}
        }
        match waiting {
            Some(_) if state.in_margin(now) => self.end_wait(client, NoJob::DeadlineSoon),
            Some(waiting) if waiting.until <= now => self.give_up(client, waiting),
            _ => unreachable!("a client was due for nothing"),
        }
    }

    /// Lets expire what `client` holds beyond its time, as far as the turn's steps go. A tick does so for everybody, but only a
    /// part at a time when very much is due at once, and nobody must be warned of what is over.
    pub(super) fn catch_up(&mut self, client: ClientId, now: Time) -> Progress {
        while let Some(((end, _), slot)) = self.clients[client.0 as usize].reserved.first() {
            if end > now {
                break;
            }
            if self.steps.are_used_up() {
                return Progress::More;
            }
            self.expire(slot, now);
        }
        Progress::Done
    }

    /// The job with this id, if `client` holds it and its time to run has not ended: what is over is lost to its holder,
    /// though no tick has come to it yet.
    pub(super) fn held(&mut self, client: ClientId, id: JobId, now: Time) -> Option<u32> {
        // First what has ended before, so that it is ready before as well.
        let _ = self.catch_up(client, now);
        let slot = self.jobs.find(id)?;
        let job = self.jobs.get(slot);
        if job.state != State::Reserved || job.holder != client.0 {
            return None;
        }
        if job.due <= now {
            self.expire(slot, now);
            return None;
        }
        Some(slot)
    }

    fn expire(&mut self, slot: u32, now: Time) {
        self.steps.take(MOVE);
        self.timeouts += 1;
        self.jobs.get_mut(slot).count(Count::Timeouts);
        self.changed(Change::Expire(slot));
        self.end_reservation(slot, Cause::Expire, now);
    }

    /// Ends the wait of `client` for a job or an outcome.
    pub(super) fn end_wait(&mut self, client: ClientId, why: NoJob) {
        self.cancel_wait(client);
        self.events.push_back(Event::NoJob { client, why });
    }

    /// One thing that is due in a tube.
    fn tube_due(&mut self, number: u32, now: Time) {
        let tube = self.tubes.get_mut(number);
        if tube.renotify_at <= now {
            tube.renotify_at = Time::NEVER;
            self.retime_tube(number);
            return self.serve(number, now);
        }
        let pause = tube.pause.as_ref().map_or(Time::NEVER, |pause| pause.until);
        // A delay that ends no later than the pause has ended when the pause does, and competes for the waiting clients.
        match tube.delayed.first() {
            Some(((due, _), slot)) if due <= pause => self.transfer(slot, Cause::Due),
            _ => self.end_pause(number),
        }
        self.serve(number, now);
    }

    /// Brings a client's deadline up to date.
    pub(super) fn retime_client(&mut self, number: u32) {
        self.deadlines.set(TimerKey::ClientState(number), self.clients[number as usize].due());
    }

    /// Brings a tube's deadline up to date.
    pub(super) fn retime_tube(&mut self, number: u32) {
        self.deadlines.set(TimerKey::Tube(number), self.tubes.get(number).due());
    }
}

/// Whether a job waits for a worker, now or from a later moment on.
fn is_queued(job: &Job) -> bool {
    matches!(job.state, State::Ready | State::Delayed)
}
