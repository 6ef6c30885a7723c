//! Dedup keys: lookup, the effect of a duplicate on the existing job, and keys that outlive their jobs. The tube
//! accepts no other job with such a key until the key expires. Must not create jobs.
//! Enforces promises P26 and P27 of beanpole-promises(7).
//! Touches: agenda, limits, store, tubes.

use std::hash::Hasher;
use std::sync::Arc;

use crate::engine::data::*;
use crate::engine::log::Change;
use crate::engine::{Engine, Refused, Steps};

/// Maximum number of extras read per lookup. Unless keys are unique per tube, a name is refused if more tubes use it.
pub(in crate::engine) const MAX_CHECKED: u64 = 4096;

/// The steps charged for a search by name in all tubes at once.
const SEARCH: u64 = 64;

/// The number of a key that was removed from the log, and the length of its names in bytes.
type GoneKey = Option<(u32, usize)>;

#[derive(Clone, Debug, Default)]
pub struct NameSearch {
    pub found: Option<JobId>,
    /// The number of remaining tubes, or `None` before the first call.
    left: Option<usize>,
}

impl Engine {
    pub fn fingerprints(&self) -> Fingerprints {
        Fingerprints::new(self.limits.hash_secret)
    }

    /// The hash of a name includes `tube` only if keys are unique per tube. Otherwise, lookups must find the name in
    /// all tubes. The hash of a `hidden` job includes its ID, so that no lookup finds the job.
    pub(in crate::engine) fn hash_dedup_key(&self, dedup_key: &DedupKey, tube: u32, hidden: Option<JobId>) -> u64 {
        let mut hasher = self.tubes.hasher.clone();
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

    /// A fingerprint matches only bodies of the same `length` in bytes.
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
        let found = self.find_with_key(dedup_key, hash, |_, job| match dedup_key {
            DedupKey::None => false,
            DedupKey::Id(_) => true,
            // A new job is needed, because no worker will report the outcome of a buried job.
            _ if job.state() == State::Buried => false,
            DedupKey::Name(_) => Some(job.tube) == number,
            DedupKey::Body(_) => Some(job.tube) == number && job.body.len() == length,
        })?;
        Ok(found.or_else(|| self.first_twin((hash, number?, false))))
    }

    /// Returns the oldest job with the key. Prefers jobs that are not buried, and ignores dead letters.
    pub(in crate::engine) fn find_keyed(&mut self, dedup_key: &DedupKey, number: u32) -> Result<Option<u32>, Refused> {
        let hash = self.hash_dedup_key(dedup_key, number, None);
        let mut buried = None;
        let live = self.find_with_key(dedup_key, hash, |slot, job| {
            let (is_meant, is_buried) = (job.tube == number && !job.is_dead_letter(), job.state() == State::Buried);
            buried = buried.or((is_meant && is_buried).then_some(slot));
            is_meant && !is_buried
        })?;
        let twin = |is_buried| self.first_twin((hash, number, is_buried));
        Ok(live.or_else(|| twin(false)).or(buried).or_else(|| twin(true)))
    }

    /// Fails if more than [`MAX_CHECKED`] extras must be checked.
    pub(in crate::engine) fn find_with_key(
        &mut self,
        dedup_key: &DedupKey,
        hash: u64,
        mut is_meant: impl FnMut(u32, &Job) -> bool,
    ) -> Result<Option<u32>, Refused> {
        let mut checked = 0;
        let matches = |extras: &JobExtras| {
            checked += 1;
            // Compare the key before fetching the job, because different keys can have the same hash.
            if checked > MAX_CHECKED || extras.dedup_key != *dedup_key {
                return checked > MAX_CHECKED;
            }
            is_meant(extras.slot, self.store.jobs.get(extras.slot))
        };
        let found = self.store.extras.find(hash, matches).map(|number| self.store.extras.get(number).slot);
        self.agenda.steps.take(checked / MOVE);
        ensure!(checked <= MAX_CHECKED, Refused::OutOfMemory);
        Ok(found)
    }

