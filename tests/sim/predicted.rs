//! Predicts the replies byte by byte. This file handles beanstalk commands, and `operators` handles HTTP requests.
//!
//! Owns the translation of bytes into calls to the reference model, and of the results of these calls into bytes. Must
//! not share code with the server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;

use beanpole::internals::engine::{ClientId, Engine, Event, JobCounts, JobId, Limits, NoJob, Span, State, Time};
use beanpole::internals::protocol::Wire;
use beanpole::internals::server::Stepped;

use crate::reference::model::{Job, Model, Name, Outcome, Place, Tube};
use crate::{extended, operators};

pub const TUBES: [Name; 4] = ["default", "f", "g", "h"];

/// Tubes that no client watches, and that a client uses for at most one put. The server therefore removes each of these
/// tubes when the tube's last job ends.
pub const UNATTENDED: [Name; 2] = ["m", "n"];

/// A simulated client and the bytes that it must receive.
#[derive(Clone, Debug)]
struct Peer {
    id: ClientId,
    wire: Wire,
    /// Bytes from the client that do not form a complete command yet.
    received: Vec<u8>,
    /// Complete commands that the client sent while it waited.
    commands: VecDeque<Vec<u8>>,
    owed: Vec<u8>,
    half_closed: bool,
    gone: bool,
    batch: bool,
}

/// One possible history: the state of the model and of all clients.
#[derive(Clone, Debug)]
pub struct Predicted {
    model: Model,
    peers: BTreeMap<usize, Peer>,
    next: u32,
    /// Clients whose waits have ended, in the order in which the waits ended.
    woken: VecDeque<usize>,
}

/// Returns the server's job counts in the order used by [`Predicted::counts`].
pub fn places(jobs: &JobCounts) -> [usize; 6] {
    [jobs.ready, jobs.delayed, jobs.reserved, jobs.buried, jobs.held, jobs.scheduled].map(|count| count as usize)
}

pub fn known(name: &str) -> Name {
    TUBES.into_iter().chain(UNATTENDED).find(|known| *known == name).expect("a tube of the simulation")
}

fn limits() -> Limits {
    Limits { max_memory: 1 << 40, max_tubes: 1 << 20, max_watched: 1 << 20, ..Limits::NONE }
}

/// Returns the length of the complete command at the beginning of `bytes`, or `None` if the command is incomplete.
fn whole(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let text = std::str::from_utf8(&bytes[..line]).expect("plain text");
    let body = match text.strip_prefix("put ") {
        Some(numbers) => numbers.split_whitespace().nth(3)?.parse::<usize>().expect("a length") + 2,
        None => 0,
    };
    (bytes.len() >= line + body).then_some(line + body)
}

pub fn yaml(names: impl Iterator<Item = impl std::fmt::Display>) -> Vec<u8> {
    let list: String = std::iter::once("---\n".to_owned()).chain(names.map(|name| format!("- {name}\n"))).collect();
    format!("OK {}\r\n{list}\r\n", list.len()).into_bytes()
}

pub fn only_different<T: Debug>(all: &mut Vec<T>) {
    if all.len() > 1 {
        let mut seen = BTreeSet::new();
        all.retain(|one| seen.insert(format!("{one:?}")));
    }
}

impl Predicted {
    pub fn new() -> Predicted {
        Predicted { model: Model::new(limits()), peers: BTreeMap::new(), next: 1, woken: VecDeque::new() }
    }

