//! The settings of tubes, one set for the clients of all protocols, and their pauses.
//!
//! Owns the verbs that set and remove them. A tube with settings stays even if nothing refers to it, and counts for
//! [`Limits::max_tubes`](crate::engine::Limits::max_tubes). Must not apply the settings: `submit` refuses and dates
//! jobs, `rules/failures.rs` retries or gives them up, and `rules/quotas.rs` closes tubes.
//!
//! Touches: tubes.

use crate::engine::data::{ClientId, Pause, Span, Time, TubeSettings, RULES_COST};
use crate::engine::log::Change;
use crate::engine::{Engine, OverLimit};

const LONGEST_CHAIN: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotSet {
    /// The maximum number of tubes is reached, or there is no memory.
    OverLimit,
    /// The dead letters of the tube would return to it, or pass through too many tubes.
    Circle,
}

impl Engine {
    /// Replaces all settings of the tube with this name, which is created if it does not exist.
    pub fn set_tube(&mut self, client: ClientId, name: &[u8], settings: TubeSettings, now: Time) -> Result<(), NotSet> {
        if settings == TubeSettings::default() {
            if let Some(number) = self.tubes.find(name) {
                self.change_settings(number, settings, now);
            }
            return Ok(());
        }
        if self.is_circle(name, &settings) {
            return Err(NotSet::Circle);
        }
        if self.lacks_memory(RULES_COST + settings.dead_length() as u64) {
            return Err(NotSet::OverLimit);
        }
        let number = self.open_tube(client, name).map_err(|_| NotSet::OverLimit)?;
        self.change_settings(number, settings, now);
        Ok(())
    }

    /// Returns `true` if dead letters of the tube with this name would return to it.
    fn is_circle(&self, name: &[u8], settings: &TubeSettings) -> bool {
        let mut next = settings.dead.clone();
        for _ in 0..LONGEST_CHAIN {
            let Some(dead) = next else { return false };
            if *dead == *name {
                return true;
            }
            next = self.tube_settings(&dead).and_then(|settings| settings.dead.clone());
        }
        next.is_some()
    }

    /// Limits the jobs of the tube with this name: a job of a priority class is refused while the tube has as many jobs
    /// of any class; `None`: unlimited. Returns `false` if there is no such tube.
    pub fn limit_tube(&mut self, name: &[u8], most: [Option<u32>; 3], now: Time) -> bool {
        let Some(number) = self.tubes.find(name) else { return false };
        let most = most.map(|most| most.unwrap_or(u32::MAX));
        let settings = self.settings_at(number).map_or_else(TubeSettings::default, |(_, settings)| settings.clone());
        self.change_settings(number, TubeSettings { most, ..settings }, now);
        true
    }

    /// Like [`Engine::limit_tube`], for a tube that is created if it does not exist.
    pub fn limit_new_tube(
        &mut self,
        client: ClientId,
        name: &[u8],
        most: [Option<u32>; 3],
        now: Time,
    ) -> Result<(), OverLimit> {
        if most != [None; 3] {
            if self.lacks_memory(RULES_COST) {
                return Err(OverLimit);
            }
            self.open_tube(client, name)?;
        }
        self.limit_tube(name, most, now);
        Ok(())
    }

    /// Replaces the settings of a tube, which is closed if nothing refers to it.
    fn change_settings(&mut self, number: u32, settings: TubeSettings, now: Time) {
        self.replace_settings(number, settings);
        self.serve(number, now);
        self.close_tube_if_idle(number);
    }

    fn replace_settings(&mut self, number: u32, settings: TubeSettings) {
        let before = self.settings_at(number).map(|(name, settings)| name.len() + settings.dead_length());
        self.tubes.set(number, settings);
        let tube = self.tubes.get(number);
        if tube.rules.is_some() {
            self.changed(Change::Settings { tube: number, before });
        } else if let Some(names) = before {
            let name = (*tube.name).into();
            self.changed(Change::SettingsEnded { tube: number, name, names });
        }
        self.reclose(number);
        self.retime_tube(number);
    }

    /// Removes the settings of the tube, if it has some.
    pub(in crate::engine) fn end_settings(&mut self, number: u32) {
        self.replace_settings(number, TubeSettings::default());
    }

    /// Returns the settings of the tube with this name, if it has some.
    pub fn tube_settings(&self, name: &[u8]) -> Option<&TubeSettings> {
        self.settings_at(self.tubes.find(name)?).map(|(_, settings)| settings)
    }

    /// Returns the name of the tube with this number, and its settings, if it has some.
    pub fn settings_at(&self, number: u32) -> Option<(&[u8], &TubeSettings)> {
        let tube = self.tubes.get(number);
        Some((&tube.name, &tube.rules.as_deref()?.settings))
    }

    /// Returns the names and settings of all tubes that have settings.
    pub fn tubes_with_settings(&self) -> impl Iterator<Item = (&[u8], &TubeSettings)> {
        self.tubes.iter().filter_map(|(number, _)| self.settings_at(number))
    }

    /// Restores the settings of a tube. Returns its number, and the length of the names in its previous record.
    pub fn restore_settings(&mut self, name: &[u8], settings: TubeSettings) -> (u32, Option<usize>) {
        let number = self.open_tube_unlimited(name);
        let before = self.settings_at(number).map(|(name, settings)| name.len() + settings.dead_length());
        self.replace_settings(number, settings);
        (number, before)
    }
}

impl Engine {
    /// Pauses the tube with this name for `length`: clients that request any job get none of this tube. A zero length
    /// ends the current pause. Returns `false` if there is no such tube.
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

    /// Ends the pause of a tube, whose time is over.
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
        self.reclose(number);
        self.retime_tube(number);
    }

    /// Returns the name and the pause of the tube with this number, if it is paused.
    pub fn pause_at(&self, number: u32) -> Option<(&[u8], Pause)> {
        let tube = self.tubes.get(number);
        Some((&tube.name, *tube.pause.as_deref()?))
    }

    /// Returns the names of all paused tubes, and their pauses.
    pub fn pauses(&self) -> impl Iterator<Item = (&[u8], Pause)> {
        let tubes = self.tubes.paused.iter().map(|&number| self.tubes.get(number));
        tubes.filter_map(|tube| Some((&*tube.name, *tube.pause.as_deref()?)))
    }

    pub fn paused_tubes(&self) -> usize {
        self.tubes.paused.len()
    }
}
