//! Tests histories that random runs find too rarely. The jobs in these histories have options.
//!
//! Contains one test for each past or potential defect in outcomes, leases and repeated submissions.

use beanpole::internals::binlog::{Health, SyncMode};
use beanpole::internals::engine::{
    Body, ClientId, CompletionPolicy, DedupKey, Engine, Failed, Grab, JobId, JobOptions, NewJob, NotCompleted, Outcome,
    ReservePolicy, Span, State, Time,
};

use crate::disk::{Disk, Operation, EIO};
use crate::driver::{dawn, settings, start, Life};
use crate::model::find_name;
use crate::verbs;

fn life(disk: &Disk, segment: u64) -> Life {
    let mut life = Life::begin(disk.clone(), settings(segment, SyncMode::Always), dawn(), 1).expect("a log");
    life.with_options = false;
    life.settle();
    life
}

fn new(body: &[u8]) -> NewJob {
    NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(5), body: Body::from(body.to_vec()) }
}

/// Returns the options of a job whose outcome is retained.
pub fn kept(number: u8) -> JobOptions {
    JobOptions { completion: CompletionPolicy::Keep, dedup_key: DedupKey::Id([number; 16]), ..JobOptions::default() }
}

fn named(name: &[u8], durable: bool) -> JobOptions {
    JobOptions {
        completion: CompletionPolicy::Tell,
        dedup_key: DedupKey::Name(name.into()),
        durable,
        attach: true,
        ..JobOptions::default()
    }
}

impl Life {
    /// Submits a job. Panics if the log lacks space.
    fn submit_plainly(&mut self, body: &[u8], options: JobOptions) -> JobId {
        self.try_submit(body, options).expect("space for a job")
    }

    /// Submits a job. Returns `None` if the log lacks space.
    pub fn try_submit(&mut self, body: &[u8], options: JobOptions) -> Option<JobId> {
        let client = self.first_client();
        let durable = options.durable;
        self.wal.reserve(&self.access, 300 + body.len() as u64);
        let mut id = None;
        self.turn(|engine, now| {
            id = engine.submit(client, b"t", new(body), options, now).ok().map(|submitted| submitted.id);
            id.filter(|_| durable).map(|id| id.0)
        });
        id
    }

    pub fn say(&mut self, job: JobId, outcome: Outcome) -> Result<(), NotCompleted> {
        if let Outcome::Done(result) | Outcome::Failed(result) = &outcome {
            self.wal.reserve(&self.access, 100 + result.len() as u64);
        }
        let mut answer = Ok(());
        self.turn(|engine, now| {
            answer = engine.complete(job, outcome, now);
            None
        });
        answer
    }

    fn save(&mut self) {
        assert!(self.wal.write(&self.access) && self.wal.sync(&self.access));
    }

    /// Recovers the queue as if the power failed now, and compares it with the model.
    fn cut(&mut self) -> Engine {
        self.model.advance(self.wal.durable());
        let disk = self.disk.power_cut(1);
        disk.heal();
        let (engine, ..) = start(&disk, settings(4096, SyncMode::Always), self.now).expect("a log");
        self.model.compare(&engine, self.now).unwrap_or_else(|error| panic!("{error}"));
        engine
    }
}

fn connect_as(life: &mut Life, reserve_policy: ReservePolicy) -> ClientId {
    life.access.0.borrow_mut().1.connect_as(reserve_policy)
}

fn done(bytes: &[u8]) -> Outcome {
    Outcome::Done(Body::from(bytes.to_vec()))
}

fn outcome(engine: &Engine, job: JobId) -> Option<(bool, Vec<u8>)> {
    let job = engine.any_job(job)?;
    engine.outcome(&job).map(|(done, result)| (done, result.to_vec()))
}

/// The record of the outcome does not contain the priority.
#[test]
fn a_failure_stores_the_priority() {
    let disk = Disk::new(1);
    let mut life = life(&disk, 4096);
    let job = life.submit_plainly(b"body", JobOptions { max_fails: 3, ..kept(1) });
    let client = life.first_client();
    life.turn(|engine, now| {
        engine.reserve_job(client, job, now).expect("a ready job");
        assert_eq!(engine.fail(client, job, 57, b"why", now), Some(Failed::Retried(Span::ZERO)));
        None
    });
    life.save();
    let engine = life.cut();
    assert_eq!(engine.any_job(job).map(|job| (job.priority(), job.fails)), Some((57, 1)));
}

