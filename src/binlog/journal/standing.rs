//! What the log must remember beside jobs and pauses: keys that outlive their jobs, and limits of tubes; and jobs that went to
//! other tubes.
//!
//! Owns where each is written down. Must not touch files.

use super::Journal;
use crate::binlog::record::{key_size, limit_size, Record, CHANGE};
use crate::engine::{Engine, State};

impl Journal {
    pub(super) fn move_key_in(&mut self, number: u32, size: u64) {
        let segment = self.segments.back_mut().expect("a segment");
        segment.live += size;
        self.keys.move_in(number, segment.number as u32, &mut segment.keys);
    }

    pub(super) fn move_key_out(&mut self, number: u32, size: u64) {
        let place = self.place_of(self.keys.of(number));
        self.segments[place].live -= size;
        self.keys.move_out(number, &mut self.segments[place].keys);
    }

    /// Writes down a key that outlives its job.
    pub(super) fn write_key(&mut self, number: u32, engine: &Engine) {
        let ended = engine.ended_key(number);
        let key = ended.key.text();
        self.make_room(key_size(ended.names()));
        self.push(&Record::Key { id: ended.id.0, until: ended.until, tube: &ended.tube, key: &key });
        self.live += key_size(ended.names());
        self.move_key_in(number, key_size(ended.names()));
    }

    /// A key that outlives its job was found in the last segment. `before`: the number of the one of the same names that was
    /// known, and their length.
    pub fn found_key(&mut self, number: u32, names: usize, before: Option<(u32, usize)>) {
        if let Some((number, names)) = before {
            self.lost_key(number, names);
        }
        self.live += key_size(names);
        self.move_key_in(number, key_size(names));
    }

    /// A key with names of this length does not outlive its job any longer.
    pub fn lost_key(&mut self, number: u32, names: usize) {
        self.move_key_out(number, key_size(names));
        self.live -= key_size(names);
    }

    /// Writes down the limit of a tube, which is live nowhere.
    pub(super) fn write_limit(&mut self, tube: u32, engine: &Engine) {
        let Some((name, most)) = engine.limit_at(tube) else { return };
        self.make_room(limit_size(name.len()));
        self.push(&Record::Limit { tube: name, most });
        self.found_limit(tube, name.len(), false);
    }

    /// The limit of a tube was found in the last segment. `before`: it had one already.
    pub fn found_limit(&mut self, tube: u32, name: usize, before: bool) {
        if before {
            self.lost_limit(tube, name);
        }
        self.live += limit_size(name);
        let segment = self.segments.back_mut().expect("a segment");
        segment.live += limit_size(name);
        self.limits.move_in(tube, segment.number as u32, &mut segment.limits);
    }

    /// A tube, whose name is so long, has no limit any more.
    pub fn lost_limit(&mut self, tube: u32, name: usize) {
        self.live -= limit_size(name);
        let place = self.place_of(self.limits.of(tube));
        self.segments[place].live -= limit_size(name);
        self.limits.move_out(tube, &mut self.segments[place].limits);
    }

    /// A job went to another tube; the name of the one before was so long.
    pub(super) fn record_move(&mut self, slot: u32, before: usize, engine: &Engine) {
        let job = engine.job_at(slot);
        let tube = engine.tube_of(&job);
        self.make_room((CHANGE + tube.len()) as u64);
        let state = match job.state() {
            State::Delayed | State::Buried => job.state(),
            // Whoever has it loses it by a restart.
            State::Ready | State::Reserved | State::Finished => State::Ready,
        };
        let (id, pri, delay, due) = (job.id().0, job.priority(), job.delay(), job.due());
        self.push(&Record::Move { id, pri, delay, due, state, tube });
        self.moved(slot, before, tube.len());
    }

    /// The job in `slot`, whose tube's name had one length, takes that of another from now on.
    pub fn moved(&mut self, slot: u32, before: usize, after: usize) {
        let place = self.segment_of(slot);
        for live in [&mut self.live, &mut self.segments[place].live] {
            *live = *live + after as u64 - before as u64;
        }
    }
}
