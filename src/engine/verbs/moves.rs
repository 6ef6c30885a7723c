//! Moves of jobs between tubes. Moved jobs keep their IDs and counts.
//!
//! Owns the commands and their progress. Must not decide which client gets which job.
//!
//! Touches: agenda, store, tubes.

use crate::engine::data::{
    Cause, ClientId, JobId, MoveJobs, OpenOperation, Priority, Progress, Span, State, Time, MOVE, NIL,
};
use crate::engine::{Engine, OverLimit};

const MAX_SKIPPED: usize = 4096;

const BATCH: u64 = 64;

impl Engine {
    /// Returns `false` if `client` cannot move the job, or if a job in the destination tube has the same key.
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

    /// Moves jobs in queue order. Skips a job if a job in the destination tube has the same key.
    pub fn move_jobs(&mut self, client: ClientId, moving: &mut MoveJobs, now: Time) -> Result<Progress, OverLimit> {
        let progress = self.move_batch(client, moving, now);
        if progress == Ok(Progress::More) {
            self.operation_goes_on(moving.open, moving.left);
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
            let checked = self.move_some(from, to, moving, now);
            // A tube that no client uses or watches is closed when its last job moves.
            let is_closed = self.tubes.at(origin).is_none();
            let ended = moving.left == 0 || checked == 0 || moving.passed > MAX_SKIPPED || is_closed;
            if ended || self.agenda.steps.are_used_up() {
                break ended;
            }
        };
        self.serve(to, now);
        self.close_tube_if_idle(to);
        Ok(if ended { Progress::Done } else { Progress::More })
    }

    /// Returns the number of jobs checked.
    fn move_some(&mut self, from: u32, to: u32, moving: &mut MoveJobs, now: Time) -> usize {
        let count = moving.left.min((self.agenda.steps.left() / (2 * MOVE)).max(1)).min(BATCH) as usize;
        let slots = self.first_of(from, moving.state, moving.passed, count);
        self.agenda.steps.take((moving.passed + slots.len()) as u64);
        let mut checked = 0;
        for slot in slots {
            self.agenda.steps.take(2 * MOVE);
            if self.has_expired(slot, now) || !self.may_move(slot, &moving.to, now) {
                moving.passed += 1;
            } else if self.claim_log_room(moving.to.len()) {
                let shifts = moving.state == State::Ready && self.lane_of(slot).is_some();
                self.move_unchanged(slot, to, NIL);
                moving.done += 1;
                if shifts {
                    // Another job with the same concurrency key has entered the queue and may now be first.
                    moving.left -= 1;
                    return checked + 1;
                }
            } else {
                break;
            }
            moving.left -= 1;
            checked += 1;
        }
        checked
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
}
