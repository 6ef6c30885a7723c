//! Runs a conversation step by step, and reports the step that fails.

use std::collections::BTreeMap;

use super::text::{Conversation, Piece, Step, What};
use super::{packets, Patience, World};

/// Bytes that a connection has received, and that no step has matched yet.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    /// The number of bytes of the last announced body that no step has matched yet, if any.
    body_left: Option<usize>,
    closed: bool,
}

/// Runs a conversation. Returns an error that describes the failed step.
pub fn run(conversation: &Conversation, world: &mut dyn World) -> Result<(), String> {
    let mut received: BTreeMap<String, Received> = BTreeMap::new();
    for step in &conversation.steps {
        if !step.who.is_empty() && !received.contains_key(&step.who) {
            world
                .open(&step.who, conversation.wire_of(&step.who))
                .map_err(|problem| format!("line {}: {problem}", step.line))?;
            received.insert(step.who.clone(), Received::default());
        }
        take(step, &mut received, world).map_err(|problem| format!("line {}: {problem}", step.line))?;
    }
    for (who, mut received) in received.into_iter().filter(|(_, received)| !received.closed) {
        received.bytes.extend(world.receive(&who, Patience::MustNot));
        if !received.bytes.is_empty() {
            return Err(format!("at the end, {who} has received more: {}", show(&received.bytes)));
        }
    }
    Ok(())
}

fn take(step: &Step, all: &mut BTreeMap<String, Received>, world: &mut dyn World) -> Result<(), String> {
    let who = step.who.as_str();
    match &step.what {
        What::Pass(time) => world.pass(*time),
        What::Drain => world.drain(),
        What::Open => {}
        What::Send(bytes) => world.send(who, bytes),
        What::HalfClose => world.half_close(who),
        What::Close => {
            world.close(who);
            all.get_mut(who).expect("an open connection").closed = true;
        }
        What::Silence | What::Eof => {
            let received = all.get_mut(who).expect("an open connection");
            let patience = if step.what == What::Eof { Patience::Must } else { Patience::MustNot };
            received.bytes.extend(world.receive(who, patience));
            if !received.bytes.is_empty() {
                return Err(format!("{who} has received {}", show(&received.bytes)));
            }
            if world.ended(who) != (step.what == What::Eof) {
                return Err(format!("the connection of {who} is {}", if world.ended(who) { "closed" } else { "open" }));
            }
        }
        What::Expect { pattern, yaml } => {
            let received = all.get_mut(who).expect("an open connection");
            expect(who, pattern, *yaml, received, world)?;
        }
        What::ExpectPacket { kind, pattern } => {
            let received = all.get_mut(who).expect("an open connection");
            expect_packet(who, *kind, pattern, received, world)?;
        }
        What::RestOfBody => {
            let received = all.get_mut(who).expect("an open connection");
            let left = received.body_left.replace(0).ok_or("no body was announced")?;
            while received.bytes.len() < left {
                more(who, received, world)?;
            }
            received.bytes.drain(..left);
        }
    }
    Ok(())
}

fn more(who: &str, received: &mut Received, world: &mut dyn World) -> Result<(), String> {
    let bytes = world.receive(who, Patience::Must);
    if bytes.is_empty() {
        return Err(format!("{who} receives only {}", show(&received.bytes)));
    }
    received.bytes.extend(bytes);
    Ok(())
}

fn expect(
    who: &str,
    pattern: &[Piece],
    yaml: bool,
    received: &mut Received,
    world: &mut dyn World,
) -> Result<(), String> {
    if !yaml && received.body_left.take().is_some_and(|left| left > 0) {
        return Err("the body is longer than announced".to_owned());
    }
    loop {
        match matches(pattern, &received.bytes, None) {
            Match::Whole { length, number } => {
                received.bytes.drain(..length);
                if yaml {
                    let left = received.body_left.ok_or("no body was announced")?;
                    let left = left.checked_sub(length).ok_or("the body is shorter than its lines")?;
                    received.body_left = Some(left);
                } else {
                    received.body_left = number;
                }
                return Ok(());
            }
            Match::Part => more(who, received, world)?,
            Match::No => {
                return Err(format!("{who} should receive {pattern:?}, but receives {}", show(&received.bytes)))
            }
        }
    }
}

fn expect_packet(
    who: &str,
    kind: u32,
    pattern: &[Piece],
    received: &mut Received,
    world: &mut dyn World,
) -> Result<(), String> {
    let wanted = format!("{who} should receive {} {pattern:?}", packets::name(kind));
    let length = loop {
        match packets::response(&received.bytes) {
            Ok(Some((_, body))) => break packets::HEADER + body.len(),
            Ok(None) => more(who, received, world).map_err(|problem| format!("{wanted}: {problem}"))?,
            Err(()) => return Err(format!("{wanted}, but receives {}", show(&received.bytes))),
        }
    };
    let packet: Vec<u8> = received.bytes.drain(..length).collect();
    let Ok(Some((found, body))) = packets::response(&packet) else { unreachable!("the packet was complete") };
    let whole = [body, b"\r\n"].concat();
    match matches(pattern, &whole, None) {
        Match::Whole { length, .. } if found == kind && length == whole.len() => Ok(()),
        _ => Err(format!("{wanted}, but receives {} {}", packets::name(found), show(body))),
    }
}

enum Match {
    /// The pattern matches the first `length` bytes.
    Whole {
        length: usize,
        number: Option<usize>,
    },
    /// More bytes are needed to decide.
    Part,
    No,
}

fn matches(pattern: &[Piece], bytes: &[u8], number: Option<usize>) -> Match {
    let Some((piece, rest)) = pattern.split_first() else { return Match::Whole { length: 0, number } };
    let (longest, shortest) = match piece {
        Piece::Bytes(expected) => {
            let common = expected.iter().zip(bytes).take_while(|(left, right)| left == right).count();
            return match common {
                all if all == expected.len() => longer(matches(rest, &bytes[all..], number), all),
                part if part == bytes.len() => Match::Part,
                _ => Match::No,
            };
        }
        Piece::Digits | Piece::Length => (bytes.iter().take_while(|byte| byte.is_ascii_digit()).count(), 1),
        Piece::Any => (bytes.iter().take_while(|byte| !b"\r\n".contains(byte)).count(), 0),
    };
    if longest == bytes.len() {
        return Match::Part;
    }
    for length in (shortest..=longest).rev() {
        let text = String::from_utf8_lossy(&bytes[..length]);
        let number = if *piece == Piece::Length { text.parse().ok() } else { number };
        let found = longer(matches(rest, &bytes[length..], number), length);
        if !matches!(found, Match::No) {
            return found;
        }
    }
    Match::No
}

fn longer(found: Match, by: usize) -> Match {
    match found {
        Match::Whole { length, number } => Match::Whole { length: length + by, number },
        other => other,
    }
}

fn show(bytes: &[u8]) -> String {
    let text: String = bytes.iter().take(200).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
    format!("\"{text}\"{}", if bytes.len() > 200 { "…" } else { "" })
}
