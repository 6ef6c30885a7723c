//! Runs the program under the shim with clients, and records one history.
//!
//! Owns the kinds of histories, the random plan of each history, and the transition between generations. The timing of
//! the clients may affect the recorded events, but must not affect the verdict.

use std::collections::BTreeMap;
use std::fs;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::act::{Act, GEARMAN_PRIORITIES};
use crate::book::Book;
use crate::change::{Body, Wire};
use crate::check::{prefix, Case, Check, Problem};
use crate::daemon::{wait_until, Daemon, Signal, PATIENCE};
use crate::disk::Disk;
use crate::import::foreign;
use crate::lane::Lane;
use crate::lanes::{lanes, End};
use crate::random::Random;
use crate::restart::{books, command, examine, write_files, Cut};
use crate::talk::{packet, Talk, SUBMIT_JOB};
use crate::trace::{read, Event, Number, Trace};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Solo,
    /// Three clients, each with its own jobs.
    Clients,
    /// One client with two connections. While a sync is blocked, the second connection repeats the latest command of
    /// the first connection.
    Held,
    /// One client, with a disk whose syncs fail occasionally.
    Failing,
    Import,
    /// One client that flushes and moves more jobs than the server handles in one turn.
    Bulk,
    /// One client that puts very many jobs. The log does not contain the IDs of these jobs.
    Handles,
}

/// The duration of a slow sync in microseconds. It exceeds the program's threshold for slow syncs.
const SLOW_SYNC: u32 = 5000;

/// The number of foreground jobs in a history of kind `Handles`. The log records only that their range of IDs is
/// reserved.
const HANDLES: u64 = 150_000;

/// The number of submissions in one write.
const BREATH: u64 = 2000;

const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The time for which a sync stays blocked. A reply that the server sends too early can arrive during this time.
const HELD_FOR: Duration = Duration::from_millis(40);

/// The properties of a history, all derived from its seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub kind: Kind,
    pub options: Vec<String>,
    /// The sync option: `-f0`, `-f MS` or `-F`. Without a sync option, the word `default`.
    pub policy: String,
    /// The average duration of the occasional pauses between commands, in milliseconds.
    pause: u64,
    sync_micros: u32,
    steps: u64,
}

pub struct History<'a> {
    pub plan: Plan,
    program: &'a Path,
    shim: &'a Path,
    folder: PathBuf,
    random: Random,
    generation: u64,
    pub problems: Vec<Problem>,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Solo => "solo",
            Kind::Clients => "crowd",
            Kind::Held => "held",
            Kind::Failing => "failing",
            Kind::Import => "import",
            Kind::Bulk => "bulk",
            Kind::Handles => "handles",
        }
    }
}

impl Plan {
    pub fn of(seed: u64) -> Plan {
        // The random numbers for consecutive seeds must be independent, so the seed is mixed first.
        let mut random = Random::new(Random::new(seed).next());
        // Any 20 consecutive seeds contain all common kinds.
        let kind = match seed % 20 {
            3 if seed % 40 == 3 => Kind::Handles,
            11 => Kind::Bulk,
            15 => Kind::Import,
            2 | 12 => Kind::Held,
            6 | 9 | 16 => Kind::Failing,
            5 | 8 | 14 | 18 => Kind::Clients,
            _ => Kind::Solo,
        };
        let policies = match kind {
            Kind::Held => &["-f0"][..],
            Kind::Failing => &["-f0", "-f0", "-f5"],
            _ => &["-f0", "-f0", "-f0", "-f1", "-f5", "-f20", "", "-F", "-F"],
        };
        let policy = random.pick(policies);
        let pause = policy.strip_prefix("-f").map_or(50, |millis| millis.parse().unwrap_or(50));
        let size = random.pick(&["4096", "4096", "8192", "16384", "65536"]);
        let threads = if kind == Kind::Held { "2" } else { random.pick(&["1", "2"]) };
        let sync_micros = if kind == Kind::Held { SLOW_SYNC } else { random.pick(&[0, 0, 300, SLOW_SYNC]) };
        let steps = match kind {
            Kind::Handles => 10,
            Kind::Held => 15,
            Kind::Import => 20,
            Kind::Bulk => 2,
            _ => random.pick(&[20, 60, 120, 200]),
        };
        let mut options: Vec<String> = vec![format!("-s{size}"), format!("-t{threads}")];
        options.extend((!policy.is_empty()).then(|| policy.to_owned()));
        let policy = if policy.is_empty() { "default" } else { policy }.to_owned();
        Plan { seed, kind, options, policy, pause, sync_micros, steps }
    }
}

