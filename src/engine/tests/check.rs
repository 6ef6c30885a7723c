//! Brute-force checks of all invariants of the engine.
//!
//! Owns no data, and must not change the engine. Tests, the simulation and fuzzing run the checks after every call. The
//! cost is proportional to the number of items in the engine.
//!
//! Touches: agenda, clients, store, tubes.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::data::{
    family_key, priority_class, Account, ClientId, ClientState, CompletionPolicy, Deferred, Family, Handle, IdleState,
    Job, JobCounts, JobFlag, JobId, List, OldestIds, ReservePolicy, State, Time, TimerKey, Tube, DEFAULT_TUBE,
    LANE_COST, MEMBER_COST, NIL, TWIN_COST, WAIT_COST, WATCH_COST,
};
use crate::engine::rules::dedup::MAX_CHECKED;
use crate::engine::{Engine, JOB_COST, TUBE_COST};

impl Engine {
    pub fn check(&self) {
        self.check_jobs();
        self.check_oldest(|_| true, self.store.oldest);
        self.tubes.iter().for_each(|(number, tube)| self.check_tube(number, tube));
        self.clients.iter().for_each(|(number, _)| self.check_client(number));
        self.check_extras();
        self.check_families();
        self.check_lanes();
        self.check_groups();
        self.check_schedules();
        self.check_deadlines();
        self.check_deferred();
        self.check_sums();
        self.check_origins();
        self.check_links();
    }

    fn check_jobs(&self) {
        assert_eq!(self.store.jobs.slots.iter().count(), self.store.jobs.len(), "every job is counted");
        assert_eq!(
            (self.store.jobs.ids.counted(), self.store.jobs.bodies.counted()),
            (self.store.jobs.len(), self.store.jobs.len()),
            "every job must have one ID and one body"
        );
        for (slot, job) in self.store.jobs.slots.iter() {
            assert_eq!(self.store.jobs.find(job.id), Some(slot), "{:?} is found by its id", job.id);
            assert!(job.id.0 <= self.store.last_id, "{:?} was never assigned", job.id);
            let is_dead = job.state() == State::Buried && job.holder != NIL;
            assert!(!is_dead || self.store.origins.name(job.holder).is_some(), "{:?} has no original tube", job.id);
            let has_holder = matches!(job.state(), State::Reserved | State::Scheduled) || is_dead;
            assert_eq!(has_holder, job.holder != NIL, "{:?} has the wrong holder", job.id);
            assert!(job.state() == State::Ready || !job.has(JobFlag::InRun), "{:?} is not ready, but in a run", job.id);
        }
    }

    fn check_schedules(&self) {
        self.store.schedules.check(&self.store.jobs);
        self.store.ended_keys.check();
        for (slot, job) in self.store.jobs.slots.iter().filter(|(_, job)| job.state() == State::Scheduled) {
            let schedule = self.store.schedules.get(job.holder);
            assert_eq!(schedule.slot, slot, "a schedule and its job belong together");
            assert_eq!(self.find_schedule(job.tube, &schedule.name), Some(job.holder), "a name is unique in its tube");
            assert!(job.is_tied() && schedule.recurrence().is_some());
        }
    }

    fn check_origins(&self) {
        for (number, (_, letters)) in self.store.origins.names.iter() {
            let dead = |job: &Job| job.state() == State::Buried && job.holder == number as u32;
            let count = self.store.jobs.slots.iter().filter(|(_, job)| dead(job)).count();
            assert_eq!(*letters as usize, count, "dead letters of an origin");
        }
    }

    fn check_links(&self) {
        let tubes = self.tubes.iter().filter_map(|(number, tube)| Some((number, tube, self.tubes.dead_of(number)?)));
        let links = tubes.map(|(number, tube, dead)| (dead.clone(), self.tubes.rank(&tube.name), number));
        let links: BTreeSet<_> = links.collect();
        assert!(self.tubes.links.iter().eq(&links), "the links to dead-letter tubes: {:?}", self.tubes.links);
    }

