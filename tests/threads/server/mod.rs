//! The server's files whose state several threads share. The files are unchanged, but their environment is minimal.
//!
//! Includes the outbox and its messages, the replies that wait for the log, the log's threads, and the alarm. The
//! segments thread ends immediately, because the stub of the log space has no work for it.

#[path = "../../../src/server/alarm.rs"]
pub mod alarm;
#[path = "../../../src/server/background.rs"]
pub mod background;
#[path = "../../../src/server/delivery.rs"]
pub mod delivery;
#[path = "../../../src/server/durability.rs"]
pub mod durability;
pub mod hub;
pub mod socket;

/// A stub of the memory account, without a limit.
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

/// The path under which the server's files import the clock.
pub mod clock {
    pub use super::hub::Clock;
}

/// A stub of the reports of slow commands, which is always empty.
pub mod reports {
    pub struct SlowReply;

    impl SlowReply {
        pub fn log(self) {}
    }
}

/// A stub for log space without a limit, and for a log that stores bodies immediately.
pub mod space {
    use std::time::Duration;

    pub const RETRY: Duration = Duration::ZERO;
    pub const CHECK: Duration = Duration::MAX;

    /// The stub returns only the task `Stop`. The code of the segments thread also refers to the other tasks.
    #[allow(dead_code)]
    pub enum SpaceTask {
        Make(u64, usize),
        Maintain,
        Stop,
    }

    #[derive(Debug, Default)]
    pub struct Space;

    #[derive(Debug, Default)]
    pub struct Staging;

    impl Staging {
        pub fn run<S>(&self, _: &S) {}
        pub fn stop(&self) {}
    }

    impl Space {
        pub fn next(&self, _: bool, _: u64) -> SpaceTask {
            SpaceTask::Stop
        }

        pub fn pause(&self, _: Duration) {}
        pub fn maintain(&self) {}
        pub fn resume(&self, _: usize) {}
        pub fn stop(&self) {}
    }
}
