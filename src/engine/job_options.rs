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

/// What tells a body from every other: two hashes behind a secret, 128 bits together, so that nobody can make two bodies that
/// have the same. It is taken outside of whatever lock the engine is behind, since a body may be large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(pub(super) [u32; 4]);

/// Takes fingerprints.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprints(u64);

impl Fingerprints {
    /// Behind this secret; all that are compared must have the same.
    pub const fn new(secret: u64) -> Fingerprints {
        Fingerprints(secret)
    }

    /// Of this body.
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
    /// Nothing.
    #[default]
    None,
    /// A name in its tube: whoever submits it again joins the job.
    Name(Name),
    /// Its body in its tube, among jobs that were submitted so; by its fingerprint, once that is known.
    Body(Option<Fingerprint>),
    /// A number that no other job of any tube may have.
    Id([u8; 16]),
}

/// What a producer asks for beside what every job has; see [`super::Engine::submit`].
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// What becomes of it.
    pub completion: CompletionPolicy,
    /// What no other job may share.
    pub dedup_key: DedupKey,
    /// It must survive a restart.
    pub durable: bool,
    /// When it becomes ready, instead of its delay.
    pub start: Option<Time>,
    /// How long it lives, from its start on; [`Span::MAX`] for ever.
    pub ttl: Span,
    /// How often it may be reserved; zero means without end.
    pub max_attempts: u8,
    /// With how many failures it has failed for good; zero means one.
    pub max_fails: u8,
    /// Bytes that go with it to its worker.
    pub reducer: Option<Box<[u8]>>,
    /// The client that submits it is told what comes of it.
    pub attach: bool,
    /// Seconds for which its name outlives it; see [`super::Tags::key`].
    pub keep: u32,
    /// Seconds of the delay after the first lost try; see [`super::Tags::backoff`].
    pub backoff: u32,
    /// See [`super::Tags::concurrency`].
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
            reducer: None,
            attach: false,
            keep: 0,
            backoff: 0,
            concurrency: None,
        }
    }
}

/// What a log has to remember of a job's options, and of what came of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredOptions<'a> {
    /// What becomes of it.
    pub completion: CompletionPolicy,
    /// What no other job may share.
    pub dedup_key: StoredKey<'a>,
    /// How long it was to live; [`Span::MAX`] for ever.
    pub ttl: Span,
    /// When that ends; [`Time::NEVER`] if it does not.
    pub expires: Time,
    /// When it was to become ready; [`Time::NEVER`] if that was not said.
    pub start: Time,
    /// Its place among jobs of its priority from its start on; zero before.
    pub order: u64,
    /// How often it may be reserved; zero means without end.
    pub max_attempts: u8,
    /// With how many failures it has failed for good; zero means one.
    pub max_fails: u8,
    /// How often a worker said that it failed.
    pub fails: u8,
    /// Over: whether it is done, and where in its body the result begins.
    pub outcome: Option<(bool, u32)>,
    /// Bytes that go with it to its worker.
    pub reducer: Option<&'a [u8]>,
    /// Seconds for which its name outlives it.
    pub keep: u32,
    /// Seconds of the delay after the first lost try.
    pub backoff: u32,
    /// The key that bounds how many are reserved, and the bound.
    pub concurrency: (StoredKey<'a>, u32),
}

/// [`DedupKey`], borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredKey<'a> {
    /// Nothing.
    None,
    /// A name in its tube, from a log.
    Name(&'a [u8]),
    /// A name in its tube, from a job.
    Kept(&'a Name),
    /// Its body in its tube.
    Body,
    /// A number that no other job may have.
    Id([u8; 16]),
}

impl DedupKey {
    /// For a log.
    pub fn written(&self) -> StoredKey<'_> {
        match self {
            DedupKey::None => StoredKey::None,
            DedupKey::Name(name) => StoredKey::Kept(name),
            DedupKey::Body(_) => StoredKey::Body,
            DedupKey::Id(id) => StoredKey::Id(*id),
        }
    }
}

impl StoredKey<'_> {
    /// From a log.
    pub fn restored(self) -> DedupKey {
        match self {
            StoredKey::None => DedupKey::None,
            StoredKey::Name(name) => DedupKey::Name(name.into()),
            StoredKey::Kept(name) => DedupKey::Name(name.clone()),
            StoredKey::Body => DedupKey::Body(None),
            StoredKey::Id(id) => DedupKey::Id(id),
        }
    }
}