    fn check_tube(&self, number: u32, tube: &Tube) {
        let name = String::from_utf8_lossy(&tube.name);
        assert_eq!(self.tubes.find(&tube.name), Some(number), "tube {name} is found by its name");
        let mut counts = JobCounts::default();
        for (_, job) in self.store.jobs.slots.iter().filter(|(_, job)| job.tube == number) {
            counts.add(job);
        }
        assert_eq!(tube.counts, counts, "the counts of tube {name}");
        self.check_priority_classes(number, tube);
        self.check_queues(number, tube);
        let expect = |slot: u32, state: State| {
            let job = self.store.jobs.get(slot);
            assert_eq!((job.tube, job.state()), (number, state), "{:?} is in a queue of {name}", job.id);
        };
        for (large, queue) in [(false, Some(&tube.ready)), (true, tube.large.as_deref())] {
            for slot in queue.into_iter().flat_map(|queue| queue.iter(&self.store.jobs)) {
                expect(slot, State::Ready);
                assert_eq!(
                    self.is_large(self.store.jobs.get(slot)),
                    large,
                    "a ready job of {name} is in the wrong queue"
                );
            }
        }
        tube.buried.iter(&self.store.jobs).for_each(|slot| expect(slot, State::Buried));
        for (key, slot) in tube.delayed.iter() {
            expect(slot, State::Delayed);
            assert_eq!(key, self.store.jobs.get(slot).due_key(), "the delay of a job in {name}");
        }
        self.check_oldest(|job| job.tube == number, tube.oldest);
        let parked: usize = self
            .store
            .lanes
            .lanes
            .iter()
            .filter(|(_, lane)| lane.tube == number)
            .map(|(_, lane)| lane.parked.len())
            .sum();
        let lengths = [tube.ready.len() + tube.large_jobs() + parked, tube.buried.len(), tube.delayed.len()];
        assert_eq!(lengths.map(|len| len as u64), [counts.ready, counts.buried, counts.delayed], "{name}");
        for reserve_policy in [ReservePolicy::PerConnection, ReservePolicy::Lease] {
            let may_wait = tube.closed || tube.first(reserve_policy, &self.store.jobs).is_none() || tube.serving;
            assert!(
                may_wait || !self.has_waiting(queue_of(tube, reserve_policy)),
                "tube {name} has both a ready job and a waiting client"
            );
        }
        let lives = number == DEFAULT_TUBE || tube.kept || tube.rules.is_some() || tube.using + tube.watching > 0;
        let lives = lives || counts.all() + counts.scheduled + counts.finished > 0;
        assert!(lives, "tube {name} must not exist");
    }

    /// Checks that no ready, delayed or buried job accepted by `counted` has an ID below the bound in `oldest`.
    fn check_oldest(&self, counted: impl Fn(&Job) -> bool, oldest: OldestIds) {
        for (_, job) in self.store.jobs.slots.iter().filter(|(_, job)| counted(job)) {
            match job.state() {
                State::Ready => assert!(job.id.0 >= oldest.0[OldestIds::READY], "an older ready job"),
                State::Delayed => assert!(job.id.0 >= oldest.0[OldestIds::DELAYED], "an older delayed job"),
                State::Buried => assert!(job.id.0 >= oldest.0[OldestIds::BURIED], "an older buried job"),
                _ => {}
            }
        }
    }

    fn check_queues(&self, number: u32, tube: &Tube) {
        for ready in [Some(&tube.ready), tube.large.as_deref()].into_iter().flatten() {
            let keys: Vec<_> =
                ready.in_order(&self.store.jobs).map(|slot| self.store.jobs.get(slot).ready_key()).collect();
            assert_eq!(keys.len(), ready.len());
            assert!(keys.is_sorted_by(|one, next| one < next), "ready jobs are out of order");
            assert_eq!(
                ready.first(&self.store.jobs).map(|slot| self.store.jobs.get(slot).ready_key()),
                keys.first().copied()
            );
        }
        tube.delayed.check(|slot| self.store.jobs.get(slot).position());
        let buried: Vec<Time> = tube.buried.iter(&self.store.jobs).map(|slot| self.store.jobs.get(slot).due).collect();
        assert!(buried.is_sorted_by(|one, next| one < next), "buried jobs are out of order");
        assert!(buried.last().is_none_or(|last| last.nanos() <= self.store.last_bury));
        let queues = [ReservePolicy::PerConnection, ReservePolicy::Lease, ReservePolicy::Notified]
            .map(|reserve_policy| queue_of(tube, reserve_policy));
        for watch in queues.into_iter().flat_map(|queue| queue.iter(&self.clients.watches)) {
            let watch = self.clients.watches.get(watch);
            assert_eq!(watch.tube, number, "a watch is in the queue of another tube");
            assert_ne!(watch.wait, 0, "a queued watch has no wait number");
        }
        assert_eq!(tube.pause.is_some(), self.tubes.paused.contains(&number), "a paused tube is listed");
        let is_closed = tube.pause.is_some() || self.is_exhausted(number);
        assert_eq!(tube.closed, is_closed, "a tube is closed while something closes it");
    }

