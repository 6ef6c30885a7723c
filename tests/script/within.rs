//! Runs conversations inside the test process with a virtual clock, using only the engine and the protocols. Checks all
//! invariants after each step.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use beanpole::internals::engine::{ClientId, Engine, Event, Limits, Span, Time};
use beanpole::internals::protocol::gearman::handle_prefix;
use beanpole::internals::protocol::workq::MAX_DATA;
use beanpole::internals::protocol::{
    end_wait, notify, ClientRegistry, CommandCounters, Context as Protocol, DecodeLimits, Dialogue, Facts, Flow, Host,
    Output, ProtocolSettings, Request, Usage, Wire as Speech,
};
use beanpole::Config;

use crate::script::{Patience, Wire, World};

pub const HOST: &str = "h";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pieces {
    /// Input arrives in the same pieces as in the conversation.
    AsSent,
    Bytes,
}

pub fn speech(wire: Wire) -> Speech {
    match wire {
        Wire::Beanstalk => Speech::Beanstalk,
        Wire::Gearman => Speech::Gearman,
        Wire::Workq => Speech::Workq,
    }
}

struct Peer {
    client: ClientId,
    dialogue: Dialogue,
    input: Vec<u8>,
    pending: VecDeque<Request>,
    output: Output,
    waiting: bool,
    abortable: bool,
    half_closed: bool,
    ended: bool,
}

pub struct Within {
    engine: Engine,
    counters: CommandCounters,
    registry: ClientRegistry,
    settings: ProtocolSettings,
    host: Fixed,
    now: Time,
    peers: BTreeMap<String, Peer>,
    pieces: Pieces,
}

struct Fixed(Facts);

impl Host for Fixed {
    fn facts(&self) -> &Facts {
        &self.0
    }
    fn usage(&self) -> Usage {
        Usage::default()
    }
}

impl Within {
    pub fn new(config: &Config, pieces: Pieces) -> Within {
        // The default of `max_memory` depends on the machine, so the test replaces it with a constant.
        let given = Some(config.max_memory).filter(|max| *max != Config::default().max_memory);
        let limits = Limits {
            max_memory: given.unwrap_or(1 << 40),
            max_tubes: 1 << 20,
            max_watched: 1 << 20,
            max_losses: config.job_retries,
            largest_leased: MAX_DATA as usize,
            lease_limit: Span::from_secs(config.lease_limit.into()),
            wakeups: config.worker_wakeup,
            history: if given.is_some() { 0 } else { config.history },
            ..Limits::NONE
        };
        let now = Time::from_nanos(2_000_000_000_000_000_000);
        let facts = Facts {
            pid: 1,
            version: "0".to_owned(),
            id: "0123456789abcdef".to_owned(),
            hostname: HOST.to_owned(),
            handle_prefix: handle_prefix(config.handle_prefix.as_deref(), HOST),
            os: "o".to_owned(),
            platform: "p".to_owned(),
            started: now,
            max_job_size: config.max_job_size,
            max_connections: 10,
            max_files: 20,
        };
        let host = Fixed(facts);
        Within {
            engine: Engine::new(limits),
            counters: CommandCounters::default(),
            registry: ClientRegistry::new(config.protocols.exceptions),
            settings: config.protocols.clone(),
            host,
            now,
            peers: BTreeMap::new(),
            pieces,
        }
    }

    fn feed(&mut self, who: &str, bytes: &[u8]) {
        let peer = self.peers.get_mut(who).expect("a connected peer");
        peer.input.extend_from_slice(bytes);
        self.work(who);
    }

    fn work(&mut self, who: &str) {
        let max_packet = self.settings.max_packet;
        let intake = DecodeLimits {
            max_job_size: self.host.0.max_job_size,
            room: 1 << 40,
            max_packet,
            fingerprints: self.engine.fingerprints(),
            extensions: self.settings.extensions,
        };
        loop {
            let peer = self.peers.get_mut(who).expect("a connected peer");
            let has_spoken = !peer.input.is_empty() || !peer.pending.is_empty();
            if peer.waiting && (peer.half_closed || peer.abortable && has_spoken) {
                self.with(who, |world, peer| {
                    end_wait(world, &mut peer.output);
                    peer.waiting = false;
                });
                continue;
            }
            if peer.waiting || peer.ended {
                return;
            }
            let mut input = peer.input.as_slice();
            let request = peer.dialogue.next(&mut input, &intake);
            peer.input = input.to_vec();
            peer.pending.extend(request);
            if peer.pending.is_empty() {
                peer.ended = peer.half_closed;
                if peer.ended {
                    self.disconnect(who);
                }
                return;
            }
            self.with(who, |world, peer| {
                let request = peer.pending.pop_front().expect("a request");
                match peer.dialogue.execute(request, world, &mut peer.output) {
                    Flow::Wait => (peer.waiting, peer.abortable) = (true, false),
                    Flow::WaitForInput => (peer.waiting, peer.abortable) = (true, true),
                    Flow::Close | Flow::WrongToken => peer.ended = true,
                    Flow::Continue(rest) => peer.pending.push_front(*rest),
                    Flow::Next | Flow::Stop { .. } => {}
                }
            });
            if self.peers[who].ended {
                return self.disconnect(who);
            }
        }
    }

