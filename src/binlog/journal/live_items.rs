//! The live items of the log. A segment is needed as long as it contains the latest full record of an item. An index
//! maps each item to this segment. An entry of the index takes twelve bytes, and a lookup takes constant time.

use super::Journal;
use crate::binlog::record::{
    ended_size, full_size, group_size, key_size, operation_size, pause_size, settings_size, state_bits, GroupCounts,
    Record, CHANGE,
};
use crate::engine::{
    Engine, JobExtras, Linked, Links, List, LoggedGroup, MemberGone, OpenOperation, Pause, State, ORIGIN_SIZE,
};

/// The number of entries per chunk. Adding a chunk takes bounded time, and the allocator unmaps a freed chunk.
const CHUNK: usize = 16_384;

#[derive(Clone, Copy, Debug)]
struct Entry {
    links: Links,
    segment: u32,
}

#[derive(Debug, Default)]
pub struct LiveIndex {
    chunks: Vec<Chunk>,
}

#[derive(Debug, Default)]
struct Chunk {
    entries: Vec<Entry>,
    live: usize,
}

impl LiveIndex {
    pub fn of(&self, slot: u32) -> u32 {
        self.entry(slot).segment
    }

    pub fn move_in(&mut self, slot: u32, segment: u32, list: &mut List) {
        let number = slot as usize / CHUNK;
        while self.chunks.len() <= number {
            self.chunks.push(Chunk::default());
        }
        let chunk = &mut self.chunks[number];
        chunk.live += 1;
        if chunk.entries.is_empty() {
            chunk.entries.reserve_exact(CHUNK);
        }
        let index = slot as usize % CHUNK;
        if chunk.entries.len() <= index {
            chunk.entries.resize(index + 1, Entry { links: Links::NONE, segment });
        }
        chunk.entries[index].segment = segment;
        list.push_back(slot, self);
    }

    pub fn move_out(&mut self, slot: u32, list: &mut List) {
        list.remove(slot, self);
        let number = slot as usize / CHUNK;
        let chunk = &mut self.chunks[number];
        chunk.live -= 1;
        if chunk.live == 0 && number > 0 {
            chunk.entries = Vec::new();
        }
    }

    fn entry(&self, slot: u32) -> &Entry {
        &self.chunks[slot as usize / CHUNK].entries[slot as usize % CHUNK]
    }
}

impl Linked for LiveIndex {
    fn links(&self, slot: u32) -> Links {
        self.entry(slot).links
    }
    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.chunks[slot as usize / CHUNK].entries[slot as usize % CHUNK].links
    }
}

/// A kind of live item. The latest full record of each item is in a single segment.
#[derive(Clone, Copy, Debug)]
pub enum Live {
    Job,
    /// A key that outlives its job.
    Key,
    Settings,
    Pause,
    Operation,
    Group,
}

impl Live {
    pub(super) const ALL: [Live; 6] = [Live::Job, Live::Key, Live::Settings, Live::Pause, Live::Operation, Live::Group];

    pub fn size(self, number: u32, engine: &Engine) -> u64 {
        match self {
            Live::Job => full_size(engine.logged_size(number)),
            Live::Key => key_size(engine.ended_key(number).names()),
            Live::Settings => {
                let names = engine.settings_at(number).map(|(name, settings)| name.len() + settings.dead_length());
                settings_size(names.unwrap_or(0))
            }
            Live::Pause => pause_size(engine.pause_at(number).map_or(0, |(name, _)| name.len())),
            Live::Operation => operation_size(engine.operation_at(number).map_or(0, OpenOperation::names)),
            Live::Group => group_size(engine.group_at(number).map_or(0, |group| group.name.length())),
        }
    }
}

impl Journal {
    #[inline]
    pub(super) fn move_in(&mut self, live: Live, number: u32, size: u64) {
        let segment = self.segments.back_mut().expect("a segment");
        segment.live += size;
        self.indexes[live as usize].move_in(number, segment.number as u32, &mut segment.lists[live as usize]);
    }

    #[inline]
    pub(super) fn move_out(&mut self, live: Live, number: u32, size: u64) {
        let segment = self.segment_of(live, number);
        self.segments[segment].live -= size;
        self.indexes[live as usize].move_out(number, &mut self.segments[segment].lists[live as usize]);
    }

    fn segment_of(&self, live: Live, number: u32) -> usize {
        self.segment_index(self.indexes[live as usize].of(number))
    }

    #[inline]
    pub fn found(&mut self, live: Live, number: u32, size: u64) {
        self.live += size;
        self.move_in(live, number, size);
    }

    #[inline]
    pub fn lost(&mut self, live: Live, number: u32, size: u64) {
        self.move_out(live, number, size);
        self.live -= size;
    }

    /// Adds or moves an item to the last segment, or removes it. `before` and `after` are its record's sizes, if any.
    pub fn changed(&mut self, live: Live, number: u32, before: Option<u64>, after: Option<u64>) {
        if let Some(before) = before {
            self.lost(live, number, before);
        }
        if let Some(after) = after {
            self.found(live, number, after);
        }
    }

