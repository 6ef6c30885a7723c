//! The Gearman protocol, as gearmand speaks it.
//!
//! Owns its packets, its text commands, their framing and the replies. [`Decoder`] turns bytes into [`Request`]s,
//! [`execute`] carries one out, and [`tell`] reports an event to a worker that sleeps or a client that waits for a
//! result. Must not remember anything about the queue. What differs from gearmand on purpose is listed in
//! `man/beanpole-gearman.7`.

mod admin;
mod calendar;
mod commands;
mod listing;
mod names;
mod reply;
mod request;
mod session;

pub use admin::{AdminCommand, TextCommand, TEXT_COMMANDS};
pub use calendar::Schedule;
pub use commands::{Kind, Packet, Parse, PACKETS};
pub use names::{handle_prefix, MAX_FUNCTION, MAX_PREFIX, MAX_UNIQUE};
pub use reply::Fault;
pub use request::{Command, Decoder, Request, Submission, When, Work, MAX_HEAD, MAX_LINE};
pub use session::{deny, execute, go_on, hang_up, tell, Continuation, Session};

/// What a client is told that connects when there is no room for it: an ERROR `QUEUE_ERROR`, `Too many connections`.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"\0RES\0\0\0\x13\0\0\0\x20QUEUE_ERROR\0Too many connections";
