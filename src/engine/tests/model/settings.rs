//! The model's rules for the settings of tubes and for failures of jobs.

use super::super::super::{
    ClientId, Event, Failed, JobId, NotSet, Priority, Rate, Span, State, Time, TubeSettings, NOBODY, UNLIMITED,
};
use super::{Model, Name, Place};

/// The settings of a tube, without a backoff, because backoff delays are partly random.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Settings {
    pub limit: Option<u32>,
    pub tries: u8,
    pub ttl: u32,
    pub dead: Option<Name>,
    pub max: u32,
    /// The maximum number of reservations per window, and the length of the window in seconds.
    pub rate: Option<(u32, u32)>,
}

impl Settings {
    pub fn to_engine(self) -> TubeSettings {
        TubeSettings {
            max_jobs: self.limit.map_or(UNLIMITED, |limit| [limit; 3]),
            tries: self.tries,
            ttl: self.ttl,
            dead: self.dead.map(|dead| dead.as_bytes().into()),
            max: self.max,
            rate: self.rate.map(|(count, seconds)| Rate { count, seconds }),
            ..TubeSettings::default()
        }
    }
}

/// The settings of a tube, the number of reservations in the current rate window, and the end of that window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ruled {
    pub settings: Settings,
    pub taken: u32,
    pub window_end: Time,
}

impl Ruled {
    /// Returns the time at which the rate allows another reservation, or `None` if the limit is not reached.
    pub fn opens(&self) -> Option<Time> {
        let (count, _) = self.settings.rate?;
        (self.taken >= count).then_some(self.window_end)
    }
}

impl Model {
    pub(super) fn is_closed(&self, tube: Name) -> bool {
        self.tube(tube).is_some_and(|tube| tube.pause.is_some()) || self.is_exhausted(tube)
    }

    pub(super) fn is_exhausted(&self, tube: Name) -> bool {
        let Some(rules) = self.extended.rules.get(tube) else { return false };
        let reserved = self.jobs.iter().filter(|job| job.tube == tube);
        let reserved = reserved.filter(|job| matches!(job.place, Place::Reserved { .. })).count();
        rules.settings.max > 0 && reserved >= rules.settings.max as usize || rules.opens().is_some()
    }

    pub(super) fn note_reservation(&mut self, tube: Name, now: Time) {
        let Some(rules) = self.extended.rules.get_mut(tube) else { return };
        let Some((_, seconds)) = rules.settings.rate else { return };
        let length = Span::from_secs(seconds.into());
        if now >= rules.window_end {
            let next = rules.window_end + length;
            (rules.taken, rules.window_end) = (0, if now < next { next } else { now + length });
        }
        rules.taken += 1;
    }

    /// Counts a failed try of a job that its holder lost, released or failed. Returns `true` if no tries are left.
    pub(super) fn is_last_try(&mut self, id: JobId) -> bool {
        let Some(tries) = self.tries(id) else { return false };
        let failure = self.extended.failures.entry(id).or_default();
        failure.0 += 1;
        failure.0 >= tries
    }

    fn tries(&self, id: JobId) -> Option<u8> {
        let own = self.own_tries(id);
        let tube = self.job(id).expect("a job").tube;
        let of_tube = self.extended.rules.get(tube).map_or(0, |rules| rules.settings.tries);
        Some(if own > 0 { own } else { of_tube }).filter(|tries| *tries > 0)
    }

    pub fn fails(&self, id: JobId) -> u8 {
        self.extended.failures.get(&id).map_or(0, |failure| failure.0)
    }

    /// Returns the maximum number of tries from the job's tags, or 0 if the tags set no limit.
    pub fn own_tries(&self, id: JobId) -> u8 {
        self.extended.tags.get(&id).map_or(0, |tags| tags.tries)
    }

    pub fn tries_left(&self, id: JobId) -> Option<u8> {
        self.tries(id).map(|tries| tries.saturating_sub(self.fails(id)))
    }

    pub fn reason(&self, id: JobId) -> Name {
        self.extended.failures.get(&id).map_or("", |failure| failure.1)
    }

    pub fn dead_from(&self, id: JobId) -> Option<Name> {
        let origin = self.extended.failures.get(&id).and_then(|failure| failure.2);
        origin.filter(|_| self.state_of(id) == Some(State::Buried))
    }

    pub(super) fn forget_tries(&mut self, id: JobId) {
        if let Some(failure) = self.extended.failures.get_mut(&id) {
            failure.0 = 0;
        }
    }

    /// Buries a job that will not be retried. Moves the job to the dead-letter tube if possible.
    pub(super) fn abandon(&mut self, id: JobId, pri: Priority) {
        self.lay_aside(id, pri);
        self.send_to_dead_tube(id);
    }

