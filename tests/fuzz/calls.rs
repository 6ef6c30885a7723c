//! Translates random bytes into calls to the engine, and compares the engine with the reference model.
//!
//! Owns the translation. `src/engine/tests` contains the calls, the reference model, and the comparison of the visible
//! state after each call.

use beanpole::internals::engine::{ClientId, Engine, JobId, Limits, Span, State, Time};

use crate::reference::calls::Call;
use crate::reference::comparing::{step, Stage};
use crate::reference::model::{JobTags, Model, Name};

/// Names that are used for tubes and for keys.
const TUBES: [Name; 4] = ["default", "f", "g", "h"];

/// Maximum numbers of clients and of jobs, which bound the cost of the comparisons.
const CLIENTS: usize = 5;
const JOBS: usize = 30;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    /// Returns the next byte, or 0 if no bytes are left.
    fn byte(&mut self) -> u8 {
        self.next().unwrap_or_default()
    }

    fn client(&mut self, model: &Model) -> ClientId {
        let place = usize::from(self.byte()) % model.clients.len().max(1);
        model.clients.get(place).map_or(ClientId(1), |client| client.id)
    }

    fn job(&mut self) -> JobId {
        JobId(u64::from(self.byte() % 16))
    }

    fn tube(&mut self) -> Name {
        TUBES[usize::from(self.byte()) % TUBES.len()]
    }

    /// Returns a multiple of 250 ms.
    fn span(&mut self) -> Span {
        Span::from_millis(u64::from(self.byte() % 16) * 250)
    }

    fn pri(&mut self) -> u32 {
        [0, 7, 1023, 1024, u32::MAX][usize::from(self.byte()) % 5]
    }

    fn state(&mut self) -> State {
        [State::Ready, State::Delayed, State::Buried][usize::from(self.byte()) % 3]
    }

    fn call(&mut self, kind: u8, model: &Model) -> Call {
        match kind % 30 {
            0 if model.clients.len() < CLIENTS => Call::Connect,
            1 => Call::Disconnect(self.client(model)),
            2 | 3 if model.jobs.len() < JOBS => Call::Put {
                client: self.client(model),
                pri: self.pri(),
                delay: self.span(),
                ttr: self.span().max(Span::from_secs(1)),
                fill: b'x',
                size: usize::from(self.byte()),
            },
            4 | 5 => {
                let (client, timeout) = (self.client(model), self.byte());
                Call::Reserve { client, timeout: (timeout < 200).then(|| Span::from_secs((timeout % 4).into())) }
            }
            6 => Call::CancelWait(self.client(model)),
            7 => Call::ReserveJob(self.client(model), self.job()),
            8 => Call::Delete(self.client(model), self.job()),
            9 => {
                let (client, job) = (self.client(model), self.job());
                Call::Release { client, job, pri: self.pri(), delay: self.span() }
            }
            10 => Call::Bury(self.client(model), self.job(), self.pri()),
            11 => Call::Touch(self.client(model), self.job()),
            12 => Call::Kick(self.client(model), self.byte().into()),
            13 => Call::KickJob(self.job()),
            14 => Call::Peek(self.client(model), self.state()),
            15 => Call::Use(self.client(model), self.tube()),
            16 => Call::Watch(self.client(model), self.tube()),
            17 => Call::Ignore(self.client(model), self.tube()),
            18 => Call::Pause(self.tube(), self.span()),
            19 => Call::MarkProducer(self.client(model)),
            _ => self.extended(kind, model),
        }
    }

    fn extended(&mut self, kind: u8, model: &Model) -> Call {
        match kind % 30 {
            20 | 21 if model.jobs.len() < JOBS => Call::PutTagged {
                client: self.client(model),
                pri: self.pri(),
                delay: self.span(),
                ttr: self.span().max(Span::from_secs(1)),
                tags: self.tags(),
            },
            22 => Call::ReserveMore(self.client(model)),
            23 => Call::TouchAll(self.client(model)),
            24 => Call::Flush(self.tube(), self.byte() & 1 == 0),
            25 => Call::PeekReserved(self.client(model)),
            26 => Call::List { tube: self.tube(), state: self.state(), above: self.job().0, limit: 3 },
            27 => {
                let (client, job, tube) = (self.client(model), self.job(), self.tube());
                Call::MoveJob { client, job, tube, pri: self.pri(), delay: self.span() }
            }
            28 => {
                let (client, from, to, state) = (self.client(model), self.tube(), self.tube(), self.state());
                Call::MoveTube { client, from, to, state, bound: u64::from(self.byte() % 8) }
            }
            _ => Call::Kick(self.client(model), 1),
        }
    }

    fn tags(&mut self) -> JobTags {
        let which = self.byte();
        let has = |bit: u8| which >> bit & 1 == 1;
        let mut tags = JobTags::default();
        tags.key = has(0).then(|| (self.tube(), u32::from(self.byte() % 4)));
        tags.tube = has(1).then(|| self.tube());
        (tags.tries, tags.backoff) = if has(2) { (1 + self.byte() % 4, u32::from(self.byte() % 3)) } else { (0, 0) };
        tags.ttl = has(3).then(|| Span::from_secs(1 + u64::from(self.byte() % 5)));
        tags.bound = has(4).then(|| (self.tube(), 1 + u32::from(self.byte() % 2)));
        tags
    }
}

/// Executes the calls and the clock advances that the bytes encode, except illegal calls. Before each call, runs the
/// timers that are due.
pub fn make(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let limits = Limits { max_memory: 1 << 40, max_tubes: 1 << 20, max_watched: 1 << 20, ..Limits::NONE };
    let start = Time::from_nanos(1_700_000_000_000_000_000);
    let stage = Stage { limits: limits.clone(), names: &TUBES, start, steps: None };
    let (mut engine, mut model) = (Engine::new(limits.clone()), Model::new(limits));
    let mut now = start;
    while let Some(kind) = bytes.next() {
        if kind >= 200 {
            now = now + Span::from_millis(u64::from(kind - 199) * 50);
            continue;
        }
        let mut both = |model: Model, call: Call| {
            step(&mut engine, model, &call, now, &stage).unwrap_or_else(|problem| panic!("{call:?}: {problem}"))
        };
        while model.next_deadline() <= now {
            model = both(model, Call::Tick { limit: 1 });
        }
        let call = bytes.call(kind, &model);
        if call.is_legal(&model) {
            model = both(model, call);
        }
    }
}
