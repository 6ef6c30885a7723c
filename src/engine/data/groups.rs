//! Groups of jobs, and the jobs that wait for groups: the tags `grp:` and `aft:`. Must not decide when a wait ends (see
//! `rules/groups.rs`).

use super::{hashed, linked, Heap, Links, List, Name, SlotTable, Slots, State, Table, NIL};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupCount {
    pub ended: u64,
    /// The last job ID assigned before the group became empty. Jobs up to this ID no longer wait for all members.
    pub complete_to: u64,
    /// The last job ID assigned before the group existed. Jobs up to this ID waited for an earlier group of this name.
    pub created_at: u64,
}

impl GroupCount {
    /// A `need` of 0 means all members.
    pub(in crate::engine) fn satisfies(&self, id: u64, need: u32) -> bool {
        match need {
            0 => id <= self.complete_to,
            need => id <= self.created_at || u64::from(need) <= self.ended,
        }
    }
}

#[derive(Debug)]
pub struct Group {
    pub(in crate::engine) name: Name,
    hash: u32,
    /// The number of members in each state, in the order of [`State::UNFINISHED`].
    pub(in crate::engine) members: [u32; State::UNFINISHED.len()],
    pub(in crate::engine) count: GroupCount,
    /// The jobs that wait for all members, in the order of their IDs.
    pub(in crate::engine) waits: List,
    /// The jobs that wait for a number of members, ordered by this number and then by job ID.
    pub(in crate::engine) counted: Heap<(u32, u64)>,
    pub(in crate::engine) releasing: bool,
    pub(in crate::engine) logged: bool,
}

impl Group {
    pub(in crate::engine) fn size(&self) -> u64 {
        self.members.iter().map(|&count| u64::from(count)).sum()
    }

    pub(in crate::engine) fn waiting(&self) -> usize {
        self.waits.len() + self.counted.len()
    }
}

hashed!(Group, |group| group.hash, GROUP_COST + group.name.length() as u64);

#[derive(Debug)]
struct Membership {
    group: u32,
    next: u32,
}

#[derive(Debug)]
pub struct Wait {
    pub(in crate::engine) group: u32,
    next: u32,
    pub(in crate::engine) slot: u32,
    /// The number of members that must have ended. 0 means all members.
    pub(in crate::engine) need: u32,
    /// For a wait in [`Group::counted`], `prev` is the position in that heap.
    links: Links,
    id: u64,
    queued: bool,
}

type Waits = Slots<Wait, 4096>;

linked!(Waits, |waits, number| waits.get(number).links, waits.get_mut(number).links);

/// Bytes charged for a group, excluding its name.
pub const GROUP_COST: u64 = size_of::<Group>() as u64 + 32;
pub const MEMBER_COST: u64 = size_of::<Membership>() as u64 + 8;
pub const WAIT_COST: u64 = size_of::<Wait>() as u64 + 40;
const _: () = assert!(GROUP_COST <= 160 && MEMBER_COST <= 16);

#[derive(Debug, Default)]
pub struct Groups {
    /// The table's `memory` includes memberships and waits.
    pub table: Table<Group, 1024>,
    memberships: Slots<Membership>,
    waits: Waits,
    /// The first membership and the first wait of each job, by slot.
    members: SlotTable,
    waiters: SlotTable,
    /// Log bytes for recording that group members have ended, in addition to the bytes for deleting these jobs.
    pub ends: u64,
}

/// Returns the log bytes for recording that a member has ended. `name` is the length of the group's name.
pub(in crate::engine) const fn end_size(name: usize) -> u64 {
    40 + name as u64
}

impl Groups {
    pub fn get(&self, number: u32) -> &Group {
        self.table.get(number)
    }

    pub fn get_mut(&mut self, number: u32) -> &mut Group {
        self.table.get_mut(number)
    }

    pub fn find(&self, name: &Name, hash: u32) -> Option<u32> {
        self.table.find(hash, |group| group.name == *name)
    }

    pub fn insert(&mut self, name: Name, hash: u32, count: GroupCount) -> u32 {
        let (members, waits, counted) = ([0; State::UNFINISHED.len()], List::EMPTY, Heap::new());
        let group = Group { name, hash, members, count, waits, counted, releasing: false, logged: false };
        self.table.insert(group)
    }

    /// The caller must then call [`Groups::count`].
    pub fn join(&mut self, slot: u32, group: u32) {
        let next = self.members.get(slot);
        let number = self.memberships.insert(Membership { group, next });
        self.members.set(slot, number);
        self.table.memory += MEMBER_COST;
        self.ends += end_size(self.table.get(group).name.length());
    }

