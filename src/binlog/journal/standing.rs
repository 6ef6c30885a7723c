//! What segments are kept for: jobs, keys that outlive their jobs, and the limits and pauses of tubes.
//!
//! Owns where each of these is written down, and what it takes to write it again. Must not touch files.

use super::{size_of, Journal};
use crate::binlog::record::{key_size, limit_size, pause_size, Record, CHANGE};
use crate::engine::{Engine, State};

/// What is written down as it is, and stands in one segment at a time.
#[derive(Clone, Copy, Debug)]
pub enum Live {
    /// A job, by its slot.
    Job,
    /// A key that outlives its job, by its number.
    Key,
    /// The limit of a tube, by the number of the tube.
    Limit,
    /// A pause, by the number of its tube.
    Pause,
}

impl Live {
    /// In the order in which compaction writes them again.
    pub(super) const ALL: [Live; 4] = [Live::Job, Live::Key, Live::Limit, Live::Pause];

    /// Bytes that it takes when it is written again, at most.
    pub(super) fn size(self, number: u32, engine: &Engine) -> u64 {
        match self {
            Live::Job => size_of(number, engine),
            Live::Key => key_size(engine.ended_key(number).names()),
            Live::Limit => limit_size(engine.limit_at(number).map_or(0, |(name, _)| name.len())),
            Live::Pause => pause_size(engine.pause_at(number).map_or(0, |(name, _)| name.len())),
        }
    }
}

impl Journal {
    #[inline]
    pub(super) fn move_in(&mut self, live: Live, number: u32, size: u64) {
        let segment = self.segments.back_mut().expect("a segment");
        segment.live += size;
        self.places[live as usize].move_in(number, segment.number as u32, &mut segment.lists[live as usize]);
    }

    #[inline]
    pub(super) fn move_out(&mut self, live: Live, number: u32, size: u64) {
        let place = self.place_of(live, number);
        self.segments[place].live -= size;
        self.places[live as usize].move_out(number, &mut self.segments[place].lists[live as usize]);
    }

    /// The place of the segment that it is live in.
    fn place_of(&self, live: Live, number: u32) -> usize {
        self.place_from(self.places[live as usize].of(number))
    }

    /// It stands in the last segment from now on, and in none before.
    #[inline]
    pub fn found(&mut self, live: Live, number: u32, size: u64) {
        self.live += size;
        self.move_in(live, number, size);
    }

    /// It is gone.
    #[inline]
    pub fn lost(&mut self, live: Live, number: u32, size: u64) {
        self.move_out(live, number, size);
        self.live -= size;
    }

    /// It was there before or not, and is there from now on or not, by the last segment.
    pub fn changed(&mut self, live: Live, number: u32, size: u64, (before, after): (bool, bool)) {
        if before {
            self.lost(live, number, size);
        }
        if after {
            self.found(live, number, size);
        }
    }

    /// Writes it down as it is, where it is live from now on.
    pub(super) fn write(&mut self, live: Live, number: u32, size: u64, engine: &Engine) {
        self.make_room(size);
        match live {
            Live::Job => self.append_job(number, engine, Record::Snapshot),
            Live::Key => {
                let ended = engine.ended_key(number);
                let key = ended.key.text();
                self.push(&Record::Key { id: ended.id.0, until: ended.until, tube: &ended.tube, key: &key });
            }
            Live::Limit => {
                let (tube, most) = engine.limit_at(number).expect("a limit that has not ended");
                self.push(&Record::Limit { tube, most });
            }
            Live::Pause => {
                let (name, pause) = engine.pause_at(number).expect("a pause in progress");
                self.push(&Record::pause(name, Some(pause)));
            }
        }
        self.move_in(live, number, size);
    }

    /// Writes down what is new, or has taken the place of what was there `before` with the same names.
    pub(super) fn write_new(&mut self, live: Live, number: u32, before: bool, engine: &Engine) {
        let size = live.size(number, engine);
        if before {
            self.lost(live, number, size);
        }
        self.live += size;
        self.write(live, number, size, engine);
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
        self.resize(slot, before, tube.len());
    }

    /// Of what the job in `slot` takes, the name of its tube say, a part has another length from now on.
    pub fn resize(&mut self, slot: u32, before: usize, after: usize) {
        let place = self.place_of(Live::Job, slot);
        for live in [&mut self.live, &mut self.segments[place].live] {
            *live = *live + after as u64 - before as u64;
        }
    }
}
