//! The tubes that clients use and watch, and the lifetime of tubes.
//!
//! Owns the methods to use, watch and ignore tubes, and the creation and removal of tubes. Must not decide which client
//! gets which job.
//!
//! Touches: agenda, clients, limits, tubes.

use std::num::NonZeroU16;

use crate::engine::data::{
    ClientId, IdleState, Progress, ReserveMode, ReservePolicy, Span, Time, TimerKey, NIL, TUBE, WATCH_COST,
};
use crate::engine::log::Change;
use crate::engine::{Engine, OverLimit, TUBES_PART, TUBE_COST, WATCHES_PART};

/// The maximum number of tubes that [`Engine::keep_tube`] keeps open.
const MAX_KEPT: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// The tube is closed, or will be closed when no jobs remain.
    Done,
    Unknown,
    /// A client uses or watches the tube, or the tube has unfinished jobs.
    InUse,
}

/// The complete watch list that a client wants, and the progress of [`Engine::watch_only`].
#[derive(Debug)]
pub struct WantedTubes {
    /// The names, separated by spaces.
    pub names: Box<[u8]>,
    /// The offset of the next name in `names`. While unwanted watches are removed, the number of watches to check.
    at: usize,
    mark: u32,
    pass: Pass,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    Mark,
    Drop,
    Watch,
    Fail,
    Done,
}

impl WantedTubes {
    pub fn new(names: Box<[u8]>) -> WantedTubes {
        WantedTubes { names, at: 0, mark: 0, pass: Pass::Mark }
    }

    fn next(&self) -> Option<&[u8]> {
        self.names.get(self.at..)?.split(|byte| *byte == b' ').next()
    }

    fn begin(&mut self, pass: Pass, at: usize) {
        (self.pass, self.at) = (pass, at);
    }
}

impl Engine {
    pub fn use_tube(&mut self, client: ClientId, name: &[u8]) -> Result<(), OverLimit> {
        let number = self.open_tube(client, name)?;
        self.tubes.get_mut(number).using += 1;
        let left = std::mem::replace(&mut self.clients[client].used, number);
        if left != NIL {
            self.tubes.get_mut(left).using -= 1;
            self.close_tube_if_idle(left);
        }
        Ok(())
    }

    /// Creates the tube if necessary. Returns the number of watched tubes. The client must not be waiting.
    pub fn watch(&mut self, client: ClientId, name: &[u8], now: Time) -> Result<usize, OverLimit> {
        let watched = &self.clients[client].watched;
        if self.watch_of(client, name).is_some() {
            return Ok(watched.len());
        }
        let watches = self.clients.memory() + WATCH_COST;
        let many = watched.len() >= self.limits.max_watched || watches > self.limits.max_memory / WATCHES_PART;
        if many || !self.has_memory(WATCH_COST) {
            return Err(OverLimit);
        }
        let number = self.open_tube(client, name)?;
        let count = self.clients.watch(client, number);
        let state = &self.clients[client];
        let tube = self.tubes.get_mut(number);
        tube.watching += 1;
        tube.sleepers += u32::from(state.reserve_policy == ReservePolicy::Notified);
        if state.idle_state == IdleState::Idle && state.search.is_none() {
            self.enqueue(client, count - 1);
            self.serve(number, now);
        }
        Ok(count)
    }

    /// Like [`Engine::watch`], but the client accepts only jobs of the tube with a time to run of at most `limit`.
    pub fn watch_limited(
        &mut self,
        client: ClientId,
        name: &[u8],
        limit: Option<Span>,
        now: Time,
    ) -> Result<usize, OverLimit> {
        let count = self.watch(client, name, now)?;
        let watch = self.watch_of(client, name).expect("a watched tube");
        let millis = limit.map_or(0, |limit| (limit.nanos() / 1_000_000).clamp(1, u32::MAX.into()));
        self.clients.watches.get_mut(watch).limit = millis as u32;
        Ok(count)
    }

    /// Returns the number of remaining tubes. The only tube of a client with `PerConnection` stays, and the result is
    /// `None`. The client must not be waiting.
    pub fn ignore(&mut self, client: ClientId, name: &[u8], now: Time) -> Option<usize> {
        let state = &self.clients[client];
        let left = state.watched.len();
        let found = self.tubes.find(name).filter(|&tube| state.watched.contains(tube, &self.clients.watches));
        let Some(number) = found else { return Some(left) };
        if left == 1 && state.reserve_policy == ReservePolicy::PerConnection {
            return None;
        }
        self.unwatch(client, number, now);
        Some(left - 1)
    }

