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

/// One line for the queue, and one for each server: its name, role, last entry and address, and how many entries a
/// standby is behind, separated by tabs. A server that reported that it is active, although another one has claimed the
/// log since, ended without a report: it is `lost`. The last lines say what to do.
fn status(log: &dyn SharedLog) -> io::Result<String> {
    let (_, tail) = log.read(Seq::MAX, 1)?;
    let room = log.room()?;
    let mut out = format!("epoch {}, {} of {} bytes used\n", tail.epoch, room.used, room.quota);
    let claimant = tail.note.split(|byte| *byte == b' ').next().unwrap_or_default();
    let nodes = log.nodes()?;
    let is_claimant = |(name, _): &&(String, String)| name.as_bytes() == claimant;
    let end = nodes.iter().find(is_claimant).map_or(0, |(_, state)| last_entry(state));
    let (mut steps, mut has_active, mut standbys) = (Vec::new(), false, 0);
    for (name, state) in &nodes {
        let mut columns: Vec<String> = state.split(' ').take(3).map(str::to_owned).collect();
        let is_active = columns[0] == "active";
        if is_active && name.as_bytes() != claimant {
            columns[0] = "lost".to_owned();
        }
        has_active |= is_active && columns[0] != "lost";
        let behind = end.saturating_sub(last_entry(state));
        match &*columns[0] {
            "standby" => {
                standbys += 1;
                columns.push(format!("{behind} behind"));
            }
            "ended" | "lost" => steps.push(format!("{name}: start this server again, or retire it")),
            _ => {}
        }
        out += &format!("{name}\t{}\n", columns.join("\t"));
    }
    if !has_active {
        steps.push("no server has reported that it is active: see the logs of the servers".to_owned());
    } else if standbys == 0 {
        steps.push("there is no standby: start another server".to_owned());
    }
    if room.used > room.for_segments() {
        steps.push(
            "etcd is nearly full and puts are refused: increase the quota of etcd and quota= of --journal".to_owned(),
        );
    }
    steps.iter().for_each(|step| out += &format!("! {step}\n"));
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
        log.tell("b", "standby 11 10.0.0.2:11300 00000000000000ab").expect("memory");
        let text = status(&log).expect("memory");
        assert!(
            text.ends_with(concat!(
                "a\tactive\t12\t10.0.0.1:11300\n",
                "b\tstandby\t11\t10.0.0.2:11300\t1 behind\n",
                "z\tlost\t3\t10.0.0.9:11300\n",
                "! z: start this server again, or retire it\n",
            )),
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
    fn the_status_says_what_is_missing() {
        let log = MemoryLog::new(Faults::default(), 1);
        log.claim(0, 0, b"a 10.0.0.1:11300", b"").expect("memory");
        let steps = || {
            let text = status(&log).expect("memory");
            text.lines().filter_map(|line| line.strip_prefix("! ")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(steps(), ["no server has reported that it is active: see the logs of the servers"]);
        log.tell("a", "active 1 10.0.0.1:11300").expect("memory");
        assert_eq!(steps(), ["there is no standby: start another server"]);
        log.tell("b", "standby 1 10.0.0.2:11300").expect("memory");
        assert!(steps().is_empty());
        log.tell("b", "ended 1 10.0.0.2:11300").expect("memory");
        assert_eq!(steps(), ["b: start this server again, or retire it", "there is no standby: start another server"]);
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
