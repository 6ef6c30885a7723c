//! Which waiting client gets which ready job.
//!
//! Owns the meeting of the two, and with it the engine's central promise: **no unpaused tube has a ready job and a waiting
//! client at the same time.** Every verb that makes a job ready, or lets a tube go on, ends in [`Engine::serve`], inside the
//! same call, so a job can neither be given twice nor be missed between a wake-up and a grab. Waiting clients are served
//! strictly first come, first served. Nothing here looks at other tubes than the one that changed, or at other clients than
//! the one that is served.

use super::change::Change;
use super::client::{ClientId, Waiting};
use super::deadlines::Owner;
use super::event::{Event, NoJob};
use super::job::{Cause, State};
use super::list::NIL;
use super::time::{Span, Time};
use super::Engine;

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
        let job = self.jobs.get(slot);
        let (number, holder, key) = (job.tube, job.holder, job.due_key());
        let tube = self.tubes.get_mut(number);
        tube.counts.add(job);
        self.counts.add(job);
        match job.state {
            State::Ready => tube.ready.push(slot, &mut self.jobs),
            State::Buried => tube.buried.push_back(slot, &mut self.jobs),
            State::Delayed => {
                tube.delayed.push(key, slot, &mut self.jobs);
                self.retime_tube(number);
            }
            State::Reserved => {
                let client = &mut self.clients[holder as usize];
                client.reserved.push(key, slot, &mut self.jobs);
                self.retime_client(holder);
            }
        }
    }

    /// Takes the job in `slot` out of where its state says it stands.
    pub(super) fn leave(&mut self, slot: u32) {
        let job = self.jobs.get(slot);
        let (number, holder, place) = (job.tube, job.holder, job.place());
        let tube = self.tubes.get_mut(number);
        tube.counts.subtract(job);
        self.counts.subtract(job);
        match job.state {
            State::Ready => tube.ready.remove(slot, &mut self.jobs),
            State::Buried => tube.buried.remove(slot, &mut self.jobs),
            State::Delayed => {
                tube.delayed.remove(place, &mut self.jobs);
                self.retime_tube(number);
            }
            State::Reserved => {
                let client = &mut self.clients[holder as usize];
                client.reserved.remove(place, &mut self.jobs);
                self.jobs.get_mut(slot).holder = NIL;
                self.retime_client(holder);
            }
        }
    }

    /// Gives the job in `slot` to `client`, whose time to run starts now.
    pub(super) fn grant(&mut self, client: ClientId, slot: u32, cause: Cause, now: Time) {
        let state = self.jobs.get(slot).state.after(cause).expect("a job that may be reserved");
        self.leave(slot);
        let job = self.jobs.get_mut(slot);
        job.state = state;
        job.holder = client.0;
        job.due = now + job.ttr;
        job.history.reserves += 1;
        self.changed(Change::Reserve(slot));
        self.enter(slot);
    }

    /// Hands ready jobs of this tube to the clients that wait for them.
    pub(super) fn serve(&mut self, number: u32, now: Time) {
        loop {
            let tube = self.tubes.get(number);
            if tube.pause.is_some() {
                return;
            }
            let Some(watch) = tube.waiting.first() else { return };
            let Some(slot) = tube.ready.first(&self.jobs) else { return };
            let client = ClientId(self.watches.get(watch).client);
            self.stop_waiting(client);
            self.grant(client, slot, Cause::Reserve, now);
            let job = self.jobs.get(slot).id;
            self.events.push_back(Event::Reserved { client, job });
        }
    }

    /// The best ready job of all tubes that `client` watches and that are not paused.
    pub(super) fn best_watched(&self, client: ClientId) -> Option<u32> {
        // Most clients that watch many tubes wait, and need not look at each to learn that there is nothing.
        if self.counts.ready == 0 {
            return None;
        }
        let watched = &self.clients[client.0 as usize].watched;
        let heads = watched.iter().filter_map(|watch| {
            let tube = self.tubes.get(self.watches.get(watch).tube);
            if tube.pause.is_some() {
                return None;
            }
            tube.ready.first(&self.jobs)
        });
        heads.min_by_key(|&slot| self.jobs.get(slot).ready_key())
    }

    /// `client` waits from now on, at most for `timeout`.
    pub(super) fn start_waiting(&mut self, client: ClientId, timeout: Option<Span>, now: Time) {
        let until = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        self.clients[client.0 as usize].waiting = Some(Waiting { until });
        self.waiting += 1;
        for watch in self.clients[client.0 as usize].watched.iter() {
            let tube = self.tubes.get_mut(self.watches.get(watch).tube);
            tube.waiting.push_back(watch, &mut self.watches);
        }
        self.retime_client(client.0);
    }

    /// `client`, which must be waiting, no longer is.
    pub(super) fn stop_waiting(&mut self, client: ClientId) {
        self.clients[client.0 as usize].waiting = None;
        self.waiting -= 1;
        for watch in self.clients[client.0 as usize].watched.iter() {
            let tube = self.tubes.get_mut(self.watches.get(watch).tube);
            tube.waiting.remove(watch, &mut self.watches);
        }
        self.retime_client(client.0);
    }

    /// Runs what is due, at most `limit` steps of it, and tells whether that was all. The earliest comes first.
    pub fn tick(&mut self, now: Time, limit: usize) -> bool {
        for _ in 0..limit {
            match self.deadlines.first() {
                Some((at, owner)) if at <= now => match owner {
                    Owner::Client(number) => self.client_due(ClientId(number), now),
                    Owner::Tube(number) => self.tube_due(number, now),
                },
                _ => return true,
            }
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
        if waiting.is_some() && state.in_margin(now) {
            self.end_wait(client, NoJob::DeadlineSoon);
        } else if waiting.is_some_and(|waiting| waiting.until <= now) {
            self.end_wait(client, NoJob::TimedOut);
        } else {
            unreachable!("a client was due for nothing");
        }
    }

    /// Lets expire what `client` holds beyond its time. A tick does so for everybody, but only a part at a time when very much
    /// is due at once, and nobody must be warned of what is over, or keep it by a late touch.
    pub(super) fn catch_up(&mut self, client: ClientId, now: Time) {
        while let Some(((end, _), slot)) = self.clients[client.0 as usize].reserved.first() {
            if end > now {
                return;
            }
            self.expire(slot, now);
        }
    }

    fn expire(&mut self, slot: u32, now: Time) {
        self.timeouts += 1;
        self.jobs.get_mut(slot).history.timeouts += 1;
        self.changed(Change::Expire(slot));
        self.transfer(slot, Cause::Expire);
        self.serve(self.jobs.get(slot).tube, now);
    }

    fn end_wait(&mut self, client: ClientId, why: NoJob) {
        self.stop_waiting(client);
        self.events.push_back(Event::NoJob { client, why });
    }

    /// One thing that is due in a tube.
    fn tube_due(&mut self, number: u32, now: Time) {
        let tube = self.tubes.get(number);
        let pause = tube.pause.map_or(Time::NEVER, |pause| pause.until);
        // A delay that ends no later than the pause has ended when the pause does, and competes for the waiting clients.
        match tube.delayed.first() {
            Some(((due, _), slot)) if due <= pause => self.transfer(slot, Cause::Due),
            _ => self.set_pause(number, None),
        }
        self.serve(number, now);
    }

    /// Brings a client's deadline up to date.
    pub(super) fn retime_client(&mut self, number: u32) {
        self.deadlines.set(Owner::Client(number), self.clients[number as usize].due());
    }

    /// Brings a tube's deadline up to date.
    pub(super) fn retime_tube(&mut self, number: u32) {
        self.deadlines.set(Owner::Tube(number), self.tubes.get(number).due());
    }
}