    /// Creates the state of a queue that was recovered from a log and has no clients.
    pub fn restored(engine: &Engine, now: Time) -> Predicted {
        let mut predicted = Predicted::new();
        let model = &mut predicted.model;
        let tubes = engine.tube_names().filter_map(|name| engine.tube_stats(name, now));
        model.tubes = tubes
            .map(|tube| Tube {
                name: known(std::str::from_utf8(tube.name).expect("plain text")),
                pause: engine.tube_pause(tube.name).map(|pause| (pause.length, pause.until)),
                total_jobs: tube.total_jobs,
                deletes: tube.deletes,
                pauses: tube.pauses,
                opener: None,
            })
            .collect();
        let jobs = engine.jobs().map(|job| Job {
            id: job.id(),
            tube: known(std::str::from_utf8(engine.tube_of(&job)).expect("plain text")),
            body: job.body().bytes().to_vec(),
            pri: job.priority(),
            delay: job.delay(),
            ttr: job.ttr(),
            created: job.created,
            place: match job.state() {
                State::Delayed => Place::Delayed { until: job.due() },
                State::Buried => Place::Buried { order: job.due().nanos() },
                State::Held => Place::Held,
                _ => Place::Ready,
            },
            history: job.history(),
        });
        model.jobs = jobs.collect();
        model.jobs.sort_by_key(|job| job.id);
        model.last_id = engine.last_id();
        let turns = engine.jobs().filter(|job| job.state() == State::Buried).map(|job| job.due().nanos());
        model.burials = turns.max().unwrap_or_default();
        predicted
    }

    /// Returns the numbers of ready, delayed, reserved, buried, held and scheduled jobs.
    pub fn counts(&self) -> [usize; 6] {
        let mut counts = [0; 6];
        for job in &self.model.jobs {
            let place = match job.place {
                Place::Ready => 0,
                Place::Delayed { .. } => 1,
                Place::Reserved { .. } => 2,
                Place::Buried { .. } => 3,
                Place::Held => 4,
                Place::Scheduled { .. } => 5,
            };
            counts[place] += 1;
        }
        counts
    }

    pub fn owed(&self, who: usize) -> &[u8] {
        self.peers.get(&who).map_or(&[], |peer| &peer.owed)
    }

    pub fn waits(&self, who: usize) -> bool {
        self.peers.get(&who).is_some_and(|peer| !peer.gone && self.model.is_waiting(peer.id))
    }

    pub fn connect(&mut self, who: usize, wire: Wire) {
        let id = ClientId(self.next);
        self.next += 1;
        self.model.connect(id);
        let (received, commands, owed) = Default::default();
        self.peers
            .insert(who, Peer { id, wire, received, commands, owed, half_closed: false, gone: false, batch: false });
    }

    fn peer(&mut self, who: usize) -> &mut Peer {
        self.peers.get_mut(&who).expect("a client")
    }

    /// Processes bytes from a client. The effects on other clients occur in [`Predicted::tick`].
    pub fn hear(&mut self, who: usize, bytes: &[u8], now: Time) {
        let peer = self.peer(who);
        peer.received.extend_from_slice(bytes);
        let whole = if peer.wire == Wire::Http { operators::whole } else { whole };
        while let Some(length) = whole(&peer.received) {
            let command = peer.received.drain(..length).collect();
            peer.commands.push_back(command);
        }
        self.run(who, now);
    }

    pub fn half_close(&mut self, who: usize, now: Time) {
        self.peer(who).half_closed = true;
        let id = self.peer(who).id;
        if self.model.cancel_wait(id) {
            let reply: &[u8] = if self.peer(who).batch { b"RESERVED_BATCH 0\r\n" } else { b"TIMED_OUT\r\n" };
            self.peer(who).owed.extend_from_slice(reply);
        }
        self.run(who, now);
    }

    /// Disconnects a client. Drops the commands that the client sent during a wait.
    pub fn close(&mut self, who: usize, now: Time) {
        self.peer(who).commands.clear();
        self.leave(who, now);
    }

    fn leave(&mut self, who: usize, now: Time) {
        let peer = self.peer(who);
        if !std::mem::replace(&mut peer.gone, true) {
            let id = peer.id;
            self.model.extended.now = now;
            self.model.disconnect(id, now);
            self.tell();
        }
    }

    pub fn drain(&mut self) {
        self.model.draining = true;
    }

    pub fn undrain(&mut self) {
        self.model.draining = false;
    }

    /// Runs all due timers, and the commands that clients sent during waits that have ended. Runs the due timers again
    /// before each of these commands. Returns the results of all possible orders, or `None` if there are more than
    /// `max` results.
    pub fn tick(self, now: Time, max: usize) -> Option<Vec<Predicted>> {
        let (mut open, mut done) = (vec![self], Vec::new());
        while let Some(way) = open.pop() {
            for mut way in way.ring(now, max)? {
                match way.woken.pop_front() {
                    Some(who) => {
                        way.run(who, now);
                        open.push(way);
                    }
                    None => done.push(way),
                }
            }
            if open.len() + done.len() > max {
                return None;
            }
        }
        Some(done)
    }

