//! Tests of the subtle rules, one by one.

use super::super::*;

/// An engine with a clock. [`Queue::pass`] and [`Queue::news`] check all invariants.
struct Queue {
    engine: Engine,
    now: Time,
}

const TTR: Span = Span::from_secs(10);

fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

fn got(client: ClientId, job: JobId) -> Event {
    Event::Reserved { client, job }
}

impl Queue {
    fn new() -> Queue {
        let limits = Limits { max_memory: 100_000, max_tubes: 100, max_watched: 100, hash_secret: 1, ..Limits::NONE };
        Queue { engine: Engine::new(limits), now: Time::from_nanos(1_700_000_000_000_000_000) }
    }

    fn clients<const N: usize>(&mut self) -> [ClientId; N] {
        std::array::from_fn(|_| self.engine.connect())
    }

    fn put(&mut self, client: ClientId, pri: Priority, delay: Span, ttr: Span) -> JobId {
        let new = NewJob { pri, delay, ttr, body: Body::from(b"work".as_slice()) };
        self.engine.put(client, new, self.now).expect("memory for a job")
    }

    fn put_ready(&mut self, client: ClientId, pri: Priority) -> JobId {
        self.put(client, pri, Span::ZERO, TTR)
    }

    fn take(&mut self, client: ClientId) -> JobId {
        match self.engine.reserve(client, Some(Span::ZERO), self.now) {
            Reserve::Job(job) => job.id(),
            other => panic!("{client:?} got {other:?}"),
        }
    }

    /// Requests a job without waiting. Returns the reason why the client receives no job.
    fn denied(&mut self, client: ClientId) -> NoJob {
        match self.engine.reserve(client, Some(Span::ZERO), self.now) {
            Reserve::NoJob(why) => why,
            other => panic!("{client:?} got {other:?}"),
        }
    }

    /// Makes the client wait. Panics if there is a job.
    fn wait(&mut self, client: ClientId, timeout: Option<Span>) {
        assert!(matches!(self.engine.reserve(client, timeout, self.now), Reserve::Waiting), "{client:?} should wait");
    }

    fn wait_all<const N: usize>(&mut self, clients: [ClientId; N]) {
        clients.into_iter().for_each(|client| self.wait(client, None));
    }

    fn release(&mut self, client: ClientId, job: JobId, pri: Priority, delay: Span) {
        assert!(self.engine.release(client, job, pri, delay, self.now), "{client:?} must hold {job:?}");
    }

    fn kick(&mut self, client: ClientId, bound: u64) -> u64 {
        let mut kick = super::super::Kick::new(bound);
        while self.engine.kick(client, &mut kick, self.now) == Progress::More {}
        kick.done
    }

    fn pause(&mut self, tube: &str, length: Span) {
        assert!(self.engine.pause(tube.as_bytes(), length, self.now), "{tube} must exist");
    }

    /// Advances the clock, with a tick at the time of each event.
    fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while self.engine.next_deadline() <= end {
            self.now = self.engine.next_deadline();
            self.engine.tick(self.now);
            self.engine.check();
        }
        self.now = end;
    }

    /// Advances the clock without ticks, and then processes all due events at the new time.
    fn stall(&mut self, span: Span) {
        self.now = self.now + span;
        while !self.engine.tick(self.now) {}
    }

    fn news(&mut self) -> Vec<Event> {
        self.engine.check();
        std::iter::from_fn(|| self.engine.take_event()).collect()
    }

    fn state(&self, job: JobId) -> State {
        self.engine.job(job).expect("a job").state()
    }

    fn history(&self, job: JobId) -> History {
        self.engine.job_stats(job, self.now).expect("a job").history
    }
}

