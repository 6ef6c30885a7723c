//! Runs random schedules, in which several writers operate on a shared log in memory. The log loses replies, delays
//! requests and returns stale positions.
//!
//! Owns the writers, which are models of servers. Must not run nodes or the program.

use std::collections::{BTreeMap, VecDeque};

use beanpole::internals::cluster::{EntryKind, Fail, Faults, Head, MemoryLog, Seq, SharedLog};

/// The default number of schedules, which `BEANPOLE_SCHEDULES` overrides.
const SCHEDULES: u64 = 20_000;

const STEPS: u64 = 60;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// A simulated server: its view of the log, its confirmed entries, and its unconfirmed entries (`ahead`).
struct Writer {
    epoch: u64,
    end: Seq,
    head: Head,
    active: bool,
    confirmed: BTreeMap<Seq, Head>,
    ahead: VecDeque<Head>,
}

/// Maximum number of unconfirmed entries of one writer.
const WINDOW: usize = 4;

impl Writer {
    fn new(number: u64) -> Writer {
        let head = Head { kind: EntryKind::Operations, epoch: 0, writer: number, number: 0 };
        Writer { epoch: 0, end: 0, head, active: false, confirmed: BTreeMap::new(), ahead: VecDeque::new() }
    }

    fn head_at(log: &MemoryLog, seq: Seq) -> Option<Head> {
        let (entries, _) = log.read(seq, 1).expect("a log in memory");
        let (found, entry) = entries.first()?;
        (*found == seq).then(|| Head::open(entry).expect("a whole entry").0)
    }

    /// Simulates a restart: the writer reads the rest of the log, and tries to claim the log after the last entry.
    fn claim(&mut self, log: &MemoryLog) {
        self.active = false;
        self.ahead.clear();
        let (entries, tail) = log.read(self.end + 1, 1000).expect("a log in memory");
        self.end = entries.last().map_or(self.end, |(seq, _)| *seq);
        self.head = Head { kind: EntryKind::Claim, epoch: tail.epoch, number: self.head.number + 1, ..self.head };
        let claimed = match log.claim(tail.epoch, self.end, b"", &self.head.seal(b"")) {
            Ok(_) => true,
            Err(Fail::Unknown(_)) => Writer::head_at(log, self.end + 1) == Some(self.head),
            Err(_) => false,
        };
        if claimed {
            self.end += 1;
            self.confirmed.insert(self.end, self.head);
            (self.epoch, self.active) = (tail.epoch + 1, true);
        }
    }

    /// In some calls, first creates another unconfirmed entry. Then tries to append an unconfirmed entry, chosen
    /// randomly. Like the program, the writer can have several unconfirmed entries.
    fn append(&mut self, log: &MemoryLog, random: &mut Random) {
        if self.ahead.is_empty() || (self.ahead.len() < WINDOW && random.below(2) == 0) {
            let number = self.head.number + 1;
            self.head = Head { kind: EntryKind::Operations, epoch: self.epoch, number, ..self.head };
            self.ahead.push_back(self.head);
        }
        let index = random.below(self.ahead.len() as u64);
        let (seq, head) = (self.end + 1 + index, self.ahead[index as usize]);
        let confirmed = match log.append(self.epoch, seq - 1, &head.seal(b"")) {
            Ok(()) => true,
            Err(Fail::Fenced) => return self.active = false,
            Err(Fail::Conflict) if index > 0 => false,
            Err(_) => match Writer::head_at(log, seq) {
                Some(found) if found == head => true,
                // Another writer has written this entry. This writer stops without confirming its own entry.
                Some(_) => return self.active = false,
                None => false,
            },
        };
        if confirmed {
            for head in self.ahead.drain(..=index as usize) {
                self.end += 1;
                self.confirmed.insert(self.end, head);
            }
        }
    }
}

fn schedule(seed: u64) -> usize {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut part = |limit| random.below(limit) as u8;
    let faults = Faults {
        lost_requests: part(40),
        lost_answers: part(40),
        late_requests: part(40),
        stale_reads: part(60),
        ..Faults::default()
    };
    let log = MemoryLog::new(faults, seed + 1);
    let mut writers: Vec<Writer> = (1..=3).map(Writer::new).collect();
    for _ in 0..STEPS {
        let writer = &mut writers[random.below(3) as usize];
        match random.below(8) {
            0 => writer.claim(&log),
            _ if writer.active => writer.append(&log, &mut random),
            _ => {}
        }
    }
    let entries: BTreeMap<Seq, Head> =
        log.entries().into_iter().map(|(seq, entry)| (seq, Head::open(&entry).expect("a whole entry").0)).collect();
    for writer in &writers {
        for (seq, head) in &writer.confirmed {
            assert_eq!(entries.get(seq), Some(head), "seed {seed}: confirmed entry {seq} is missing or was replaced");
        }
    }
    // Between two claims, only the writer of the earlier claim may have written entries. The log must reject the
    // entries of all other writers.
    let mut writer = 0;
    for (seq, head) in &entries {
        match head.kind {
            EntryKind::Claim => writer = head.writer,
            _ => assert_eq!(head.writer, writer, "seed {seed}: a fenced server wrote entry {seq}"),
        }
    }
    writers.iter().map(|writer| writer.confirmed.len()).sum()
}

// Tests promises P33 and P34 of beanpole-promises(7).
#[test]
fn confirmed_changes_survive_and_fenced_servers_cannot_write() {
    let count = std::env::var("BEANPOLE_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(SCHEDULES);
    let confirmed: usize = (1..=count).map(schedule).sum();
    println!("{count} schedules, {confirmed} entries confirmed");
    assert!(confirmed as u64 > count * 5, "too few entries were confirmed");
}
