//! Job options that a producer can set.
//!
//! Owns the types of the options. Must not interpret the options: `verbs/submit.rs` and `rules/completion.rs` do.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use super::{Name, Span, Time};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CompletionPolicy {
    /// Deletes a successful job, and buries a failed job. A job that lost its worker is ready with its old rank.
    #[default]
    Drop,
    /// Notifies the submitters, then deletes the job. A job that lost its worker is ready behind all others of its
    /// priority.
    Tell,
    /// Keeps the outcome until the job expires. A job that lost its worker is ready with its old rank.
    Keep,
}

/// 128 bits of keyed hashes, so that no client can construct two bodies with the same fingerprint. Computed before the
/// engine is locked, because bodies can be large.
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
    /// Unique within the tube. A client that submits the name again is attached to the existing job.
    Name(Name),
    /// Unique among the tube's keys of this kind. `None` until the fingerprint is computed.
    Body(Option<Fingerprint>),
    /// Unique among the jobs of all tubes.
    Id([u8; 16]),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tie {
    Member,
    After { even_if_new: bool },
    AfterCount(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupTag {
    pub name: Name,
    pub tie: Tie,
}

/// Maximum number of groups that a job belongs to or waits for.
pub const MAX_TIES: usize = 16;

#[derive(Clone, Debug)]
pub struct JobOptions {
    pub completion: CompletionPolicy,
    pub dedup_key: DedupKey,
    pub durable: bool,
    /// Takes precedence over the delay.
    pub start: Option<Time>,
    /// Counted from the start time. [`Span::MAX`] means unlimited.
    pub ttl: Span,
    pub max_attempts: u8,
    /// The number of failures after which the job fails permanently. 0 means 1.
    pub max_fails: u8,
    pub fails: u8,
    pub reason: Option<Box<[u8]>>,
    /// Received by the worker in addition to the body.
    pub reducer: Option<Box<[u8]>>,
    pub attach: bool,
    /// Seconds for which the key outlives the job.
    pub keep: u32,
    /// Seconds after the first failed try. The delay doubles with each try.
    pub backoff: u32,
    /// The key, and the maximum number of reserved jobs with it: the largest limit of these jobs applies.
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