#[test]
fn a_released_job_goes_before_later_ones_of_its_priority() {
    let mut queue = Queue::new();
    let [client] = queue.clients();
    let jobs = [7, 7, 7, 6].map(|pri| queue.put_ready(client, pri));
    assert_eq!(queue.take(client), jobs[3]);
    assert_eq!(queue.take(client), jobs[0]);
    queue.release(client, jobs[0], 7, Span::ZERO);
    queue.release(client, jobs[3], 8, Span::ZERO);
    let order = [jobs[0], jobs[1], jobs[2], jobs[3]];
    assert_eq!(order.map(|_| queue.take(client)), order);
}

#[test]
fn the_best_of_all_watched_tubes_is_served_whatever_their_order() {
    let mut queue = Queue::new();
    let [worker, client] = queue.clients();
    let mut jobs = Vec::new();
    for (tube, pri) in [("a", 5), ("b", 3), ("default", 5), ("b", 5), ("unwatched", 0)] {
        queue.engine.use_tube(client, tube.as_bytes()).unwrap();
        jobs.push(queue.put_ready(client, pri));
    }
    for tube in [b"b", b"a"] {
        queue.engine.watch(worker, tube, queue.now).unwrap();
    }
    let order = [jobs[1], jobs[0], jobs[2], jobs[3]];
    assert_eq!(order.map(|_| queue.take(worker)), order);
    assert_eq!(queue.denied(worker), NoJob::TimedOut);
}

// Tests promise P9 of beanpole-promises(7).
#[test]
fn a_delayed_job_competes_by_priority_and_id_once_it_is_ready() {
    let mut queue = Queue::new();
    let [client] = queue.clients();
    let late = queue.put(client, 7, secs(2), TTR);
    let urgent = queue.put(client, 1, secs(3), TTR);
    let ready = queue.put_ready(client, 7);
    queue.pass(secs(3));
    assert_eq!([urgent, late, ready].map(|_| queue.take(client)), [urgent, late, ready]);
}

// Tests promise P6 of beanpole-promises(7).
#[test]
fn the_client_that_waits_longest_is_served_first() {
    let mut queue = Queue::new();
    let [first, second, third, client] = queue.clients();
    queue.wait_all([first, second, third]);
    assert!(queue.engine.cancel_wait(first));
    queue.wait(first, None);
    let jobs = [9, 8, 7].map(|pri| queue.put_ready(client, pri));
    assert_eq!(queue.news(), [got(second, jobs[0]), got(third, jobs[1]), got(first, jobs[2])]);
}

// Tests promise P9 of beanpole-promises(7).
#[test]
fn the_end_of_a_pause_serves_waiting_clients_in_order() {
    for early in [false, true] {
        let mut queue = Queue::new();
        let [first, second, client] = queue.clients();
        queue.pause("default", secs(3));
        let jobs = [7, 5].map(|pri| queue.put_ready(client, pri));
        queue.wait_all([first, second]);
        assert_eq!(queue.news(), []);
        if early {
            queue.pause("default", Span::ZERO);
        } else {
            queue.pass(secs(3));
        }
        assert_eq!(queue.news(), [got(first, jobs[1]), got(second, jobs[0])]);
    }
}

#[test]
fn a_job_put_into_a_paused_tube_stays_there_while_clients_wait() {
    let mut queue = Queue::new();
    let [worker, client] = queue.clients();
    queue.wait(worker, Some(secs(2)));
    queue.pause("default", secs(3));
    let job = queue.put_ready(client, 7);
    queue.pass(secs(2));
    assert_eq!(queue.news(), [Event::NoJob { client: worker, why: NoJob::TimedOut }]);
    assert_eq!(queue.engine.peek(client, State::Ready).map(|job| job.id()), Some(job));
    assert_eq!(queue.denied(worker), NoJob::TimedOut);
    queue.wait(worker, Some(secs(2)));
    queue.pass(secs(1));
    assert_eq!(queue.news(), [got(worker, job)]);
}

