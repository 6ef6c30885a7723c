//! The worst cases: many jobs are held, kicked, due, awaited or listed, but each call takes a limited number of steps.
//!
//! Owns the counting of steps. A call can exceed its step budget by one piece of work, whose size does not depend on
//! the number of jobs. In a world of at most [`SMALL`] items, all invariants are checked after each call.

use super::super::data::{MOVE, NOTIFY, TUBE};
use super::super::*;

const TURN: u64 = 1000;

/// The steps of the largest indivisible piece of work: processing all watches of a client that watches few tubes.
const PIECE: u64 = 2 * FEW_WATCHED as u64 + 4 * MOVE + TUBE;

/// The maximum number of items in a world whose invariants are checked after each call.
pub const SMALL: usize = 300;

/// The default number of items in a large world. `BEANPOLE_WORLD=1000000 cargo test --release --lib worlds` sets the
/// number at compile time, because the engine must not read the environment.
const USUAL: usize = 40_000;

fn large() -> usize {
    option_env!("BEANPOLE_WORLD").map_or(USUAL, |size| size.parse().expect("a number"))
}

/// An engine, a clock, and the totals of all calls.
pub struct Turns {
    pub engine: Engine,
    pub now: Time,
    steps: u64,
    turns: u64,
    pub events: usize,
    checks: bool,
}

impl Turns {
    /// Creates an engine for a test with `size` items of any kind. The step budget is smaller if there are few items.
    pub fn new(size: usize) -> Turns {
        let (steps, few_watched) = if size <= SMALL { (7, 0) } else { (TURN, FEW_WATCHED) };
        let engine = Engine::new(Limits { few_watched, wakeups: 0, ..Limits::NONE });
        Turns { engine, now: Time::from_nanos(1 << 60), steps, turns: 0, events: 0, checks: size <= SMALL }
    }

    pub fn turn<R>(&mut self, call: impl FnOnce(&mut Engine, Time) -> R) -> R {
        self.engine.grant_steps(self.steps);
        let result = call(&mut self.engine, self.now);
        let used = self.engine.steps().used();
        assert!(used <= self.steps + PIECE, "{used} steps in a turn of {}", self.steps);
        self.turns += 1;
        let (mut events, mut notified) = (0, 0);
        while let Some(event) = self.engine.take_event() {
            events += 1;
            notified += u64::from(!matches!(event, Event::Reserved { .. } | Event::NoJob { .. }));
        }
        assert!(events as u64 <= used + 1, "{events} events for {used} steps");
        assert!(notified * NOTIFY <= used, "{notified} notifications in {used} steps");
        self.events += events;
        if self.checks {
            self.engine.check();
        }
        self.engine.grant_steps(u64::MAX);
        result
    }

    /// Calls `call` with new step budgets until it is done. Returns the number of calls.
    pub fn verb(&mut self, mut call: impl FnMut(&mut Engine, Time) -> Progress) -> u64 {
        let before = self.turns;
        while self.turn(&mut call) == Progress::More {}
        self.turns - before
    }

    /// Completes the deferred work. Returns the number of calls.
    pub fn rest(&mut self) -> u64 {
        let before = self.turns;
        while self.engine.has_deferred() {
            self.turn(Engine::go_on);
        }
        self.turns - before
    }

    /// Asserts that `turns` calls are plausible for `pieces` pieces of work that take one to forty steps each.
    pub fn took(&self, turns: u64, pieces: usize) {
        let (min, max) = (pieces as u64 / (self.steps + PIECE), pieces as u64 * 40 / self.steps + 20);
        assert!((min..=max).contains(&turns), "{turns} turns for {pieces} pieces, expected {min} to {max}");
    }

    pub fn put(&mut self, client: ClientId, count: usize, delay: Span) {
        for number in 0..count {
            let pri = (number * 7919 % 10_007) as Priority;
            let new = NewJob { pri, delay, ttr: Span::from_secs(10), body: Body::default() };
            self.engine.put(client, new, self.now).expect("memory for a job");
        }
    }

