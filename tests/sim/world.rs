//! A simulated world: a server, its disk, and its clients.
//!
//! Owns the effects of actions, and the checks after each action: the engine's invariants, the predicted replies, the
//! log and the books. Must not make random choices.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use beanpole::internals::binlog::{Health, Storage, SyncMode};
use beanpole::internals::engine::{Engine, Span, Time};
use beanpole::internals::protocol::Wire;
use beanpole::internals::server::Stepped;

use crate::action::{Action, Crash};
use crate::books::{is_promise, Books};
use crate::chance::Setup;
use crate::disk::{Disk, Operation};
use crate::logged::Logged;
use crate::predicted::{self, complete_operations, only_different, Predicted};

/// The time at which the first server starts, in nanoseconds since 1970.
const DAWN: u64 = 1_700_000_000_000_000_000;

/// The maximum number of possible histories to track.
const WAYS: usize = 256;

/// If the server is not idle after this number of rounds, it probably loops forever.
const ROUNDS: usize = 10_000;

pub struct Client {
    pub wire: Wire,
    stream: UnixStream,
    /// Input that was chosen for the client, and that the client has not sent yet.
    pub unsaid: Vec<u8>,
    received: Vec<u8>,
    /// The number of received bytes that form complete lines. These lines have been processed.
    read: usize,
    /// `true` if the client has sent a command and has not received anything since. Always `false` for Gearman clients.
    has_asked: bool,
    /// The durable end of the log at the last command for which no reply was waiting, and the end at the last command.
    log_ends_when_asked: [u64; 2],
    half_closed: bool,
    ended: bool,
}

impl Client {
    pub fn speaks(&self) -> bool {
        !self.half_closed && !self.ended
    }
}

pub struct World {
    pub setup: Setup,
    server: Option<Stepped>,
    pub disk: Disk,
    clients: Vec<Option<Client>>,
    /// All possible histories that agree with the replies received so far.
    ways: Vec<Predicted>,
    logged: Logged,
    books: Books,
    /// The crash that will happen during one of the next disk operations.
    crash: Option<Crash>,
    /// `true` if the log lacked space, or the disk failed, in the current step.
    short: bool,
    time: Time,
    /// `true` after the wall clock was set back. This change shortens delays and leases, but has no record in the log.
    skewed: bool,
    /// `true` if a sync may have failed in a log with `SyncMode::Never`. The server gradually rewrites the lost data. A
    /// kill loses the data that the server has not rewritten yet.
    unpromised: bool,
    /// `true` if the prediction was abandoned, because too many histories were possible.
    pub lost: bool,
    pub hash: u64,
}

impl World {
    pub fn new(setup: Setup) -> World {
        let clients = (0..setup.clients).map(|_| None).collect();
        let ways = if setup.predicted { vec![Predicted::new()] } else { Vec::new() };
        let logged = Logged::new(setup.extended);
        let mut world = World {
            setup,
            server: None,
            disk: Disk::new(1),
            clients,
            ways,
            logged,
            books: Books::default(),
            crash: None,
            short: false,
            time: Time::from_nanos(DAWN),
            skewed: false,
            unpromised: false,
            lost: false,
            hash: 0xcbf2_9ce4_8422_2325,
        };
        world.start().expect("an empty log");
        world
    }