#[test]
fn an_outcome_recorded_twice_counts_once() {
    let disk = Disk::new(1);
    let mut life = life(&disk, 4096);
    let job = life.submit_plainly(b"body", kept(1));
    life.save();
    // The sync after the reservation and the outcome fails, so the log writes both records again to another segment.
    let client = life.first_client();
    life.turn(|engine, now| {
        engine.reserve_job(client, job, now).expect("a ready job");
        None
    });
    assert_eq!(life.say(job, done(b"result")), Ok(()));
    disk.fail(Operation::Sync, EIO, 1);
    assert!(life.wal.write(&life.access) && !life.wal.sync(&life.access));
    life.wal.maintain(&life.access, true);
    assert_eq!(life.health(), Health::Ok);
    // Crashes before the record of the put is copied to the new segment.
    let disk = life.disk.kill(1);
    let mut next = Life::begin(disk, settings(4096, SyncMode::Always), life.now, 1).expect("a log");
    {
        let (_, engine) = &*next.access.0.borrow();
        let view = engine.any_job(job).expect("a job");
        assert_eq!(&view.body().bytes()[..engine.payload_len(&view)], b"body");
        assert_eq!(outcome(engine, job), Some((true, b"result".to_vec())));
    }
    next.turn(|engine, now| {
        assert!(engine.delete_in_any_state(job, now));
        None
    });
    assert_eq!(next.access.0.borrow().0.stats().live, 0, "the log must contain no live data");
}

#[test]
fn replies_to_results_wait_for_a_failing_disk() {
    let mut life = life(&Disk::new(1), 4096);
    let jobs = [life.submit_plainly(b"", kept(1)), life.submit_plainly(b"", kept(2))];
    let puts = |life: &Life| life.access.0.borrow().0.required.puts;
    let before = puts(&life);
    assert_eq!(life.say(jobs[0], done(b"")), Ok(()));
    assert_eq!(puts(&life), before, "the reply to an empty result must not wait");
    assert_eq!(life.say(jobs[1], done(b"result")), Ok(()));
    assert!(puts(&life) > before);
}

#[test]
fn failing_an_unreserved_job_buries_it() {
    let disk = Disk::new(1);
    let mut life = life(&disk, 4096);
    let client = life.first_client();
    for delay in [Span::ZERO, Span::from_secs(50)] {
        let job = JobId(life.put(client, b"t", 1, delay).expect("space for a job"));
        assert_eq!(life.say(job, Outcome::Failed(Body::default())), Ok(()));
        life.access.0.borrow().1.check();
        life.save();
        assert_eq!(life.cut().any_job(job).expect("a job").state(), State::Buried);
    }
}

#[test]
fn joining_a_volatile_job_makes_it_durable() {
    let disk = Disk::new(1);
    let mut life = life(&disk, 4096);
    let job = life.submit_plainly(b"body", named(b"n", false));
    life.save();
    assert!(life.cut().any_job(job).is_none());
    let sleeper = connect_as(&mut life, ReservePolicy::Notified);
    life.turn(|engine, now| {
        engine.watch(sleeper, b"t", now).expect("a tube");
        assert!(matches!(engine.grab(sleeper, now), Grab::Job(found) if found.id() == job));
        None
    });
    assert_eq!(life.submit_plainly(b"other", named(b"n", true)), job);
    let before = life.access.0.borrow().0.required;
    assert_eq!(before.puts, before.any, "the reply to a joining client must wait for the job");
    life.save();
    let back = life.cut();
    assert_eq!(find_name(&back, b"n"), Some(job));
    assert_eq!(back.any_job(job).expect("a job").state(), State::Ready);
    assert_eq!(back.any_job(job).expect("a job").history().reserves, 1);
    // Canceling removes a leased job immediately. A new job with the same name must not be joined with the canceled
    // job.
    life.turn(|engine, now| {
        assert!(engine.cancel(job, now));
        None
    });
    life.save();
    assert!(life.cut().any_job(job).is_none());
    let other = life.submit_plainly(b"other", named(b"n", true));
    assert_ne!(other, job);
    life.save();
    life.turn(|engine, now| {
        assert!(engine.finish(sleeper, job, done(b"late"), now).is_ok());
        None
    });
    life.save();
    let back = life.cut();
    assert_eq!((find_name(&back, b"n"), back.any_job(job).is_some()), (Some(other), false));
}

