//! HTTP: health, metrics, an API for operators, and the page that uses the API.
//!
//! Owns its framing, guards and replies. [`Decoder`] turns bytes into [`Request`]s and [`execute`] executes one. HTTP
//! clients never wait for jobs, hold jobs, or receive unsolicited messages. Must not store anything about the queue.

mod action;
mod arguments;
mod commands;
mod failed;
mod lists;
mod metrics;
mod objects;
mod page;
mod reply;
mod request;
mod routes;
mod same_site;
mod session;
mod types;

pub use metrics::{metrics, Metric};
pub use page::{PAGE, SCRIPT_HASH, STYLE_HASH};
pub use request::{Decoder, Request, MAX_BODY, MAX_HEAD};
pub use routes::{Route, ROUTES};
pub use same_site::authenticate;
pub use session::execute;

use super::Wire;
use crate::access::Digest;

/// The permissions of HTTP clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpSettings {
    /// Clients may change the queue.
    pub admin: bool,
    /// Accepted `Host` names, besides the server's addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The token that clients must present, if any.
    pub token: Option<Digest>,
    /// The maximum number of tubes in the metrics.
    pub metrics_tubes: usize,
    /// The server's protocols; with Gearman, the metrics have its names too.
    pub spoken: Vec<Wire>,
}

impl Default for HttpSettings {
    fn default() -> HttpSettings {
        HttpSettings { admin: false, hosts: Vec::new(), token: None, metrics_tubes: 1000, spoken: Vec::new() }
    }
}

/// The reply to a client that connects when the server is full.
pub const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\nRetry-After: 1\r\n\r\n";