#[test]
fn a_pause_affects_one_tube_and_no_reservation_by_id() {
    let mut queue = Queue::new();
    let [worker, client] = queue.clients();
    queue.pause("default", secs(9));
    let paused = [0, 0].map(|pri| queue.put_ready(client, pri));
    queue.engine.use_tube(client, b"open").unwrap();
    queue.engine.watch(worker, b"open", queue.now).unwrap();
    let open = queue.put_ready(client, 9);
    assert_eq!(queue.take(worker), open);
    assert!(queue.engine.reserve_job(worker, paused[1], queue.now).is_some());
    assert!(queue.engine.delete(client, paused[0], queue.now));
    queue.engine.check();
}

#[test]
fn a_new_pause_replaces_a_longer_one() {
    let mut queue = Queue::new();
    let [worker, client] = queue.clients();
    queue.pause("default", secs(100));
    queue.pause("default", secs(1));
    let job = queue.put_ready(client, 7);
    queue.wait(worker, None);
    let stats = queue.engine.tube_stats(DEFAULT, queue.now).unwrap();
    assert_eq!((stats.pauses, stats.pause, stats.pause_left), (2, secs(1), secs(1)));
    queue.pass(secs(1));
    assert_eq!(queue.news(), [got(worker, job)]);
    assert_eq!(queue.engine.tube_stats(DEFAULT, queue.now).unwrap().pause, Span::ZERO);
}

#[test]
fn a_delay_that_ends_no_later_than_a_pause_has_ended_when_the_pause_does() {
    for (delay, stalls) in [(3, false), (2, true)] {
        let mut queue = Queue::new();
        let [worker, client] = queue.clients();
        queue.pause("default", secs(3));
        queue.put_ready(client, 7);
        let best = queue.put(client, 1, secs(delay), TTR);
        queue.wait(worker, None);
        if stalls {
            queue.stall(secs(4));
        } else {
            queue.pass(secs(4));
        }
        assert_eq!(queue.news(), [got(worker, best)], "delay {delay}, stalls: {stalls}");
    }
}

// Tests promise P6 of beanpole-promises(7).
#[test]
fn a_client_that_waits_in_two_tubes_gets_one_job() {
    let mut queue = Queue::new();
    let [worker, other, client] = queue.clients();
    queue.engine.watch(worker, b"second", queue.now).unwrap();
    queue.engine.watch(other, b"second", queue.now).unwrap();
    queue.wait(worker, None);
    queue.wait(other, None);
    let job = queue.put_ready(client, 7);
    queue.engine.use_tube(client, b"second").unwrap();
    let second = queue.put_ready(client, 7);
    let third = queue.put_ready(client, 7);
    assert_eq!(queue.news(), [got(worker, job), got(other, second)]);
    assert_eq!(queue.state(third), State::Ready);
    assert_eq!(queue.engine.stats().waiting, 0);
}

// Tests promise P8 of beanpole-promises(7).
#[test]
fn an_expired_job_goes_to_the_client_that_waits_longest() {
    let mut queue = Queue::new();
    let [holder, first, second, client] = queue.clients();
    let job = queue.put(client, 7, Span::ZERO, secs(3));
    assert_eq!(queue.take(holder), job);
    queue.wait_all([first, second]);
    queue.pass(secs(3));
    assert_eq!(queue.news(), [got(first, job)]);
    assert!(!queue.engine.touch(holder, job, queue.now));
    assert!(!queue.engine.delete(holder, job, queue.now));
    assert_eq!(queue.history(job), History { reserves: 2, timeouts: 1, ..History::default() });
    assert_eq!(queue.engine.stats().timeouts, 1);
}

