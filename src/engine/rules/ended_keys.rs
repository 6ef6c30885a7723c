//! Keys that outlive their jobs: for some time after the end of a job, no other job with its key is accepted.
//!
//! Owns when such a key begins and ends. Must not decide the reply to a duplicate.
//!
//! Touches: agenda, store, tubes.

use std::hash::Hasher;
use std::sync::Arc;

use crate::engine::data::{CompletionPolicy, DedupKey, EndedKey, JobId, Name, Outcome, Progress, Span, Time, TimerKey};
use crate::engine::log::Change;
use crate::engine::Engine;

impl Engine {
    /// Removes the ended job in `slot`. Its key may outlive the job.
    pub(in crate::engine) fn end_job(&mut self, slot: u32, outcome: Outcome, now: Time) {
        self.keep_key(slot, now);
        self.remove_job(slot, outcome);
        self.serve_unblocked(now);
    }

    /// Keeps the key of a job that is about to end. The log receives the key before the end of the job.
    fn keep_key(&mut self, slot: u32, now: Time) {
        let job = self.store.jobs.get(slot);
        if !job.is_bound() || job.completion != CompletionPolicy::Drop {
            return;
        }
        let (id, extras) = (job.id, self.store.extras.get(self.store.extras.of(slot)));
        let (keep, DedupKey::Name(key)) = (extras.result_at, &extras.dedup_key) else { return };
        if keep == 0 {
            return;
        }
        let (key, tube) = (key.clone(), self.tubes.get(job.tube).name.clone());
        let is_logged = self.claim_log_room(tube.len() + key.length());
        let (number, _) = self.add_key(id, tube, key, now + Span::from_secs(keep.into()), is_logged);
        if is_logged {
            self.changed(Change::KeyKept(number));
        }
    }

    /// Adds a key, and returns its number, and the number and length of the logged key that it replaces, if any.
    fn add_key(
        &mut self,
        id: JobId,
        tube: Arc<[u8]>,
        key: Name,
        until: Time,
        is_logged: bool,
    ) -> (u32, Option<(u32, usize)>) {
        let hash = self.hash_key(&tube, &key);
        let before = self.store.ended_keys.find(&tube, &key, hash).and_then(|number| self.forget_key(number));
        let number = self.store.ended_keys.insert(id, tube, key, hash, until, is_logged);
        self.retime_keys();
        (number, before)
    }

    /// Removes a key. Returns its number and the length of its names if it is in the log.
    fn forget_key(&mut self, number: u32) -> Option<(u32, usize)> {
        let gone = self.store.ended_keys.remove(number);
        if gone.is_logged {
            self.changed(Change::KeyGone { number, names: gone.names() });
        }
        self.retime_keys();
        gone.is_logged.then_some((number, gone.names()))
    }

    /// Removes the key that expires next.
    pub(in crate::engine) fn key_due(&mut self) {
        if let Some((_, number)) = self.store.ended_keys.ends.first() {
            self.forget_key(number);
        }
    }

    fn retime_keys(&mut self) {
        self.agenda.deadlines.set(TimerKey::Keys, self.store.ended_keys.next_end());
    }

    fn hash_key(&self, tube: &[u8], key: &Name) -> u32 {
        let mut hasher = self.tubes.hasher();
        hasher.write(tube);
        hasher.write_u8(b' ');
        hasher.write(key.key());
        hasher.finish() as u32
    }

    /// Returns the job of this tube that had this key, if it has ended and the key is still kept.
    pub(in crate::engine) fn find_ended(&self, tube: &[u8], key: &Name, now: Time) -> Option<JobId> {
        if self.store.ended_keys.table.items.len() == 0 {
            return None;
        }
        let number = self.store.ended_keys.find(tube, key, self.hash_key(tube, key))?;
        let ended = self.store.ended_keys.table.get(number);
        (ended.until > now).then_some(ended.id)
    }

    /// Returns all keys in the log that outlive their jobs.
    pub fn ended_keys(&self) -> impl Iterator<Item = &EndedKey> {
        self.store.ended_keys.table.items.iter().map(|(_, ended)| ended).filter(|ended| ended.is_logged)
    }

    /// Returns the number of the next key from `from` on, as far as the steps suffice, and moves `from` past it.
    pub fn next_ended_key(&mut self, from: &mut u32) -> (Progress, Option<u32>) {
        if self.agenda.steps.are_used_up() {
            return (Progress::More, None);
        }
        let found = self.store.ended_keys.table.items.next_from(*from);
        // The cost of a list line, as in `figures/pages.rs`.
        self.agenda.steps.take(4 + found.map_or(0, |number| u64::from(number - *from) / 64));
        *from = found.map_or(u32::MAX, |number| number + 1);
        (Progress::Done, found)
    }

    pub fn ended_key(&self, number: u32) -> &EndedKey {
        self.store.ended_keys.table.get(number)
    }

    /// Restores a key that outlives its job. Returns its number, and the number and length of the key that it replaces.
    pub fn restore_key(&mut self, id: JobId, tube: &[u8], key: &[u8], until: Time) -> (u32, Option<(u32, usize)>) {
        self.add_key(id, tube.into(), key.into(), until, true)
    }
}
