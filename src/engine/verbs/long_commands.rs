//! Commands that can take several turns (flushes, moves, and the search for a reserved job), and all deferred work. A
//! flush ignores jobs that are put after its start, because it might otherwise never end.
//! Touches: agenda, clients, store, tubes.

use crate::engine::data::*;
use crate::engine::{Engine, OverLimit, Steps};

/// The states with queues, in the order in which a flush deletes the jobs.
const QUEUED: [State; 3] = [State::Buried, State::Delayed, State::Ready];
/// The number of candidates that a search stores. Some candidates may be released before the search ends.
const CANDIDATES: usize = 16;

#[derive(Debug)]
pub struct FindReserved {
    from: u32,
    best: Box<Smallest<(Time, JobId)>>,
    /// `true` in the second and last search, which follows if no job found by the first search is still reserved.
    again: bool,
}

impl FindReserved {
    pub fn footprint(&self) -> u64 {
        size_of_val(&*self.best) as u64 + self.best.footprint()
    }
}

impl Default for FindReserved {
    fn default() -> FindReserved {
        FindReserved { from: 0, best: Box::new(Smallest::new(0, CANDIDATES)), again: false }
    }
}

/// A move ends after it has skipped more than this many jobs.
const MAX_SKIPPED: usize = 4096;
/// The maximum number of jobs that are read from the queue at a time.
const BATCH: u64 = 64;

impl Engine {
    /// Deletes the jobs that existed when the flush began. Their keys can be used again immediately.
    pub fn flush(&mut self, flush: &mut Flush, now: Time) -> Progress {
        if flush.last.is_none() {
            flush.last = Some(self.store.last_id);
            flush.open = self.open_flush(flush);
        }
        let progress = self.flush_some(flush);
        if progress == Progress::Done {
            self.close_operation(&mut flush.open);
        }
        // A deleted reserved job may have blocked jobs of other tubes with the same concurrency key.
        self.serve_unblocked(now);
        progress
    }

    /// Logs the flush, so that it is completed after a restart. Does nothing if the flush deletes at most one job, or
    /// if it must not delete the reserved jobs, which a restart would make ready.
    fn open_flush(&mut self, flush: &Flush) -> Option<u32> {
        let Flush { tube, states, last, .. } = flush;
        let number = self.tubes.find(tube)?;
        let spares_reserved = states.contains(&State::Ready) && !states.contains(&State::Reserved);
        if spares_reserved || self.tubes.get_mut(number).counts.sum(states) < 2 {
            return None;
        }
        let bound = last.unwrap_or_default();
        self.open_operation(OpenOperation { from: tube.clone(), to: Box::default(), states: states.clone(), bound })
    }

    fn flush_some(&mut self, flush: &mut Flush) -> Progress {
        let last = flush.last.unwrap_or_default();
        while let Some(number) = self.tubes.find(&flush.tube) {
            let mut counts = self.tubes.get(number).counts;
            if counts.sum(&flush.states) == 0 {
                break;
            }
            if !flush.held_done && (counts.held == 0 || !flush.states.contains(&State::Held)) {
                (flush.held_done, flush.from) = (true, 0);
            }
            let first = QUEUED.iter().filter(|state| flush.states.contains(state) && flush.held_done);
            let first = first.copied().find_map(|state| self.first_in(number, state));
            let first = first.filter(|&slot| self.store.jobs.get(slot).id.0 <= last);
            let slot = match first.or_else(|| self.walk_to_next(number, flush, last)) {
                Some(slot) => slot,
                None if self.walked_to(flush.from) == Progress::More => return Progress::More,
                None if flush.held_done => return Progress::Done,
                None => {
                    (flush.held_done, flush.from) = (true, 0);
                    continue;
                }
            };
            self.remove_job(slot, Outcome::Gone);
            self.agenda.steps.take(2 * MOVE);
            flush.done += 1;
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
        }
        Progress::Done
    }

    fn walk_to_next(&mut self, number: u32, flush: &mut Flush, last: u64) -> Option<u32> {
        loop {
            let slot = self.next_job(&mut flush.from)?;
            let job = self.store.jobs.get(slot);
            let is_next = flush.held_done || job.state() == State::Held;
            if job.tube == number && flush.states.contains(&job.state()) && job.id.0 <= last && is_next {
                return Some(slot);
            }
        }
    }

