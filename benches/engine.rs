//! Benchmarks of the engine without sockets, locks or protocols.
//!
//! Run `cargo bench --bench engine`. Bodies are 64 bytes long. An operation is what the name of a case describes,
//! usually one call to the engine.

mod rounds;

use std::process::ExitCode;

use beanpole::internals::engine::{
    Body, ClientId, Engine, Event, JobId, Kick, Limits, NewJob, Rate, Reserve, Span, Time, TubeSettings, DEFAULT,
};
use rounds::Cases;

const VERBS: usize = 100_000;

/// The number of jobs in the cases with a large queue.
const MANY: usize = 1_000_000;

struct World {
    engine: Engine,
    producer: ClientId,
    worker: ClientId,
    now: Time,
    /// The jobs that the measured operation uses.
    ids: Vec<JobId>,
}

impl World {
    fn kick(&mut self, jobs: usize) -> u64 {
        let mut kick = Kick::new(jobs as u64);
        let _ = self.engine.kick(self.producer, &mut kick, self.now);
        kick.done
    }

    fn new() -> World {
        let limits =
            Limits { max_memory: u64::MAX, max_tubes: 1 << 20, max_watched: 1 << 20, hash_secret: 7, ..Limits::NONE };
        let mut engine = Engine::new(limits);
        let (producer, worker) = (engine.connect(), engine.connect());
        World { engine, producer, worker, now: Time::from_nanos(1 << 60), ids: Vec::new() }
    }

    fn with(jobs: usize) -> World {
        let mut world = World::new();
        world.fill(jobs);
        world
    }

    fn fill(&mut self, jobs: usize) {
        for _ in 0..jobs {
            self.put(0, Span::ZERO);
        }
    }

    /// Puts jobs with delays from 1 ms to 5 s, in mixed order.
    fn fill_delayed(&mut self, jobs: usize) {
        for turn in 0..jobs {
            self.put(0, Span::from_millis((turn * 7919 % 5000 + 1) as u64));
        }
    }

    fn watch(&mut self, tubes: usize) {
        for tube in 0..tubes {
            self.engine.watch(self.worker, name(tube).as_bytes(), self.now).expect("memory for a tube");
        }
    }

    fn put(&mut self, pri: u32, delay: Span) -> JobId {
        // No two jobs are put at the same time.
        self.now = self.now + Span::from_nanos(1000);
        let body = Body::from([7u8; 64].as_slice());
        let job = NewJob { pri, delay, ttr: Span::from_secs(600), body };
        self.engine.put(self.producer, job, self.now).expect("memory for a job")
    }

    fn reserve(&mut self) -> JobId {
        match self.engine.reserve(self.worker, None, self.now) {
            Reserve::Job(job) => job.id(),
            other => panic!("no job: {other:?}"),
        }
    }

    /// Executes a reserve that waits, a put that ends the wait, and a delete.
    fn hand_off(&mut self) {
        assert!(matches!(self.engine.reserve(self.worker, None, self.now), Reserve::Waiting));
        let id = self.put(0, Span::ZERO);
        assert!(self.engine.take_event().is_some());
        assert!(self.engine.delete(self.worker, id, self.now));
    }

    /// Executes a reserve that waits because the tube permits only one reserved job, and the delete that ends the wait.
    fn take_turns(&mut self) {
        assert!(matches!(self.engine.reserve(self.producer, None, self.now), Reserve::Waiting));
        let id = self.ids.pop().expect("a reserved job");
        assert!(self.engine.delete(self.worker, id, self.now));
        std::mem::swap(&mut self.producer, &mut self.worker);
        match self.engine.take_event() {
            Some(Event::Reserved { client, job }) if client == self.worker => self.ids.push(job),
            other => panic!("no job: {other:?}"),
        }
    }

    fn cycle(&mut self) {
        self.put(0, Span::ZERO);
        let id = self.reserve();
        assert!(self.engine.delete(self.worker, id, self.now));
    }
}

fn name(tube: usize) -> String {
    format!("tube-{tube}")
}

fn main() -> ExitCode {
    rounds::run(|cases| {
        depth(cases, 0);
        depth(cases, cases.count(MANY));
        timed(cases);
        settings(cases);
        tubes(cases);
    })
}