// Tests promises P10 and P39 of beanpole-promises(7).
#[test]
fn a_lease_continues_across_restarts_and_expires_in_time() {
    let disk = Disk::new(1);
    let mut life = life(&disk, 4096);
    let options = JobOptions { max_attempts: 2, ttl: Span::from_secs(60), ..kept(1) };
    let job = life.submit_plainly(b"body", options);
    let leaser = connect_as(&mut life, ReservePolicy::Lease);
    let mut due = Time::NEVER;
    life.turn(|engine, now| {
        let _ = verbs::lease(engine, leaser, &[b"t"], Span::ZERO, now);
        engine.disconnect(leaser, now);
        due = engine.any_job(job).expect("a job").due();
        None
    });
    life.save();
    let (mut disk, mut now) = (life.disk.kill(1), life.now);
    for _ in 0..3 {
        now = now + Span::from_millis(1500);
        let (mut engine, mut journal, wal, _) = start(&disk, settings(4096, SyncMode::Always), now).expect("a log");
        let view = engine.any_job(job).expect("a job");
        assert_eq!((view.is_leased(), view.due(), view.history().reserves), (true, due, 1));
        while !engine.tick(now) {}
        journal.append(&mut engine);
        let access = crate::driver::Access((journal, engine).into());
        assert!(wal.write(&access) && wal.sync(&access));
        disk = disk.kill(1);
    }
    let (mut engine, ..) = start(&disk, settings(4096, SyncMode::Always), due).expect("a log");
    while !engine.tick(due) {}
    assert_eq!(engine.any_job(job).expect("a job").state(), State::Ready);
    let end = dawn() + Span::from_secs(60);
    while !engine.tick(end - Span::from_nanos(1)) {}
    assert!(engine.any_job(job).is_some());
    while !engine.tick(end) {}
    assert!(engine.any_job(job).is_none(), "the job must expire despite the restarts");
}

#[test]
fn a_kick_that_ends_a_lease_keeps_the_number_of_failed_tries() {
    let disk = Disk::new(1);
    let mut life = life(&disk, 4096);
    let job = life.submit_plainly(b"body", JobOptions { max_fails: 2, ..kept(1) });
    let leaser = connect_as(&mut life, ReservePolicy::Lease);
    life.turn(|engine, now| {
        let _ = verbs::lease(engine, leaser, &[b"t"], Span::ZERO, now);
        assert!(engine.complete(job, Outcome::Failed(Body::default()), now).is_ok());
        let _ = verbs::lease(engine, leaser, &[b"t"], Span::ZERO, now);
        assert!(engine.any_job(job).expect("a job").is_leased() && engine.kick_job(job, now) == Ok(true));
        None
    });
    life.save();
    let back = life.cut();
    let view = back.any_job(job).expect("a job");
    assert_eq!((view.fails, view.history().kicks, view.state()), (1, 1, State::Ready));
}

#[test]
fn scheduled_jobs_keep_their_order_across_a_restart() {
    let disk = Disk::new(1);
    let mut life = life(&disk, 4096);
    let now = life.now;
    let starts = [3000, 1000, 2000].map(|millis| Some(now + Span::from_millis(millis)));
    let jobs: Vec<JobId> = (0..3)
        .map(|number| life.submit_plainly(b"", JobOptions { start: starts[number], ..kept(number as u8) }))
        .collect();
    let plain = life.submit_plainly(b"", kept(9));
    life.save();
    let late = now + Span::from_secs(10);
    let (mut engine, ..) = start(&life.disk.kill(1), settings(4096, SyncMode::Always), late).expect("a log");
    let client = engine.connect_as(ReservePolicy::Notified);
    engine.watch(client, b"t", late).expect("a tube");
    let grab = || match engine.grab(client, late) {
        Grab::Job(job) => Some(job.id()),
        _ => None,
    };
    let order: Vec<JobId> = std::iter::from_fn(grab).collect();
    assert_eq!(order, [plain, jobs[1], jobs[2], jobs[0]]);
}
