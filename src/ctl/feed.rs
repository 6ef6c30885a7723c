//! Pipelined commands, so that the server never waits for its client.
//!
//! Owns the commands in progress: while the replies to one batch are read, the next batch is already sent. Batches are
//! bounded in bytes and in commands.

use std::collections::VecDeque;

use super::link::Link;
use super::problem::Problem;
use crate::client::Reply;

/// The maximum number of commands in a batch. Two batches may be in progress. Their commands must fit into the system's
/// buffers, because the server stops reading if there are too many unread replies.
pub const AHEAD: usize = 512;

/// The maximum size of a batch in bytes, unless one command is larger.
const BYTES: usize = 64 * 1024;

/// The handler of each reply, and of the note about its command.
pub type OnReply<'a, T> = &'a mut dyn FnMut(T, Reply) -> Result<(), Problem>;

/// The commands in progress, each with a note for the handler of its reply.
#[derive(Debug)]
pub struct Feed<T> {
    bytes: Vec<u8>,
    unsent: VecDeque<T>,
    sent: VecDeque<T>,
}

impl<T> Feed<T> {
    pub fn new() -> Feed<T> {
        Feed { bytes: Vec::new(), unsent: VecDeque::new(), sent: VecDeque::new() }
    }

    /// Adds a command. The caller appends it to the returned buffer.
    pub fn add(&mut self, note: T) -> &mut Vec<u8> {
        self.unsent.push_back(note);
        &mut self.bytes
    }

    /// Sends a batch if it is full, and reads the replies to the previous one.
    pub fn flow(&mut self, link: &mut Link, each: OnReply<T>) -> Result<(), Problem> {
        if self.bytes.len() < BYTES && self.unsent.len() < AHEAD {
            return Ok(());
        }
        self.push(link, each)
    }

    /// Sends the remaining commands, and reads all replies.
    pub fn finish(&mut self, link: &mut Link, each: OnReply<T>) -> Result<(), Problem> {
        self.push(link, each)?;
        self.push(link, each)
    }

    fn push(&mut self, link: &mut Link, each: OnReply<T>) -> Result<(), Problem> {
        if !self.bytes.is_empty() {
            link.send(&self.bytes)?;
            self.bytes.clear();
        }
        while let Some(note) = self.sent.pop_front() {
            let reply = link.reply()?;
            each(note, reply)?;
        }
        std::mem::swap(&mut self.sent, &mut self.unsent);
        Ok(())
    }
}

/// Sends this command for each of these objects. Calls `on_reply` with the index of each object and the reply.
pub fn each(
    link: &mut Link,
    verb: &str,
    objects: &mut dyn Iterator<Item = String>,
    on_reply: OnReply<usize>,
) -> Result<(), Problem> {
    let mut feed = Feed::new();
    for (place, object) in objects.enumerate() {
        feed.add(place).extend_from_slice(format!("{verb} {object}\r\n").as_bytes());
        feed.flow(link, on_reply)?;
    }
    feed.finish(link, on_reply)
}

/// Appends a `put`. Each of its tags begins with a space.
pub fn put(bytes: &mut Vec<u8>, (pri, delay, ttr): (u32, u32, u32), tags: &str, body: &[u8]) {
    bytes.extend_from_slice(format!("put {pri} {delay} {ttr} {}{tags}\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(b"\r\n");
}
