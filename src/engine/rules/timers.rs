//! Timed events: deadline warnings, repeated notifications, schedule runs, and expiry of delays, pauses, rate windows,
//! reservations, times to live, kept keys and waits. Must not decide what happens to a job, or which client gets a job.
//! Enforces promises P8 and P9 of beanpole-promises(7).
//! Touches: agenda, clients, store, tubes.

use crate::engine::data::*;
use crate::engine::log::Change;
use crate::engine::Engine;

impl Engine {
    pub fn next_deadline(&self) -> Time {
        self.agenda.deadlines.first().map_or(Time::NEVER, |(at, _)| at)
    }

    /// Processes the first due event. Returns `true` if no more events are due. The caller must send the notifications
    /// after each call, because the next call can remove jobs that the notifications refer to.
    pub fn tick(&mut self, now: Time) -> bool {
        match self.agenda.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, owner)| owner) {
            Some(TimerKey::Client(number)) => self.client_due(ClientId(number), now),
            Some(TimerKey::Tube(number)) => self.tube_due(number, now),
            Some(TimerKey::Extras) => self.extras_due(now),
            Some(TimerKey::Keys) => self.key_due(),
            Some(TimerKey::Schedules) => self.schedule_due(now),
            None => {}
        }
        self.next_deadline() > now
    }

    /// Ends expired reservations before sending a warning, because a warning about them would be wrong.
    fn client_due(&mut self, client: ClientId, now: Time) {
        let state = &self.clients[client];
        let waiting = state.waiting;
        if let Some((_, slot)) = state.reserved().first().filter(|((end, _), _)| *end <= now) {
            return self.expire(slot, now);
        }
        match waiting {
            Some(_) if state.in_margin(now) => self.end_wait(client, NoJob::DeadlineSoon),
            Some(waiting) if waiting.until <= now => self.give_up(client, waiting),
            _ => unreachable!("a client has no due event"),
        }
    }

    fn tube_due(&mut self, number: u32, now: Time) {
        let tube = self.tubes.get_mut(number);
        if tube.renotify_at <= now {
            tube.renotify_at = Time::NEVER;
            self.retime_tube(number);
            return self.serve(number, now);
        }
        let pause = tube.pause.as_ref().map_or(Time::NEVER, |pause| pause.until);
        let opens = tube.rules.as_ref().map_or(Time::NEVER, |rules| rules.opens());
        // If a delay expires as the pause ends, end the delay first, so that its job competes for the waiting clients.
        match tube.delayed.first() {
            Some(((due, _), slot)) if due <= pause.min(opens) => self.transfer(slot, Cause::Due),
            _ if opens <= pause => self.reopen(number),
            _ => self.end_pause(number),
        }
        self.serve(number, now);
    }

    /// Ends expired reservations. Requests call this method first, because a tick processes only one event.
    pub(in crate::engine) fn catch_up(&mut self, client: ClientId, now: Time) -> Progress {
        while let Some(((end, _), slot)) = self.clients[client].reserved().first() {
            if end > now {
                break;
            }
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
            self.expire(slot, now);
        }
        Progress::Done
    }

    /// Returns the job's slot if the client holds the job. An expired reservation does not count.
    pub(in crate::engine) fn held(&mut self, client: ClientId, id: JobId, now: Time) -> Option<u32> {
        let _ = self.catch_up(client, now);
        let slot = self.store.jobs.find(id)?;
        let job = self.store.jobs.get(slot);
        if job.state() != State::Reserved || job.holder != client.0 {
            return None;
        }
        if job.due <= now {
            self.expire(slot, now);
            return None;
        }
        Some(slot)
    }

    fn expire(&mut self, slot: u32, now: Time) {
        self.agenda.steps.take(MOVE);
        self.store.timeouts += 1;
        self.store.jobs.get_mut(slot).count(Count::Timeouts);
        self.count_event(slot, |events| &mut events.timeouts);
        self.changed(Change::Expire(slot));
        self.end_reservation(slot, Cause::Expire, now);
    }

    pub(in crate::engine) fn retime_client(&mut self, number: u32) {
        self.agenda.deadlines.set(TimerKey::Client(number), self.clients[ClientId(number)].due());
    }

    pub(in crate::engine) fn retime_tube(&mut self, number: u32) {
        self.agenda.deadlines.set(TimerKey::Tube(number), self.tubes.get(number).due());
    }

    pub(in crate::engine) fn retime_extras(&mut self) {
        self.agenda.deadlines.set(TimerKey::Extras, self.store.extras.ends.first().map_or(Time::NEVER, |(at, _)| at));
    }

    fn extras_due(&mut self, now: Time) {
        let (_, number) = self.store.extras.ends.first().expect("a job with a time to live");
        let slot = self.store.extras.get(number).slot;
        let job = self.store.jobs.get(slot);
        match (job.completion, job.state()) {
            (CompletionPolicy::Keep, state) => {
                self.store.evicted += u64::from(state != State::Finished);
                self.remove_job(slot, Outcome::Gone);
                self.serve_unblocked(now);
            }
            (_, State::Reserved | State::Buried) => {
                self.store.extras.suspend_expiry(number);
                self.retime_extras();
            }
            _ => self.expire_job(slot, now),
        }
    }
}
