//! Dedup keys: which job is the duplicate of one that is submitted again.
//!
//! Owns how keys are hashed, looked up and forgotten, and what submitting a duplicate means. Must not create jobs.
//!
//! Promises: P26, P27.
//! Touches: agenda, limits, store, tubes.

use std::hash::Hasher;

use crate::engine::data::{DedupKey, Fingerprints, Job, JobExtras, JobFlag, JobId, State, MOVE};
use crate::engine::log::Change;
use crate::engine::{Engine, Refused};

/// The maximum number of extras that a search by name checks. A name in more tubes than this is refused, unless keys
/// are unique per tube: otherwise all names are in one index, and each search would have to pass all of them.
pub(in crate::engine) const MAX_CHECKED: u64 = 4096;

impl Engine {
    /// Returns the family of fingerprints for bodies to be submitted.
    pub fn fingerprints(&self) -> Fingerprints {
        Fingerprints::new(self.limits.hash_secret)
    }

    /// Names are hashed without their tubes, so that they can be looked up in all tubes, unless keys are unique per
    /// tube. The key of a `hidden` job is hashed with its ID, so that no lookup finds it.
    pub(in crate::engine) fn hash_dedup_key(&self, dedup_key: &DedupKey, tube: u32, hidden: Option<JobId>) -> u64 {
        let mut hasher = self.tubes.hasher();
        match dedup_key {
            DedupKey::None => return 0,
            DedupKey::Name(name) => {
                hasher.write(name.key());
                if self.limits.keys_per_tube {
                    hasher.write_u32(tube);
                }
                hidden.iter().for_each(|id| hasher.write_u64(id.0));
            }
            DedupKey::Id(id) => hasher.write(id),
            DedupKey::Body(fingerprint) => {
                hasher.write_u32(tube);
                fingerprint.iter().flat_map(|it| it.0).for_each(|part| hasher.write_u32(part));
                hasher.write_u64(hidden.map_or(0, |id| id.0));
            }
        }
        hasher.finish()
    }

    /// Returns the existing job with this dedup key. A fingerprint of a body only matches a body of the same length.
    pub(in crate::engine) fn find_duplicate(
        &mut self,
        dedup_key: &DedupKey,
        tube: &[u8],
        length: usize,
    ) -> Result<Option<u32>, Refused> {
        if matches!(dedup_key, DedupKey::Body(_)) && length == 0 {
            return Ok(None);
        }
        let number = self.tubes.find(tube);
        let hash = self.hash_dedup_key(dedup_key, number.unwrap_or_default(), None);
        self.find_with_key(dedup_key, hash, |_, job| match dedup_key {
            DedupKey::None => false,
            DedupKey::Id(_) => true,
            _ if is_over(job) => false,
            DedupKey::Name(_) => Some(job.tube) == number,
            DedupKey::Body(_) => Some(job.tube) == number && job.body.len() == length,
        })
    }

    /// Returns the slot of the first job with this dedup key, which has this hash, that `is_meant` accepts.
    pub(in crate::engine) fn find_with_key(
        &mut self,
        dedup_key: &DedupKey,
        hash: u64,
        mut is_meant: impl FnMut(u32, &Job) -> bool,
    ) -> Result<Option<u32>, Refused> {
        let mut checked = 0;
        let matches = |extras: &JobExtras| {
            checked += 1;
            // Jobs of other keys in the chain need not be fetched.
            if checked > MAX_CHECKED || extras.dedup_key != *dedup_key {
                return checked > MAX_CHECKED;
            }
            is_meant(extras.slot, self.store.jobs.get(extras.slot))
        };
        let found = self.store.extras.find(hash, matches).map(|number| self.store.extras.get(number).slot);
        self.agenda.steps.take(checked / MOVE);
        if checked > MAX_CHECKED {
            return Err(Refused::OutOfMemory);
        }
        Ok(found)
    }

    pub fn find_id(&self, id: &[u8; 16]) -> Option<JobId> {
        let dedup_key = DedupKey::Id(*id);
        let number =
            self.store.extras.find(self.hash_dedup_key(&dedup_key, 0, None), |extras| extras.dedup_key == dedup_key)?;
        Some(self.store.jobs.get(self.store.extras.get(number).slot).id)
    }

