//! Benchmarks of the beanstalk codec: decoding requests and encoding replies.
//!
//! Run `cargo bench --bench codec`. Requests are decoded in batches of 64, as a pipelining client sends them.

mod rounds;

use std::process::ExitCode;

use beanpole::internals::engine::Fingerprints;
use beanpole::internals::engine::{Body, Engine, JobId, Limits, NewJob, Span, State, Time};
use beanpole::internals::protocol::beanstalk::{execute, Command, Decoder, Extensions};
use beanpole::internals::protocol::{
    ClientRegistry, CommandCounters, Context, DecodeLimits, Facts, Host, Output, ProtocolSettings, Usage,
};
use rounds::Cases;

const BATCH: usize = 64;

const BATCHES: usize = 2000;

struct NoHost(Facts);

impl Host for NoHost {
    fn facts(&self) -> &Facts {
        &self.0
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }
}

fn main() -> ExitCode {
    rounds::run(|cases| {
        decode(cases, "put of 64 bytes", put(64));
        decode(cases, "put of 4 KiB", put(4096));
        decode(cases, "reserve", b"reserve\r\n".to_vec());
        decode(cases, "delete", b"delete 1234567\r\n".to_vec());
        decode(cases, "watch", b"watch mail.outgoing\r\n".to_vec());
        decode(cases, "release", b"release 1234567 1024 60\r\n".to_vec());
        decode(cases, "an unknown command", b"frobnicate the tube\r\n".to_vec());
        cut(cases);
        answer(cases, "reply with a job of 64 bytes", 64, || Command::Peek(JobId(1)));
        answer(cases, "reply with a job of 4 KiB", 4096, || Command::Peek(JobId(1)));
        answer(cases, "reply with a shared job of 60 KB", 60_000, || Command::Peek(JobId(1)));
        answer(cases, "reply NOT_FOUND", 64, || Command::PeekNext(State::Buried));
        answer(cases, "reply to stats", 64, stats);
        answer(cases, "reply to stats-job", 64, || Command::StatsJob(JobId(1)));
    })
}

fn stats() -> Command {
    Decoder::default().next(&mut b"stats\r\n".as_slice(), &INTAKE).expect("a complete request").1
}

fn put(length: usize) -> Vec<u8> {
    let mut bytes = format!("put 1024 0 120 {length}\r\n").into_bytes();
    bytes.extend((0..length).map(|place| b'a' + (place % 26) as u8));
    bytes.extend(b"\r\n");
    bytes
}

const INTAKE: DecodeLimits = DecodeLimits {
    max_job_size: 65_535,
    room: u64::MAX,
    max_packet: 0,
    fingerprints: Fingerprints::new(1),
    extensions: Extensions::ALL,
};

fn decode(cases: &mut Cases, name: &str, request: Vec<u8>) {
    let batches = cases.count(BATCHES);
    let prepare = move || (Decoder::default(), request.repeat(BATCH));
    cases.add(&format!("decode {name}"), batches * BATCH, prepare, move |(decoder, bytes)| {
        for _ in 0..batches {
            let mut input = bytes.as_slice();
            for _ in 0..BATCH {
                std::hint::black_box(decoder.next(&mut input, &INTAKE).expect("a complete request"));
            }
        }
    });
}

/// Measures a put that arrives in pieces of 1,000 bytes. The body is copied directly into its final buffer.
fn cut(cases: &mut Cases) {
    let turns = cases.count(BATCHES);
    let prepare = || (Decoder::default(), put(60_000));
    cases.add("decode put of 60 KB in pieces", turns, prepare, move |(decoder, bytes)| {
        for _ in 0..turns {
            let mut rest = bytes.as_slice();
            loop {
                let (mut piece, behind) = rest.split_at(rest.len().min(1000));
                rest = behind;
                if let Some(upload) = decoder.upload() {
                    let gap = upload.gap(u64::MAX).unwrap_or_default();
                    let count = gap.len().min(piece.len());
                    gap[..count].copy_from_slice(&piece[..count]);
                    upload.filled(count);
                    piece = &piece[count..];
                }
                if std::hint::black_box(decoder.next(&mut piece, &INTAKE)).is_some() {
                    break;
                }
            }
        }
    });
}

fn answer(cases: &mut Cases, name: &str, length: usize, command: impl Fn() -> Command + 'static) {
    let batches = cases.count(BATCHES);
    let prepare = move || {
        let limits = Limits { max_memory: u64::MAX, max_tubes: 10, max_watched: 10, hash_secret: 7, ..Limits::NONE };
        let mut engine = Engine::new(limits);
        let client = engine.connect();
        let body = Body::from(vec![7; length]);
        let job = NewJob { pri: 0, delay: Span::ZERO, ttr: Span::from_secs(60), body };
        engine.put(client, job, Time::default()).expect("memory for a job");
        (
            engine,
            client,
            CommandCounters::default(),
            ClientRegistry::default(),
            ProtocolSettings::default(),
            host(),
            Output::new(),
        )
    };
    cases.add(name, batches * BATCH, prepare, move |(engine, client, counters, registry, settings, host, out)| {
        let (client, now) = (*client, Time::from_nanos(1 << 60));
        let mut world = Context::plain(engine, (counters, registry), (settings, host), client, now);
        for _ in 0..batches {
            for _ in 0..BATCH {
                execute(command(), &mut world, out);
            }
            out.consume(std::hint::black_box(out.len()));
        }
    });
}

fn host() -> NoHost {
    let word = || "benchmark".to_owned();
    let (version, id, hostname, os, platform) = (word(), word(), word(), word(), word());
    let started = Time::from_nanos(1 << 59);
    let handle_prefix = hostname.as_bytes().into();
    let (max_job_size, max_connections, max_files) = (65_535, 1000, 1024);
    let facts = Facts {
        pid: 1,
        version,
        id,
        hostname,
        handle_prefix,
        os,
        platform,
        started,
        max_job_size,
        max_connections,
        max_files,
    };
    NoHost(facts)
}