#[test]
fn after_a_stall_an_expired_job_may_return_to_its_former_holder() {
    let mut queue = Queue::new();
    let [holder, other, client] = queue.clients();
    let job = queue.put(client, 7, Span::ZERO, secs(3));
    assert_eq!(queue.take(holder), job);
    queue.wait(holder, Some(secs(5)));
    queue.wait(other, Some(secs(5)));
    queue.stall(secs(3));
    assert_eq!(queue.news(), [got(holder, job)], "the client must not be warned");
    assert_eq!(queue.engine.job_stats(job, queue.now).unwrap().left, secs(3));
    assert!(queue.engine.touch(holder, job, queue.now));
}

#[test]
fn an_expired_job_is_lost_to_its_holder_before_the_tick() {
    let mut queue = Queue::new();
    let [holder, other, client] = queue.clients();
    let jobs = [1, 2].map(|ttr| queue.put(client, 7, Span::ZERO, secs(ttr)));
    assert_eq!(jobs.map(|_| queue.take(holder)), jobs);
    queue.wait(other, None);
    queue.now = queue.now + secs(1);
    assert!(!queue.engine.touch(holder, jobs[0], queue.now));
    assert_eq!(queue.news(), [got(other, jobs[0])]);
    queue.now = queue.now + secs(1);
    assert_eq!(queue.take(holder), jobs[1], "the client must get the job, not a warning");
    assert_eq!(queue.history(jobs[1]), History { reserves: 2, timeouts: 1, ..History::default() });
}

#[test]
fn an_expired_job_that_nobody_took_can_be_deleted_by_its_former_holder() {
    let mut queue = Queue::new();
    let [holder] = queue.clients();
    let job = queue.put(holder, 7, Span::ZERO, secs(1));
    assert_eq!(queue.take(holder), job);
    queue.pass(secs(1));
    assert_eq!(queue.state(job), State::Ready);
    assert!(!queue.engine.bury(holder, job, 7, queue.now));
    assert!(queue.engine.delete(holder, job, queue.now));
}

#[test]
fn a_client_in_the_last_second_is_warned_only_if_there_is_no_job() {
    let mut queue = Queue::new();
    let [worker, client] = queue.clients();
    let [held, other] = [3, 9].map(|ttr| queue.put(client, 7, Span::ZERO, secs(ttr)));
    assert_eq!(queue.take(worker), held);
    queue.pass(Span::from_nanos(1_999_999_999));
    assert_eq!(queue.take(worker), other);
    assert_eq!(queue.denied(worker), NoJob::TimedOut);
    queue.pass(Span::from_nanos(1));
    assert_eq!(queue.denied(worker), NoJob::DeadlineSoon);
    queue.pause("default", secs(9));
    let third = queue.put_ready(client, 7);
    assert_eq!(queue.denied(worker), NoJob::DeadlineSoon);
    queue.pause("default", Span::ZERO);
    assert_eq!(queue.take(worker), third);
    assert!(queue.engine.touch(worker, held, queue.now));
    assert_eq!(queue.denied(worker), NoJob::TimedOut);
    queue.engine.check();
}

// Tests promise P8 of beanpole-promises(7).
#[test]
fn a_waiting_client_is_warned_of_its_nearest_deadline() {
    let mut queue = Queue::new();
    let [worker, client] = queue.clients();
    for ttr in [7, 4] {
        queue.put(client, 7, Span::ZERO, secs(ttr));
        queue.take(worker);
    }
    queue.wait(worker, Some(secs(3)));
    queue.pass(Span::from_nanos(2_999_999_999));
    assert_eq!(queue.news(), []);
    queue.pass(Span::from_nanos(1));
    assert_eq!(queue.news(), [Event::NoJob { client: worker, why: NoJob::DeadlineSoon }], "must not be a timeout");
    assert_eq!(queue.engine.stats().jobs.reserved, 2);
}

