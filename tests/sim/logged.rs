//! What the log must keep of the simulated server.
//!
//! Owns the choice of who says so: the model of single records or, where jobs have tags and go to other tubes, of which
//! that model knows nothing, snapshots of the whole queue.

use beanpole::internals::engine::{Engine, Time};

use crate::chance::ids;
use crate::durable::{view, Model};
use crate::snapshots::{Snapshot, Snapshots};

/// See the module's page.
#[derive(Default)]
pub struct Logged {
    pub model: Model,
    /// The queue after each step, if jobs may have tags.
    snapshots: Option<Snapshots>,
    /// Up to this position all is safe.
    safe: u64,
    /// The log had no room, and may have left out what nothing depends on.
    short: bool,
}

impl Logged {
    /// Of an empty queue.
    pub fn new(extended: bool) -> Logged {
        Logged { snapshots: extended.then(Snapshots::default), ..Logged::default() }
    }

    /// What was done is recorded up to this position.
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

    /// All up to this position is safe.
    pub fn advance(&mut self, safe: u64) {
        self.safe = safe;
        match &mut self.snapshots {
            Some(snapshots) => snapshots.advance(safe),
            None => self.model.advance(safe),
        }
    }

    /// Whether the queue that came back at `now` is one that may.
    pub fn compare(&self, engine: &Engine, now: Time) -> Result<(), String> {
        match &self.snapshots {
            Some(_) if self.short => Ok(()),
            Some(snapshots) => snapshots.compare(engine, self.safe, now),
            None => self.model.compare(engine, now),
        }
    }

    /// From now on this queue counts, which came back.
    pub fn begin_again(&mut self, engine: &Engine) {
        let mut snapshots = self.snapshots.take().map(|_| Snapshots::default());
        if let Some(snapshots) = &mut snapshots {
            snapshots.push(Snapshot::of(engine, 0));
        }
        *self = Logged { snapshots, model: Model::of(engine, ids(engine).into_iter()), ..Logged::default() };
    }
}
