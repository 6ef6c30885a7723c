//! What the log of the simulated server must contain.
//!
//! Owns the choice between two judges: the model of single records or, where jobs have tags and move between tubes,
//! which that model does not know, snapshots of the whole queue.

use beanpole::internals::engine::{Engine, Time};

use crate::chance::ids;
use crate::durable::{view, Model};
use crate::snapshots::{Snapshot, Snapshots};

/// What the log must contain; see the module's documentation.
#[derive(Default)]
pub struct Logged {
    pub model: Model,
    /// The queue after each step, if jobs may have tags.
    snapshots: Option<Snapshots>,
    /// Everything before this position is durable.
    safe: u64,
    /// The log had no space, and may lack what nothing depends on.
    short: bool,
}

impl Logged {
    /// Creates the log of an empty queue.
    pub fn new(extended: bool) -> Logged {
        Logged { snapshots: extended.then(Snapshots::default), ..Logged::default() }
    }

    /// Records what was done up to this position.
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

    /// Everything up to this position is durable.
    pub fn advance(&mut self, safe: u64) {
        self.safe = safe;
        match &mut self.snapshots {
            Some(snapshots) => snapshots.advance(safe),
            None => self.model.advance(safe),
        }
    }

    /// Checks that the queue recovered at `now` is one that may come back.
    pub fn compare(&self, engine: &Engine, now: Time) -> Result<(), String> {
        match &self.snapshots {
            Some(_) if self.short => Ok(()),
            Some(snapshots) => snapshots.compare(engine, self.safe, now),
            None => self.model.compare(engine, now),
        }
    }

    /// Continues with this recovered queue.
    pub fn begin_again(&mut self, engine: &Engine) {
        let mut snapshots = self.snapshots.take().map(|_| Snapshots::default());
        if let Some(snapshots) = &mut snapshots {
            snapshots.push(Snapshot::of(engine, 0));
        }
        *self = Logged { snapshots, model: Model::of(engine, ids(engine).into_iter()), ..Logged::default() };
    }
}
