//! The assignment of ready jobs to waiting clients.
//!
//! Owns the engine's central promise: **no unpaused tube has a ready job and a waiting client at the same time.** Every
//! verb that makes a job ready, or reopens a tube, ends in [`Engine::serve`], inside the same call, so a job can
//! neither be given twice nor be missed between a notification and a grab. If that is too much for one turn, no other
//! client gets a job of the tube before it is done. Waiting clients are served strictly first come, first served; if
//! none waits, an idle one is notified of each job. Must not change a job's state itself: `transitions` does.
//!
//! Promises: P6.
//! Touches: agenda, clients, limits, news, store, tubes.

use crate::engine::data::{
    Cause, ClientId, ClientState, Deferred, Event, IdleState, ReservePolicy, Span, Time, MOVE, NIL, NOTIFY,
};
use crate::engine::Engine;

/// The time for a notified worker to request the job before the next one is notified. Most need a network round trip.
const RENOTIFY_AFTER: Span = Span::from_millis(50);

impl Engine {
    /// Serves the clients that wait in this tube in another turn. Until then, no other client gets a job of the tube.
    pub(in crate::engine) fn serve_later(&mut self, number: u32) {
        let tube = self.tubes.get_mut(number);
        if !std::mem::replace(&mut tube.serving, true) {
            self.agenda.deferred.push_back(Deferred::Serve(self.tubes.handle(number)));
        }
    }

    /// Hands ready jobs of this tube to the clients that wait for them, and notifies an idle one if there are more.
    pub(in crate::engine) fn serve(&mut self, number: u32, now: Time) {
        if self.has_unblocked() {
            return self.serve_with_unblocked(number, now);
        }
        self.serve_tube(number, now);
    }

    pub(in crate::engine) fn serve_tube(&mut self, number: u32, now: Time) {
        loop {
            let tube = self.tubes.get(number);
            if tube.closed
                || tube.has_no_waiters()
                || tube.first(ReservePolicy::PerConnection, &self.store.jobs).is_none()
            {
                return;
            }
            let Some((client, slot)) = self.next_meeting(number) else { break };
            self.hand_over(client, slot, now);
            self.agenda.steps.take(MOVE);
            if self.agenda.steps.are_used_up() {
                let tube = self.tubes.get(number);
                if !tube.has_no_waiters() && tube.first(ReservePolicy::PerConnection, &self.store.jobs).is_some() {
                    self.serve_later(number);
                }
                return;
            }
        }
        if !self.tubes.get(number).serving {
            self.notify_next(number, now);
        }
    }

    /// Returns the client that has waited longest among those in this tube with a job available, and its job.
    fn next_meeting(&mut self, number: u32) -> Option<(ClientId, u32)> {
        let holder = self.first_in_queue(number, ReservePolicy::PerConnection);
        let leaser = match self.tubes.get(number).first(ReservePolicy::Lease, &self.store.jobs) {
            // Not if the search for a holder is unfinished.
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

    /// Notifies the watchers of this tube that have been idle longest, as many as the limits say. If others stay idle,
    /// the tube notifies again later, since a worker that hangs does not come.
    fn notify_next(&mut self, number: u32, now: Time) {
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

    /// Notifies `client`, which is idle, that this tube has work.
    pub(in crate::engine) fn notify(&mut self, client: ClientId, tube: u32) {
        self.become_active(client);
        self.clients[client].idle_state = IdleState::Notified(tube);
        self.news.events.push_back(Event::Work { client });
        self.agenda.steps.take(NOTIFY);
    }

    /// Returns the job that a tube would give next to clients of this reserve policy.
    pub(in crate::engine) fn head(&self, tube: u32, reserve_policy: ReservePolicy) -> Option<u32> {
        let tube = self.tubes.get(tube);
        tube.first(reserve_policy, &self.store.jobs).filter(|_| !tube.closed && !tube.serving)
    }

    pub(in crate::engine) fn heads(&self, client: ClientId) -> impl Iterator<Item = u32> + '_ {
        let ClientState { watched, reserve_policy, .. } = &self.clients[client];
        watched.iter().copied().filter_map(|watch| self.head(self.clients.watches.get(watch).tube, *reserve_policy))
    }

    /// Returns a tube with a job for `client`, preferably the one that it was notified of. This is not a turn of the
    /// tube.
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