    /// Returns `true` if a client waits or is idle in this queue. Ignores watches of earlier waits.
    fn has_waiting(&self, queue: &List) -> bool {
        queue.iter(&self.clients.watches).map(|watch| self.clients.watches.get(watch)).any(|watch| {
            let client = &self.clients[ClientId(watch.client)];
            client.is_queued(watch)
        })
    }

    fn check_priority_classes(&self, number: u32, tube: &Tube) {
        let mut priority_classes = [0; 3];
        let queued = |job: &&Job| job.tube == number && matches!(job.state(), State::Ready | State::Delayed);
        let jobs = self.store.jobs.slots.iter().map(|(_, job)| job);
        jobs.filter(queued).for_each(|job| priority_classes[priority_class(job.pri)] += 1);
        assert_eq!(tube.priority_classes, priority_classes, "the priority classes of a tube");
        let watched_by_active = |client: &ClientState| {
            let searches = client.search.is_some() || client.idle_state != IdleState::Idle;
            searches && client.watched.contains(number, &self.clients.watches)
        };
        let somebody_active = || self.clients.iter().any(|(_, client)| watched_by_active(client));
        let nothing_to_do =
            tube.closed || tube.first(ReservePolicy::Notified, &self.store.jobs).is_none() || tube.serving;
        let nothing_to_do = nothing_to_do || !self.has_waiting(&tube.idle);
        assert!(nothing_to_do || somebody_active(), "a tube has a ready job, but all its workers are idle");
    }

    fn check_extras(&self) {
        let bound = self.store.jobs.slots.iter().filter(|(_, job)| job.is_bound()).count();
        let left = self.store.extras.table.items.iter().filter(|(number, _)| self.store.extras.is_left(*number));
        let left: Vec<(u32, usize)> = left.map(|(number, extras)| (number, extras.submitters())).collect();
        assert_eq!(self.store.extras.table.items.len(), bound + left.len(), "all extras must belong to a job");
        for &(number, _) in &left {
            let notifies = |work: &Deferred| matches!(work, Deferred::Notify { extras, .. } if *extras == number);
            assert!(self.agenda.deferred.iter().any(notifies), "clients of extras {number} are never notified");
        }
        let mut attached = left.iter().map(|(_, submitters)| submitters).sum();
        for (slot, job) in self.store.jobs.slots.iter().filter(|(_, job)| job.is_bound()) {
            let number = self.store.extras.of(slot);
            let extras = self.store.extras.get(number);
            assert_eq!(extras.slot, slot, "{:?} and its extras must refer to each other", job.id);
            attached += extras.submitters();
            let ends = extras.expires != Time::NEVER;
            let spared =
                job.completion != CompletionPolicy::Keep && matches!(job.state(), State::Reserved | State::Buried);
            assert!(ends || extras.position == NIL, "{:?} has no time to live", job.id);
            assert!(!ends || spared || extras.position != NIL, "{:?} would never expire", job.id);
            for client in self.store.extras.attached(number) {
                assert!(self.clients.get(client).is_some(), "{:?} is awaited by a missing client", job.id);
            }
            assert!(job.state() != State::Finished || extras.submitters() == 0, "{:?} is finished but awaited", job.id);
        }
        self.store.extras.check();
        assert_eq!(self.store.extras.attachments.0.len(), attached);
        let listed: usize = self.clients.iter().map(|(_, client)| client.attached.len()).sum();
        assert_eq!(listed, attached, "clients must list all their attachments");
    }

