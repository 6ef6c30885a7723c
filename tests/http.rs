//! Tests HTTP: access checks, framing, the API, metrics, and the effect of HTTP requests on other clients.
//!
//! The tests send correct, wrong and hostile requests to an embedded server and to the real program. `make browser`
//! tests the page in a browser.

mod daemon;

#[path = "http/api.rs"]
mod api;
#[path = "http/framing.rs"]
mod framing;
#[path = "http/guards.rs"]
mod guards;
#[path = "http/metrics.rs"]
mod metrics;
#[path = "http/visitor.rs"]
mod visitor;
