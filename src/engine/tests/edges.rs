//! Tests for small mistakes in the code that no other test detects, such as a wrong comparison of keys.

use super::super::rules::dedup::MAX_CHECKED;
use super::super::*;

const NOW: Time = Time::from_nanos(1 << 60);

fn job(body: &[u8]) -> NewJob {
    NewJob { pri: 5, delay: Span::ZERO, ttr: Span::from_secs(60), body: Body::from(body) }
}

fn name_of(place: usize) -> Vec<u8> {
    format!("t{place}").into_bytes()
}

fn take(engine: &mut Engine, client: ClientId) -> Option<JobId> {
    match engine.reserve(client, Some(Span::ZERO), NOW) {
        Reserve::Job(job) => Some(job.id()),
        Reserve::NoJob(_) | Reserve::Waiting => None,
    }
}

#[test]
fn unnamed_jobs_join_only_if_their_bodies_are_equal() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let mut submit = |body: &[u8]| {
        let options = JobOptions { dedup_key: DedupKey::Body(None), ..JobOptions::default() };
        engine.submit(client, b"t", job(body), options, NOW).expect("memory")
    };
    let first = submit(b"one");
    let second = submit(b"two");
    assert!(!first.joined && !second.joined && first.id != second.id);
    assert_eq!(submit(b"one"), Submitted { id: first.id, joined: true });
    assert_eq!(submit(b"two"), Submitted { id: second.id, joined: true });
}

#[test]
fn one_name_can_be_in_a_limited_number_of_tubes() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let mut submit = |place: usize| {
        let options = JobOptions { dedup_key: DedupKey::Name(b"same".as_slice().into()), ..JobOptions::default() };
        engine.submit(client, &name_of(place), job(b"x"), options, NOW)
    };
    let looks = MAX_CHECKED as usize;
    let first = submit(0).expect("the first job");
    for place in 1..=looks {
        assert!(!submit(place).expect("memory").joined, "{place}");
    }
    assert_eq!(submit(looks + 1), Err(Refused::OutOfMemory));
    assert!(submit(looks).expect("the existing job").joined);
    let mut search = NameSearch::default();
    assert_eq!(engine.find_name(b"same", |_| true, &mut search, &mut Steps::new(0)), Progress::Done);
    assert_eq!(search.found, Some(first.id));
}

#[test]
fn many_buried_jobs_with_a_name_do_not_prevent_another() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    for _ in 0..=MAX_CHECKED + 1 {
        let options = JobOptions { dedup_key: DedupKey::Name(b"same".as_slice().into()), ..JobOptions::default() };
        let Submitted { id, joined } = engine.submit(client, b"t", job(b"x"), options, NOW).expect("memory");
        assert!(!joined && engine.reserve_job(client, id, NOW).is_some() && engine.bury(client, id, 1, NOW));
    }
}

#[test]
fn one_idempotency_key_can_be_in_a_limited_number_of_tubes() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let mut put = |place: usize| {
        let tube = Some(name_of(place).into());
        let options = JobOptions { dedup_key: DedupKey::Name(b"same".as_slice().into()), ..JobOptions::default() };
        let tags = Tags { tube, options, ..Tags::default() };
        engine.put_tagged(client, job(b"x"), tags, NOW)
    };
    let looks = MAX_CHECKED as usize;
    for place in 0..=looks {
        assert!(matches!(put(place), Ok(Tagged::New(_))), "{place}");
    }
    assert_eq!(put(looks + 1), Err(Refused::OutOfMemory));
    assert!(matches!(put(looks), Ok(Tagged::Duplicate { .. })));
}

#[test]
fn large_jobs_are_ordered_among_other_jobs() {
    for (large, small) in [(1, 2), (2, 1)] {
        let mut engine = Engine::new(Limits { largest_leased: 3, ..Limits::NONE });
        let client = engine.connect();
        let of_large = engine.put(client, NewJob { pri: large, ..job(b"large") }, NOW).expect("memory");
        let of_small = engine.put(client, NewJob { pri: small, ..job(b"x") }, NOW).expect("memory");
        let order = [take(&mut engine, client), take(&mut engine, client)];
        let expected = if large < small { [of_large, of_small] } else { [of_small, of_large] };
        assert_eq!(order, expected.map(Some));
    }
}

