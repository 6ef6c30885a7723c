//! Tests of long commands, which the server interrupts while other clients change the queue.
//!
//! Owns the table of changes, each of which is combined with each command in `rows`. The test limits the work between
//! two interruptions, checks the queue after many of the interruptions, and finally checks the queue and the reply. The
//! number of interruptions is also limited. The test fails if a kind of long command or deferred work does not occur.

mod costs;
pub mod pieces;
mod rows;
mod short;

use std::collections::BTreeSet;
use std::fmt::Debug;

use super::dialogue::{Command, Stage};
use super::*;
use crate::engine::{Event, JobId, Limits, State, DEFERRED};
use rows::{Row, ROWS};

/// The maximum work between two interruptions, in engine steps, in two variants of the test.
const FEW: u64 = 3;
const MORE: u64 = 40;

const MAX_TURNS: usize = 2000;

/// The number of jobs in each initial state. Also the number of additional tubes, and the number of waiting clients.
const SIZE: usize = 8;

/// The kinds of interruptible commands: the protocol, and the name of the command or, for HTTP, the route and the type
/// of the action. `check` is an interrupted permission check.
const KINDS: [&str; 44] = [
    "check",
    "beanstalk Kick",
    "beanstalk ListTubes",
    "beanstalk StatsTubes",
    "beanstalk Stats",
    "beanstalk ListTubesWatched",
    "beanstalk ListKeys",
    "beanstalk ListConnections",
    "beanstalk ListHistory",
    "beanstalk Report",
    "beanstalk DeleteBatch",
    "beanstalk TouchAll",
    "beanstalk Flush",
    "beanstalk PeekReserved",
    "beanstalk ListJobs",
    "beanstalk MoveTube",
    "beanstalk StatsTube",
    "gearman List",
    "gearman Grab",
    "gearman GetStatusUnique",
    "gearman ResetAbilities",
    "gearman GiveBack",
    "gearman Report",
    "workq Lease",
    "workq InspectQueues",
    "workq InspectJobs",
    "http metrics Scrape",
    "http server Turns",
    "http tubes Listing",
    "http tubes SortedList",
    "http connections SortedList",
    "http history Listing",
    "http schedules SortedList",
    "http overview Turns",
    "http tube Turns",
    "http jobs JobList",
    "http kick Turns",
    "http clear Flush",
    "http move MoveJobs",
    "http failed FailedGroups",
    "http failed-jobs FailedJobs",
    "http kick-failed Sweep",
    "http delete-failed Sweep",
    "http move-failed Sweep",
];

/// The commands that always take one turn, apart from the permission check. Beanstalk commands that take more turns are
/// in the type `Long`. For Gearman and Workq, these are variants of the type `Command`, and for HTTP, names of routes.
const SHORT: [(&str, &str); 4] = [
    ("beanstalk", ""),
    ("gearman", "CanDo CantDo PreSleep Submit Work GetStatus Echo Option SetClientId Text Refused OutOfSync"),
    ("workq", "Add Run Result Complete Delete InspectServer InspectQueue InspectJob Refused Close"),
    (
        "http",
        "page healthz readyz find-job peek job body put pause settings kick-job move-job delete revoke bury favicon",
    ),
];

