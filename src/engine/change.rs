//! What must be made durable.
//!
//! Owns the list of changes that a log has to remember, and the room that the log has left. A verb appends changes; if the
//! queue is logged, whoever called it takes them, in order, before the next verb, and writes them down. Must not know how.

use super::job::JobId;

/// One change. Jobs are named by their slots: until the next verb, the job is there to be looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A new job.
    Put(u32),
    /// It was reserved.
    Reserve(u32),
    /// It was released, ready or delayed.
    Release(u32),
    /// It was buried.
    Bury(u32),
    /// It was kicked.
    Kick(u32),
    /// Its time to run ended, or its holder was lost and that counts.
    Expire(u32),
    /// It was leased: reserved by nobody who could be lost.
    Lease(u32),
    /// No log knew it until now: it must be written down as it is.
    Adopt(u32),
    /// A worker said how it went: it is over, with its outcome, or to be tried again.
    Outcome {
        /// Where it is.
        slot: u32,
        /// Bytes of the result, by which its body has grown.
        result: usize,
    },
    /// It is gone.
    Delete {
        /// Where it was.
        slot: u32,
        /// Its number.
        id: JobId,
        /// Length of the name of its tube.
        tube: usize,
        /// Length of its body and of what its terms take.
        body: usize,
    },
    /// The pause of the tube with this name has begun or ended by hand.
    Pause(Box<[u8]>),
}

impl Change {
    /// The job that it happened to, while that is there.
    pub fn slot(&self) -> Option<u32> {
        match *self {
            Change::Put(slot)
            | Change::Reserve(slot)
            | Change::Release(slot)
            | Change::Bury(slot)
            | Change::Kick(slot)
            | Change::Expire(slot)
            | Change::Lease(slot)
            | Change::Adopt(slot)
            | Change::Outcome { slot, .. } => Some(slot),
            Change::Delete { .. } | Change::Pause(_) => None,
        }
    }
}

/// How much the log can still take. Without a log, there is no end to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRoom {
    /// Bytes that new jobs may take.
    pub puts: u64,
    /// Bytes that changes to jobs may take. Deletes are always taken: their room was kept when the job was put.
    pub changes: u64,
    /// Bytes of it that one command may take which changes many jobs, before it must come again for more.
    pub burst: u64,
    /// What a new job takes beside the name of its tube and its body.
    pub put: u64,
    /// What a change takes.
    pub change: u64,
}

impl LogRoom {
    /// Of a queue without a log.
    pub const ENDLESS: LogRoom = LogRoom { puts: u64::MAX, changes: u64::MAX, burst: u64::MAX, put: 0, change: 0 };
}
