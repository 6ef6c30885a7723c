//! Tests clients that misbehave deliberately or accidentally, and systems that run out of resources.
//!
//! The server must use bounded memory, send correct replies, lose no jobs, serve all other clients normally, and become
//! idle after the misbehavior. All tests run the real program, over loopback connections or Unix sockets. Each kind of
//! misbehavior has its own module, and `wire` contains shared helpers.

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
