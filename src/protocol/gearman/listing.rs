//! The lists of the text protocol. A long list is sent in parts, between which the server executes commands of other
//! clients. Entries that appear or disappear between two parts may be omitted.

use super::admin::ListKind;
use super::reply::{push_handle, push_line, push_name, push_word};
use crate::engine::{push_uuid, ClientId, DedupKey, Handle, Progress, State, TubeStats};
use crate::protocol::text::push_number;
use crate::protocol::{sees, Context, Output, Wire};

const STEPS_PER_WORKER: u64 = 4;

#[derive(Debug, Default)]
pub struct Cursor {
    /// The next connection, job or tube.
    next: u32,
    /// The connection whose line is incomplete, and the number of functions already written to the line.
    functions: Option<(Handle<ClientId>, u32)>,
}

pub fn list(kind: ListKind, cursor: &mut Cursor, context: &mut Context, out: &mut Output) -> Progress {
    let progress = match kind {
        ListKind::Status => tubes(cursor, context, out, |tube, total| [total, tube.jobs.reserved]),
        ListKind::PriorityStatus => tubes(cursor, context, out, |tube, _| tube.priority_classes.map(u64::from)),
        ListKind::Workers => workers(cursor, context, out),
        ListKind::Jobs => jobs(false, cursor, context, out),
        ListKind::UniqueJobs => jobs(true, cursor, context, out),
    };
    if progress == Progress::Done {
        out.text().extend_from_slice(b".\n");
    }
    progress
}

/// Returns the unique ID of a job: a name, the UUID of a Workq job, `-` if the body identifies the job, or nothing.
pub fn unique(unique: &DedupKey) -> Vec<u8> {
    match unique {
        DedupKey::None => Vec::new(),
        DedupKey::Name(name) => name.text().into_owned(),
        DedupKey::Body(_) => b"-".to_vec(),
        DedupKey::Id(id) => {
            let mut text = Vec::with_capacity(36);
            push_uuid(&mut text, id);
            text
        }
    }
}

fn columns(text: &mut Vec<u8>, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        text.push(b'\t');
        push_number(text, number);
    }
    text.push(b'\n');
}

type Columns<const N: usize> = fn(&TubeStats, u64) -> [u64; N];

/// Lists tubes that a Gearman command keeps open, or that have a Gearman worker or ready, delayed or reserved jobs.
fn tubes<const N: usize>(cursor: &mut Cursor, context: &mut Context, out: &mut Output, row: Columns<N>) -> Progress {
    let Context { engine, access, now, .. } = context;
    engine.walk_tubes(&mut cursor.next, *now, |tube| {
        let total = tube.jobs.ready + tube.jobs.delayed + tube.jobs.reserved;
        if !tube.kept && total == 0 && tube.sleepers == 0 || !sees(access, tube.name) {
            return 0;
        }
        let text = out.text();
        let before = text.len();
        push_name(text, tube.name);
        columns(text, row(tube, total).into_iter().chain([tube.watching.into()]));
        text.len() - before
    })
}

/// With `by_unique`, a line contains only the unique ID. Otherwise, it contains the handle, the number of expired
/// reservations, a 0 as in gearmand, and 1 for a background job (otherwise 0).
fn jobs(by_unique: bool, cursor: &mut Cursor, context: &mut Context, out: &mut Output) -> Progress {
    let (prefix, access) = (&context.host.facts().handle_prefix, &context.access);
    context.engine.walk_jobs(&mut cursor.next, |engine, job| {
        if job.state() == State::Finished || !sees(access, engine.tube_of(job)) {
            return 0;
        }
        let text = out.text();
        let before = text.len();
        if by_unique {
            push_line(text, &engine.extras(job).map_or(Vec::new(), |extras| unique(&extras.dedup_key)));
            text.push(b'\n');
        } else {
            push_handle(text, prefix, job.id());
            columns(text, [job.history().timeouts.into(), 0, (!job.is_volatile()).into()]);
        }
        text.len() - before
    })
}

/// A line contains a worker's number, address, ID and functions. A line with many functions is written in parts.
fn workers(cursor: &mut Cursor, context: &mut Context, out: &mut Output) -> Progress {
    let Context { engine, registry, .. } = context;
    loop {
        let next = registry.next(cursor.next);
        let begun = cursor.functions.map(|(worker, _)| worker);
        if begun.is_some() && begun != next.map(|(client, _)| engine.handle(client)) {
            // The connection closed before its line was complete.
            out.text().push(b'\n');
            cursor.functions = None;
        }
        let Some((client, peer)) = next else { return Progress::Done };
        if engine.steps().are_used_up() {
            return Progress::More;
        }
        cursor.next = client.0;
        if cursor.functions.is_none() {
            // Charge once per line. Otherwise, a small step budget could be used up before any function is sent.
            engine.take_steps(STEPS_PER_WORKER);
        }
        if peer.wire == Wire::Gearman {
            let (_, from) = cursor.functions.get_or_insert_with(|| {
                let text = out.text();
                push_number(text, client.0.into());
                text.push(b' ');
                push_word(text, host_of(&peer.address));
                text.push(b' ');
                push_word(text, if peer.name.is_empty() { b"-" } else { &peer.name });
                text.extend_from_slice(b" :");
                (engine.handle(client), 0)
            });
            let progress = engine.walk_watched(client, from, |function| {
                let text = out.text();
                text.push(b' ');
                push_word(text, function);
                function.len()
            });
            if progress == Progress::More {
                return progress;
            }
            out.text().push(b'\n');
        }
        *cursor = Cursor { next: client.0 + 1, functions: None };
    }
}

