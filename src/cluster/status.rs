//! The commands `cluster status`, `promote` and `retire`, which access only etcd and therefore work on any machine.

use std::io;
use std::time::{Duration, Instant};

use super::etcd::Etcd;
use super::gateway::Location;
use super::node::{MAX_CLOCK_DIFFERENCE, POLL};
use super::shared_log::{Entries, Seq, SharedLog, SharedSpace, Tail};

/// The age in milliseconds above which a standby's copy or a server's report is outdated.
const LATE: u64 = 10_000;
const BEAT: Duration = Duration::from_secs(2);
const SAMPLE: usize = 16;
/// The time within which a server must catch up before a switch. Standbys report their positions every two seconds.
const CATCH_UP: Duration = Duration::from_secs(10);

/// Accepts `status URL`, `promote URL NAME` and `retire URL NAME`. An error is a one-line message.
pub fn command(arguments: &[String]) -> Result<String, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let until = Instant::now() + CATCH_UP;
    let task: &dyn Fn(&Etcd) -> io::Result<String> = match words.as_slice() {
        ["status", _] => &|log| status(log, BEAT),
        ["promote", _, node] => &|log| promote(log, node, until).map(|()| String::new()),
        ["retire", _, node] => &|log| log.retire(node).map(|()| String::new()),
        _ => return Err("usage: beanpole cluster status URL | promote URL NAME | retire URL NAME".to_owned()),
    };
    let location = Location::parse(words[1])?;
    let log = Etcd::new(&location)?;
    // If an etcd server fails, try the next one. Repeating a command is harmless.
    let done = (1..location.endpoints.len()).fold(task(&log), |done, _| done.or_else(|_| task(&log)));
    done.map_err(|error| error.to_string())
}

struct Report<'a> {
    role: &'a str,
    entry: Seq,
    address: &'a str,
    /// In milliseconds: the queue's time at the report, the age of the copy, and the queue's lead over the local clock.
    time: u64,
    lag: u64,
    ahead: i64,
}

impl Report<'_> {
    fn read(state: &str) -> Report<'_> {
        let mut words = state.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (role, entry, address, _process) = (word(), word().parse().unwrap_or_default(), word(), word());
        let (time, lag) = (word().parse().unwrap_or_default(), word().parse().unwrap_or_default());
        Report { role, entry, address, time, lag, ahead: word().parse().unwrap_or_default() }
    }
}

