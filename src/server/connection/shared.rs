//! Turns that several connections share. If each connection had its own turn, many pool threads would often move the
//! engine's lock and data between processors.

use slab::Slab;

use super::{Connection, Hub, Output, ThreadScratch, MIN_READ};

impl ThreadScratch {
    /// Executes the commands of a shared turn, and sends the replies. Commands stay pending if no steps are left.
    pub fn run_shared(&mut self, connections: &mut Slab<Connection>, hub: &Hub) {
        // The turn of the first connection executes the commands of the others.
        let (number, command, end) = self.joined.remove(0);
        let mut first = connections.remove(number);
        first.backlog().pending.extend(command);
        first.backlog().pending.iter_mut().for_each(|command| command.own(&self.shared_input[..end]));
        std::mem::swap(&mut self.lent, connections);
        first.work(hub, self);
        std::mem::swap(&mut self.lent, connections);
        assert_eq!(connections.insert(first), number, "the last vacated key must be reused");
        for ((number, command, end), out) in self.joined.drain(..).zip(&mut self.replies) {
            let connection = &mut connections[number];
            connection.backlog().pending.extend(command);
            connection.finish(&self.shared_input[..end], out, true, hub);
        }
        self.replies.iter_mut().filter(|out| out.footprint() > MIN_READ as u64).for_each(|out| *out = Output::new());
        self.shared_input.clear();
    }
}