    /// Checks that all jobs of a family except the oldest are twins, and that a lookup by hash finds each job that is
    /// not a twin. If there are so many jobs that lookups may fail, the oldest job may also be a twin.
    fn check_families(&self) {
        let mut families: BTreeMap<Family, Vec<JobId>> = BTreeMap::new();
        for (slot, job) in self.store.jobs.slots.iter().filter(|(_, job)| !job.is_dead_letter()) {
            if let Some(family) = self.family_of(slot, job.state() == State::Buried) {
                families.entry(family).or_default().push(job.id);
            }
        }
        let mut twins = 0;
        let may_fail = self.store.jobs.len() as u64 > MAX_CHECKED;
        for (family, mut ids) in families {
            ids.sort_unstable();
            let twins_before = twins;
            for (position, id) in ids.iter().enumerate() {
                let slot = self.store.jobs.find(*id).expect("a job");
                let is_shown = self.extras_at(slot).is_some_and(|extras| extras.hash == (family.0 >> 32) as u32);
                let is_twin = self.store.twins.contains(&(family_key(family), *id));
                assert_ne!(is_shown, is_twin, "{id:?} must be found by its hash or as a twin");
                assert!(
                    may_fail || is_twin != (position == 0),
                    "{id:?}: only the oldest job must be found by its hash"
                );
                twins += usize::from(is_twin);
            }
            assert!(twins - twins_before + 1 >= ids.len(), "several jobs of a family are found by their hash");
        }
        assert_eq!(self.store.twins.len(), twins, "every twin must belong to a family");
    }

    fn check_client(&self, number: ClientId) {
        let client = &self.clients[number];
        // The engine's own client, and clients whose commands name the tube, use no tube and need not watch one.
        let must_watch =
            client.reserve_policy == ReservePolicy::PerConnection && client.used != NIL && client.leaving.is_none();
        assert!(!must_watch || !client.watched.is_empty(), "{number:?} watches nothing");
        for watch in client.watched.iter().copied() {
            let watched = self.clients.watches.get(watch);
            assert_eq!(watched.client, number.0);
            let tube = self.tubes.get(watched.tube);
            for reserve_policy in [ReservePolicy::PerConnection, ReservePolicy::Lease, ReservePolicy::Notified] {
                let stands = queue_of(tube, reserve_policy).iter(&self.clients.watches).any(|other| other == watch);
                let should = watched.wait != 0 && reserve_policy == client.reserve_policy;
                assert_eq!(stands, should, "{number:?} is not in the queues that its watches name");
            }
            let must_stand =
                (client.waits_for_job() || client.idle_state == IdleState::Idle) && client.search.is_none();
            assert!(!must_stand || client.is_queued(watched), "{number:?} must wait in all its tubes or in none");
        }
        client.reserved().check(|slot| self.store.jobs.get(slot).position());
        if let Some(waiting) = client.waiting.filter(|waiting| !waiting.is_for_job()) {
            let attached = self.store.extras.find_attached(waiting.outcome, &client.attached);
            assert!(attached.is_some(), "{number:?} waits for a job without being attached to it");
        }
        for (key, slot) in client.reserved().iter() {
            let job = self.store.jobs.get(slot);
            assert_eq!((job.state(), job.holder, job.due_key()), (State::Reserved, number.0, key));
            assert!(!job.has(JobFlag::Leaving), "{:?} is marked as leaving, but its client stays", job.id);
        }
        let Some(leaving) = &client.leaving else { return };
        leaving.check(|slot| self.store.jobs.get(slot).position());
        for ((pri, id), slot) in leaving.iter() {
            let job = self.store.jobs.get(slot);
            assert_eq!((job.state(), job.holder, job.pri, job.id), (State::Reserved, number.0, pri, id));
            assert!(job.has(JobFlag::Leaving), "{:?} is not marked as leaving", job.id);
        }
    }

    /// Checks that every unfinished piece of work is deferred and will be continued.
    fn check_deferred(&self) {
        let (mut left, mut serving, mut searches, mut releasing) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for work in &self.agenda.deferred {
            match work {
                Deferred::Disconnect(client) => left.push(*client),
                Deferred::Search(client) => searches.push(*client),
                Deferred::Serve(tube) => serving.push(*tube),
                Deferred::Notify { extras, .. } => assert!(self.store.extras.is_left(*extras), "the extras have a job"),
                Deferred::Release(group) => releasing.push(*group),
                Deferred::Buried(_) | Deferred::LongCommand(_) => {}
            }
        }
        for (number, client) in self.clients.iter() {
            let count =
                |all: &[Handle<ClientId>]| all.iter().filter(|other| **other == self.clients.handle(number)).count();
            assert_eq!(count(&left), usize::from(client.leaving.is_some()), "{number:?} leaves once");
            assert_eq!(count(&searches), usize::from(client.queued), "{number:?} searches once");
        }
        for (number, group) in self.store.groups.table.items.iter() {
            let goes_on = group.releasing && releasing.contains(&number);
            assert!(goes_on || self.store.groups.next_ended(number).is_none(), "jobs would be held forever");
        }
        for (number, tube) in self.tubes.iter().filter(|(_, tube)| tube.serving) {
            let name = String::from_utf8_lossy(&tube.name);
            assert!(serving.contains(&self.tubes.handle(number)), "clients waiting in tube {name} are never served");
        }
    }