    /// The client must watch the tube and must not be waiting.
    pub(in crate::engine) fn unwatch(&mut self, client: ClientId, number: u32, now: Time) {
        let state = &mut self.clients[client];
        let (idle_state, reserve_policy) = (state.idle_state, state.reserve_policy);
        if let Some(search) = &mut state.search {
            // The last tube in the watch list replaces the removed tube, so the search must start again.
            search.seen = 0;
        }
        let watch = self.clients[client].watched.find(number, &self.clients.watches).expect("a watched tube");
        self.dequeue(watch, reserve_policy);
        self.clients.unwatch(client, number);
        let tube = self.tubes.get_mut(number);
        tube.watching -= 1;
        tube.sleepers -= u32::from(reserve_policy == ReservePolicy::Notified);
        if let IdleState::Notified(tube) = idle_state {
            if tube == number {
                // The tube may be closed, and its number reused.
                self.clients[client].idle_state = IdleState::Notified(NIL);
            }
            // Only this client may have been notified of a job in the tube, so notify another client.
            self.serve(number, now);
        }
        self.close_tube_if_idle(number);
    }

    /// Sets the weight of a watched tube, which [`ReserveMode::Weighted`] and [`ReserveMode::Fair`] use.
    pub fn set_weight(&mut self, client: ClientId, name: &[u8], weight: u16) {
        if let Some(watch) = self.watch_of(client, name) {
            self.clients.watches.get_mut(watch).weight = NonZeroU16::new(weight).unwrap_or(NonZeroU16::MIN);
        }
    }

    fn watch_of(&self, client: ClientId, name: &[u8]) -> Option<u32> {
        self.clients[client].watched.find(self.tubes.find(name)?, &self.clients.watches)
    }

    pub fn set_reserve_mode(&mut self, client: ClientId, mode: ReserveMode) {
        self.clients[client].mode = mode;
    }

    /// Makes `client`, which must not be waiting, watch only the tubes in `wanted`. Over a limit, the client watches no
    /// tube.
    pub fn watch_only(&mut self, client: ClientId, wanted: &mut WantedTubes, now: Time) -> Result<Progress, OverLimit> {
        if wanted.pass == Pass::Mark && self.watches_just(client, &wanted.names) {
            return Ok(Progress::Done);
        }
        loop {
            match wanted.pass {
                Pass::Mark => self.mark_wanted(client, wanted),
                Pass::Drop => self.drop_unwanted(client, wanted, now),
                Pass::Watch => {
                    if self.watch_wanted(client, wanted, now).is_err() {
                        *wanted = WantedTubes { names: Box::default(), at: 0, mark: 0, pass: Pass::Fail };
                    }
                }
                Pass::Fail if self.unwatch_all(client, now) == Progress::Done => return Err(OverLimit),
                Pass::Fail => return Ok(Progress::More),
                Pass::Done => return Ok(Progress::Done),
            }
            if self.agenda.steps.are_used_up() && wanted.pass != Pass::Done {
                return Ok(Progress::More);
            }
        }
    }

    /// Returns `true` if the client already watches exactly these tubes in this order, which is usual for a short list.
    /// Long lists are not checked.
    fn watches_just(&self, client: ClientId, names: &[u8]) -> bool {
        let watched = &self.clients[client].watched;
        let mut names = names.split(|byte| *byte == b' ');
        let same = |watch| {
            names.next().is_some_and(|name| Some(self.clients.watches.get(watch).tube) == self.tubes.find(name))
        };
        watched.len() <= self.limits.few_watched && watched.iter().copied().all(same) && names.next().is_none()
    }

    fn mark_wanted(&mut self, client: ClientId, wanted: &mut WantedTubes) {
        if wanted.at == 0 {
            // Skip 0, which is the initial mark of every watch.
            self.clients.leases = self.clients.leases.wrapping_add(1).max(1);
            wanted.mark = self.clients.leases;
        }
        while let Some(name) = wanted.next() {
            self.agenda.steps.take(1);
            if let Some(watch) = self.watch_of(client, name) {
                self.clients.watches.get_mut(watch).lease = wanted.mark;
            }
            wanted.at += name.len() + 1;
            if self.agenda.steps.are_used_up() {
                return;
            }
        }
        wanted.begin(Pass::Drop, self.clients[client].watched.len());
    }

