//! Messages from other threads to a pool thread.
//!
//! Owns the kinds of messages. `handle` sends them, and `pool` acts on them.

use std::sync::Arc;

use crossbeam_channel::Sender;

use crate::access::AccessTable;

/// A message from another thread to a pool thread.
#[derive(Debug)]
pub enum Message {
    /// Check this connection again. The connection may have ended and its number may be reused, which is harmless.
    Resume(usize),
    /// Apply a new access file.
    Renew(Arc<AccessTable>),
    /// Reply here when everything that arrived before has been processed.
    Quiesce(Sender<()>),
    /// Send pending output, then end.
    Stop,
}