#[test]
fn a_short_list_costs_a_step_for_each_job() {
    const JOBS: u64 = 20;
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let ids: Vec<JobId> = (0..JOBS).map(|_| engine.put(client, job(b"x"), NOW).expect("memory")).collect();
    engine.grant_steps(u64::MAX);
    let mut page = IdPage::new(b"default".as_slice().into(), State::Ready, 0, 100);
    assert_eq!(engine.list_ids(&mut page, |_| true), Some((Progress::Done, ids)));
    assert_eq!(engine.steps().used(), JOBS);
}

#[test]
fn large_jobs_are_reserved_in_order_and_never_leased() {
    let mut engine = Engine::new(Limits { largest_leased: 3, ..Limits::NONE });
    let holder = engine.connect();
    let ids: Vec<JobId> = (0..3).map(|_| engine.put(holder, job(b"large"), NOW).expect("memory")).collect();
    let leaser = engine.connect_as(ReservePolicy::Lease);
    engine.watch(leaser, b"default", NOW).expect("memory");
    assert_eq!(take(&mut engine, leaser), None);
    for id in &ids {
        assert_eq!(take(&mut engine, holder), Some(*id));
        engine.check();
    }
    // The queue of large jobs only exists while there are large jobs.
    assert!(engine.tubes.get(DEFAULT_TUBE).large.is_none());
    assert_eq!(take(&mut engine, holder), None);
}

#[test]
fn skipping_stale_waits_costs_steps() {
    const CLIENTS: u64 = 50;
    let mut engine = Engine::new(Limits { few_watched: 0, ..Limits::NONE });
    let wait = Span::from_secs(1);
    for _ in 0..CLIENTS {
        let client = engine.connect();
        assert!(matches!(engine.reserve(client, Some(wait), NOW), Reserve::Waiting));
    }
    let later = NOW + wait + wait;
    for _ in 0..CLIENTS {
        engine.tick(later);
        assert!(matches!(engine.take_event(), Some(Event::NoJob { .. })));
    }
    assert!(!engine.has_deferred() && engine.take_event().is_none());
    let worker = engine.connect();
    assert!(matches!(engine.reserve(worker, None, later), Reserve::Waiting));
    let producer = engine.connect();
    engine.grant_steps(CLIENTS / 2);
    let id = engine.put(producer, job(b"x"), later).expect("memory");
    assert!(engine.has_deferred() && engine.take_event().is_none(), "the rest must wait for another turn");
    while engine.has_deferred() {
        engine.grant_steps(CLIENTS / 2);
        engine.go_on(later);
    }
    assert_eq!(engine.take_event(), Some(Event::Reserved { client: worker, job: id }));
    engine.check();
}

/// The number of tubes watched by the worker of [`falling_asleep`].
const TUBES: usize = 20;

/// Returns an engine, a producer, and a worker that is becoming idle but has not searched all its tubes yet.
fn falling_asleep() -> (Engine, ClientId, ClientId) {
    let mut engine = Engine::new(Limits { few_watched: 0, ..Limits::NONE });
    let producer = engine.connect();
    let worker = engine.connect_as(ReservePolicy::Notified);
    for place in 0..TUBES {
        engine.watch(worker, &name_of(place), NOW).expect("memory");
    }
    engine.grant_steps(5);
    assert!(!engine.sleep(worker, NOW) && engine.has_deferred());
    (engine, producer, worker)
}