    fn start(&mut self) -> Result<(), String> {
        let disk = || Arc::new(self.disk.clone()) as Arc<dyn Storage>;
        let storage = self.setup.log.map(|_| disk());
        let started = Stepped::start(self.setup.config(), storage, self.time, self.setup.settles);
        self.server = Some(started.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn server(&mut self) -> &mut Stepped {
        self.server.as_mut().expect("a server")
    }

    pub fn look<R>(&self, look: impl FnOnce(&Engine) -> R) -> R {
        self.server.as_ref().expect("a server").look(look)
    }

    pub fn client(&self, who: usize) -> Option<&Client> {
        self.clients.get(who).and_then(Option::as_ref)
    }

    /// Returns `true` if some changes in the engine are not durable yet.
    pub fn is_behind(&self) -> bool {
        let server = self.server.as_ref().expect("a server");
        let durable = server.wal().map_or(u64::MAX, |wal| wal.durable());
        self.setup.log.is_some() && server.with_journal(|journal, _| journal.position) > durable
    }

    /// Returns the end of the last change that a reply can report. The log can also grow by copies of earlier changes.
    fn log_end(&self) -> u64 {
        let server = self.server.as_ref().expect("a server");
        self.setup.log.map_or(0, |_| server.with_journal(|journal, _| journal.required.any))
    }

    /// Returns the durable position and the end of the log. Returns `None` unless each reply waits for the log and
    /// clients read each reply immediately. Also returns `None` if the log lacks space or the disk fails.
    fn promised(&self) -> Option<(u64, u64)> {
        let is_prompt = matches!(self.setup.log, Some((_, SyncMode::Always))) && !self.setup.slow_readers;
        let wal = self.server.as_ref().and_then(Stepped::wal).filter(|_| is_prompt && !self.short)?;
        Some((wal.durable(), self.log_end()))
    }

    pub fn is_failing(&self) -> bool {
        self.server.as_ref().and_then(Stepped::wal).is_some_and(|wal| wal.is_failing())
    }

    /// Returns `true` if the client certainly waits for a reply.
    pub fn waits(&self, who: usize) -> bool {
        let Some(client) = self.client(who) else { return false };
        let owed = |way: &Predicted| way.waits(who) || way.owed(who).len() > client.received.len();
        client.has_asked && client.unsaid.is_empty() || self.ways.first().is_some_and(owed)
    }

    fn note(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Executes an action and checks the resulting state.
    pub fn step(&mut self, action: &Action) -> Result<(), String> {
        self.short |= self.is_short();
        self.act(action)?;
        if self.setup.settles {
            self.settle()?;
        }
        self.short |= self.is_short();
        self.examine()?;
        self.short = self.is_short();
        if self.disk.has_crashed() {
            self.restart()?;
        }
        Ok(())
    }

    fn is_short(&self) -> bool {
        let server = self.server.as_ref().expect("a server");
        self.setup.log.is_some() && server.with_journal(|journal, _| journal.health != Health::Ok)
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        let now = self.server().now();
        match action {
            Action::Connect(who, wire) => self.connect(*who, *wire),
            Action::Say(who, wire, words) => {
                if let Some(client) = self.clients[*who].as_mut().filter(|client| client.wire == *wire) {
                    client.unsaid.extend_from_slice(words);
                    self.books_hear(words);
                }
            }
            Action::Send(who, count) => self.send(*who, *count, now),
            Action::Read(who, count) => self.read(*who, *count)?,
            Action::HalfClose(who) => self.half_close(*who, now),
            Action::Close(who) => self.close(*who, now),
            Action::Pass(nanos) => self.pass(Span::from_nanos(*nanos))?,
            Action::Round => drop(self.server().round()),
            Action::Timer => drop(self.server().timer()),
            Action::Sync => self.server().sync(),
            Action::Write => self.server().write(),
            Action::Segments => self.server().segments(),
            Action::Drain => {
                self.server().drain();
                self.ways.iter_mut().for_each(Predicted::drain);
            }
            Action::Undrain => {
                self.server().undrain();
                self.ways.iter_mut().for_each(Predicted::undrain);
            }
            Action::Crash(crash) => {
                self.disk.crash_at(self.disk.operations() + crash.operations);
                if crash.operations == 0 || self.setup.log.is_none() {
                    self.disk.stop();
                }
                self.crash = Some(crash.clone());
            }
            Action::Fail(operation, error, times) => {
                self.logged.model.replays = true;
                self.unpromised |=
                    *operation == Operation::Sync && matches!(self.setup.log, Some((_, SyncMode::Never)));
                self.disk.fail(*operation, *error, *times);
            }
            Action::Heal => {
                self.disk.heal();
                self.disk.set_capacity(u64::MAX);
            }
            Action::Fill(more) => {
                self.logged.model.replays = true;
                self.disk.set_capacity(self.disk.used("") + more);
            }
            Action::Slow(millis) => self.disk.slow_down(Duration::from_millis(*millis)),
        }
        Ok(())
    }

    fn books_hear(&mut self, words: &[u8]) {
        // A client can send several commands at once, so each line and each packet counts as a command.
        let mut rest = words;
        while !rest.is_empty() {
            let length = if rest.starts_with(b"\0REQ") {
                12 + u32::from_be_bytes(rest[8..12].try_into().expect("four bytes")) as usize
            } else {
                rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |end| end + 1)
            };
            let (command, behind) = rest.split_at(length.min(rest.len()));
            self.books.note_command(command);
            rest = behind;
        }
    }

    fn connect(&mut self, who: usize, wire: Wire) {
        if self.clients[who].is_some() {
            return;
        }
        let stream = self.server().connect(wire).expect("a pair of sockets");
        let (unsaid, received) = (Vec::new(), Vec::new());
        self.clients[who] = Some(Client {
            wire,
            stream,
            unsaid,
            received,
            read: 0,
            has_asked: false,
            log_ends_when_asked: [0; 2],
            half_closed: false,
            ended: false,
        });
        self.ways.iter_mut().for_each(|way| way.connect(who, wire));
    }

    fn send(&mut self, who: usize, count: usize, now: Time) {
        let (end, durable) = (self.log_end(), self.promised().filter(|(safe, end)| safe >= end));
        let Some(client) = self.clients[who].as_mut().filter(|client| client.speaks()) else { return };
        let count = count.min(client.unsaid.len());
        let sent = match client.stream.write(&client.unsaid[..count]) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            // The server may have closed the connection, as the protocol requires in some cases.
            Err(_) => {
                client.ended = true;
                return;
            }
        };
        let bytes: Vec<u8> = client.unsaid.drain(..sent).collect();
        client.has_asked |= client.wire != Wire::Gearman && !bytes.is_empty();
        client.log_ends_when_asked = [durable.map_or(client.log_ends_when_asked[0], |(safe, _)| safe), end];
        self.ways.iter_mut().for_each(|way| way.hear(who, &bytes, now));
        self.tick(now);
    }

    fn half_close(&mut self, who: usize, now: Time) {
        let Some(client) = self.clients[who].as_mut().filter(|client| client.speaks()) else { return };
        client.half_closed = true;
        let _ = client.stream.shutdown(Shutdown::Write);
        self.ways.iter_mut().for_each(|way| way.half_close(who, now));
        self.tick(now);
    }

    fn close(&mut self, who: usize, now: Time) {
        if self.clients[who].take().is_some() {
            self.ways.iter_mut().for_each(|way| way.close(who, now));
            self.tick(now);
        }
    }

    /// Reads at most `max` available bytes. This maximum does not apply to HTTP responses that are not predicted.
    /// Records complete beanstalk and HTTP lines in the books.
    // Checks promise P12 of beanpole-promises(7).
    fn read(&mut self, who: usize, max: usize) -> Result<(), String> {
        let promised = self.promised();
        let Some(client) = &mut self.clients[who] else { return Ok(()) };
        let mut buffer = [0; 4096];
        // Only the status lines of unpredicted HTTP responses are hashed, because the other lines contain statistics of
        // the process, which depend on more than the seed.
        let loose = client.wire == Wire::Http && !self.setup.predicted;
        let mut left = if loose { usize::MAX } else { max };
        let from = client.received.len();
        while left > 0 {
            let room = left.min(buffer.len());
            match client.stream.read(&mut buffer[..room]) {
                Ok(0) => {
                    client.ended = true;
                    break;
                }
                Ok(count) => {
                    client.received.extend_from_slice(&buffer[..count]);
                    left -= count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    client.ended = true;
                    break;
                }
            }
        }
        let fresh = client.received[from..].to_vec();
        client.has_asked &= fresh.is_empty();
        if matches!(client.wire, Wire::Beanstalk | Wire::Http) {
            while let Some(length) = client.received[client.read..].iter().position(|&byte| byte == b'\n') {
                let end = client.read + length + 1;
                let line = &client.received[client.read..end];
                self.books.got(line);
                // If the log has not grown since the command, the changed job is one that the log does not store.
                let [first, last] = client.log_ends_when_asked;
                let early = |(safe, end)| safe <= first && end > last;
                if promised.is_some_and(early) && is_promise(line) {
                    let line = String::from_utf8_lossy(line);
                    return Err(format!("client {who} received {line:?} before the log had the change"));
                }
                client.read = end;
            }
        }
        self.note(&[who as u8]);
        let lines = fresh.split_inclusive(|&byte| byte == b'\n');
        lines.filter(|line| !loose || line.starts_with(b"HTTP/1.1 ")).for_each(|line| self.note(line));
        Ok(())
    }

    /// Advances the clock. In worlds with `settles`, advances it from deadline to deadline.
    fn pass(&mut self, span: Span) -> Result<(), String> {
        if !self.setup.settles {
            self.server().pass(span);
            self.server().timer();
            return Ok(());
        }
        let target = self.server().now() + span;
        loop {
            let now = self.server().now();
            let next = self.look(Engine::next_deadline).max(now).min(target);
            self.server().pass(next.since(now));
            self.tick(next);
            self.settle()?;
            self.observe();
            if next == target || self.disk.has_crashed() {
                return Ok(());
            }
        }
    }

    /// Runs due timers in the model. If too many histories are possible, the prediction ends, because dropping the
    /// correct history could cause a false error.
    fn tick(&mut self, now: Time) {
        let before = std::mem::take(&mut self.ways);
        let after: Option<Vec<_>> = before.into_iter().map(|way| way.tick(now, WAYS)).collect();
        self.ways = after.unwrap_or_default().into_iter().flatten().collect();
        only_different(&mut self.ways);
        if self.setup.predicted && (self.ways.is_empty() || self.ways.len() > WAYS) {
            self.ways.clear();
            self.setup.predicted = false;
            self.lost = true;
        }
    }

    /// Runs the server, without advancing the clock, until it is idle.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            if !self.server().round() {
                self.server().commit();
                let now = self.server().now();
                if self.setup.settles && self.look(Engine::next_deadline) <= now {
                    // Runs the timer now, because a real server's timer thread would handle due deadlines immediately.
                    self.server().pass(Span::ZERO);
                    continue;
                }
                // A client that has waited for the log can now continue its command.
                if self.setup.log.is_some() && self.server().round() {
                    continue;
                }
                if self.setup.log.is_none() || !self.lacks_space() {
                    return Ok(());
                }
                self.server().segments();
                if !self.server().round() && (self.disk.has_crashed() || self.is_short()) {
                    return Ok(());
                }
            }
        }
        Err("the server never becomes idle".to_owned())
    }

    /// Notifies the server of writable sockets before other events occur. If two waits ended at the same time, the
    /// poller could otherwise resume the wrong client first.
    fn hear_of_room(&mut self) {
        let rounds = if self.setup.settles { ROUNDS } else { 0 };
        for _ in 0..rounds {
            if !self.server().round() {
                break;
            }
        }
    }

    fn lacks_space(&mut self) -> bool {
        self.server().somebody_lacks_space()
    }

    /// Checks all conditions that must hold after each step.
    fn examine(&mut self) -> Result<(), String> {
        self.server().check();
        self.observe();
        if !self.setup.slow_readers && !self.disk.has_crashed() {
            (0..self.clients.len()).try_for_each(|who| self.read(who, usize::MAX))?;
            self.hear_of_room();
        }
        self.look(|engine| self.books.compare(engine))?;
        self.compare_predicted(false)
    }

    /// Records the executed operations and the durable position in the model of the log.
    fn observe(&mut self) {
        if self.setup.log.is_none() {
            return;
        }
        let World { server, logged, setup, short, .. } = self;
        let server = server.as_ref().expect("a server");
        let wal = server.wal().expect("a log");
        let only_kills = setup.faults > 0 && matches!(setup.log, Some((_, SyncMode::Never)));
        let always = matches!(setup.log, Some((_, SyncMode::Always)));
        let counts = if always || only_kills { wal.durable() } else { wal.synced() };
        server.with_journal(|journal, engine| logged.observe(engine, journal.position, *short));
        logged.advance(counts);
    }

    /// Drops the possible histories that contradict the received bytes or the job counts. If `whole` is `true`, no
    /// bytes are in transit, and the replies must be complete.
    // Checks promises P2 and P3 and P5 and P6 and P7 and P8 and P9 and P10 of beanpole-promises(7).
    // Checks promises P27 and P28 and P29 and P30 and P31 of beanpole-promises(7).
    fn compare_predicted(&mut self, whole: bool) -> Result<(), String> {
        if !self.setup.predicted || self.disk.has_crashed() {
            return Ok(());
        }
        let whole = whole || !self.setup.slow_readers && !self.is_behind();
        let counts = predicted::places(&self.look(|engine| engine.stats().jobs));
        let World { ways, clients, .. } = self;
        let fits = |way: &Predicted| {
            let differs = |(who, client): (usize, &Option<Client>)| {
                let client = client.as_ref()?;
                let owed = way.owed(who);
                let same = if whole { owed == client.received } else { owed.starts_with(&client.received) };
                (!same).then(|| describe(who, owed, &client.received))
            };
            if way.counts() != counts {
                return Err(format!("the server has {counts:?} jobs, and the model has {:?}", way.counts()));
            }
            clients.iter().enumerate().find_map(differs).map_or(Ok(()), Err)
        };
        let first = ways.first().map_or(Ok(()), &fits);
        ways.retain(|way| fits(way).is_ok());
        if ways.is_empty() {
            return Err(first.err().unwrap_or_default());
        }
        Ok(())
    }

    /// Starts another server with the data that has survived the crash.
    fn restart(&mut self) -> Result<(), String> {
        let crash = self.crash.take().expect("the conditions of the crash");
        self.time = self.server().now();
        self.server = None;
        self.clients.iter_mut().for_each(|client| *client = None);
        // After a failed sync, the page cache can contain data that no later sync writes. A kill would preserve this
        // data, so simulate a power failure instead.
        let never = matches!(self.setup.log, Some((_, SyncMode::Never)));
        let power = crash.power || self.logged.model.replays && !never;
        let disk = if power { self.disk.power_cut(crash.seed) } else { self.disk.kill(crash.seed) };
        self.disk = disk;
        let shifted = self.time.nanos() as i64 + crash.shift * 1_000_000;
        self.time = Time::from_nanos(shifted as u64);
        self.skewed |= crash.shift < 0;
        let flipped = crash.flip && self.flip(crash.seed);
        self.disk.heal();
        self.disk.set_capacity(u64::MAX);
        self.start()?;
        self.server().check();
        let unpromised = std::mem::take(&mut self.unpromised);
        let careful = !unpromised && self.setup.log.is_some_and(|(_, mode)| mode == SyncMode::Always || !power);
        if !careful || flipped {
            self.books.forget();
        }
        let World { server, logged, books, time, setup, skewed, .. } = self;
        server.as_ref().expect("a server").look(|engine| {
            if setup.log.is_some() && !flipped && !*skewed && !unpromised {
                logged.compare(engine, *time)?;
            }
            books.compare(engine)?;
            logged.begin_again(engine);
            Ok::<(), String>(())
        })?;
        if self.setup.predicted {
            self.server.as_mut().into_iter().for_each(complete_operations);
            self.ways = vec![self.look(|engine| Predicted::restored(engine, self.time))];
        }
        self.settle()?;
        self.observe();
        Ok(())
    }

    /// Changes a byte of a file of the log, unless the file is empty. Returns `false` if the log has no files.
    fn flip(&mut self, seed: u64) -> bool {
        let names = self.disk.names();
        let Some(name) = names.get(seed as usize % names.len().max(1)) else { return false };
        self.disk.alter(name, |bytes| {
            let place = (seed >> 8) as usize % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(place) {
                *byte ^= 1 << (seed % 8);
            }
        });
        true
    }

    /// Ends all faults and disconnects all clients. Then checks that each remaining job is delivered exactly once.
    // Checks promises P16 and P17 of beanpole-promises(7).
    pub fn finish(&mut self) -> Result<(), String> {
        if self.crash.is_some() {
            self.disk.stop();
            self.restart()?;
        }
        self.act(&Action::Heal)?;
        self.act(&Action::Slow(0))?;
        self.setup.slow_readers = false;
        for _ in 0..40 {
            // With `settles`, deadlines pass one at a time, so a resumed client continues before the next wait ends.
            self.pass(Span::from_millis(10))?;
            self.settle()?;
            self.server().sync();
            self.server().segments();
            self.settle()?;
        }
        if self.is_failing() || self.is_behind() {
            return Err("the log does not recover although the disk works".to_owned());
        }
        self.examine()?;
        let now = self.server().now();
        for who in 0..self.clients.len() {
            // Closes one connection at a time, because each disconnection can end the waits of other clients.
            self.close(who, now);
            self.settle()?;
        }
        self.examine()?;
        self.ways.clear();
        self.setup.predicted = false;
        crate::play::drain_all(self)
    }

    /// Returns the bytes that a client must have received, or `None` if there is no prediction.
    pub fn expected(&self, who: usize) -> Option<&[u8]> {
        self.clients[who].as_ref().and(self.ways.first()).map(|way| way.owed(who))
    }

    pub fn end(&mut self) -> (&Books, &mut Stepped) {
        (&self.books, self.server.as_mut().expect("a server"))
    }
}

fn describe(who: usize, owed: &[u8], received: &[u8]) -> String {
    let same = owed.iter().zip(received).take_while(|(left, right)| left == right).count();
    let from = owed[..same].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let show = |bytes: &[u8]| String::from_utf8_lossy(&bytes[from.min(bytes.len())..]).into_owned();
    format!("client {} must receive {:?}, but received {:?}", char::from(b'A' + who as u8), show(owed), show(received))
}