// Tests promise P2 of beanpole-promises(7).
#[test]
fn only_its_holder_deletes_a_reserved_job() {
    let mut queue = Queue::new();
    let [holder, other] = queue.clients();
    let job = queue.put_ready(other, 7);
    assert_eq!(queue.take(holder), job);
    assert!(!queue.engine.delete(other, job, queue.now));
    assert!(!queue.engine.release(other, job, 0, Span::ZERO, queue.now));
    assert!(!queue.engine.bury(other, job, 0, queue.now));
    assert!(!queue.engine.touch(other, job, queue.now));
    assert!(queue.engine.reserve_job(other, job, queue.now).is_none());
    assert!(queue.engine.reserve_job(holder, job, queue.now).is_none());
    assert_eq!(queue.engine.kick_job(job, queue.now), Ok(false));
    assert!(queue.engine.delete(holder, job, queue.now));
    assert!(!queue.engine.delete(holder, job, queue.now));
    queue.engine.check();
}

#[test]
fn unreserved_jobs_can_be_deleted_by_any_client() {
    let mut queue = Queue::new();
    let [client, other] = queue.clients();
    let buried = queue.put_ready(client, 7);
    assert_eq!(queue.take(client), buried);
    assert!(queue.engine.bury(client, buried, 7, queue.now));
    let delayed = queue.put(client, 7, secs(5), TTR);
    let ready = queue.put_ready(client, 7);
    for job in [buried, delayed, ready] {
        assert!(queue.engine.delete(other, job, queue.now), "{job:?}");
    }
    assert_eq!(queue.engine.next_deadline(), Time::NEVER);
    queue.engine.check();
}

// Tests promise P10 of beanpole-promises(7).
#[test]
fn the_most_urgent_job_of_a_disconnected_client_goes_to_the_longest_waiting_client() {
    let mut queue = Queue::new();
    let [holder, first, second, client] = queue.clients();
    let urgent = queue.put(client, 1, Span::ZERO, secs(9));
    let dull = queue.put(client, 2, Span::ZERO, secs(5));
    assert_eq!([urgent, dull].map(|_| queue.take(holder)), [urgent, dull]);
    queue.wait_all([first, second]);
    queue.engine.disconnect(holder, queue.now);
    assert_eq!(queue.news(), [got(first, urgent), got(second, dull)]);
    assert_eq!(queue.history(dull), History { reserves: 2, ..History::default() });
    assert_eq!(queue.engine.stats().timeouts, 0);
}

#[test]
fn a_waiting_client_that_disconnects_gets_none_of_its_jobs() {
    let mut queue = Queue::new();
    let [holder, client] = queue.clients();
    let job = queue.put_ready(client, 7);
    assert_eq!(queue.take(holder), job);
    queue.wait(holder, None);
    queue.engine.disconnect(holder, queue.now);
    assert_eq!(queue.news(), []);
    assert_eq!(queue.state(job), State::Ready);
    assert_eq!(queue.engine.next_deadline(), Time::NEVER);
}

// Tests promises P5 and P7 of beanpole-promises(7).
#[test]
fn buried_jobs_are_kicked_in_the_order_of_burial_and_before_delayed_ones() {
    let mut queue = Queue::new();
    let [client] = queue.clients();
    let jobs = [1, 2, 3].map(|pri| queue.put_ready(client, pri));
    let delayed = queue.put(client, 0, secs(5), TTR);
    assert_eq!(jobs.map(|_| queue.take(client)), jobs);
    for job in [jobs[2], jobs[0], jobs[1]] {
        assert!(queue.engine.bury(client, job, 7, queue.now));
    }
    assert_eq!(queue.engine.peek(client, State::Buried).map(|job| job.id()), Some(jobs[2]));
    assert_eq!(queue.kick(client, 2), 2);
    assert_eq!(jobs.map(|job| queue.state(job)), [State::Ready, State::Buried, State::Ready]);
    assert_eq!(queue.kick(client, 9), 1);
    assert_eq!(queue.state(delayed), State::Delayed);
    assert_eq!(queue.kick(client, u64::MAX), 1);
    assert_eq!(queue.state(delayed), State::Ready);
    assert_eq!(queue.kick(client, 9), 0);
    queue.engine.check();
}

