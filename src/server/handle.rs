//! The inbox of a pool thread, as seen by other threads.

use std::sync::Arc;

use crossbeam_channel::Sender;
use mio::Waker;

use super::memory::Memory;
use crate::access::AccessTable;
use crate::shared::atomic::{AtomicBool, Ordering};
use crate::shared::lease::Lease;

#[derive(Debug)]
pub enum Message {
    /// Harmless if the number was reused.
    Resume(usize),
    Renew(Arc<AccessTable>),
    /// Drop the sender when all earlier input and messages have been processed.
    Quiesce(Sender<()>),
    Stop,
}

#[derive(Debug)]
pub struct ThreadHandle {
    inbox: Sender<Message>,
    waker: Waker,
    /// Set before the thread sleeps. Another thread that clears this flag must wake the thread.
    asleep: AtomicBool,
    pub memory: Arc<Memory>,
    /// Replies may be sent until this lease ends.
    pub lease: Arc<Lease>,
}

impl ThreadHandle {
    pub fn new(inbox: Sender<Message>, waker: Waker, memory: Arc<Memory>, lease: Arc<Lease>) -> ThreadHandle {
        ThreadHandle { inbox, waker, asleep: AtomicBool::new(false), memory, lease }
    }

    pub fn send(&self, message: Message) {
        // The channel and the waker fail only after the thread has ended.
        let _ = self.inbox.send(message);
        // Sequential consistency prevents a lost wake-up: either this thread sees the `asleep` flag, or the pool thread
        // sees the message.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            let _ = self.waker.wake();
        }
    }

    /// Called before the thread checks its inbox a last time and sleeps.
    pub fn will_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    pub fn is_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}
