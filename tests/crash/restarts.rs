//! Runs the engine's random tests with a log, restarts the server occasionally, and compares the recovered queue with
//! the model.
//!
//! Owns the restarts: a power failure after a full sync, or a kill, which loses unwritten changes. `BEANPOLE_SEEDS=5000
//! cargo test --release --test crash restarts` runs 5000 seeds. Must not duplicate the engine's rules, which the
//! reference model implements.

use std::sync::Arc;

use beanpole::internals::binlog::{open, Journal, JournalAccess, SyncMode, Wal};
use beanpole::internals::engine::{Engine, Time};

use crate::disk::Disk;
use crate::driver::{settings, Access};
use crate::random::Random;
use crate::reference::comparing::{compare, step, Stage};
use crate::reference::model::Model;
use crate::reference::script::{Kind, Script};

const SEEDS: u64 = 60;
const STEPS: usize = 300;

/// The log space reserved for each call, in bytes.
const ROOM: u64 = 16 * 1024;

struct Server {
    disk: Disk,
    access: Access,
    wal: Wal,
}

impl Server {
    fn start(disk: Disk, stage: &Stage, now: Time) -> Server {
        let mut engine = Engine::new(stage.limits.clone());
        let how = settings(64 * 1024, SyncMode::Always);
        let opened = open(Arc::new(disk.clone()), how, &mut engine, now, &mut |_| {}).expect("a log");
        assert!(opened.report.problems.is_empty(), "{:?}", opened.report.problems);
        engine.check();
        let (journal, wal): (Journal, Wal) = (opened.journal, opened.wal);
        Server { disk, access: Access((journal, engine).into()), wal }
    }

    /// Writes, syncs and compacts the log often enough to complete all work.
    fn settle(&self) {
        for _ in 0..20 {
            self.wal.maintain(&self.access, true);
            assert!(self.wal.write(&self.access) && self.wal.sync(&self.access));
        }
    }
}

fn play(kind: Kind, seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut script = Script::new(kind, seed);
    let stage =
        Stage { limits: script.limits.clone(), names: script.names(), start: script.start, steps: script.steps };
    let mut now = stage.start;
    let mut model = Model::new(stage.limits.clone());
    let mut server = Server::start(Disk::new(seed), &stage, now);
    // The state of the model when the log was last written completely.
    let mut written = model.clone();
    for left in (0..STEPS).rev() {
        if random.once_in(40) {
            let settled = random.once_in(2);
            if settled {
                server.settle();
                written = model.clone();
            }
            let disk = if settled { server.disk.power_cut(seed) } else { server.disk.kill(seed) };
            server = Server::start(disk, &stage, now);
            model = written.clone();
            let (_, engine) = &*server.access.0.borrow();
            model.restart(engine, now);
            compare(engine, &model, now, stage.names)
                .map_err(|problem| format!("{left} left, restarted at {now:?}: {problem}"))?;
        }
        let (at, call) = script.next(&model, now, left);
        now = at;
        if !call.is_legal(&model) {
            continue;
        }
        server.wal.reserve(&server.access, ROOM);
        {
            let (journal, engine) = &mut *server.access.0.borrow_mut();
            engine.set_log_room(journal.engine_room());
            model = step(engine, model, &call, now, &stage)
                .map_err(|problem| format!("{left} left, {call:?}: {problem}"))?;
            journal.append(engine);
        }
        if random.once_in(3) {
            assert!(server.wal.write(&server.access));
            written = model.clone();
        }
        server.access.with(|_, engine| engine.check());
    }
    Ok(())
}

fn play_seeds(kind: Kind, percent: u64) {
    let configured = std::env::var("BEANPOLE_SEEDS").ok().filter(|text| !text.is_empty());
    let seeds = configured.map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"));
    for seed in 0..(seeds * percent).div_ceil(100) {
        if let Err(problem) = play(kind, seed) {
            panic!("{kind:?}, seed {seed}: {problem}");
        }
    }
}

#[test]
fn beanstalkd_features_are_recovered_as_the_model_predicts() {
    play_seeds(Kind::Moments, 25);
    play_seeds(Kind::Ties, 15);
}

#[test]
fn extensions_are_recovered_as_the_model_predicts() {
    play_seeds(Kind::Extended, 40);
    play_seeds(Kind::ExtendedTies, 20);
}
