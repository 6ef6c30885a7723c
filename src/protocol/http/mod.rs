//! HTTP: health, metrics, an API for operators, and the page that uses it.
//!
//! Owns its framing, guards and replies. [`Decoder`] turns bytes into [`Request`]s and [`execute`] carries one out. No
//! client of this protocol ever waits, holds a job or is told anything unasked. Must not remember anything about the
//! queue.

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
#[cfg(test)]
pub use routes::Command;
pub use routes::{Route, ROUTES};
pub use same_site::{deny, introduce};
pub use session::execute;

use super::Wire;
use crate::access::Digest;

/// What HTTP clients may see and do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpSettings {
    /// They may change the queue.
    pub admin: bool,
    /// Names by which they may call the server, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The token that they must show, if any.
    pub token: Option<Digest>,
    /// Tubes that the metrics tell of at most.
    pub metrics_tubes: usize,
    /// The protocols that the server speaks; with Gearman, the metrics have its names too.
    pub spoken: Vec<Wire>,
}

impl Default for HttpSettings {
    fn default() -> HttpSettings {
        HttpSettings { admin: false, hosts: Vec::new(), token: None, metrics_tubes: 1000, spoken: Vec::new() }
    }
}

/// What a client is told that connects when there is no room for it.
pub const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\nRetry-After: 1\r\n\r\n";
