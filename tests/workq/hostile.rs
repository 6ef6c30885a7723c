//! Sends random and modified bytes to the decoder, the sessions and the engine.
//!
//! Owns the generation of input. The engine's invariants must hold after each piece of input. At the end, the server
//! must still reply to a valid command on at least 95 % of the open connections.

use std::time::Duration;

use super::random::Random;
use crate::script::{Patience, Wire, World};
use crate::within::{Pieces, Within};

/// Words with which random input reaches many states of the decoder.
const WORDS: [&str; 40] = [
    "add",
    "schedule",
    "run",
    "result",
    "lease",
    "complete",
    "fail",
    "delete",
    "inspect",
    "server",
    "queues",
    "queue",
    "jobs",
    "scheduled-jobs",
    "job",
    "00000000-0000-4000-8000-000000000001",
    "00000000-0000-4000-8000-000000000002",
    "6ba7b810-9dad-11d1-80b4-00c04fd430c4",
    "6265616e-706f-4c65-8000-000000000001",
    "urn:uuid:6ba7b810-9dad-41d1-80b4",
    "{00000000-0000-4000-8000-000000000001}",
    "q",
    "r",
    "-x",
    "b@d",
    "0",
    "1",
    "2",
    "10",
    "1000",
    "60000",
    "-1",
    "+1",
    "18446744073709551615",
    "18446744073709551616",
    "2033-05-18T03:33:21Z",
    "9999-12-31T23:59:59.999999999Z",
    "-priority=-1",
    "-max-fails=2",
    "-a=",
];

const ENDS: [&str; 8] = ["\r\n", "\r\n", "\r\n", "\r\nx\r\n", "\r\n\r\n", "\r\nab\r\n", "\n", "\r"];

fn line(random: &mut Random, out: &mut Vec<u8>) {
    let id = random.below(3);
    let whole = match random.below(10) {
        0..=1 => format!("add 00000000-0000-4000-8000-00000000000{id} q 10 60000 1\r\nx\r\n"),
        2 => format!("run 00000000-0000-4000-8000-00000000000{id} q 10 5 1 -priority=2\r\nx\r\n"),
        3 => format!("schedule 00000000-0000-4000-8000-00000000000{id} q 10 50 2033-05-18T03:33:20.0{id}Z 1\r\nx\r\n"),
        4 => "lease q r 0\r\n".to_owned(),
        5 => format!("complete 00000000-0000-4000-8000-00000000000{id} 2\r\nok\r\n"),
        6 => "inspect jobs q 0 10\r\n".to_owned(),
        _ => {
            let count = 1 + random.below(8);
            let words: Vec<&str> = (0..count).map(|_| random.pick(&WORDS)).collect();
            words.join(" ") + random.pick(&ENDS)
        }
    };
    out.extend_from_slice(whole.as_bytes());
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len().max(1) as u64) as usize;
        match random.below(4) {
            0 if at < bytes.len() => bytes[at] = random.next() as u8,
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.insert(at, random.pick(b"\r\n -=\0\xff0")),
            _ => bytes.truncate(at),
        }
    }
}

/// Sends random input on several connections in sequence. Returns the number of connections that stayed open.
pub fn nonsense(seed: u64, connections: usize) -> usize {
    let mut random = Random::new(seed);
    let mut world = Within::new(&beanpole::Config::embedded(), Pieces::AsSent);
    let (mut survivors, mut answered) = (0, 0);
    for number in 0..connections {
        let who = format!("W{number}");
        world.open(&who, Wire::Workq).expect("a connection");
        for _ in 0..1 + random.below(6) {
            let mut bytes = Vec::new();
            match random.below(12) {
                0 => (0..random.below(200)).for_each(|_| bytes.push(random.next() as u8)),
                _ => (0..1 + random.below(3)).for_each(|_| line(&mut random, &mut bytes)),
            }
            if random.below(3) == 0 {
                mutate(&mut random, &mut bytes);
            }
            let piece = 1 + random.below(bytes.len().max(1) as u64) as usize;
            bytes.chunks(piece).for_each(|piece| world.send(&who, piece));
            world.pass(Duration::from_millis(random.below(20)));
        }
        // After a day, every wait has ended.
        world.pass(Duration::from_secs(86_400));
        world.receive(&who, Patience::MustNot);
        if world.ended(&who) {
            continue;
        }
        // Sends the rest of the announced data. The server then treats the next line as a command, unless the announced
        // size is extremely large.
        let end = [vec![b'z'; 70_000], b"\r\n\r\ninspect queues 0 1\r\n".to_vec()].concat();
        world.send(&who, &end);
        world.pass(Duration::from_secs(86_400));
        survivors += 1;
        answered += usize::from(world.receive(&who, Patience::MustNot).windows(4).any(|part| part == b"+OK "));
        world.close(&who);
    }
    assert!(
        answered * 20 >= survivors * 19,
        "seed {seed}: only {answered} of {survivors} connections got a reply at the end"
    );
    survivors
}