#[test]
fn a_worker_that_grabs_while_becoming_idle_searches_every_tube() {
    let (mut engine, producer, worker) = falling_asleep();
    engine.grant_steps(5);
    engine.go_on(NOW);
    engine.grant_steps(u64::MAX);
    let id = engine.put_into(producer, &name_of(TUBES - 1), job(b"x"), NOW).expect("memory");
    assert!(engine.take_event().is_none(), "the worker is not in the queue yet");
    match engine.grab(worker, NOW) {
        Grab::Job(job) => assert_eq!(job.id(), id),
        other => panic!("{other:?}"),
    }
    engine.go_on(NOW);
    assert!(!engine.has_deferred() && engine.take_event().is_none());
    engine.check();
}

#[test]
fn a_lease_costs_steps_for_each_name_and_each_watched_tube() {
    let mut engine = Engine::new(Limits { few_watched: 0, ..Limits::NONE });
    let client = engine.connect_as(ReservePolicy::Lease);
    let mut steps = |names: &[u8]| {
        engine.grant_steps(u64::MAX);
        let progress = engine.watch_only(client, &mut WantedTubes::new(names.into()), NOW);
        assert_eq!(progress.expect("memory"), Progress::Done);
        engine.steps().used()
    };
    let of_one = steps(b"a");
    let of_four = steps(b"b c d e");
    // A new tube costs one step for the lookup, two for the watch, and the steps for creating a tube.
    assert!(of_one >= 3 && of_four >= 4 * of_one, "{of_one} {of_four}");
    // A tube that is already watched costs one step for the lookup and mark, one for keeping it, and two for the watch.
    assert_eq!(steps(b"b c d e"), 4 * 4);
}

#[test]
fn a_restored_queue_uses_the_same_memory() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    for completion in [CompletionPolicy::Drop, CompletionPolicy::Tell, CompletionPolicy::Keep] {
        let options = JobOptions { completion, ..JobOptions::default() };
        engine.submit(client, b"t", job(b"x"), options, NOW).expect("memory");
    }
    let mut restored = Engine::new(Limits::NONE);
    for job in engine.jobs() {
        restored.restore_job(&engine.stored_job(job), None);
    }
    restored.finish_restore(engine.jobs().count() as u64, NOW);
    assert_eq!(restored.memory().jobs, engine.memory().jobs);
    restored.check();
}

#[test]
fn memory_of_connections_is_not_available_for_jobs() {
    let mut engine = Engine::new(Limits { max_memory: 100_000, ..Limits::NONE });
    let client = engine.connect();
    assert!(engine.put(client, job(b"x"), NOW).is_ok());
    assert!(engine.has_memory(10_000) && !engine.has_memory(100_000));
    engine.set_buffers(100_000, false);
    assert!(!engine.has_memory(1));
    assert_eq!(engine.put(client, job(b"x"), NOW), Err(Refused::OutOfMemory));
    engine.set_buffers(0, true);
    assert_eq!(engine.put(client, job(b"x"), NOW), Err(Refused::OutOfMemory));
    engine.set_buffers(0, false);
    assert!(engine.put(client, job(b"x"), NOW).is_ok());
    engine.check();
}

#[test]
fn a_tube_notifies_again_only_if_workers_are_left_to_notify() {
    let mut engine = Engine::new(Limits { wakeups: 1, ..Limits::NONE });
    let producer = engine.connect();
    let workers: Vec<ClientId> = (0..2).map(|_| engine.connect_as(ReservePolicy::Notified)).collect();
    for &worker in &workers[..1] {
        engine.watch(worker, b"default", NOW).expect("memory");
        assert!(!engine.sleep(worker, NOW));
    }
    engine.put(producer, job(b"x"), NOW).expect("memory");
    assert!(engine.take_event().is_some() && engine.take_event().is_none());
    assert_eq!(engine.next_deadline(), Time::NEVER);
    // One worker will be notified, and the other worker will stay idle.
    for &worker in &workers {
        assert!(matches!(engine.grab(worker, NOW), Grab::Job(_) | Grab::NoJob));
        engine.watch(worker, b"default", NOW).expect("memory");
        assert!(!engine.sleep(worker, NOW));
    }
    engine.put(producer, job(b"x"), NOW).expect("memory");
    assert!(engine.take_event().is_some() && engine.take_event().is_none());
    let again = engine.next_deadline();
    assert!(NOW < again && again < Time::NEVER);
    // Another put does not delay the scheduled notification.
    engine.put(producer, job(b"x"), NOW + Span::from_nanos(1)).expect("memory");
    assert_eq!(engine.next_deadline().min(again), engine.next_deadline());
    engine.check();
}

