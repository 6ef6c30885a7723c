//! Numbers of clients, and handles, which refer to a tube or client across turns.
//!
//! Owns the check that a number still has its meaning. A closed tube or disconnected client frees its number for
//! others, so a handle also contains the number of the opening or connection, and an outdated handle finds nothing
//! instead of a stranger. A job needs no handle, because its ID is never reused. Where a list notifies its members of a
//! removal, use no handle: the list costs nothing and is never outdated.

use std::marker::PhantomData;

use super::NIL;

/// The number of a client. It may be reused after the client has disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientId(pub u32);

/// The holder of leased jobs: a client of the engine itself, the first, which never disconnects.
pub const NOBODY: ClientId = ClientId(0);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfTube {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfClient {}

pub type TubeHandle = Handle<OfTube>;
pub type ClientHandle = Handle<OfClient>;

/// A number, and which of its successive owners is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle<K> {
    pub(in crate::engine) number: u32,
    /// Counts the successive owners of the number.
    pub(in crate::engine) birth: u32,
    kind: PhantomData<K>,
}

impl<K> Handle<K> {
    pub(in crate::engine) const fn new(number: u32, birth: u32) -> Handle<K> {
        Handle { number, birth, kind: PhantomData }
    }

    /// Returns a handle that refers to nothing.
    pub(in crate::engine) const fn none() -> Handle<K> {
        Handle::new(NIL, 0)
    }
}

impl<K> Default for Handle<K> {
    fn default() -> Handle<K> {
        Handle::none()
    }
}
