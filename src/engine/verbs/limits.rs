//! How many jobs tubes may have: one limit for the producers of all protocols.
//!
//! Owns its beginning and its end. A tube with a limit stays though nothing refers to it; it is one of those that
//! [`Limits::max_tubes`](super::Limits::max_tubes) bounds. Must not refuse jobs: that is `submit`'s.
//!
//! Touches: tubes.

use crate::engine::data::handle::ClientId;
use crate::engine::log::change::Change;
use crate::engine::{Engine, OverLimit};

/// No limit for any priority class.
const NONE: [u32; 3] = [u32::MAX; 3];

impl Engine {
    /// From now on no more jobs of a priority class are submitted to the tube with this name when it has so many of
    /// any; none: no limit. False if there is no such tube.
    pub fn limit_tube(&mut self, name: &[u8], most: [Option<u32>; 3]) -> bool {
        let Some(number) = self.tubes.find(name) else { return false };
        let limits = most.map(|most| most.unwrap_or(u32::MAX));
        if limits == NONE {
            self.end_limit(number);
            self.close_tube_if_idle(number);
        } else {
            self.set_limit(number, limits);
        }
        true
    }

    /// The same for a tube that is created if need be.
    pub fn limit_new_tube(&mut self, client: ClientId, name: &[u8], most: [Option<u32>; 3]) -> Result<(), OverLimit> {
        if most != [None; 3] {
            self.open_tube(client, name)?;
        }
        self.limit_tube(name, most);
        Ok(())
    }

    /// The limits by priority class of the tube with this name, [`u32::MAX`] without one; `None` without such a tube.
    pub fn tube_limit(&self, name: &[u8]) -> Option<[u32; 3]> {
        Some(self.limit_at(self.tubes.find(name)?).map_or(NONE, |(_, most)| most))
    }

    fn set_limit(&mut self, number: u32, limits: [u32; 3]) {
        let before = self.tubes.get_mut(number).most.replace(Box::new(limits)).is_some();
        self.changed(Change::Limit { tube: number, before });
    }

    /// The tube has no limit any more, if it had one.
    pub(in crate::engine) fn end_limit(&mut self, number: u32) {
        let tube = self.tubes.get_mut(number);
        if tube.most.take().is_some() {
            let name = (*tube.name).into();
            self.changed(Change::LimitEnded { tube: number, name });
        }
    }

    /// The name of the tube with this number, and its limits by priority class, if it has one.
    pub fn limit_at(&self, number: u32) -> Option<(&[u8], [u32; 3])> {
        let tube = self.tubes.get(number);
        Some((&tube.name, *tube.most.as_deref()?))
    }

    /// The names of all tubes that have a limit.
    pub fn limited_tubes(&self) -> impl Iterator<Item = &[u8]> {
        self.tubes.iter().filter(|(_, tube)| tube.most.is_some()).map(|(_, tube)| &*tube.name)
    }

    /// A log says which limit a tube has; none if there is none for any priority class. Tells the tube's number, and
    /// whether it had one before.
    pub fn restore_limit(&mut self, name: &[u8], limits: [u32; 3]) -> (u32, bool) {
        let number = self.open_tube_unlimited(name);
        let before = self.tubes.get(number).most.is_some();
        if limits == NONE {
            self.end_limit(number);
        } else {
            self.set_limit(number, limits);
        }
        (number, before)
    }
}
