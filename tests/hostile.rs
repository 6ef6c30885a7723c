//! Clients that behave badly, by malice or by accident, and a system that has run out of something.
//!
//! Owns what the server promises about them: its processor comes to rest, its memory stays bounded, no reply is
//! wrong, no job is lost, and everyone else is served as if nothing had happened. Every case runs against the real
//! program over loopback. The cases are grouped by what the client does; `wire` has what they share.

mod daemon;

#[path = "hostile/wire.rs"]
mod wire;

#[path = "hostile/bodies.rs"]
mod bodies;
#[path = "hostile/floods.rs"]
mod floods;
#[path = "hostile/handoffs.rs"]
mod handoffs;
#[path = "hostile/idle.rs"]
mod idle;
#[path = "hostile/limits.rs"]
mod limits;
#[path = "hostile/resets.rs"]
mod resets;
#[path = "hostile/stalls.rs"]
mod stalls;
#[path = "hostile/urgent.rs"]
mod urgent;
#[path = "hostile/windows.rs"]
mod windows;