/// Returns a line about the log, a line for each server (tab-separated: name, role, last entry, address, lag of a
/// standby, clock offset, age of the report), and lines with advice. The role of a replaced active server is `lost`.
fn status(log: &dyn SharedLog, patience: Duration) -> io::Result<String> {
    let (is_alive, tail) = wait_for_heartbeat(log, patience)?;
    let space = log.space();
    let free = space.as_ref().map_or(u64::MAX, |space| space.for_segments().saturating_sub(space.used));
    let space = match space {
        Ok(SharedSpace { used, quota }) => format!("{used} of {quota} bytes used, {free} free for jobs"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => format!("free space unknown: {error}"),
        Err(error) => return Err(error),
    };
    let mut out = format!("epoch {}, {space}\n", tail.epoch);
    let claimant = tail.note.split(|byte| *byte == b' ').next().unwrap_or_default();
    let nodes = log.nodes()?;
    let reports: Vec<_> = nodes.iter().map(|(name, state)| (name, Report::read(state))).collect();
    let end = reports.iter().find(|(name, _)| name.as_bytes() == claimant).map_or(0, |(_, report)| report.entry);
    let now = reports.iter().map(|(_, report)| report.time).chain(tail.clock).max().unwrap_or_default();
    let (mut steps, mut has_active, mut standbys) = (Vec::new(), false, 0);
    for (name, Report { role, entry, address, time, lag, ahead }) in &reports {
        let is_lost = *role == "active" && name.as_bytes() != claimant;
        has_active |= *role == "active" && !is_lost;
        let role = if is_lost { "lost" } else { role };
        out += &format!("{name}\t{role}\t{entry}\t{address}");
        let age = now.saturating_sub(*time);
        match role {
            "standby" => {
                standbys += 1;
                let (behind, bytes) = (end.saturating_sub(*entry), bytes_behind(log, *entry, end)?);
                out += &format!("\t{behind} entries, {bytes} bytes, {} s behind", lag / 1000);
                steps.extend((*lag > LATE).then(|| format!("{name}: its copy is old: check its network and disk")));
            }
            "ended" | "lost" => steps.push(format!("{name}: start this server again, or retire it")),
            _ => {}
        }
        if matches!(role, "standby" | "active") {
            out += &format!("\tclock {:+.1} s\treported {} s ago", ahead.saturating_neg() as f64 / 1000.0, age / 1000);
            let is_apart = ahead.unsigned_abs() > MAX_CLOCK_DIFFERENCE;
            steps.extend(is_apart.then(|| format!("{name}: its clock differs from the queue's time: synchronize it")));
            let is_silent = is_alive && age > LATE;
            steps.extend(is_silent.then(|| format!("{name}: it reports nothing: see its log, or retire it")));
        }
        out.push('\n');
    }
    if !has_active || !is_alive {
        steps.push("no server is active: see the logs of the servers".to_owned());
    } else if standbys == 0 {
        steps.push("there is no standby: start another server".to_owned());
    }
    let advice = "etcd is nearly full and puts are refused: increase the quota of etcd and quota= of --journal";
    steps.extend((free == 0).then(|| advice.to_owned()));
    steps.iter().for_each(|step| out += &format!("! {step}\n"));
    Ok(out)
}

/// Returns `true` if a heartbeat arrived within `patience`, and the last known state of the writer.
fn wait_for_heartbeat(log: &dyn SharedLog, patience: Duration) -> io::Result<(bool, Tail)> {
    let begun = Instant::now();
    let (_, first) = log.read(Seq::MAX, 1)?;
    let mut tail = first.clone();
    while first.epoch > 0 && tail.beat == first.beat && begun.elapsed() < patience {
        std::thread::sleep(POLL);
        tail = log.read(Seq::MAX, 1)?.1;
    }
    Ok((tail.beat != first.beat, tail))
}

/// Estimates the size of the entries after `entry` up to `end`, in bytes, from the sizes of the first few entries.
fn bytes_behind(log: &dyn SharedLog, entry: Seq, end: Seq) -> io::Result<u64> {
    let entries = if entry < end { log.read(entry + 1, SAMPLE)?.0 } else { Entries::new() };
    let Some((last, _)) = entries.last() else { return Ok(0) };
    let bytes: usize = entries.iter().map(|(_, entry)| entry.len()).sum();
    // A merged entry has the position of the last entry that it replaces.
    Ok((bytes as u64).saturating_mul(end - entry) / (last - entry))
}

/// Requests a switch to the server `node`. To shorten the interruption, first waits until its copy contains the entries
/// that the active server had reported. Fails if `node` is unknown, has ended, or is still behind or silent at `until`.
fn promote(log: &dyn SharedLog, node: &str, until: Instant) -> io::Result<()> {
    let mut goal = None;
    loop {
        let (_, tail) = log.read(Seq::MAX, 1)?;
        let claimant = tail.note.split(|byte| *byte == b' ').next().unwrap_or_default();
        let nodes = log.nodes()?;
        let state_of = |name: &[u8]| nodes.iter().find(|(key, _)| key.as_bytes() == name).map(|(_, state)| &**state);
        let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("no server named '{node}' has registered"));
        let state = state_of(node.as_bytes()).ok_or_else(unknown)?;
        if claimant == node.as_bytes() && state.starts_with("active") {
            return Ok(());
        }
        // An active server that another server has replaced may have entries that are not in the log.
        if ["ended", "active"].iter().any(|end| state.starts_with(end)) {
            return Err(io::Error::other(format!("{node} has ended; start it first")));
        }
        let Report { entry, time, .. } = Report::read(state);
        let age = tail.clock.unwrap_or_default().saturating_sub(time);
        let goal = *goal.get_or_insert_with(|| state_of(claimant).map_or(0, |state| Report::read(state).entry));
        let behind = goal.saturating_sub(entry);
        if behind == 0 && age <= LATE {
            return log.request_switch(node.as_bytes());
        }
        if Instant::now() >= until {
            return Err(io::Error::other(match behind {
                0 => format!("{node} has reported nothing for {} s; see its log", age / 1000),
                _ => format!("{node} is {behind} entries behind; ask again when it has caught up"),
            }));
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_log::{Faults, MemoryLog};
    use super::*;

    fn alive_status(log: &MemoryLog) -> String {
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| status(log, Duration::from_secs(3600)).expect("memory"));
            while !waiter.is_finished() {
                log.renew(0, 1, 13_000).expect("memory");
                std::thread::sleep(POLL / 10);
            }
            waiter.join().expect("no panic")
        })
    }

    #[test]
    fn each_server_has_a_line_and_only_registered_ones_are_promoted() {
        let log = MemoryLog::new(Faults::default(), 1);
        log.claim(0, 0, b"a 10.0.0.1:11300", b"").expect("memory");
        log.publish("z", "active 3 10.0.0.9:11300 9 1000 0 0").expect("memory");
        log.publish("a", "active 12 10.0.0.1:11300 a 13000 0 0").expect("memory");
        log.publish("b", "standby 1 10.0.0.2:11300 00000000000000ab 2000 12500 2500").expect("memory");
        log.append(1, 1, &[7; 100]).expect("memory");
        let text = alive_status(&log);
        assert!(
            text.ends_with(concat!(
                "a\tactive\t12\t10.0.0.1:11300\tclock +0.0 s\treported 0 s ago\n",
                "b\tstandby\t1\t10.0.0.2:11300\t11 entries, 1100 bytes, 12 s behind\tclock -2.5 s\treported 11 s ago\n",
                "z\tlost\t3\t10.0.0.9:11300\n",
                "! b: its copy is old: check its network and disk\n",
                "! b: its clock differs from the queue's time: synchronize it\n",
                "! b: it reports nothing: see its log, or retire it\n",
                "! z: start this server again, or retire it\n",
            )),
            "{text}"
        );
        let promote = |node| promote(&log, node, Instant::now());
        assert!(promote("c").is_err());
        promote("a").expect("an active server");
        assert!(log.read(1, 1).expect("memory").1.requested.is_empty());
        log.publish("b", "standby 12 10.0.0.2:11300 b 13000 0 0").expect("memory");
        log.publish("z", "active 12 10.0.0.9:11300").expect("memory");
        assert!(promote("z").is_err());
        promote("b").expect("a server");
        assert_eq!(log.read(1, 1).expect("memory").1.requested, b"b");
    }

    #[test]
    fn the_status_has_advice() {
        let log = MemoryLog::new(Faults::default(), 1);
        log.claim(0, 0, b"a 10.0.0.1:11300", b"").expect("memory");
        let steps = |text: String| {
            text.lines().filter_map(|line| line.strip_prefix("! ")).map(str::to_owned).collect::<Vec<_>>()
        };
        let none = "no server is active: see the logs of the servers";
        let (dead, alive) = (|| status(&log, Duration::ZERO).expect("memory"), || alive_status(&log));
        assert_eq!(steps(alive()), [none]);
        log.publish("a", "active 1 10.0.0.1:11300 a 13000 0 0").expect("memory");
        assert_eq!(steps(alive()), ["there is no standby: start another server"]);
        log.publish("b", "standby 1 10.0.0.2:11300 b 13000 0 0").expect("memory");
        assert!(steps(alive()).is_empty());
        assert_eq!(steps(dead()), [none], "the active server does not renew its lease");
        log.publish("b", "ended 1 10.0.0.2:11300 b 13000 0 0").expect("memory");
        assert_eq!(
            steps(alive()),
            ["b: start this server again, or retire it", "there is no standby: start another server"]
        );
        log.set_quota(0);
        let full = "etcd is nearly full and puts are refused: increase the quota of etcd and quota= of --journal";
        assert_eq!(steps(alive()).last().map(String::as_str), Some(full));
    }

    #[test]
    fn the_status_works_without_the_right_to_query_the_space() {
        let log = MemoryLog::new(Faults::default(), 1);
        log.claim(0, 0, b"a 10.0.0.1:11300", b"").expect("memory");
        log.publish("a", "active 1 10.0.0.1:11300 a 13000 0 0").expect("memory");
        log.hide_space();
        let text = alive_status(&log);
        assert!(text.starts_with("epoch 1, free space unknown: permission denied\na\tactive\t1\t"), "{text}");
        assert!(!text.contains("nearly full"), "{text}");
    }

    #[test]
    fn a_server_that_is_not_ready_is_not_promoted() {
        let log = MemoryLog::new(Faults::default(), 1);
        log.claim(0, 0, b"a 10.0.0.1:11300", b"").expect("memory");
        log.publish("a", "active 2000 10.0.0.1:11300").expect("memory");
        log.publish("b", "standby 1990 10.0.0.2:11300").expect("memory");
        log.publish("c", "ended 2000 10.0.0.3:11300").expect("memory");
        let refusal = |node| promote(&log, node, Instant::now()).expect_err("a server that is not ready").to_string();
        assert_eq!(refusal("b"), "b is 10 entries behind; ask again when it has caught up");
        assert_eq!(refusal("c"), "c has ended; start it first");
        assert!(log.read(1, 1).expect("memory").1.requested.is_empty());
        // `promote` ignores entries appended after its start, because a busy queue never stops appending.
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| promote(&log, "b", Instant::now() + Duration::from_secs(3600)));
            while !waiter.is_finished() {
                let written = log.nodes().expect("memory")[0].1.split(' ').nth(1).map(str::parse::<Seq>);
                let written = written.expect("an entry").expect("a number") + 1;
                log.publish("a", &format!("active {written} 10.0.0.1:11300")).expect("memory");
                log.publish("b", &format!("standby {} 10.0.0.2:11300", written - 5)).expect("memory");
                std::thread::sleep(POLL / 10);
            }
            waiter.join().expect("no panic").expect("a server that is ready");
        });
        log.publish("d", "standby 9999999 10.0.0.4:11300 d 18000 0 0").expect("memory");
        log.renew(0, 1, 30_000).expect("memory");
        assert_eq!(refusal("d"), "d has reported nothing for 12 s; see its log");
        assert_eq!(log.read(1, 1).expect("memory").1.requested, b"b");
        log.renew(0, 1, 28_000).expect("memory");
        promote(&log, "d", Instant::now()).expect("a server that is ready");
    }
}
