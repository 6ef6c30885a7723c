//! Every command of each protocol that may need several turns, while the state changes between them.
//!
//! Owns the table of changes, and combines each with each command of the table in `rows`, in turns of few steps. The
//! test checks the queue after each turn, the number of turns of each command, and that its reply is valid in its
//! protocol. The test fails if no row reaches a kind of continuation, or of work that the engine defers.

mod rows;

use std::collections::BTreeSet;

use super::*;
use crate::engine::{Event, JobId, Limits, State, DEFERRED};
use rows::{Row, ROWS};

/// The number of steps of a turn for one piece of work, and for several.
const FEW: u64 = 3;
const MORE: u64 = 40;

/// The maximum number of turns of a command, with any change.
const MOST_TURNS: usize = 2000;

/// The number of jobs in each state, of other tubes, and of clients that wait for one job.
const SIZE: usize = 8;

/// The kinds of commands that take several turns.
const KINDS: [&str; 41] = [
    "guard",
    "kick",
    "list-tubes",
    "stats",
    "list-tubes-watched",
    "delete-batch",
    "touch-all",
    "flush-tube",
    "peek-reserved",
    "list-jobs",
    "list-keys",
    "list-connections",
    "list-history",
    "progress",
    "move-tube",
    "stats-tube",
    "stats-tubes",
    "gearman list",
    "gearman grab",
    "gearman reset",
    "gearman give back",
    "gearman report",
    "workq lease",
    "workq queues",
    "workq jobs",
    "http metrics",
    "http server",
    "http tubes",
    "http sorted tubes",
    "http connections",
    "http history",
    "http schedules",
    "http overview",
    "http tube",
    "http jobs",
    "http kick",
    "http clear",
    "http move",
    "http failed",
    "http failed jobs",
    "http sweep",
];

fn kind(begun: &Begun) -> &'static str {
    use beanstalk::Long::*;
    match &begun.request {
        _ if begun.unchecked.is_some() => "guard",
        Request::Beanstalk(beanstalk::Request { command: beanstalk::Command::Long(long), .. }) => match &**long {
            Kick(_) => "kick",
            ListTubes(_) => "list-tubes",
            Stats(_) => "stats",
            ListTubesWatched(_) => "list-tubes-watched",
            DeleteBatch { .. } => "delete-batch",
            TouchAll(_) => "touch-all",
            Flush(_) => "flush-tube",
            PeekReserved(_) => "peek-reserved",
            ListJobs(_) => "list-jobs",
            ListKeys(_) => "list-keys",
            ListConnections(_) => "list-connections",
            ListHistory(..) => "list-history",
            Report(..) => "progress",
            MoveTube(_) => "move-tube",
            StatsTube(_) => "stats-tube",
            StatsTubes(_) => "stats-tubes",
        },
        Request::Gearman(request) => match &request.command {
            gearman::Command::List(..) => "gearman list",
            gearman::Command::Grab(_) => "gearman grab",
            gearman::Command::ResetAbilities => "gearman reset",
            gearman::Command::GiveBack(..) => "gearman give back",
            gearman::Command::Report(..) => "gearman report",
            other => panic!("{other:?} takes several turns"),
        },
        Request::Workq(request) => match &request.command {
            workq::Command::Lease { .. } => "workq lease",
            workq::Command::InspectQueues(_) => "workq queues",
            workq::Command::InspectJobs { .. } => "workq jobs",
            other => panic!("{other:?} takes several turns"),
        },
        Request::Http(request) => match request.command.as_ref().expect("a command") {
            http::Command::Metrics(_) => "http metrics",
            http::Command::Server(_) => "http server",
            http::Command::List(list) => list.kind(),
            http::Command::Tube(_) => "http tube",
            http::Command::Overview(_) => "http overview",
            http::Command::Kick(..) => "http kick",
            http::Command::Clear(_) => "http clear",
            http::Command::Move(_) => "http move",
            http::Command::Sweep(_) => "http sweep",
            other => panic!("{other:?} takes several turns"),
        },
        other => panic!("{other:?} takes several turns"),
    }
}

struct Nowhere(Facts);

impl Host for Nowhere {
    fn facts(&self) -> &Facts {
        &self.0
    }
    fn usage(&self) -> Usage {
        Usage::default()
    }
}

/// A client, and the replies that it received.
struct Peer {
    client: ClientId,
    dialogue: Dialogue,
    access: Option<ClientAccess>,
    told: Vec<u8>,
    is_gone: bool,
}

struct World {
    engine: Engine,
    counters: CommandCounters,
    registry: ClientRegistry,
    settings: ProtocolSettings,
    host: Nowhere,
    now: Time,
    peers: Vec<Peer>,
    /// The clients that hold jobs of the tube, and send the command.
    holder: usize,
    asker: usize,
    steps: u64,
    checks: bool,
    deliveries: usize,
    seen: BTreeSet<&'static str>,
}

