//! Reading from a TLS peer, and identifying the client after the handshake.

use std::io::ErrorKind;

use super::{Connection, Input, ThreadScratch, LAST_BUFFER};
use crate::access::Credential;
use crate::server::gate::LogLimit;
use crate::server::hub::Hub;

static FAILURES: LogLimit = LogLimit::new();

impl Connection {
    pub(super) fn read_tls(&mut self, input: &mut Input, max: usize, hub: &Hub, thread: &mut ThreadScratch) -> usize {
        let outbox = self.outbox.clone();
        let Some(session) = &outbox.tls else { return 0 };
        let mut session = session.lock();
        let was_handshaking = session.is_handshaking();
        let (dialogue, buffer) = (&mut self.dialogue, &mut thread.buffer);
        let room = hub.memory.room();
        let arrived = session.read(&outbox.stream, max, &mut |mut bytes| {
            while let Some(gap) = dialogue.gap(room).filter(|gap| !gap.is_empty() && !bytes.is_empty()) {
                let count = gap.len().min(bytes.len());
                gap[..count].copy_from_slice(&bytes[..count]);
                dialogue.filled(count);
                bytes = &bytes[count..];
            }
            let end = input.end + bytes.len();
            if buffer.len() < end {
                buffer.resize(end.max(LAST_BUFFER), 0);
            }
            buffer[input.end..end].copy_from_slice(bytes);
            input.end = end;
        });
        let names = (was_handshaking && !session.is_handshaking()).then(|| session.names());
        drop(session);
        if let Some(names) = names {
            self.finish_handshake(names, hub);
        }
        match arrived {
            Ok(arrived) => {
                self.backlog().received = true;
                self.ready.readable = arrived.more || self.ready.half_closed || self.ready.urgent;
                if arrived.ended {
                    self.end_input();
                }
                arrived.count.max(1)
            }
            Err(error) => {
                if was_handshaking && !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
                    let peer = self.outbox.peer;
                    FAILURES.log(log::Level::Info, format_args!("{peer}: the TLS handshake failed: {error}"));
                }
                self.fail_to_read(&error);
                1
            }
        }
    }

    fn finish_handshake(&mut self, names: Vec<String>, hub: &Hub) {
        if let Some(gate) = &hub.gate {
            let credentials = names.into_iter().map(|name| Credential::Certificate(name.into())).collect();
            self.set_access(Box::new(gate.client((&self.outbox.stream, self.outbox.peer), credentials)));
            hub.identify(self.client, self.access.as_ref().and_then(|access| access.name()));
        }
        if !self.is_unauthenticated() {
            self.probation = None;
        }
    }
}
