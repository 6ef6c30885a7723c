//! Log lines about commands and dead letters. Must not log while the engine is locked: commands and dead letters are
//! recorded under the lock, and logged after it is released.

use std::sync::Arc;
use std::time::{Duration, Instant};

use log::kv::Value;
use log::{Level, Record};

use crate::engine::{ClientId, Engine, JobId, Span, Time};
use crate::protocol::{noted_job, reply_note, ClientRegistry, Context, Flow, LogSubject, Output, Request, Wire};
use crate::shared::lock_order::LeafMutex;

pub struct CommandEntry {
    client: ClientId,
    text: &'static str,
    subject: LogSubject,
    reply: String,
}

impl CommandEntry {
    pub fn told(client: ClientId, out: &Output, engine: &Engine, registry: &ClientRegistry, now: Time) -> CommandEntry {
        let (subject, reply) = (LogSubject::default(), reply_note(out, 0));
        let mut note = CommandEntry { client, text: "told", subject, reply };
        note.find_tube(engine, registry, now);
        note
    }

    /// If the tube is unknown, records the tube of the job that is named in the command or in a beanstalk reply.
    fn find_tube(&mut self, engine: &Engine, registry: &ClientRegistry, now: Time) {
        let is_beanstalk = registry.get(self.client).is_none_or(|info| info.wire == Wire::Beanstalk);
        let id = self.subject.id.map(JobId).or_else(|| noted_job(&self.reply).filter(|_| is_beanstalk));
        if let (Some(id), None) = (id, &self.subject.tube) {
            self.subject.tube = engine.job_stats(id, now).map(|job| job.tube.to_vec());
        }
    }

    /// Must be called with the engine unlocked.
    pub fn log(self) {
        let LogSubject { id, tube, size, numbers, .. } = self.subject;
        let tube = tube.map(|tube| String::from_utf8_lossy(&tube).into_owned());
        let mut fields = vec![("client", Value::from(self.client.0))];
        fields.extend(id.map(|id| ("id", Value::from(id))));
        fields.extend(tube.as_deref().map(|tube| ("tube", Value::from(tube))));
        fields.extend(size.map(|size| ("size", Value::from(size as u64))));
        fields.extend(numbers.into_iter().map(|(name, number)| (name, Value::from(number))));
        if !self.reply.is_empty() {
            fields.push(("reply", Value::from(&*self.reply)));
        }
        line(Level::Trace, self.text, &fields);
    }
}

pub struct TurnLog {
    pub client: ClientId,
    first: &'static str,
    count: usize,
    is_noting: bool,
    /// The current command, with the offset of its reply in the output.
    note: Option<(CommandEntry, usize)>,
    slow: Option<(Duration, Instant)>,
}

impl TurnLog {
    pub fn begin(client: ClientId, first: &Request, slow_millis: Option<u32>) -> TurnLog {
        let is_noting = log::log_enabled!(Level::Trace);
        let slow = slow_millis.map(|millis| (Duration::from_millis(millis.into()), Instant::now()));
        let first = if slow.is_some() { first.name() } else { "" };
        TurnLog { client, first, count: 0, is_noting, note: None, slow }
    }

    /// Records a command before its execution, which may delete the job of the command.
    pub fn before(&mut self, request: &Request, context: &Context, out: &Output) {
        self.count += 1;
        if !self.is_noting {
            return;
        }
        let mut subject = request.log_subject();
        if subject.uses_tube && subject.tube.is_none() {
            subject.tube = Some(context.engine.used(self.client).to_vec());
        }
        let mut note = CommandEntry { client: self.client, text: request.name(), subject, reply: String::new() };
        note.find_tube(context.engine, context.registry, context.now);
        self.note = Some((note, out.len()));
    }

    pub fn after(&mut self, flow: &Flow, context: &Context, out: &Output, notes: &mut Vec<CommandEntry>) {
        let Some((mut note, from)) = self.note.take() else { return };
        note.reply = match flow {
            Flow::Wait | Flow::WaitForInput => "waits".to_owned(),
            _ => reply_note(out, from),
        };
        note.find_tube(context.engine, context.registry, context.now);
        notes.push(note);
    }

    pub fn slow_reply(&self) -> Option<SlowReply> {
        let (limit, _) = self.slow?;
        Some(SlowReply { limit, since: Instant::now(), client: self.client, command: self.first })
    }

    pub fn log_if_slow(self, locked: Duration) {
        let Some((limit, begin)) = self.slow else { return };
        let total = begin.elapsed();
        if total >= limit {
            let fields = [
                ("client", Value::from(self.client.0)),
                ("command", Value::from(self.first)),
                ("commands", Value::from(self.count as u64)),
                ("total-ms", Value::from(millis(total))),
                ("lock-ms", Value::from(millis(locked))),
            ];
            line(Level::Warn, "slow", &fields);
        }
    }
}

fn line(level: Level, text: &str, fields: &[(&str, Value)]) {
    let mut record = Record::builder();
    record.level(level).target(module_path!()).key_values(&fields);
    log::logger().log(&record.args(format_args!("{text}")).build());
}

#[derive(Clone, Copy, Debug)]
pub struct SlowReply {
    limit: Duration,
    since: Instant,
    client: ClientId,
    command: &'static str,
}

impl SlowReply {
    pub fn log(self) {
        let waited = self.since.elapsed();
        if waited >= self.limit {
            let (client, command) = (Value::from(self.client.0), Value::from(self.command));
            let fields = [("client", client), ("command", command), ("binlog-ms", Value::from(millis(waited)))];
            line(Level::Warn, "slow", &fields);
        }
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

const PAUSE: Span = Span::from_secs(1);

/// A dead letter that stays in its tube, the name of this tube, and the dead-letter tube that cannot accept the job.
pub type Stay = (JobId, Arc<[u8]>, Arc<[u8]>);

/// The earliest time of the next warning, and the number of unlogged dead letters.
#[derive(Default)]
pub struct Stays(LeafMutex<(Time, u64)>);

impl Stays {
    pub fn log(&self, stays: &mut Vec<Stay>, now: Time) {
        let mut state = self.0.lock();
        let count = state.1 + stays.len() as u64;
        let Some((job, from, dead)) = stays.drain(..).next_back() else { return };
        if now < state.0 {
            state.1 = count;
            return;
        }
        *state = (now + PAUSE, 0);
        drop(state);
        let (from, dead) = (from.escape_ascii(), dead.escape_ascii());
        let others = if count > 1 { format!("; so were {} others", count - 1) } else { String::new() };
        log::warn!("job {}: buried in tube {from}, since its dead-letter tube {dead} cannot take it{others}", job.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Body, Limits, NewJob, Span};
    use crate::protocol::Wire;

    /// A Gearman client can choose a function name that makes a `status` reply look like a reserved beanstalk job.
    #[test]
    fn only_beanstalk_replies_name_a_job() {
        let (mut engine, mut registry) = (Engine::new(Limits::NONE), ClientRegistry::new(false));
        let client = engine.connect();
        let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(1), body: Body::from(b"x".to_vec()) };
        assert_eq!(engine.put(client, new, Time::default()), Ok(JobId(1)));
        let mut out = Output::new();
        out.text().extend_from_slice(b"FOUND 1 of\t0\t0\t0\n.\n");
        for (wire, tube) in [(Wire::Beanstalk, Some(b"default".to_vec())), (Wire::Gearman, None)] {
            registry.enter(client, wire, &"here");
            assert_eq!(CommandEntry::told(client, &out, &engine, &registry, Time::default()).subject.tube, tube);
        }
    }
}