    fn hold(&mut self, client: ClientId, count: usize) {
        for _ in 0..count {
            let reserved = self.engine.reserve(client, Some(Span::ZERO), self.now);
            assert!(matches!(reserved, Reserve::Job(_)), "{reserved:?}");
        }
    }

    /// Requests a job for a client that watches many tubes. The client receives the result as an event.
    fn ask(&mut self, client: ClientId, timeout: Option<Span>) {
        self.turn(|engine, now| {
            let _ = engine.reserve(client, timeout, now);
        });
    }

    fn watch(&mut self, client: ClientId, count: usize) {
        for number in 0..count {
            let name = format!("t{number}");
            self.engine.watch(client, name.as_bytes(), self.now).expect("memory for a watch");
        }
    }
}

pub fn in_both(test: impl Fn(&mut Turns, usize)) {
    for size in [SMALL, large()] {
        test(&mut Turns::new(size), size);
    }
}

#[test]
fn a_kick_of_very_many_jobs() {
    in_both(|world, size| {
        let client = world.engine.connect();
        world.put(client, size, Span::from_secs(100));
        let mut kick = Kick::new(u64::MAX);
        let turns = world.verb(|engine, now| engine.kick(client, &mut kick, now));
        assert_eq!((kick.done, world.engine.stats().jobs.ready), (size as u64, size as u64));
        world.took(turns, size);
    });
}

#[test]
fn a_kick_ends_while_other_clients_put_jobs() {
    let mut world = Turns::new(SMALL);
    let client = world.engine.connect();
    world.put(client, SMALL, Span::from_secs(100));
    let mut kick = Kick::new(u64::MAX);
    while world.turn(|engine, now| engine.kick(client, &mut kick, now)) == Progress::More {
        world.put(client, 3, Span::from_secs(100));
    }
    assert_eq!(kick.done, SMALL as u64);
}

// Tests promise P10 of beanpole-promises(7).
#[test]
fn a_disconnection_returns_very_many_jobs_in_the_order_of_service() {
    in_both(|world, size| {
        let [holder, producer] = [(); 2].map(|()| world.engine.connect());
        world.put(producer, size, Span::ZERO);
        world.hold(holder, size);
        let waiting: Vec<ClientId> = (0..10).map(|_| world.engine.connect()).collect();
        for &client in &waiting {
            assert!(matches!(world.engine.reserve(client, None, world.now), Reserve::Waiting));
        }
        world.turn(|engine, now| engine.disconnect(holder, now));
        assert_eq!(world.engine.stats().connections, 11, "the client must be gone immediately");
        let turns = world.rest();
        world.took(turns, size);
        let taken = |engine: &Engine| {
            engine.jobs().filter(|job| job.state() == State::Reserved).map(|job| job.priority()).max()
        };
        let left = world.engine.peek(producer, State::Ready).expect("a job").priority();
        assert!(taken(&world.engine) <= Some(left), "waiting clients must get the most urgent jobs");
        assert_eq!((world.events, world.engine.stats().jobs.ready), (10, size as u64 - 10));
    });
}

#[test]
fn a_hang_up_that_ends_very_many_watches() {
    in_both(|world, size| {
        let client = world.engine.connect();
        world.watch(client, size);
        world.ask(client, None);
        world.rest();
        world.turn(|engine, now| engine.disconnect(client, now));
        let turns = world.rest();
        world.took(turns, size);
        assert_eq!((world.engine.stats().tubes, world.engine.memory().watches), (1, 0));
    });
}

