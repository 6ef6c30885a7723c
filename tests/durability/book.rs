//! Determines which states of the queue are permitted after a crash, given the replies that clients have received.
//!
//! Owns the possible states of each job: the last acknowledged state and the results of later, unacknowledged commands.
//! Each put, delete, release, bury and kick must be recorded before a client sends it. The acknowledgment of a command
//! removes all earlier states. Must not communicate with a server.

use std::collections::{HashMap, HashSet, VecDeque};

pub const READY: u8 = 1;
pub const DELAYED: u8 = 2;
pub const BURIED: u8 = 4;

/// A delay, in seconds, that is longer than any test.
pub const LONG: u32 = 1_000_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    number: u64,
    /// `true` if the job does not exist, because it has not been put yet or has been deleted.
    pub absent: bool,
    /// A bit set of possible job states.
    pub states: u8,
    pub pri: u32,
    /// The numbers of reservations, releases, buries and kicks.
    pub counts: [u32; 4],
    /// The sequence number of the last command that buried the job, or 0. Buried jobs are sorted by this number.
    pub order: u64,
}

pub struct Entry {
    pub tube: usize,
    pub body: Vec<u8>,
    /// Possible states, in the order of the commands that lead to them. Never empty.
    pub looks: VecDeque<Look>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        let start = self.body.split(|byte| *byte == b':').next().unwrap_or_default();
        let (body, length) = (String::from_utf8_lossy(start), self.body.len());
        write!(formatter, "\"{body}:\" of {length} bytes in tube {}, one of {:?}", self.tube, self.looks)
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Delete,
    Release { pri: u32, delay: u32 },
    Bury { pri: u32 },
    Kick,
}

struct Intent {
    tube: usize,
    pri: u32,
    delay: u32,
    /// The job's ID, if a worker has received the job before the producer has received the reply to the put.
    id: Option<u64>,
}

#[derive(Default)]
pub struct Book {
    pub jobs: HashMap<u64, Entry>,
    /// IDs of all jobs whose deletion a reply or a comparison with the server has confirmed.
    pub ended: HashSet<u64>,
    /// IDs of jobs deleted since the last comparison with the server.
    pub ended_now: Vec<u64>,
    intents: HashMap<Vec<u8>, Intent>,
    next: u64,
    /// New jobs must have IDs greater than this ID.
    pub floor: u64,
    pub newest: u64,
    pub puts: u64,
    pub in_flight: u64,
    pub problems: Vec<String>,
}

fn states(delay: u32) -> u8 {
    match delay {
        0 => READY,
        LONG => DELAYED,
        _ => READY | DELAYED,
    }
}

impl Book {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    /// Records a put before the client sends it. `body` must be unique.
    pub fn will_put(&mut self, body: &[u8], tube: usize, pri: u32, delay: u32) {
        self.intents.insert(body.to_vec(), Intent { tube, pri, delay, id: None });
    }

