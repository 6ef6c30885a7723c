//! The Gearman protocol, compatible with gearmand. [`Decoder`] converts bytes into [`Command`]s, [`execute`] executes a
//! command, and [`notify`] sends an event to a sleeping worker or a waiting client. `man/beanpole-gearman.7` lists the
//! intended differences from gearmand.

mod admin;
mod command;
mod kind;
mod listing;
mod reply;
mod request;
mod session;

pub use admin::{AdminCommand, TextCommand, TEXT_COMMANDS};
pub use command::{Command, Submission, When, Work};
pub use kind::{Kind, Packet, PACKETS};
#[cfg(feature = "tls")]
pub use reply::packet_length;
pub use reply::{handle_prefix, Fault, MAX_FUNCTION, MAX_LINE, MAX_PREFIX, MAX_UNIQUE};
pub use request::{Decoder, MAX_HEAD};
pub use session::{execute, notify};

pub const TOO_MANY_CONNECTIONS: &[u8] = b"\0RES\0\0\0\x13\0\0\0\x20QUEUE_ERROR\0Too many connections";
