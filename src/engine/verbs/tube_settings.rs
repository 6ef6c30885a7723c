//! Tube settings, which all protocols share, and tube pauses.
//!
//! A tube with settings stays open even if it is unused and empty. Must not apply the settings: `submit`,
//! `rules/failures.rs` and `rules/concurrency.rs` do.
//!
//! Touches: tubes.

use std::sync::Arc;

use crate::engine::data::{ClientId, Pause, Span, Time, TubeSettings, LONGEST_CHAIN, RULES_COST};
use crate::engine::log::Change;
use crate::engine::{Engine, OverLimit};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotSet {
    OverLimit,
    /// The dead-letter tubes would form a cycle or a chain that is too long.
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
    pub fn set_tube(&mut self, client: ClientId, name: &[u8], settings: TubeSettings, now: Time) -> Result<(), NotSet> {
        if settings == TubeSettings::default() {
            if let Some(number) = self.tubes.find(name) {
                self.change_settings(number, settings, now);
            }
            return Ok(());
        }
        if self.is_circle(&name.into(), &settings) {
            return Err(NotSet::Circle);
        }
        if !self.has_memory(settings.cost()) {
            return Err(NotSet::OverLimit);
        }
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

    /// A job is refused if the tube contains as many jobs, of any priority, as the limit of its priority class.
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
            if !self.has_memory(RULES_COST) {
                return Err(OverLimit);
            }
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

    /// Returns the length in bytes of the names in the old settings, if any.
    fn replace_settings(&mut self, number: u32, settings: TubeSettings) -> Option<usize> {
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

    pub(in crate::engine) fn end_settings(&mut self, number: u32) {
        self.replace_settings(number, TubeSettings::default());
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

    /// Returns the number of the tube, and the length in bytes of the names in the replaced settings.
    pub fn restore_settings(&mut self, name: &[u8], settings: TubeSettings) -> (u32, Option<usize>) {
        let number = self.open_tube_unlimited(name);
        (number, self.replace_settings(number, settings))
    }

    /// Ends the pause if `length` is zero. While a tube is paused, clients can get its jobs only by ID.
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

    pub(in crate::engine) fn end_pause(&mut self, number: u32) {
        self.set_pause(number, None);
        let name = self.tubes.get(number).name.len();
        self.changed(Change::PauseOver { tube: number, name });
    }

    pub(in crate::engine) fn set_pause(&mut self, number: u32, pause: Option<Pause>) {
        self.tubes.get_mut(number).pause = pause.map(Box::new);
        match pause {
            Some(_) => self.tubes.paused.insert(number),
            None => self.tubes.paused.remove(&number),
        };
        self.update_closed(number);
    }

    pub fn pause_at(&self, number: u32) -> Option<(&[u8], Pause)> {
        let tube = self.tubes.get(number);
        Some((&tube.name, *tube.pause.as_deref()?))
    }

    pub fn pauses(&self) -> impl Iterator<Item = (&[u8], Pause)> {
        let tubes = self.tubes.paused.iter().map(|&number| self.tubes.get(number));
        tubes.filter_map(|tube| Some((&*tube.name, *tube.pause.as_deref()?)))
    }

    pub fn paused_tubes(&self) -> usize {
        self.tubes.paused.len()
    }
}