#[test]
fn a_reserve_over_very_many_tubes_finds_the_best_job_or_waits_in_all() {
    in_both(|world, size| {
        let [worker, producer] = [(); 2].map(|()| world.engine.connect());
        world.watch(worker, size);
        for (tube, pri) in [(size / 2, 5), (size - 1, 3), (1, 4)] {
            world.engine.use_tube(producer, format!("t{tube}").as_bytes()).expect("a tube");
            let new = NewJob { pri, delay: Span::ZERO, ttr: Span::from_secs(10), body: Body::default() };
            world.engine.put(producer, new, world.now).expect("memory for a job");
        }
        for (nth, pri) in [3, 4, 5].into_iter().enumerate() {
            world
                .turn(|engine, now| assert!(matches!(engine.reserve(worker, Some(Span::ZERO), now), Reserve::Waiting)));
            let turns = world.rest();
            world.took(turns, size);
            assert_eq!(world.events, nth + 1);
            let held = world.engine.jobs().filter(|job| job.state() == State::Reserved);
            assert_eq!(held.map(|job| job.priority()).max(), Some(pri));
        }
        // No job is left, so this client receives a timeout. In its next wait, the client joins the queue of each tube.
        world.ask(worker, Some(Span::ZERO));
        world.rest();
        assert_eq!((world.events, world.engine.stats().waiting), (4, 0));
        world.ask(worker, None);
        let turns = world.rest();
        world.took(turns, size);
        assert_eq!((world.events, world.engine.stats().waiting), (4, 1));
        let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(10), body: Body::default() };
        world.turn(|engine, now| engine.put(producer, new, now)).expect("memory for a job");
        assert_eq!((world.events, world.engine.has_deferred()), (5, false));
    });
}

#[test]
fn a_wait_ends_while_its_search_continues() {
    let mut world = Turns::new(SMALL);
    let [worker, producer] = [(); 2].map(|()| world.engine.connect());
    world.watch(worker, SMALL);
    for _ in 0..3 {
        world.ask(worker, None);
        for _ in 0..10 {
            world.turn(Engine::go_on);
        }
        // The default tube is the first tube in the client's watch list.
        world.put(producer, 1, Span::ZERO);
        world.rest();
        world.turn(|_, _| ());
    }
    assert_eq!((world.events, world.engine.stats().jobs.reserved, world.engine.stats().waiting), (3, 3, 0));
    world.ask(worker, None);
    world.turn(Engine::go_on);
    assert!(world.engine.cancel_wait(worker));
    world.rest();
    world.ask(worker, None);
    world.turn(|engine, now| engine.disconnect(worker, now));
    world.rest();
    assert_eq!((world.engine.stats().waiting, world.engine.stats().jobs.ready), (0, 3));
}

#[test]
fn a_gearman_worker_with_very_many_functions_sleeps_grabs_and_forgets_them() {
    in_both(|world, size| {
        let worker = world.engine.connect_as(ReservePolicy::Notified);
        let producer = world.engine.connect();
        world.watch(worker, size);
        let asleep = |world: &mut Turns| {
            assert!(!world.turn(|engine, now| engine.sleep(worker, now)));
            world.rest()
        };
        let turns = asleep(world);
        world.took(turns, size);
        world.engine.use_tube(producer, b"t77").expect("a tube");
        world
            .turn(|engine, now| {
                engine.put(producer, NewJob { pri: 1, delay: Span::ZERO, ttr: Span::MAX, body: Body::default() }, now)
            })
            .expect("memory");
        assert_eq!(world.events, 1, "the worker must be notified");
        // Complete the deferred work, as the server does before it executes commands.
        world.rest();
        let mut grabbed = false;
        let turns = world.verb(|engine, now| match engine.grab(worker, now) {
            Grab::More => Progress::More,
            Grab::NoJob => panic!("a job exists"),
            Grab::Job(_) => {
                grabbed = true;
                Progress::Done
            }
        });
        assert!(grabbed);
        world.took(turns, size);
        asleep(world);
        let turns = world.verb(|engine, now| engine.unwatch_all(worker, now));
        world.took(turns, size);
        let mut place = None;
        world.verb(|engine, now| engine.give_back(worker, None, &mut place, now));
        assert_eq!((world.engine.stats().jobs.ready, world.engine.stats().tubes), (1, 2));
    });
}

#[test]
fn a_worker_that_becomes_idle_repeatedly_searches_once() {
    let mut world = Turns::new(large());
    let worker = world.engine.connect_as(ReservePolicy::Notified);
    world.watch(worker, 10 * FEW_WATCHED);
    for _ in 0..100 {
        assert!(!world.turn(|engine, now| engine.sleep(worker, now)));
    }
    let turns = world.rest();
    world.took(turns, 10 * FEW_WATCHED);
}

