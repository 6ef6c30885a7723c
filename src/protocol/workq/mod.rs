//! The Workq protocol, as documented and as implemented by the original server, but without that server's bugs.
//! [`Decoder`] converts bytes into [`Request`]s, [`execute`] executes one, and [`notify`] sends an event to a client.

mod commands;
mod fields;
mod inspect;
mod reply;
mod request;
mod session;

pub use commands::{Command, CommandName, CommandRow, Line, Request, Submission, COMMANDS};
pub use fields::{derive, underive, MAX_DATA, MAX_LIMIT, MAX_NAME, MAX_TTR, MAX_WAIT};
pub use reply::TOO_MANY_CONNECTIONS;
pub use request::{Decoder, MAX_LINE};
pub use session::{execute, notify};

pub type Uuid = [u8; 16];
