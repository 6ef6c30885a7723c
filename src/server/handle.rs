//! The way to a pool thread.
//!
//! Owns the thread's inbox and whether it sleeps. Must not know what the thread does with a message.

use std::sync::Arc;

use crossbeam_channel::Sender;
use mio::Waker;

use super::memory::Memory;
use super::message::Message;
use crate::shared::atomic::{AtomicBool, Ordering};
use crate::shared::lease::Lease;

/// The way to the thread that owns a connection.
#[derive(Debug)]
pub struct ThreadHandle {
    inbox: Sender<Message>,
    /// Wakes it up to look there.
    waker: Waker,
    /// It has said that it will sleep; whoever takes that back wakes it.
    asleep: AtomicBool,
    /// The account that its connections charge their output to.
    pub memory: Arc<Memory>,
    /// Until when they may be answered.
    pub lease: Arc<Lease>,
}

impl ThreadHandle {
    /// The way to a thread that reads this inbox, and waits where `waker` wakes it.
    pub fn new(inbox: Sender<Message>, waker: Waker, memory: Arc<Memory>, lease: Arc<Lease>) -> ThreadHandle {
        ThreadHandle { inbox, waker, asleep: AtomicBool::new(false), memory, lease }
    }

    /// Leaves a message and wakes the thread, if it sleeps.
    pub fn send(&self, message: Message) {
        // Both fail only when the thread has ended, and then nobody needs to be told.
        let _ = self.inbox.send(message);
        // In one order with the thread's own two steps (the channel's are of that kind too): either it is seen to sleep
        // here, or it has seen the message.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            let _ = self.waker.wake();
        }
    }

    /// The thread will look into its inbox once more and then sleep.
    pub fn will_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// The thread is awake, and will look into its inbox before it sleeps again.
    pub fn is_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}
