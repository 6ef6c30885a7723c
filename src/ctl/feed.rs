//! Commands that are sent ahead of their replies, so that the server never waits for its client.
//!
//! Owns what is on its way: while the replies to one batch are read, the next one is there already. Batches are
//! bounded, in commands since nobody reads their replies meanwhile, and in bytes.

use std::collections::VecDeque;

use super::link::Link;
use super::problem::Problem;
use crate::client::Reply;

/// Commands of a batch; two batches are on their way at most. They fit into the system's buffers, should the server
/// stop reading for the sake of replies that are not read yet.
pub const AHEAD: usize = 512;

/// Bytes of a batch, unless one command has more.
const BYTES: usize = 64 * 1024;

/// What is done with each reply, and what its sender remembers.
pub type Hear<'a, T> = &'a mut dyn FnMut(T, Reply) -> Result<(), Problem>;

/// Commands on their way, each with what its sender remembers of it.
#[derive(Debug)]
pub struct Feed<T> {
    bytes: Vec<u8>,
    fresh: VecDeque<T>,
    sent: VecDeque<T>,
}

impl<T> Feed<T> {
    /// Nothing is on its way.
    pub fn new() -> Feed<T> {
        Feed { bytes: Vec::new(), fresh: VecDeque::new(), sent: VecDeque::new() }
    }

    /// One more command: the caller writes it into what is returned.
    pub fn add(&mut self, note: T) -> &mut Vec<u8> {
        self.fresh.push_back(note);
        &mut self.bytes
    }

    /// Sends a batch if it is full, and reads the replies to the one before it.
    pub fn flow(&mut self, link: &mut Link, each: Hear<T>) -> Result<(), Problem> {
        if self.bytes.len() < BYTES && self.fresh.len() < AHEAD {
            return Ok(());
        }
        self.push(link, each)
    }

    /// Sends what there is, and reads all replies.
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

/// Sends this command for each of these objects, and hands each reply on with the place of its object.
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

/// Appends a `put` with these tags, each of which has a space before it.
pub fn put(bytes: &mut Vec<u8>, (pri, delay, ttr): (u32, u32, u32), tags: &str, body: &[u8]) {
    bytes.extend_from_slice(format!("put {pri} {delay} {ttr} {}{tags}\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(b"\r\n");
}
