//! The inbox of a pool thread, as seen by other threads.
//!
//! Owns the sending side of the inbox, and the flag that shows whether the thread is asleep. Must not process messages.

use std::sync::Arc;

use crossbeam_channel::Sender;
use mio::Waker;

use super::memory::Memory;
use super::message::Message;
use crate::shared::atomic::{AtomicBool, Ordering};
use crate::shared::lease::Lease;

#[derive(Debug)]
pub struct ThreadHandle {
    inbox: Sender<Message>,
    /// Wakes the thread if it sleeps in the poller.
    waker: Waker,
    /// `true` if the thread is going to sleep. Another thread that clears this flag must wake the thread.
    asleep: AtomicBool,
    /// The memory account that is charged for the output of the thread's connections.
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
        // sees the message after it sets the flag.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            let _ = self.waker.wake();
        }
    }

    /// Announces that the thread will check its inbox once more and then sleep.
    pub fn will_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Announces that the thread is awake and will check its inbox before it sleeps again.
    pub fn is_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}
