//! The beanstalk protocol, compatible with beanstalkd. [`Decoder`] converts bytes into [`Command`]s, [`execute`] executes
//! a command, and [`notify`] sends an event to a waiting client.

mod args;
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
pub use request::Decoder;
pub use session::{execute, notify};
pub use tags::{read as read_tags, Tagging, TAGS};
pub use tube_settings::{read as read_settings, written as tube_settings, SETTINGS};
pub use yaml::job_figures;

pub const TOO_MANY_CONNECTIONS: &[u8] = reply::OUT_OF_MEMORY;