    pub fn find_id(&self, id: &[u8; 16]) -> Option<JobId> {
        let dedup_key = DedupKey::Id(*id);
        let hash = self.hash_dedup_key(&dedup_key, 0, None);
        let number = self.store.extras.find(hash, |extras| extras.dedup_key == dedup_key)?;
        Some(self.store.jobs.get(self.store.extras.get(number).slot).id)
    }

    /// Finds the oldest job named `name`, except for dead letters, in a tube for which `sees` returns `true`.
    pub fn find_name(
        &self,
        name: &[u8],
        sees: impl Fn(&[u8]) -> bool,
        search: &mut NameSearch,
        steps: &mut Steps,
    ) -> Progress {
        let dedup_key = DedupKey::Name(name.into());
        if !self.limits.keys_per_tube {
            steps.take(SEARCH);
            search.found = self.oldest_named(&dedup_key, 0, MAX_CHECKED, |job| sees(&self.tubes.get(job.tube).name));
            return Progress::Done;
        }
        // Search from the last tube to the first: closing a tube between calls moves only the last tube.
        let last = search.left.unwrap_or(usize::MAX).min(self.tubes.len());
        for index in (0..last).rev() {
            if steps.are_used_up() {
                search.left = Some(index + 1);
                return Progress::More;
            }
            steps.take(TUBE);
            let number = self.tubes.order[index];
            if sees(&self.tubes.get(number).name) {
                let found = self.oldest_named(&dedup_key, number, MAX_CHECKED, |job| job.tube == number);
                search.found = [search.found, found].into_iter().flatten().min();
            }
        }
        Progress::Done
    }

    /// Prefers jobs that are not buried. Checks few extras, because listing schedules calls this method many times.
    pub(in crate::engine) fn copy_of(&self, tube: u32, name: &Name) -> Option<JobId> {
        let key = DedupKey::Name(name.clone());
        let is_live = |job: &Job| job.tube == tube && job.state() != State::Buried;
        self.oldest_named(&key, tube, 32, is_live).or_else(|| self.oldest_named(&key, tube, 32, |it| it.tube == tube))
    }

    /// The hash includes `tube` if keys are unique per tube.
    fn oldest_named(&self, key: &DedupKey, tube: u32, limit: u64, is_meant: impl Fn(&Job) -> bool) -> Option<JobId> {
        let hash = self.hash_dedup_key(key, tube, None);
        let (mut oldest, mut checked) = (None, 0);
        // Return `false` to visit all extras with this hash, and `true` to stop after `limit`.
        self.store.extras.find(hash, |extras| {
            checked += 1;
            let found = (extras.dedup_key == *key).then(|| self.store.jobs.get(extras.slot));
            if let Some(job) = found.filter(|job| is_meant(job) && !job.is_dead_letter()) {
                oldest = Some(oldest.map_or(job.id, |oldest: JobId| oldest.min(job.id)));
            }
            checked > limit
        });
        oldest
    }

    /// Returns `None` if the job's key is never looked up within a tube.
    pub(in crate::engine) fn family_of(&self, slot: u32, is_buried: bool) -> Option<Family> {
        let (job, key) = (self.store.jobs.get(slot), &self.extras_at(slot)?.dedup_key);
        // `find_duplicate` never looks up empty bodies.
        let has_family = matches!(key, DedupKey::Name(_)) || matches!(key, DedupKey::Body(_)) && job.body.len() > 0;
        has_family.then(|| (self.hash_dedup_key(key, job.tube, None), job.tube, is_buried))
    }

    /// Updates the family of a job that has entered (`is_buried`) or is about to leave the buried state.
    pub(in crate::engine) fn change_family(&mut self, slot: u32, is_buried: bool) {
        self.leave_family(slot, !is_buried);
        self.join_family(slot, is_buried);
    }

