//! Dedup keys: which job is the duplicate of one that is submitted again.
//!
//! Owns how keys are hashed, looked for and forgotten, and what it means to submit a duplicate. Must not make jobs.
//!
//! Promises: P26, P27.
//! Touches: agenda, limits, store, tubes.

use std::hash::{BuildHasher, Hasher};

use crate::engine::data::job::{Job, JobId, State};
use crate::engine::data::job_extras::JobExtras;
use crate::engine::data::job_options::{DedupKey, Fingerprints};
use crate::engine::data::steps::MOVE;
use crate::engine::log::change::Change;
use crate::engine::{Engine, Refused};

/// Extras that a search by name looks at. The same name in more tubes than this is refused, unless keys are those of a
/// tube: names are one index for all tubes, and each search would have to pass all of them.
pub(in crate::engine) const LOOKS: u64 = 4096;

impl Engine {
    /// What takes fingerprints of bodies that are to be submitted.
    pub fn fingerprints(&self) -> Fingerprints {
        Fingerprints::new(self.limits.hash_secret)
    }

    /// Names are hashed without their tubes, so that they can be looked for in all, unless keys are those of a tube.
    /// The key of a job that is `hidden` is hashed with its number, so that nobody finds it.
    pub(in crate::engine) fn hash_dedup_key(&self, dedup_key: &DedupKey, tube: u32, hidden: Option<JobId>) -> u64 {
        let mut hasher = self.tubes.hasher().build_hasher();
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

    /// The existing job with the same dedup key; by a fingerprint of the body, only one of the same length.
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

    /// The first job with this dedup key, which has this hash, that is meant, by its slot.
    pub(in crate::engine) fn find_with_key(
        &mut self,
        dedup_key: &DedupKey,
        hash: u64,
        mut is_meant: impl FnMut(u32, &Job) -> bool,
    ) -> Result<Option<u32>, Refused> {
        let mut looks = 0;
        let matches = |extras: &JobExtras| {
            looks += 1;
            // Others in the chain are no reason to fetch their jobs.
            if looks > LOOKS || extras.dedup_key != *dedup_key {
                return looks > LOOKS;
            }
            is_meant(extras.slot, self.store.jobs.get(extras.slot))
        };
        let found = self.store.extras.find(hash, matches).map(|number| self.store.extras.get(number).slot);
        self.agenda.steps.take(looks / MOVE);
        if looks > LOOKS {
            return Err(Refused::OutOfMemory);
        }
        Ok(found)
    }

    /// The job with this number that no other may have.
    pub fn find_id(&self, id: &[u8; 16]) -> Option<JobId> {
        let dedup_key = DedupKey::Id(*id);
        let number =
            self.store.extras.find(self.hash_dedup_key(&dedup_key, 0, None), |extras| extras.dedup_key == dedup_key)?;
        Some(self.store.jobs.get(self.store.extras.get(number).slot).id)
    }

    /// The oldest job that was submitted with this name, in any tube that the caller `sees`.
    pub fn find_name(&self, name: &[u8], sees: impl Fn(&[u8]) -> bool) -> Option<JobId> {
        let dedup_key = DedupKey::Name(name.into());
        if !self.limits.keys_per_tube {
            return self.oldest_named(&dedup_key, 0, |tube| sees(&self.tubes.get(tube).name));
        }
        let seen = self.tubes.iter().take(LOOKS as usize).filter(|(_, tube)| sees(&tube.name));
        seen.filter_map(|(number, _)| self.oldest_named(&dedup_key, number, |tube| tube == number)).min()
    }

    /// The oldest job with this key, by the hash that the key has in `tube`, that is in a tube that is meant.
    fn oldest_named(&self, dedup_key: &DedupKey, tube: u32, is_meant: impl Fn(u32) -> bool) -> Option<JobId> {
        let hash = self.hash_dedup_key(dedup_key, tube, None);
        let (mut oldest, mut looks) = (None, 0);
        // Looks through all of that name, or as many as one call may, by matching none before.
        self.store.extras.find(hash, |extras| {
            looks += 1;
            if extras.dedup_key == *dedup_key {
                let job = self.store.jobs.get(extras.slot);
                if is_meant(job.tube) && !job.is_dead_letter() {
                    oldest = Some(oldest.map_or(job.id, |oldest: JobId| oldest.min(job.id)));
                }
            }
            looks > LOOKS
        });
        oldest
    }

    /// The job in `slot`, whose key may be that of others in its tube, has just been buried, or is about to be no
    /// longer. Of the buried jobs of one key only one is found by it, and of the others that were buried before only
    /// one, so that a search does not pass many. Clients of Gearman submit again what is buried, without end. A dead
    /// letter is not found by its key, which others may use in the meantime.
    pub(in crate::engine) fn reveal_one(&mut self, slot: u32, is_buried: bool) {
        let job = self.store.jobs.get(slot);
        let (tube, id, length, is_dead) = (job.tube, job.id, job.body.len(), job.is_dead_letter());
        let Some(extras) = self.extras(job) else { return };
        let dedup_key = match &extras.dedup_key {
            DedupKey::None | DedupKey::Id(_) => return,
            // Nobody looks for a job without a body.
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

    /// Bytes of log that a durable job needs for its duplicate, if that is in no log yet, whatever its own body takes.
    pub fn adoption_of(&mut self, tube: &[u8], dedup_key: &DedupKey, length: usize) -> u64 {
        match dedup_key {
            // Of those that no two jobs may share, none is adopted.
            DedupKey::None | DedupKey::Id(_) => 0,
            _ => match self.find_duplicate(dedup_key, tube, length) {
                Ok(Some(slot)) => self.adoption(slot),
                _ => 0,
            },
        }
    }

    /// The same for the job in `slot`.
    pub(in crate::engine) fn adoption(&self, slot: u32) -> u64 {
        if self.store.jobs.get(slot).is_volatile() {
            self.adoption_size(slot)
        } else {
            0
        }
    }

    /// Somebody submits again what is in `slot`.
    pub(in crate::engine) fn coalesce(&mut self, slot: u32, durable: bool) -> Result<(), Refused> {
        let job = self.store.jobs.get(slot);
        if !durable || !job.is_volatile() {
            return Ok(());
        }
        if !self.claim_adoption(slot) {
            return Err(Refused::OutOfMemory);
        }
        self.store.jobs.get_mut(slot).set_volatile(false);
        self.changed(Change::Adopt(slot));
        Ok(())
    }
}

/// Whether nobody would be told any more of what becomes of a job whose submitters are told.
fn is_over(job: &Job) -> bool {
    job.state() == State::Buried
}
