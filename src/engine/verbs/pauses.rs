//! Pauses of tubes.
//!
//! Owns their beginning and their end, by command or by time. Must not know which clients wait for a job: `matching`
//! serves them.
//!
//! Touches: tubes.

use crate::engine::data::{Pause, Span, Time};
use crate::engine::log::Change;
use crate::engine::Engine;

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

    /// The names of all paused tubes, and their pauses.
    pub fn pauses(&self) -> impl Iterator<Item = (&[u8], Pause)> {
        let tubes = self.tubes.paused.iter().map(|&number| self.tubes.get(number));
        tubes.filter_map(|tube| Some((&*tube.name, *tube.pause.as_deref()?)))
    }

    /// The number of paused tubes.
    pub fn paused_tubes(&self) -> usize {
        self.tubes.paused.len()
    }
}
