//! The server's ranked locks, implemented with shuttle. These locks do not check the lock order, because shuttle runs
//! all threads on one system thread.

pub use crate::shims::{Condvar, MutexGuard};

pub const ENGINE: u8 = 5;
pub const OUTPUT: u8 = 6;
pub const WAKE_UP: u8 = 7;
pub const HELD_REPLIES: u8 = 8;

pub type LeafMutex<T> = Mutex<T, 13>;

/// A lock whose rank is ignored.
#[derive(Debug, Default)]
pub struct Mutex<T, const RANK: u8>(crate::shims::Mutex<T>);

impl<T, const RANK: u8> Mutex<T, RANK> {
    pub fn new(value: T) -> Mutex<T, RANK> {
        Mutex(crate::shims::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}
