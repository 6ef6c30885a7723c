//! Functions that tests, the simulation and fuzzing use to inspect the engine, and that the server does not need.
//!
//! Owns no data. Must not change the engine.
//!
//! Touches: agenda, clients, store, tubes.

use std::borrow::Cow;

use crate::engine::data::{
    Bodies, Deadlines, DedupKey, Deferred, EndedKeys, ExtrasStore, Hashed, Heap, Ids, JobCounts, JobExtras, Jobs, Past,
    PastJob, Pause, Schedules, Table, Time, TimerKey, NIL, URGENT,
};
use crate::engine::{ClientId, Engine, Job, JobId, OpenOperation, State, UNLIMITED};

/// The names of all kinds of deferred work. Tests cover all kinds.
pub const DEFERRED: [&str; 7] = ["disconnect", "search", "serve", "buried", "tell", "operation", "release"];

impl Engine {
    pub fn deferred_kinds(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.agenda.deferred.iter().map(|work| match work {
            Deferred::Disconnect(_) => DEFERRED[0],
            Deferred::Search(_) => DEFERRED[1],
            Deferred::Serve(_) => DEFERRED[2],
            Deferred::Buried(_) => DEFERRED[3],
            Deferred::Notify { .. } => DEFERRED[4],
            Deferred::LongCommand(_) => DEFERRED[5],
            Deferred::Release(_) => DEFERRED[6],
        })
    }

    pub fn watched(&self, client: ClientId) -> impl Iterator<Item = &[u8]> {
        let watched = &self.clients[client].watched;
        watched.iter().copied().map(|watch| &*self.tubes.get(self.clients.watches.get(watch).tube).name)
    }

    pub fn group_names(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        self.store.groups.table.items.iter().map(|(_, group)| group.name.text())
    }

    pub fn open_operations(&self) -> impl Iterator<Item = &OpenOperation> {
        self.agenda.open.values()
    }

    pub fn next_run(&self, id: JobId) -> Option<Time> {
        let slot = self.store.jobs.find(id).filter(|&slot| self.store.jobs.get(slot).state() == State::Scheduled)?;
        Some(self.store.schedules.order.key_at(self.store.jobs.get(slot).position()).0)
    }

    pub fn tube_pause(&self, name: &[u8]) -> Option<Pause> {
        self.pause_at(self.tubes.find(name)?).map(|(_, pause)| pause)
    }

    pub fn tube_limit(&self, name: &[u8]) -> Option<[u32; 3]> {
        Some(self.settings_at(self.tubes.find(name)?).map_or(UNLIMITED, |(_, settings)| settings.max_jobs))
    }
}

impl JobCounts {
    pub fn add(&mut self, job: &Job) {
        *self.of(job.state()) += 1;
        self.urgent += u64::from(job.state() == State::Ready && job.pri < URGENT);
    }
}

impl<K: Ord + Copy> Heap<K> {
    /// Panics unless the members are in heap order and have the right positions.
    pub fn check(&self, mut place_of: impl FnMut(u32) -> u32) {
        for (index, (key, member)) in self.entries.iter().enumerate() {
            assert_eq!(place_of(*member), self.left + index as u32, "a heap member has the wrong position");
            assert!(index == 0 || self.entries[(index - 1) / 4].0 <= *key, "a heap is out of order");
            assert!(index == 0 || !self.is_sorted || self.entries[index - 1].0 <= *key, "a sorted heap is unordered");
        }
    }
}

impl Bodies {
    pub fn counted(&self) -> usize {
        let pages = self.classes.iter().flat_map(|class| &class.pages);
        self.whole.len() + pages.map(|page| page.held as usize).sum::<usize>()
    }
}

impl Past {
    /// Recounts the bytes of the history.
    pub fn counted(&self) -> u64 {
        let texts = |job: &PastJob| job.tube.len() + job.reason.as_ref().map_or(0, |reason| reason.len());
        let entries = self.capacity * (size_of::<PastJob>() + 2 * size_of::<usize>())
            + self.jobs.iter().map(texts).sum::<usize>();
        (entries + size_of_val(&*self.points)) as u64
    }
}

impl Ids {
    pub fn counted(&self) -> usize {
        assert_eq!(self.rows.indexed as usize, self.rows.items.len(), "every row is in the index");
        let claims: usize = self.rows.items.iter().map(|(_, row)| row.claims.get() as usize - 1).sum();
        claims - usize::from(self.last != NIL)
    }
}

impl<T: Hashed, const N: usize> Table<T, N> {
    /// Recounts the bytes charged for all items.
    pub fn counted(&self) -> u64 {
        self.items.iter().map(|(_, item)| item.cost()).sum()
    }
}

impl ExtrasStore {
    /// Panics unless the expiry times are in order and the index is complete.
    pub fn check(&self) {
        self.ends.check(|number| self.get(number).position);
        let all = || self.table.items.iter().map(|(_, extras)| extras);
        assert!(all().all(|extras| extras.position == NIL || extras.expires != Time::NEVER));
        let timed = all().filter(|extras| extras.position != NIL).count();
        assert_eq!(self.ends.len(), timed, "only extras that expire may be in the order of ends");
        let keyed = || all().filter(|extras| extras.dedup_key != DedupKey::None);
        let found = |extras: &JobExtras| self.table.find(extras.hash, |other| std::ptr::eq(other, extras)).is_some();
        assert!(keyed().all(found), "extras are found by their dedup key");
        assert_eq!(self.table.indexed as usize, keyed().count(), "only extras with a key may be in the index");
    }
}

impl Schedules {
    pub fn check(&self, jobs: &Jobs) {
        self.order.check(|slot| jobs.get(slot).position());
        let len = self.table.items.len();
        assert_eq!((self.table.indexed as usize, self.order.len()), (len, len));
    }
}

impl EndedKeys {
    pub fn check(&self) {
        self.ends.check(|number| self.table.get(number).position);
        let len = self.table.items.len();
        assert_eq!((self.table.indexed as usize, self.ends.len()), (len, len));
    }
}

impl Deadlines {
    pub fn check(&self) {
        let mut positions = self.positions.clone();
        self.heap.check(|member| *positions.get(member));
    }

    pub fn all(&self) -> impl Iterator<Item = (Time, TimerKey)> + '_ {
        self.heap.iter().map(|((at, _), member)| (at, TimerKey::of(member)))
    }
}