    fn with(&mut self, who: &str, act: impl FnOnce(&mut Protocol, &mut Peer)) {
        let Within { engine, counters, registry, settings, host, now, peers, .. } = self;
        let peer = peers.get_mut(who).expect("a connected peer");
        let half_closed = peer.half_closed;
        let client = peer.client;
        let plain = Protocol::plain(engine, (counters, registry), (settings, host), client, *now);
        let mut world = Protocol { half_closed, ..plain };
        act(&mut world, peer);
        self.settle();
    }

    /// Delivers events, and resumes the clients whose waits have ended.
    fn settle(&mut self) {
        let mut woken = Vec::new();
        while let Some(event) = self.engine.take_event() {
            if matches!(event, Event::DeadLetterStays { .. }) {
                continue;
            }
            let (name, peer) = self
                .peers
                .iter_mut()
                .find(|(_, peer)| peer.client == event.client() && !peer.ended)
                .expect("a live client");
            if !notify(&event, &self.engine, &mut self.registry, &self.host, &mut peer.output) {
                continue;
            }
            let waits = matches!(event, Event::Reserved { .. } | Event::NoJob { .. });
            assert!(peer.waiting || !waits, "an event for a client that does not wait");
            peer.waiting = false;
            woken.push(name.clone());
        }
        self.engine.check();
        woken.iter().for_each(|who| self.work(who));
    }

    fn disconnect(&mut self, who: &str) {
        let peer = self.peers.get_mut(who).expect("a connected peer");
        peer.ended = true;
        peer.waiting = false;
        self.engine.disconnect(peer.client, self.now);
        self.registry.leave(peer.client);
        self.settle();
    }
}

impl World for Within {
    fn open(&mut self, who: &str, wire: Wire) -> Result<(), String> {
        let speech = speech(wire);
        let client = match wire {
            Wire::Beanstalk => self.engine.connect(),
            _ => self.engine.connect_as(speech.reserve_policy()),
        };
        self.registry.enter(client, speech, &"127.0.0.1");
        let peer = Peer {
            client,
            dialogue: Dialogue::new(speech),
            input: Vec::new(),
            pending: VecDeque::new(),
            output: Output::new(),
            waiting: false,
            abortable: false,
            half_closed: false,
            ended: false,
        };
        self.peers.insert(who.to_owned(), peer);
        Ok(())
    }

    fn send(&mut self, who: &str, bytes: &[u8]) {
        match self.pieces {
            Pieces::AsSent => self.feed(who, bytes),
            Pieces::Bytes => bytes.chunks(1).for_each(|byte| self.feed(who, byte)),
        }
    }

    fn receive(&mut self, who: &str, _: Patience) -> Vec<u8> {
        let output = &mut self.peers.get_mut(who).expect("a connected peer").output;
        let bytes = output.chunks().flatten().copied().collect::<Vec<u8>>();
        output.consume(bytes.len());
        bytes
    }

    fn ended(&self, who: &str) -> bool {
        self.peers[who].ended
    }

    fn half_close(&mut self, who: &str) {
        self.peers.get_mut(who).expect("a connected peer").half_closed = true;
        self.work(who);
    }

    fn close(&mut self, who: &str) {
        // A closed connection looks half-closed until the server writes to it.
        self.half_close(who);
        assert!(self.ended(who), "a closed connection must end");
        self.peers.remove(who);
    }

    fn pass(&mut self, time: Duration) {
        let target = self.now + Span::from_nanos(time.as_nanos() as u64);
        while self.now < target {
            self.now = self.engine.next_deadline().clamp(self.now, target);
            while !self.engine.tick(self.now) {
                self.settle();
            }
            self.settle();
        }
    }

    fn drain(&mut self) {
        self.engine.set_draining(true);
    }
}
