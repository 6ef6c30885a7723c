//! Timed events of the model.

use super::super::super::{ClientId, Event, JobId, NoJob, Span, Time};
use super::{Model, Name, Place, Tube};

#[derive(Clone, Copy, Debug)]
enum Alarm {
    ClientState(ClientId),
    Tube(Name),
    /// The time to live of a job expires.
    Life(JobId),
    /// The key of the ended job with this ID expires.
    Key(JobId),
    /// A schedule is due or retried.
    Schedule(JobId),
}

impl Model {
    pub(super) fn is_soon(&self, client: ClientId, now: Time) -> bool {
        self.held(client).any(|(until, _)| until - Span::from_secs(1) <= now)
    }

    /// Returns the time of the client's next event. For a waiting client, this is the end of the wait or the beginning
    /// of the last second of a reservation. For other clients, it is the expiry of a reservation.
    fn client_alarm(&self, client: ClientId) -> Time {
        let end = self.held(client).map(|(until, _)| until).min();
        match self.wait_ends(client) {
            None => end.unwrap_or(Time::NEVER),
            Some(until) => end.map_or(until, |end| until.min(end - Span::from_secs(1))),
        }
    }

    fn next_delayed(&self, tube: Name) -> Option<(Time, JobId)> {
        let delayed = self.jobs.iter().filter(|job| job.tube == tube).filter_map(|job| match job.place {
            Place::Delayed { until } => Some((until, job.id)),
            _ => None,
        });
        delayed.min()
    }

    /// Returns the time of the tube's next event: the expiry of a delay, or the end of the pause or the rate window.
    fn tube_alarm(&self, tube: &Tube) -> Time {
        let delay = self.next_delayed(tube.name).map_or(Time::NEVER, |(until, _)| until);
        let opens = self.extended.rules.get(tube.name).and_then(|rules| rules.opens()).unwrap_or(Time::NEVER);
        tube.pause.map_or(delay, |(_, until)| until.min(delay)).min(opens)
    }

    fn alarms(&self) -> Vec<(Time, Alarm)> {
        let clients = self.clients.iter().map(|client| (self.client_alarm(client.id), Alarm::ClientState(client.id)));
        let tubes = self.tubes.iter().map(|tube| (self.tube_alarm(tube), Alarm::Tube(tube.name)));
        let lives = self.extended.ends_of_life().map(|(at, job)| (at, Alarm::Life(job)));
        let keys = self.extended.ended.iter().map(|key| (key.until, Alarm::Key(key.id)));
        let schedules = self.runs().map(|(at, job)| (at, Alarm::Schedule(job)));
        clients.chain(tubes).chain(lives).chain(keys).chain(schedules).collect()
    }

    pub fn next_deadline(&self) -> Time {
        self.alarms().into_iter().map(|(at, _)| at).min().unwrap_or(Time::NEVER)
    }

    /// Returns the next alarms if they are due. Several alarms can have the same time.
    fn due(&self, now: Time) -> Vec<Alarm> {
        let alarms = self.alarms();
        let first = alarms.iter().map(|&(at, _)| at).min().unwrap_or(Time::NEVER);
        alarms.into_iter().filter(|&(at, _)| at == first && at <= now).map(|(_, alarm)| alarm).collect()
    }

    /// Processes at most `limit` alarms in order of time, and returns all possible results. Simultaneous alarms can
    /// occur in any order.
    pub fn ticked(self, now: Time, limit: usize) -> Vec<Model> {
        let mut models = vec![self];
        for _ in 0..limit {
            let mut rang = false;
            let mut after = Vec::new();
            for model in models {
                let due = model.due(now);
                rang |= !due.is_empty();
                after.extend(due.iter().map(|&alarm| model.after(alarm, now)));
                if due.is_empty() {
                    after.push(model);
                }
            }
            models = after;
            if !rang {
                break;
            }
        }
        models
    }

    fn after(&self, alarm: Alarm, now: Time) -> Model {
        let mut model = self.clone();
        model.extended.now = now;
        match alarm {
            Alarm::Life(job) => model.ring_life(job),
            Alarm::Schedule(job) => model.ring_schedule(job, now),
            Alarm::Key(id) => model.extended.ended.retain(|key| key.id != id),
            Alarm::ClientState(client) => model.ring_client(client, now),
            Alarm::Tube(tube) => model.ring_tube(tube, now),
        }
        model
    }

    /// Handles one due event of the client: an expired reservation before a warning, and a warning before a timeout.
    fn ring_client(&mut self, client: ClientId, now: Time) {
        if self.take_one_ended(client, now) {
            return;
        }
        let why = if self.is_soon(client, now) { NoJob::DeadlineSoon } else { NoJob::TimedOut };
        assert!(self.cancel_wait(client), "{client:?} must be waiting");
        self.events.push(Event::NoJob { client, why });
    }

    /// Ends the client's first expired reservation. Returns `false` if there is none.
    fn take_one_ended(&mut self, client: ClientId, now: Time) -> bool {
        let ended = self.held(client).filter(|&(until, _)| until <= now).min();
        if let Some((_, job)) = ended {
            self.timeouts += 1;
            self.note_event(job, |events| &mut events.timeouts);
            self.job_mut(job).history.timeouts += 1;
            self.lose(job, now);
        }
        ended.is_some()
    }

    pub(super) fn take_ended(&mut self, client: ClientId, now: Time) {
        while self.take_one_ended(client, now) {}
    }

    /// If a delay expires just when the pause ends, makes the delayed job ready first, so that it competes by priority.
    fn ring_tube(&mut self, tube: Name, now: Time) {
        let pause = self.tube_mut(tube).pause.map_or(Time::NEVER, |(_, until)| until);
        let opens = self.extended.rules.get(tube).and_then(|rules| rules.opens()).unwrap_or(Time::NEVER);
        match self.next_delayed(tube) {
            Some((until, job)) if until <= pause.min(opens) => self.make_ready(job, now),
            _ if opens <= pause => {
                self.extended.rules.get_mut(tube).expect("a rate").taken = 0;
                self.serve(now);
            }
            _ => {
                self.tube_mut(tube).pause = None;
                self.serve(now);
            }
        }
    }
}
