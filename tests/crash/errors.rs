//! Tests a disk that fails while the server runs.
//!
//! A power failure must not lose acknowledged changes, even after earlier disk errors. On a full disk, the server must
//! still be able to delete every job. When the disk recovers, the server must resume without intervention.

use beanpole::internals::binlog::{Health, SyncMode};
use beanpole::internals::engine::{
    Body, ClientId, CompletionPolicy, DedupKey, Grab, JobId, JobOptions, Kick, NotCompleted, Outcome, Progress,
    Reserve, Span,
};

use crate::crashes::configured;
use crate::disk::{Disk, Operation, EIO, ENOSPC};
use crate::driver::{dawn, settings, start, Life};
use crate::model::Model;
use crate::outcomes::kept;
use crate::random::Random;
use crate::verbs;

impl Life {
    /// Checks the state that a server would recover if the power failed now.
    fn check_cut(&mut self, seed: u64) {
        self.model.advance(self.wal.durable());
        let disk = self.disk.power_cut(seed);
        disk.heal();
        disk.set_capacity(u64::MAX);
        let how = settings(1000, SyncMode::Always);
        let (engine, ..) = start(&disk, how, self.now).unwrap_or_else(|error| panic!("cut {seed}: {error}"));
        let found = self.model.compare(&engine, self.now);
        found.unwrap_or_else(|error| panic!("cut {seed}: {error}"));
    }

    pub fn delete(&mut self, id: u64) {
        let client = self.first_client();
        self.turn(|engine, now| {
            engine.delete(client, JobId(id), now);
            None
        });
    }

    /// Kicks all jobs of the client's tube, and returns their number.
    fn kick_all(&mut self, client: ClientId) -> u64 {
        let mut kick = Kick::new(u64::MAX);
        let mut progress = Progress::More;
        while progress == Progress::More {
            self.wal.reserve(&self.access, 50);
            self.turn(|engine, now| {
                progress = engine.kick(client, &mut kick, now);
                None
            });
        }
        kick.done
    }

    fn is_safe(&self) -> bool {
        self.access.0.borrow().0.required.any <= self.wal.durable()
    }
}

/// Puts jobs until one is refused. Returns the number of accepted jobs.
fn fill(life: &mut Life) -> u64 {
    let client = life.first_client();
    for count in 0..100_000 {
        if life.put(client, b"full", 1, Span::ZERO).is_none() {
            return count;
        }
        life.settle();
        assert!(life.health() != Health::Failing, "a full disk must not count as failing");
        assert!(life.is_safe());
    }
    panic!("the disk does not fill up");
}

// Tests promise P16 of beanpole-promises(7).
#[test]
fn a_full_disk_accepts_all_deletes_and_recovers() {
    for seed in 0..40 {
        let size = [800, 1000, 2000, 4096][seed as usize % 4];
        let disk = Disk::new(seed);
        let mut life = Life::begin(disk.clone(), settings(size, SyncMode::Always), dawn(), seed).expect("an empty log");
        life.settle();
        let space = Random::new(seed).below(size * 8) + size;
        disk.set_capacity(disk.used("") + space);
        let taken = fill(&mut life);
        life.check_cut(seed);
        assert!(space < 4 * size || taken > 0, "no job fits into {space} bytes");
        assert_eq!(life.health(), Health::Full);
        let mut jobs = life.model.ids();
        while !jobs.is_empty() {
            let place = life.random.below(jobs.len() as u64) as usize;
            life.delete(jobs.swap_remove(place));
            life.settle();
            assert!(life.health() != Health::Failing, "seed {seed}: {} jobs are left", jobs.len());
            assert!(life.is_safe(), "a delete must be durable");
            if life.random.once_in(20) {
                life.check_cut(seed);
            }
        }
        life.check_cut(seed);
        assert!(fill(&mut life) * 2 >= taken, "seed {seed}: deletes must free the space of the jobs");
        disk.set_capacity(u64::MAX);
        life.settle();
        let client = life.first_client();
        assert!((0..100).all(|_| life.put(client, b"more", 1, Span::ZERO).is_some()), "jobs must be accepted again");
        life.settle();
        assert_eq!(life.health(), Health::Ok);
        life.check_cut(seed);
    }
}

