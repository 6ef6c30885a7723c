//! The beanstalk protocol, as beanstalkd speaks it.
//!
//! Owns its words, framing and replies. [`Decoder`] turns bytes into [`Request`]s, [`execute`] carries one out, and
//! [`tell`] reports an event to a client that waited. Must not remember anything about the queue.

mod commands;
mod reply;
mod request;
mod session;
mod yaml;

pub use commands::{CommandName, CommandRow, COMMANDS};
pub use request::{Command, Decoder, Request, MAX_LINE};
pub use session::{deny, execute, go_on, hang_up, tell, Continuation};

/// What a client is told that connects when there is no room for it.
pub const TOO_MANY_CONNECTIONS: &[u8] = reply::OUT_OF_MEMORY;

/// How often each command was given.
#[derive(Clone, Debug)]
pub struct CommandCounters([u64; COMMANDS.len()]);

impl Default for CommandCounters {
    fn default() -> CommandCounters {
        CommandCounters([0; COMMANDS.len()])
    }
}

impl CommandCounters {
    /// One more.
    pub fn count(&mut self, name: CommandName) {
        self.0[name as usize] += 1;
    }

    /// How many so far.
    pub fn of(&self, name: CommandName) -> u64 {
        self.0[name as usize]
    }
}