#[test]
fn a_worker_gets_its_job_while_its_sleep_search_continues() {
    in_both(|world, size| {
        let (worker, producer) = (world.engine.connect_as(ReservePolicy::Notified), world.engine.connect());
        world.watch(worker, size);
        assert!(!world.turn(|engine, now| engine.sleep(worker, now)));
        world.put(producer, 1, Span::ZERO);
        world.engine.watch(worker, b"default", world.now).expect("a tube");
        let mut grabbed = None;
        world.verb(|engine, now| match engine.grab(worker, now) {
            Grab::More => {
                // The server executes other clients' commands and deferred work between the calls of `grab`.
                let left = engine.steps().left();
                engine.go_on(now);
                assert!(left == 0 || engine.steps().used() > 0, "deferred work must make progress");
                Progress::More
            }
            Grab::NoJob => panic!("a job exists"),
            Grab::Job(job) => {
                grabbed = Some(job.id());
                Progress::Done
            }
        });
        assert!(grabbed.is_some() && world.engine.stats().jobs.reserved == 1, "the worker must hold {grabbed:?}");
        assert_eq!(world.rest(), 0);
    });
}

#[test]
fn a_half_closed_client_gets_the_result_of_its_search() {
    in_both(|world, size| {
        for jobs in [1, 0] {
            let [worker, producer] = [(); 2].map(|()| world.engine.connect());
            world.watch(worker, size);
            world.engine.use_tube(producer, format!("t{}", size - 1).as_bytes()).expect("a tube");
            world.put(producer, jobs, Span::ZERO);
            world.ask(worker, Some(Span::from_secs(100)));
            assert!(world.engine.hurry(worker, world.now), "the client must be searching");
            let before = world.events;
            while world.engine.has_deferred() || world.engine.next_deadline() <= world.now {
                world.turn(|engine, now| engine.tick(now));
                world.turn(Engine::go_on);
            }
            assert_eq!((world.events - before, world.engine.stats().waiting), (1, 0));
            assert_eq!(world.engine.stats().jobs.ready, 0);
            assert!(!world.engine.hurry(worker, world.now));
        }
    });
}

#[test]
fn each_kicked_job_costs_steps() {
    let mut world = Turns::new(SMALL);
    let [worker, producer] = [(); 2].map(|()| world.engine.connect());
    let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(10), body: Body::default() };
    let id = world.engine.put(producer, new, world.now).expect("memory for a job");
    world.hold(worker, 1);
    assert!(world.engine.bury(worker, id, 0, world.now));
    assert!(world.turn(|engine, now| {
        let kicked = engine.kick_job(id, now);
        assert!(engine.steps().used() >= MOVE);
        kicked == Ok(true)
    }));
}

#[test]
fn a_worker_gives_back_the_jobs_of_one_of_its_functions() {
    in_both(|world, size| {
        let worker = world.engine.connect_as(ReservePolicy::Notified);
        let producer = world.engine.connect();
        for tube in ["a", "b"] {
            world.engine.watch(worker, tube.as_bytes(), world.now).expect("a tube");
        }
        for number in 0..size {
            let tube: &[u8] = if number % 3 == 0 { b"a" } else { b"b" };
            world.engine.use_tube(producer, tube).expect("a tube");
            let ttr = Span::from_secs(10 + (number * 7919 % 1009) as u64);
            let new = NewJob { pri: 1, delay: Span::ZERO, ttr, body: Body::default() };
            world.engine.put(producer, new, world.now).expect("memory for a job");
            assert!(matches!(world.engine.grab(worker, world.now), Grab::Job(_)));
        }
        let mut place = None;
        let turns = world.verb(|engine, now| engine.give_back(worker, Some(b"a"), &mut place, now));
        assert!(turns > 10);
        let jobs = world.engine.stats().jobs;
        assert_eq!((jobs.ready as usize, jobs.reserved as usize), (size.div_ceil(3), size - size.div_ceil(3)));
    });
}