/// Fills the log with jobs until the disk is full. Half of the jobs have a time to live.
fn fill_with_options(life: &mut Life) -> Vec<JobId> {
    let (mut jobs, mut number) = (Vec::new(), 0);
    while number < 4000 {
        let mut dedup_key = [0; 16];
        dedup_key[..8].copy_from_slice(&u64::to_le_bytes(number));
        let kept = JobOptions { max_attempts: 1, ttl: Span::from_secs(100), ..kept(0) };
        let options = match number % 2 {
            0 => JobOptions { dedup_key: DedupKey::Id(dedup_key), ..kept },
            _ => JobOptions { completion: CompletionPolicy::Tell, ..JobOptions::default() },
        };
        number += 1;
        let Some(job) = life.try_submit(b"some bytes", options) else { break };
        jobs.push(job);
        life.settle();
        assert!(life.health() != Health::Failing);
    }
    jobs
}

impl Life {
    /// Describes a job by its state, its counters and its outcome. Also includes the memory that the queue uses.
    fn look(&self, job: JobId) -> String {
        let (_, engine) = &*self.access.0.borrow();
        let view = engine.any_job(job).expect("a job");
        let fails = view.fails;
        format!("{:?} {:?} {fails} {:?} {:?}", view.state(), view.history(), engine.outcome(&view), engine.memory())
    }

    /// Reserves all available jobs and gives them back, three times. Then leases all jobs that are still available. The
    /// caller lets the leases expire.
    fn lose_all(&mut self) {
        let [leaser, sleeper] = [4, 3].map(|place| self.client_at(place));
        for _ in 0..3 {
            self.turn(|engine, now| {
                engine.watch(sleeper, b"t", now).expect("a tube");
                while let Grab::Job(_) = engine.grab(sleeper, now) {}
                verbs::give_back(engine, sleeper, now);
                None
            });
        }
        self.turn(|engine, now| {
            while let Reserve::Job(_) = verbs::lease(engine, leaser, &[b"t"], Span::ZERO, now) {}
            None
        });
    }
}

#[test]
fn expiries_on_a_full_disk_leave_space_for_deletes() {
    for seed in 0..30 {
        let size = [1000, 2000, 4096][seed as usize % 3];
        let disk = Disk::new(seed);
        let mut life = Life::begin(disk.clone(), settings(size, SyncMode::Always), dawn(), seed).expect("an empty log");
        life.settle();
        disk.set_capacity(disk.used("") + Random::new(seed).below(size * 8) + 2 * size);
        let jobs = fill_with_options(&mut life);
        assert_eq!(life.health(), Health::Full);
        let large = || Outcome::Failed(Body::from(vec![b'r'; size as usize]));
        let before = life.look(jobs[0]);
        assert_eq!(life.say(jobs[0], large()), Err(NotCompleted::OutOfMemory));
        assert_eq!(life.look(jobs[0]), before, "seed {seed}: the job must be unchanged");
        life.check_cut(seed);
        life.lose_all();
        life.settle();
        // Leases expire after 10 seconds, and times to live expire 100 seconds later.
        for seconds in [10, 100] {
            life.now = life.now + Span::from_secs(seconds);
            life.tick();
            assert_eq!(life.health(), Health::Full, "seed {seed}");
            life.settle();
            assert!(life.health() != Health::Failing && life.is_safe(), "seed {seed}: space for deletes was used");
            life.check_cut(seed);
        }
        let engine = |life: &Life| life.access.0.borrow().1.stats().jobs;
        assert_eq!((engine(&life).finished, engine(&life).buried), (0, jobs.len() as u64 / 2), "seed {seed}");
        disk.set_capacity(u64::MAX);
        life.settle();
        assert_eq!(life.health(), Health::Ok);
        let job = life.try_submit(b"", kept(1)).expect("space for a job");
        assert_eq!(life.say(job, large()), Ok(()));
        life.settle();
        life.check_cut(seed);
    }
}

