//! Tests of the costs of tags, in steps and in bytes charged.

use super::super::rules::dedup::MAX_CHECKED;
use super::super::*;
use super::worlds::{Turns, SMALL};

fn engine() -> (Engine, ClientId) {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    (engine, client)
}

fn job(pri: u32) -> NewJob {
    NewJob { pri, delay: Span::ZERO, ttr: Span::from_secs(60), body: Body::from(b"x".as_slice()) }
}

fn key(text: &str) -> Tags {
    let options = JobOptions { dedup_key: DedupKey::Name(text.as_bytes().into()), ..JobOptions::default() };
    Tags { options, ..Tags::default() }
}

// Tests promise P28 of beanpole-promises(7).
#[test]
fn very_many_blocked_jobs_cost_no_steps() {
    const JOBS: u32 = 20_000;
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    let bound = || {
        let options = JobOptions { concurrency: Some((b"k".as_slice().into(), 1)), ..JobOptions::default() };
        Tags { options, ..Tags::default() }
    };
    for place in 0..JOBS {
        engine.put_tagged(client, job(place % 7), bound(), now).expect("memory");
    }
    engine.put(client, job(100), now).expect("memory");
    let mut max = 0;
    let mut before = (0, 0);
    for _ in 0..JOBS {
        engine.grant_steps(u64::MAX);
        let first = engine.reserve_more(client, now).map(|job| (job.priority(), job.id())).expect("a keyed job");
        assert!(before < (first.0, first.1 .0), "jobs must be reserved in order");
        before = (first.0, first.1 .0);
        // All other ready jobs have a key that has reached its limit.
        let other = engine.reserve_more(client, now).map(|job| (job.priority(), job.id())).expect("an unkeyed job");
        assert_eq!(other.0, 100);
        assert!(engine.reserve_more(client, now).is_none());
        assert!(engine.release(client, other.1, 100, Span::ZERO, now) && engine.delete(client, first.1, now));
        max = max.max(engine.steps().used());
    }
    assert!(max < 64, "{max} steps");
    engine.check();
}

#[test]
fn a_key_takes_few_bytes_beside_its_name_and_an_untagged_job_none() {
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    let cost = |engine: &mut Engine, tags: Tags| {
        let before = engine.memory().jobs;
        engine.put_tagged(client, job(1), tags, now).expect("memory");
        engine.memory().jobs - before
    };
    let plain = cost(&mut engine, Tags::default());
    assert_eq!(plain, JOB_COST + 1);
    for name in ["k", "a key of some length that is kept elsewhere"] {
        assert!(cost(&mut engine, key(name)) <= plain + 96 + name.len() as u64, "{name}");
    }
    engine.check();
}

#[test]
fn a_flush_and_a_list_stop_when_their_steps_are_used_up() {
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    for place in 0..3000u32 {
        let tube = if place % 3 == 0 { "t" } else { "other" };
        engine.put_tagged(client, job(1), Tags { tube: Some(tube.as_bytes().into()), ..Tags::default() }, now).unwrap();
    }
    let mut page = IdPage::new((*b"t").into(), State::Ready, 0, 1000);
    let (mut turns, mut ids) = (0, Vec::new());
    loop {
        engine.grant_steps(100);
        let (progress, found) = engine.list_ids(&mut page, |_| true).expect("a tube");
        assert!(engine.steps().used() < 150);
        ids.extend(found);
        turns += 1;
        if progress == Progress::Done {
            break;
        }
    }
    assert!(ids.len() == 1000 && ids.is_sorted() && turns > 10, "{} in {turns}", ids.len());
    let mut flush = Flush::new((*b"t").into(), &State::UNFINISHED);
    loop {
        engine.grant_steps(100);
        let progress = engine.flush(&mut flush, now);
        assert!(engine.steps().used() < 150);
        engine.check();
        if progress == Progress::Done {
            break;
        }
    }
    assert_eq!((flush.done, engine.stats().jobs.ready), (1000, 2000));
}

