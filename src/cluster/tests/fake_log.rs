//! A shared log in memory, for tests.
//!
//! Owns the fault injection: lost requests, lost responses, delayed requests and stale reads, determined by a seed.
//! Must not be used outside tests, because the log is lost when the process exits.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::shared_log::{Entries, Epoch, Fail, Merged, Seq, SharedLog, SharedSpace, Tail};
use crate::shared::lock_order::LeafMutex;

/// The initial quota in bytes, which is more than most tests need.
const QUOTA: u64 = 1 << 40;

/// The probability of each fault in units of 1/255, and the limit `largest_answer`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A request is lost. The sender gets an `Unknown` error.
    pub lost_requests: u8,
    /// A request is executed, but its response is lost.
    pub lost_answers: u8,
    /// A request is executed during a later call. The sender gets an `Unknown` error.
    pub late_requests: u8,
    /// A read does not return the last entry.
    pub stale_reads: u8,
    /// A read that would return more bytes than this times out. 0 means no limit.
    pub largest_answer: usize,
}

#[derive(Debug)]
struct Request {
    /// The epoch that the sender believes to be current.
    epoch: Epoch,
    after: Seq,
    entry: Vec<u8>,
    /// The note of a claim, or `None` for an append.
    claim: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Seq, Vec<u8>>,
    end: Seq,
    tail: Tail,
    late: Vec<Request>,
    /// The duration of each read.
    delay: Duration,
    nodes: BTreeMap<String, String>,
    quota: u64,
    is_space_hidden: bool,
    is_unreachable: bool,
    /// The number of reads that have exceeded `largest_answer`.
    refused: usize,
    random: u64,
}

#[derive(Debug)]
pub struct MemoryLog {
    state: LeafMutex<State>,
    faults: Faults,
}

impl MemoryLog {
    /// The seed determines the faults.
    pub fn new(faults: Faults, seed: u64) -> MemoryLog {
        MemoryLog { state: LeafMutex::new(State { quota: QUOTA, random: seed | 1, ..State::default() }), faults }
    }

    pub fn delay_answers(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    pub fn set_quota(&self, quota: u64) {
        self.state.lock().quota = quota;
    }

    /// Simulates a user who may not query the space.
    pub fn hide_space(&self) {
        self.state.lock().is_space_hidden = true;
    }

    /// While this is set, reads fail.
    pub fn set_unreachable(&self, is_unreachable: bool) {
        self.state.lock().is_unreachable = is_unreachable;
    }

    /// Returns the number of reads that have exceeded `largest_answer`.
    pub fn refused(&self) -> usize {
        self.state.lock().refused
    }

    /// Simulates a replacement of the data in etcd.
    pub fn replace(&self, other: &MemoryLog) {
        let state = std::mem::take(&mut *other.state.lock());
        *self.state.lock() = state;
    }

    /// Returns all entries that have not been purged, without any faults.
    pub fn entries(&self) -> Vec<(Seq, Vec<u8>)> {
        self.state.lock().entries.iter().map(|(seq, entry)| (*seq, entry.clone())).collect()
    }

    /// Simulates entries that etcd has lost.
    pub fn lose(&self, lost: std::ops::RangeInclusive<Seq>) {
        self.state.lock().entries.retain(|seq, _| !lost.contains(seq));
    }

    fn send(&self, request: Request) -> Result<Epoch, Fail> {
        let mut state = self.state.lock();
        let Faults { lost_requests, lost_answers, late_requests, .. } = self.faults;
        if state.once_in(late_requests) {
            state.late.push(request);
            return Err(unknown("the request is delayed"));
        }
        // Executes delayed requests in random order.
        if !state.late.is_empty() && state.once_in(128) {
            let index = state.next() as usize % state.late.len();
            let late = state.late.swap_remove(index);
            let _ = state.carry_out(&late);
        }
        if state.once_in(lost_requests) {
            return Err(unknown("the request was lost"));
        }
        let done = state.carry_out(&request);
        if state.once_in(lost_answers) {
            return Err(unknown("the response was lost"));
        }
        done
    }
}

fn unknown(text: &str) -> Fail {
    Fail::Unknown(io::Error::new(io::ErrorKind::TimedOut, text))
}

impl State {
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn once_in(&mut self, parts: u8) -> bool {
        parts > 0 && (self.next() >> 20) as u8 % 255 < parts
    }