/// In some calls, makes a disk operation fail once or repeatedly, limits the disk's capacity, or ends all faults.
fn misfortune(life: &mut Life, random: &mut Random) {
    let disk = life.disk.clone();
    match random.below(40) {
        0 => {
            let operation = random.pick(&[
                Operation::Create,
                Operation::Rename,
                Operation::Remove,
                Operation::Write,
                Operation::Cut,
                Operation::Sync,
            ]);
            disk.fail(operation, random.pick(&[EIO, ENOSPC]), random.pick(&[1, 1, 2, 5, 1000]));
        }
        1 => disk.set_capacity(disk.used("") + random.below(10_000)),
        2 | 3 => {
            disk.heal();
            disk.set_capacity(u64::MAX);
        }
        _ => {}
    }
}

fn unlucky_life(seed: u64, mode: SyncMode) -> u64 {
    let mut random = Random::new(seed);
    let disk = Disk::new(seed);
    let size = random.pick(&[512, 700, 1500, 4096, 8192, 40_000]);
    let mut life = Life::begin(disk.clone(), settings(size, mode), dawn(), seed).expect("an empty log");
    life.largest = size * 5 / 4;
    life.model.replays = true;
    let mut cuts = 0;
    for _ in 0..400 {
        misfortune(&mut life, &mut random);
        life.step();
        if mode == SyncMode::Always && random.once_in(6) {
            life.check_cut(random.next());
            cuts += 1;
        }
    }
    disk.heal();
    disk.set_capacity(u64::MAX);
    for _ in 0..3 {
        life.settle();
    }
    assert_eq!(life.health(), Health::Ok, "seed {seed}: the server must recover by itself");
    assert!(life.is_safe() && life.model.is_settled(), "seed {seed}: all changes must be durable in the end");
    if mode == SyncMode::Never {
        // Only this sync makes the last changes durable.
        life.wal.close(&life.access, life.now);
    }
    life.check_cut(seed);
    let used = disk.used("segment.");
    let stats = life.access.0.borrow().0.stats();
    assert!(
        used <= stats.disk || mode == SyncMode::Never,
        "seed {seed}: {used} bytes are used, but the log counts {}",
        stats.disk
    );
    // In addition to the usual bound, a record can fill a segment, and copies of pauses can fill half of a segment.
    assert!(used <= 2 * stats.live + 5 * size, "seed {seed}: {used} bytes are used, {} are live", stats.live);
    cuts + 1
}

// Tests promise P17 of beanpole-promises(7).
#[test]
fn no_acknowledged_change_is_lost_by_a_power_cut_after_failures() {
    let (mut cuts, mut seed) = (0, 0);
    while cuts < configured() / 2 {
        let modes = [SyncMode::Always, SyncMode::Always, SyncMode::Every(50), SyncMode::Never];
        cuts += unlucky_life(seed, modes[seed as usize % 4]);
        seed += 1;
    }
    println!("failing disks: {cuts} power cuts in {seed} lives");
}

