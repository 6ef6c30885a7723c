//! The settings of tubes: one set for the clients of all protocols.
//!
//! Owns the verbs that set and remove them. A tube with settings stays even if nothing refers to it, and counts for
//! [`Limits::max_tubes`](crate::engine::Limits::max_tubes). Must not apply the settings: `submit` refuses and dates
//! jobs, `rules/failures.rs` retries or gives them up, and `rules/quotas.rs` closes tubes.
//!
//! Touches: tubes.

use crate::engine::data::{ClientId, Time, TubeSettings, RULES_COST};
use crate::engine::log::Change;
use crate::engine::{Engine, OverLimit};

const LONGEST_CHAIN: usize = 16;

/// Why the settings of a tube were refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotSet {
    /// The maximum number of tubes is reached, or there is no memory.
    OverLimit,
    /// The dead letters of the tube would return to it, or pass through too many tubes.
    Circle,
}

impl Engine {
    /// Replaces the settings of the tube with this name, which is created if it does not exist. Settings that are not
    /// given are removed.
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

    /// The names and settings of all tubes that have settings.
    pub fn tubes_with_settings(&self) -> impl Iterator<Item = (&[u8], &TubeSettings)> {
        self.tubes.iter().filter_map(|(number, _)| self.settings_at(number))
    }

    /// Restores the settings of a tube from the log. Returns the number of the tube, and the length of the names in the
    /// previous record.
    pub fn restore_settings(&mut self, name: &[u8], settings: TubeSettings) -> (u32, Option<usize>) {
        let number = self.open_tube_unlimited(name);
        let before = self.settings_at(number).map(|(name, settings)| name.len() + settings.dead_length());
        self.replace_settings(number, settings);
        (number, before)
    }
}
