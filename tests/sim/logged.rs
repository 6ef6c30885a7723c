//! Checks the contents of the simulated server's log.
//!
//! If jobs can have tags or can move between tubes, uses snapshots of the whole queue. Otherwise, uses the model of
//! single records, which does not support tags or moves.

use beanpole::internals::engine::{Engine, Time};

use crate::chance::ids;
use crate::durable::{view, Model};
use crate::snapshots::{Snapshot, Snapshots};

#[derive(Default)]
pub struct Logged {
    pub model: Model,
    /// The state of the queue after each step, if jobs can have tags.
    snapshots: Option<Snapshots>,
    /// The log position up to which all records are durable.
    safe: u64,
    /// `true` if the log may have omitted optional records, because it has run out of space or the disk has failed.
    short: bool,
}

impl Logged {
    pub fn new(extended: bool) -> Logged {
        Logged { snapshots: extended.then(Snapshots::default), ..Logged::default() }
    }

    /// Records the effects of operations whose log records end at `position`.
    pub fn observe(&mut self, engine: &Engine, position: u64, short: bool) {
        self.short |= short;
        if let Some(snapshots) = &mut self.snapshots {
            return snapshots.push(Snapshot::of(engine, position));
        }
        let known = self.model.ids();
        let fresh = ids(engine).into_iter().filter(|id| !known.contains(id) && view(engine, *id).is_some());
        for id in fresh.map(Some).collect::<Vec<_>>().into_iter().chain([None]) {
            self.model.observe(engine, id, position, short);
        }
    }

    pub fn advance(&mut self, safe: u64) {
        self.safe = safe;
        match &mut self.snapshots {
            Some(snapshots) => snapshots.advance(safe),
            None => self.model.advance(safe),
        }
    }

    /// Checks that the queue, recovered at the time `now`, is in a permitted state.
    // Checks promises P12 and P13 and P39 of beanpole-promises(7).
    pub fn compare(&self, engine: &Engine, now: Time) -> Result<(), String> {
        match &self.snapshots {
            Some(_) if self.short => Ok(()),
            Some(snapshots) => snapshots.compare(engine, self.safe, now),
            None => self.model.compare(engine, now),
        }
    }

    pub fn begin_again(&mut self, engine: &Engine) {
        let mut snapshots = self.snapshots.take().map(|_| Snapshots::default());
        if let Some(snapshots) = &mut snapshots {
            snapshots.push(Snapshot::of(engine, 0));
        }
        *self = Logged { snapshots, model: Model::of(engine, ids(engine).into_iter()), ..Logged::default() };
    }
}
