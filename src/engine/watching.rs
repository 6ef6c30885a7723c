//! Which tubes clients use and watch, and the life of tubes.
//!
//! Owns the verbs about tubes that give no job to anybody: use, watch, ignore, keep, drop, limit. Must not decide which job
//! goes to whom.

use std::collections::BTreeSet;

use super::change::Change;
use super::client::{ClientId, Manner, Nap};
use super::deadlines::Owner;
use super::list::NIL;
use super::time::{Span, Time};
use super::tube::TooManyTubes;
use super::{Engine, OverLimit, TUBE_COST};

/// Tubes that may be kept though nothing refers to them; more live as all others do.
const MAX_KEPT: usize = 10_000;

/// The answer to [`Engine::drop_tube`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// It is not kept any more, and gone.
    Done,
    /// There is no such tube.
    Unknown,
    /// A client uses or watches it, or it has jobs.
    InUse,
}

impl Engine {
    /// Makes the client use the tube with this name, which is created if need be.
    pub fn use_tube(&mut self, client: ClientId, name: &[u8]) -> Result<(), OverLimit> {
        let number = self.open_tube(name)?;
        self.tubes.get_mut(number).using += 1;
        let left = std::mem::replace(&mut self.clients[client.0 as usize].used, number);
        if left != NIL {
            self.tubes.get_mut(left).using -= 1;
            self.close_tube_if_idle(left);
        }
        Ok(())
    }

    /// Adds the tube with this name, which is created if need be, to those that the client watches. Tells how many.
    /// The client must not be waiting.
    pub fn watch(&mut self, client: ClientId, name: &[u8], now: Time) -> Result<usize, OverLimit> {
        let watched = &self.clients[client.0 as usize].watched;
        let known = self.tubes.find(name).is_some_and(|tube| watched.contains(tube, &self.watches));
        if known {
            return Ok(watched.len());
        }
        if watched.len() >= self.limits.max_watched {
            return Err(OverLimit);
        }
        let number = self.open_tube(name)?;
        let tube = self.tubes.get_mut(number);
        tube.watching += 1;
        let state = &mut self.clients[client.0 as usize];
        state.watched.add(client.0, number, &mut self.watches);
        let count = state.watched.len();
        if state.nap == Nap::Asleep {
            let watch = state.watched.at(count - 1);
            tube.sleeping.push_back(watch, &mut self.watches);
            self.serve(number, now);
        }
        Ok(count)
    }

    /// The same, and for jobs of this tube the client gives itself no more time to run than `limit`.
    pub fn watch_limited(
        &mut self,
        client: ClientId,
        name: &[u8],
        limit: Option<Span>,
        now: Time,
    ) -> Result<usize, OverLimit> {
        let count = self.watch(client, name, now)?;
        let tube = self.tubes.find(name).expect("a watched tube");
        let watch = self.clients[client.0 as usize].watched.find(tube, &self.watches).expect("a watch");
        let millis = limit.map_or(0, |limit| (limit.nanos() / 1_000_000).clamp(1, u32::MAX.into()));
        self.watches.get_mut(watch).limit = millis as u32;
        Ok(count)
    }

    /// Takes the tube with this name from those that the client watches. Tells how many are left; none if it is the only
    /// one of a holder, which must watch one. The client must not be waiting.
    pub fn ignore(&mut self, client: ClientId, name: &[u8], now: Time) -> Option<usize> {
        let state = &self.clients[client.0 as usize];
        let left = state.watched.len();
        let found = self.tubes.find(name).filter(|&tube| state.watched.contains(tube, &self.watches));
        let Some(number) = found else { return Some(left) };
        if left == 1 && state.manner == Manner::Holder {
            return None;
        }
        self.unwatch(client, number, now);
        Some(left - 1)
    }

    /// The client, which must watch this tube and not be waiting, does so no longer.
    pub(super) fn unwatch(&mut self, client: ClientId, number: u32, now: Time) {
        let state = &mut self.clients[client.0 as usize];
        let nap = state.nap;
        if nap == Nap::Asleep {
            let watch = state.watched.find(number, &self.watches).expect("a watched tube");
            self.tubes.get_mut(number).sleeping.remove(watch, &mut self.watches);
        }
        state.watched.remove(number, &mut self.watches);
        self.tubes.get_mut(number).watching -= 1;
        if let Nap::Woken(tube) = nap {
            if tube == number {
                // The tube may be gone soon, and its number another's.
                self.clients[client.0 as usize].nap = Nap::Woken(NIL);
            }
            // It may have been woken for a job here, which it will not fetch now.
            self.serve(number, now);
        }
        self.close_tube_if_idle(number);
    }

