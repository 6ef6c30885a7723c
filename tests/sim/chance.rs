//! Derives the configuration and the actions of a world from a seed.
//!
//! Owns the probabilities. Each seed enables or disables each feature for the whole history. Rare events are therefore
//! frequent in some worlds, instead of rare in all worlds. Must not modify the world.

use beanpole::internals::binlog::{BinlogSettings, SyncMode};
use beanpole::internals::engine::Engine;
use beanpole::internals::protocol::Wire;
use beanpole::Config;

use crate::action::{Action, Crash};
use crate::disk::{Operation, EIO, ENOSPC};
use crate::random::Random;
use crate::speech::{command, Topic};
use crate::world::World;

const ENOUGH: usize = 24;

/// The number of jobs at which clients stop putting jobs, in worlds in which a client may put many jobs at once.
const ENOUGH_FOR_TURNS: usize = 60;

#[derive(Clone, Debug)]
pub struct Setup {
    /// `true` if all clients use beanstalk or HTTP, and the test predicts every byte of the replies.
    pub predicted: bool,
    pub operators: bool,
    pub extended: bool,
    /// The segment size in bytes and the sync mode, or `None` without a log.
    pub log: Option<(u64, SyncMode)>,
    /// `true` if the server runs after each action until it is idle. Otherwise, its parts run at random times.
    pub settles: bool,
    pub turn_steps: u64,
    pub clients: usize,
    pub breath: u64,
    /// `true` if commands can arrive in several pieces.
    pub pieces: bool,
    pub slow_readers: bool,
    /// On average, one in this many actions is a crash. 0 disables crashes.
    pub crashes: u64,
    pub faults: u64,
    /// `true` if a crash can also change a byte of the log.
    pub flips: bool,
    pub largest: u64,
    /// `true` if clients put many jobs into tubes that no client uses or watches.
    pub unattended: bool,
    /// `true` if clients flush tubes frequently. The books then record few jobs.
    pub sweeps: bool,
}

impl Setup {
    pub fn drawn(random: &mut Random) -> Setup {
        // Draws these two features from a separate generator, so that older seeds still produce the same worlds.
        let mut apart = Random::new(random.clone().next() ^ 5);
        let (operators, extended) =
            if apart.once_in(2) { (apart.once_in(2), apart.once_in(2)) } else { (false, false) };
        let predicted = random.once_in(2);
        let modes = [SyncMode::Always, SyncMode::Always, SyncMode::Every(50), SyncMode::Never];
        let log = random.once_in(2).then(|| (random.pick(&[700, 4096, 8192, 40_000]), random.pick(&modes)));
        let settles = predicted || log.is_some() || random.once_in(3);
        let mut once = |odds: u64| random.once_in(odds);
        let (pieces, slow, crash, fault) = (once(2), once(3), log.is_some() && !once(4), log.is_some() && once(2));
        let faults = fault && !predicted;
        let setup = Setup {
            predicted,
            operators,
            // Some combinations cannot be checked: the model cannot recover tags from a log, and snapshots cannot
            // represent a log that omits records.
            extended: extended && (log.is_none() || !predicted && !faults),
            log,
            settles,
            // With a small step budget, the server splits commands that affect many jobs into portions. In that case, a
            // client must not send several commands at once, because other clients' commands could run in between.
            turn_steps: match settles {
                true if log.is_some() && apart.once_in(2) => 8,
                true => 1024,
                false => random.pick(&[16, 64, 1024]),
            },
            clients: 1 + random.below(if log.is_some() { 5 } else { 9 }) as usize,
            breath: if log.is_some() { 1 } else { random.pick(&[1, 3, 5]) },
            pieces,
            slow_readers: slow,
            crashes: if crash { random.pick(&[20, 60]) } else { 0 },
            faults: if faults { random.pick(&[10, 40]) } else { 0 },
            flips: faults && random.once_in(4),
            largest: random.pick(&[40, 400, 3000]),
            unattended: false,
            sweeps: false,
        };
        // Uses a third generator, so that older seeds still produce the same worlds.
        let mut apart = Random::new(apart.next() ^ 6);
        if apart.once_in(3) {
            setup.unattended(&mut apart)
        } else {
            setup
        }
    }

    /// Adds tubes that no client uses or watches. In half of these worlds, the server splits commands that affect many
    /// jobs into portions, and executes commands of other clients between the portions.
    fn unattended(self, random: &mut Random) -> Setup {
        let sweeps = random.once_in(2);
        if random.once_in(2) {
            let extended = self.log.is_none() || !self.predicted && self.faults == 0;
            return Setup { unattended: true, sweeps, extended, ..self };
        }
        Setup {
            unattended: true,
            sweeps,
            predicted: false,
            operators: random.once_in(2),
            extended: true,
            log: None,
            settles: false,
            turn_steps: random.pick(&[16, 32, 64]),
            clients: self.clients.max(3),
            crashes: 0,
            faults: 0,
            flips: false,
            ..self
        }
    }

    pub fn config(&self) -> Config {
        let mut config = Config::embedded().with(|config| {
            config.max_memory = 1 << 30;
            config.turn_steps = self.turn_steps;
            // If more than two threads are configured, one turn can serve several clients. The simulation always runs
            // only one pool thread.
            config.threads = if self.clients % 2 == 0 { 4 } else { 1 };
        });
        config.handle_prefix = Some("H:h".to_owned());
        config.protocols.http.admin = true;
        config.max_connections = 1000;
        config.max_tubes = 1 << 20;
        if let Some((segment_size, mode)) = self.log {
            config.log = BinlogSettings::new(segment_size, mode);
        }
        config
    }
}

