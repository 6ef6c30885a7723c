//! Dedup keys that outlive their jobs. Until the key expires, the tube accepts no other job with the key.
//!
//! Owns the creation and the expiry of keys without jobs. Must not decide the reply to a duplicate.
//!
//! Touches: agenda, store, tubes.

use std::hash::Hasher;
use std::sync::Arc;

use crate::engine::data::{
    CompletionPolicy, DedupKey, EndedKey, JobExtras, JobId, Name, Outcome, Progress, Span, Time, TimerKey,
};
use crate::engine::log::Change;
use crate::engine::Engine;

impl Engine {
    pub(in crate::engine) fn end_job(&mut self, slot: u32, outcome: Outcome, now: Time) {
        self.keep_key(slot, now);
        self.remove_job(slot, outcome);
        self.serve_unblocked(now);
    }

    /// The log must receive the key before the job is removed.
    fn keep_key(&mut self, slot: u32, now: Time) {
        let job = self.store.jobs.get(slot);
        let extras = self.extras_at(slot).filter(|_| job.completion == CompletionPolicy::Drop);
        let Some(JobExtras { result_at: keep @ 1.., dedup_key: DedupKey::Name(key), .. }) = extras else { return };
        let (id, keep) = (job.id, *keep);
        let (key, tube) = (key.clone(), self.tubes.get(job.tube).name.clone());
        let is_logged = self.claim_log_room(tube.len() + key.length());
        let (number, _) = self.add_key(id, tube, key, now + Span::from_secs(keep.into()), is_logged);
        if is_logged {
            self.changed(Change::KeyKept(number));
        }
    }

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

    /// Returns the number, and the length in bytes of key and tube name, if the key is in the log.
    fn forget_key(&mut self, number: u32) -> Option<(u32, usize)> {
        let gone = self.store.ended_keys.remove(number);
        if gone.is_logged {
            self.changed(Change::KeyGone { number, names: gone.names() });
        }
        self.retime_keys();
        gone.is_logged.then_some((number, gone.names()))
    }

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

    pub(in crate::engine) fn find_ended(&self, tube: &[u8], key: &Name, now: Time) -> Option<JobId> {
        if self.store.ended_keys.table.items.len() == 0 {
            return None;
        }
        let number = self.store.ended_keys.find(tube, key, self.hash_key(tube, key))?;
        let ended = self.store.ended_keys.table.get(number);
        (ended.until > now).then_some(ended.id)
    }

    pub fn ended_keys(&self) -> impl Iterator<Item = &EndedKey> {
        self.store.ended_keys.table.items.iter().map(|(_, ended)| ended).filter(|ended| ended.is_logged)
    }

    pub fn next_ended_key(&mut self, from: &mut u32) -> (Progress, Option<u32>) {
        if self.agenda.steps.are_used_up() {
            return (Progress::More, None);
        }
        let found = self.store.ended_keys.table.items.next_from(*from);
        // Charge the same steps as for a list entry in `figures/pages.rs`.
        self.agenda.steps.take(4 + found.map_or(0, |number| u64::from(number - *from) / 64));
        *from = found.map_or(u32::MAX, |number| number + 1);
        (Progress::Done, found)
    }

    pub fn ended_key(&self, number: u32) -> &EndedKey {
        self.store.ended_keys.table.get(number)
    }

    /// Returns the number of the key. For a replaced key, also returns its number and the length of its names in bytes.
    pub fn restore_key(&mut self, id: JobId, tube: &[u8], key: &[u8], until: Time) -> (u32, Option<(u32, usize)>) {
        self.add_key(id, tube.into(), key.into(), until, true)
    }
}
