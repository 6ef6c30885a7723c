//! Arbitrary bytes sent by a few clients: each protocol's decoder and sessions, on real connections.
//!
//! Owns the translation of bytes to a conversation, and the promise that nothing depends on where they are cut: the
//! same bytes in pieces have the same replies. The engine's invariants are checked at the end. No log, no threads, and
//! a manual clock.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use beanpole::internals::engine::{Span, Time};
use beanpole::internals::protocol::Wire;
use beanpole::internals::server::Stepped;
use beanpole::Config;

use crate::random::Random;

/// The number of clients: two of the protocol under test, and two of beanstalk.
const CLIENTS: usize = 4;

/// Special bytes: the client with this number continues.
const CLIENT: u8 = 0xf8;
/// This many tenths of a second pass, given by the next byte.
const PASS: u8 = 0xfc;
/// The client half-closes its connection.
const HALF_CLOSE: u8 = 0xfd;
/// The client disconnects, and another one connects.
const CLOSE: u8 = 0xfe;

/// A server that still finds something to do after this many rounds is considered to spin.
const ROUNDS: usize = 10_000;

/// One server and its clients.
struct Stage {
    server: Stepped,
    wires: [Wire; CLIENTS],
    clients: [Option<UnixStream>; CLIENTS],
    received: [Vec<u8>; CLIENTS],
    /// Chooses where to cut; `None` for no cuts.
    cuts: Option<Random>,
    /// The client that sent last.
    speaker: usize,
    /// A client sent bytes while another one had commands behind one that waits. These may run after the new bytes or,
    /// if there are many pieces, in between: the replies may differ.
    raced: bool,
}

/// Plays the conversation twice: each part at once, and in pieces. The first byte decides where the pieces end.
pub fn hold(wire: Wire, bytes: &[u8]) {
    let Some((seed, bytes)) = bytes.split_first() else { return };
    let whole = replies(wire, bytes, None);
    if *seed > 0 {
        let pieces = replies(wire, bytes, Some(Random::new(u64::from(*seed))));
        let (Some(whole), Some(pieces)) = (whole, pieces) else { return };
        for (who, (whole, pieces)) in whole.iter().zip(&pieces).enumerate() {
            let (whole, pieces) = (comparable(wire, whole), comparable(wire, pieces));
            assert!(whole == pieces, "client {who} gets {:?}\nin pieces {:?}", text(&whole), text(&pieces));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Lines that may differ: resources of the process, the contents of its buffers, and random values.
const LOOSE: [&[u8]; 5] = [b"rusage-", b"OK ", b"id: ", b"current-memory: ", b"memory-"];

/// Returns what must be equal.
fn comparable(wire: Wire, bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let kept = |line: &&[u8]| match wire {
        Wire::Http => line.starts_with(b"HTTP/1.1 "),
        _ => !LOOSE.iter().any(|word| line.starts_with(word)),
    };
    lines.filter(kept).flatten().copied().collect()
}

/// Returns the replies to each client, or `None` if they depend on the order of clients.
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
    /// The server accepts the connection before any client sends more, because statistics count connections.
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
                    let (said, behind) = rest.split_at(length);
                    self.say(who, said);
                    rest = behind;
                    continue;
                }
            }
            rest = behind;
        }
    }

    fn say(&mut self, who: usize, mut said: &[u8]) {
        self.raced |= who != self.speaker && self.server.has_commands_behind();
        self.speaker = who;
        while !said.is_empty() {
            let most = said.len() as u64;
            let length = self.cuts.as_mut().map_or(most, |cuts| 1 + cuts.below(most.min(24))) as usize;
            if let Some(client) = &mut self.clients[who] {
                // A server that has closed the connection, or reads no more, gets nothing more.
                let _ = client.write(&said[..length]);
            }
            said = &said[length..];
            self.settle();
        }
    }

    /// Lets the server do all that it can, and reads its replies.
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
