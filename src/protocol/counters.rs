//! The tables of commands: a macro that declares them, the IDs of all commands, and the counts of executed commands.

use super::{beanstalk, gearman, http, workq, Wire};
use crate::access::Need;

/// Declares an enum, and a table in which `$build` creates the row of each variant from the variant and its arguments.
macro_rules! table {
    (
        $(#[$about:meta])*
        enum $name:ident = $first_number:literal;
        $(#[$about_rows:meta])*
        static $rows:ident: [$row:ty] = $build:ident;
        $first:ident($($first_arguments:tt)*),
        $($variant:ident($($arguments:tt)*),)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name {
            $first = $first_number,
            $($variant,)*
        }

        $(#[$about_rows])*
        pub static $rows: [$row; [stringify!($first), $(stringify!($variant)),*].len()] =
            [$build($name::$first, $($first_arguments)*), $($build($name::$variant, $($arguments)*)),*];
    };
}

/// The index of a command in the concatenated tables of beanstalk, Gearman packets, Gearman text, Workq and HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandId(u8);

pub const FIRST_PACKET: usize = beanstalk::COMMANDS.len();
pub const FIRST_TEXT: usize = FIRST_PACKET + gearman::PACKETS.len();
pub const FIRST_WORKQ: usize = FIRST_TEXT + gearman::TEXT_COMMANDS.len();
pub const FIRST_HTTP: usize = FIRST_WORKQ + workq::COMMANDS.len();
const ALL: usize = FIRST_HTTP + http::ROUTES.len();
const _: () = assert!(ALL <= 256);

pub struct CommandInfo {
    pub wire: Wire,
    pub name: &'static str,
    /// The second word of a Workq command; otherwise empty.
    pub object: &'static str,
    pub need: Need,
    /// `false` for Gearman packets that only servers send.
    pub is_request: bool,
}

impl CommandId {
    /// `first` is the number of commands in the preceding tables.
    pub const fn new(first: usize, row: usize) -> CommandId {
        CommandId((first + row) as u8)
    }

    pub fn all() -> impl Iterator<Item = CommandId> {
        (0..ALL).map(|index| CommandId(index as u8))
    }

    #[expect(clippy::indexing_slicing, reason = "each range of IDs is as long as its table")]
    pub fn entry(self) -> CommandInfo {
        let (wire, name, object, need, is_request) = match usize::from(self.0) {
            index @ ..FIRST_PACKET => {
                let row = &beanstalk::COMMANDS[index];
                (Wire::Beanstalk, row.word.trim_end(), "", row.need, true)
            }
            index @ FIRST_PACKET..FIRST_TEXT => {
                let row = &gearman::PACKETS[index - FIRST_PACKET];
                (Wire::Gearman, row.name, "", row.need, row.is_request)
            }
            index @ FIRST_TEXT..FIRST_WORKQ => {
                let row = &gearman::TEXT_COMMANDS[index - FIRST_TEXT];
                (Wire::Gearman, row.words, "", row.need, true)
            }
            index @ FIRST_WORKQ..FIRST_HTTP => {
                let row = &workq::COMMANDS[index - FIRST_WORKQ];
                (Wire::Workq, row.word, row.object, row.need, true)
            }
            index => {
                let row = &http::ROUTES[index - FIRST_HTTP];
                (Wire::Http, row.word, "", row.need, true)
            }
        };
        CommandInfo { wire, name, object, need, is_request }
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
    pub fn count(&mut self, id: CommandId) {
        if let Some(count) = self.0.get_mut(usize::from(id.0)) {
            *count += 1;
        }
    }

    pub fn of(&self, id: CommandId) -> u64 {
        self.0.get(usize::from(id.0)).copied().unwrap_or_default()
    }
}
