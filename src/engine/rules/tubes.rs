//! Opens tubes, closes tubes that nothing needs, and sets and ends pauses.
//! Touches: agenda, clients, limits, tubes.

use crate::engine::data::*;
use crate::engine::log::Change;
use crate::engine::{Engine, OverLimit, TUBES_PART, TUBE_COST};

impl Engine {
    /// Refuses a new tube at a limit, or if `client` has opened more tubes than remain, so that no client can take all.
    pub(in crate::engine) fn open_tube(&mut self, client: ClientId, name: &[u8]) -> Result<u32, OverLimit> {
        let cost = TUBE_COST + name.len() as u64;
        let many = self.tubes.table.memory + cost > self.limits.max_memory / TUBES_PART;
        let left = self.limits.max_tubes.saturating_sub(self.tubes.len());
        let opened = self.clients[client].opened;
        let is_full = left == 0 || opened as usize > left || many || !self.has_memory(cost);
        ensure!(!is_full || self.tubes.find(name).is_some(), OverLimit);
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
                // Replaying the log must not apply the pause to a later tube with this name.
                self.changed(Change::PauseEnded { tube: number, name: (*name).into(), before: true });
            }
            self.agenda.deadlines.set(TimerKey::Tube(number), Time::NEVER);
        }
    }

    pub(in crate::engine) fn set_pause(&mut self, number: u32, pause: Option<Pause>) {
        self.tubes.get_mut(number).pause = pause.map(Box::new);
        match pause {
            Some(_) => self.tubes.paused.insert(number),
            None => self.tubes.paused.remove(&number),
        };
        self.update_closed(number);
    }

    pub(in crate::engine) fn end_pause(&mut self, number: u32) {
        self.set_pause(number, None);
        let name = self.tubes.get(number).name.len();
        self.changed(Change::PauseOver { tube: number, name });
    }
}