#[test]
fn giving_back_jobs_in_few_steps_visits_each_about_once() {
    const JOBS: u64 = 200;
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    for place in 0..JOBS {
        let tube: &[u8] = if place % 2 == 0 { b"kept" } else { b"lost" };
        engine.put_into(client, tube, job(b"x"), NOW).expect("memory");
    }
    for tube in [b"kept", b"lost"] {
        engine.watch(client, tube, NOW).expect("memory");
    }
    // Reserve the jobs in one order, and let their times to run expire in another order.
    for place in 0..JOBS {
        assert!(engine.reserve_more(client, NOW + Span::from_nanos(place * 7919 % JOBS)).is_some());
    }
    let (mut place, mut turns, mut used) = (None, 0, 0);
    loop {
        engine.grant_steps(JOBS / 4);
        let progress = engine.give_back(client, Some(b"lost"), &mut place, NOW);
        turns += 1;
        used += engine.steps().used();
        if progress == Progress::Done {
            break;
        }
    }
    assert!(turns > 4, "{turns} turns are too few for {JOBS} jobs");
    assert!(used <= 2 * JOBS * super::super::data::MOVE, "{used} steps");
    engine.grant_steps(u64::MAX);
    engine.check();
}

#[test]
fn a_worker_that_becomes_idle_is_notified_of_a_job_put_during_its_search() {
    let (mut engine, producer, worker) = falling_asleep();
    engine.grant_steps(u64::MAX);
    let id = engine.put_into(producer, &name_of(TUBES - 1), job(b"x"), NOW).expect("memory");
    while engine.has_deferred() {
        engine.go_on(NOW);
    }
    // The client is notified of work, but receives no job without a request.
    assert!(!matches!(engine.take_event(), None | Some(Event::Reserved { .. })));
    assert!(engine.take_event().is_none());
    assert!(matches!(engine.grab(worker, NOW), Grab::Job(job) if job.id() == id));
    engine.check();
}

#[test]
fn all_clients_waiting_for_a_job_are_notified_of_its_burial_in_turns() {
    const WAITING: usize = 10;
    let mut engine = Engine::new(Limits::NONE);
    let holder = engine.connect();
    let id = engine.put(holder, job(b"x"), NOW).expect("memory");
    assert_eq!(take(&mut engine, holder), Some(id));
    for _ in 0..WAITING {
        let client = engine.connect();
        assert!(matches!(engine.wait_end(client, id, Span::from_secs(9), NOW), JobEnd::Waiting));
    }
    engine.grant_steps(2 * super::super::data::NOTIFY);
    assert!(engine.bury(holder, id, 1, NOW) && engine.has_deferred());
    let mut notified = 0;
    while engine.has_deferred() {
        engine.grant_steps(2 * super::super::data::NOTIFY);
        engine.go_on(NOW);
    }
    while let Some(event) = engine.take_event() {
        assert!(matches!(event, Event::Outcome { outcome, .. } if matches!(*outcome, Outcome::Failed(_))));
        notified += 1;
    }
    assert_eq!(notified, WAITING);
    engine.check();
}

