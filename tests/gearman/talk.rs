//! Helpers that build Gearman packets and exchange them with a server.
//!
//! Must not contain tests.

use beanpole::Config;

use crate::script::{Patience, Wire, World};
use crate::within::{Pieces, Within};

/// The initial value of the virtual clock in seconds since 1970: Wednesday, 18 May 2033, 03:33:20.
pub const NOW: u64 = 2_000_000_000;

/// The type and the body of a packet.
pub type Packet = (u32, Vec<u8>);

pub fn packet(kind: u32, body: &[u8]) -> Vec<u8> {
    [b"\0REQ", kind.to_be_bytes().as_slice(), &(body.len() as u32).to_be_bytes(), body].concat()
}

/// Returns a server without a log, with Gearman connections of the given names.
pub fn world(config: &Config, names: &[&str]) -> Within {
    let mut world = Within::new(config, Pieces::AsSent);
    names.iter().for_each(|name| world.open(name, Wire::Gearman).expect("a connection"));
    world
}

pub fn say(world: &mut Within, who: &str, packets: &[(u32, &[u8])]) -> Vec<Packet> {
    packets.iter().for_each(|(kind, body)| world.send(who, &packet(*kind, body)));
    hear(world, who)
}

/// Returns the packets received since the last call.
pub fn hear(world: &mut Within, who: &str) -> Vec<Packet> {
    let bytes = world.receive(who, Patience::Must);
    let (packets, text) = parse(&bytes).expect("only complete packets");
    assert!(text.is_empty(), "{who} got text");
    packets
}

pub fn ask(world: &mut Within, who: &str, line: &str) -> String {
    world.send(who, format!("{line}\r\n").as_bytes());
    String::from_utf8(world.receive(who, Patience::Must)).expect("text")
}

/// Splits received bytes into packets and lines of text. Returns `None` if the bytes are malformed.
pub fn parse(mut bytes: &[u8]) -> Option<(Vec<Packet>, Vec<Vec<u8>>)> {
    let (mut packets, mut lines) = (Vec::new(), Vec::new());
    while let Some(&first) = bytes.first() {
        if first != 0 {
            let length = bytes.iter().position(|&byte| byte == b'\n')? + 1;
            lines.push(bytes[..length].to_vec());
            bytes = &bytes[length..];
            continue;
        }
        let (header, rest) = bytes.split_at_checked(12)?;
        let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (body, rest) = rest.split_at_checked(number(8) as usize)?;
        if &header[..4] != b"\0RES" {
            return None;
        }
        packets.push((number(4), body.to_vec()));
        bytes = rest;
    }
    Some((packets, lines))
}