    /// A search over several calls can return a job that is no longer reserved.
    pub fn peek_reserved(&mut self, client: ClientId, find: &mut FindReserved) -> (Progress, Option<JobView<'_>>) {
        let number = self.clients[client].used;
        if self.tubes.get(number).counts.reserved == 0 {
            return (Progress::Done, None);
        }
        let few = self.clients.len() as u64 + self.store.counts.reserved;
        if few <= self.agenda.steps.left() {
            self.agenda.steps.take(few);
            return (Progress::Done, self.first_reserved(number).map(|slot| self.store.jobs.view(slot)));
        }
        while let Some(slot) = self.next_job(&mut find.from) {
            let job = self.store.jobs.get(slot);
            if job.tube == number && job.state() == State::Reserved {
                find.best.offer(job.due_key());
            }
        }
        if self.walked_to(find.from) == Progress::More {
            return (Progress::More, None);
        }
        let best = find.best.finish().unwrap_or_default();
        let there = best.iter().filter_map(|(_, id)| self.store.jobs.find(*id));
        let there: Vec<u32> = there.filter(|&slot| self.store.jobs.get(slot).tube == number).collect();
        let reserved = there.iter().find(|&&slot| self.store.jobs.get(slot).state() == State::Reserved);
        if reserved.is_none() && !find.again {
            *find = FindReserved { again: true, ..FindReserved::default() };
            return (Progress::More, None);
        }
        let found = reserved.or(there.first());
        (Progress::Done, found.map(|&slot| self.store.jobs.view(slot)))
    }

    /// Checks the reservations of all clients, because a tube has no list of its reserved jobs.
    fn first_reserved(&self, number: u32) -> Option<u32> {
        let held = self.clients.iter().flat_map(|(_, client)| {
            let leaving = client.leaving.iter().flat_map(|leaving| leaving.iter());
            client.reserved().iter().map(|(_, slot)| slot).chain(leaving.map(|(_, slot)| slot))
        });
        held.filter(|&slot| self.store.jobs.get(slot).tube == number)
            .min_by_key(|&slot| self.store.jobs.get(slot).due_key())
    }

    /// Returns `false` if `client` cannot move the job, or if the job has expired or must not enter `tube`.
    pub fn move_job(
        &mut self,
        client: ClientId,
        id: JobId,
        tube: &[u8],
        (pri, delay): (Priority, Span),
        now: Time,
    ) -> Result<bool, OverLimit> {
        let Some(slot) = self.store.jobs.find(id) else { return Ok(false) };
        match self.store.jobs.get(slot).state() {
            State::Finished | State::Scheduled => return Ok(false),
            State::Reserved if self.held(client, id, now).is_none() => return Ok(false),
            _ => {}
        }
        let Some(number) = self.open_target(client, slot, tube, now)? else { return Ok(false) };
        let cause = if delay == Span::ZERO { Cause::Move } else { Cause::MoveLater };
        self.change_tube(slot, number, |job| {
            job.transition(cause);
            job.details.set_delay(delay);
            (job.pri, job.due) = (pri, now + delay);
        });
        self.serve(number, now);
        Ok(true)
    }

    pub fn move_buried(&mut self, client: ClientId, id: JobId, tube: &[u8], now: Time) -> Result<bool, OverLimit> {
        let Some(slot) = self.find_job(id, |job| job.state() == State::Buried) else { return Ok(false) };
        let Some(number) = self.open_target(client, slot, tube, now)? else { return Ok(false) };
        self.agenda.steps.take(2 * MOVE);
        self.move_unchanged(slot, number, NIL);
        Ok(true)
    }

    /// Returns `None` if the job must not enter the tube or has just expired.
    fn open_target(&mut self, client: ClientId, slot: u32, tube: &[u8], now: Time) -> Result<Option<u32>, OverLimit> {
        if self.has_expired(slot, now) {
            self.expire_job(slot, now);
            return Ok(None);
        }
        if !self.may_move(slot, tube, now) {
            return Ok(None);
        }
        let number = self.open_tube(client, tube)?;
        if !self.claim_log_room(tube.len()) {
            self.close_tube_if_idle(number);
            return Err(OverLimit);
        }
        Ok(Some(number))
    }

    /// Moves jobs in queue order. Skips jobs that have expired or must not enter the destination tube.
    pub fn move_jobs(&mut self, client: ClientId, moving: &mut MoveJobs, now: Time) -> Result<Progress, OverLimit> {
        let progress = self.move_batch(client, moving, now);
        if progress == Ok(Progress::More) {
            if let Some(operation) = moving.open.and_then(|number| self.agenda.open.get_mut(&number)) {
                operation.bound = moving.left;
            }
        } else {
            self.close_operation(&mut moving.open);
        }
        progress
    }

    fn move_batch(&mut self, client: ClientId, moving: &mut MoveJobs, now: Time) -> Result<Progress, OverLimit> {
        let Some(from) = self.tubes.find(&moving.from) else { return Ok(Progress::Done) };
        if moving.from == moving.to {
            return Ok(Progress::Done);
        }
        let count = self.tubes.get_mut(from).counts.sum(&[moving.state]);
        let is_new = moving.origin.is_none();
        let origin = *moving.origin.get_or_insert_with(|| {
            moving.left = moving.left.min(count);
            self.tubes.handle(from)
        });
        if self.tubes.at(origin).is_none() || moving.left == 0 || count == 0 {
            return Ok(Progress::Done);
        }
        let to = self.open_tube(client, &moving.to)?;
        if is_new && moving.left > 1 && moving.open.is_none() {
            let (from, to, states, bound) = (moving.from.clone(), moving.to.clone(), [moving.state], moving.left);
            moving.open = self.open_operation(OpenOperation { from, to, states: states.into(), bound });
        }
        let ended = loop {
            let left = moving.left;
            self.move_some(from, to, moving, now);
            // A tube that no client uses or watches is closed when its last job moves.
            let is_closed = self.tubes.at(origin).is_none();
            let ended = moving.left == 0 || moving.left == left || moving.passed > MAX_SKIPPED || is_closed;
            if ended || self.agenda.steps.are_used_up() {
                break ended;
            }
        };
        self.serve(to, now);
        self.close_tube_if_idle(to);
        Ok(if ended { Progress::Done } else { Progress::More })
    }