    fn check_deadlines(&self) {
        let mut timed = 0;
        let mut expect = |owner: TimerKey, due: Time| {
            if due != Time::NEVER {
                timed += 1;
                assert!(self.agenda.deadlines.all().any(|entry| entry == (due, owner)), "{owner:?} has no deadline");
            }
        };
        self.clients.iter().for_each(|(number, client)| expect(TimerKey::Client(number.0), client.due()));
        self.tubes.iter().for_each(|(number, tube)| expect(TimerKey::Tube(number), tube.due()));
        expect(TimerKey::Schedules, self.store.schedules.first().map_or(Time::NEVER, |(at, _)| at));
        expect(TimerKey::Keys, self.store.ended_keys.ends.first().map_or(Time::NEVER, |(at, _)| at));
        expect(TimerKey::Extras, self.store.extras.ends.first().map_or(Time::NEVER, |(at, _)| at));
        assert_eq!(self.agenda.deadlines.heap.len(), timed, "every deadline must have an owner");
        self.agenda.deadlines.check();
    }

    fn check_sums(&self) {
        let mut counts = JobCounts::default();
        let mut memory = Account {
            tubes: TUBE_COST,
            history: self.past.counted(),
            buffers: self.memory().buffers,
            ..Account::default()
        };
        for (_, job) in self.store.jobs.slots.iter() {
            counts.add(job);
            memory.jobs += JOB_COST + job.body.len() as u64;
        }
        memory.watches = self.clients.watches.len() as u64 * WATCH_COST;
        for (slot, _) in self.store.jobs.slots.iter() {
            memory.jobs += self.store.groups.of_member(slot).count() as u64 * MEMBER_COST;
            memory.jobs += self.store.groups.waits_of(slot).count() as u64 * WAIT_COST;
        }
        memory.jobs += self.store.extras.table.counted() + self.store.groups.table.counted();
        memory.jobs += self.store.schedules.table.counted() + self.store.ended_keys.table.counted();
        memory.jobs += self.store.lanes.keys.counted() + self.store.lanes.lanes.len() as u64 * LANE_COST;
        memory.jobs += self.store.origins.memory + self.store.twins.len() as u64 * TWIN_COST;
        for (number, tube) in self.tubes.iter() {
            let fixed = if number == DEFAULT_TUBE { tube.name.len() as u64 } else { 0 };
            memory.tubes += tube.variable_cost() - fixed + if number == DEFAULT_TUBE { 0 } else { TUBE_COST };
        }
        assert_eq!(self.store.counts, counts, "the counts of all jobs");
        memory.jobs += self.store.jobs.spare();
        for ends in [&self.store.extras.ends, &self.store.ended_keys.ends] {
            memory.jobs += ends.entries.capacity().saturating_sub(64) as u64 * 16;
        }
        assert_eq!(self.memory(), memory, "the account of memory");
        let leaving = |client: &ClientState| client.leaving.as_ref().map_or(0, |leaving| leaving.len());
        let held: usize = self.clients.iter().map(|(_, client)| client.reserved().len() + leaving(client)).sum();
        assert_eq!(self.clients.leaving, self.clients.iter().filter(|(_, client)| client.leaving.is_some()).count());
        assert_eq!(held as u64, counts.reserved, "every reserved job must be in its holder's queue");
        let count = |test: fn(&ClientState) -> bool| self.clients.iter().filter(|(_, client)| test(client)).count();
        assert_eq!(self.clients.producers, count(|client| client.producer));
        assert_eq!(self.clients.workers, count(|client| client.worker));
        assert_eq!(self.clients.waiting, count(|client| client.waits_for_job()));
        assert_eq!(self.tubes.kept, self.tubes.iter().filter(|(_, tube)| tube.kept).count());
        for (number, client) in self.clients.iter() {
            let opener = self.clients.handle(number);
            let opened = self.tubes.iter().filter(|(_, tube)| tube.opener == Some(opener)).count();
            assert_eq!(client.opened as usize, opened, "{number:?} has the wrong count of opened tubes");
        }
        assert!(
            self.tubes.paused.iter().all(|&number| self.tubes.table.items.try_get(number).is_some()),
            "a removed tube is paused"
        );
        let watches: usize = self.clients.iter().map(|(_, client)| client.watched.len()).sum();
        assert_eq!(self.clients.watches.len(), watches, "every watch must belong to a client");
        for (number, tube) in self.tubes.iter() {
            let using = self.clients.iter().filter(|(_, client)| client.used == number).count();
            let contains = |client: &ClientState| client.watched.contains(number, &self.clients.watches);
            let watching = self.clients.iter().filter(|(_, client)| contains(client)).count();
            assert_eq!((tube.using as usize, tube.watching as usize), (using, watching));
            let sleeper = |client: &ClientState| client.reserve_policy == ReservePolicy::Notified && contains(client);
            let sleepers = self.clients.iter().filter(|(_, client)| sleeper(client)).count();
            assert_eq!(tube.sleepers as usize, sleepers);
        }
    }