#[test]
fn a_lease_of_very_many_names_keeps_those_that_stay() {
    in_both(|world, size| {
        let worker = world.engine.connect_as(ReservePolicy::Lease);
        let names = |from: usize| (from..from + size).map(|name| format!("n{name}")).collect::<Vec<_>>().join(" ");
        for from in [0, size / 2, 3 * size] {
            let mut lease = WantedTubes::new(names(from).into_bytes().into());
            let turns = world.verb(|engine, now| engine.watch_only(worker, &mut lease, now).expect("memory"));
            world.took(turns, 3 * size);
            assert_eq!(world.engine.stats().tubes, size + 1);
            assert!(world.engine.tube_stats(format!("n{from}").as_bytes(), world.now).is_some());
        }
    });
}

#[test]
fn times_to_run_end_while_their_holder_touches_jobs() {
    in_both(|world, size| {
        let [holder, producer] = [(); 2].map(|()| world.engine.connect());
        world.put(producer, size, Span::ZERO);
        world.hold(holder, size);
        world.now = world.now + Span::from_secs(10);
        let late: Vec<JobId> = world.engine.jobs().map(|job| job.id()).take(50).collect();
        for id in late {
            assert!(!world.turn(|engine, now| engine.touch(holder, id, now)), "the time to run has expired");
        }
        world.turn(|engine, now| assert!(matches!(engine.reserve(holder, None, now), Reserve::Waiting)));
        world.rest();
        assert_eq!(world.events, 1, "the holder must get one of its lost jobs again");
        let mut turns = 0;
        while world.engine.next_deadline() <= world.now {
            world.turn(|engine, now| engine.tick(now));
            turns += 1;
        }
        assert!(turns <= size && world.engine.stats().timeouts == size as u64);
    });
}

#[test]
fn a_resumed_tube_serves_very_many_waiting_clients_in_order() {
    in_both(|world, size| {
        let producer = world.engine.connect();
        let waiting: Vec<ClientId> = (0..size).map(|_| world.engine.connect()).collect();
        for &client in &waiting {
            let _ = world.engine.reserve(client, None, world.now);
        }
        assert!(world.engine.pause(DEFAULT, Span::from_secs(10), world.now));
        world.put(producer, size, Span::ZERO);
        world.turn(|engine, now| assert!(engine.pause(DEFAULT, Span::ZERO, now)));
        // A client that connects now must not overtake the waiting clients.
        let late = world.engine.connect();
        world.turn(|engine, now| assert!(matches!(engine.reserve(late, Some(Span::ZERO), now), Reserve::NoJob(_))));
        let turns = world.rest();
        world.took(turns, size);
        assert_eq!((world.events, world.engine.stats().jobs.ready), (size, 0));
    });
}

#[test]
fn all_sleepers_are_woken_for_a_job_a_few_at_a_time() {
    in_both(|world, size| {
        let producer = world.engine.connect();
        for _ in 0..size {
            let worker = world.engine.connect_as(ReservePolicy::Notified);
            world.engine.watch(worker, DEFAULT, world.now).expect("a tube");
            assert!(!world.engine.sleep(worker, world.now));
        }
        let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::MAX, body: Body::default() };
        world.turn(|engine, now| engine.put(producer, new, now)).expect("memory for a job");
        let turns = world.rest();
        world.took(turns, size);
        assert_eq!(world.events, size);
    });
}

#[test]
fn lists_show_each_thing_once() {
    in_both(|world, size| {
        let client = world.engine.connect();
        world.watch(client, size);
        world.put(client, size, Span::ZERO);
        let (mut from, mut jobs) = (0, 0);
        let turns = world.verb(|engine, _| {
            engine.walk_jobs(&mut from, |_, _| {
                jobs += 1;
                100
            })
        });
        world.took(turns, size);
        let (mut from, mut tubes) = (0, 0);
        let turns = world.verb(|engine, now| {
            engine.walk_tubes(&mut from, now, |_| {
                tubes += 1;
                100
            })
        });
        world.took(turns, size);
        let (mut from, mut watched) = (0, Vec::new());
        let turns = world.verb(|engine, _| {
            engine.walk_watched(client, &mut from, |name| {
                watched.push(name.to_vec());
                100
            })
        });
        world.took(turns, size);
        assert_eq!((jobs, tubes), (size, size + 1));
        assert!(watched.iter().map(Vec::as_slice).eq(world.engine.watched(client)));
    });
}