impl World {
    /// Returns a world with jobs in all states in tube `t`. Without `used`, no client uses or watches the tube, and it
    /// disappears with the last of them.
    fn new(used: bool) -> World {
        let mut settings = ProtocolSettings::default();
        settings.http.admin = true;
        let mut world = World {
            engine: Engine::new(Limits { few_watched: 0, wakeups: 0, history: 100, ..Limits::NONE }),
            counters: CommandCounters::default(),
            registry: ClientRegistry::new(false),
            settings,
            host: Nowhere(Facts { handle_prefix: b"H:x:".as_slice().into(), ..Facts::default() }),
            now: Time::from_nanos(1 << 60),
            peers: Vec::new(),
            holder: 0,
            asker: 0,
            steps: u64::MAX,
            checks: false,
            deliveries: 0,
            seen: BTreeSet::new(),
        };
        (world.holder, world.asker) = (world.peer(Wire::Beanstalk), world.peer(Wire::Beanstalk));
        let holder = world.holder;
        world.say(holder, b"use t\r\nwatch t\r\nignore default\r\n");
        world.put(holder, 3 * SIZE, 0);
        (0..2 * SIZE).for_each(|_| world.say(holder, b"reserve-with-timeout 0\r\n"));
        let held: Vec<u64> = world.ids(State::Reserved);
        held.iter().skip(SIZE).for_each(|id| world.say(holder, format!("bury {id} 5\r\n").as_bytes()));
        world.put(holder, SIZE, 5);
        if !used {
            world.say(holder, b"use default\r\nwatch default\r\nignore t\r\n");
        }
        let other = world.peer(Wire::Beanstalk);
        (0..SIZE).for_each(|tube| world.say(other, format!("watch x{tube}\r\n").as_bytes()));
        world
    }

    /// Puts jobs, half of which live for 50 seconds.
    fn put(&mut self, peer: usize, count: usize, delay: u64) {
        for number in 0..count {
            let life = if number % 2 == 0 { " ttl:50" } else { "" };
            let pri = 10 + number * 7 % 5;
            self.say(peer, format!("put {pri} {delay} 10 1{life}\r\nx\r\n").as_bytes());
        }
    }

    fn peer(&mut self, wire: Wire) -> usize {
        let client = match wire {
            Wire::Beanstalk => self.engine.connect(),
            other => self.engine.connect_as(other.reserve_policy()),
        };
        self.registry.enter(client, wire, &"127.0.0.1:1");
        let dialogue = Dialogue::new(wire);
        self.peers.push(Peer { client, dialogue, access: None, told: Vec::new(), is_gone: false });
        self.peers.len() - 1
    }

    /// Returns the IDs of the jobs of `t` in this state.
    fn ids(&self, state: State) -> Vec<u64> {
        let jobs = self.engine.jobs().filter(|job| job.state() == state && self.engine.tube_of(job) == b"t");
        jobs.map(|job| job.id().0).collect()
    }

    fn all_ids(&self) -> Vec<u64> {
        let all = [State::Ready, State::Reserved, State::Delayed, State::Buried, State::Held, State::Finished];
        all.iter().flat_map(|state| self.ids(*state)).collect()
    }

    /// Returns the requests in these bytes, except those that introduce a body.
    fn decode(&mut self, peer: usize, mut bytes: &[u8]) -> Vec<Request> {
        let limits = DecodeLimits {
            fingerprints: Fingerprints::new(7),
            max_job_size: 1 << 16,
            extensions: beanstalk::Extensions::ALL,
            room: u64::MAX,
            max_packet: 1 << 16,
        };
        let mut requests = Vec::new();
        while let Some(request) = self.peers[peer].dialogue.next(&mut bytes, &limits) {
            match &request {
                // The body is read after the introduction is answered.
                Request::Http(head) if head.introduces => drop(self.turn(peer, request)),
                _ => requests.push(request),
            }
        }
        requests
    }

    /// Sends something and executes it completely, or until the client waits.
    fn say(&mut self, peer: usize, bytes: &[u8]) {
        let before = std::mem::replace(&mut self.steps, u64::MAX);
        for request in self.decode(peer, bytes) {
            let mut next = Some(request);
            while let Some(request) = next.take() {
                if let Flow::Continue(rest) = self.turn(peer, request) {
                    next = Some(Request::Continue(rest));
                }
            }
        }
        self.steps = before;
    }