    /// The client watches just these tubes from now on; it must not be waiting. If they are too many, it watches none.
    pub(super) fn watch_only(&mut self, client: ClientId, names: &[&[u8]], now: Time) -> Result<(), OverLimit> {
        if self.watches_just(client, names) {
            return Ok(());
        }
        // What is not asked for any more must go first: it would count.
        let wanted: BTreeSet<u32> = names.iter().filter_map(|name| self.tubes.find(name)).collect();
        self.unwatch_but(client, &wanted, now);
        for name in names {
            if let Err(over) = self.watch(client, name, now) {
                self.unwatch_but(client, &BTreeSet::new(), now);
                return Err(over);
            }
        }
        Ok(())
    }

    /// Whether the client watches these tubes, in this order, and no other.
    fn watches_just(&self, client: ClientId, names: &[&[u8]]) -> bool {
        let watched = &self.clients[client.0 as usize].watched;
        let tubes = watched.iter().map(|watch| Some(self.watches.get(watch).tube));
        watched.len() == names.len() && tubes.zip(names).all(|(tube, name)| tube == self.tubes.find(name))
    }

    fn unwatch_but(&mut self, client: ClientId, wanted: &BTreeSet<u32>, now: Time) {
        let watched = self.clients[client.0 as usize].watched.iter().map(|watch| self.watches.get(watch).tube);
        let others: Vec<u32> = watched.filter(|tube| !wanted.contains(tube)).collect();
        others.into_iter().for_each(|tube| self.unwatch(client, tube, now));
    }

    /// The tube with this name, which is created if need be, stays though nothing refers to it. Only so many are kept; the
    /// others live as long as something does.
    pub fn keep_tube(&mut self, name: &[u8]) -> Result<(), OverLimit> {
        let number = self.open_tube(name)?;
        if self.kept_tubes < MAX_KEPT && !self.tubes.get(number).kept {
            self.tubes.get_mut(number).kept = true;
            self.kept_tubes += 1;
        }
        self.close_tube_if_idle(number);
        Ok(())
    }

    /// The tube with this name is kept no longer, and gone, unless somebody needs it.
    pub fn drop_tube(&mut self, name: &[u8]) -> Dropped {
        let Some(number) = self.tubes.find(name) else { return Dropped::Unknown };
        let tube = self.tubes.get_mut(number);
        if tube.using + tube.watching > 0 || tube.counts.all() + tube.counts.finished > 0 {
            return Dropped::InUse;
        }
        if std::mem::take(&mut tube.kept) {
            self.kept_tubes -= 1;
        }
        self.close_tube_if_idle(number);
        Dropped::Done
    }

    /// From now on no more jobs of a band are submitted to the tube with this name when it has so many of any; none: no limit.
    /// False if there is no such tube.
    pub fn limit_tube(&mut self, name: &[u8], most: [Option<u32>; 3]) -> bool {
        let Some(number) = self.tubes.find(name) else { return false };
        let limits = most.map(|most| most.unwrap_or(u32::MAX));
        self.tubes.get_mut(number).most = (limits != [u32::MAX; 3]).then(|| Box::new(limits));
        true
    }

    /// The name of the tube that the client uses.
    pub fn used(&self, client: ClientId) -> &[u8] {
        &self.tubes.get(self.clients[client.0 as usize].used).name
    }

    /// The names of the tubes that the client watches.
    pub fn watched(&self, client: ClientId) -> impl Iterator<Item = &[u8]> {
        let watched = &self.clients[client.0 as usize].watched;
        watched.iter().map(|watch| &*self.tubes.get(self.watches.get(watch).tube).name)
    }

    pub(super) fn open_tube(&mut self, name: &[u8]) -> Result<u32, TooManyTubes> {
        if self.tubes.len() >= self.limits.max_tubes && self.tubes.find(name).is_none() {
            return Err(TooManyTubes);
        }
        Ok(self.open_tube_unlimited(name))
    }

    pub(super) fn open_tube_unlimited(&mut self, name: &[u8]) -> u32 {
        let before = self.tubes.len();
        let number = self.tubes.open(name);
        if self.tubes.len() > before {
            self.memory += TUBE_COST + name.len() as u64;
        }
        number
    }

    pub(super) fn close_tube_if_idle(&mut self, number: u32) {
        let tube = self.tubes.get(number);
        let length = tube.name.len() as u64;
        let paused = tube.pause.as_ref().map(|_| tube.name.clone());
        if self.tubes.close_if_idle(number) {
            self.memory -= TUBE_COST + length;
            self.paused.remove(&number);
            if let Some(name) = paused {
                // A tube of this name that is opened later is not paused, and the log must not think that it is.
                self.changed(Change::Pause((*name).into()));
            }
            self.deadlines.set(Owner::Tube(number), Time::NEVER);
        }
    }
}