    /// The last watch replaces a removed watch, so iterate backwards.
    fn drop_unwanted(&mut self, client: ClientId, wanted: &mut WantedTubes, now: Time) {
        while wanted.at > 0 {
            wanted.at -= 1;
            self.agenda.steps.take(1);
            let watch = self.clients.watches.get(self.clients[client].watched[wanted.at]);
            if watch.lease != wanted.mark {
                self.unwatch(client, watch.tube, now);
            }
            if self.agenda.steps.are_used_up() {
                return;
            }
        }
        wanted.begin(Pass::Watch, 0);
    }

    fn watch_wanted(&mut self, client: ClientId, wanted: &mut WantedTubes, now: Time) -> Result<(), OverLimit> {
        while let Some(name) = wanted.next() {
            self.agenda.steps.take(2);
            self.watch(client, name, now)?;
            wanted.at += name.len() + 1;
            if self.agenda.steps.are_used_up() {
                return Ok(());
            }
        }
        wanted.begin(Pass::Done, 0);
        Ok(())
    }

    /// Keeps the tube open even if unused and empty. Creates the tube if necessary. Fails if too many tubes are kept.
    pub fn keep_tube(&mut self, client: ClientId, name: &[u8]) -> Result<(), OverLimit> {
        let number = self.open_tube(client, name)?;
        if self.tubes.kept < MAX_KEPT && !self.tubes.get(number).kept {
            self.tubes.get_mut(number).kept = true;
            self.tubes.kept += 1;
        }
        self.close_tube_if_idle(number);
        self.tubes.find(name).map(|_| ()).ok_or(OverLimit)
    }

    /// Undoes [`Engine::keep_tube`], and removes the tube's settings. Does nothing if a client uses or watches the
    /// tube, or if the tube has unfinished jobs that are not buried.
    pub fn drop_tube(&mut self, name: &[u8]) -> Dropped {
        let Some(number) = self.tubes.find(name) else { return Dropped::Unknown };
        let tube = self.tubes.get_mut(number);
        if tube.using + tube.watching > 0 || tube.counts.all() + tube.counts.scheduled - tube.counts.buried > 0 {
            return Dropped::InUse;
        }
        if std::mem::take(&mut tube.kept) {
            self.tubes.kept -= 1;
        }
        self.end_settings(number);
        self.close_tube_if_idle(number);
        Dropped::Done
    }

    pub fn used(&self, client: ClientId) -> &[u8] {
        &self.tubes.get(self.clients[client].used).name
    }

    pub fn watched(&self, client: ClientId) -> impl Iterator<Item = &[u8]> {
        let watched = &self.clients[client].watched;
        watched.iter().copied().map(|watch| &*self.tubes.get(self.clients.watches.get(watch).tube).name)
    }

    /// Creates the tube if necessary. Fails if `client` has already created more tubes than are left, so that one
    /// client cannot create all tubes.
    pub(in crate::engine) fn open_tube(&mut self, client: ClientId, name: &[u8]) -> Result<u32, OverLimit> {
        let cost = TUBE_COST + name.len() as u64;
        let many = self.tubes.table.memory + cost > self.limits.max_memory / TUBES_PART;
        let left = self.limits.max_tubes.saturating_sub(self.tubes.len());
        let opened = self.clients[client].opened;
        let is_full = left == 0 || opened as usize > left || many || !self.has_memory(cost);
        if is_full && self.tubes.find(name).is_none() {
            return Err(OverLimit);
        }
        let before = self.tubes.len();
        let number = self.open_tube_unlimited(name);
        if self.tubes.len() > before {
            self.tubes.get_mut(number).opener = Some(self.clients.handle(client));
            self.clients[client].opened += 1;
        }
        Ok(number)
    }

    pub(in crate::engine) fn open_tube_unlimited(&mut self, name: &[u8]) -> u32 {
        let before = self.tubes.len();
        let number = self.tubes.open(name);
        if self.tubes.len() > before {
            self.agenda.steps.take(TUBE);
        }
        number
    }

    pub(in crate::engine) fn close_tube_if_idle(&mut self, number: u32) {
        let tube = self.tubes.get(number);
        let paused = tube.pause.as_ref().map(|_| tube.name.clone());
        if let Some(closed) = self.tubes.close_if_idle(number) {
            if let Some(opener) = closed.opener.and_then(|opener| self.clients.at(opener)) {
                self.clients[opener].opened -= 1;
            }
            self.agenda.steps.take(TUBE);
            self.tubes.paused.remove(&number);
            if let Some(name) = paused {
                // The log must not apply the pause to a later tube of this name.
                self.changed(Change::PauseEnded { tube: number, name: (*name).into(), before: true });
            }
            self.agenda.deadlines.set(TimerKey::Tube(number), Time::NEVER);
        }
    }
}
