//! What a producer asks for beside what every job has.
//!
//! Owns the words for it, as a producer says them and as a log remembers them. Plain data: what they mean, `submit` and
//! `outcome` know.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use super::name::Name;
use super::time::{Span, Time};

/// What becomes of a job when a worker says how it went, or is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CompletionPolicy {
    /// Done, it is deleted; failed, it is buried; lost, it is ready again in its old place.
    #[default]
    Drop,
    /// Done or failed, its submitters are told, and it is gone; lost, it goes to the end of its queue.
    Tell,
    /// The outcome is kept until its time to live ends; lost, it is ready again in its old place.
    Keep,
}

/// What tells a body from every other: two hashes behind a secret, 128 bits together, so that nobody can make two
/// bodies that have the same. It is taken outside of whatever lock the engine is behind, since a body may be large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(pub(in crate::engine) [u32; 4]);

#[derive(Clone, Copy, Debug)]
pub struct Fingerprints(u64);

impl Fingerprints {
    /// Behind this secret; all that are compared must have the same.
    pub const fn new(secret: u64) -> Fingerprints {
        Fingerprints(secret)
    }

    pub fn of(self, body: &[u8]) -> Fingerprint {
        let mut taking = self.begin();
        taking.more(body);
        taking.finish()
    }

    /// Of a body that comes in parts.
    pub fn begin(self) -> Fingerprinting {
        Fingerprinting([self.0, !self.0.rotate_left(32)].map(|secret| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(secret);
            hasher
        }))
    }
}

/// The fingerprint of a body that is arriving.
#[derive(Clone, Debug)]
pub struct Fingerprinting([DefaultHasher; 2]);

impl Fingerprinting {
    /// The next part of the body.
    pub fn more(&mut self, part: &[u8]) {
        self.0.iter_mut().for_each(|hasher| hasher.write(part));
    }

    /// The fingerprint, however the body was divided.
    pub fn finish(&self) -> Fingerprint {
        let [first, second] = [&self.0[0], &self.0[1]].map(Hasher::finish);
        Fingerprint([first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32])
    }
}

/// What no two jobs may share.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DedupKey {
    #[default]
    None,
    /// A name in its tube: whoever submits it again is attached to the job.
    Name(Name),
    /// Its body in its tube, among jobs that were submitted so; by its fingerprint, once that is known.
    Body(Option<Fingerprint>),
    /// A number that no other job of any tube may have.
    Id([u8; 16]),
}

/// What a producer asks for beside what every job has; see [`crate::engine::Engine::submit`].
#[derive(Clone, Debug)]
pub struct JobOptions {
    pub completion: CompletionPolicy,
    /// What no other job may share.
    pub dedup_key: DedupKey,
    /// It must survive a restart of a server that keeps a log.
    pub durable: bool,
    /// When it becomes ready, instead of its delay.
    pub start: Option<Time>,
    /// How long it lives, from its start on; [`Span::MAX`] for ever.
    pub ttl: Span,
    /// How often it may be reserved; zero means without end.
    pub max_attempts: u8,
    /// With how many failures it has failed for good; zero means one.
    pub max_fails: u8,
    /// How many tries are already used up.
    pub fails: u8,
    /// Why the last one failed.
    pub reason: Option<Box<[u8]>>,
    /// Bytes that go with it to its worker.
    pub reducer: Option<Box<[u8]>>,
    /// The client that submits it is told what comes of it.
    pub attach: bool,
    /// Seconds for which its name outlives it; see [`crate::engine::Tags::key`].
    pub keep: u32,
    /// Seconds of the delay after the first lost try; see [`crate::engine::Tags::backoff`].
    pub backoff: u32,
    /// The key and the bound of [`crate::engine::Tags::concurrency`].
    pub concurrency: Option<(Name, u32)>,
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
        }
    }
}
