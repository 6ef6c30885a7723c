//! An ordered index of all deadlines.
//!
//! Owns the order of the timers. A timer belongs to one client, to one tube, or collectively to the job extras, the
//! keys of ended jobs, or the schedules. Each timer has one entry for its earliest deadline, so the size of the index
//! does not depend on the number of jobs. Must not depend on what happens at a deadline.

use super::{Heap, Positions, Time, NIL};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerKey {
    Client(u32),
    Tube(u32),
    Extras,
    Keys,
    Schedules,
}

#[derive(Debug, Default)]
pub struct Deadlines {
    /// At equal times, tubes come first, so that a client whose wait ends can still get a job whose delay ends.
    pub heap: Heap<(Time, bool)>,
    pub positions: PositionTable,
}

/// Of clients, of tubes, and of other timers. [`NIL`] means no deadline.
#[derive(Clone, Debug, Default)]
pub struct PositionTable([Vec<u32>; 3]);

impl TimerKey {
    /// The table number in the low two bits, and the row number in the other bits.
    #[inline(always)]
    const fn member(self) -> u32 {
        match self {
            TimerKey::Client(number) => number << 2,
            TimerKey::Tube(number) => number << 2 | 1,
            TimerKey::Extras => 2,
            TimerKey::Keys => 1 << 2 | 2,
            TimerKey::Schedules => 2 << 2 | 2,
        }
    }

    pub fn of(member: u32) -> TimerKey {
        match (member & 3, member >> 2) {
            (0, number) => TimerKey::Client(number),
            (1, number) => TimerKey::Tube(number),
            (_, 0) => TimerKey::Extras,
            (_, 1) => TimerKey::Keys,
            _ => TimerKey::Schedules,
        }
    }
}

impl PositionTable {
    #[inline(always)]
    pub fn get(&mut self, member: u32) -> &mut u32 {
        let (table, row) = (&mut self.0[(member & 3) as usize], (member >> 2) as usize);
        if table.len() <= row {
            grow(table, row);
        }
        &mut table[row]
    }
}

#[cold]
fn grow(table: &mut Vec<u32>, row: usize) {
    table.resize(row + 1, NIL);
}

impl Positions for PositionTable {
    fn set_position(&mut self, member: u32, position: u32) {
        *self.get(member) = position;
    }
}

impl Deadlines {
    /// [`Time::NEVER`] removes the deadline of the timer.
    pub fn set(&mut self, owner: TimerKey, at: Time) {
        let (member, key) = (owner.member(), (at, matches!(owner, TimerKey::Client(_))));
        match (*self.positions.get(member), at) {
            (NIL, Time::NEVER) => {}
            (NIL, _) => self.heap.push(key, member, &mut self.positions),
            (position, Time::NEVER) => {
                self.heap.remove(position, &mut self.positions);
                *self.positions.get(member) = NIL;
            }
            (position, at) if self.heap.key_at(position).0 == at => {}
            (position, _) => self.heap.change(position, key, &mut self.positions),
        }
    }

    pub fn first(&self) -> Option<(Time, TimerKey)> {
        self.heap.first().map(|((at, _), member)| (at, TimerKey::of(member)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tube_comes_before_a_client_at_the_same_moment() {
        let mut deadlines = Deadlines::default();
        deadlines.set(TimerKey::Client(0), Time::from_nanos(5));
        deadlines.set(TimerKey::Tube(9), Time::from_nanos(5));
        assert_eq!(deadlines.first(), Some((Time::from_nanos(5), TimerKey::Tube(9))));
    }

    #[test]
    fn a_timer_has_one_entry_which_moves_and_is_removed() {
        let at = Time::from_nanos;
        let mut deadlines = Deadlines::default();
        deadlines.set(TimerKey::Client(7), at(30));
        deadlines.set(TimerKey::Tube(7), at(20));
        deadlines.set(TimerKey::Client(7), at(10));
        assert_eq!(deadlines.first(), Some((at(10), TimerKey::Client(7))));
        deadlines.set(TimerKey::Client(7), Time::NEVER);
        deadlines.set(TimerKey::Client(7), Time::NEVER);
        assert_eq!(deadlines.first(), Some((at(20), TimerKey::Tube(7))));
        assert_eq!(deadlines.heap.len(), 1);
    }
}