    pub(super) fn write(&mut self, live: Live, number: u32, size: u64, engine: &Engine) {
        self.make_room(size);
        match live {
            Live::Job => self.append_job(number, engine, Record::Snapshot),
            Live::Key => {
                let ended = engine.ended_key(number);
                let key = ended.key.text();
                self.push(&Record::Key { id: ended.id.0, until: ended.until, tube: &ended.tube, key: &key });
            }
            Live::Settings => {
                let (tube, settings) = engine.settings_at(number).expect("existing settings");
                self.push(&Record::Settings { tube, settings: settings.borrowed() });
            }
            Live::Pause => {
                let (tube, Pause { length, until, .. }) = engine.pause_at(number).expect("a pause in progress");
                self.push(&Record::Pause { tube, length, until });
            }
            Live::Group => {
                let group = engine.group_at(number).expect("a group with members or waiting jobs");
                self.push(&Record::Groups { id: 0, groups: GroupCounts::Known(&[group]) });
            }
            Live::Operation => {
                self.push_operation(number, engine.operation_at(number).expect("an operation"));
            }
        }
        self.move_in(live, number, size);
    }

    pub(super) fn write_new(&mut self, live: Live, number: u32, before: Option<u64>, engine: &Engine) {
        let size = live.size(number, engine);
        self.changed(live, number, before, None);
        self.live += size;
        self.write(live, number, size, engine);
    }

    fn push_operation(&mut self, number: u32, operation: &OpenOperation) {
        let OpenOperation { from, to, states, bound } = operation;
        self.push(&Record::Opened { number, from, to, states: state_bits(states), bound: *bound });
    }

    pub(super) fn record_member_gone(&mut self, gone: &MemberGone) {
        let MemberGone { slot, id, size, groups } = gone;
        let names = groups.iter().map(|group| group.name.length()).sum();
        self.append_record(
            ended_size(groups.len(), names) as u64,
            &Record::Groups { id: id.0, groups: GroupCounts::Known(groups) },
        );
        self.lost_job(*slot, *size);
        for LoggedGroup { number, name, .. } in groups {
            let size = Some(group_size(name.length()));
            self.changed(Live::Group, *number, size, size);
        }
    }

    /// Appends the record of an operation. The engine may already have completed the operation.
    pub(super) fn record_opened(&mut self, number: u32, operation: &OpenOperation) {
        let size = operation_size(operation.names());
        self.make_room(size);
        self.push_operation(number, operation);
        self.found(Live::Operation, number, size);
    }

    pub(super) fn record_move(&mut self, slot: u32, sizes: (usize, usize), engine: &Engine) {
        let job = engine.job_at(slot);
        let tube = engine.tube_of(&job);
        let dead_from = engine.dead_from(&job);
        self.make_room((CHANGE + tube.len() + dead_from.map_or(0, |origin| ORIGIN_SIZE + origin.len())) as u64);
        let state = match job.state() {
            State::Delayed | State::Buried => job.state(),
            // A moved job is ready or, if a client waited for it, reserved. A reservation does not survive a restart.
            State::Ready | State::Reserved | State::Held | State::Finished | State::Scheduled => State::Ready,
        };
        let (id, pri, delay, due) = (job.id().0, job.priority(), job.delay(), job.due());
        self.push(&Record::Move { id, pri, delay, due, state, dead_from, tube });
        self.resize(slot, sizes.0, sizes.1);
    }

    pub(super) fn record_reason(&mut self, slot: u32, sizes: (usize, usize), engine: &Engine) {
        let job = engine.job_at(slot);
        let reason = engine.extras(&job).map_or(&[][..], JobExtras::reason);
        self.append_record((CHANGE + reason.len()) as u64, &Record::Reason { id: job.id().0, reason });
        self.resize(slot, sizes.0, sizes.1);
    }

    pub fn resize(&mut self, slot: u32, before: usize, after: usize) {
        let segment = self.segment_of(Live::Job, slot);
        for live in [&mut self.live, &mut self.segments[segment].live] {
            *live = *live + after as u64 - before as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_chunks_except_the_first_are_freed() {
        let (mut index, mut list) = (LiveIndex::default(), List::default());
        let second = CHUNK as u32;
        let slots = [0, 5, second, second + 5];
        slots.iter().for_each(|&slot| index.move_in(slot, 7, &mut list));
        index.move_out(0, &mut list);
        index.move_out(second, &mut list);
        assert_eq!((index.of(5), index.of(second + 5)), (7, 7));
        index.move_out(5, &mut list);
        index.move_out(second + 5, &mut list);
        let kept: Vec<bool> = index.chunks.iter().map(|chunk| chunk.entries.capacity() > 0).collect();
        assert_eq!(kept, [true, false]);
        index.move_in(second, 8, &mut list);
        assert_eq!(index.of(second), 8);
    }
}
