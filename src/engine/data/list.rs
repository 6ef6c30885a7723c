//! References by number: intrusive lists, client numbers, handles of tubes and clients. Must not depend on the members.

/// Refers to no member, as at the end of a list.
pub const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub struct Links {
    pub prev: u32,
    pub next: u32,
}

impl Links {
    pub const NONE: Links = Links { prev: NIL, next: NIL };
}

pub trait Linked {
    fn links(&self, member: u32) -> Links;
    fn links_mut(&mut self, member: u32) -> &mut Links;
}

/// Implements [`Linked`] for a store, from expressions for the links of a member.
macro_rules! linked {
    ($store:ty, |$this:ident, $member:ident| $links:expr, $links_mut:expr) => {
        impl $crate::engine::data::Linked for $store {
            fn links(&self, $member: u32) -> $crate::engine::data::Links {
                let $this = self;
                $links
            }
            fn links_mut(&mut self, $member: u32) -> &mut $crate::engine::data::Links {
                let $this = self;
                &mut $links_mut
            }
        }
    };
}
pub(in crate::engine) use linked;

/// A doubly linked list. The members store the links, so any member can be removed in constant time.
#[derive(Clone, Copy, Debug)]
pub struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> List {
        List::EMPTY
    }
}

impl List {
    pub const EMPTY: List = List { head: NIL, tail: NIL, len: 0 };

    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn first(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    pub fn last(&self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    /// `member` must be in no list.
    pub fn push_back(&mut self, member: u32, store: &mut impl Linked) {
        *store.links_mut(member) = Links { prev: self.tail, next: NIL };
        match self.tail {
            NIL => self.head = member,
            tail => store.links_mut(tail).next = member,
        }
        self.tail = member;
        self.len += 1;
    }

    /// `member` must be in this list.
    pub fn remove(&mut self, member: u32, store: &mut impl Linked) {
        let Links { prev, next } = store.links(member);
        match prev {
            NIL => self.head = next,
            prev => store.links_mut(prev).next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => store.links_mut(next).prev = prev,
        }
        *store.links_mut(member) = Links::NONE;
        self.len -= 1;
    }

    pub fn iter<'a>(&self, store: &'a impl Linked) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(self.first(), |&member| {
            let next = store.links(member).next;
            (next != NIL).then_some(next)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientId(pub u32);

/// The holder of leased jobs: the first client, which belongs to the engine and never disconnects.
pub const NOBODY: ClientId = ClientId(0);

/// A reference to a client (`Handle<ClientId>`) or a tube (`Handle<u32>`) that can be kept between calls. Numbers are
/// reused, but each owner of a number has a different `generation`, so an outdated handle finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle<N> {
    pub(in crate::engine) number: N,
    pub(in crate::engine) generation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Linked for Vec<Links> {
        fn links(&self, member: u32) -> Links {
            self[member as usize]
        }
        fn links_mut(&mut self, member: u32) -> &mut Links {
            &mut self[member as usize]
        }
    }

    #[test]
    fn members_leave_from_front_middle_and_back() {
        let mut store = vec![Links::NONE; 5];
        let mut list = List::EMPTY;
        for member in 0..5 {
            list.push_back(member, &mut store);
        }
        for gone in [2, 0, 4] {
            list.remove(gone, &mut store);
        }
        assert_eq!(list.iter(&store).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((list.first(), list.last(), list.len()), (Some(1), Some(3), 2));
        list.remove(1, &mut store);
        list.remove(3, &mut store);
        assert_eq!((list.first(), list.last(), list.len()), (None, None, 0));
    }
}
