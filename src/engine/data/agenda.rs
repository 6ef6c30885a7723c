//! Pending work and its deadlines.
//!
//! Owns the deadlines of everything timed, the work that verbs have deferred to other turns, and the steps of this
//! turn.

use std::collections::{BTreeMap, VecDeque};

use super::{Deadlines, Deferred, OpenOperation, Steps};

#[derive(Debug)]
pub struct Agenda {
    pub(in crate::engine) deadlines: Deadlines,
    pub(in crate::engine) deferred: VecDeque<Deferred>,
    pub(in crate::engine) steps: Steps,
    /// Long commands in progress, by their numbers in the log.
    pub(in crate::engine) open: BTreeMap<u32, OpenOperation>,
}

impl Agenda {
    pub fn new() -> Agenda {
        Agenda {
            deadlines: Deadlines::default(),
            deferred: VecDeque::new(),
            steps: Steps::ENDLESS,
            open: BTreeMap::new(),
        }
    }
}