#[test]
fn a_page_has_the_jobs_of_its_state_in_many_steps_and_in_few() {
    const JOBS: u64 = 20;
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let (mut ready, mut delayed) = (Vec::new(), Vec::new());
    for place in 0..JOBS {
        let delay = if place % 3 == 0 { Span::from_secs(9) } else { Span::ZERO };
        // All but one of the last ready jobs wait in a lane.
        let concurrency = (place > 15).then(|| (b"k".as_slice().into(), 1));
        let options = JobOptions { concurrency, ..JobOptions::default() };
        let submitted = engine.submit(client, b"default", NewJob { delay, ..job(b"x") }, options, NOW);
        let id = submitted.expect("memory").id;
        if delay == Span::ZERO { &mut ready } else { &mut delayed }.push(id);
    }
    for (state, ids) in [(State::Ready, &ready), (State::Delayed, &delayed)] {
        // One budget suffices for a part of the queue, one for the whole queue, and one is unlimited.
        for steps in [5, JOBS, u64::MAX] {
            let mut page = JobPage::new(state, 0, JOBS as usize);
            let found: Vec<JobId> = loop {
                engine.grant_steps(steps);
                match engine.jobs_of(b"default", &mut page) {
                    Page::Jobs(jobs) => break jobs.iter().map(|job| job.id()).collect(),
                    Page::More => {}
                    Page::NotFound => panic!("the tube exists"),
                }
            };
            assert_eq!(found, *ids, "{state:?} in {steps} steps");
        }
    }
}

#[test]
fn a_client_that_waits_for_an_end_is_notified_of_a_burial_when_it_is_durable() {
    let mut engine = Engine::new(Limits::NONE);
    engine.keep_changes();
    let client = engine.connect();
    let id = engine.put(client, job(b"x"), NOW).expect("memory");
    assert_eq!(take(&mut engine, client), Some(id));
    assert!(engine.bury(client, id, 1, NOW));
    while engine.take_change().is_some() {}
    assert!(matches!(engine.wait_end(client, id, Span::from_secs(9), NOW), JobEnd::Buried));
    assert!(matches!(engine.take_change(), Some(Change::Promise(_))));
}

/// Returns the log bytes charged for the job that was put, excluding its body and the name of its tube.
fn logged_beside(engine: &mut Engine, body_and_tube: usize) -> usize {
    let mut changes = std::iter::from_fn(|| engine.take_change());
    let slot = changes.find_map(|change| if let Change::Put(slot) = change { Some(slot) } else { None });
    engine.logged_size(slot.expect("a put")) - body_and_tube
}

#[test]
fn the_log_counts_the_options_of_a_job_that_has_some() {
    let mut engine = Engine::new(Limits::NONE);
    engine.keep_changes();
    let client = engine.connect();
    engine.put(client, job(b"body"), NOW).expect("memory");
    assert_eq!(logged_beside(&mut engine, b"default".len() + b"body".len()), 0);
    for completion in [CompletionPolicy::Drop, CompletionPolicy::Keep] {
        let dedup_key = DedupKey::Name(b"name".as_slice().into());
        let options = JobOptions { completion, dedup_key, ..JobOptions::default() };
        engine.submit(client, format!("{completion:?}").as_bytes(), job(b"body"), options, NOW).expect("memory");
        let beside = logged_beside(&mut engine, b"Drop".len() + b"body".len());
        assert_eq!(beside, OPTIONS_SIZE + b"name".len(), "{completion:?}");
    }
}

#[test]
fn the_jobs_of_two_tubes_are_added_state_by_state() {
    let few = JobCounts { urgent: 1, ready: 2, reserved: 3, delayed: 4, buried: 5, held: 7, scheduled: 8, finished: 6 };
    let mut sum = JobCounts {
        urgent: 10,
        ready: 20,
        reserved: 30,
        delayed: 40,
        buried: 50,
        held: 70,
        scheduled: 80,
        finished: 60,
    };
    sum.merge(&few);
    assert_eq!(
        sum,
        JobCounts {
            urgent: 11,
            ready: 22,
            reserved: 33,
            delayed: 44,
            buried: 55,
            held: 77,
            scheduled: 88,
            finished: 66
        }
    );
}