#[test]
fn kicked_jobs_are_given_to_waiting_clients_one_by_one() {
    let mut queue = Queue::new();
    let [first, second, client] = queue.clients();
    queue.wait_all([first, second]);
    let late = queue.put(client, 1, secs(9), TTR);
    let soon = queue.put(client, 2, secs(5), TTR);
    assert_eq!(queue.kick(client, 10), 2);
    assert_eq!(queue.news(), [got(first, soon), got(second, late)]);
}

#[test]
fn a_job_reserved_by_its_id_becomes_ready_when_it_expires() {
    let mut queue = Queue::new();
    let [client] = queue.clients();
    let job = queue.put(client, 7, secs(100), secs(2));
    assert!(queue.engine.reserve_job(client, job, queue.now).is_some());
    queue.pass(secs(2));
    assert_eq!(queue.state(job), State::Ready);
    assert_eq!(queue.engine.job_stats(job, queue.now).unwrap().delay, secs(100));
    assert_eq!(queue.engine.next_deadline(), Time::NEVER);
}

#[test]
fn the_last_reference_ends_a_tube_with_its_pause_and_its_counts() {
    let mut queue = Queue::new();
    let [client, other] = queue.clients();
    queue.engine.use_tube(client, b"t").unwrap();
    queue.engine.watch(other, b"t", queue.now).unwrap();
    let job = queue.put_ready(client, 7);
    queue.pause("t", secs(100));
    queue.engine.use_tube(client, DEFAULT).unwrap();
    queue.engine.disconnect(other, queue.now);
    assert_eq!(queue.engine.tube_stats(b"t", queue.now).unwrap().pauses, 1, "a job keeps the tube");
    assert!(queue.engine.delete(client, job, queue.now));
    assert_eq!(queue.engine.tube_stats(b"t", queue.now), None);
    assert_eq!(queue.engine.next_deadline(), Time::NEVER);
    assert!(!queue.engine.pause(b"t", secs(1), queue.now));
    queue.engine.watch(client, b"t", queue.now).unwrap();
    let stats = queue.engine.tube_stats(b"t", queue.now).unwrap();
    assert_eq!((stats.pause, stats.pauses, stats.total_jobs, stats.deletes), (Span::ZERO, 0, 0, 0));
    assert_eq!(queue.engine.ignore(client, b"t", queue.now), Some(1));
    assert_eq!(queue.engine.ignore(client, b"t", queue.now), Some(1));
    assert_eq!(queue.engine.ignore(client, DEFAULT, queue.now), None);
    assert_eq!(queue.engine.tube_names().collect::<Vec<_>>(), [DEFAULT]);
    queue.engine.check();
}

// Tests promise P4 of beanpole-promises(7).
#[test]
fn ids_are_never_assigned_twice_or_to_refused_jobs() {
    let mut queue = Queue::new();
    let [client] = queue.clients();
    for id in 1..=3 {
        let job = queue.put_ready(client, 7);
        assert_eq!(job, JobId(id));
        assert!(queue.engine.delete(client, job, queue.now));
        let body = Body::from(vec![0; 200_000]);
        let new = NewJob { pri: 7, delay: Span::ZERO, ttr: TTR, body };
        assert_eq!(queue.engine.put(client, new, queue.now), Err(Refused::OutOfMemory));
    }
    queue.engine.set_draining(true);
    let new = NewJob { pri: 7, delay: Span::ZERO, ttr: TTR, body: Body::from(vec![]) };
    assert_eq!(queue.engine.put(client, new, queue.now), Err(Refused::Draining));
    let stats = queue.engine.stats();
    assert_eq!((stats.total_jobs, stats.jobs.all()), (3, 0));
    assert_eq!(stats.memory, Account { tubes: TUBE_COST, watches: WATCH_COST, ..Account::default() });
    queue.engine.check();
}

