//! Commands that are sent before the previous replies are read, so that the server never waits for its client.
//!
//! Owns the commands in progress: the next batch is already sent while the replies to one batch are read. Batches are
//! bounded, in commands because their replies are not read meanwhile, and in bytes.

use std::collections::VecDeque;

use super::link::Link;
use super::problem::Problem;
use crate::client::Reply;

/// The number of commands of a batch; at most two batches are in progress. They fit into the system's buffers if the
/// server stops reading because of unread replies.
pub const AHEAD: usize = 512;

/// The size of a batch in bytes, unless one command is larger.
const BYTES: usize = 64 * 1024;

/// The handler of each reply and its note.
pub type Hear<'a, T> = &'a mut dyn FnMut(T, Reply) -> Result<(), Problem>;

/// The commands in progress, each with a note of its sender.
#[derive(Debug)]
pub struct Feed<T> {
    bytes: Vec<u8>,
    fresh: VecDeque<T>,
    sent: VecDeque<T>,
}

impl<T> Feed<T> {
    /// Returns a feed without commands.
    pub fn new() -> Feed<T> {
        Feed { bytes: Vec::new(), fresh: VecDeque::new(), sent: VecDeque::new() }
    }

    /// Adds a command with its note. The caller writes the command into the returned buffer.
    pub fn add(&mut self, note: T) -> &mut Vec<u8> {
        self.fresh.push_back(note);
        &mut self.bytes
    }

    /// Sends a batch if it is full, and reads the replies to the previous one.
    pub fn flow(&mut self, link: &mut Link, each: Hear<T>) -> Result<(), Problem> {
        if self.bytes.len() < BYTES && self.fresh.len() < AHEAD {
            return Ok(());
        }
        self.push(link, each)
    }

    /// Sends the remaining commands, and reads all replies.
    pub fn finish(&mut self, link: &mut Link, each: Hear<T>) -> Result<(), Problem> {
        self.push(link, each)?;
        self.push(link, each)
    }

    fn push(&mut self, link: &mut Link, each: Hear<T>) -> Result<(), Problem> {
        if !self.bytes.is_empty() {
            link.send(&self.bytes)?;
            self.bytes.clear();
        }
        while let Some(note) = self.sent.pop_front() {
            let reply = link.reply()?;
            each(note, reply)?;
        }
        std::mem::swap(&mut self.sent, &mut self.fresh);
        Ok(())
    }
}

/// Sends this command for each of these objects, and passes on each reply with the index of its object.
pub fn each(
    link: &mut Link,
    verb: &str,
    objects: &mut dyn Iterator<Item = String>,
    hear: Hear<usize>,
) -> Result<(), Problem> {
    let mut feed = Feed::new();
    for (place, object) in objects.enumerate() {
        feed.add(place).extend_from_slice(format!("{verb} {object}\r\n").as_bytes());
        feed.flow(link, hear)?;
    }
    feed.finish(link, hear)
}

/// Appends a `put` with these tags, each of which is preceded by a space.
pub fn put(bytes: &mut Vec<u8>, (pri, delay, ttr): (u32, u32, u32), tags: &str, body: &[u8]) {
    bytes.extend_from_slice(format!("put {pri} {delay} {ttr} {}{tags}\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(b"\r\n");
}
