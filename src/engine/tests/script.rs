//! Runs generated from a seed.
//!
//! Owns the random generator, the parameters of a run, and the choice of the next call. Calls are chosen according to
//! the model, so most calls have an effect. Must not use the engine, because that would hide the engine's errors.

use super::super::{ClientId, JobId, Limits, Priority, Span, State, Time, FEW_WATCHED};
use super::calls::Call;
use super::model::{GroupTie, JobTags, Model, Name, Place, Settings};

/// The names of tubes. Each run uses the first four, five or six names.
const NAMES: [Name; 6] = ["default", "a", "mail", "x-y", "b.2", "a-tube-with-a-longer-name"];

/// Priorities: a duplicate to cause ties, values on both sides of the limit for urgent jobs, and the maximum.
const PRIORITIES: [Priority; 6] = [0, 7, 7, 1023, 1024, u32::MAX];

/// The maximum number of jobs in a run, small enough to check quickly.
const JOBS: usize = 14;

/// The maximum number of jobs in a large run, whose heaps have several levels.
const CROWD: usize = 90;

/// The maximum number of clients in a run. The minimum is five; see [`Script::next`].
const CLIENTS: usize = 8;

/// A small reproducible random number generator (splitmix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len() as u64) as usize])
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No two events happen at the same time.
    Moments,
    /// All durations are multiples of half a second, so that many events are simultaneous.
    Ties,
    /// Memory, tubes or watches are scarce, or the server enters drain mode before the end.
    Limits,
    Crowd,
    /// The step budget is small, so that many methods need several calls.
    Steps,
    /// Calls include tags, and commands that beanstalkd does not have.
    Extended,
    /// Like `Extended`, with many simultaneous events.
    ExtendedTies,
    /// Like `Extended`, with a small step budget.
    ExtendedSteps,
}

#[derive(Debug)]
pub struct Script {
    random: Random,
    coarse: bool,
    /// `true` if almost half of the calls use extensions to beanstalkd.
    extended: bool,
    /// `true` if calls are made even while events are due.
    hasty: bool,
    drains: bool,
    jobs: usize,
    /// The average number of puts in 48 calls of [`Script::work`]. With few puts, clients wait; with many, jobs wait.
    puts: u64,
    /// The maximum number of events per tick. Runs with many simultaneous events use small values, because the number
    /// of possible results grows quickly.
    tick: usize,
    names: &'static [Name],
    /// The step budget of each call, or `None` if unlimited.
    pub steps: Option<u64>,
    pub limits: Limits,
    pub start: Time,
}

impl Script {
    pub fn new(kind: Kind, seed: u64) -> Script {
        let mut random = Random(seed);
        let extended = matches!(kind, Kind::Extended | Kind::ExtendedTies | Kind::ExtendedSteps);
        let coarse = matches!(kind, Kind::Ties | Kind::ExtendedTies)
            || !matches!(kind, Kind::Moments | Kind::Extended) && random.percent(50);
        let steps = matches!(kind, Kind::Steps | Kind::ExtendedSteps).then(|| 1 + random.below(6));
        let tick = if coarse || steps.is_some() { 1 } else { [1, 2, 3, 1000][random.below(4) as usize] };
        let start = if random.percent(30) { 0 } else { 1_700_000_000_000_000_000 + random.below(1_000_000_000) };
        let short = if kind == Kind::Limits { 60 } else { 0 };
        let limits = Limits {
            max_memory: if random.percent(short) { 2000 + random.below(3000) } else { u64::MAX },
            max_tubes: if random.percent(short) { 1 + random.below(5) as usize } else { usize::MAX },
            max_watched: if random.percent(short) { 1 + random.below(3) as usize } else { usize::MAX },
            few_watched: if steps.is_some() { 0 } else { FEW_WATCHED },
            hash_secret: random.roll(),
            ..Limits::NONE
        };
        // `hasty` requires unlimited steps. In a call after a deadline, the model ends all overdue reservations of the
        // client, but the engine stops when its step budget is used up.
        let (hasty, drains) = (random.percent(30) && steps.is_none(), random.percent(short));
        let puts = [4, 8, 12, 18][random.below(4) as usize];
        let (jobs, puts) = if kind == Kind::Crowd { (CROWD, 34) } else { (JOBS, puts) };
        let names = &NAMES[..4 + random.below(3) as usize];
        let start = Time::from_nanos(start);
        Script { random, coarse, extended, hasty, drains, jobs, puts, tick, names, steps, limits, start }
    }