/// Runs several servers on one disk that fails in all of them. Each server ends with a power cut or, after the disk has
/// recovered, with a kill. Faults can continue during the next start. Returns the number of power cuts.
fn unlucky_lives(seed: u64) -> u64 {
    let mut random = Random::new(seed ^ 0xfa17);
    let how = settings(random.pick(&[512, 700, 1500, 4096, 8192, 40_000]), SyncMode::Always);
    let (mut disk, mut now, mut before) = (Disk::new(seed), dawn(), Model::default());
    let mut cuts = 0;
    for generation in 0..5 {
        let place = |error: String| format!("seed {seed}, generation {generation}: {error}");
        let begun = Life::begin(disk.clone(), how, now, seed + generation);
        let mut life = begun.unwrap_or_else(|error| panic!("{}", place(error.to_string())));
        before.compare(&life.access.0.borrow().1, now).unwrap_or_else(|error| panic!("{}", place(error)));
        life.largest = how.segment_size * 5 / 4;
        life.model.replays = true;
        for _ in 0..60 {
            misfortune(&mut life, &mut random);
            life.step();
            if random.once_in(10) {
                life.check_cut(random.next());
                cuts += 1;
            }
        }
        // After a failed sync, the page cache can contain data that no later sync writes. A kill preserves this data,
        // and can therefore follow only after the log has replaced the file.
        let recovers = random.once_in(2);
        if recovers {
            disk.heal();
            disk.set_capacity(u64::MAX);
            (0..3).for_each(|_| life.settle());
            assert_eq!(life.health(), Health::Ok, "seed {seed}, generation {generation}");
            assert!(life.is_safe() && life.model.is_settled(), "seed {seed}, generation {generation}");
        }
        life.model.advance(life.wal.durable());
        disk.stop();
        (before, now) = (life.model, life.now);
        disk = if recovers { disk.kill(seed) } else { disk.power_cut(random.next()) };
        cuts += u64::from(!recovers);
        if random.once_in(2) {
            disk.heal();
            disk.set_capacity(u64::MAX);
        }
    }
    cuts
}

// Tests promise P17 of beanpole-promises(7).
#[test]
fn failures_restarts_and_power_cuts_together_lose_nothing() {
    let (mut cuts, mut seed) = (0, 0);
    while cuts < configured() / 2 {
        cuts += unlucky_lives(seed);
        seed += 1;
    }
    println!("failing disks: {cuts} power cuts in {seed} histories of several servers");
}

/// In this run, the live items of the oldest segment need a segment that is larger than usual.
#[test]
fn a_disk_with_space_again_is_compacted_into_a_large_segment() {
    unlucky_life(14, SyncMode::Every(50));
}

// Tests promise P17 of beanpole-promises(7).
#[test]
fn a_failed_sync_moves_everything_to_a_new_segment() {
    let disk = Disk::new(3);
    let mut life = Life::begin(disk.clone(), settings(4096, SyncMode::Always), dawn(), 3).expect("an empty log");
    let client = life.first_client();
    let first = life.put(client, b"t", 1, Span::ZERO).expect("space for a job");
    life.settle();
    life.put(client, b"t", 1, Span::ZERO).expect("space for a job");
    disk.fail(Operation::Sync, EIO, 1);
    assert!(life.wal.write(&life.access) && !life.wal.sync(&life.access));
    assert_eq!((life.health(), life.is_safe()), (Health::Failing, false));
    assert_eq!(life.put(client, b"t", 1, Span::ZERO), None, "jobs must be refused while the disk fails");
    life.delete(first);
    life.check_cut(1);
    let before = life.access.0.borrow().0.stats().current;
    life.settle();
    assert_eq!((life.health(), life.is_safe()), (Health::Ok, true));
    assert!(life.access.0.borrow().0.stats().oldest > before, "the failed segment must be removed");
    assert!(disk.names().iter().all(|name| !name.contains('/')), "an undamaged segment must not be kept");
    (0..50).for_each(|seed| life.check_cut(seed));
}

