//! The bodies of all jobs. Small bodies are copied into pages of equal-sized entries. Unlike separate allocations,
//! entries need no allocator headers and do not fragment the heap. An empty page can be returned to the system.
//! Enforces promise P3 of beanpole-promises(7).

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use slab::Slab;

use super::{replace_idle, NIL};

/// Larger bodies are shared with replies. At this size, sharing a body takes about as long as copying it.
pub const COPY_MAX: usize = 4096;

/// A small body is owned, because a shared body takes 16 bytes more. A large body is shared with output buffers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    Small(Box<[u8]>),
    Large(Arc<Box<[u8]>>),
}

impl Body {
    pub fn copy(bytes: &[u8]) -> Option<Body> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len()).ok()?;
        copy.extend_from_slice(bytes);
        Some(Body::from(copy))
    }

    pub fn bytes(&self) -> &[u8] {
        self.borrow().bytes()
    }

    pub fn borrow(&self) -> BodyRef<'_> {
        match self {
            Body::Small(bytes) => BodyRef::Small(bytes),
            Body::Large(bytes) => BodyRef::Large(bytes),
        }
    }
}

impl Deref for Body {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::Small(Box::default())
    }
}

#[derive(Clone, Copy, Debug)]
pub enum BodyRef<'a> {
    Small(&'a [u8]),
    Large(&'a Arc<Box<[u8]>>),
}

impl<'a> BodyRef<'a> {
    pub fn bytes(self) -> &'a [u8] {
        match self {
            BodyRef::Small(bytes) => bytes,
            BodyRef::Large(bytes) => bytes,
        }
    }

    pub fn len(self) -> usize {
        self.bytes().len()
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        match bytes.into_boxed_slice() {
            small if small.len() <= COPY_MAX => Body::Small(small),
            large => Body::Large(Arc::new(large)),
        }
    }
}

impl From<&[u8]> for Body {
    fn from(bytes: &[u8]) -> Body {
        Body::from(bytes.to_vec())
    }
}

/// Larger bodies are not copied into pages, because copying would take too long while the engine is locked.
pub const PAGED_MAX: usize = 1024;
/// The minimum page size in bytes. The allocator returns a freed block of this size to the system immediately.
const PAGE: usize = 128 * 1024;
const CLASSES: usize = 32;
/// Larger bodies are freed after the engine's lock is released, because unmapping them is slow.
const SLOW_TO_FREE: usize = 64 * 1024;
/// The maximum number of bodies that one call to `check_in_flight` checks.
const MAX_CHECKED: usize = 32;

#[derive(Clone, Copy, Debug)]
pub struct BodyKey {
    /// The index in the body's size class, or in [`Bodies::whole`].
    position: u32,
    length: u32,
}

pub trait NewBody: Deref<Target = [u8]> {
    fn store(self, bodies: &mut Bodies) -> BodyKey;
}

impl NewBody for Body {
    fn store(self, bodies: &mut Bodies) -> BodyKey {
        bodies.add(self)
    }
}

impl NewBody for &[u8] {
    fn store(self, bodies: &mut Bodies) -> BodyKey {
        bodies.copy(self)
    }
}

#[derive(Debug)]
pub struct Bodies {
    pub classes: [Class; CLASSES],
    pub whole: Slab<Body>,
    /// Bytes of vacated page entries.
    pub spare: u64,
    /// Removed bodies that unsent replies still share.
    in_flight: VecDeque<InFlight>,
    pub in_flight_bytes: u64,
    pub held: u64,
    released: Vec<Body>,
}

#[derive(Debug)]
struct InFlight {
    bytes: Weak<Box<[u8]>>,
    length: u64,
    /// Set for a body above [`SLOW_TO_FREE`], so that the thread that sends the last reply does not free the body.
    kept: Option<Arc<Box<[u8]>>>,
}

#[derive(Debug)]
pub struct Class {
    size: usize,
    /// The binary logarithm of the number of entries per page.
    bits: u32,
    pub pages: Vec<Page>,
    open: u32,
    /// The only allocated page without bodies, or [`NIL`].
    idle: u32,
    spare: u64,
}

#[derive(Debug)]
pub struct Page {
    bytes: Vec<u8>,
    /// Each vacated entry starts with the number of the next vacated entry, or [`NIL`].
    first_vacant: u32,
    pub held: u32,
    next_open: u32,
}

impl BodyKey {
    pub fn len(self) -> usize {
        self.length as usize
    }
}

const fn class_of(length: usize) -> usize {
    let last = length.saturating_sub(1);
    if last < 128 {
        return last / 16;
    }
    let doubling = last.ilog2() as usize - 7;
    doubling * 8 + (last >> (doubling + 4))
}

const fn size_of_class(class: usize) -> usize {
    match class {
        0..8 => (class + 1) * 16,
        _ => (class % 8 + 9) << (class / 8 + 3),
    }
}

impl Page {
    const EMPTY: Page = Page { bytes: Vec::new(), first_vacant: NIL, held: 0, next_open: NIL };
}