#[test]
fn a_late_page_of_a_list_has_the_right_jobs() {
    in_both(|world, size| {
        let client = world.engine.connect();
        for delay in [Span::ZERO, Span::from_secs(5)] {
            world.put(client, size, delay);
        }
        for state in [State::Ready, State::Delayed] {
            let mut all: Vec<_> = world.engine.jobs().filter(|job| job.state() == state).collect();
            all.sort_by_key(|job| (job.priority(), job.due(), job.id()));
            let all: Vec<JobId> = all.iter().map(|job| job.id()).collect();
            for offset in [0, 1, size / 2, size - 3, size, size * 2] {
                let mut page = JobPage::new(state, offset, 5);
                let mut found = Vec::new();
                world.verb(|engine, _| match engine.jobs_of(DEFAULT, &mut page) {
                    Page::More => Progress::More,
                    Page::NotFound => panic!("the default tube exists"),
                    Page::Jobs(jobs) => {
                        found = jobs.iter().map(|job| job.id()).collect();
                        Progress::Done
                    }
                });
                let expected: Vec<JobId> = all.iter().copied().skip(offset).take(5).collect();
                assert_eq!(found, expected, "{state:?} from {offset}");
            }
        }
    });
}

#[test]
fn a_search_by_a_name_that_is_in_very_many_tubes_is_refused() {
    let mut world = Turns::new(USUAL);
    let client = world.engine.connect_as(ReservePolicy::Notified);
    let mut submit = |tube: usize| {
        let new = NewJob { pri: 0, delay: Span::ZERO, ttr: Span::MAX, body: Body::default() };
        let options = JobOptions {
            completion: CompletionPolicy::Tell,
            dedup_key: DedupKey::Name(b"n".as_slice().into()),
            ..JobOptions::default()
        };
        world.turn(|engine, now| engine.submit(client, format!("t{tube}").as_bytes(), new, options, now))
    };
    let taken = (0..10_000).take_while(|&tube| submit(tube).is_ok()).count();
    assert!((4000..5000).contains(&taken), "{taken}");
    world.engine.check();
}

#[test]
fn a_search_for_a_reserved_job_ends_while_a_worker_releases_jobs() {
    let mut world = Turns::new(SMALL);
    let [client, worker] = [(); 2].map(|()| world.engine.connect());
    world.put(client, SMALL, Span::ZERO);
    let ids: Vec<JobId> = world.engine.jobs().map(|job| job.id()).collect();
    let reserved = |world: &mut Turns, id: JobId| {
        assert!(world.engine.reserve_job(worker, id, world.now).is_some());
    };
    (0..10).for_each(|number| reserved(&mut world, ids[number]));
    let (mut find, mut turns) = (FindReserved::default(), 0);
    let found = loop {
        let (progress, found) = world.turn(|engine, _| {
            let (progress, found) = engine.peek_reserved(client, &mut find);
            (progress, found.map(|job| job.id()))
        });
        if progress == Progress::Done {
            break found;
        }
        // Ten jobs are always reserved, but each job is reserved only for a few calls.
        for number in 0..10 {
            assert!(world.engine.release(worker, ids[(turns * 10 + number) % SMALL], 0, Span::ZERO, world.now));
            reserved(&mut world, ids[((turns + 1) * 10 + number) % SMALL]);
        }
        turns += 1;
        assert!(turns < SMALL, "the search never ends");
    };
    assert!(found.is_some(), "a reserved job must be found");
}

#[test]
fn jobs_without_waiting_clients_use_no_additional_memory() {
    let mut world = Turns::new(SMALL);
    let [client, producer] = [(); 2].map(|()| world.engine.connect());
    world.put(producer, 20, Span::from_secs(1000));
    let before = world.engine.memory();
    let ids: Vec<JobId> = world.engine.jobs().map(|job| job.id()).collect();
    for &id in &ids {
        assert!(matches!(world.engine.wait_end(client, id, Span::from_secs(5), world.now), JobEnd::Waiting));
        assert!(world.turn(|engine, _| engine.cancel_wait(client)));
    }
    assert_eq!(world.engine.memory(), before);
}