    fn check_groups(&self) {
        let groups = &self.store.groups;
        let mut waits = 0;
        for (number, group) in groups.table.items.iter() {
            assert_eq!(self.find_group(&group.name), Some(number), "a group is found by its name");
            let is_member = |slot: u32| groups.of_member(slot).any(|other| other == number);
            let members = self.store.jobs.slots.iter().filter(|(slot, _)| is_member(*slot));
            let mut counts = [0; State::UNFINISHED.len()];
            members.for_each(|(_, job)| counts[job.state() as usize] += 1);
            assert_eq!(group.members, counts, "the members of a group");
            assert!(group.size() > 0 || group.waiting() > 0, "an unused group must not exist");
            assert!(group.count.created_at <= group.count.complete_to, "a group was complete before its creation");
            waits += group.waiting();
        }
        let mut found = 0;
        for (slot, job) in self.store.jobs.slots.iter() {
            let own = groups.waits_of(slot).count();
            let is_tied = own > 0 || groups.of_member(slot).next().is_some() || job.state() == State::Scheduled;
            assert_eq!(job.is_tied(), is_tied, "{:?} has the wrong tie flag", job.id);
            assert_eq!(job.state() == State::Held, own > 0, "{:?} must be held while it waits", job.id);
            assert!(groups.waits_of(slot).all(|wait| wait.slot == slot), "{:?} and its waits", job.id);
            found += own;
        }
        assert_eq!(waits, found, "every wait is in its group's queue");
    }

    fn check_lanes(&self) {
        let mut members = 0;
        for (number, lane) in self.store.lanes.lanes.iter() {
            let shared = self.store.lanes.keys.get(lane.shared);
            assert!(shared.lanes.contains(&number), "a lane must be in its key's list");
            let ready = lane.parked.in_order(&self.store.jobs).map(|slot| self.store.jobs.get(slot).ready_key());
            let keys: Vec<_> = ready.collect();
            assert!(keys.is_sorted(), "parked jobs are out of order");
            if lane.exposed != NIL {
                assert!(!shared.blocked, "a job that must not be reserved is in its tube's queue");
                let first = self.store.jobs.get(lane.exposed).ready_key();
                assert!(keys.first().is_none_or(|next| first < *next), "the wrong job of a lane is in the queue");
            } else {
                assert!(shared.blocked || keys.is_empty(), "jobs that may be reserved are parked");
            }
            members += lane.members as usize;
        }
        let (mut found, mut reserved) = (0, 0);
        for (slot, job) in self.store.jobs.slots.iter() {
            let Some(lane) = self.lane_of(slot) else { continue };
            found += 1;
            reserved += u32::from(job.state() == State::Reserved);
            assert_eq!(self.store.lanes.lanes.get(lane).tube, job.tube, "{:?} is in a lane of its tube", job.id);
        }
        assert_eq!(members, found, "the member counts of the lanes");
        let counted: u32 = self.store.lanes.keys.items.iter().map(|(_, shared)| shared.reserved).sum();
        assert_eq!(counted, reserved, "every reserved job with a bound is counted");
    }
}

fn queue_of(tube: &Tube, reserve_policy: ReservePolicy) -> &List {
    match reserve_policy {
        ReservePolicy::PerConnection => &tube.waiting,
        ReservePolicy::Lease => &tube.leasing,
        ReservePolicy::Notified => &tube.idle,
    }
}