impl Class {
    fn new(class: usize) -> Class {
        let size = size_of_class(class);
        let bits = (PAGE / size).next_power_of_two().trailing_zeros();
        Class { size, bits, pages: Vec::new(), open: NIL, idle: NIL, spare: 0 }
    }

    fn add(&mut self, body: &[u8]) -> u32 {
        if self.open == NIL {
            self.open = self.pages.len() as u32;
            self.pages.push(Page::EMPTY);
        }
        let number = self.open;
        if self.idle == number {
            self.idle = NIL;
        }
        let page = &mut self.pages[number as usize];
        page.held += 1;
        let mut entry = page.first_vacant;
        if entry == NIL {
            if page.bytes.capacity() == 0 {
                page.bytes.reserve_exact(self.size << self.bits);
            }
            entry = (page.bytes.len() / self.size) as u32;
            page.bytes.extend_from_slice(body);
            page.bytes.resize((entry as usize + 1) * self.size, 0);
        } else {
            let place = &mut page.bytes[entry as usize * self.size..][..self.size];
            page.first_vacant = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
            place[..body.len()].copy_from_slice(body);
            self.spare -= self.size as u64;
        }
        if page.held == 1 << self.bits {
            self.open = page.next_open;
        }
        number << self.bits | entry
    }

    #[inline]
    fn remove(&mut self, position: u32, see: impl FnOnce(&[u8])) {
        let (number, entry) = self.split(position);
        let page = &mut self.pages[number];
        if page.held == 1 << self.bits {
            page.next_open = std::mem::replace(&mut self.open, number as u32);
        }
        let bytes = &mut page.bytes[entry as usize * self.size..][..self.size];
        see(bytes);
        bytes[..4].copy_from_slice(&page.first_vacant.to_le_bytes());
        page.first_vacant = entry;
        page.held -= 1;
        self.spare += self.size as u64;
        if page.held == 0 {
            self.rest(number as u32);
        }
    }

    fn rest(&mut self, number: u32) {
        if let Some(gone) = replace_idle(&mut self.idle, number, |number| self.pages[number as usize].bytes.as_ptr()) {
            let page = &mut self.pages[gone as usize];
            self.spare -= page.bytes.len() as u64;
            *page = Page { next_open: page.next_open, ..Page::EMPTY };
        }
    }

    fn get(&self, position: u32) -> &[u8] {
        let (number, entry) = self.split(position);
        &self.pages[number].bytes[entry as usize * self.size..]
    }

    fn split(&self, position: u32) -> (usize, u32) {
        ((position >> self.bits) as usize, position & ((1 << self.bits) - 1))
    }
}

impl Default for Bodies {
    fn default() -> Bodies {
        let (classes, in_flight) = (std::array::from_fn(Class::new), VecDeque::new());
        Bodies { classes, whole: Slab::new(), spare: 0, in_flight, in_flight_bytes: 0, held: 0, released: Vec::new() }
    }
}

impl Bodies {
    pub fn add(&mut self, body: Body) -> BodyKey {
        if body.len() <= PAGED_MAX {
            return self.copy(body.bytes());
        }
        self.held += body.len() as u64;
        BodyKey { length: body.len() as u32, position: self.whole.insert(body) as u32 }
    }

    pub fn copy(&mut self, body: &[u8]) -> BodyKey {
        if body.len() > PAGED_MAX {
            return self.add(Body::from(body));
        }
        let class = &mut self.classes[class_of(body.len())];
        let before = class.spare;
        let position = class.add(body);
        self.spare -= before - class.spare;
        self.held += body.len() as u64;
        BodyKey { position, length: body.len() as u32 }
    }

    pub fn remove(&mut self, key: BodyKey) {
        self.remove_with(key, |_| ());
    }

    /// Calls `see` with the body, then removes the body. A separate lookup would take as long as the removal.
    #[inline]
    pub fn remove_with(&mut self, key: BodyKey, see: impl FnOnce(&[u8])) {
        self.held -= key.len() as u64;
        if key.len() > PAGED_MAX {
            let body = self.whole.remove(key.position as usize);
            see(body.bytes());
            if matches!(&body, Body::Large(bytes) if Arc::strong_count(bytes) > 1) {
                self.note_in_flight(&body);
            } else if body.len() > SLOW_TO_FREE {
                self.released.push(body);
            }
        } else {
            let class = &mut self.classes[class_of(key.len())];
            let before = class.spare;
            class.remove(key.position, |bytes| see(&bytes[..key.len()]));
            self.spare = self.spare + class.spare - before;
        }
    }

    pub fn note_in_flight(&mut self, body: &Body) {
        if let Body::Large(bytes) = body {
            let length = bytes.len();
            let kept = (length > SLOW_TO_FREE).then(|| bytes.clone());
            self.in_flight.push_back(InFlight { bytes: Arc::downgrade(bytes), length: length as u64, kept });
            self.in_flight_bytes += length as u64;
        }
    }

    #[inline]
    pub fn check_in_flight(&mut self) {
        if !self.in_flight.is_empty() {
            self.check_some();
        }
    }

