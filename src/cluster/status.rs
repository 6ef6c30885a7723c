//! What an operator asks of servers that share a queue, and tells them.
//!
//! Owns the three commands `status`, `promote` and `retire`, and the form of what they print. They ask etcd, so they
//! work from any machine that reaches it, whichever servers run.

use std::io;
use std::time::{Duration, Instant};

use super::etcd::{Etcd, Location};
use super::shared_log::{Seq, SharedLog};

/// How long a server that is to be promoted may take to catch up, and how often it is looked whether it has: a standby
/// tells how far it is every two seconds.
const CATCH_UP: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// Carries out `status URL`, `promote URL NAME` or `retire URL NAME`, and tells what is to be printed; the error is one
/// line.
pub fn command(arguments: &[String]) -> Result<String, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Of all attempts together.
    let until = Instant::now() + CATCH_UP;
    let task: &dyn Fn(&Etcd) -> io::Result<String> = match words.as_slice() {
        ["status", _] => &|log| status(log),
        ["promote", _, node] => &|log| promote(log, node, until).map(|()| String::new()),
        ["retire", _, node] => &|log| log.retire(node).map(|()| String::new()),
        _ => return Err("usage: beanpole cluster status URL | promote URL NAME | retire URL NAME".to_owned()),
    };
    let location = Location::parse(words[1])?;
    let log = Etcd::new(&location)?;
    // Each is the same if it is done twice; and one server that is away must not keep an operator from the others.
    let mut done = task(&log);
    for _ in 1..location.endpoints.len() {
        if done.is_err() {
            done = task(&log);
        }
    }
    done.map_err(|error| error.to_string())
}

/// One line for the queue, and one for each server: its name, role, last entry and address, with tabs between them. A
/// server that says it is active, though another has claimed the log since, ended without a word: it is `lost`.
fn status(log: &dyn SharedLog) -> io::Result<String> {
    let (_, tail) = log.read(Seq::MAX, 1)?;
    let room = log.room()?;
    let mut out = format!("epoch {}, {} of {} bytes used\n", tail.epoch, room.used, room.quota);
    let claimant = tail.note.split(|byte| *byte == b' ').next().unwrap_or_default();
    for (name, state) in log.nodes()? {
        let mut columns: Vec<&str> = state.splitn(3, ' ').collect();
        if columns[0] == "active" && name.as_bytes() != claimant {
            columns[0] = "lost";
        }
        out += &format!("{name}\t{}\n", columns.join("\t"));
    }
    Ok(out)
}

/// Asks the active server to hand over to this one, once its copy has what the active one had written when this was
/// asked; nobody would serve while it catches up. Refused if it does not get so far in time, or has ended.
fn promote(log: &dyn SharedLog, node: &str, until: Instant) -> io::Result<()> {
    let (_, tail) = log.read(Seq::MAX, 1)?;
    let claimant = tail.note.split(|byte| *byte == b' ').next().unwrap_or_default();
    let mut goal = None;
    loop {
        let nodes = log.nodes()?;
        let state_of =
            |name: &[u8]| nodes.iter().find(|(other, _)| other.as_bytes() == name).map(|(_, state)| &**state);
        let Some(state) = state_of(node.as_bytes()) else {
            let problem = format!("no server named '{node}' has registered");
            return Err(io::Error::new(io::ErrorKind::NotFound, problem));
        };
        if claimant == node.as_bytes() && state.starts_with("active") {
            return Ok(());
        }
        if state.starts_with("ended") {
            return Err(io::Error::other(format!("{node} has ended; start it first")));
        }
        let goal = *goal.get_or_insert_with(|| state_of(claimant).map_or(0, last_entry));
        let behind = goal.saturating_sub(last_entry(state));
        if behind == 0 {
            return log.want(node.as_bytes());
        }
        if Instant::now() >= until {
            return Err(io::Error::other(format!(
                "{node} is {behind} entries behind; ask again when it has caught up"
            )));
        }
        std::thread::sleep(LOOK);
    }
}

/// The last entry that a server has told.
fn last_entry(state: &str) -> Seq {
    state.split(' ').nth(1).and_then(|entry| entry.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::fake_log::{Faults, MemoryLog};
    use super::*;

    #[test]
    fn each_server_has_a_line_and_only_a_known_one_is_promoted() {
        let log = MemoryLog::new(Faults::default(), 1);
        log.claim(0, 0, b"a 10.0.0.1:11300", b"").expect("memory");
        log.tell("z", "active 3 10.0.0.9:11300").expect("memory");
        log.tell("a", "active 12 10.0.0.1:11300").expect("memory");
        log.tell("b", "standby 11 10.0.0.2:11300").expect("memory");
        let text = status(&log).expect("memory");
        assert!(
            text.ends_with(
                "a\tactive\t12\t10.0.0.1:11300\nb\tstandby\t11\t10.0.0.2:11300\nz\tlost\t3\t10.0.0.9:11300\n"
            ),
            "{text}"
        );
        let promote = |node| promote(&log, node, Instant::now());
        assert!(promote("c").is_err());
        promote("a").expect("it is active");
        assert!(log.read(1, 1).expect("memory").1.wanted.is_empty());
        log.tell("b", "standby 12 10.0.0.2:11300").expect("memory");
        // It was active, and nobody knows whether it has what was written since.
        assert!(promote("z").is_err());
        promote("b").expect("a server");
        assert_eq!(log.read(1, 1).expect("memory").1.wanted, b"b");
    }

    #[test]
    fn a_server_that_is_not_ready_is_not_promoted() {
        let log = MemoryLog::new(Faults::default(), 1);
        log.claim(0, 0, b"a 10.0.0.1:11300", b"").expect("memory");
        log.tell("a", "active 2000 10.0.0.1:11300").expect("memory");
        log.tell("b", "standby 1990 10.0.0.2:11300").expect("memory");
        log.tell("c", "ended 2000 10.0.0.3:11300").expect("memory");
        let refusal = |node| promote(&log, node, Instant::now()).expect_err("it is not ready").to_string();
        assert_eq!(refusal("b"), "b is 10 entries behind; ask again when it has caught up");
        assert_eq!(refusal("c"), "c has ended; start it first");
        assert!(log.read(1, 1).expect("memory").1.wanted.is_empty());
        // What is written meanwhile does not count: it might never get as far as that.
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| promote(&log, "b", Instant::now() + Duration::from_secs(3600)));
            while !asked.is_finished() {
                let written = log.nodes().expect("memory")[0].1.split(' ').nth(1).map(str::parse::<Seq>);
                let written = written.expect("an entry").expect("a number") + 1;
                log.tell("a", &format!("active {written} 10.0.0.1:11300")).expect("memory");
                log.tell("b", &format!("standby {} 10.0.0.2:11300", written - 5)).expect("memory");
                std::thread::sleep(LOOK / 10);
            }
            asked.join().expect("no panic").expect("it is ready");
        });
        assert_eq!(log.read(1, 1).expect("memory").1.wanted, b"b");
    }
}
