//! Random operations on jobs with options, and random operations of the workers that process these jobs.
//!
//! Extends [`Life`] with the requests of producers and workers of all protocols. Must not check results (see `model`).

use beanpole::internals::engine::{Body, CompletionPolicy, DedupKey, JobId, JobOptions, NewJob, Outcome, Report, Span};

use crate::driver::{Life, RESERVE_POLICIES, TUBES};
use crate::verbs;

/// Unique names and bodies. There are only three, so random submissions often have the same name.
const SHARED: [&[u8]; 3] = [b"one", b"two", b"a name that is rather long for the name of a job"];

/// The index of the client that grabs jobs.
const SLEEPER: usize = 3;
const LEASER: usize = 4;

/// The maximum number of jobs that are excluded from the log.
const MAX_VOLATILE: usize = 10;

impl Life {
    pub fn verb_with_options(&mut self, many: bool) {
        let job = self.any();
        match self.random.below(20) {
            0..=3 if !many => self.submit_tracked(),
            0..=7 if !many => self.submit_kept(),
            0..=9 => self.lease(),
            10 | 11 => self.grab(),
            12..=14 => self.complete(job),
            15 | 16 => self.finish(job),
            17 => self.report(job),
            18 => drop(self.turn(|engine, now| {
                engine.delete_in_any_state(job, now);
                None
            })),
            _ => self.rare(job),
        }
        let engine = &self.access.0.borrow().1;
        self.volatile.retain(|id| engine.any_job(JobId(*id)).is_some_and(|job| job.is_volatile()));
        engine.check();
    }

    fn rare(&mut self, job: JobId) {
        let place = self.random.below(RESERVE_POLICIES.len() as u64) as usize;
        match self.random.below(4) {
            0 => drop(self.turn(|engine, now| {
                engine.cancel(job, now);
                None
            })),
            1 => {
                let client = self.client_at(SLEEPER);
                self.turn(|engine, now| {
                    verbs::give_back(engine, client, now);
                    None
                });
            }
            2 => self.run(),
            _ => {
                let client = self.client_at(place);
                self.hang_up(client);
            }
        }
    }

    /// Submits a job in the foreground or background. The server joins submissions with the same unique name.
    fn submit_tracked(&mut self) {
        let shared = self.random.pick(&SHARED);
        let dedup_key = match self.random.below(3) {
            0 => DedupKey::None,
            1 => DedupKey::Name(shared.into()),
            _ => DedupKey::Body(None),
        };
        let body = if dedup_key == DedupKey::Body(None) { Body::from(shared.to_vec()) } else { self.body() };
        let start = self.random.once_in(4).then(|| self.now + Span::from_millis(1500));
        let durable = !self.random.once_in(3) || self.volatile.len() >= MAX_VOLATILE;
        let reducer = self.random.once_in(6).then(|| shared.into());
        let attach = !durable || self.random.once_in(3);
        let options = JobOptions {
            completion: CompletionPolicy::Tell,
            dedup_key,
            durable,
            start,
            reducer,
            attach,
            ..JobOptions::default()
        };
        self.submit(options, body);
    }

    /// Submits a job whose outcome is retained.
    fn submit_kept(&mut self) {
        let mut id = [7; 16];
        // Occasionally reuses an existing ID.
        id[0] = self.random.below(100) as u8;
        let start = match self.random.below(4) {
            0 => Some(self.now + Span::from_millis(2500)),
            1 => Some(self.now - Span::from_millis(2500)),
            _ => None,
        };
        let options = JobOptions {
            completion: CompletionPolicy::Keep,
            dedup_key: if self.random.once_in(8) { DedupKey::None } else { DedupKey::Id(id) },
            durable: !self.random.once_in(6) || self.volatile.len() >= MAX_VOLATILE,
            start,
            ttl: self.random.pick(&[Span::MAX, Span::from_millis(1500), Span::from_secs(100)]),
            max_attempts: self.random.pick(&[0, 0, 1, 2, 255]),
            max_fails: self.random.pick(&[0, 0, 1, 2, 255]),
            ..JobOptions::default()
        };
        let body = self.body();
        self.submit(options, body);
    }

