//! HTTP: health checks, metrics, an API for operators, and a web page. [`Decoder`] converts bytes into [`Request`]s,
//! and [`execute`] executes a request. HTTP clients do not wait for jobs and receive no events.

mod action;
mod commands;
mod failed;
mod lists;
mod metrics;
mod page;
mod reply;
mod request;
mod routes;
mod session;

pub use metrics::{metrics, Metric};
pub use page::{PAGE, SCRIPT_HASH, STYLE_HASH};
pub use request::{Decoder, Request, MAX_BODY, MAX_HEAD};
pub use routes::{Route, ROUTES};
pub use session::{authenticate, execute};

use super::Wire;
use crate::access::Digest;

/// The settings of the HTTP protocol.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpSettings {
    /// Allows clients to change the queue.
    pub admin: bool,
    /// Accepted names in the `Host` header, in addition to IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The digest of the token that clients must send, or `None` if no token is required.
    pub(crate) token: Option<Digest>,
    /// The maximum number of tubes in the metrics.
    pub metrics_tubes: usize,
    /// The protocols that the server offers. If they include Gearman, some metrics also appear under Gearman's names.
    pub(crate) spoken: Vec<Wire>,
}

impl Default for HttpSettings {
    fn default() -> HttpSettings {
        HttpSettings { admin: false, hosts: Vec::new(), token: None, metrics_tubes: 1000, spoken: Vec::new() }
    }
}

pub const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\
    Content-Length: 21\r\nConnection: close\r\nRetry-After: 1\r\n\r\ntoo many connections\n";
