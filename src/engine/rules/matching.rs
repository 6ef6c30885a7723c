//! The assignment of ready jobs to waiting clients.
//!
//! Owns the engine's central invariant: **no tube has a ready job and a waiting client at the same time**, unless the
//! tube is paused or at a reservation limit. Serves clients strictly in order of arrival, and notifies idle clients if
//! no client waits. Must not change the state of a job: `transitions` does.
//!
//! Enforces promise P6 of beanpole-promises(7).
//! Touches: agenda, clients, limits, news, store, tubes.

use crate::engine::data::{
    Cause, ClientId, ClientState, Deferred, Event, IdleState, ReservePolicy, Span, Time, MOVE, NIL, NOTIFY,
};
use crate::engine::Engine;

/// Most workers request a job within a network round trip.
const RENOTIFY_AFTER: Span = Span::from_millis(50);

impl Engine {
    /// Defers serving the tube. Until the tube is served, other clients get none of its jobs.
    pub(in crate::engine) fn serve_later(&mut self, number: u32) {
        let tube = self.tubes.get_mut(number);
        if !std::mem::replace(&mut tube.serving, true) {
            self.agenda.deferred.push_back(Deferred::Serve(self.tubes.handle(number)));
        }
    }

    /// Every engine call that makes a job ready or opens a tube must end by calling this method.
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
            // While `serving` is set, a client with `PerConnection` that has not been found yet may have waited longer.
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

    /// If more clients are idle, schedules another notification, because a notified worker may hang.
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

    pub(in crate::engine) fn hand_over(&mut self, client: ClientId, slot: u32, now: Time) {
        self.stop_waiting(client);
        self.grant(client, slot, Cause::Reserve, now);
        let job = self.store.jobs.get(slot).id;
        self.news.events.push_back(Event::Reserved { client, job });
    }

    pub(in crate::engine) fn notify(&mut self, client: ClientId, tube: u32) {
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

    /// Prefers the tube of the last notification. Does not affect the turns of the tubes.
    pub(in crate::engine) fn tube_with_work(&self, client: ClientId, idle_state: IdleState) -> Option<u32> {
        match idle_state {
            IdleState::Notified(tube) if tube != NIL && self.head(tube, ReservePolicy::Notified).is_some() => {
                Some(tube)
            }
            _ if self.store.counts.ready == 0 => None,
            _ => self.heads(client).next().map(|slot| self.store.jobs.get(slot).tube),
        }
    }
}
