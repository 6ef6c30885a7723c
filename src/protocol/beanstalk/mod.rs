//! The beanstalk protocol, compatible with beanstalkd. [`Decoder`] converts bytes into [`Command`]s, [`execute`]
//! executes a command, and [`notify`] sends an event to a waiting client.

mod command;
mod commands;
mod extensions;
mod figures;
mod reply;
mod request;
mod session;
mod yaml;

pub use command::{tags_size, Command, SETTINGS_OVERHEAD};
pub use commands::{CommandName, CommandRow, COMMANDS, MAX_LINE, MAX_PUT_LINE};
pub use extensions::{
    read_settings, read_tags, tube_settings, Extension, Extensions, Tagging, EXTENSIONS, SETTINGS, TAGS,
};
pub use figures::{extended_counts, server_figures, tube_times, QueueFigures, TUBE_FIGURES};
pub use reply::OUT_OF_MEMORY as TOO_MANY_CONNECTIONS;
pub use request::Decoder;
pub use session::{execute, notify, stats_job};
pub use yaml::job_figures;