/// If keys are unique per tube, clients of one tube can neither block nor find the keys of another tube, and cannot
/// cause the server to refuse these keys.
#[test]
fn keys_of_a_tube_do_not_affect_other_tubes() {
    let mut engine = Engine::new(Limits { keys_per_tube: true, ..Limits::NONE });
    let client = engine.connect();
    let name: Name = b"same".as_slice().into();
    let mut ids = Vec::new();
    for place in 0..=MAX_CHECKED as usize + 1 {
        engine.use_tube(client, &name_of(place)).expect("memory");
        let (dedup_key, concurrency) = (DedupKey::Name(name.clone()), Some((name.clone(), 1)));
        let options = JobOptions { dedup_key, concurrency, ..JobOptions::default() };
        let tags = Tags { options, ..Tags::default() };
        let Ok(Tagged::New(id)) = engine.put_tagged(client, job(b"x"), tags.clone(), NOW) else { panic!("{place}") };
        let again = engine.put_tagged(client, job(b"x"), tags, NOW);
        assert!(matches!(again, Ok(Tagged::Duplicate { .. })), "{place}");
        ids.push(id);
    }
    // At most one job per tube can be reserved at a time.
    let worker = engine.connect();
    for place in 0..100 {
        engine.watch(worker, &name_of(place), NOW).expect("memory");
    }
    for _ in 0..100 {
        assert!(take(&mut engine, worker).is_some());
    }
    // The search visits all tubes in several turns.
    for place in [0, 7, MAX_CHECKED as usize + 1] {
        let (mut search, mut turns) = (NameSearch::default(), 1);
        let sees = |tube: &[u8]| tube == name_of(place);
        while engine.find_name(b"same", sees, &mut search, &mut Steps::new(100)) == Progress::More {
            turns += 1;
        }
        assert!(search.found == Some(ids[place]) && turns > 300, "{turns}");
    }
    engine.check();
}

/// While too many tubes use the key of a kicked dead letter, no lookup finds the job, and its tube refuses the key.
#[test]
fn a_kicked_dead_letter_is_found_again_when_fewer_tubes_have_its_key() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let put = |engine: &mut Engine, tube: &[u8]| {
        let options = JobOptions { dedup_key: DedupKey::Name(b"same".as_slice().into()), ..JobOptions::default() };
        engine.put_tagged(client, job(b"x"), Tags { tube: Some(tube.into()), options, ..Tags::default() }, NOW)
    };
    let settings = TubeSettings { tries: 1, dead: Some(b"dead".as_slice().into()), ..TubeSettings::default() };
    engine.set_tube(client, b"mail", settings, NOW).expect("memory");
    let letters = [0, 1].map(|_| {
        let Ok(Tagged::New(id)) = put(&mut engine, b"mail") else { panic!("no job") };
        assert!(engine.reserve_job(client, id, NOW).is_some() && engine.fail(client, id, 5, b"", NOW).is_some());
        id
    });
    for place in 0..=MAX_CHECKED as usize {
        assert!(matches!(put(&mut engine, &name_of(place)), Ok(Tagged::New(_))), "{place}");
    }
    assert!(letters.iter().rev().all(|id| engine.kick_job(*id, NOW) == Ok(true)));
    engine.check();
    assert_eq!(put(&mut engine, b"dead"), Err(Refused::OutOfMemory));
    let Ok(Tagged::Duplicate { id: other, .. }) = put(&mut engine, &name_of(7)) else { panic!("no duplicate") };
    assert!(engine.delete(client, other, NOW));
    for id in letters {
        assert!(matches!(put(&mut engine, b"dead"), Ok(Tagged::Duplicate { id: found, .. }) if found == id));
        assert!(engine.delete(client, id, NOW));
        engine.check();
    }
    assert!(matches!(put(&mut engine, b"dead"), Ok(Tagged::New(_))));
}