/// Returns the steps for listing, page by page, all ready jobs of a tube or of all tubes whose numbers are multiples of
/// `visible`. Between two pages, jobs are put, and listed jobs are deleted. At first, one in `stride` IDs has a job.
fn steps_of_list(of: &[u8], (tubes, visible): (usize, usize), jobs: usize, stride: usize) -> usize {
    const LIMIT: usize = 100;
    let number = |tube: &[u8]| std::str::from_utf8(&tube[1..]).ok()?.parse::<usize>().ok();
    let sees = |tube: &[u8]| number(tube).is_some_and(|number| number % visible == 0);
    let ((mut engine, client), now) = (engine(), Time::from_nanos(1));
    let put = |engine: &mut Engine, place: usize| {
        let tags = Tags { tube: Some(format!("t{}", place % tubes).into_bytes().into()), ..Tags::default() };
        let Ok(Tagged::New(id)) = engine.put_tagged(client, job(1), tags, now) else { panic!("no job") };
        id
    };
    for place in 0..jobs * stride {
        let id = put(&mut engine, place / stride);
        assert!(place % stride == 0 || engine.delete(client, id, now));
    }
    let (mut above, mut listed, mut steps) = (0, 0, 0);
    loop {
        let mut page = IdPage::new(of.into(), State::Ready, above, LIMIT);
        let ids = loop {
            engine.grant_steps(1000);
            let (progress, ids) = engine.list_ids(&mut page, sees).expect("a tube");
            steps += engine.steps().used() as usize;
            if progress == Progress::Done {
                break ids;
            }
        };
        assert!(ids.is_sorted() && ids.first().is_none_or(|id| id.0 > above));
        listed += ids.len();
        if ids.len() < LIMIT {
            assert!((jobs / visible..(jobs + jobs / 10) / visible).contains(&listed), "{listed} of {jobs}");
            return steps;
        }
        above = ids[LIMIT - 1].0;
        for place in 0..LIMIT / 20 {
            put(&mut engine, listed + place);
            assert!(engine.delete(client, ids[place * 20], now));
        }
    }
}

#[test]
fn the_steps_for_listing_all_jobs_are_linear() {
    const JOBS: usize = 1200;
    const HALF: [(&[u8], usize, usize, usize); 3] = [(b"", 4, 2, 1), (b"", JOBS, 2, 1), (b"", 4, 2, 40)];
    const ALL: [(&[u8], usize, usize, usize); 6] =
        [(b"", 1, 1, 1), (b"", 2, 1, 1), (b"", JOBS, 1, 1), (b"", 3, 1, 40), (b"t0", 1, 1, 1), (b"t0", 1, 1, 40)];
    for (of, tubes, visible, stride) in ALL.into_iter().chain(HALF) {
        // If all tubes are listed, the number of tubes doubles together with the number of jobs.
        let more = if of.is_empty() { 2 * tubes } else { tubes };
        let [once, twice] =
            [(tubes, JOBS), (more, 2 * JOBS)].map(|(tubes, jobs)| steps_of_list(of, (tubes, visible), jobs, stride));
        println!("{tubes} tubes, one of {stride} IDs: {once}, {twice} steps");
        assert!(twice * 10 <= once * 22, "{tubes} tubes, one of {stride} IDs: {once}, {twice} steps");
    }
}

#[test]
fn touch_all_extends_all_reservations_in_turns() {
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    for place in 0..500u64 {
        let ttr = Span::from_secs(100 + place * 7919 % 300);
        engine.put(client, NewJob { ttr, ..job(1) }, now).expect("memory");
        engine.reserve_more(client, now).expect("a job");
    }
    let later = now + Span::from_secs(50);
    let mut touch = TouchAll::new(later);
    let held = loop {
        engine.grant_steps(64);
        if let (Progress::Done, held) = engine.touch_all(client, &mut touch, |_| true, later) {
            break held;
        }
    };
    assert_eq!(held, 500);
    assert!(engine.jobs().all(|job| job.due() == later + job.ttr()));
    engine.grant_steps(10_000);
    let mut touch = TouchAll::new(later + Span::from_secs(1));
    assert_eq!(engine.touch_all(client, &mut touch, |_| false, later), (Progress::Done, 0));
    assert!(engine.jobs().all(|job| job.due() == later + job.ttr()));
    engine.check();
}