#[test]
fn a_tick_leaves_the_rest_for_the_next_one() {
    let mut queue = Queue::new();
    let [client] = queue.clients();
    let jobs = [3, 1, 2].map(|delay| queue.put(client, 7, secs(delay), TTR));
    queue.now = queue.now + secs(3);
    assert!(!queue.engine.tick(queue.now) && !queue.engine.tick(queue.now));
    assert_eq!(jobs.map(|job| queue.state(job)), [State::Delayed, State::Ready, State::Ready]);
    assert!(queue.engine.tick(queue.now));
    assert_eq!(queue.state(jobs[0]), State::Ready);
    queue.engine.check();
}

#[test]
fn each_waiting_submission_uses_memory_that_is_released() {
    let mut queue = Queue::new();
    let (client, now) = (queue.engine.connect_as(ReservePolicy::Notified), queue.now);
    let submit = |queue: &mut Queue| {
        let new = NewJob { pri: 0, delay: Span::ZERO, ttr: TTR, body: Body::default() };
        let dedup_key = DedupKey::Name(b"same".as_slice().into());
        let options = JobOptions {
            completion: CompletionPolicy::Tell,
            dedup_key,
            durable: false,
            attach: true,
            ..JobOptions::default()
        };
        queue.engine.submit(client, b"f", new, options, now)
    };
    let job = submit(&mut queue).expect("memory for a job").id;
    let before = queue.engine.memory().total();
    let joins = (0..100_000).take_while(|_| submit(&mut queue).is_ok()).count() as u64;
    assert!(joins > 1000, "{joins}");
    assert!(queue.engine.memory().total() > 99_900, "the account is full");
    assert_eq!((queue.engine.memory().total() - before) % joins, 0, "each submission must use the same amount");
    queue.engine.check();
    assert!(queue.engine.cancel(job, Time::default()));
    assert_eq!(std::iter::from_fn(|| queue.engine.take_event()).count() as u64, joins + 1);
    queue.engine.check();
    submit(&mut queue).expect("memory after the release");
}

#[test]
fn jobs_that_never_join_do_not_lengthen_each_other_s_search() {
    let mut queue = Queue::new();
    let client = queue.engine.connect_as(ReservePolicy::Notified);
    for _ in 0..300 {
        let new = NewJob { pri: 0, delay: Span::ZERO, ttr: TTR, body: Body::default() };
        let options =
            JobOptions { completion: CompletionPolicy::Tell, dedup_key: DedupKey::Body(None), ..JobOptions::default() };
        let submitted = queue.engine.submit(client, b"f", new, options, queue.now).expect("memory for a job");
        assert!(!submitted.joined);
    }
    assert!(
        queue.engine.store.extras.table.lengths().max().unwrap_or_default() < 30,
        "{}",
        queue.engine.store.extras.table.lengths().max().unwrap_or_default()
    );
    queue.engine.check();
}

#[test]
fn an_outcome_just_after_the_lease_affects_no_other_client() {
    let mut queue = Queue::new();
    let [first, second] = [(); 2].map(|()| queue.engine.connect_as(ReservePolicy::Lease));
    let [producer] = queue.clients();
    let lease = |queue: &mut Queue, client| {
        let mut names = WantedTubes::new(DEFAULT.into());
        assert_eq!(queue.engine.watch_only(client, &mut names, queue.now), Ok(Progress::Done));
        matches!(queue.engine.reserve(client, Some(secs(100)), queue.now), Reserve::Job(_))
    };
    let job = queue.put_ready(producer, 7);
    assert!(lease(&mut queue, first) && !lease(&mut queue, second));
    queue.now = queue.now + TTR;
    queue.engine.complete(job, Outcome::Done(Body::default()), queue.now).expect("an unfinished job");
    assert_eq!(queue.news(), [], "no client may be notified of a removed job");
    assert!(queue.engine.job(job).is_none());
}
