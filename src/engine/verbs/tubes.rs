//! The tubes that clients use and watch, and the lifetime, the settings and the pauses of tubes. A tube with settings
//! stays open even if it is unused and empty. Must not apply the settings (see `submit.rs`, `rules/failures.rs` and
//! `rules/concurrency.rs`).
//! Touches: agenda, clients, limits, tubes.

use std::num::NonZeroU16;
use std::sync::Arc;

use crate::engine::data::*;
use crate::engine::log::Change;
use crate::engine::{Engine, OverLimit, WATCHES_PART};

pub const MAX_KEPT: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    Done,
    Unknown,
    InUse,
}

#[derive(Debug)]
pub struct WantedTubes {
    /// The names, separated by spaces.
    pub names: Box<[u8]>,
    /// The offset of the next name in `names`. In `Pass::Drop`, the number of watches that must still be checked.
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotSet {
    OverLimit,
    Circle,
}

impl NotSet {
    pub fn reason(self) -> &'static str {
        match self {
            NotSet::OverLimit => "there is not enough memory or binlog space, or there are too many tubes",
            NotSet::Circle => "the dead-letter tubes would form a cycle, or a chain of more than 16 tubes",
        }
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

    /// Returns the number of watched tubes. The client must not be waiting.
    pub fn watch(&mut self, client: ClientId, name: &[u8], now: Time) -> Result<usize, OverLimit> {
        let watched = &self.clients[client].watched;
        if self.watch_of(client, name).is_some() {
            return Ok(watched.len());
        }
        let watches = self.clients.memory() + WATCH_COST;
        let many = watched.len() >= self.limits.max_watched || watches > self.limits.max_memory / WATCHES_PART;
        ensure!(!many && self.has_memory(WATCH_COST), OverLimit);
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

    /// Like [`Engine::watch`], but the client accepts only the tube's jobs that have a time to run of at most `limit`.
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

    /// Returns the number of remaining tubes, or `None` for the only tube of a client with `PerConnection`.
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
                // The tube may be closed below, and its number may be reused.
                self.clients[client].idle_state = IdleState::Notified(NIL);
            }
            // Perhaps only this client was notified of a job in the tube, so notify another client.
            self.serve(number, now);
        }
        self.close_tube_if_idle(number);
    }

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

    /// The client must not be waiting. If a limit is exceeded, the client watches no tube afterwards.
    pub fn watch_only(&mut self, client: ClientId, wanted: &mut WantedTubes, now: Time) -> Result<Progress, OverLimit> {
        if wanted.pass == Pass::Mark && wanted.at == 0 {
            if self.watches_just(client, &wanted.names) {
                return Ok(Progress::Done);
            }
            // Skip 0, which is the initial mark of every watch.
            self.clients.leases = self.clients.leases.wrapping_add(1).max(1);
            wanted.mark = self.clients.leases;
        }
        loop {
            match wanted.pass {
                Pass::Mark => match wanted.next() {
                    Some(name) => {
                        self.agenda.steps.take(1);
                        if let Some(watch) = self.watch_of(client, name) {
                            self.clients.watches.get_mut(watch).lease = wanted.mark;
                        }
                        wanted.at += name.len() + 1;
                    }
                    None => wanted.begin(Pass::Drop, self.clients[client].watched.len()),
                },
                Pass::Drop if wanted.at > 0 => {
                    // The last watch replaces a removed watch, so iterate backwards.
                    wanted.at -= 1;
                    self.agenda.steps.take(1);
                    let watch = self.clients.watches.get(self.clients[client].watched[wanted.at]);
                    if watch.lease != wanted.mark {
                        self.unwatch(client, watch.tube, now);
                    }
                }
                Pass::Drop => wanted.begin(Pass::Watch, 0),
                Pass::Watch => match wanted.next() {
                    Some(name) => {
                        self.agenda.steps.take(2);
                        match self.watch(client, name, now) {
                            Ok(_) => wanted.at += name.len() + 1,
                            Err(OverLimit) => {
                                *wanted = WantedTubes { pass: Pass::Fail, ..WantedTubes::new(Box::default()) }
                            }
                        }
                    }
                    None => wanted.begin(Pass::Done, 0),
                },
                Pass::Fail if self.unwatch_all(client, now) == Progress::Done => return Err(OverLimit),
                Pass::Fail => return Ok(Progress::More),
                Pass::Done => return Ok(Progress::Done),
            }
            if self.agenda.steps.are_used_up() && wanted.pass != Pass::Done {
                return Ok(Progress::More);
            }
        }
    }

    /// Returns `true` in the usual case: the client already watches a short list of exactly these tubes in this order.
    fn watches_just(&self, client: ClientId, names: &[u8]) -> bool {
        let watched = &self.clients[client].watched;
        let mut names = names.split(|byte| *byte == b' ');
        let same = |watch| {
            names.next().is_some_and(|name| Some(self.clients.watches.get(watch).tube) == self.tubes.find(name))
        };
        watched.len() <= self.limits.few_watched && watched.iter().copied().all(same) && names.next().is_none()
    }

    /// Keeps the tube open even if it is unused and empty, and creates it if necessary. If [`MAX_KEPT`] tubes are kept
    /// already, does not keep this tube, and fails unless the tube is open for another reason.
    pub fn keep_tube(&mut self, client: ClientId, name: &[u8]) -> Result<(), OverLimit> {
        let number = self.open_tube(client, name)?;
        if self.tubes.kept < MAX_KEPT && !self.tubes.get(number).kept {
            self.tubes.get_mut(number).kept = true;
            self.tubes.kept += 1;
        }
        self.close_tube_if_idle(number);
        self.tubes.find(name).map(|_| ()).ok_or(OverLimit)
    }

    /// Does nothing if a client uses or watches the tube, or if any job of the tube is neither buried nor finished.
    pub fn drop_tube(&mut self, name: &[u8]) -> Dropped {
        let Some(number) = self.tubes.find(name) else { return Dropped::Unknown };
        let tube = self.tubes.get_mut(number);
        if tube.using + tube.watching > 0 || tube.counts.all() + tube.counts.scheduled - tube.counts.buried > 0 {
            return Dropped::InUse;
        }
        if std::mem::take(&mut tube.kept) {
            self.tubes.kept -= 1;
        }
        self.replace_settings(number, TubeSettings::default());
        self.close_tube_if_idle(number);
        Dropped::Done
    }

    pub fn used(&self, client: ClientId) -> &[u8] {
        &self.tubes.get(self.clients[client].used).name
    }

    pub fn set_tube(&mut self, client: ClientId, name: &[u8], settings: TubeSettings, now: Time) -> Result<(), NotSet> {
        if settings == TubeSettings::default() {
            if let Some(number) = self.tubes.find(name) {
                self.change_settings(number, settings, now);
            }
            return Ok(());
        }
        ensure!(!self.is_circle(&name.into(), &settings), NotSet::Circle);
        ensure!(self.has_memory(settings.cost()), NotSet::OverLimit);
        let number = self.open_tube(client, name).map_err(|_| NotSet::OverLimit)?;
        self.change_settings(number, settings, now);
        Ok(())
    }

    fn is_circle(&self, name: &Arc<[u8]>, settings: &TubeSettings) -> bool {
        let (mut next, mut length) = (settings.dead.as_ref(), self.tubes.rank(name));
        while let Some(dead) = next {
            length += 1;
            if dead == name || length > LONGEST_CHAIN {
                return true;
            }
            next = self.tubes.find(dead).and_then(|number| self.tubes.dead_of(number));
        }
        false
    }

    /// Sets, for each priority class, the number of jobs (not counting buried jobs) at which new jobs are refused.
    pub fn limit_tube(&mut self, name: &[u8], max_jobs: [Option<u32>; 3], now: Time) -> bool {
        let Some(number) = self.tubes.find(name) else { return false };
        let max_jobs = max_jobs.map(|max_jobs| max_jobs.unwrap_or(u32::MAX));
        let settings = self.settings_at(number).map_or_else(TubeSettings::default, |(_, settings)| settings.clone());
        self.change_settings(number, TubeSettings { max_jobs, ..settings }, now);
        true
    }

    pub fn limit_new_tube(
        &mut self,
        client: ClientId,
        name: &[u8],
        max_jobs: [Option<u32>; 3],
        now: Time,
    ) -> Result<(), OverLimit> {
        if max_jobs != [None; 3] {
            ensure!(self.has_memory(RULES_COST), OverLimit);
            self.open_tube(client, name)?;
        }
        self.limit_tube(name, max_jobs, now);
        Ok(())
    }

    fn change_settings(&mut self, number: u32, settings: TubeSettings, now: Time) {
        self.replace_settings(number, settings);
        self.serve(number, now);
        self.close_tube_if_idle(number);
    }

    /// Returns the total length in bytes of the names in the replaced settings, or `None` if there were no settings.
    pub(in crate::engine) fn replace_settings(&mut self, number: u32, settings: TubeSettings) -> Option<usize> {
        let before = self.settings_at(number).map(|(name, settings)| name.len() + settings.dead_length());
        self.tubes.set(number, settings);
        let tube = self.tubes.get(number);
        if tube.rules.is_some() {
            self.changed(Change::Settings { tube: number, before });
        } else if let Some(names) = before {
            let name = (*tube.name).into();
            self.changed(Change::SettingsEnded { tube: number, name, names });
        }
        self.update_closed(number);
        before
    }

    pub fn tube_settings(&self, name: &[u8]) -> Option<&TubeSettings> {
        self.settings_at(self.tubes.find(name)?).map(|(_, settings)| settings)
    }

    pub fn settings_at(&self, number: u32) -> Option<(&[u8], &TubeSettings)> {
        let tube = self.tubes.get(number);
        Some((&tube.name, &tube.rules.as_deref()?.settings))
    }

    pub fn tubes_with_settings(&self) -> impl Iterator<Item = (&[u8], &TubeSettings)> {
        self.tubes.iter().filter_map(|(number, _)| self.settings_at(number))
    }

    /// Returns the number of the tube, and the total length in bytes of the names in the replaced settings.
    pub fn restore_settings(&mut self, name: &[u8], settings: TubeSettings) -> (u32, Option<usize>) {
        let number = self.open_tube_unlimited(name);
        (number, self.replace_settings(number, settings))
    }

    /// Pauses a tube, or ends its pause if `length` is zero. Clients can get the jobs of a paused tube only by ID.
    pub fn pause(&mut self, name: &[u8], length: Span, now: Time) -> bool {
        let Some(number) = self.tubes.find(name) else { return false };
        let tube = self.tubes.get_mut(number);
        tube.pauses += 1;
        let before = tube.pause.is_some();
        if length == Span::ZERO {
            self.set_pause(number, None);
            self.changed(Change::PauseEnded { tube: number, name: name.into(), before });
        } else {
            self.set_pause(number, Some(Pause { length, until: now + length }));
            self.changed(Change::Pause { tube: number, before });
        }
        self.serve(number, now);
        true
    }

    pub fn pause_at(&self, number: u32) -> Option<(&[u8], Pause)> {
        let tube = self.tubes.get(number);
        Some((&tube.name, *tube.pause.as_deref()?))
    }

    pub fn pauses(&self) -> impl Iterator<Item = (&[u8], Pause)> {
        self.tubes.paused.iter().filter_map(|&number| self.pause_at(number))
    }

    pub fn paused_tubes(&self) -> usize {
        self.tubes.paused.len()
    }
}
