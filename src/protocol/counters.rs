//! Counters of the commands of each protocol.
//!
//! Owns the counts, and the single order of all the protocols' tables. Must not know what a command does.

use super::{beanstalk, gearman, http, workq, Wire};
use crate::access::Need;

/// A command, by its index in the tables: beanstalk's table, Gearman's packets and lines of text, Workq's table, HTTP's
/// paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandPlace(u8);

const PACKETS: usize = beanstalk::COMMANDS.len();
const TEXTS: usize = PACKETS + gearman::PACKETS.len();
const WORKQ: usize = TEXTS + gearman::TEXT_COMMANDS.len();
const HTTP: usize = WORKQ + workq::COMMANDS.len();
const ALL: usize = HTTP + http::ROUTES.len();

const _: () = assert!(ALL <= 256);

impl CommandPlace {
    pub const fn beanstalk(name: beanstalk::CommandName) -> CommandPlace {
        CommandPlace(name as u8)
    }

    /// A packet, by its index in the table.
    pub const fn packet(place: usize) -> CommandPlace {
        CommandPlace((PACKETS + place) as u8)
    }

    /// A line of Gearman's text protocol, by its index in the table.
    pub const fn text(place: usize) -> CommandPlace {
        CommandPlace((TEXTS + place) as u8)
    }

    pub const fn workq(name: workq::CommandName) -> CommandPlace {
        CommandPlace((WORKQ + name as usize) as u8)
    }

    /// A path, by its index in the table.
    pub const fn http(place: usize) -> CommandPlace {
        CommandPlace((HTTP + place) as u8)
    }

    /// Returns all places, in the order of the tables.
    pub fn all() -> impl Iterator<Item = CommandPlace> {
        (0..ALL).map(|place| CommandPlace(place as u8))
    }

    /// Returns the command's protocol, its name, and the second word of the name, if it has one in Workq.
    #[expect(clippy::indexing_slicing, reason = "each range of places is as long as its table")]
    pub fn name(self) -> (Wire, &'static str, &'static str) {
        match usize::from(self.0) {
            place @ ..PACKETS => (Wire::Beanstalk, beanstalk::COMMANDS[place].word.trim_end(), ""),
            place @ PACKETS..TEXTS => (Wire::Gearman, gearman::PACKETS[place - PACKETS].name, ""),
            place @ TEXTS..WORKQ => (Wire::Gearman, gearman::TEXT_COMMANDS[place - TEXTS].words, ""),
            place @ WORKQ..HTTP => {
                let row = &workq::COMMANDS[place - WORKQ];
                (Wire::Workq, row.word, row.object)
            }
            place => (Wire::Http, http::ROUTES[place - HTTP].word, ""),
        }
    }

    #[expect(clippy::indexing_slicing, reason = "each range of places is as long as its table")]
    pub fn need(self) -> Need {
        match usize::from(self.0) {
            place @ ..PACKETS => beanstalk::COMMANDS[place].need,
            place @ PACKETS..TEXTS => gearman::PACKETS[place - PACKETS].need,
            place @ TEXTS..WORKQ => gearman::TEXT_COMMANDS[place - TEXTS].need,
            place @ WORKQ..HTTP => workq::COMMANDS[place - WORKQ].need,
            place => http::ROUTES[place - HTTP].need,
        }
    }

    /// Returns `true` if clients can send it: some packets are only sent by servers.
    pub fn is_taken(self) -> bool {
        let packet = usize::from(self.0).checked_sub(PACKETS).and_then(|place| gearman::PACKETS.get(place));
        packet.is_none_or(|packet| packet.parse.is_some())
    }
}

#[derive(Clone, Debug)]
pub struct CommandCounters([u64; ALL]);

impl Default for CommandCounters {
    fn default() -> CommandCounters {
        CommandCounters([0; ALL])
    }
}

impl CommandCounters {
    pub fn count(&mut self, place: CommandPlace) {
        if let Some(count) = self.0.get_mut(usize::from(place.0)) {
            *count += 1;
        }
    }

    pub fn of(&self, place: CommandPlace) -> u64 {
        self.0.get(usize::from(place.0)).copied().unwrap_or_default()
    }
}
