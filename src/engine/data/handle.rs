//! Client numbers, and handles: references to a tube or client that can be stored between calls.
//!
//! Owns the check whether a number still refers to the same tube or client. Numbers of closed tubes and disconnected
//! clients are reused, so a handle also contains a count that distinguishes successive owners of a number. A lookup
//! with an outdated handle finds nothing. Job IDs are never reused, so jobs need no handles. Must not be used in lists
//! from which clients and tubes are removed when they disappear.

use std::marker::PhantomData;

use super::NIL;

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

/// A reference that can be kept between calls. Numbers of closed tubes and disconnected clients are reused, and `birth`
/// distinguishes their successive owners, so an outdated handle finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle<K> {
    pub(in crate::engine) number: u32,
    pub(in crate::engine) birth: u32,
    kind: PhantomData<K>,
}

impl<K> Handle<K> {
    pub(in crate::engine) const fn new(number: u32, birth: u32) -> Handle<K> {
        Handle { number, birth, kind: PhantomData }
    }
}

impl<K> Default for Handle<K> {
    fn default() -> Handle<K> {
        Handle::new(NIL, 0)
    }
}