    fn ring(self, now: Time, max: usize) -> Option<Vec<Predicted>> {
        let Predicted { model, peers, next, woken } = self;
        let mut models = vec![model];
        while models.iter().any(|model| model.next_deadline() <= now) {
            // Drops duplicate results after each deadline, because the order of deadlines rarely affects the result.
            models = models.into_iter().flat_map(|model| model.ticked(now, 1)).collect();
            only_different(&mut models);
            if models.len() > max {
                return None;
            }
        }
        let way = |model| Predicted { model, peers: peers.clone(), next, woken: woken.clone() };
        let mut ways: Vec<Predicted> = models.into_iter().map(way).collect();
        ways.iter_mut().for_each(Predicted::tell);
        Some(ways)
    }

    fn run(&mut self, who: usize, now: Time) {
        loop {
            let peer = self.peer(who);
            let (id, wire, half_closed) = (peer.id, peer.wire, peer.half_closed);
            if peer.gone || self.model.is_waiting(id) {
                return;
            }
            let Some(command) = self.peer(who).commands.pop_front() else {
                if half_closed {
                    self.leave(who, now);
                }
                return;
            };
            self.model.extended.now = now;
            self.peer(who).batch = command.starts_with(b"reserve-batch");
            let reply = match wire {
                Wire::Http => operators::carry_out(&mut self.model, id, &command, now),
                _ => self.carry_out(id, half_closed, &command, now),
            };
            self.peer(who).owed.extend_from_slice(&reply);
            self.tell();
        }
    }

    fn tell(&mut self) {
        for event in std::mem::take(&mut self.model.events) {
            let (client, reply) = match event {
                Event::Reserved { client, job } => {
                    let head: &[u8] = if self.is_batch(client) { b"RESERVED_BATCH 1\r\n" } else { b"" };
                    (client, [head, &self.job_reply("RESERVED", Some(job))].concat())
                }
                Event::NoJob { client, why: NoJob::TimedOut } if self.is_batch(client) => {
                    (client, b"RESERVED_BATCH 0\r\n".to_vec())
                }
                Event::NoJob { client, why } => (client, no_job(why)),
                Event::Outcome { client, job, .. } => {
                    let word = if self.model.job(job).is_some() { "BURIED" } else { "DELETED" };
                    (client, format!("{word} {}\r\n", job.0).into_bytes())
                }
                // This event causes only a log message.
                Event::DeadLetterStays { .. } => continue,
                other => panic!("unexpected event of the model: {other:?}"),
            };
            let found = self.peers.iter_mut().find(|(_, peer)| peer.id == client && !peer.gone);
            let (who, peer) = found.expect("a waiting client");
            peer.owed.extend_from_slice(&reply);
            self.woken.push_back(*who);
        }
    }

    fn is_batch(&self, client: ClientId) -> bool {
        self.peers.values().any(|peer| peer.id == client && !peer.gone && peer.batch)
    }

    fn job_reply(&self, word: &str, job: Option<JobId>) -> Vec<u8> {
        match job.filter(|id| self.model.job(*id).is_some()) {
            Some(id) => extended::shown(&self.model, word, id),
            None => b"NOT_FOUND\r\n".to_vec(),
        }
    }