fn type_name(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

fn kind(request: &Request) -> String {
    if request.stage == Stage::Begun {
        command_kind(&request.command)
    } else {
        "check".to_owned()
    }
}

fn command_kind(command: &Command) -> String {
    match command {
        Command::Beanstalk(beanstalk::Command::Long(long)) => format!("beanstalk {}", type_name(long)),
        Command::Gearman(command) => format!("gearman {}", type_name(command)),
        Command::Workq(request) => format!("workq {}", type_name(&request.command)),
        Command::Http(request) => {
            let action = format!("{:?}", request.action.as_ref().expect("a command").as_ref().expect("a body"));
            let path = action.split('<').next().unwrap_or_default();
            let name = path.rsplit("::").next().unwrap_or_default();
            format!("http {} {name}", request.route().expect("a route").word)
        }
        other => panic!("{other:?} must take one turn"),
    }
}

struct TestHost(Facts);

impl Host for TestHost {
    fn facts(&self) -> &Facts {
        &self.0
    }
    fn usage(&self) -> Usage {
        Usage::default()
    }
}

struct Peer {
    client: ClientId,
    dialogue: Dialogue,
    access: Option<ClientAccess>,
    received: Vec<u8>,
    is_disconnected: bool,
}

struct World {
    engine: Engine,
    counters: CommandCounters,
    registry: ClientRegistry,
    settings: ProtocolSettings,
    host: TestHost,
    now: Time,
    peers: Vec<Peer>,
    holder: usize,
    requester: usize,
    steps: u64,
    is_checked: bool,
    deliveries: usize,
    seen: BTreeSet<String>,
}

impl World {
    /// Fills tube `t` with ready, reserved, delayed and buried jobs. Without `used`, no client uses or watches the
    /// tube, so deleting all jobs also deletes the tube.
    fn new(used: bool) -> World {
        let mut settings = ProtocolSettings::default();
        settings.http.admin = true;
        let mut world = World {
            engine: Engine::new(Limits {
                few_watched: 0,
                wakeups: 0,
                history: 100,
                keys_per_tube: true,
                ..Limits::NONE
            }),
            counters: CommandCounters::default(),
            registry: ClientRegistry::new(false),
            settings,
            host: TestHost(Facts { handle_prefix: b"H:x:".as_slice().into(), ..Facts::default() }),
            now: Time::from_nanos(1 << 60),
            peers: Vec::new(),
            holder: 0,
            requester: 0,
            steps: u64::MAX,
            is_checked: false,
            deliveries: 0,
            seen: BTreeSet::new(),
        };
        (world.holder, world.requester) = (world.peer(Wire::Beanstalk), world.peer(Wire::Beanstalk));
        let holder = world.holder;
        world.send(holder, b"use t\r\nwatch t\r\nignore default\r\n");
        world.put(holder, 3 * SIZE, 0);
        (0..2 * SIZE).for_each(|_| world.send(holder, b"reserve-with-timeout 0\r\n"));
        let held: Vec<u64> = world.ids(State::Reserved);
        held.iter().skip(SIZE).for_each(|id| world.send(holder, format!("bury {id} 5\r\n").as_bytes()));
        world.put(holder, SIZE, 5);
        if !used {
            world.send(holder, b"use default\r\nwatch default\r\nignore t\r\n");
        }
        let other = world.peer(Wire::Beanstalk);
        (0..SIZE).for_each(|tube| world.send(other, format!("watch x{tube}\r\n").as_bytes()));
        world
    }

    /// Puts `count` jobs. Every second job expires after 50 seconds.
    fn put(&mut self, peer: usize, count: usize, delay: u64) {
        for number in 0..count {
            let life = if number % 2 == 0 { " ttl:50" } else { "" };
            let pri = 10 + number * 7 % 5;
            self.send(peer, format!("put {pri} {delay} 10 1{life}\r\nx\r\n").as_bytes());
        }
    }

    fn peer(&mut self, wire: Wire) -> usize {
        let client = match wire {
            Wire::Beanstalk => self.engine.connect(),
            other => self.engine.connect_as(other.reserve_policy()),
        };
        self.registry.enter(client, wire, &"127.0.0.1:1");
        let dialogue = Dialogue::new(wire);
        self.peers.push(Peer { client, dialogue, access: None, received: Vec::new(), is_disconnected: false });
        self.peers.len() - 1
    }

    fn ids(&self, state: State) -> Vec<u64> {
        let jobs = self.engine.jobs().filter(|job| job.state() == state && self.engine.tube_of(job) == b"t");
        jobs.map(|job| job.id().0).collect()
    }

    fn all_ids(&self) -> Vec<u64> {
        let all = [State::Ready, State::Reserved, State::Delayed, State::Buried, State::Held, State::Finished];
        all.iter().flat_map(|state| self.ids(*state)).collect()
    }

    /// Decodes `bytes`. Executes only the heads of HTTP requests that announce a body, and returns all other requests.
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
            match &request.command {
                // The decoder reads a body only after the server has executed the head of the request.
                Command::Http(head) if head.awaits_body => drop(self.turn(peer, request)),
                _ => requests.push(request),
            }
        }
        requests
    }

    /// Executes all requests until they are complete or the client waits.
    fn send(&mut self, peer: usize, bytes: &[u8]) {
        let before = std::mem::replace(&mut self.steps, u64::MAX);
        for request in self.decode(peer, bytes) {
            let mut next = Some(request);
            while let Some(request) = next.take() {
                if let Flow::Continue(rest) = self.turn(peer, request) {
                    next = Some(*rest);
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
        peers[peer].received.extend(out.chunks().flatten());
        self.deliver();
        flow
    }

    fn deliver(&mut self) {
        while let Some(event) = self.engine.take_event() {
            // `DeadLetterStays` is only logged, and not sent to a client.
            if matches!(event, Event::DeadLetterStays { .. }) {
                continue;
            }
            let mut out = Output::new();
            notify(&event, &self.engine, &mut self.registry, &self.host, &mut out);
            let peer = self.peers.iter_mut().find(|peer| !peer.is_disconnected && peer.client == event.client());
            peer.expect("an existing client").received.extend(out.chunks().flatten());
        }
        self.seen.extend(self.engine.deferred_kinds().map(str::to_owned));
        // Check only some deliveries, because a check of the queue takes much longer than one part of a command.
        self.deliveries += 1;
        if self.is_checked && (self.deliveries < 8 || self.deliveries % 8 == 0) {
            self.engine.check();
        }
    }

    fn disconnect(&mut self, peer: usize) {
        let Peer { client, is_disconnected, .. } = &mut self.peers[peer];
        if !std::mem::replace(is_disconnected, true) {
            self.registry.leave(*client);
            self.engine.disconnect(*client, self.now);
            self.deliver();
        }
    }

    /// Does part of the due and deferred work, as the server does after serving a client.
    fn run_deferred(&mut self) {
        self.engine.grant_steps(self.steps);
        while !self.engine.tick(self.now) {
            self.deliver();
        }
        self.deliver();
        self.engine.grant_steps(self.steps);
        self.engine.go_on(self.now);
        self.deliver();
    }

    fn send_as_other(&mut self, commands: &str) {
        let peer = self.peer(Wire::Beanstalk);
        self.send(peer, commands.as_bytes());
    }

    fn send_http(&mut self, request: &str, body: &str) {
        let requester = self.requester;
        let bytes = self.http(request, body).expect("a request");
        let visitor = std::mem::replace(&mut self.requester, requester);
        self.send(visitor, &bytes);
    }

    fn delete_all(&mut self) {
        self.delete(self.all_ids());
    }

    fn delete_all_but_two(&mut self, state: State) {
        let stay: Vec<u64> = self.ids(state).into_iter().take(2).collect();
        self.delete(self.all_ids().into_iter().filter(|id| !stay.contains(id)).collect());
    }

    fn delete(&mut self, ids: Vec<u64>) {
        for id in ids {
            self.engine.delete_in_any_state(JobId(id), self.now);
            self.deliver();
        }
    }
}

type WorldChange = (&'static str, fn(&mut World));

const CHANGES: [WorldChange; 25] = [
    ("nothing", |_| {}),
    ("all jobs are deleted", World::delete_all),
    ("two ready jobs are left", |world| world.delete_all_but_two(State::Ready)),
    ("two delayed jobs are left", |world| world.delete_all_but_two(State::Delayed)),
    ("two buried jobs are left", |world| world.delete_all_but_two(State::Buried)),
    ("the tube is flushed", |world| world.send_as_other("flush-tube t\r\n")),
    ("the tube is moved away", |world| {
        world.send_as_other(
            "move-tube t away ready 1000\r\nmove-tube t away delayed 1000\r\nmove-tube t away buried 1000\r\n",
        )
    }),
    ("the same move and flush", |world| world.send_as_other("move-tube t to ready 5\r\nflush-buried t\r\n")),
    ("half of the jobs are deleted", |world| {
        let ids: Vec<String> = world.all_ids().iter().step_by(2).map(u64::to_string).collect();
        world.send_as_other(&format!("delete-batch {}\r\n", ids.join(" ")));
    }),
    ("half of the jobs are deleted in any state", |world| {
        world.delete(world.all_ids().into_iter().step_by(2).collect());
    }),
    ("times to live end", |world| world.now = world.now + Span::from_secs(60)),
    ("delays and times to run end", |world| world.now = world.now + Span::from_secs(12)),
    ("jobs are kicked", |world| world.send_as_other("use t\r\nkick 5\r\n")),
    ("jobs are reserved and released", |world| {
        let reserved: String =
            world.all_ids().iter().map(|id| format!("reserve-job {id}\r\nrelease {id} 3 0\r\n")).collect();
        world.send_as_other(&reserved);
    }),
    ("the holder releases", |world| {
        let ids: String = world.ids(State::Reserved).iter().map(|id| format!("release {id} 3 0\r\n")).collect();
        world.send_as_holder(&ids);
    }),
    ("the holder hangs up", |world| world.disconnect(world.holder)),
    ("the requester hangs up", |world| world.disconnect(world.requester)),
    ("the tube is given settings", |world| {
        world.send_as_other("set-tube t try:1 ttl:5 dead:away max:1 rate:1/1000 limit:1\r\n");
    }),
    ("lost tries make dead letters", |world| {
        world.send_as_other("set-tube t try:1 dead:away\r\n");
        world.now = world.now + Span::from_secs(12);
    }),
    ("the holder fails", |world| {
        world.send_as_other("set-tube t try:1 dead:away limit:1\r\nset-tube away limit:3\r\n");
        let ids: String = world.ids(State::Reserved).iter().map(|id| format!("fail {id} 3 2\r\nno\r\n")).collect();
        world.send_as_holder(&ids);
    }),
    ("jobs are revoked", |world| {
        let ids = world.ids(State::Reserved);
        world.send_as_other(&ids.iter().map(|id| format!("revoke {id} 1\r\n")).collect::<String>());
    }),
    ("a group ends and a schedule is due", |world| {
        world.send_as_other("put 0 0 10 1 tub:t grp:g\r\nx\r\nput 0 0 10 1 tub:t idp:s every:1\r\nx\r\n");
        let member = world.all_ids().into_iter().max().expect("a job");
        world.send_as_other(&"put 0 0 10 1 tub:t aft:g\r\nx\r\n".repeat(SIZE));
        world.delete(vec![member]);
        world.now = world.now + Span::from_secs(2);
    }),
    ("failed jobs are moved over HTTP", |world| {
        world.send_http("POST /api/tubes/t/failed/move", r#"{"to":"away"}"#);
        world.send_http("POST /api/tubes/t/failed/kick", "{}");
        world.send_http("POST /api/tubes/away/failed/delete", "{}");
    }),
    ("the queue is drained and the tube paused", |world| {
        world.send_as_other("pause-tube t 1000\r\nlimit-tube t 1\r\ndrain\r\n");
    }),
    ("other clients and jobs replace all", |world| {
        world.delete_all();
        for peer in 0..world.peers.len() {
            if peer != world.requester {
                world.disconnect(peer);
            }
        }
        (0..2 * SIZE).for_each(|_| world.run_deferred());
        for tube in 0..SIZE {
            let peer = world.peer([Wire::Beanstalk, Wire::Workq, Wire::Gearman][tube % 3]);
            if tube % 3 == 0 {
                world.send(peer, format!("use new{tube}\r\n").as_bytes());
                world.put(peer, SIZE, 0);
            }
        }
    }),
];

/// Executes a row's command in parts of at most `steps` engine steps, and applies the change before part number `at`.
fn execute_row(row: &Row, (what, change): WorldChange, used: bool, (at, steps): (usize, u64)) -> BTreeSet<String> {
    let mut world = World::new(used);
    let request = (row.begin)(&mut world).map(|bytes| world.decode(world.requester, &bytes));
    let requester = world.requester;
    world.peers[requester].received.clear();
    (world.steps, world.is_checked, world.deliveries) = (steps, true, 0);
    let mut next = match request {
        Some(mut requests) => Some(requests.pop().expect("one request")),
        None => {
            world.engine.grant_steps(steps);
            world.disconnect(requester);
            None
        }
    };
    for turn in 0.. {
        assert!(turn < MAX_TURNS, "{} does not end when {what}", row.name);
        if turn == at {
            change(&mut world);
        }
        let request = match next.take() {
            Some(request) if request.has_begun() && world.peers[requester].is_disconnected => {
                request.into_operation().into_iter().for_each(|rest| world.engine.complete_alone(rest));
                None
            }
            request => request.filter(|_| !world.peers[requester].is_disconnected),
        };
        let Some(request) = request else {
            if turn > at && !world.engine.has_deferred() {
                break;
            }
            world.run_deferred();
            continue;
        };
        if let Flow::Continue(rest) = world.turn(requester, request) {
            world.seen.insert(kind(&rest));
            next = Some(*rest);
        }
        world.run_deferred();
    }
    world.engine.check();
    let Peer { received, is_disconnected, .. } = &world.peers[requester];
    let answered = row.answers.iter().any(|answer| received.starts_with(answer.as_bytes()));
    let text = String::from_utf8_lossy(received);
    assert!(*is_disconnected || row.answers.is_empty() || answered, "{} replied {text:?} when {what}", row.name);
    world.seen
}

// Tests promise P22 of beanpole-promises(7).
#[test]
fn long_commands_survive_any_change_between_their_turns() {
    let mut seen = BTreeSet::new();
    for row in ROWS {
        for change in CHANGES {
            for (used, at) in [(false, (1, FEW)), (false, (1, MORE)), (false, (5, FEW)), (true, (2, FEW))] {
                seen.append(&mut execute_row(row, change, used, at));
            }
        }
    }
    let expected = KINDS.iter().chain(&DEFERRED).map(|kind| (*kind).to_owned()).collect();
    assert_eq!(
        seen, expected,
        "each interrupted command needs an entry in KINDS, and each entry a row that reaches it"
    );
}

/// Returns the variants of the type `name` in the source `text`.
fn variants<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let (_, rest) = text.split_once(&format!("pub enum {name} {{\n")).expect("the type");
    let lines = rest.lines().take_while(|line| *line != "}").map(str::trim_start);
    let names = lines.map(|line| line.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default());
    names.filter(|name| name.starts_with(char::is_uppercase)).collect()
}

/// A new command must be in `SHORT`, or in `KINDS` and therefore in a row.
#[test]
fn each_command_has_a_row_or_takes_one_turn() {
    let routes = include_str!("../http/routes.rs").lines().filter_map(|line| line.trim_start().strip_prefix("row((\""));
    let commands = [
        ("beanstalk", variants(include_str!("../beanstalk/command.rs"), "Long")),
        ("gearman", variants(include_str!("../gearman/command.rs"), "Command")),
        ("workq", variants(include_str!("../workq/commands.rs"), "Command")),
        ("http", routes.filter_map(|line| line.split('"').next()).collect()),
    ];
    for ((protocol, names), (other, short)) in commands.into_iter().zip(SHORT) {
        assert!(protocol == other && names.len() > 12, "{names:?}");
        for name in names {
            let has_row = KINDS.iter().any(|kind| kind.split(' ').take(2).eq([protocol, name]));
            let is_short = short.split(' ').any(|word| word == name);
            assert_ne!(has_row, is_short, "{protocol} {name} must be in either KINDS or SHORT");
        }
    }
}

/// Listing 100,000 connections in sorted order must take many short turns, so that other clients are served in between.
#[test]
fn lists_of_many_connections_delay_no_client() {
    const STEPS: u64 = 1024;
    let mut world = World::new(true);
    (0..100_000).for_each(|_| _ = world.peer(Wire::Beanstalk));
    world.steps = STEPS;
    let bytes = world.http("GET /api/connections?sort=job-age&order=desc&limit=1000", "").expect("a request");
    let requester = world.requester;
    let (mut next, mut turns) = (world.decode(requester, &bytes).pop(), 0);
    while let Some(request) = next.take() {
        if let Flow::Continue(rest) = world.turn(requester, request) {
            next = Some(*rest);
        }
        turns += 1;
        // A turn can exceed the limit by the steps of its last connection and of sorting 1,000 connections.
        assert!(world.engine.steps().used() <= STEPS + 64 + 1000, "{} steps", world.engine.steps().used());
    }
    let text = String::from_utf8_lossy(&world.peers[requester].received).into_owned();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"total\":100003"), "{}", &text[text.len() - 200..]);
    assert!(turns > 400, "{turns} turns");
}
