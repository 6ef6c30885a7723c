//! What the engine has to say: to other clients, and to the log.
//!
//! Owns both queues, and the room that the log has granted. Must not know who reads them.

use std::collections::VecDeque;

use super::change::Change;
use super::log_room::LogRoom;
use crate::engine::data::event::Event;

#[derive(Debug)]
pub struct News {
    pub(in crate::engine) events: VecDeque<Event>,
    /// None if nobody keeps a log.
    pub(in crate::engine) changes: Option<VecDeque<Change>>,
    pub(in crate::engine) room: LogRoom,
    /// Bytes of the log that a verb lacked and could not have asked for before.
    pub(in crate::engine) lacking: u64,
}

impl News {
    pub const fn new() -> News {
        News { events: VecDeque::new(), changes: None, room: LogRoom::ENDLESS, lacking: 0 }
    }
}