fn depth(cases: &mut Cases, jobs: usize) {
    let verbs = cases.count(VERBS);
    let name = |verb: &str| format!("{verb}, {jobs} ready jobs beside");
    let with = move || World::with(jobs);
    cases.add(&name("put"), verbs, with, move |world| world.fill(verbs));
    cases.add(&name("put with many priorities"), verbs, with, move |world| {
        for turn in 0..verbs as u32 {
            world.put(turn.wrapping_mul(2_654_435_761) >> 12, Span::ZERO);
        }
    });
    cases.add(&name("put + reserve + delete"), verbs, with, move |world| (0..verbs).for_each(|_| world.cycle()));
    let filled = move || World::with(jobs + verbs);
    cases.add(&name("reserve"), verbs, filled, move |world| {
        for _ in 0..verbs {
            world.reserve();
        }
    });
    let reserved = move || {
        let mut world = World::with(jobs + verbs);
        world.ids = (0..verbs).map(|_| world.reserve()).collect();
        world
    };
    cases.add(&name("delete a reserved job"), verbs, reserved, |world| {
        let World { engine, worker, ids, now, .. } = world;
        ids.drain(..).for_each(|id| assert!(engine.delete(*worker, id, *now)));
    });
    cases.add(&name("release"), verbs, reserved, |world| {
        let World { engine, worker, ids, now, .. } = world;
        ids.drain(..).for_each(|id| assert!(engine.release(*worker, id, 0, Span::ZERO, *now)));
    });
    cases.add(&name("touch"), verbs, reserved, |world| {
        let World { engine, worker, ids, now, .. } = world;
        ids.drain(..).for_each(|id| assert!(engine.touch(*worker, id, *now)));
    });
    cases.add(&name("bury"), verbs, reserved, |world| {
        let World { engine, worker, ids, now, .. } = world;
        ids.drain(..).for_each(|id| assert!(engine.bury(*worker, id, 0, *now)));
    });
    let buried = move || {
        let mut world = reserved();
        for id in std::mem::take(&mut world.ids) {
            world.engine.bury(world.worker, id, 0, world.now);
        }
        world
    };
    cases.add(&name("kick of a buried job"), verbs, buried, move |world| {
        assert_eq!(world.kick(verbs), verbs as u64);
    });
}

fn timed(cases: &mut Cases) {
    let verbs = cases.count(VERBS);
    let delayed = move |jobs: usize| {
        let mut world = World::new();
        world.fill_delayed(jobs);
        world
    };
    for jobs in [0, cases.count(MANY)] {
        let name = format!("put with a delay, {jobs} delayed jobs beside");
        let prepare = move || delayed(jobs);
        cases.add(&name, verbs, prepare, move |world| world.fill_delayed(verbs));
    }
    cases.add(
        "tick: a delayed job becomes ready",
        verbs,
        move || delayed(verbs),
        |world| {
            let end = world.now + Span::from_secs(10);
            while world.engine.next_deadline() <= end {
                world.engine.tick(end);
            }
        },
    );
    cases.add(
        "kick of a delayed job",
        verbs,
        move || delayed(verbs),
        move |world| {
            assert_eq!(world.kick(verbs), verbs as u64);
        },
    );
    cases.add("reserve that waits + put + delete", verbs, World::new, move |world| {
        (0..verbs).for_each(|_| world.hand_off());
    });
    let many_wait = move || {
        let mut world = World::new();
        for _ in 0..10_000 {
            let client = world.engine.connect();
            world.engine.reserve(client, None, world.now);
        }
        world
    };
    cases.add("put to one of 10,000 waiting workers", cases.count(10_000), many_wait, {
        let puts = cases.count(10_000);
        move |world| {
            for _ in 0..puts {
                world.put(0, Span::ZERO);
                assert!(world.engine.take_event().is_some());
            }
        }
    });
}

fn settings(cases: &mut Cases) {
    let (waiting, verbs) = (cases.count(100_000), cases.count(VERBS));
    let limited = move |jobs| {
        let mut world = World::with(jobs);
        let settings = TubeSettings { max: 1, rate: Some(Rate { count: u32::MAX, seconds: 1 }), ..Default::default() };
        world.engine.set_tube(world.producer, DEFAULT, settings, world.now).expect("settings");
        world
    };
    let name = format!("put + reserve + delete, max:1 and a rate, {waiting} ready jobs beside");
    cases.add(&name, verbs, move || limited(waiting), move |world| (0..verbs).for_each(|_| world.cycle()));
    let taken = move || {
        let mut world = limited(waiting + verbs);
        let id = world.reserve();
        world.ids.push(id);
        world
    };
    let name = format!("reserve that waits + delete, max:1 and a rate, {waiting} ready jobs beside");
    cases.add(&name, verbs, taken, move |world| (0..verbs).for_each(|_| world.take_turns()));
}

/// Measures operations with many watched or unwatched tubes. Also measures connecting and disconnecting.
fn tubes(cases: &mut Cases) {
    let (watched, many) = (cases.count(1000), cases.count(33_000));
    cases.add("watch", many, World::new, move |world| world.watch(many));
    let watching = move || {
        let mut world = World::new();
        world.watch(watched);
        world
    };
    let turns = cases.count(10_000);
    cases.add(&format!("put + reserve + delete, {watched} tubes watched"), turns, watching, move |world| {
        (0..turns).for_each(|_| world.cycle());
    });
    cases.add(&format!("reserve that waits + put + delete, {watched} tubes watched"), turns, watching, move |world| {
        (0..turns).for_each(|_| world.hand_off());
    });
    let beside = move || {
        let mut world = World::new();
        for tube in 0..many {
            world.engine.use_tube(world.producer, name(tube).as_bytes()).expect("memory for a tube");
            world.put(0, Span::ZERO);
        }
        world.engine.use_tube(world.producer, DEFAULT).expect("the default tube");
        world
    };
    let verbs = cases.count(VERBS);
    cases.add(&format!("put + reserve + delete, {many} tubes beside"), verbs, beside, move |world| {
        (0..verbs).for_each(|_| world.cycle());
    });
    cases.add("connect + disconnect", verbs, World::new, move |world| {
        for _ in 0..verbs {
            let client = world.engine.connect();
            world.engine.disconnect(client, world.now);
        }
    });
}
