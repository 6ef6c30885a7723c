//! The one ordered index of all deadlines.
//!
//! Owns the order of the timers. A timer belongs to a client (its first time to run, its reserve timeout, its warning),
//! to a tube (its first delayed job, the end of its pause), to the extras (the first end of a time to live), to the
//! keys that outlive jobs, or to the schedules. Each has at most one entry, its earliest deadline, so the index stays
//! small however many jobs there are. Must not know what happens at a deadline.

use super::heap::{Heap, Places};
use super::list::NIL;
use super::time::Time;

/// Represents all extras in the heap: no tube has this number.
const ALL_EXTRAS: u32 = NIL;

/// Represents the keys that outlive their jobs in the heap: no client has this number.
const KEYS: u32 = NIL - 1;

/// Represents all schedules in the heap: no tube has this number.
const SCHEDULES: u32 = NIL - 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerKey {
    Client(u32),
    Tube(u32),
    Extras,
    /// All keys that outlive their jobs.
    Keys,
    Schedules,
}

#[derive(Debug)]
pub struct Deadlines {
    /// At the same time, tubes come first: a job that becomes ready then goes to a client whose wait ends then.
    heap: Heap<(Time, bool)>,
    places: PlaceTable,
}

/// The heap position of each timer; [`NIL`] for a timer without a deadline.
#[derive(Debug, Default)]
struct PlaceTable {
    clients: Vec<u32>,
    tubes: Vec<u32>,
    extras_store: Vec<u32>,
}

impl TimerKey {
    /// The number that represents this timer in the heap. The lowest bit distinguishes clients from tubes.
    fn member(self) -> u32 {
        match self {
            TimerKey::Keys => KEYS,
            TimerKey::Schedules => SCHEDULES,
            TimerKey::Extras => ALL_EXTRAS,
            TimerKey::Client(number) => number << 1,
            TimerKey::Tube(number) => number << 1 | 1,
        }
    }

    fn key(self, at: Time) -> (Time, bool) {
        (at, matches!(self, TimerKey::Client(_)))
    }

    fn of(member: u32) -> TimerKey {
        match member & 1 {
            _ if member == ALL_EXTRAS => TimerKey::Extras,
            _ if member == KEYS => TimerKey::Keys,
            _ if member == SCHEDULES => TimerKey::Schedules,
            0 => TimerKey::Client(member >> 1),
            _ => TimerKey::Tube(member >> 1),
        }
    }
}

impl PlaceTable {
    #[cfg(any(test, feature = "test-support"))]
    fn get(&self, owner: TimerKey) -> u32 {
        let (table, number) = match owner {
            TimerKey::Client(number) => (&self.clients, number),
            TimerKey::Tube(number) => (&self.tubes, number),
            TimerKey::Extras => (&self.extras_store, 0),
            TimerKey::Keys => (&self.extras_store, 1),
            TimerKey::Schedules => (&self.extras_store, 2),
        };
        table.get(number as usize).copied().unwrap_or(NIL)
    }

    fn slot(&mut self, owner: TimerKey) -> &mut u32 {
        let (table, number) = match owner {
            TimerKey::Client(number) => (&mut self.clients, number as usize),
            TimerKey::Tube(number) => (&mut self.tubes, number as usize),
            TimerKey::Extras => (&mut self.extras_store, 0),
            TimerKey::Keys => (&mut self.extras_store, 1),
            TimerKey::Schedules => (&mut self.extras_store, 2),
        };
        if table.len() <= number {
            table.resize(number + 1, NIL);
        }
        &mut table[number]
    }
}

impl Places for PlaceTable {
    fn set_place(&mut self, member: u32, place: u32) {
        *self.slot(TimerKey::of(member)) = place;
    }
}

impl Deadlines {
    pub fn new() -> Deadlines {
        Deadlines { heap: Heap::new(), places: PlaceTable::default() }
    }

    /// Sets the deadline of `owner` to `at`, or removes it if `at` is [`Time::NEVER`].
    pub fn set(&mut self, owner: TimerKey, at: Time) {
        let place = *self.places.slot(owner);
        match (place, at) {
            (NIL, Time::NEVER) => {}
            (NIL, at) => self.heap.push(owner.key(at), owner.member(), &mut self.places),
            (place, Time::NEVER) => {
                self.heap.remove(place, &mut self.places);
                *self.places.slot(owner) = NIL;
            }
            (place, at) if self.heap.key_at(place).0 == at => {}
            (place, at) => self.heap.change(place, owner.key(at), &mut self.places),
        }
    }

    /// The next deadline and its timer.
    pub fn first(&self) -> Option<(Time, TimerKey)> {
        self.heap.first().map(|((at, _), member)| (at, TimerKey::of(member)))
    }

    /// Panics if the heap is not in order; for checks.
    #[cfg(any(test, feature = "test-support"))]
    pub fn check(&self) {
        self.heap.check(|member| self.places.get(TimerKey::of(member)));
    }

    /// All entries, in no particular order.
    #[cfg(any(test, feature = "test-support"))]
    pub fn iter(&self) -> impl Iterator<Item = (Time, TimerKey)> + '_ {
        self.heap.iter().map(|((at, _), member)| (at, TimerKey::of(member)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tube_comes_before_a_client_at_the_same_moment() {
        let mut deadlines = Deadlines::new();
        deadlines.set(TimerKey::Client(0), Time::from_nanos(5));
        deadlines.set(TimerKey::Tube(9), Time::from_nanos(5));
        assert_eq!(deadlines.first(), Some((Time::from_nanos(5), TimerKey::Tube(9))));
    }

    #[test]
    fn an_owner_has_one_entry_which_moves_and_goes() {
        let at = Time::from_nanos;
        let mut deadlines = Deadlines::new();
        deadlines.set(TimerKey::Client(7), at(30));
        deadlines.set(TimerKey::Tube(7), at(20));
        deadlines.set(TimerKey::Client(7), at(10));
        assert_eq!(deadlines.first(), Some((at(10), TimerKey::Client(7))));
        deadlines.set(TimerKey::Client(7), Time::NEVER);
        deadlines.set(TimerKey::Client(7), Time::NEVER);
        assert_eq!(deadlines.first(), Some((at(20), TimerKey::Tube(7))));
        assert_eq!(deadlines.iter().count(), 1);
    }
}
