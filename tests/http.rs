//! HTTP: guards, framing, the API, metrics, and what they cost the others.
//!
//! Owns the library's server and the real program under requests that are right, wrong and hostile. What a user sees of
//! the page is tested in a browser, by `make browser`.

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