#[test]
fn a_large_kick_on_a_full_disk_leaves_space_for_deletes() {
    for (seed, size) in [(1, 1000), (2, 2048), (3, 4096)] {
        let disk = Disk::new(seed);
        let mut life = Life::begin(disk.clone(), settings(size, SyncMode::Always), dawn(), seed).expect("an empty log");
        let client = life.first_client();
        for _ in 0..size / 4 {
            life.put(client, b"later", 1, Span::from_secs(10_000)).expect("space for a job");
            life.settle();
        }
        // The disk is full from now on, but the log has not detected this yet.
        disk.set_capacity(disk.used(""));
        assert_eq!(life.health(), Health::Ok);
        assert!(life.kick_all(client) < size / 4, "seed {seed}: the log must not have space for all kicks");
        life.settle();
        assert!(life.health() != Health::Failing && life.is_safe(), "seed {seed}: space for deletes was used");
        life.check_cut(seed);
        for id in life.model.ids() {
            life.delete(id);
            life.settle();
            assert!(life.health() != Health::Failing && life.is_safe(), "seed {seed}: a delete must be durable");
        }
        life.check_cut(seed);
    }
}

/// A server that starts on a full disk must execute commands that need no log space, and refuse all other commands.
#[test]
fn a_start_on_a_full_disk_accepts_deletes_and_recovers() {
    for seed in 0..8 {
        let disk = Disk::new(seed);
        let how = settings(4096, SyncMode::Always);
        let mut life = Life::begin(disk.clone(), how, dawn(), seed).expect("an empty log");
        disk.set_capacity(40_000);
        let client = life.first_client();
        let mut jobs = Vec::new();
        while let Some(job) = life.put(client, b"a", 1, Span::ZERO) {
            jobs.push(job);
            life.settle();
        }
        assert_eq!(life.health(), Health::Full, "seed {seed}");
        // Another program fills the disk while the server is down.
        let disk = if seed % 2 == 0 { disk.kill(seed) } else { disk.power_cut(seed) };
        disk.set_capacity(disk.used(""));
        let mut life = Life::begin(disk.clone(), how, life.now, seed).expect("a start on a full disk");
        assert_eq!(life.model.ids().len(), jobs.len());
        life.settle();
        let client = life.first_client();
        // At startup, the server has removed unused prepared segments, so the disk has space for some jobs.
        while let Some(job) = life.put(client, b"a", 1, Span::ZERO) {
            jobs.push(job);
            life.settle();
        }
        assert_eq!(life.health(), Health::Full, "seed {seed}");
        for job in jobs {
            life.delete(job);
            life.settle();
            assert!(life.health() != Health::Failing && life.is_safe(), "seed {seed}");
        }
        life.check_cut(seed);
        disk.set_capacity(u64::MAX);
        life.settle();
        assert!(life.put(client, b"a", 1, Span::ZERO).is_some());
        life.settle();
        life.check_cut(seed);
    }
}

/// The server must serve existing jobs even if every write to the disk fails.
#[test]
fn a_start_on_a_read_only_disk_serves_existing_jobs() {
    const EROFS: i32 = 30;
    for (seed, error) in [EIO, EROFS, ENOSPC].into_iter().cycle().take(30).enumerate() {
        let seed = seed as u64;
        let disk = Disk::new(seed);
        let how = settings(4096, SyncMode::Always);
        let mut life = Life::begin(disk.clone(), how, dawn(), seed).expect("an empty log");
        (0..200).for_each(|_| life.step());
        life.settle();
        let disk = disk.kill(seed);
        for operation in
            [Operation::Create, Operation::Rename, Operation::Remove, Operation::Write, Operation::Cut, Operation::Sync]
        {
            disk.fail(operation, error, u64::MAX);
        }
        let mut next = Life::begin(disk.clone(), how, life.now, seed).unwrap_or_else(|error| panic!("{seed}: {error}"));
        life.model.compare(&next.access.0.borrow().1, life.now).expect("all jobs");
        assert_eq!(next.health(), Health::Failing);
        let client = next.first_client();
        assert_eq!(next.put(client, b"a", 1, Span::ZERO), None);
        let deleted = next.any().0;
        next.delete(deleted);
        next.settle();
        disk.heal();
        next.settle();
        assert_eq!(next.health(), Health::Ok, "seed {seed}: {error}");
        assert!(next.put(client, b"a", 1, Span::ZERO).is_some());
        next.settle();
        next.check_cut(seed);
    }
}
