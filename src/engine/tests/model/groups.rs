//! The model's rules for groups of jobs: `grp:` and `aft:`.
//!
//! Stores only the number of ended members. The remaining state of a group follows from its members and the held jobs.

use super::super::super::{JobId, Span, State};
use super::{Model, Name, Place};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupTie {
    Member,
    /// The job is held until all members have ended. If `true`, the job is held even if the group does not exist yet.
    After(bool),
    /// The job is held until this number of members have ended.
    AfterCount(u32),
}

impl Model {
    fn members(&self, group: Name) -> usize {
        let ties = self.jobs.iter().filter_map(|job| self.extended.tags.get(&job.id));
        ties.filter(|tags| tags.groups.contains(&(group, GroupTie::Member))).count()
    }

    #[allow(dead_code)] // unused in some of the crates that include this file
    pub fn members_in(&self, group: Name, state: State) -> usize {
        let is_member = |id: &JobId| {
            self.extended.tags.get(id).is_some_and(|tags| tags.groups.contains(&(group, GroupTie::Member)))
        };
        let members = self.jobs.iter().map(|job| job.id).filter(is_member);
        members.filter(|id| self.state_of(*id) == Some(state)).count()
    }

    fn held_by(&self, group: Name) -> usize {
        let waiting = |id: &&JobId| self.waits(**id).iter().any(|(name, _)| *name == group);
        self.extended.waits.keys().filter(waiting).count()
    }

    /// Returns the numbers of members, of waiting jobs, and of ended members.
    pub fn group(&self, group: Name) -> Option<(u64, u64, u64)> {
        let (members, waiting) = (self.members(group), self.held_by(group));
        let ended = self.extended.groups.get(group).copied().unwrap_or(0);
        (members + waiting > 0).then_some((members as u64, waiting as u64, ended))
    }

    /// Removes groups that have neither members nor waiting jobs, and the wait entries of jobs that are no longer held.
    pub(super) fn tidy_groups(&mut self) {
        let held = |id: &JobId| self.job(*id).is_some_and(|job| job.place == Place::Held);
        let ids: Vec<JobId> = self.extended.waits.keys().copied().filter(|id| !held(id)).collect();
        ids.iter().for_each(|id| drop(self.extended.waits.remove(id)));
        let mut groups = std::mem::take(&mut self.extended.groups);
        groups.retain(|name, _| self.group(name).is_some());
        self.extended.groups = groups;
    }

    /// Ties a new job to its groups. The job is held if it must wait.
    pub(super) fn tie(&mut self, id: JobId) {
        self.tidy_groups();
        let ties = self.extended.tags.get(&id).map(|tags| tags.groups.clone()).unwrap_or_default();
        let mut waits = Vec::new();
        for (name, tie) in ties {
            match tie {
                GroupTie::Member => {}
                GroupTie::After(even_if_new) if even_if_new || self.members(name) > 0 => waits.push((name, 0)),
                GroupTie::AfterCount(need) if self.extended.groups.get(name).copied().unwrap_or(0) < need.into() => {
                    waits.push((name, need));
                }
                GroupTie::After(_) | GroupTie::AfterCount(_) => continue,
            }
            self.extended.groups.entry(name).or_insert(0);
        }
        if !waits.is_empty() {
            self.extended.waits.insert(id, waits);
            self.job_mut(id).place = Place::Held;
        }
    }

    /// Ends the memberships of a job in these groups, and releases jobs that no longer need to wait.
    pub(super) fn untie(&mut self, ties: Vec<(Name, GroupTie)>) {
        self.tidy_groups();
        for (name, _) in ties.into_iter().filter(|(_, tie)| *tie == GroupTie::Member) {
            let ended = self.extended.groups.entry(name).or_insert(0);
            *ended += 1;
            let (ended, is_complete) = (*ended, self.members(name) == 0);
            let is_over = |(other, need): &(Name, u32)| {
                *other == name && if *need == 0 { is_complete } else { u64::from(*need) <= ended }
            };
            let mut free = Vec::new();
            for (id, waits) in &mut self.extended.waits {
                waits.retain(|wait| !is_over(wait));
                if waits.is_empty() {
                    free.push(*id);
                }
            }
            for id in free {
                self.extended.waits.remove(&id);
                let job = self.job_mut(id);
                let due = job.created + job.delay;
                job.place = if job.delay == Span::ZERO { Place::Ready } else { Place::Delayed { until: due } };
            }
        }
        self.tidy_groups();
    }

    pub fn waits(&self, id: JobId) -> Vec<(Name, u32)> {
        let is_held = self.job(id).is_some_and(|job| job.place == Place::Held);
        self.extended.waits.get(&id).filter(|_| is_held).cloned().unwrap_or_default()
    }
}