    pub fn names(&self) -> &'static [Name] {
        self.names
    }

    /// Returns the next call and its time. `left` is the number of remaining calls.
    pub fn next(&mut self, model: &Model, now: Time, left: usize) -> (Time, Call) {
        let due = model.next_deadline();
        let now = self.later(due, now);
        let tick = Call::Tick { limit: 1 + self.random.below(self.tick as u64) as usize };
        if due <= now && !(self.hasty && self.random.percent(40)) {
            return (now, tick);
        }
        if self.drains && !model.draining && left < 60 {
            return (now, Call::Drain);
        }
        if model.clients.len() < 5 {
            return (now, Call::Connect);
        }
        if self.extended && self.random.percent(45) {
            return (now, self.extension(model));
        }
        match self.random.below(100) {
            0..2 => (now, tick),
            2..50 => (now, self.work(model)),
            50..75 => (now, self.handling(model)),
            _ => (now, self.housekeeping(model)),
        }
    }

    /// Returns the time of the next call: usually soon, sometimes around the next event, and rarely much later.
    fn later(&mut self, next: Time, now: Time) -> Time {
        let near = next > now && next < now + Span::from_secs(60);
        match self.random.below(100) {
            0..8 if near => next,
            8..11 if near => next - Span::from_nanos(1),
            11..13 if near => next + Span::from_nanos(1),
            13..14 => now + self.span(20),
            14..20 => now + self.span(1),
            _ if self.coarse => now,
            _ => now + Span::from_nanos(self.random.below(40_000_000)),
        }
    }

    fn span(&mut self, secs: u64) -> Span {
        if self.coarse {
            Span::from_millis(500 * self.random.below(2 * secs + 1))
        } else {
            Span::from_nanos(self.random.below(secs * 1_000_000_000))
        }
    }

    /// Returns a random duration of up to `secs` seconds, zero in `zero` percent of cases, and rarely 2^32 - 1 seconds.
    fn wait(&mut self, secs: u64, zero: u64) -> Span {
        match self.random.below(100) {
            chance if chance < zero => Span::ZERO,
            99 => Span::from_secs(u32::MAX.into()),
            _ => self.span(secs),
        }
    }

    fn priority(&mut self) -> Priority {
        PRIORITIES[self.random.below(6) as usize]
    }

    fn name(&mut self) -> Name {
        self.names[self.random.below(self.names.len() as u64) as usize]
    }

    fn client(&mut self, model: &Model) -> ClientId {
        let client = self.random.below(model.clients.len() as u64) as usize;
        model.clients[client].id
    }

    fn idle(&mut self, model: &Model) -> Option<ClientId> {
        let idle = model.clients.iter().map(|client| client.id).filter(|&client| !model.is_waiting(client));
        self.random.one_of(&idle.collect::<Vec<_>>())
    }

    /// In most cases, returns the ID of an existing job. Otherwise, returns a past, future or impossible ID.
    fn job(&mut self, model: &Model) -> JobId {
        let there = model.jobs.get(self.random.below(self.jobs.min(model.jobs.len() + 3) as u64) as usize);
        there.map_or(JobId(self.random.below(model.total_jobs() + 3)), |job| job.id)
    }

    /// Returns a client and a job. In most cases, the client holds the job.
    fn hand(&mut self, model: &Model) -> (ClientId, JobId) {
        let held = model.jobs.iter().filter_map(|job| match job.place {
            Place::Reserved { by, .. } => Some((by, job.id)),
            _ => None,
        });
        let held: Vec<_> = held.collect();
        match self.random.one_of(&held) {
            Some(hand) if self.random.percent(75) => hand,
            _ => (self.client(model), self.job(model)),
        }
    }

    fn work(&mut self, model: &Model) -> Call {
        let choice = self.random.below(48);
        let full = model.jobs.len() >= self.jobs;
        match self.idle(model) {
            _ if choice < self.puts && !full => self.put(model),
            None if choice < 30 => Call::CancelWait(self.client(model)),
            Some(client) if choice < self.puts + 20 && !full => {
                let timeout = if self.random.percent(15) { None } else { Some(self.wait(4, 15)) };
                Call::Reserve { client, timeout }
            }
            _ if full || choice < self.puts + 24 => {
                let (client, job) = self.hand(model);
                Call::Delete(client, job)
            }
            _ => self.handling(model),
        }
    }

    fn put(&mut self, model: &Model) -> Call {
        let client = self.client(model);
        let (pri, delay, ttr) = (self.priority(), self.wait(4, 60), self.wait(8, 3));
        let (fill, size) = (self.random.roll() as u8, self.random.below(100) as usize);
        Call::Put { client, pri, delay, ttr, fill, size }
    }

    fn handling(&mut self, model: &Model) -> Call {
        let (client, job) = self.hand(model);
        match self.random.below(26) {
            0..6 => Call::Release { client, job, pri: self.priority(), delay: self.wait(4, 50) },
            6..11 => Call::Bury(client, job, self.priority()),
            11..14 => Call::Touch(client, job),
            14..18 => Call::ReserveJob(self.client(model), self.job(model)),
            18..20 => Call::KickJob(self.job(model)),
            20..21 => Call::Show(self.job(model)),
            _ => {
                let states = [State::Ready, State::Delayed, State::Buried, State::Reserved];
                Call::Peek(self.client(model), states[self.random.below(4) as usize])
            }
        }
    }

    fn housekeeping(&mut self, model: &Model) -> Call {
        let client = self.client(model);
        let idle = self.idle(model);
        match (self.random.below(30), idle) {
            (0..4, _) => Call::Kick(client, [0, 1, 1, 2, 3, 1 << 32, u64::MAX][self.random.below(7) as usize]),
            (4..9, _) => Call::Use(client, self.name()),
            (9..15, Some(client)) => Call::Watch(client, self.name()),
            (15..19, Some(client)) => Call::Ignore(client, self.name()),
            (19..23, _) => {
                let paused: Vec<Name> =
                    model.tubes.iter().filter(|tube| tube.pause.is_some()).map(|tube| tube.name).collect();
                let again = self.random.one_of(&paused).filter(|_| self.random.percent(50));
                Call::Pause(again.unwrap_or_else(|| self.name()), self.wait(4, 40))
            }
            (23..25, _) => Call::CancelWait(client),
            (25..26, _) => Call::MarkProducer(client),
            (26..28, _) if model.clients.len() < CLIENTS => Call::Connect,
            _ => Call::Disconnect(client),
        }
    }

    /// Returns a call that has no equivalent in beanstalkd.
    fn extension(&mut self, model: &Model) -> Call {
        let (client, job) = self.hand(model);
        let idle = self.idle(model);
        let full = model.jobs.len() >= self.jobs;
        match (self.random.below(72), idle) {
            (68.., _) => Call::Revoke(job, self.priority()),
            (60.., _) => Call::Fail { client, job, pri: self.priority(), reason: self.name() },
            (0..24, _) if !full => self.put_tagged(model),
            // With a small step budget, a batch can end even if there are more jobs.
            (24..30, Some(client)) if self.steps.is_none() => Call::ReserveMore(client),
            (30..33, Some(client)) => Call::Wait { client, job: self.job(model), timeout: self.wait(6, 10) },
            (33..35, _) => Call::TouchAll(client),
            (35..36, _) => Call::Flush(self.name(), false),
            (36..38, _) => Call::Flush(self.name(), true),
            (38..40, _) => Call::PeekReserved(client),
            (40..43, _) => {
                let (above, limit) = (self.random.below(model.total_jobs() + 2), 1 + self.random.below(4) as usize);
                Call::List { tube: self.name(), state: self.state(), above, limit }
            }
            (43..48, _) => {
                let (pri, delay) = (self.priority(), self.wait(4, 60));
                Call::MoveJob { client, job, tube: self.name(), pri, delay }
            }
            (48..51, _) => {
                let states = [State::Ready, State::Delayed, State::Buried];
                let state = states[self.random.below(3) as usize];
                let (from, to, bound) = (self.name(), self.name(), 1 + self.random.below(4));
                Call::MoveTube { client, from, to, state, bound }
            }
            (51..52, _) => Call::SetTube(client, self.name(), self.settings()),
            (52..53, _) => {
                let limit = self.random.percent(60).then(|| 1 + self.random.below(4) as u32);
                Call::LimitTube(client, self.name(), limit)
            }
            (53..55, _) => Call::Weighted(client, self.random.percent(30)),
            (55..56, _) => Call::Drain,
            (56..57, _) => Call::Undrain,
            _ if model.draining => Call::Undrain,
            _ => Call::Ages(self.name()),
        }
    }

    fn settings(&mut self) -> Settings {
        let random = &mut self.random;
        Settings {
            limit: random.percent(20).then(|| 1 + random.below(4) as u32),
            tries: if random.percent(50) { 1 + random.below(3) as u8 } else { 0 },
            ttl: if random.percent(20) { 1 + random.below(8) as u32 } else { 0 },
            max: if random.percent(30) { 1 + random.below(3) as u32 } else { 0 },
            rate: random.percent(30).then(|| (1 + random.below(3) as u32, 1 + random.below(3) as u32)),
            dead: random.percent(40).then(|| self.name()),
        }
    }

    fn state(&mut self) -> State {
        State::UNFINISHED[self.random.below(5) as usize]
    }

    fn put_tagged(&mut self, model: &Model) -> Call {
        let client = self.client(model);
        let (pri, delay, ttr) = (self.priority(), self.wait(4, 60), self.wait(8, 3));
        let seconds = |random: &mut Random| if random.percent(50) { 0 } else { 1 + random.below(5) as u32 };
        let mut tags = JobTags::default();
        if self.random.percent(50) {
            tags.key = Some((self.name(), seconds(&mut self.random)));
        }
        if self.random.percent(30) {
            tags.tube = Some(self.name());
        }
        if self.random.percent(30) {
            (tags.tries, tags.backoff) = (1 + self.random.below(3) as u8, seconds(&mut self.random));
        }
        if self.random.percent(30) {
            let ttl = self.wait(8, 0).nanos();
            tags.ttl = Some(Span::from_nanos(ttl.saturating_add(500_000_000)));
        }
        if self.random.percent(50) {
            // Use only two keys, so that jobs share keys.
            tags.bound = Some((self.names[self.random.below(2) as usize], 1 + self.random.below(3) as u32));
        }
        if self.random.percent(40) {
            // Use few groups, so that jobs share groups. A job has at most one tag per group.
            let first = self.random.below(self.names.len() as u64) as usize;
            for place in 0..1 + self.random.below(3.min(self.names.len() as u64)) as usize {
                let name = self.names[(first + place) % self.names.len()];
                let tie = match self.random.below(8) {
                    0..4 => GroupTie::Member,
                    4..6 => GroupTie::After(self.random.percent(20)),
                    _ => GroupTie::AfterCount(1 + self.random.below(3) as u32),
                };
                tags.groups.push((name, tie));
            }
        }
        let is_free = tags.groups.iter().all(|(_, tie)| *tie == GroupTie::Member);
        if tags.key.is_some() && is_free && self.random.percent(30) {
            tags.every = Some(1 + self.random.below(4) as u32);
        }
        Call::PutTagged { client, pri, delay, ttr, tags }
    }
}
