//! The tables of commands: a macro that declares them, the numbering of all commands, and the counters of executed
//! commands.

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

/// IDs count the rows of all tables: beanstalk, Gearman packets, Gearman text commands, Workq, HTTP routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandId(u8);

const PACKETS: usize = beanstalk::COMMANDS.len();
const TEXTS: usize = PACKETS + gearman::PACKETS.len();
const WORKQ: usize = TEXTS + gearman::TEXT_COMMANDS.len();
const HTTP: usize = WORKQ + workq::COMMANDS.len();
const ALL: usize = HTTP + http::ROUTES.len();

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
    pub const fn beanstalk(name: beanstalk::CommandName) -> CommandId {
        CommandId(name as u8)
    }

    pub const fn packet(index: usize) -> CommandId {
        CommandId((PACKETS + index) as u8)
    }

    pub const fn text(index: usize) -> CommandId {
        CommandId((TEXTS + index) as u8)
    }

    pub const fn workq(name: workq::CommandName) -> CommandId {
        CommandId((WORKQ + name as usize) as u8)
    }

    pub const fn http(index: usize) -> CommandId {
        CommandId((HTTP + index) as u8)
    }

    pub fn all() -> impl Iterator<Item = CommandId> {
        (0..ALL).map(|index| CommandId(index as u8))
    }

    #[expect(clippy::indexing_slicing, reason = "each range of IDs is as long as its table")]
    pub fn entry(self) -> CommandInfo {
        let (wire, name, object, need, is_request) = match usize::from(self.0) {
            index @ ..PACKETS => {
                let row = &beanstalk::COMMANDS[index];
                (Wire::Beanstalk, row.word.trim_end(), "", row.need, true)
            }
            index @ PACKETS..TEXTS => {
                let row = &gearman::PACKETS[index - PACKETS];
                (Wire::Gearman, row.name, "", row.need, row.is_request)
            }
            index @ TEXTS..WORKQ => {
                let row = &gearman::TEXT_COMMANDS[index - TEXTS];
                (Wire::Gearman, row.words, "", row.need, true)
            }
            index @ WORKQ..HTTP => {
                let row = &workq::COMMANDS[index - WORKQ];
                (Wire::Workq, row.word, row.object, row.need, true)
            }
            index => (Wire::Http, http::ROUTES[index - HTTP].word, "", http::ROUTES[index - HTTP].need, true),
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
