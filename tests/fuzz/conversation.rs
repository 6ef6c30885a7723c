//! Tests the decoders and sessions of a protocol: several clients send random bytes to a server.
//!
//! Owns the translation of bytes into a conversation. The replies must not depend on how the input is split into
//! pieces. At the end, the engine's invariants are checked. The server has a manual clock, no log and no threads.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use beanpole::internals::engine::{Span, Time};
use beanpole::internals::protocol::Wire;
use beanpole::internals::server::Stepped;
use beanpole::Config;

use crate::random::Random;

/// The first two clients use the protocol under test. The other clients use beanstalk.
const CLIENTS: usize = 4;

/// Input bytes from this value to `PASS - 1` select the client that sends the following bytes.
const CLIENT: u8 = 0xf8;
/// Input byte that advances the clock, followed by the time in tenths of a second.
const PASS: u8 = 0xfc;
/// Input byte that half-closes the client's connection.
const HALF_CLOSE: u8 = 0xfd;
/// Input byte that replaces the client's connection with a new one.
const CLOSE: u8 = 0xfe;

/// If the server is not idle after this number of rounds, it probably loops forever.
const ROUNDS: usize = 10_000;

struct Stage {
    server: Stepped,
    wires: [Wire; CLIENTS],
    clients: [Option<UnixStream>; CLIENTS],
    received: [Vec<u8>; CLIENTS],
    /// Chooses random split positions. With `None`, the input is sent unsplit.
    cuts: Option<Random>,
    /// The index of the client that has sent the most recent bytes.
    speaker: usize,
    /// `true` if the splitting can affect the replies: a client sent input while another client had commands queued
    /// behind a waiting command.
    raced: bool,
}

/// Runs the conversation with unsplit and then with split input. The first byte is the seed; 0 omits the second run.
pub fn hold(wire: Wire, bytes: &[u8]) {
    let Some((seed, bytes)) = bytes.split_first() else { return };
    let whole = replies(wire, bytes, None);
    if *seed > 0 {
        let pieces = replies(wire, bytes, Some(Random::new(u64::from(*seed))));
        let (Some(whole), Some(pieces)) = (whole, pieces) else { return };
        for (who, (whole, pieces)) in whole.iter().zip(&pieces).enumerate() {
            let (whole, pieces) = (comparable(wire, whole), comparable(wire, pieces));
            assert!(whole == pieces, "client {who} gets {:?}\nwith split input {:?}", text(&whole), text(&pieces));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Prefixes of lines that may differ between the two runs: resource usage, reply lengths, buffer sizes and random IDs.
const LOOSE: [&[u8]; 5] = [b"rusage-", b"OK ", b"id: ", b"current-memory: ", b"memory-"];

/// Returns the lines that must be equal in both runs.
fn comparable(wire: Wire, bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let kept = |line: &&[u8]| match wire {
        Wire::Http => line.starts_with(b"HTTP/1.1 "),
        _ => !LOOSE.iter().any(|word| line.starts_with(word)),
    };
    lines.filter(kept).flatten().copied().collect()
}

/// Returns the replies to each client, or `None` if they depend on the order in which the clients are served.
fn replies(wire: Wire, bytes: &[u8], cuts: Option<Random>) -> Option<[Vec<u8>; CLIENTS]> {
    let mut config = Config::embedded().with(|config| config.max_memory = 1 << 30);
    config.handle_prefix = Some("H:h".to_owned());
    config.protocols.http.admin = true;
    let server = Stepped::start(config, None, Time::from_nanos(1_700_000_000_000_000_000), true).expect("a server");
    let wires = [wire, wire, Wire::Beanstalk, Wire::Beanstalk];
    let mut stage = Stage {
        server,
        wires,
        clients: Default::default(),
        received: Default::default(),
        cuts,
        speaker: 0,
        raced: false,
    };
    (0..CLIENTS).for_each(|who| stage.connect(who));
    stage.play(bytes);
    stage.server.check();
    (!stage.raced).then_some(stage.received)
}

impl Stage {
    /// Connects a client, and waits until the server has accepted the connection, because statistics count connections.
    fn connect(&mut self, who: usize) {
        self.clients[who] = Some(self.server.connect(self.wires[who]).expect("a pair of sockets"));
        self.settle();
    }

    fn play(&mut self, bytes: &[u8]) {
        let (mut who, mut rest) = (0, bytes);
        while let Some((&byte, behind)) = rest.split_first() {
            match byte {
                CLIENT..PASS => who = usize::from(byte - CLIENT),
                PASS => {
                    let tenths = behind.first().copied().unwrap_or_default();
                    self.server.pass(Span::from_millis(u64::from(tenths) * 100));
                    rest = behind.get(1..).unwrap_or_default();
                    self.settle();
                    continue;
                }
                HALF_CLOSE => {
                    if let Some(client) = &self.clients[who] {
                        let _ = client.shutdown(Shutdown::Write);
                    }
                    self.settle();
                }
                CLOSE => {
                    self.clients[who] = None;
                    self.settle();
                    self.connect(who);
                }
                _ => {
                    let length = rest.iter().position(|byte| (CLIENT..=CLOSE).contains(byte)).unwrap_or(rest.len());
                    let (bytes, behind) = rest.split_at(length);
                    self.say(who, bytes);
                    rest = behind;
                    continue;
                }
            }
            rest = behind;
        }
    }

    fn say(&mut self, who: usize, mut bytes: &[u8]) {
        self.raced |= who != self.speaker && self.server.has_commands_behind();
        self.speaker = who;
        while !bytes.is_empty() {
            let left = bytes.len() as u64;
            let length = self.cuts.as_mut().map_or(left, |cuts| 1 + cuts.below(left.min(24))) as usize;
            if let Some(client) = &mut self.clients[who] {
                // The server may have closed the connection.
                let _ = client.write(&bytes[..length]);
            }
            bytes = &bytes[length..];
            self.settle();
        }
    }

    /// Runs the server until it is idle, and reads its replies.
    fn settle(&mut self) {
        let rounds = (0..ROUNDS).take_while(|_| self.server.round()).count();
        assert!(rounds < ROUNDS, "the server spins");
        for (client, received) in self.clients.iter_mut().zip(&mut self.received) {
            let mut buffer = [0; 4096];
            while let Some(Ok(count @ 1..)) = client.as_mut().map(|client| client.read(&mut buffer)) {
                received.extend_from_slice(&buffer[..count]);
            }
        }
    }
}
