//! Listener threads: one per listening address, each in a blocking accept.
//!
//! Owns the handing of connections to pool threads, in turn. A shortage of files or memory makes it wait, never spin and
//! never end.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use super::delivery::Owner;
use super::hub::Hub;
use super::pool::Note;
use super::socket::{Listener, Stream};
use crate::protocol::Wire;

/// How long to wait when the system has no file or memory for one connection more.
const PAUSE: Duration = Duration::from_millis(50);

/// The pool, as listeners see it.
#[derive(Debug)]
pub struct Threads {
    /// The threads.
    pub owners: Vec<Arc<Owner>>,
    /// Counts connections, to give each thread every n-th.
    pub next: AtomicUsize,
}

/// Accepts connections until the hub is stopping.
pub fn run(listener: &Listener, wire: Wire, hub: &Arc<Hub>, threads: &Threads) {
    let mut short = false;
    let mut full = false;
    loop {
        let accepted = listener.accept();
        if hub.is_stopping() {
            return;
        }
        match accepted {
            Ok((stream, peer)) => {
                short = false;
                let admitted = hub.admit();
                if admitted {
                    let turn = threads.next.fetch_add(1, Ordering::Relaxed);
                    threads.owners[turn % threads.owners.len()].send(Note::Adopt(stream, peer, wire));
                } else {
                    turn_away(&stream, wire);
                    if !full {
                        log::warn!("{peer}: turned away, as are others from now on: too many connections");
                    }
                }
                full = !admitted;
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(error) => {
                if !short {
                    log::error!("{}: no connection can be accepted: {error}", listener.name());
                }
                short = true;
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Says why, as far as the socket takes it at once. What came already is read first: a close with bytes unread would reset
/// the connection, and the answer would be lost.
fn turn_away(stream: &Stream, wire: Wire) {
    let mut scrap = [0; 4096];
    let _ = stream.read(&mut [IoSliceMut::new(&mut scrap)]);
    let _ = stream.write(&[IoSlice::new(wire.too_many_connections())]);
}