    /// Returns the oldest job that was submitted with this name, in any tube that the caller `sees`.
    pub fn find_name(&self, name: &[u8], sees: impl Fn(&[u8]) -> bool) -> Option<JobId> {
        let dedup_key = DedupKey::Name(name.into());
        if !self.limits.keys_per_tube {
            return self.oldest_named(&dedup_key, 0, |tube| sees(&self.tubes.get(tube).name));
        }
        let seen = self.tubes.iter().take(MAX_CHECKED as usize).filter(|(_, tube)| sees(&tube.name));
        seen.filter_map(|(number, _)| self.oldest_named(&dedup_key, number, |tube| tube == number)).min()
    }

    /// Returns the oldest job with this key, which has the hash of `tube`, in a tube that `is_meant` accepts.
    fn oldest_named(&self, dedup_key: &DedupKey, tube: u32, is_meant: impl Fn(u32) -> bool) -> Option<JobId> {
        let hash = self.hash_dedup_key(dedup_key, tube, None);
        let (mut oldest, mut checked) = (None, 0);
        // Matches no extras, so as to check all with that name, or as many as one call may.
        self.store.extras.find(hash, |extras| {
            checked += 1;
            if extras.dedup_key == *dedup_key {
                let job = self.store.jobs.get(extras.slot);
                if is_meant(job.tube) && !job.is_dead_letter() {
                    oldest = Some(oldest.map_or(job.id, |oldest: JobId| oldest.min(job.id)));
                }
            }
            checked > MAX_CHECKED
        });
        oldest
    }

    /// Updates the hash of the job in `slot`, which has just been buried, or is about to leave the buried state, and
    /// whose key other jobs in its tube may share. Only one of the buried jobs with a key is found by the key, and only
    /// one of the jobs that were buried before, so that a search does not pass many. Clients of Gearman submit buried
    /// jobs again without end. A dead letter is not found by its key, which other jobs may use in the meantime.
    pub(in crate::engine) fn reveal_one(&mut self, slot: u32, is_buried: bool) {
        let job = self.store.jobs.get(slot);
        let (tube, id, length, is_dead) = (job.tube, job.id, job.body.len(), job.is_dead_letter());
        let Some(extras) = self.extras(job) else { return };
        let dedup_key = match &extras.dedup_key {
            DedupKey::None | DedupKey::Id(_) => return,
            // No client looks up a job without a body.
            DedupKey::Body(_) if length == 0 => return,
            key => key.clone(),
        };
        let open = self.hash_dedup_key(&dedup_key, tube, None);
        let is_alone = !is_dead
            && Ok(None)
                == self.find_with_key(&dedup_key, open, |other, job| {
                    let is_alike = (job.state() == State::Buried) == is_buried && !job.is_dead_letter();
                    other != slot && job.tube == tube && is_alike
                });
        let hash = if is_alone { open } else { self.hash_dedup_key(&dedup_key, tube, Some(id)) };
        let number = self.store.extras.of(slot);
        if !self.store.extras.get(number).has_hash(hash) {
            self.store.extras.rehash(number, hash);
        }
    }

    /// Returns the bytes of log for adopting the duplicate of a durable job; 0 if there is none or a log has it.
    pub fn adoption_of(&mut self, tube: &[u8], dedup_key: &DedupKey, length: usize) -> u64 {
        match dedup_key {
            // Jobs with unique numbers, and those without a key, are never adopted.
            DedupKey::None | DedupKey::Id(_) => 0,
            _ => match self.find_duplicate(dedup_key, tube, length) {
                Ok(Some(slot)) => self.adoption(slot),
                _ => 0,
            },
        }
    }

    /// Returns the bytes of log for adopting the job in `slot`.
    pub(in crate::engine) fn adoption(&self, slot: u32) -> u64 {
        if self.store.jobs.get(slot).is_volatile() {
            self.adoption_size(slot)
        } else {
            0
        }
    }

    /// Handles a duplicate of the job in `slot`.
    pub(in crate::engine) fn coalesce(&mut self, slot: u32, durable: bool) -> Result<(), Refused> {
        let job = self.store.jobs.get(slot);
        if !durable || !job.is_volatile() {
            return Ok(());
        }
        if !self.claim_adoption(slot) {
            return Err(Refused::OutOfMemory);
        }
        self.store.jobs.get_mut(slot).set(JobFlag::Volatile, false);
        self.changed(Change::Adopt(slot));
        Ok(())
    }
}

/// Returns `true` if no submitter of the job would be notified of its outcome any more.
fn is_over(job: &Job) -> bool {
    job.state() == State::Buried
}