    pub fn inserted(&mut self, id: u64, body: &[u8]) {
        self.puts += 1;
        let seen = self.intents.get(body).and_then(|intent| intent.id);
        match seen {
            None => self.adopt(id, body),
            Some(other) if other != id => self.problem(format!("duplicate: jobs {id} and {other} have the same body")),
            Some(_) => {}
        }
        self.intents.remove(body);
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.looks.retain(|look| !look.absent || look.number > 0);
        }
    }

    pub fn adopt(&mut self, id: u64, body: &[u8]) {
        if self.ended.contains(&id) {
            return self.problem(format!("reappeared: job {id} was deleted, but a client has received it"));
        }
        let Some(intent) = self.intents.get_mut(body).filter(|intent| intent.id.is_none()) else {
            return self.problem(format!("job {id} was never put: {}", String::from_utf8_lossy(body)));
        };
        intent.id = Some(id);
        let (tube, pri, states) = (intent.tube, intent.pri, states(intent.delay));
        let absent = Look { number: 0, absent: true, states: 0, pri: 0, counts: [0; 4], order: 0 };
        let look = Look { number: self.number(), absent: false, states, pri, counts: [0; 4], order: 0 };
        let entry = Entry { tube, body: body.to_vec(), looks: [absent, look].into() };
        if id <= self.floor || self.jobs.insert(id, entry).is_some() {
            self.problem(format!("ID {id} was used before"));
        }
        self.newest = self.newest.max(id);
    }

    /// Records a reservation by a client that watches `tubes`.
    pub fn reserved(&mut self, id: u64, body: &[u8], tubes: &[usize]) {
        if !self.jobs.contains_key(&id) {
            self.adopt(id, body);
        }
        let number = self.number();
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let last = entry.looks.back().expect("a possible state");
        let right = entry.body == body && tubes.contains(&entry.tube) && last.states & READY != 0;
        let mut look = last.clone();
        (look.number, look.states) = (number, READY);
        look.counts[0] += 1;
        entry.looks.push_back(look);
        if !right {
            let text = format!("job {id} was reserved, but is {entry:?}");
            self.problem(text);
        }
    }

    /// Records a command before the client sends it. Returns the number to pass to [`Book::done`].
    pub fn will_do(&mut self, id: u64, operation: Operation) -> u64 {
        let number = self.number();
        let Some(entry) = self.jobs.get_mut(&id) else { return number };
        let mut look = entry.looks.back().expect("a possible state").clone();
        look.number = number;
        match operation {
            Operation::Delete => look.absent = true,
            Operation::Release { pri, delay } => {
                (look.pri, look.states) = (pri, states(delay));
                look.counts[1] += 1;
            }
            Operation::Bury { pri } => {
                (look.pri, look.states, look.order) = (pri, BURIED, number);
                look.counts[2] += 1;
            }
            Operation::Kick => {
                look.states = READY;
                look.counts[3] += 1;
            }
        }
        entry.looks.push_back(look);
        number
    }

    pub fn done(&mut self, id: u64, number: u64) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.looks.retain(|look| look.number >= number);
        if entry.looks.front().is_some_and(|look| look.absent) {
            self.jobs.remove(&id);
            self.end(id);
        }
    }

    fn end(&mut self, id: u64) {
        self.ended.insert(id);
        self.ended_now.push(id);
    }

    /// Returns buried jobs in the order in which they were buried. Only one client may bury jobs of the tube.
    pub fn buried(&self, tube: usize) -> Vec<u64> {
        let last = |entry: &Entry| entry.looks.back().cloned().expect("a possible state");
        let mine = self.jobs.iter().filter(|(_, entry)| entry.tube == tube && last(entry).states == BURIED);
        let mut found: Vec<_> = mine.map(|(&id, entry)| (last(entry).order, id)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Searches the tube for a job with only one possible [`Look`], whose [`Look::states`] must equal `states`. Returns
    /// the job's ID.
    pub fn find(&self, tube: usize, states: u8) -> Option<u64> {
        let certain = |entry: &Entry| entry.looks.len() == 1 && entry.looks[0].states == states;
        self.jobs.iter().find(|(_, entry)| entry.tube == tube && certain(entry)).map(|(&id, _)| id)
    }

    /// Records that a job does not exist after a restart.
    pub fn missed(&mut self, id: u64) {
        let entry = self.jobs.remove(&id).expect("a known job");
        if entry.looks[0].number == 0 {
            // A worker has received the job, but the producer has not received the reply to the put.
            self.in_flight += 1;
        } else if entry.looks.iter().any(|look| look.absent) {
            self.in_flight += 1;
            self.end(id);
        } else {
            self.problem(format!("lost: job {id}, {entry:?}"));
        }
    }

    pub fn met(&mut self, id: u64, tube: usize, body: &[u8], state: u8, pri: u32, counts: [u32; 4]) {
        let entry = self.jobs.get_mut(&id).expect("a known job");
        let newest = entry.looks.back().expect("a possible state").number;
        let fits = |look: &&Look| {
            // The log may contain a reservation for which no client has received the reply.
            let unheard = look.number == newest && look.states & READY != 0 && state == READY;
            let least = look.counts[0];
            let reserved = counts[0] == least || (unheard && counts[0] == least + 1);
            let same = look.pri == pri && look.counts[1..] == counts[1..];
            !look.absent && look.states & state != 0 && same && reserved
        };
        // Matching states differ only in the job's position among buried jobs. The last match is the most recent.
        let found = entry.looks.iter().rev().find(fits).cloned().map(|look| Look { counts, ..look });
        if entry.tube != tube || entry.body != body || found.is_none() {
            let text = format!("job {id} in tube {tube} is {state} {pri} {counts:?}, should be {entry:?}");
            return self.problem(text);
        }
        self.in_flight += u64::from(entry.looks.len() > 1);
        entry.looks = found.into_iter().collect();
    }

    /// Begins a round. New jobs must have IDs greater than `id`, the ID of a deleted job.
    pub fn begin(&mut self, id: u64) {
        if id <= self.floor {
            self.problem(format!("ID {id} was used before"));
        }
        (self.floor, self.newest) = (id, id);
    }

    /// Ends the comparison after a restart. From now on, a job that does not exist must not reappear.
    pub fn settle(&mut self) {
        self.intents.clear();
        let ended = self.ended_now.drain(..);
        self.floor = self.jobs.keys().copied().chain(ended).max().unwrap_or(0).max(self.floor);
        self.newest = self.floor;
    }
}