    fn move_some(&mut self, from: u32, to: u32, moving: &mut MoveJobs, now: Time) {
        let count = moving.left.min((self.agenda.steps.left() / (2 * MOVE)).max(1)).min(BATCH) as usize;
        let slots = self.first_of(from, moving.state, moving.passed, count);
        self.agenda.steps.take((moving.passed + slots.len()) as u64);
        let (begin, expected) = (self.agenda.steps.used(), 2 * MOVE * slots.len() as u64);
        for slot in slots {
            // Updating the dedup keys of dead letters costs additional steps.
            if self.agenda.steps.used().wrapping_sub(begin) >= expected {
                return;
            }
            self.agenda.steps.take(2 * MOVE);
            let passes = self.has_expired(slot, now) || !self.may_move(slot, &moving.to, now);
            if !passes && !self.claim_log_room(moving.to.len()) {
                return;
            }
            moving.left -= 1;
            if passes {
                moving.passed += 1;
                continue;
            }
            let shifts = moving.state == State::Ready && self.lane_of(slot).is_some();
            self.move_unchanged(slot, to, NIL);
            moving.done += 1;
            let pauses = !self.take_burst(moving.to.len());
            self.agenda.steps.take(if pauses { self.agenda.steps.left() } else { 0 });
            // Another job with the same concurrency key may now be first in the queue.
            if shifts || pauses {
                return;
            }
        }
    }

    fn first_of(&self, number: u32, state: State, passed: usize, count: usize) -> Vec<u32> {
        let tube = self.tubes.get(number);
        match state {
            State::Ready => {
                let large = tube.large.iter().flat_map(|large| large.in_order(&self.store.jobs));
                tube.ready.in_order(&self.store.jobs).chain(large).skip(passed).take(count).collect()
            }
            State::Delayed => tube.delayed.in_order().map(|(_, slot)| slot).skip(passed).take(count).collect(),
            _ => tube.buried.iter(&self.store.jobs).skip(passed).take(count).collect(),
        }
    }

    pub fn grant_steps(&mut self, steps: u64) {
        self.agenda.steps = Steps::new(steps);
    }

    pub fn steps(&self) -> Steps {
        self.agenda.steps
    }

    pub fn take_steps(&mut self, steps: u64) {
        self.agenda.steps.take(steps);
    }

    pub fn has_deferred(&self) -> bool {
        !self.agenda.deferred.is_empty()
    }

    /// Continues one piece of deferred work. The caller must take the events before the next call.
    pub fn go_on(&mut self, now: Time) {
        let Some(mut work) = self.agenda.deferred.pop_front() else { return };
        let progress = match &mut work {
            Deferred::Disconnect(client) => self.clients.at(*client).map(|client| self.disconnect_on(client, now)),
            Deferred::Search(client) => self.clients.at(*client).map(|client| self.search_on(client, now)),
            Deferred::Serve(tube) => self.tubes.at(*tube).map(|tube| {
                self.tubes.get_mut(tube).serving = false;
                self.serve(tube, now);
                Progress::Done
            }),
            Deferred::Buried(job) => Some(self.notify_buried(*job)),
            Deferred::Notify { extras, job, outcome, logged } => {
                Some(self.notify_some(*extras, *job, outcome, *logged))
            }
            Deferred::Release(group) => {
                let progress = self.release_on(*group);
                self.serve_unblocked(now);
                progress
            }
            Deferred::LongCommand(LongCommand::Flush(flush)) => Some(self.flush(flush, now)),
            Deferred::LongCommand(LongCommand::Move(moving)) => {
                Some(self.move_jobs(NOBODY, moving, now).unwrap_or(Progress::Done))
            }
        };
        match progress {
            Some(Progress::More) => self.agenda.deferred.push_back(work),
            Some(Progress::Done) => {}
            // The tube or client that the deferred work refers to no longer exists, or the group needs no more work.
            None => self.agenda.steps.take(1),
        }
    }

    /// Completes a command without its client, or abandons the command if too many other commands are pending.
    pub fn complete_alone(&mut self, operation: LongCommand) {
        let others = self.agenda.deferred.iter().filter(|work| matches!(work, Deferred::LongCommand(_))).count();
        if others < MAX_OPERATIONS {
            return self.agenda.deferred.push_back(Deferred::LongCommand(operation));
        }
        let (LongCommand::Flush(Flush { mut open, .. }) | LongCommand::Move(MoveJobs { mut open, .. })) = operation;
        self.close_operation(&mut open);
    }
}