    fn carry_out(&mut self, client: ClientId, half_closed: bool, command: &[u8], now: Time) -> Vec<u8> {
        let end = command.windows(2).position(|pair| pair == b"\r\n").expect("a complete line");
        let line = std::str::from_utf8(&command[..end]).expect("plain text");
        let words: Vec<&str> = line.split(' ').collect();
        let number = |place: usize| words[place].parse::<u64>().expect("a number");
        let job = || JobId(number(1));
        let model = &mut self.model;
        let reply_if = |yes: bool, word: &str| if yes { word.to_owned() } else { "NOT_FOUND".to_owned() };
        let body = || &command[end + 2..command.len() - 2];
        let text = match words[0] {
            "put" if words.len() > 5 => extended::put(model, client, &words, body(), now),
            "put" => {
                let seconds = |place: usize| Span::from_secs(number(place));
                let (pri, delay, ttr) = (number(1) as u32, seconds(2), Span::from_secs(number(3).max(1)));
                let put = model.put(client, (pri, delay, ttr), body().to_vec(), now);
                put.map_or_else(extended::refused, |id| format!("INSERTED {}", id.0))
            }
            "reserve" => return self.reserve(client, half_closed, None, now),
            "reserve-with-timeout" => return self.reserve(client, half_closed, Some(Span::from_secs(number(1))), now),
            "reserve-job" => {
                let taken = model.reserve_job(client, job(), now);
                return self.job_reply("RESERVED", taken.then(job));
            }
            "peek" => return self.job_reply("FOUND", Some(job())),
            "peek-ready" => return self.peek(client, State::Ready),
            "peek-delayed" => return self.peek(client, State::Delayed),
            "peek-buried" => return self.peek(client, State::Buried),
            "delete" => reply_if(model.delete(client, job()), "DELETED"),
            "release" => {
                let released = model.release(client, job(), number(2) as u32, Span::from_secs(number(3)), now);
                let buried = model.state_of(job()) == Some(State::Buried) && model.own_tries(job()) > 0;
                reply_if(released, if buried { "BURIED" } else { "RELEASED" })
            }
            "bury" => reply_if(model.bury(client, job(), number(2) as u32, now), "BURIED"),
            "touch" => reply_if(model.touch(client, job(), now), "TOUCHED"),
            "kick" => format!("KICKED {}", model.kick(client, number(1), now)),
            "kick-job" => {
                model.kick_job(job(), now).map_or_else(extended::refused, |kicked| reply_if(kicked, "KICKED"))
            }
            "pause-tube" => reply_if(model.pause(known(words[1]), Span::from_secs(number(2)), now), "PAUSED"),
            "use" => {
                model.use_tube(client, known(words[1])).expect("memory for a tube");
                format!("USING {}", words[1])
            }
            "watch" => format!("WATCHING {}", model.watch(client, known(words[1])).expect("memory for a tube")),
            "ignore" => {
                let left = model.ignore(client, known(words[1]));
                left.map_or("NOT_IGNORED".to_owned(), |count| format!("WATCHING {count}"))
            }
            "list-tube-used" => format!("USING {}", model.used(client)),
            "list-tubes" => return yaml(model.tubes.iter().map(|tube| tube.name)),
            "list-tubes-watched" => {
                return yaml(model.client(client).expect("a client").watched.iter().copied());
            }
            _ => match extended::carry_out(model, client, half_closed, &words, now) {
                Some(reply) => return reply,
                None => "UNKNOWN_COMMAND".to_owned(),
            },
        };
        (text + "\r\n").into_bytes()
    }

    fn peek(&self, client: ClientId, state: State) -> Vec<u8> {
        let first = self.model.in_order(self.model.used(client), state).first().copied();
        self.job_reply("FOUND", first)
    }

    /// Executes a reserve. A client that has half-closed its connection does not wait.
    fn reserve(&mut self, client: ClientId, half_closed: bool, timeout: Option<Span>, now: Time) -> Vec<u8> {
        match self.model.reserve(client, timeout, now) {
            Outcome::Job(job) => self.job_reply("RESERVED", Some(job)),
            Outcome::NoJob(why) => no_job(why),
            Outcome::Waiting if half_closed => {
                self.model.cancel_wait(client);
                no_job(NoJob::TimedOut)
            }
            Outcome::Waiting => Vec::new(),
        }
    }
}

fn no_job(why: NoJob) -> Vec<u8> {
    match why {
        NoJob::DeadlineSoon => b"DEADLINE_SOON\r\n".to_vec(),
        _ => b"TIMED_OUT\r\n".to_vec(),
    }
}

/// Completes the commands that a crash interrupted between portions. The prediction assumes that they are complete.
pub fn complete_operations(server: &mut Stepped) {
    while server.look(|engine| engine.has_deferred()) {
        server.round();
        server.timer();
        server.commit();
        server.sync();
        server.segments();
    }
}
