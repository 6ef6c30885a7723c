//! The Workq protocol, according to its document and the original server, without the bugs of the original.
//!
//! Owns its words, framing and replies. [`Decoder`] turns bytes into [`Request`]s, [`execute`] executes one, and
//! [`notify`] reports an event to a client that waited. Must not store anything about the queue.

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

pub use command::{Command, Request, Submission};
pub use commands::{CommandName, CommandRow, Line, COMMANDS};
pub use fields::{MAX_DATA, MAX_LIMIT, MAX_NAME, MAX_TTR, MAX_WAIT};
pub use request::{Decoder, MAX_LINE};
pub use session::{execute, notify};
pub use uuid::{derive, underive, Uuid};

/// The reply to a client that connects when the server is full.
pub const TOO_MANY_CONNECTIONS: &[u8] = reply::TOO_MANY_CONNECTIONS;
