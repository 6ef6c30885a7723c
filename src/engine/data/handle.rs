//! Which client, and what is remembered of a tube or a client from one turn to another.
//!
//! Owns the check that a number still means what it meant. A tube that closes and a client that disconnects leave their
//! number to others, so a handle also has the number of the opening or of the connection, and whoever kept it finds
//! nothing instead of a stranger. A job needs no handle, because its id is never given again. Must not be used where a
//! list tells its members that something is gone: that costs nothing, and cannot be out of date.

use std::marker::PhantomData;

use super::list::NIL;

/// A client's number; may be given again after it has disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientId(pub u32);

/// The client that holds what was leased: one of the engine's own, the first, which never disconnects.
pub const NOBODY: ClientId = ClientId(0);

/// Marks the handles of tubes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfTube {}

/// Marks the handles of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfClient {}

pub type TubeHandle = Handle<OfTube>;
pub type ClientHandle = Handle<OfClient>;

/// A number, and which of all that have had this number is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle<K> {
    pub(in crate::engine) number: u32,
    /// Which of all that have had this number.
    pub(in crate::engine) birth: u32,
    kind: PhantomData<K>,
}

impl<K> Handle<K> {
    pub(in crate::engine) const fn new(number: u32, birth: u32) -> Handle<K> {
        Handle { number, birth, kind: PhantomData }
    }

    /// Returns a handle that finds nothing.
    pub(in crate::engine) const fn none() -> Handle<K> {
        Handle::new(NIL, 0)
    }
}

impl<K> Default for Handle<K> {
    fn default() -> Handle<K> {
        Handle::none()
    }
}