/// Kills the program at a moment when no call is in progress, so that all calls are recorded.
fn kill(daemon: Daemon, trace: &Trace) {
    trace.set(Number::HoldSyncs, 0);
    trace.set(Number::Freeze, 1);
    wait_until("no call is in progress", || trace.get(Number::Busy) == 0);
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
}

impl<'a> History<'a> {
    pub fn new(seed: u64, program: &'a Path, shim: &'a Path, folder: PathBuf) -> History<'a> {
        let random = Random::new(Random::new(seed ^ 0xf00d).next());
        History { plan: Plan::of(seed), program, shim, folder, random, generation: 0, problems: Vec::new() }
    }

    fn start(&self, trace: &Trace) -> std::result::Result<Daemon, String> {
        let mut command = command(self.program, &self.log(), &self.plan.options);
        command.env("LD_PRELOAD", self.shim).env("POWERCUT_FOLDER", self.log());
        command.env("POWERCUT_TRACE", trace.path()).env("POWERCUT_CONTROL", trace.control());
        Daemon::try_spawn(command)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Records the first generation, or the generation that follows a cut of the previous one. Returns the path of the
    /// trace, or `None` if the program does not start or the history cannot continue from the recovered state.
    pub fn record(&mut self, before: Option<(&[Event], &Path, Cut)>) -> Result<Option<PathBuf>> {
        self.generation += 1;
        let trace = Arc::new(Trace::new(&self.folder, &format!("generation-{}", self.generation))?);
        let mut lanes = match before {
            None => self.begin(&trace)?,
            Some((events, path, cut)) => self.continue_from(&trace, events, path, cut)?,
        };
        let daemon = match self.start(&trace) {
            Ok(daemon) => daemon,
            Err(log) => {
                self.problems.push((Check::Start, log));
                return Ok(None);
            }
        };
        if let Some((_, _, cut)) = before {
            match self.recovered(&daemon, &trace, cut.end)? {
                Some(found) => lanes = found,
                None => return Ok(None),
            }
        }
        self.live(&daemon, &trace, lanes, before.is_some())?;
        if self.random.once_in(4) {
            trace.set(Number::SyncMicros, 0);
            daemon.signal(Signal::SIGTERM);
            if daemon.wait(PATIENCE) != 0 {
                self.problems.push((Check::Talk, format!("the program failed at its exit: {}", daemon.log())));
            }
        } else {
            kill(daemon, &trace);
        }
        self.verify_trace(&trace)?;
        Ok(Some(trace.path().to_owned()))
    }

    /// Prepares the directory for the first start of the program. Returns the initial book and step of each lane.
    fn begin(&mut self, trace: &Trace) -> Result<BTreeMap<u64, (Book, u64)>> {
        trace.mark(&format!("is {} {}", self.plan.kind.name(), self.plan.options.join(" ")));
        let (mut files, mut book, mut steps) = (Vec::new(), Book::default(), 0);
        if self.plan.kind == Kind::Import {
            let (foreign, changes) = foreign(&mut self.random);
            files = foreign;
            for change in &changes {
                steps += 1;
                trace.mark(&format!("sent 0 {steps} p import"));
                trace.mark(&format!("did 0 {steps} {}", change.write()));
                trace.mark(&format!("told 0 {steps} imported"));
                book.apply(change);
            }
        }
        files.iter().for_each(|(path, bytes)| trace.found(path, bytes));
        write_files(&self.log(), &files.into_iter().collect())?;
        let count = if self.plan.kind == Kind::Clients { 3 } else { 1 };
        Ok((0..count).map(|number| (number, (book.clone(), steps))).collect())
    }

    /// Checks that the shim has recorded all calls: the result of replaying the trace must equal the actual files. Also
    /// checks that the program did not use disk space before its allocation was durable.
    fn verify_trace(&mut self, trace: &Trace) -> Result<()> {
        let events = read(trace.path())?;
        assert!(events.contains(&Event::Began), "the program does not load the shim: is it static?");
        let disk = Disk::replay(&events, events.len(), 0);
        if let Some(place) = disk.unfilled {
            self.problems.push((Check::Space, format!("event {place}: {:?}", events[place])));
        }
        let replayed = disk.files();
        for (path, bytes) in replayed.iter().filter(|(path, _)| !path.ends_with('/')) {
            let there = fs::read(self.log().join(path))?;
            assert!(there == *bytes, "seed {}: {path} differs from the recorded file", self.plan.seed);
        }
        let mut count = 0;
        let mut folders = vec![self.log()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else {
                    count += 1;
                }
            }
        }
        assert_eq!(
            count,
            replayed.keys().filter(|path| !path.ends_with('/')).count(),
            "the shim has not recorded all files"
        );
        Ok(())
    }

    /// Begins a trace. After a kill, the trace begins with the events that precede the cut in the previous trace. After
    /// a power failure, it begins with the marks that precede the cut, followed by the files that remain. In this
    /// case, marks of replies to commands that may be lost are omitted.
    fn continue_from(
        &self,
        trace: &Trace,
        events: &[Event],
        path: &Path,
        cut: Cut,
    ) -> Result<BTreeMap<u64, (Book, u64)>> {
        let left = cut.leave(events);
        write_files(&self.log(), &left.files)?;
        if cut.end == End::Kill {
            // Data that was not synced before the kill remains unsynced.
            trace.continue_from(path, cut.count)?;
        } else {
            let lanes = lanes(events, cut.count);
            let is_promised = |words: &[&str]| {
                let (lane, step) = (words[1].parse().unwrap_or(0), words[2].parse().unwrap_or(0));
                let span = lanes[&lane].span(left.rule);
                span.changes.get(span.least).is_none_or(|(missing, _)| step < *missing)
            };
            for event in &events[..cut.count] {
                let Event::Mark(text) = event else { continue };
                let words: Vec<&str> = text.splitn(4, ' ').collect();
                if words[0] != "told" || is_promised(&words) {
                    trace.mark(text);
                }
            }
            left.files.iter().for_each(|(path, bytes)| trace.found(path, bytes));
        }
        // Marks that describe the effects of a command can come after the cut, even if the command was sent before the
        // cut.
        for event in &events[cut.count..] {
            if let Event::Mark(text) = event {
                let words: Vec<&str> = text.splitn(4, ' ').collect();
                let sent = |lane: u64, step: u64| left.lanes.get(&lane).is_some_and(|it| it.steps.contains_key(&step));
                if ["did", "about"].contains(&words[0])
                    && sent(words[1].parse().unwrap_or(0), words[2].parse().unwrap_or(0))
                {
                    trace.mark(text);
                }
            }
        }
        Ok(BTreeMap::new())
    }

    /// Checks and records the recovered state. Returns `None` if the history cannot continue from this state.
    fn recovered(&mut self, daemon: &Daemon, trace: &Trace, end: End) -> Result<Option<BTreeMap<u64, (Book, u64)>>> {
        let events = read(trace.path())?;
        let cut = Cut { count: events.len(), end, seed: self.plan.seed };
        let left = cut.leave(&events);
        let verdict = examine(daemon, &Case { heading: &left.heading, lanes: &left.lanes, rule: left.rule })?;
        if !verdict.problems.is_empty() {
            self.problems.extend(verdict.problems);
            return Ok(None);
        }
        if verdict.resumed {
            // The changes in the trace do not lead to this state.
            return Ok(None);
        }
        let mut books = books(&left.lanes, left.rule, &verdict.kept);
        let mut found = BTreeMap::new();
        for (number, lane) in &left.lanes {
            let kept = verdict.kept[number];
            let span = lane.span(left.rule);
            let missing = span.changes.get(kept).map(|(step, _)| *step);
            let steps = lane.steps.keys().copied().filter(|step| missing.is_none_or(|missing| *step < missing));
            steps.for_each(|step| trace.mark(&format!("told {number} {step} restarted")));
            if let Some(missing) = missing {
                let before = span.changes[..kept].iter().filter(|(step, _)| *step == missing).count();
                trace.mark(&format!("void {number} {missing} {before}"));
            }
            let next = lane.steps.keys().last().copied().unwrap_or(0);
            found.insert(*number, (books.remove(number).expect("a book"), next));
        }
        Ok(Some(found))
    }

    fn live(
        &mut self,
        daemon: &Daemon,
        trace: &Arc<Trace>,
        lanes: BTreeMap<u64, (Book, u64)>,
        again: bool,
    ) -> Result<()> {
        trace.set(Number::SyncMicros, self.plan.sync_micros);
        let mut clients: Vec<Lane> = Vec::new();
        for (number, (book, next)) in lanes {
            let seed = self.random.next();
            let mut lane = Lane::new(number, book, next, Random::new(seed), trace.clone());
            lane.failing = self.plan.kind == Kind::Failing;
            lane.connect(daemon)?;
            if again {
                lane.restarted();
            }
            clients.push(lane);
        }
        let plan = &self.plan;
        let results: Vec<Result<()>> = match plan.kind {
            Kind::Held => clients.iter_mut().map(|lane| held(plan, lane, daemon, trace)).collect(),
            Kind::Bulk => clients.iter_mut().map(|lane| bulk(plan, lane, daemon)).collect(),
            Kind::Handles => clients.iter_mut().map(|lane| handles(plan, lane, daemon, trace)).collect(),
            _ => std::thread::scope(|scope| {
                let threads: Vec<_> =
                    clients.iter_mut().map(|lane| scope.spawn(|| steps(plan, lane, daemon, trace))).collect();
                threads.into_iter().map(|thread| thread.join().expect("a client that does not panic")).collect()
            }),
        };
        clients.into_iter().for_each(|lane| self.problems.extend(lane.hang_up()));
        if let Some(error) = results.iter().find_map(|result| result.as_ref().err()) {
            self.problems.push((Check::Talk, format!("a command got no reply: {error}; log:\n{}", daemon.log())));
        }
        results.into_iter().collect()
    }
}

