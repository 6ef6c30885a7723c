//! Client numbers, and handles that refer to a tube or client across turns.
//!
//! Owns the check whether a number still refers to the same tube or client. Numbers of closed tubes and disconnected
//! clients are reused, so a handle also contains a count of the number's owners. An outdated handle finds nothing.
//! Job IDs are never reused, so jobs need no handles. Must not be used where a list already removes dead members.

use std::marker::PhantomData;

use super::NIL;

/// The number of a client. Numbers are reused after clients disconnect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientId(pub u32);

/// The holder of leased jobs: the first client, which belongs to the engine and never disconnects.
pub const NOBODY: ClientId = ClientId(0);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfTube {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfClient {}

pub type TubeHandle = Handle<OfTube>;
pub type ClientHandle = Handle<OfClient>;

/// A number together with the count of its owners, which identifies a specific owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle<K> {
    pub(in crate::engine) number: u32,
    /// The count of successive owners when the handle was created.
    pub(in crate::engine) birth: u32,
    kind: PhantomData<K>,
}

impl<K> Handle<K> {
    pub(in crate::engine) const fn new(number: u32, birth: u32) -> Handle<K> {
        Handle { number, birth, kind: PhantomData }
    }
}

/// A handle that refers to nothing.
impl<K> Default for Handle<K> {
    fn default() -> Handle<K> {
        Handle::new(NIL, 0)
    }
}