/// Returns the ages of the oldest ready, delayed and buried jobs, and the number of calls with a budget of `steps`.
fn ask_ages(engine: &mut Engine, mut find: FindOldest, steps: u64, now: Time) -> ([Span; 3], u64) {
    let mut turns = 1;
    engine.grant_steps(steps);
    while engine.find_oldest(&mut find) == Progress::More {
        assert!(engine.steps().used() < steps + 150);
        engine.grant_steps(steps);
        turns += 1;
    }
    engine.check();
    (find.ages(now), turns)
}

#[test]
fn the_oldest_job_of_a_tube_is_searched_for_once() {
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    let into = |tube: &[u8]| Tags { tube: Some(tube.into()), ..Tags::default() };
    // Use two priorities, so that the first job of a queue is not the oldest.
    for place in 0..20_000u64 {
        let tube: &[u8] = if place >= 10_000 && place % 10 == 0 { b"t" } else { b"other" };
        let job = NewJob { pri: (place / 10 % 2) as u32, ..job(1) };
        engine.put_tagged(client, job, into(tube), now + Span::from_secs(place)).expect("memory");
    }
    let later = now + Span::from_secs(20_000);
    let ask = |engine: &mut Engine| ask_ages(engine, FindOldest::new((*b"t").into()), 100, later);
    let all = |engine: &mut Engine| ask_ages(engine, FindOldest::default(), 100, later);
    let age = |secs| [Span::from_secs(secs), Span::ZERO, Span::ZERO];
    assert_eq!((ask(&mut engine), all(&mut engine)), ((age(10_000), 1), (age(20_000), 1)));
    let ids: Vec<JobId> = (10_001..=20_000).step_by(10).map(JobId).collect();
    let (gone, kept) = ids.split_at(500);
    gone.iter().for_each(|id| assert!(engine.delete(client, *id, now)));
    let (found, turns) = ask(&mut engine);
    assert!(found == age(5000) && turns > 10, "{found:?} in {turns}");
    assert_eq!(ask(&mut engine), (age(5000), 1), "the result must be stored");
    // An abandoned search has no effect. A search that continues notices a release that occurred between its calls.
    engine.reserve_job(client, kept[0], now).expect("a job");
    kept[1..240].iter().for_each(|id| assert!(engine.delete(client, *id, now)));
    let mut given_up = FindOldest::new((*b"t").into());
    engine.grant_steps(100);
    assert_eq!(engine.find_oldest(&mut given_up), Progress::More);
    assert!(engine.release(client, kept[0], 1, Span::ZERO, now));
    engine.grant_steps(100);
    assert_eq!((engine.find_oldest(&mut given_up), given_up.ages(later)), (Progress::Done, age(5000)));
    assert_eq!(ask(&mut engine), (age(5000), 1));
    // With a single priority, the first job in the queue is the oldest.
    assert!(engine.delete(client, kept[0], now));
    let of_one = ids.iter().zip(0..).filter(|(_, place)| place % 2 == 0).map(|(id, _)| *id);
    let deleted = of_one.filter(|id| engine.delete(client, *id, now)).count();
    assert_eq!((deleted, ask(&mut engine)), (130, (age(2590), 1)));
}

