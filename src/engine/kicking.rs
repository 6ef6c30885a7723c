//! How jobs come back before their time: out of a delay, out of the grave, out of a lease.
//!
//! Owns the verbs that kick. Must not decide which job goes to whom.

use super::body::Body;
use super::change::Change;
use super::client::ClientId;
use super::details::Count;
use super::job::{Cause, JobId, State};
use super::steps::{Progress, MOVE};
use super::time::Time;
use super::Engine;

/// A kick that may take several turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kick {
    /// How many jobs at most are still to be kicked.
    pub left: u64,
    /// Jobs in this state; the first call finds out which, if it is not said.
    pub of: Option<State>,
    /// How many were kicked.
    pub done: u64,
}

impl Kick {
    /// Of up to so many jobs.
    pub fn new(bound: u64) -> Kick {
        Kick { left: bound, of: None, done: 0 }
    }
}

impl Engine {
    /// Kicks buried jobs of the tube that the client uses, the longest buried first; if none is buried, delayed ones, the next
    /// due first; as many as `kick` says, of those that there are at the first call. More must be kicked in another turn if
    /// its steps, or the log's room, are used up; if there was no room at all, that was all.
    pub fn kick(&mut self, client: ClientId, kick: &mut Kick, now: Time) -> Progress {
        let number = self.clients[client.0 as usize].used;
        let tube = self.tubes.get(number);
        let buried = kick.of.map_or(!tube.buried.is_empty(), |state| state == State::Buried);
        let all = if buried { tube.buried.len() } else { tube.delayed.len() };
        kick.left = kick.left.min(all as u64);
        kick.of = Some(if buried { State::Buried } else { State::Delayed });
        let room = self.log_room.changes.min(self.log_room.burst) / self.log_room.change.max(1);
        let kicked = kick.left.min(room).min((self.steps.left() / MOVE).max(1));
        self.log_room.changes -= kicked * self.log_room.change;
        for _ in 0..kicked {
            let tube = self.tubes.get(number);
            let first = if buried { tube.buried.first() } else { tube.delayed.first().map(|(_, slot)| slot) };
            self.kick_slot(first.expect("counted jobs"), now);
        }
        kick.left -= kicked;
        kick.done += kicked;
        if kicked > 0 && kick.left > 0 {
            Progress::More
        } else {
            Progress::Done
        }
    }

    /// Kicks one job by its id, in whatever tube it is. False unless it is buried, delayed or leased.
    pub fn kick_job(&mut self, id: JobId, now: Time) -> bool {
        let Some(slot) = self.jobs.find(id) else { return false };
        let job = self.jobs.get(slot);
        if job.is_leased() {
            self.end_lease(slot, now);
        } else if job.state.after(Cause::Kick).is_some() {
            self.kick_slot(slot, now);
        } else {
            return false;
        }
        true
    }

    /// Takes a leased job back before its time, as a release would if anybody held it.
    fn end_lease(&mut self, slot: u32, now: Time) {
        self.steps.take(MOVE);
        if self.is_spent(slot) {
            self.keep_outcome(slot, false, Body::default());
            return self.changed(Change::Outcome { slot, result: 0 });
        }
        if self.ends_if_untold(slot) {
            return;
        }
        self.jobs.get_mut(slot).count(Count::Kicks);
        self.changed(Change::Kick(slot));
        self.transfer(slot, Cause::Release);
        self.serve(self.jobs.get(slot).tube, now);
    }

    fn kick_slot(&mut self, slot: u32, now: Time) {
        self.steps.take(MOVE);
        self.jobs.get_mut(slot).count(Count::Kicks);
        self.forget_tries(slot);
        self.changed(Change::Kick(slot));
        self.transfer(slot, Cause::Kick);
        if !self.ends_expired(slot, now) {
            self.serve(self.jobs.get(slot).tube, now);
        }
    }
}