fn host_of(address: &str) -> &[u8] {
    let host = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => address.rsplit_once(':').map_or(address, |(host, _)| host),
    };
    host.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Body, Engine, Limits, NewJob, ReservePolicy, Span, Time};
    use crate::protocol::{ClientRegistry, Facts, Host, ProtocolSettings, Usage};

    #[derive(Default)]
    struct TestHost(Facts);

    impl Host for TestHost {
        fn facts(&self) -> &Facts {
            &self.0
        }
        fn usage(&self) -> Usage {
            unreachable!("lists do not show the usage")
        }
    }

    #[test]
    fn workers_with_many_functions_are_listed_in_several_turns() {
        let mut engine = Engine::new(Limits::NONE);
        let mut registry = ClientRegistry::new(false);
        let workers: Vec<_> = (0..50).map(|_| engine.connect_as(ReservePolicy::Notified)).collect();
        for &worker in &workers {
            registry.enter(worker, Wire::Gearman, &"127.0.0.1:1");
            for function in 0..100 {
                let name = format!("{function:0100}");
                engine.watch(worker, name.as_bytes(), Time::default()).expect("a watched function");
            }
        }
        let (mut counters, settings, client) = (Default::default(), ProtocolSettings::default(), workers[0]);
        let host = TestHost::default();
        let (mut cursor, mut lines) = (Cursor::default(), 0);
        loop {
            let mut out = Output::new();
            engine.grant_steps(50);
            let mut context = Context::plain(
                &mut engine,
                (&mut counters, &mut registry),
                (&settings, &host),
                client,
                Time::default(),
            );
            let progress = super::workers(&mut cursor, &mut context, &mut out);
            assert!(out.len() < 6000, "{} bytes at once", out.len());
            lines += out.chunks().flatten().filter(|byte| **byte == b'\n').count();
            if progress == Progress::Done {
                break;
            }
        }
        assert_eq!(lines, workers.len());
    }

    #[test]
    fn disconnect_within_a_line_does_not_affect_the_next_line() {
        let mut engine = Engine::new(Limits::NONE);
        let mut registry = ClientRegistry::new(false);
        let workers = [0, 1].map(|_| engine.connect_as(ReservePolicy::Notified));
        for worker in workers {
            registry.enter(worker, Wire::Gearman, &"127.0.0.1:1");
            for function in 0..10 {
                engine.watch(worker, format!("f{function}").as_bytes(), Time::default()).expect("a watched function");
            }
        }
        let (mut counters, settings, host) = (Default::default(), ProtocolSettings::default(), TestHost::default());
        let (mut cursor, mut out) = (Cursor::default(), Output::new());
        for (steps, expected) in [(STEPS_PER_WORKER + 5, Progress::More), (1000, Progress::Done)] {
            engine.grant_steps(steps);
            let mut context = Context::plain(
                &mut engine,
                (&mut counters, &mut registry),
                (&settings, &host),
                workers[1],
                Time::default(),
            );
            assert_eq!(super::workers(&mut cursor, &mut context, &mut out), expected);
            if expected == Progress::More {
                registry.leave(workers[0]);
            }
        }
        let text = String::from_utf8(out.chunks().flatten().copied().collect()).expect("text");
        let lines: Vec<usize> = text.lines().map(|line| line.split(' ').count()).collect();
        assert_eq!(lines, [4 + 5, 4 + 10], "{text}");
    }

    /// Returns the number of engine steps that a list takes if the output already contains `before` bytes.
    fn steps(kind: ListKind, before: usize) -> u64 {
        let mut engine = Engine::new(Limits::NONE);
        let client = engine.connect();
        for _ in 0..10 {
            let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(1), body: Body::from(vec![b'x'; 10]) };
            engine.put(client, new, Time::default()).expect("memory for a job");
        }
        let (mut counters, mut registry) = (Default::default(), ClientRegistry::new(false));
        let (settings, host) = (ProtocolSettings::default(), TestHost::default());
        let mut out = Output::new();
        out.text().resize(before, b'x');
        engine.grant_steps(1_000_000);
        let mut context =
            Context::plain(&mut engine, (&mut counters, &mut registry), (&settings, &host), client, Time::default());
        assert_eq!(list(kind, &mut Cursor::default(), &mut context, &mut out), Progress::Done);
        engine.steps().used()
    }

    #[test]
    fn steps_do_not_depend_on_earlier_output() {
        for kind in [ListKind::Status, ListKind::PriorityStatus, ListKind::Jobs, ListKind::UniqueJobs] {
            assert_eq!(steps(kind, 0), steps(kind, 10_000), "{kind:?}");
        }
    }

    #[test]
    fn port_of_an_address_is_omitted() {
        assert_eq!(host_of("127.0.0.1:4730"), b"127.0.0.1");
        assert_eq!(host_of("[::1]:4730"), b"::1");
        assert_eq!(host_of("127.0.0.1"), b"127.0.0.1");
        assert_eq!(host_of("unix"), b"unix");
    }

    #[test]
    fn workq_ids_are_shown_as_uuids() {
        let id = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0x4c, 0xde, 0x8f, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(unique(&DedupKey::Id(id)), b"01234567-89ab-4cde-8f01-020304050607");
        assert_eq!(unique(&DedupKey::Body(None)), b"-");
        assert_eq!(unique(&DedupKey::None), b"");
    }
}
