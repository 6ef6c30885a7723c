//! Job options that a producer can set.
//!
//! Owns the types of the options. Must not interpret the options: `verbs/submit.rs` and `rules/completion.rs` do.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use super::{Name, Span, Time};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CompletionPolicy {
    /// Deletes a successful job, and buries a failed job. After the loss of its worker, a job is ready with its old
    /// rank.
    #[default]
    Drop,
    /// Notifies the submitters of a successful or failed job, then deletes the job. After the loss of its worker, a job
    /// is ready behind all other jobs of the same priority.
    Tell,
    /// Keeps the outcome until the job expires. After the loss of its worker, a job is ready with its old rank.
    Keep,
}

/// Identifies a body with 128 bits of keyed hashes, so that no client can construct two bodies with the same
/// fingerprint. Fingerprints are computed before the engine is locked, because bodies can be large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(pub(in crate::engine) [u32; 4]);

#[derive(Clone, Copy, Debug)]
pub struct Fingerprints(u64);

impl Fingerprints {
    /// Only fingerprints with the same secret are comparable.
    pub const fn new(secret: u64) -> Fingerprints {
        Fingerprints(secret)
    }

    pub fn of(self, body: &[u8]) -> Fingerprint {
        let mut taking = self.begin();
        taking.more(body);
        taking.finish()
    }

    pub fn begin(self) -> Fingerprinting {
        Fingerprinting([self.0, !self.0.rotate_left(32)].map(|secret| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(secret);
            hasher
        }))
    }
}

#[derive(Clone, Debug)]
pub struct Fingerprinting([DefaultHasher; 2]);

impl Fingerprinting {
    pub fn more(&mut self, part: &[u8]) {
        self.0.iter_mut().for_each(|hasher| hasher.write(part));
    }

    /// The division into parts does not affect the fingerprint.
    pub fn finish(&self) -> Fingerprint {
        let [first, second] = [&self.0[0], &self.0[1]].map(Hasher::finish);
        Fingerprint([first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32])
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DedupKey {
    #[default]
    None,
    /// A name that is unique within the tube. A client that submits the name again is attached to the existing job.
    Name(Name),
    /// A body that is unique among the tube's jobs with this kind of key. `None` until the fingerprint is computed.
    Body(Option<Fingerprint>),
    /// An ID that is unique among the jobs of all tubes.
    Id([u8; 16]),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tie {
    Member,
    /// The job is held until all members of the group have ended.
    After {
        /// `true` if the job is held even if the group does not exist yet.
        even_if_new: bool,
    },
    /// The job is held until this number of members have ended.
    AfterCount(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupTag {
    pub name: Name,
    pub tie: Tie,
}

/// The maximum number of groups that a job can belong to or wait for.
pub const MAX_TIES: usize = 16;

#[derive(Clone, Debug)]
pub struct JobOptions {
    pub completion: CompletionPolicy,
    pub dedup_key: DedupKey,
    /// `true` if the job must survive a restart of a server with a log.
    pub durable: bool,
    /// The time at which the job becomes ready. Takes precedence over the delay.
    pub start: Option<Time>,
    /// The time to live, counted from the start time. [`Span::MAX`] means unlimited.
    pub ttl: Span,
    pub max_attempts: u8,
    /// The number of failures after which the job fails permanently. 0 means 1.
    pub max_fails: u8,
    /// The number of failed tries at the start.
    pub fails: u8,
    pub reason: Option<Box<[u8]>>,
    /// The bytes that the worker receives in addition to the body.
    pub reducer: Option<Box<[u8]>>,
    pub attach: bool,
    /// The time in seconds for which the key outlives the job.
    pub keep: u32,
    /// The delay in seconds after the first failed try. The delay doubles with each try.
    pub backoff: u32,
    /// The concurrency key and the maximum number of reserved jobs with it. If the reserved jobs have different limits,
    /// the largest limit applies.
    pub concurrency: Option<(Name, u32)>,
    pub groups: Vec<GroupTag>,
}

impl Default for JobOptions {
    fn default() -> JobOptions {
        JobOptions {
            completion: CompletionPolicy::Drop,
            dedup_key: DedupKey::None,
            durable: true,
            start: None,
            ttl: Span::MAX,
            max_attempts: 0,
            max_fails: 0,
            fails: 0,
            reason: None,
            reducer: None,
            attach: false,
            keep: 0,
            backoff: 0,
            concurrency: None,
            groups: Vec::new(),
        }
    }
}
