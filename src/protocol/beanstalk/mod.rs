//! The beanstalk protocol, as beanstalkd speaks it.
//!
//! Owns its words, framing and replies. [`Decoder`] turns bytes into [`Request`]s, [`execute`] carries one out, and
//! [`tell`] reports an event to a client that waited. Must not remember anything about the queue.

mod command;
mod commands;
mod extended;
mod extensions;
mod figures;
mod long;
mod reply;
mod request;
mod session;
mod tags;
mod tube_settings;
mod yaml;

pub use command::{tags_size, Command};
pub use commands::{CommandName, CommandRow, COMMANDS, MAX_LINE, MAX_PUT_LINE};
pub use extended::{stats_job, SETTINGS_OVERHEAD};
pub use extensions::{Extension, Extensions, EXTENSIONS};
pub use figures::{
    extended_counts, server_figures, tube_times, FigureValue, QueueFigures, JOB_COUNTS, SERVER_FIGURES, TUBE_FIGURES,
};
#[cfg(test)]
pub use long::Long;
pub use request::{Decoder, Request};
pub use session::{deny, execute, tell};
pub use tags::{read as read_tags, Tagging, TAGS};
pub use tube_settings::{read as read_settings, written as tube_settings, SETTINGS};
pub use yaml::job_figures;

/// What a client is told that connects when there is no room for it.
pub const TOO_MANY_CONNECTIONS: &[u8] = reply::OUT_OF_MEMORY;
