//! The engine's output: events for other clients, and changes for the log.
//!
//! Owns both queues, and the granted log space. Must not know what reads them.

use std::collections::VecDeque;

use super::change::Change;
use super::log_room::LogRoom;
use crate::engine::data::Event;

#[derive(Debug)]
pub struct News {
    pub(in crate::engine) events: VecDeque<Event>,
    /// `None` if the queue has no log.
    pub(in crate::engine) changes: Option<VecDeque<Change>>,
    pub(in crate::engine) room: LogRoom,
    /// Bytes of log that a verb lacked and could not have requested before.
    pub(in crate::engine) lacking: u64,
}

impl News {
    pub const fn new() -> News {
        News { events: VecDeque::new(), changes: None, room: LogRoom::ENDLESS, lacking: 0 }
    }
}
