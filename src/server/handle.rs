//! The inbox of a pool thread, as other threads see it.
//!
//! Owns the sending end, and the state of the thread: asleep or awake. Must not know what the thread does with a
//! message.

use std::sync::Arc;

use crossbeam_channel::Sender;
use mio::Waker;

use super::memory::Memory;
use super::message::Message;
use crate::shared::atomic::{AtomicBool, Ordering};
use crate::shared::lease::Lease;

/// A handle to the thread that owns a connection.
#[derive(Debug)]
pub struct ThreadHandle {
    inbox: Sender<Message>,
    /// Wakes the thread so that it reads its inbox.
    waker: Waker,
    /// The thread has announced that it will sleep; the thread that clears this must wake it.
    asleep: AtomicBool,
    /// The account that its connections charge output to.
    pub memory: Arc<Memory>,
    /// Replies may be sent until this lease ends.
    pub lease: Arc<Lease>,
}

impl ThreadHandle {
    /// Creates a handle to the thread that reads `inbox` and can be woken through `waker`.
    pub fn new(inbox: Sender<Message>, waker: Waker, memory: Arc<Memory>, lease: Arc<Lease>) -> ThreadHandle {
        ThreadHandle { inbox, waker, asleep: AtomicBool::new(false), memory, lease }
    }

    /// Sends a message, and wakes the thread if it sleeps.
    pub fn send(&self, message: Message) {
        // Both fail only after the thread has ended, when it needs no message.
        let _ = self.inbox.send(message);
        // Sequentially consistent with the thread's own two steps (as the channel's operations are): either this sees
        // that the thread sleeps, or the thread has seen the message.
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
