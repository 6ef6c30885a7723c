//! The Workq protocol, as its document and the original server have it, without what was broken in the original.
//!
//! Owns its words, framing and replies. [`Decoder`] turns bytes into [`Request`]s, [`execute`] carries one out, and
//! [`tell`] reports an event to a client that waited. Must not remember anything about the queue.

mod command;
mod commands;
mod fields;
mod inspect;
mod lookup;
mod reply;
mod request;
mod session;
mod time;
mod uuid;

pub use command::{Command, Submission};
pub use commands::{CommandName, CommandRow, Line, COMMANDS};
pub use fields::{MAX_DATA, MAX_LIMIT, MAX_NAME, MAX_TTR, MAX_WAIT};
pub use request::{Decoder, Request, MAX_LINE};
pub use session::{deny, execute, tell};
pub use uuid::{derive, underive, Uuid};

/// What a client is told that connects when there is no room for it.
pub const TOO_MANY_CONNECTIONS: &[u8] = reply::TOO_MANY_CONNECTIONS;
