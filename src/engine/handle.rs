//! What is remembered of a tube or a client from one turn to another.
//!
//! Owns the check that a number still means what it meant. A tube that closes and a client that disconnects leave their
//! number to others, so a handle also has the number of the opening or of the connection, and whoever kept it finds nothing
//! instead of a stranger. A job needs no handle, because its id is never given again. Must not be used where a list tells
//! its members that something is gone: that costs nothing, and cannot be out of date.

use std::marker::PhantomData;

use super::list::NIL;

/// Marks the handles of tubes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfTube {}

/// Marks the handles of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfClient {}

pub type TubeHandle = Handle<OfTube>;
pub type ClientHandle = Handle<OfClient>;

/// See the module's page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle<K> {
    pub(super) number: u32,
    /// Which of all that have had this number.
    pub(super) birth: u32,
    kind: PhantomData<K>,
}

impl<K> Handle<K> {
    pub(super) const fn new(number: u32, birth: u32) -> Handle<K> {
        Handle { number, birth, kind: PhantomData }
    }

    /// Of nothing.
    pub(super) const fn none() -> Handle<K> {
        Handle::new(NIL, 0)
    }
}

impl<K> Default for Handle<K> {
    fn default() -> Handle<K> {
        Handle::none()
    }
}