    fn turn(&mut self, peer: usize, request: Request) -> Flow {
        let mut out = Output::new();
        self.engine.grant_steps(self.steps);
        let World { engine, counters, registry, settings, host, now, peers, .. } = self;
        let Peer { client, dialogue, access, .. } = &mut peers[peer];
        let mut context = Context::plain(engine, (counters, registry), (settings, &*host), *client, *now);
        context.access = access.as_mut();
        let flow = dialogue.execute(request, &mut context, &mut out);
        peers[peer].told.extend(out.chunks().flatten());
        self.deliver();
        flow
    }

    /// Delivers all events to their clients, and checks the queue.
    fn deliver(&mut self) {
        while let Some(event) = self.engine.take_event() {
            // Only the log reports it.
            if matches!(event, Event::DeadLetterStays { .. }) {
                continue;
            }
            let mut out = Output::new();
            tell(&event, &self.engine, &mut self.registry, &self.host, &mut out);
            let peer = self.peers.iter_mut().find(|peer| !peer.is_gone && peer.client == event.client());
            peer.expect("an existing client").told.extend(out.chunks().flatten());
        }
        self.seen.extend(self.engine.deferred_kinds());
        // Checking everything costs far more than a turn.
        self.deliveries += 1;
        if self.checks && (self.deliveries < 8 || self.deliveries % 8 == 0) {
            self.engine.check();
        }
    }

    fn hang_up(&mut self, peer: usize) {
        let Peer { client, is_gone, .. } = &mut self.peers[peer];
        if !std::mem::replace(is_gone, true) {
            self.registry.leave(*client);
            self.engine.disconnect(*client, self.now);
            self.deliver();
        }
    }

    /// Executes a part of the due and deferred work, as between the turns of clients.
    fn between(&mut self) {
        self.engine.grant_steps(self.steps);
        while !self.engine.tick(self.now) {
            self.deliver();
        }
        self.deliver();
        self.engine.grant_steps(self.steps);
        self.engine.go_on(self.now);
        self.deliver();
    }

    /// Executes commands of another client completely.
    fn other(&mut self, commands: &str) {
        let peer = self.peer(Wire::Beanstalk);
        self.say(peer, commands.as_bytes());
    }

    /// Executes an HTTP request of another client completely.
    fn visit(&mut self, request: &str, body: &str) {
        let asker = self.asker;
        let bytes = self.http(request, body).expect("a request");
        let visitor = std::mem::replace(&mut self.asker, asker);
        self.say(visitor, &bytes);
    }

    fn end_all(&mut self) {
        self.end(self.all_ids());
    }

    fn end_all_but_two(&mut self, state: State) {
        let stay: Vec<u64> = self.ids(state).into_iter().take(2).collect();
        self.end(self.all_ids().into_iter().filter(|id| !stay.contains(id)).collect());
    }

    fn end(&mut self, ids: Vec<u64>) {
        for id in ids {
            self.engine.delete_in_any_state(JobId(id), self.now);
            self.deliver();
        }
    }
}