#[test]
#[should_panic(expected = "only the oldest job must be found by its hash")]
fn the_check_detects_a_family_whose_oldest_job_is_hidden() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let options = JobOptions { dedup_key: DedupKey::Name(b"same".as_slice().into()), ..JobOptions::default() };
    let id = engine.submit(client, b"t", job(b"x"), options, NOW).expect("memory").id;
    engine.check();
    let slot = engine.store.jobs.find(id).expect("the job");
    let (family, number) = (engine.family_of(slot, false).expect("a family"), engine.store.extras.of(slot));
    let hidden = engine.hash_dedup_key(&engine.store.extras.get(number).dedup_key, family.1, Some(id));
    engine.store.set_twin(family, id, true);
    engine.store.extras.rehash(number, hidden);
    engine.check();
}

/// At the memory limit, a kick must fail for a job that needs additional memory, and succeed for other jobs.
#[test]
fn without_memory_only_dead_letters_with_different_keys_are_kicked() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let settings = TubeSettings { tries: 1, dead: Some(b"dead".as_slice().into()), ..TubeSettings::default() };
    engine.set_tube(client, b"mail", settings, NOW).expect("memory");
    let letters = [b"same", b"else", b"same"].map(|key| {
        let options = JobOptions { dedup_key: DedupKey::Name(key.as_slice().into()), ..JobOptions::default() };
        let tags = Tags { tube: Some(b"mail".as_slice().into()), options, ..Tags::default() };
        let Ok(Tagged::New(id)) = engine.put_tagged(client, job(b"x"), tags, NOW) else { panic!("no job") };
        assert!(engine.reserve_job(client, id, NOW).is_some() && engine.fail(client, id, 5, b"", NOW).is_some());
        id
    });
    engine.limits.max_memory = engine.memory().total();
    let mut kick = Kick::new(9);
    assert_eq!(engine.kick_in(b"dead", &mut kick, NOW), Some(Progress::Done));
    assert_eq!(kick.done, 2);
    assert_eq!(engine.kick_job(letters[2], NOW), Err(Refused::OutOfMemory));
    engine.check();
    assert!(engine.delete(client, letters[0], NOW));
    assert_eq!(engine.kick_job(letters[2], NOW), Ok(true));
    engine.check();
}

/// A submission with the key of buried jobs creates a new job, however many buried jobs have the key.
#[test]
fn buried_jobs_with_a_key_do_not_prevent_another_job() {
    for dedup_key in [DedupKey::Name(b"same".as_slice().into()), DedupKey::Body(None)] {
        let mut engine = Engine::new(Limits::NONE);
        let client = engine.connect();
        engine.watch(client, b"t", NOW).expect("memory");
        let mut buried = Vec::new();
        for round in 0..=MAX_CHECKED + 2 {
            let options = JobOptions { dedup_key: dedup_key.clone(), ..JobOptions::default() };
            let new = engine.submit(client, b"t", job(b"x"), options.clone(), NOW).expect("memory");
            assert!(!new.joined, "{round}");
            assert!(engine.submit(client, b"t", job(b"x"), options, NOW).expect("memory").joined, "{round}");
            let id = take(&mut engine, client).expect("the job");
            assert!(engine.bury(client, id, 0, NOW), "{round}");
            buried.push(id);
        }
        // A submission with the same key joins the kicked job. Buried jobs can be deleted in any order.
        assert_eq!(engine.kick_job(buried[3], NOW), Ok(true));
        let options = JobOptions { dedup_key, ..JobOptions::default() };
        assert_eq!(engine.submit(client, b"t", job(b"x"), options, NOW).map(|it| it.id), Ok(buried[3]));
        engine.check();
        for id in buried {
            assert!(engine.delete(client, id, NOW), "{id:?}");
        }
        engine.check();
    }
}

/// There is no separate limit on the number of tubes with settings.
#[test]
fn each_tube_may_have_a_limit() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    for place in 0..10_100 {
        assert!(engine.limit_new_tube(client, &name_of(place), [Some(1); 3], Time::default()).is_ok(), "{place}");
        assert!(engine.settings_at(engine.tubes.find(&name_of(place)).expect("a tube")).is_some(), "{place}");
    }
}