    fn check_some(&mut self) {
        for _ in 0..self.in_flight.len().min(MAX_CHECKED) {
            let Some(in_flight) = self.in_flight.pop_front() else { return };
            if in_flight.bytes.strong_count() == usize::from(in_flight.kept.is_some()) {
                self.in_flight_bytes -= in_flight.length;
                self.released.extend(in_flight.kept.map(Body::Large));
            } else {
                self.in_flight.push_back(in_flight);
            }
        }
        if self.in_flight.is_empty() && self.in_flight.capacity() > MAX_CHECKED {
            self.in_flight = VecDeque::new();
        }
    }

    /// Takes the removed bodies above [`SLOW_TO_FREE`], which the caller must free after unlocking the engine.
    pub fn take_released(&mut self) -> Vec<Body> {
        std::mem::take(&mut self.released)
    }

    pub fn get(&self, key: BodyKey) -> BodyRef<'_> {
        if key.len() > PAGED_MAX {
            return self.whole[key.position as usize].borrow();
        }
        BodyRef::Small(&self.classes[class_of(key.len())].get(key.position)[..key.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_is_owned_large_is_shared() {
        assert!(matches!(Body::from(vec![1; COPY_MAX]), Body::Small(_)));
        let large = Body::from(vec![1; COPY_MAX + 1]);
        assert_eq!(large.clone().bytes().as_ptr(), large.bytes().as_ptr());
    }

    #[test]
    fn classes_are_tight_and_in_order() {
        let mut before = (0, 16);
        for length in 0..=PAGED_MAX {
            let class = class_of(length);
            let size = size_of_class(class);
            assert!(size >= length && size - length <= 16.max(length / 8), "{length} bytes in {size}");
            assert!((class, size) == before || (class == before.0 + 1 && size > before.1), "{length} bytes");
            before = (class, size);
        }
        assert_eq!(before, (CLASSES - 1, PAGED_MAX));
    }

    // Tests promise P3 of beanpole-promises(7).
    #[test]
    fn bodies_of_any_length_remain_unchanged_while_others_are_removed() {
        let body = |number: usize| vec![number as u8; number * 7 % 1300];
        let mut bodies = Bodies::default();
        let mut keys: Vec<Option<BodyKey>> =
            (0..5000).map(|number| Some(bodies.add(Body::from(body(number))))).collect();
        for round in 2..6 {
            for number in (0..5000).step_by(round) {
                match keys[number].take() {
                    Some(key) => bodies.remove(key),
                    None => keys[number] = Some(bodies.copy(&body(number))),
                }
            }
            for (number, key) in keys.iter().enumerate().filter_map(|(number, key)| Some((number, (*key)?))) {
                assert_eq!(bodies.get(key).bytes(), body(number), "body {number}");
            }
        }
    }

    #[test]
    fn a_body_that_a_reply_shares_takes_memory_until_it_is_sent() {
        let mut bodies = Bodies::default();
        let body = |length| Body::from(vec![1; length]);
        let replies: Vec<Body> = (0..100).map(|_| body(5000)).collect();
        let keys: Vec<BodyKey> = replies.iter().map(|body| bodies.add(body.clone())).collect();
        let (alone, small) = (bodies.add(body(5000)), bodies.add(body(2000)));
        [alone, small].into_iter().chain(keys).for_each(|key| bodies.remove(key));
        bodies.check_in_flight();
        assert_eq!(bodies.in_flight_bytes, 500_000);
        drop(replies);
        for _ in 0..=100 / MAX_CHECKED {
            bodies.check_in_flight();
        }
        assert_eq!((bodies.in_flight_bytes, bodies.in_flight.capacity()), (0, 0));
    }

    #[test]
    fn vacated_bytes_of_pages_are_counted() {
        let mut bodies = Bodies::default();
        for length in [16, 300, 1000] {
            let keys: Vec<BodyKey> = (0..10_000).map(|_| bodies.copy(&vec![1; length])).collect();
            let before = bodies.spare;
            let (few, most): (Vec<_>, Vec<_>) = keys.into_iter().enumerate().partition(|(number, _)| number % 100 == 0);
            let left = (most.len() * size_of_class(class_of(length))) as u64;
            most.into_iter().for_each(|(_, key)| bodies.remove(key));
            assert_eq!(bodies.spare - before, left);
            let again: Vec<BodyKey> = (0..1000).map(|_| bodies.copy(&vec![1; length])).collect();
            assert_eq!(bodies.spare - before, left / 99 * 89);
            again.into_iter().chain(few.into_iter().map(|(_, key)| key)).for_each(|key| bodies.remove(key));
            assert!(bodies.spare - before <= 2 * PAGE as u64, "one page of the class may be kept");
        }
    }

    #[test]
    fn all_empty_pages_except_one_are_freed() {
        let mut bodies = Bodies::default();
        let keys: Vec<BodyKey> = (0..10_000).map(|_| bodies.copy(&[1; 64])).collect();
        let of_64 = class_of(64);
        assert_eq!(bodies.classes[of_64].pages.len(), 5);
        keys.iter().rev().for_each(|&key| bodies.remove(key));
        let kept = bodies.classes[of_64].pages.iter().filter(|page| page.bytes.capacity() > 0).count();
        assert_eq!(kept, 1);
    }
}