/// A change by another client: its description and its effect.
type WorldChange = (&'static str, fn(&mut World));

/// The changes that may happen between two turns of a command.
const CHANGES: [WorldChange; 25] = [
    ("nothing", |_| {}),
    ("all jobs are deleted", World::end_all),
    ("two ready jobs are left", |world| world.end_all_but_two(State::Ready)),
    ("two delayed jobs are left", |world| world.end_all_but_two(State::Delayed)),
    ("two buried jobs are left", |world| world.end_all_but_two(State::Buried)),
    ("the tube is flushed", |world| world.other("flush-tube t\r\n")),
    ("the tube is moved away", |world| {
        world.other("move-tube t away ready 1000\r\nmove-tube t away delayed 1000\r\nmove-tube t away buried 1000\r\n")
    }),
    ("the same move and flush", |world| world.other("move-tube t to ready 5\r\nflush-buried t\r\n")),
    ("half of the jobs are deleted", |world| {
        let ids: Vec<String> = world.all_ids().iter().step_by(2).map(u64::to_string).collect();
        world.other(&format!("delete-batch {}\r\n", ids.join(" ")));
    }),
    ("half of the jobs are deleted in any state", |world| {
        world.end(world.all_ids().into_iter().step_by(2).collect());
    }),
    ("lives end", |world| world.now = world.now + Span::from_secs(60)),
    ("delays and times to run end", |world| world.now = world.now + Span::from_secs(12)),
    ("jobs are kicked", |world| world.other("use t\r\nkick 5\r\n")),
    ("jobs are reserved and released", |world| {
        let reserved: String =
            world.all_ids().iter().map(|id| format!("reserve-job {id}\r\nrelease {id} 3 0\r\n")).collect();
        world.other(&reserved);
    }),
    ("the holder releases", |world| {
        let ids: String = world.ids(State::Reserved).iter().map(|id| format!("release {id} 3 0\r\n")).collect();
        world.say_held(&ids);
    }),
    ("the holder hangs up", |world| world.hang_up(world.holder)),
    ("the asker hangs up", |world| world.hang_up(world.asker)),
    ("the tube is given settings", |world| {
        world.other("set-tube t try:1 ttl:5 dead:away max:1 rate:1/1000 limit:1\r\n");
    }),
    ("lost tries make dead letters", |world| {
        world.other("set-tube t try:1 dead:away\r\n");
        world.now = world.now + Span::from_secs(12);
    }),
    ("the holder fails", |world| {
        world.other("set-tube t try:1 dead:away limit:1\r\nset-tube away limit:3\r\n");
        let ids: String = world.ids(State::Reserved).iter().map(|id| format!("fail {id} 3 2\r\nno\r\n")).collect();
        world.say_held(&ids);
    }),
    ("jobs are revoked", |world| {
        let ids = world.ids(State::Reserved);
        world.other(&ids.iter().map(|id| format!("revoke {id} 1\r\n")).collect::<String>());
    }),
    ("a group ends and a schedule is due", |world| {
        world.other("put 0 0 10 1 tub:t grp:g\r\nx\r\nput 0 0 10 1 tub:t idp:s every:1\r\nx\r\n");
        let member = world.all_ids().into_iter().max().expect("a job");
        world.other(&"put 0 0 10 1 tub:t aft:g\r\nx\r\n".repeat(SIZE));
        world.end(vec![member]);
        world.now = world.now + Span::from_secs(2);
    }),
    ("failed jobs are moved over HTTP", |world| {
        world.visit("POST /api/tubes/t/failed/move", r#"{"to":"away"}"#);
        world.visit("POST /api/tubes/t/failed/kick", "{}");
        world.visit("POST /api/tubes/away/failed/delete", "{}");
    }),
    ("the queue is drained and the tube paused", |world| {
        world.other("pause-tube t 1000\r\nlimit-tube t 1\r\ndrain\r\n");
    }),
    ("others take the places of all", |world| {
        world.end_all();
        for peer in 0..world.peers.len() {
            if peer != world.asker {
                world.hang_up(peer);
            }
        }
        (0..2 * SIZE).for_each(|_| world.between());
        for tube in 0..SIZE {
            let peer = world.peer([Wire::Beanstalk, Wire::Workq, Wire::Gearman][tube % 3]);
            if tube % 3 == 0 {
                world.say(peer, format!("use new{tube}\r\n").as_bytes());
                world.put(peer, SIZE, 0);
            }
        }
    }),
];

/// Executes a row while something changes before its turn `at`.
fn play(row: &Row, (what, change): WorldChange, used: bool, (at, steps): (usize, u64)) -> BTreeSet<&'static str> {
    let mut world = World::new(used);
    let request = (row.begin)(&mut world).map(|bytes| world.decode(world.asker, &bytes));
    let asker = world.asker;
    world.peers[asker].told.clear();
    (world.steps, world.checks, world.deliveries) = (steps, true, 0);
    let mut next = match request {
        Some(mut requests) => Some(requests.pop().expect("one request")),
        None => {
            world.engine.grant_steps(steps);
            world.hang_up(asker);
            None
        }
    };
    for turn in 0.. {
        assert!(turn < MOST_TURNS, "{} does not end when {what}", row.name);
        if turn == at {
            change(&mut world);
        }
        let request = match next.take() {
            Some(Request::Continue(rest)) if world.peers[asker].is_gone => {
                rest.into_operation().into_iter().for_each(|rest| world.engine.complete_alone(rest));
                None
            }
            request => request.filter(|_| !world.peers[asker].is_gone),
        };
        let Some(request) = request else {
            if turn > at && !world.engine.has_deferred() {
                break;
            }
            world.between();
            continue;
        };
        if let Flow::Continue(rest) = world.turn(asker, request) {
            world.seen.insert(kind(&rest));
            next = Some(Request::Continue(rest));
        }
        world.between();
    }
    world.engine.check();
    let Peer { told, is_gone, .. } = &world.peers[asker];
    let answered = row.answers.iter().any(|answer| told.starts_with(answer.as_bytes()));
    let text = String::from_utf8_lossy(told);
    assert!(*is_gone || row.answers.is_empty() || answered, "{} answers {text:?} when {what}", row.name);
    world.seen
}

// Promises: P22.
#[test]
fn long_commands_survive_whatever_others_do_between_their_turns() {
    let mut seen = BTreeSet::new();
    for row in ROWS {
        for change in CHANGES {
            for (used, at) in [(false, (1, FEW)), (false, (1, MORE)), (false, (5, FEW)), (true, (2, FEW))] {
                seen.append(&mut play(row, change, used, at));
            }
        }
    }
    for kind in KINDS.iter().chain(&DEFERRED) {
        assert!(seen.contains(kind), "no row of the table takes several turns as {kind} does: {seen:?}");
    }
}