/// Executes commands, singly or in batches, with pauses that let syncs happen.
fn steps(plan: &Plan, lane: &mut Lane, daemon: &Daemon, trace: &Trace) -> Result<()> {
    for _ in 0..plan.steps {
        if plan.kind == Kind::Failing && lane.random.once_in(15) {
            trace.set(Number::FailSyncs, 1 + lane.random.below(3) as u32);
        }
        lane.step(daemon)?;
        if plan.policy != "-f0" && lane.random.once_in(12) {
            std::thread::sleep(Duration::from_millis(lane.random.below(plan.pause * 2 + 2)));
        }
        if lane.is_lost() {
            break;
        }
    }
    Ok(())
}

fn bulk(plan: &Plan, lane: &mut Lane, daemon: &Daemon) -> Result<()> {
    for _ in 0..plan.steps {
        lane.sweep(daemon)?;
        if lane.is_lost() {
            break;
        }
    }
    Ok(())
}

/// While a sync is blocked, the second connection repeats a command that the first connection has sent.
fn held(plan: &Plan, lane: &mut Lane, daemon: &Daemon, trace: &Trace) -> Result<()> {
    for number in 0..plan.steps {
        // After these commands, the server expects syncs to be slow, so only the log's thread waits for them.
        for _ in 0..4 {
            lane.step(daemon)?;
        }
        let body = Body::new(&format!("{}held{}", prefix(lane.number), lane.next()), 20);
        let name = |kind: char| format!("{}{kind}0", prefix(lane.number));
        let act = if number % 2 == 0 {
            let (function, unique, pri) = (name('f'), format!("held{}", lane.next()), GEARMAN_PRIORITIES[1]);
            Act::Submit { function, unique, body, kept: true, pri, later: false, reducer: String::new() }
        } else {
            let id = format!("00000000-0000-4000-9{:03x}-{:012x}", lane.number, lane.next());
            Act::Add { id, queue: name('q'), max_fails: 0, max_attempts: 0, body }
        };
        trace.set(Number::HoldSyncs, 1);
        let first = lane.say(daemon, 0, vec![act.clone()])?;
        while trace.get(Number::Held) == 0 && !lane.hears_within(daemon, act.wire(), 0, POLL_INTERVAL)? {}
        let second = lane.say_hearsay(daemon, 1, act.clone())?;
        // A correct server does not reply yet. The duration of the wait does not affect the verdict.
        let early = lane.hears_within(daemon, act.wire(), 1, HELD_FOR)?;
        let early = if early { Some(lane.take(daemon, 1, second, &act)?) } else { None };
        trace.set(Number::HoldSyncs, 0);
        let reply = lane.take(daemon, 0, first[0].0, &act)?;
        let joined = early.map_or_else(|| lane.take(daemon, 1, second, &act), Ok)?;
        // The connection whose submission the server executed first has created the job.
        let mut both = [(first[0].0, reply), (second, joined)];
        both.sort_by_key(|(_, reply)| reply.line.ends_with("Duplicate job"));
        both.iter().for_each(|(step, reply)| lane.settle(*step, &act, reply));
        if lane.is_lost() {
            break;
        }
    }
    Ok(())
}

/// Executes several random commands. Then submits very many foreground jobs, whose IDs are not in the log.
fn handles(plan: &Plan, lane: &mut Lane, daemon: &Daemon, trace: &Trace) -> Result<()> {
    for _ in 0..plan.steps {
        lane.step(daemon)?;
    }
    let mut talk = Talk::connect(daemon, Wire::Gearman)?;
    for _ in 0..HANDLES / BREATH {
        let packets: Vec<u8> = (0..BREATH).flat_map(|_| packet(SUBMIT_JOB, &[b"nobody", b"", b"x"])).collect();
        talk.send(&packets)?;
        let (mut first, mut last) = (u64::MAX, 0);
        for _ in 0..BREATH {
            let (_, arguments) = talk.packet()?;
            let handle = String::from_utf8_lossy(&arguments[0]).into_owned();
            let id = handle.rsplit(':').next().and_then(|id| id.parse().ok()).expect("a handle");
            (first, last) = (first.min(id), last.max(id));
        }
        trace.mark(&format!("seen {first} {last}"));
    }
    Ok(())
}