    /// The caller must then call [`Groups::enqueue`].
    pub fn add_wait(&mut self, slot: u32, id: u64, group: u32, need: u32) {
        let next = self.waiters.get(slot);
        let wait = Wait { group, next, slot, need, links: Links::NONE, id, queued: false };
        self.waiters.set(slot, self.waits.insert(wait));
        self.table.memory += WAIT_COST;
    }

    /// `position` is the index of the job's state in [`State::UNFINISHED`].
    pub fn count(&mut self, slot: u32, position: usize, is_added: bool) {
        let mut next = self.members.get(slot);
        while next != NIL {
            let membership = self.memberships.get(next);
            let count = &mut self.table.get_mut(membership.group).members[position];
            *count = if is_added { *count + 1 } else { *count - 1 };
            next = membership.next;
        }
    }

    pub fn of_member(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.memberships.try_get(self.members.get(slot));
        std::iter::successors(first, |it| self.memberships.try_get(it.next)).map(|it| it.group)
    }

    pub fn waits_of(&self, slot: u32) -> impl Iterator<Item = &Wait> + '_ {
        std::iter::successors(self.waits.try_get(self.waiters.get(slot)), |wait| self.waits.try_get(wait.next))
    }

    /// Returns the number of members that must still end, or 0 if the job waits for all members.
    pub fn left(&self, wait: &Wait) -> u32 {
        let ended = self.table.get(wait.group).count.ended;
        wait.need.saturating_sub(u32::try_from(ended).unwrap_or(u32::MAX))
    }

    pub fn is_over(&self, wait: &Wait) -> bool {
        self.table.get(wait.group).count.satisfies(wait.id, wait.need)
    }

    pub fn waits(&self, slot: u32) -> bool {
        self.waiters.get(slot) != NIL
    }

    pub fn enqueue(&mut self, slot: u32) {
        let mut next = self.waiters.get(slot);
        while next != NIL {
            let number = next;
            let wait = self.waits.get_mut(number);
            let (group, need, id) = (wait.group, wait.need, wait.id);
            (wait.queued, next) = (true, wait.next);
            let group = self.table.get_mut(group);
            match need {
                0 => group.waits.push_back(number, &mut self.waits),
                need => {
                    if group.counted.len() == 0 {
                        // Reserve space for one wait only, because most groups have a single wait.
                        group.counted.entries.reserve_exact(1);
                    }
                    // A restored job that waited for an earlier group with this name is released first.
                    let rank = if id > group.count.created_at { need } else { 0 };
                    group.counted.push((rank, id), number, &mut self.waits);
                }
            }
        }
    }

    /// Removes the job from its groups, and returns the groups. The groups must no longer count the job.
    pub fn leave(&mut self, slot: u32) -> Vec<u32> {
        let (mut groups, mut next) = (Vec::new(), self.members.get(slot));
        while next != NIL {
            let gone = self.memberships.remove(next);
            self.table.memory -= MEMBER_COST;
            self.ends -= end_size(self.table.get(gone.group).name.length());
            groups.push(gone.group);
            next = gone.next;
        }
        self.members.remove(slot);
        if self.memberships.len() == 0 {
            self.members.clear();
        }
        groups
    }

    /// Ends all waits of the job. Returns the groups that the job waited for.
    pub fn stop_waiting(&mut self, slot: u32) -> Vec<u32> {
        let groups = self.waits_of(slot).map(|wait| wait.group).collect();
        while self.waits(slot) {
            self.end_wait(self.waiters.get(slot));
        }
        groups
    }

    /// Returns an ended wait for `group`, and the slot of the waiting job.
    pub fn next_ended(&self, group: u32) -> Option<(u32, u32)> {
        let group = self.table.get(group);
        let first = group.waits.first().filter(|&wait| group.count.satisfies(self.waits.get(wait).id, 0));
        let ended = first.or_else(|| {
            let ((_, id), wait) = group.counted.first()?;
            group.count.satisfies(id, self.waits.get(wait).need).then_some(wait)
        })?;
        Some((ended, self.waits.get(ended).slot))
    }

    pub fn end_wait(&mut self, ended: u32) {
        let Wait { slot, next, group, need, links, queued, .. } = *self.waits.get(ended);
        let group = self.table.get_mut(group);
        match need {
            _ if !queued => {}
            0 => group.waits.remove(ended, &mut self.waits),
            _ => drop(group.counted.remove(links.prev, &mut self.waits)),
        }
        self.waits.remove(ended);
        self.table.memory -= WAIT_COST;
        let mut before = self.waiters.get(slot);
        if before == ended {
            self.waiters.set(slot, next);
        } else {
            while self.waits.get(before).next != ended {
                before = self.waits.get(before).next;
            }
            self.waits.get_mut(before).next = next;
        }
        if self.waits.len() == 0 {
            self.waiters.clear();
        }
    }
}