pub fn next(random: &mut Random, world: &World) -> Action {
    let setup = &world.setup;
    if setup.crashes > 0 && random.once_in(setup.crashes) {
        return crash(random, setup);
    }
    if setup.faults > 0 && random.once_in(setup.faults) {
        return fault(random);
    }
    // Usually syncs before the next command, because the log's model cannot distinguish several changes of one job.
    if world.is_behind() && !random.once_in(if world.is_failing() { 2 } else { 50 }) {
        return random.pick_action(&[
            Action::Sync,
            Action::Sync,
            Action::Write,
            Action::Segments,
            Action::Pass(1_000_003),
        ]);
    }
    let who = random.below(setup.clients as u64) as usize;
    match random.below(20) {
        0..3 => Action::Pass(passed(random)),
        3 if setup.log.is_some() => random.pick_action(&[Action::Sync, Action::Write, Action::Segments]),
        4..8 if !setup.settles => random.pick_action(&[Action::Round, Action::Round, Action::Timer]),
        _ => client(random, world, who),
    }
}

/// Returns a duration that rarely occurs twice, so that deadlines usually have a definite order.
fn passed(random: &mut Random) -> u64 {
    random.pick(&[1_000_000, 20_000_000, 300_000_000, 999_999_999, 1_000_000_000, 2_500_000_000])
        + 1
        + random.below(1000)
}

fn client(random: &mut Random, world: &World, who: usize) -> Action {
    let Some(client) = world.client(who) else {
        let wires = [Wire::Beanstalk, Wire::Gearman, Wire::Workq];
        let wire = match (&world.setup, world.setup.operators && random.once_in(4)) {
            (_, true) => Wire::Http,
            (Setup { predicted: true, .. }, _) => Wire::Beanstalk,
            // The tests of tubes that no client uses or watches need mainly beanstalk commands.
            (Setup { unattended: true, .. }, _) if !random.once_in(3) => Wire::Beanstalk,
            _ => random.pick(&wires),
        };
        return Action::Connect(who, wire);
    };
    let unsaid = client.unsaid.len();
    match random.below(40) {
        0 => return Action::Close(who),
        1 if client.speaks() => return Action::HalfClose(who),
        // A draining server has little to do, so the simulation soon ends the drain.
        2 if world.look(|engine| engine.stats().draining) => return Action::Undrain,
        2 if random.once_in(40) => return Action::Drain,
        3..8 if world.setup.slow_readers => return Action::Read(who, 1 + random.below(200) as usize),
        _ => {}
    }
    if unsaid > 0 && client.speaks() {
        let some = world.setup.pieces && random.once_in(2);
        return Action::Send(who, if some { 1 + random.below(unsaid as u64) as usize } else { unsaid });
    }
    if world.waits(who) && manner_is_careful(world) {
        return Action::Pass(passed(random));
    }
    if !client.speaks() {
        return if random.once_in(4) { Action::Close(who) } else { Action::Read(who, 1 << 20) };
    }
    let wire = client.wire;
    let mut breath = 1 + random.below(world.setup.breath);
    // A fourth HTTP request may run in a later round. If an earlier request ends a client's wait, this client's next
    // commands may run before the fourth request. The model does not predict this order.
    if wire == Wire::Http && world.setup.predicted {
        breath = breath.min(3);
    }
    let words = world.look(|engine| {
        let jobs: Vec<u64> = ids(engine);
        let Setup { predicted, extended, largest, unattended, sweeps, .. } = world.setup;
        let bursts = unattended && !world.setup.settles;
        let enough = jobs.len() >= if bursts { ENOUGH_FOR_TURNS } else { ENOUGH };
        let topic = Topic { jobs: &jobs, enough, predicted, extended, largest, unattended, sweeps, bursts };
        let mut words = Vec::new();
        for _ in 0..breath {
            let command_bytes = command(wire, random, &topic);
            words.extend_from_slice(&command_bytes);
            // A clear is the last request, because the test cannot predict which commands of other clients run before
            // the next request.
            if predicted && command_bytes.windows(12).any(|part| part == b"/clear HTTP/") {
                break;
            }
        }
        words
    });
    Action::Say(who, wire, words)
}

/// Returns `true` in worlds with a log, in which a client must not send commands while it waits.
fn manner_is_careful(world: &World) -> bool {
    world.setup.log.is_some()
}

pub fn ids(engine: &Engine) -> Vec<u64> {
    let mut ids: Vec<u64> = engine.jobs().map(|job| job.id().0).collect();
    ids.sort_unstable();
    ids
}

fn crash(random: &mut Random, setup: &Setup) -> Action {
    // With `SyncMode::Never`, the log guarantees nothing if the power fails after a disk failure.
    let promised = setup.faults == 0 || !matches!(setup.log, Some((_, SyncMode::Never)));
    Action::Crash(Crash {
        power: random.once_in(2) && promised,
        seed: random.next(),
        operations: random.pick(&[0, 0, 1, 2, 5, 30]),
        shift: if random.once_in(8) { -60_000 } else { random.pick(&[0, 0, 1, 5_000, 3_600_000]) },
        flip: setup.flips && random.once_in(2),
    })
}

fn fault(random: &mut Random) -> Action {
    let operations = [Operation::Create, Operation::Write, Operation::Sync, Operation::Cut, Operation::Remove];
    match random.below(8) {
        0..3 => Action::Fail(random.pick(&operations), random.pick(&[EIO, ENOSPC]), 1 + random.below(4)),
        3 => Action::Fill(random.below(10_000)),
        4 => Action::Slow(random.pick(&[0, 3, 20])),
        _ => Action::Heal,
    }
}

impl Random {
    fn pick_action(&mut self, from: &[Action]) -> Action {
        from[self.below(from.len() as u64) as usize].clone()
    }
}