#[test]
fn a_search_for_the_oldest_job_ends_while_a_worker_releases_an_older_one() {
    for tube in [Some(b"default"), None] {
        let mut world = Turns::new(SMALL);
        let [client, worker] = [(); 2].map(|()| world.engine.connect());
        world.put(client, SMALL, Span::from_secs(1000));
        // Make the queue too long to be read completely.
        world.put(client, SMALL, Span::ZERO);
        let now = world.now;
        let begin = || tube.map_or_else(FindOldest::default, |name| FindOldest::new((*name).into()));
        let search = |world: &mut Turns, between: &dyn Fn(&mut Engine, usize)| {
            let (mut find, mut turns) = (begin(), 0);
            while world.turn(|engine, _| engine.find_oldest(&mut find)) == Progress::More {
                between(&mut world.engine, turns);
                turns += 1;
                assert!(turns < SMALL, "the search never ends");
            }
            find.oldest_ready()
        };
        let reserve = |engine: &mut Engine, id| assert!(engine.reserve_job(worker, JobId(id), now).is_some());
        let release = |engine: &mut Engine, id| assert!(engine.release(worker, JobId(id), 0, Span::ZERO, now));
        reserve(&mut world.engine, 1);
        let give_back = |engine: &mut Engine, _: usize| {
            release(engine, 1);
            reserve(engine, 1);
        };
        give_back(&mut world.engine, 0);
        let later = SMALL as u64 + 1;
        assert_eq!(search(&mut world, &give_back), Some(JobId(later)));
        // If the oldest job becomes ready after the search has passed its ID, and stays ready, the search finds it.
        give_back(&mut world.engine, 0);
        let enter = |engine: &mut Engine, turns: usize| {
            if turns == 5 {
                release(engine, 1);
            }
        };
        assert_eq!(search(&mut world, &enter), Some(JobId(1)));
        reserve(&mut world.engine, 1);
        // If all jobs with IDs from `later` on are reserved during a search of all tubes, this search finds no job, but
        // the next search finds job 2. A search of one tube finds it at once, because the tube's queue is now short.
        reserve(&mut world.engine, 2);
        release(&mut world.engine, 1);
        reserve(&mut world.engine, 1);
        let leave = |engine: &mut Engine, turns: usize| {
            if turns == 0 {
                release(engine, 1);
                release(engine, 2);
                reserve(engine, 1);
                (later..later + SMALL as u64).for_each(|id| reserve(engine, id));
            }
        };
        assert_eq!(
            (search(&mut world, &leave), search(&mut world, &give_back)),
            (tube.map(|_| JobId(2)), Some(JobId(2)))
        );
    }
}

#[test]
fn the_oldest_buried_job_is_that_with_the_smallest_id() {
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    for place in 0..1000 {
        engine.put(client, job(1), now + Span::from_secs(place)).expect("memory");
    }
    let later = now + Span::from_secs(1000);
    for id in (1..=1000).rev().map(JobId) {
        engine.reserve_job(client, id, now).expect("a job");
        assert!(engine.bury(client, id, 1, now));
    }
    let ages = |engine: &mut Engine, find| ask_ages(engine, find, 100, later).0[2];
    for find in [FindOldest::default(), FindOldest::new((*b"default").into())] {
        assert_eq!(ages(&mut engine, find), Span::from_secs(1000));
    }
    // The search skips gaps between IDs instead of checking each ID.
    (2..=400).map(JobId).for_each(|id| assert!(engine.delete(client, id, now)));
    assert_eq!(engine.tube_stats(b"default", now).expect("a tube").times.expect("times").events.buries, 1000);
    assert!(engine.delete(client, JobId(1), now));
    let far = JobId(u64::MAX / 2);
    engine.store.last_id = far.0;
    let (ages, turns) = ask_ages(&mut engine, FindOldest::default(), 100, later);
    assert!(ages[2] == Span::from_secs(600) && turns < 100, "{ages:?} in {turns}");
}

