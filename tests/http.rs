//! HTTP: guards, framing, the API, metrics, and their cost for others.
//!
//! Owns the library's server and the real program under correct, wrong and hostile requests. `make browser` tests the
//! page in a browser.

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
