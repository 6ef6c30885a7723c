//! The server's files that threads share, unchanged, and a minimal environment.
//!
//! Owns the choice of real files: the outbox and the way to its thread, the replies that wait for the log, the log's
//! own threads except that of the segments, and the alarm.

#[path = "../../../src/server/alarm.rs"]
pub mod alarm;
#[path = "../../../src/server/delivery.rs"]
pub mod delivery;
#[path = "../../../src/server/durability.rs"]
pub mod durability;
#[path = "../../../src/server/handle.rs"]
pub mod handle;
pub mod hub;
#[path = "../../../src/server/log_threads.rs"]
pub mod log_threads;
pub mod socket;
#[path = "../../../src/server/timer.rs"]
pub mod timer;

/// The memory account, which accepts everything.
pub mod memory {
    pub const CONNECTION_COST: u64 = 0;

    #[derive(Debug, Default)]
    pub struct Memory;

    impl Memory {
        pub fn charge(&self, _: u64, _: u64) {}

        pub fn leave(&self, _: u64, _: u64) {}

        pub fn must_give_back(&self) -> bool {
            false
        }
    }
}

/// The clock, which stands still.
pub mod clock {
    pub use super::hub::Clock;
}

/// Messages of other threads to the owner of a connection.
pub mod message {
    #[derive(Debug)]
    pub enum Message {
        /// Check this connection again.
        Resume(usize),
    }
}

/// The log of slow commands, which is empty.
pub mod command_log {
    pub struct SlowReply;

    impl SlowReply {
        pub fn log(self) {}
    }
}

/// Space in the log, which is always sufficient.
pub mod space {
    #[derive(Debug, Default)]
    pub struct Space;

    impl Space {
        pub fn maintain(&self) {}
        pub fn resume(&self, _: usize) {}
        pub fn stop(&self) {}
    }
}

/// The segments thread, which has nothing to do.
pub mod segments {
    use super::{durability::Durability, hub::Hub};

    pub fn run(_: &Hub, _: &Durability) {}
}