    fn submit(&mut self, options: JobOptions, body: Body) {
        let tube = self.random.pick(&TUBES);
        let pri = self.random.pick(&[0, 5, u32::MAX]);
        let delay = Span::from_millis(self.random.pick(&[0, 0, 1000]));
        let ttr = self.random.pick(&[Span::from_millis(700), Span::from_secs(2), Span::MAX]);
        let client = self.client_at(0);
        let durable = options.durable;
        self.wal.reserve(&self.access, (200 + tube.len() + body.len()) as u64);
        let mut volatile = None;
        self.turn(|engine, now| {
            let id = engine.submit(client, tube, NewJob { pri, delay, ttr, body }, options, now).ok()?.id.0;
            volatile = (!durable).then_some(id);
            durable.then_some(id)
        });
        self.volatile.extend(volatile);
    }

    /// Submits a job whose client waits for the outcome. The job is deleted when it finishes.
    fn run(&mut self) {
        let (client, tube, body) = (self.client_at(1), self.random.pick(&TUBES), self.body());
        let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(1), body };
        let mut volatile = None;
        self.turn(|engine, now| {
            let job = engine.run(client, tube, new, [9; 16], Span::from_secs(2), now);
            volatile = job.ok().map(|job| job.0);
            None
        });
        self.volatile.extend(volatile);
    }

    fn lease(&mut self) {
        let client = self.client_at(LEASER);
        let names = [self.random.pick(&TUBES), TUBES[0]];
        let timeout = Span::from_millis(self.random.pick(&[0, 0, 1000]));
        self.turn(|engine, now| {
            let _ = verbs::lease(engine, client, &names, timeout, now);
            None
        });
    }

    fn grab(&mut self) {
        let client = self.client_at(SLEEPER);
        let tube = self.random.pick(&TUBES);
        let sleeps = self.random.once_in(3);
        let limit = self.random.pick(&[None, None, Some(Span::from_millis(900))]);
        self.turn(|engine, now| {
            let _ = engine.watch_limited(client, tube, limit, now);
            match sleeps {
                true => drop(engine.sleep(client, now)),
                false => drop(engine.grab(client, now)),
            }
            None
        });
    }

    fn outcome(&mut self) -> Outcome {
        let result = self.body();
        match self.random.below(4) {
            0 | 1 => Outcome::Done(result),
            2 => Outcome::Failed(result),
            _ => Outcome::Fault(result),
        }
    }

    /// Reports a job's outcome without holding the job. If the log lacks space, the report must have no effect.
    fn complete(&mut self, job: JobId) {
        let outcome = self.outcome();
        let size = match &outcome {
            Outcome::Done(result) | Outcome::Failed(result) | Outcome::Fault(result) => result.len(),
            Outcome::Gone => 0,
        };
        self.wal.reserve(&self.access, 100 + size as u64);
        self.turn(|engine, now| {
            let _ = engine.complete(job, outcome, now);
            None
        });
    }

    /// Lets a random client report a job's outcome. The report has an effect only if the client holds the job.
    fn finish(&mut self, job: JobId) {
        let outcome = self.outcome();
        let place = self.random.below(RESERVE_POLICIES.len() as u64) as usize;
        let client = self.client_at(place);
        self.turn(|engine, now| {
            let _ = engine.finish(client, job, outcome, now);
            None
        });
    }

    fn report(&mut self, job: JobId) {
        let client = self.client_at(SLEEPER);
        let report = Report::Progress { text: Body::default(), done: 1, total: 2 };
        self.turn(|engine, now| {
            verbs::report(engine, client, job, report, now);
            None
        });
    }
}
