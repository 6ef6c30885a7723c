//! Messages from other threads to a pool thread.
//!
//! Owns the kinds of messages. Must not send or process them.

use std::sync::Arc;

use crossbeam_channel::Sender;

use crate::access::AccessTable;

#[derive(Debug)]
pub enum Message {
    /// Harmless if the number was reused.
    Resume(usize),
    Renew(Arc<AccessTable>),
    /// Reply when all earlier input and messages have been processed.
    Quiesce(Sender<()>),
    Stop,
}