    pub fn send_to_dead_tube(&mut self, id: JobId) {
        let from = self.job(id).expect("a job").tube;
        let Some(dead) = self.extended.rules.get(from).and_then(|rules| rules.settings.dead) else { return };
        let limit = self.extended.rules.get(dead).and_then(|rules| rules.settings.limit);
        let counts = |job: &&super::Job| job.tube == dead && !matches!(job.place, Place::Scheduled { .. });
        let many = self.jobs.iter().filter(counts).count();
        let is_full = limit.is_some_and(|limit| many >= limit as usize);
        if is_full || self.find_or_create(NOBODY, dead).is_err() {
            self.events.push(Event::DeadLetterStays {
                job: id,
                from: from.as_bytes().into(),
                dead: dead.as_bytes().into(),
            });
            return;
        }
        self.burials += 1;
        let order = self.burials;
        let job = self.job_mut(id);
        (job.tube, job.place) = (dead, Place::Buried { order });
        self.extended.failures.entry(id).or_default().2 = Some(from);
        self.end_tubes();
    }

    /// Handles a failure reported by the holder. `engine` is the engine's answer, whose delay is partly random.
    pub fn fail(
        &mut self,
        client: ClientId,
        id: JobId,
        (pri, reason): (Priority, Name),
        engine: Option<Failed>,
        now: Time,
    ) -> Option<Failed> {
        self.take_ended(client, now);
        if !self.holds(client, id) {
            return None;
        }
        let job = self.job(id).expect("a job");
        let (tube, ttr, Place::Reserved { until, .. }) = (job.tube, job.ttr, job.place) else { return None };
        self.note_time(tube, Some(now.since(until - ttr)), None);
        self.extended.uncounted = true;
        self.job_mut(id).pri = pri;
        let bounded = self.tries(id).is_some();
        let is_last = self.is_last_try(id);
        self.extended.failures.entry(id).or_default().1 = reason;
        if is_last || !bounded {
            self.abandon(id, pri);
            self.serve(now);
            return Some(Failed::GivenUp);
        }
        let Some(Failed::Retried(delay)) = engine else { return Some(Failed::Retried(Span::ZERO)) };
        let base = self.backoff(id);
        assert!(base <= delay && delay.nanos() <= base.nanos() + base.nanos() / 10, "{delay:?} for {base:?}");
        self.note_event(id, |events| &mut events.releases);
        let job = self.job_mut(id);
        job.history.releases += 1;
        job.delay = delay;
        job.place = if delay == Span::ZERO { Place::Ready } else { Place::Delayed { until: now + delay } };
        self.serve_living(id, now);
        Some(Failed::Retried(delay))
    }

    pub(super) fn backoff(&self, id: JobId) -> Span {
        let tags = self.extended.tags.get(&id).filter(|tags| tags.tries > 0 && tags.backoff > 0);
        Span::from_secs(tags.map_or(0, |tags| {
            let doubled = u128::from(tags.backoff) << (self.fails(id) - 1);
            doubled.min(24 * 3600) as u64
        }))
    }

    pub fn set_tube(&mut self, client: ClientId, tube: Name, settings: Settings, now: Time) -> Result<(), NotSet> {
        let mut next = settings.dead;
        while let Some(dead) = next {
            if dead == tube {
                return Err(NotSet::Circle);
            }
            next = self.extended.rules.get(dead).and_then(|rules| rules.settings.dead);
        }
        if settings == Settings::default() {
            self.extended.rules.remove(tube);
        } else {
            self.find_or_create(client, tube).map_err(|_| NotSet::OverLimit)?;
            let rules = self.extended.rules.entry(tube).or_default();
            if rules.settings.rate != settings.rate {
                (rules.taken, rules.window_end) = (0, Time::default());
            }
            rules.settings = settings;
        }
        self.serve(now);
        self.end_tubes();
        Ok(())
    }

    /// Sets the time to live of a new job, from the job's tags or from the settings of its tube.
    pub(super) fn date(&mut self, id: JobId, now: Time) {
        let tube = self.job(id).expect("a job").tube;
        let of_tube = self.extended.rules.get(tube).map_or(0, |rules| rules.settings.ttl);
        let own = self.extended.tags.get(&id).and_then(|tags| tags.ttl);
        if let Some(ttl) = own.or((of_tube > 0).then(|| Span::from_secs(of_tube.into()))) {
            self.extended.uncounted = true;
            self.extended.tags.entry(id).or_default().expires = Some(now + ttl);
        }
        self.begin_life(id);
    }
}
