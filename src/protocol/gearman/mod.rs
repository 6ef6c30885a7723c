//! The Gearman protocol, as gearmand speaks it.
//!
//! Owns its packets, its text commands, their framing and the replies. [`Decoder`] turns bytes into [`Request`]s,
//! [`execute`] carries one out, and [`tell`] reports an event to a worker that sleeps or a client that waits for a
//! result. Must not remember anything about the queue. What differs from gearmand on purpose is listed in
//! `man/beanpole-gearman.7`.

mod admin;
mod command;
mod kind;
mod listing;
mod names;
mod packets;
mod reply;
mod request;
mod schedule;
mod session;

pub use admin::{AdminCommand, TextCommand, TEXT_COMMANDS};
pub use command::{Command, Submission, When, Work};
pub use kind::Kind;
pub use names::{handle_prefix, MAX_FUNCTION, MAX_LINE, MAX_PREFIX, MAX_UNIQUE};
pub use packets::{Packet, Parse, PACKETS};
#[cfg(feature = "tls")]
pub use reply::packet_length;
pub use reply::Fault;
pub use request::{Decoder, Request, MAX_HEAD};
pub use session::{deny, execute, tell, Session};

/// What a client is told that connects when there is no room for it: an ERROR `QUEUE_ERROR`, `Too many connections`.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"\0RES\0\0\0\x13\0\0\0\x20QUEUE_ERROR\0Too many connections";
