//! What the log tells of commands: each of them with `-VV`, and slow ones.
//!
//! Owns which fields such a line has. While a command is carried out nothing is logged, only noted: the engine is
//! locked then.

use std::time::{Duration, Instant};

use log::kv::Value;
use log::{Level, Record};

use crate::engine::ClientId;
use crate::protocol::{Context, Flow, Output, Request, Subject};

/// Bytes of a reply that are told.
const SHOWN: usize = 60;

/// The first word of Gearman's replies, which are packets.
const PACKET: &[u8] = b"\0RES";

/// One command that was carried out.
#[derive(Debug)]
pub struct Note {
    command: &'static str,
    subject: Subject,
    /// Where its reply begins among the bytes that are on their way out.
    from: usize,
    reply: String,
}

/// What is noted of one turn of a client's commands, to be told when it is over.
#[derive(Debug)]
pub struct TurnLog {
    client: ClientId,
    /// The first command, and how many there were.
    first: &'static str,
    count: usize,
    /// None if commands are not told of one by one.
    notes: Option<Vec<Note>>,
    /// If slow ones are: how long they may take, and when the turn was asked for.
    slow: Option<(Duration, Instant)>,
}

impl TurnLog {
    /// Before the turn; `slow` is how many milliseconds it may take before it is told of, if that is limited.
    pub fn begin(client: ClientId, first: &Request, slow: Option<u32>) -> TurnLog {
        let notes = log::log_enabled!(Level::Trace).then(Vec::new);
        let slow = slow.map(|millis| (Duration::from_millis(millis.into()), Instant::now()));
        let is_told = notes.is_some() || slow.is_some();
        TurnLog { client, first: if is_told { first.name() } else { "" }, count: 0, notes, slow }
    }

    pub fn before(&mut self, request: &Request, context: &Context, out: &Output) {
        self.count += 1;
        let Some(notes) = &mut self.notes else { return };
        let mut subject = request.subject();
        if subject.uses_tube {
            subject.tube = Some(context.engine.used(self.client).to_vec());
        }
        notes.push(Note { command: request.name(), subject, from: out.len(), reply: String::new() });
    }

    pub fn after(&mut self, flow: &Flow, out: &Output) {
        if let Some(note) = self.notes.as_mut().and_then(|notes| notes.last_mut()) {
            note.reply = if matches!(flow, Flow::Wait) { "waits".to_owned() } else { shown(out, note.from) };
        }
    }

    /// The replies wait for the log from now on.
    pub fn hold(&self) -> Option<Held> {
        let (limit, _) = self.slow?;
        Some(Held { limit, since: Instant::now(), client: self.client, command: self.first })
    }

    /// Tells what there is to tell; the turn has waited so long for the engine's lock.
    pub fn tell(self, locked: Duration) {
        let client = ("client", Value::from(self.client.0));
        for note in self.notes.into_iter().flatten() {
            let Subject { id, tube, size, .. } = note.subject;
            let tube = tube.map(|tube| String::from_utf8_lossy(&tube).into_owned());
            let mut fields = vec![client.clone()];
            fields.extend(id.map(|id| ("id", Value::from(id))));
            fields.extend(tube.as_deref().map(|tube| ("tube", Value::from(tube))));
            fields.extend(size.map(|size| ("size", Value::from(size as u64))));
            if !note.reply.is_empty() {
                fields.push(("reply", Value::from(&*note.reply)));
            }
            line(Level::Trace, note.command, &fields);
        }
        let Some((limit, begin)) = self.slow else { return };
        let total = begin.elapsed();
        if total >= limit {
            let fields = [
                client,
                ("command", Value::from(self.first)),
                ("commands", Value::from(self.count as u64)),
                ("total-ms", Value::from(millis(total))),
                ("lock-ms", Value::from(millis(locked))),
            ];
            line(Level::Warn, "slow", &fields);
        }
    }
}

/// A line with fields behind its text.
fn line(level: Level, text: &str, fields: &[(&str, Value)]) {
    let target = module_path!();
    let logger = log::logger();
    logger.log(&Record::builder().args(format_args!("{text}")).level(level).target(target).key_values(&fields).build());
}

/// The first line of what was appended behind the first `from` bytes.
fn shown(out: &Output, from: usize) -> String {
    let mut left = from;
    let mut bytes = Vec::new();
    for chunk in out.chunks() {
        let skipped = left.min(chunk.len());
        left -= skipped;
        bytes.extend(chunk[skipped..].iter().take(SHOWN - bytes.len()));
    }
    if let Some(rest) = bytes.strip_prefix(PACKET) {
        let kind = rest.first_chunk().map_or(0, |kind| u32::from_be_bytes(*kind));
        return format!("packet {kind}");
    }
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    bytes[..end].iter().map(|byte| if matches!(byte, b' '..=b'~') { *byte as char } else { '.' }).collect()
}

/// Replies that wait for the log, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    limit: Duration,
    since: Instant,
    client: ClientId,
    command: &'static str,
}

impl Held {
    pub fn end(self) {
        let waited = self.since.elapsed();
        if waited >= self.limit {
            let fields = [
                ("client", Value::from(self.client.0)),
                ("command", Value::from(self.command)),
                ("binlog-ms", Value::from(millis(waited))),
            ];
            line(Level::Warn, "slow", &fields);
        }
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_reply_the_first_line_is_told() {
        let mut out = Output::new();
        out.text().extend_from_slice(b"INSERTED 1\r\nRESERVED 2 5\r\nhello\r\n");
        assert_eq!(
            (shown(&out, 0), shown(&out, 12), shown(&out, 33)),
            ("INSERTED 1".into(), "RESERVED 2 5".into(), String::new())
        );
        let mut packet = Output::new();
        packet.text().extend_from_slice(b"\0RES\0\0\0\x08\0\0\0\x05H:h:1");
        assert_eq!(shown(&packet, 0), "packet 8");
    }
}
