//! Bodies that are announced and do not come, come by half, or are results that nobody waits for.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::stage::{Stage, MIB};
use crate::traffic::{connect_to, Crowd};
use crate::wire::Wire;

/// What the program may take for jobs in these rows.
const MAX_MEMORY: &str = "64M";

/// Two puts that announce all memory there is, and nothing after them.
pub fn announced(stage: &mut Stage) {
    let daemon = stage.start(&["-z", "67108864"], &["-t", "1", "--max-memory", MAX_MEMORY]);
    stage.weigh(&daemon, Some(64 * MIB), |stage| {
        stage.beside(&daemon, |_| {
            let (mut one, mut two) = (Wire::to(&daemon), Wire::to(&daemon));
            one.send("put 0 0 60 62000000\r\n");
            two.send("put 0 0 60 5100000\r\n");
            std::thread::sleep(std::time::Duration::from_millis(1000));
        });
    });
}

/// Four Gearman packets that announce all memory there is, and three bytes of each.
pub fn announced_to_gearman(stage: &mut Stage) {
    const SUBMIT_JOB_BG: u32 = 18;
    let daemon = stage.start(&["-z", "67108864"], &["-t", "1", "--max-memory", MAX_MEMORY, "--gearman=127.0.0.1:0"]);
    stage.weigh(&daemon, Some(64 * MIB), |stage| {
        stage.beside(&daemon, |_| {
            let mut attackers: Vec<TcpStream> = (0..4).map(|_| connect_to(&daemon, "Gearman")).collect();
            for attacker in &mut attackers {
                let size = 60_000_000_u32.to_be_bytes();
                let head = [b"\0REQ".as_slice(), &SUBMIT_JOB_BG.to_be_bytes(), &size, b"abc"].concat();
                attacker.write_all(&head).expect("a connection that takes bytes");
            }
            std::thread::sleep(std::time::Duration::from_millis(1000));
        });
    });
}

/// Very many puts of 60 KB, of each of which half comes.
pub fn half_sent(stage: &mut Stage) {
    let daemon = stage.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY]);
    stage.weigh(&daemon, Some(64 * MIB), |stage| {
        stage.beside(&daemon, |stage| {
            let mut crowd = Crowd::open(&daemon, 4000, None);
            crowd.push(&[b"put 0 0 60 60000\r\n".as_slice(), &[b'x'; 30_000]].concat());
            let heard = crowd.heard();
            let refused = heard.iter().filter(|text| text.starts_with("OUT_OF_MEMORY")).count();
            let silent = heard.iter().filter(|text| text.is_empty()).count();
            stage.same("other answers", heard.len() - refused - silent, 0);
            stage.note(format!("{refused} refused, {} connections ended", crowd.ended));
        });
    });
}

/// Large results of Workq jobs that nobody waits for. They stay until their time to live ends.
pub fn results(stage: &mut Stage) {
    const JOBS: usize = 40;
    const SIZE: usize = 1 << 20;
    let daemon = stage.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY, "--workq=127.0.0.1:0"]);
    let mut worker = Wire::of(connect_to(&daemon, "Workq"));
    let start = daemon.rss();
    let id = |number: usize| format!("6ba7b810-9dad-11d1-80b4-{number:012}");
    stage.weigh(&daemon, Some(64 * MIB), |stage| {
        stage.beside(&daemon, |_| {
            for number in 0..JOBS {
                worker.send(format!("add {} results 60000 600000 1\r\nx\r\n", id(number)));
                worker.expect("+OK");
                let result = vec![b'r'; SIZE];
                worker.send([format!("complete {} {SIZE}\r\n", id(number)).as_bytes(), &result, b"\r\n"].concat());
                worker.expect("+OK");
            }
        });
        let kept = daemon.peak_rss() - start;
        stage.note(format!("{:.2} x their size in memory at most", kept as f64 / (JOBS * SIZE) as f64));
        let bound = (JOBS * SIZE) as u64 * 11 / 10 + 4 * MIB;
        stage.check(kept <= bound, || format!("{} MiB for {JOBS} results", kept / MIB));
        for number in 0..JOBS {
            worker.send(format!("result {} 0\r\n", id(number)));
            worker.expect("+OK 1");
            let head = worker.line();
            stage.check(head.ends_with(&format!(" 1 {SIZE}")), || head.clone());
            let mut body = vec![0; SIZE + 2];
            worker.reader().read_exact(&mut body).expect("a result");
            worker.send(format!("delete {}\r\n", id(number)));
            worker.expect("+OK");
        }
    });
}