    /// Removes the job from its family, if any. Lookups find the job until it joins another family or loses its key.
    pub(in crate::engine) fn leave_family(&mut self, slot: u32, is_buried: bool) {
        let has_twins = !self.store.twins.is_empty();
        let Some(family) = has_twins.then(|| self.family_of(slot, is_buried)).flatten() else { return };
        self.agenda.steps.take(MOVE);
        let id = self.store.jobs.get(slot).id;
        if !self.store.set_twin(family, id, false) {
            self.settle(family, slot, None);
        }
    }

    /// The job must be in no family. Hides dead letters from lookups, because new jobs may reuse their keys.
    pub(in crate::engine) fn join_family(&mut self, slot: u32, is_buried: bool) {
        let Some(family) = self.family_of(slot, is_buried) else { return };
        let job = self.store.jobs.get(slot);
        if job.is_dead_letter() {
            let number = self.store.extras.of(slot);
            let hash = self.hash_dedup_key(&self.store.extras.get(number).dedup_key, job.tube, Some(job.id));
            return self.store.extras.rehash(number, hash);
        }
        self.settle(family, slot, Some(slot));
    }

    /// Makes lookups find only the oldest job of `family`. The job in `slot` belongs to it only if `new` is `slot`.
    fn settle(&mut self, family: Family, slot: u32, new: Option<u32>) {
        let (hash, tube, is_buried) = family;
        let key = self.store.extras.get(self.store.extras.of(slot)).dedup_key.clone();
        let shown = self.find_with_key(&key, hash, |other, job| {
            let is_alike = (job.state() == State::Buried) == is_buried && !job.is_dead_letter();
            other != slot && job.tube == tube && is_alike
        });
        // If too many tubes use the key, hide the job as a twin. Lookups fail until fewer tubes use the key.
        let others = shown.map(|shown| [shown, self.first_twin(family)]);
        let members = others.unwrap_or_default().into_iter().flatten().chain(new);
        let oldest = members.clone().min_by_key(|&slot| self.store.jobs.get(slot).id).filter(|_| others.is_ok());
        for member in members {
            let (number, id) = (self.store.extras.of(member), self.store.jobs.get(member).id);
            let hidden = (Some(member) != oldest).then_some(id);
            self.store.set_twin(family, id, hidden.is_some());
            self.store.extras.rehash(number, self.hash_dedup_key(&key, tube, hidden));
        }
    }

    /// Returns `true` if a kick of the job needs memory that the server does not have.
    pub(in crate::engine) fn lacks_memory_for_twin(&mut self, slot: u32) -> bool {
        if self.has_memory(TWIN_COST) || !self.store.jobs.get(slot).is_dead_letter() {
            return false;
        }
        let Some((hash, tube, _)) = self.family_of(slot, false) else { return false };
        let key = self.store.extras.get(self.store.extras.of(slot)).dedup_key.clone();
        let other = self.find_with_key(&key, hash, |_, job| job.tube == tube && job.state() != State::Buried);
        other != Ok(None)
    }

    fn first_twin(&self, family: Family) -> Option<u32> {
        let key = family_key(family);
        let (_, id) = self.store.twins.range((key, JobId(0))..).next().filter(|(other, _)| *other == key)?;
        self.store.jobs.find(*id)
    }

    pub fn persist_size_of(&mut self, tube: &[u8], dedup_key: &DedupKey, length: usize) -> u64 {
        match dedup_key {
            // A duplicate ID is refused, and a job without a key has no duplicate.
            DedupKey::None | DedupKey::Id(_) => 0,
            _ => self.find_duplicate(dedup_key, tube, length).ok().flatten().map_or(0, |slot| self.persist_size(slot)),
        }
    }

    pub(in crate::engine) fn coalesce(&mut self, slot: u32, durable: bool) -> Result<(), Refused> {
        let job = self.store.jobs.get(slot);
        if !durable || !job.is_volatile() {
            return Ok(());
        }
        ensure!(self.claim_persist(slot), Refused::OutOfMemory);
        self.store.jobs.get_mut(slot).set(JobFlag::Volatile, false);
        self.changed(Change::Persist(slot));
        Ok(())
    }