    fn carry_out(&mut self, request: &Request) -> Result<Epoch, Fail> {
        if request.epoch != self.tail.epoch || request.after != self.end {
            return Err(Fail::Conflict);
        }
        if let Some(note) = &request.claim {
            self.tail.epoch += 1;
            self.tail.note.clone_from(note);
            self.tail.requested.clear();
        }
        self.end += 1;
        self.entries.insert(self.end, request.entry.clone());
        Ok(self.tail.epoch)
    }
}

impl SharedLog for MemoryLog {
    fn claim(&self, known: Epoch, after: Seq, note: &[u8], entry: &[u8]) -> Result<Epoch, Fail> {
        self.send(Request { epoch: known, after, entry: entry.to_vec(), claim: Some(note.to_vec()) })
    }

    fn append(&self, epoch: Epoch, after: Seq, entry: &[u8]) -> Result<(), Fail> {
        self.send(Request { epoch, after, entry: entry.to_vec(), claim: None }).map(drop)
    }

    fn read(&self, from: Seq, limit: usize) -> io::Result<(Entries, Tail)> {
        let mut state = self.state.lock();
        if state.is_unreachable {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let stale = state.once_in(self.faults.stale_reads);
        let end = if stale { state.end.saturating_sub(1) } else { state.end };
        let entries = state.entries.range(from..).take_while(|(seq, _)| **seq <= end).take(limit);
        let entries: Entries = entries.map(|(seq, entry)| (*seq, entry.clone())).collect();
        let size: usize = entries.iter().map(|(_, entry)| entry.len()).sum();
        if self.faults.largest_answer > 0 && size > self.faults.largest_answer {
            state.refused += 1;
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (tail, delay) = (state.tail.clone(), state.delay);
        drop(state);
        std::thread::sleep(delay);
        Ok((entries, tail))
    }

    fn renewal_connections(&self) -> usize {
        1
    }

    fn renew(&self, _: usize, epoch: Epoch, clock: u64) -> Result<Vec<u8>, Fail> {
        let mut state = self.state.lock();
        if state.tail.epoch != epoch {
            return Err(Fail::Fenced);
        }
        state.tail.beat += 1;
        state.tail.clock = Some(clock);
        Ok(state.tail.requested.clone())
    }

    fn request_switch(&self, node: &[u8]) -> io::Result<()> {
        self.state.lock().tail.requested = node.to_vec();
        Ok(())
    }

    fn publish(&self, node: &str, state: &str) -> io::Result<String> {
        Ok(self.state.lock().nodes.insert(node.to_owned(), state.to_owned()).unwrap_or_default())
    }

    fn nodes(&self) -> io::Result<Vec<(String, String)>> {
        Ok(self.state.lock().nodes.clone().into_iter().collect())
    }

    fn retire(&self, node: &str) -> io::Result<()> {
        self.state.lock().nodes.remove(node);
        Ok(())
    }

    fn purge(&self, below: Seq) -> io::Result<()> {
        let mut state = self.state.lock();
        state.entries = state.entries.split_off(&below);
        Ok(())
    }

    fn merge(&self, epoch: Epoch, merged: &Merged) -> Result<(), Fail> {
        let mut state = self.state.lock();
        if state.tail.epoch != epoch {
            return Err(Fail::Conflict);
        }
        state.entries.retain(|seq, _| !(merged.first..=merged.last).contains(seq));
        state.entries.insert(merged.last, merged.entry.clone());
        Ok(())
    }

    fn space(&self) -> io::Result<SharedSpace> {
        let state = self.state.lock();
        if state.is_space_hidden {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "permission denied"));
        }
        let used = state.entries.values().map(|entry| entry.len() as u64).sum();
        Ok(SharedSpace { used, quota: state.quota })
    }

    fn compact(&self) -> io::Result<()> {
        Ok(())
    }
}
