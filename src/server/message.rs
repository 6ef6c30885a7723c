//! What other threads tell a pool thread.
//!
//! Owns the kinds of messages. `handle` sends them, and `pool` does what they say.

use std::sync::Arc;

use crossbeam_channel::Sender;

use super::admission::Permit;
use super::socket::{PeerAddress, Stream};
use crate::access::AccessTable;
use crate::protocol::Wire;

/// What other threads tell a pool thread.
#[derive(Debug)]
pub enum Message {
    /// This connection is yours; who it is, what it speaks, and what it gives back when it is gone.
    Adopt(Stream, PeerAddress, Wire, Permit),
    /// Look at this connection again. It may be gone, and its number another's: looking does no harm.
    Resume(usize),
    /// There is a new access file.
    Renew(Arc<AccessTable>),
    /// Tell here when nothing that had arrived before is left to be done.
    Quiesce(Sender<()>),
    /// Send what waits, and end.
    Stop,
}