    pub(in crate::engine) fn end_job(&mut self, slot: u32, outcome: Outcome, now: Time) {
        self.keep_key(slot, now);
        self.remove_job(slot, outcome);
        self.serve_unblocked(now);
    }

    /// The log must receive the key before the job is removed.
    fn keep_key(&mut self, slot: u32, now: Time) {
        let job = self.store.jobs.get(slot);
        let it = self.extras_at(slot).filter(|_| job.completion == CompletionPolicy::Drop);
        let Some(JobExtras { keep_or_offset: keep @ 1.., dedup_key: DedupKey::Name(key), .. }) = it else { return };
        let (id, keep) = (job.id, *keep);
        let (key, tube) = (key.clone(), self.tubes.get(job.tube).name.clone());
        let is_logged = self.claim_log_room(tube.len() + key.length());
        let (number, _) = self.add_key(id, tube, key, now + Span::from_secs(keep.into()), is_logged);
        if is_logged {
            self.changed(Change::KeyKept(number));
        }
    }

    /// Returns the key's number, and the older key that was replaced, if any.
    pub fn add_key(&mut self, id: JobId, tube: Arc<[u8]>, key: Name, until: Time, is_logged: bool) -> (u32, GoneKey) {
        let hash = self.hash_key(&tube, &key);
        let before = self.store.ended_keys.find(&tube, &key, hash).and_then(|number| self.forget_key(number));
        let number = self.store.ended_keys.insert(id, tube, key, hash, until, is_logged);
        self.retime_keys();
        (number, before)
    }

    pub(in crate::engine) fn forget_key(&mut self, number: u32) -> GoneKey {
        let gone = self.store.ended_keys.remove(number);
        if gone.is_logged() {
            self.changed(Change::KeyGone { number, names: gone.names() });
        }
        self.retime_keys();
        gone.is_logged().then_some((number, gone.names()))
    }

    pub(in crate::engine) fn key_due(&mut self) {
        if let Some((_, number)) = self.store.ended_keys.ends.first() {
            self.forget_key(number);
        }
    }

    fn retime_keys(&mut self) {
        self.agenda.deadlines.set(TimerKey::Keys, self.store.ended_keys.ends.first().map_or(Time::NEVER, |(at, _)| at));
    }

    /// Leaves the highest bit free for [`EndedKey::is_logged`].
    fn hash_key(&self, tube: &[u8], key: &Name) -> u32 {
        let mut hasher = self.tubes.hasher.clone();
        hasher.write(tube);
        hasher.write_u8(b' ');
        hasher.write(key.key());
        hasher.finish() as u32 >> 1
    }

    pub(in crate::engine) fn find_ended(&self, tube: &[u8], key: &Name, now: Time) -> Option<JobId> {
        let keys = Some(&self.store.ended_keys).filter(|keys| keys.table.items.len() > 0)?;
        let ended = keys.table.get(keys.find(tube, key, self.hash_key(tube, key))?);
        (ended.until > now).then_some(ended.id)
    }

    pub fn ended_keys(&self) -> impl Iterator<Item = &EndedKey> {
        self.store.ended_keys.table.items.iter().map(|(_, ended)| ended).filter(|ended| ended.is_logged())
    }

    pub fn next_ended_key(&mut self, from: &mut u32) -> (Progress, Option<u32>) {
        if self.agenda.steps.are_used_up() {
            return (Progress::More, None);
        }
        let found = self.store.ended_keys.table.items.next_from(*from);
        // Charge as many steps as for a list entry in `figures/pages.rs`.
        self.agenda.steps.take(4 + found.map_or(0, |number| u64::from(number - *from) / 64));
        *from = found.map_or(u32::MAX, |number| number + 1);
        (Progress::Done, found)
    }

    pub fn ended_key(&self, number: u32) -> &EndedKey {
        self.store.ended_keys.table.get(number)
    }
}
