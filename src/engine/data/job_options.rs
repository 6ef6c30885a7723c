//! Optional requests of a producer.
//!
//! Owns their types, as producers express them and the log stores them. Plain data: `verbs/submit.rs` and
//! `rules/completion.rs` interpret them.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use super::{Name, Span, Time};

/// The handling of a job when a worker completes it or is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CompletionPolicy {
    /// A successful job is deleted, a failed one is buried, and a lost one becomes ready with its old rank.
    #[default]
    Drop,
    /// A successful or failed job is deleted after its submitters are notified. A lost one goes to the queue's end.
    Tell,
    /// The outcome is kept until its time to live ends. A lost job becomes ready with its old rank.
    Keep,
}

/// Identifies a body: two hashes with a secret, 128 bits together, so that no one can construct two bodies with the
/// same fingerprint. It is computed outside the engine's lock, since a body may be large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(pub(in crate::engine) [u32; 4]);

#[derive(Clone, Copy, Debug)]
pub struct Fingerprints(u64);

impl Fingerprints {
    /// Creates a family of fingerprints with this secret. Only fingerprints of the same family are comparable.
    pub const fn new(secret: u64) -> Fingerprints {
        Fingerprints(secret)
    }

    pub fn of(self, body: &[u8]) -> Fingerprint {
        let mut taking = self.begin();
        taking.more(body);
        taking.finish()
    }

    /// Begins the fingerprint of a body that arrives in parts.
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

    /// Returns the fingerprint, independent of how the body was divided.
    pub fn finish(&self) -> Fingerprint {
        let [first, second] = [&self.0[0], &self.0[1]].map(Hasher::finish);
        Fingerprint([first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32])
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DedupKey {
    #[default]
    None,
    /// A name in its tube: a client that submits it again is attached to the job.
    Name(Name),
    /// The body in its tube, among jobs that were submitted this way; represented by its fingerprint, once known.
    Body(Option<Fingerprint>),
    /// A number that is unique among the jobs of all tubes.
    Id([u8; 16]),
}

/// The relation of a job to a group, as in a tag.
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

/// A tag that ties a job to the group with this name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupTag {
    pub name: Name,
    pub tie: Tie,
}

/// The maximum number of groups that a job may be tied to.
pub const MAX_TIES: usize = 16;

/// Optional requests of a producer; see [`crate::engine::Engine::submit`].
#[derive(Clone, Debug)]
pub struct JobOptions {
    pub completion: CompletionPolicy,
    pub dedup_key: DedupKey,
    /// `true` if the job must survive a restart, if the server has a log.
    pub durable: bool,
    /// The time at which it becomes ready, instead of its delay.
    pub start: Option<Time>,
    /// The time to live, from the start; [`Span::MAX`]: unlimited.
    pub ttl: Span,
    pub max_attempts: u8,
    /// The number of failures after which it fails permanently; 0 means 1.
    pub max_fails: u8,
    /// The number of tries used up already.
    pub fails: u8,
    pub reason: Option<Box<[u8]>>,
    /// The bytes that are sent to its worker in addition to the body.
    pub reducer: Option<Box<[u8]>>,
    /// The client that submits it is notified of the outcome.
    pub attach: bool,
    /// Seconds for which its name outlives it; see [`crate::engine::Tags::key`].
    pub keep: u32,
    /// The delay after the first lost try, in seconds; see [`crate::engine::Tags::backoff`].
    pub backoff: u32,
    /// The key and the limit of [`crate::engine::Tags::concurrency`].
    pub concurrency: Option<(Name, u32)>,
    /// The groups that it is a member of or waits for.
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