#[test]
fn tubes_share_the_time_of_workers_by_their_weights() {
    let (mut engine, client) = engine();
    let mut now = Time::from_nanos(1);
    for tube in [b"slow", b"fast"] {
        for _ in 0..3000 {
            let tags = Tags { tube: Some((*tube).into()), ..Tags::default() };
            engine.put_tagged(client, job(1), tags, now).expect("memory");
        }
    }
    // A job of one tube takes 100 times as long as a job of the other tube.
    for (tube, runs) in [(b"slow", Span::from_secs(10)), (b"fast", Span::from_millis(100))] {
        let id = engine.peek_in(tube, State::Ready).expect("a job").id();
        engine.reserve_job(client, id, now).expect("a job");
        now = now + runs;
        assert!(engine.delete(client, id, now));
        engine.watch(client, tube, now).expect("memory");
    }
    engine.set_reserve_mode(client, ReserveMode::Fair);
    let mut slow_ones = |weight: u16| {
        engine.set_weight(client, b"slow", weight);
        let mut count = 0;
        for _ in 0..1000 {
            let id = engine.reserve_more(client, now).expect("a job").id();
            count += u32::from(engine.job(id).is_some_and(|job| engine.tube_of(&job) == b"slow"));
        }
        count
    };
    let (even, heavy) = (slow_ones(1), slow_ones(100));
    assert!((1..30).contains(&even), "{even} of 1000, expected about 10");
    assert!((420..580).contains(&heavy), "{heavy} of 1000, expected about 500");
}

/// Updating a key that is in very many tubes takes many steps, so a turn must kick or move only a few such jobs.
#[test]
fn a_turn_kicks_or_moves_few_dead_letters_whose_key_is_in_very_many_tubes() {
    const TURN: u64 = 1000;
    const LETTERS: u64 = 64;
    let ((mut engine, client), now) = (engine(), Time::from_nanos(1));
    let put = |engine: &mut Engine, tube: &[u8]| {
        let put = engine.put_tagged(client, job(1), Tags { tube: Some(tube.into()), ..key("same") }, now);
        let Ok(Tagged::New(id)) = put else { panic!("{put:?}") };
        id
    };
    let settings = TubeSettings { tries: 1, dead: Some(b"dead".as_slice().into()), ..TubeSettings::default() };
    engine.set_tube(client, b"mail", settings, now).expect("memory");
    for _ in 0..LETTERS {
        let id = put(&mut engine, b"mail");
        assert!(engine.reserve_job(client, id, now).is_some() && engine.fail(client, id, 5, b"", now).is_some());
    }
    // If more tubes have the key, jobs with the key cannot be moved.
    for tube in 0..MAX_CHECKED - 10 {
        put(&mut engine, format!("t{tube}").as_bytes());
    }
    let turns = |engine: &mut Engine, call: &mut dyn FnMut(&mut Engine) -> Progress| {
        for turn in 1..10_000 {
            engine.grant_steps(TURN);
            let progress = call(engine);
            let used = engine.steps().used();
            assert!(used <= TURN + 3 * MAX_CHECKED / 4 + 200, "{used} steps in a turn of {TURN}");
            engine.grant_steps(u64::MAX);
            while engine.take_event().is_some() {}
            if progress == Progress::Done {
                return turn;
            }
        }
        panic!("the command does not end")
    };
    let mut moving = MoveJobs::new(b"dead".as_slice().into(), b"to".as_slice().into(), State::Buried, LETTERS / 2);
    let moves = turns(&mut engine, &mut |engine| engine.move_jobs(client, &mut moving, now).expect("log space"));
    let mut kick = Kick::new(u64::MAX);
    let kicks = turns(&mut engine, &mut |engine| engine.kick_in(b"dead", &mut kick, now).expect("a tube"));
    // The destination tube accepts only one job with the key.
    assert_eq!((moving.done, kick.done), (1, LETTERS - 1));
    println!("{moves} turns for moves, {kicks} turns for kicks");
    assert!(moves > 10 && kicks > 30, "{moves} turns for moves, {kicks} turns for kicks");
    engine.check();
}
