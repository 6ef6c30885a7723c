//! The scenarios of the load benchmark with their names, descriptions and goals.
//!
//! Owns the list of scenarios; other modules implement them. Bodies are 64 bytes long unless the description says
//! otherwise. Goals are ratios to Debian's beanstalkd (in [`Kind::Echo`], to the echo server), with the server and the
//! client on one CPU.

use super::relay::{relay, Shape};
use super::scenario::{goals, row, Goals, Kind, Scenario, NONE, NO_GOALS};
use super::{binlog, churn, cycle, drain, extended, memory, mixed, paced, put};

pub const BENCH: &str = "load";

/// The environment variable with the path of the original server, and the default path.
pub const PEER: Option<[&str; 2]> = Some(["BEANSTALKD", "/usr/bin/beanstalkd"]);

const fn times(cpu: f64, p50: f64, p99: f64) -> Goals {
    Goals { rate: NONE, cpu, p50, p99 }
}

const fn joined(producers: usize, workers: usize) -> Shape {
    Shape { joined: true, ..Shape::new(producers, workers) }
}

const fn ahead(joined: bool) -> Shape {
    Shape { ahead: 4, joined, ..Shape::new(50, 50) }
}

const fn watching(producers: usize, workers: usize, tubes: usize) -> Shape {
    Shape { tubes, ..Shape::new(producers, workers) }
}

use Kind::{Alone, Binlog, Echo, Full, Quick, Static};

/// All scenarios, in the order in which they run.
#[rustfmt::skip]
pub const SCENARIOS: &[Scenario] = &[
    row("put-1", Quick, goals(1.12, 0.85), "put, one at a time, 1 connection", |b| put::puts(b, 1, 1)),
    row("put-50", Quick, goals(1.4, 0.64), "put, one at a time, 50 connections", |b| put::puts(b, 50, 1)),
    row("put-200", Full, goals(1.6, 0.5), "put, one at a time, 200 connections", |b| put::puts(b, 200, 1)),
    row("prd-1", Full, NO_GOALS, "put, reserve, delete, 1 connection", |b| cycle::plain(b, 1, 64)),
    row("prd-50", Quick, goals(1.4, 0.6), "put, reserve, delete, 50 connections", |b| cycle::plain(b, 50, 64)),
    row("prd-200", Full, goals(1.6, 0.5), "put, reserve, delete, 200 connections", |b| cycle::plain(b, 200, 64)),
    row("echo-1", Echo, NO_GOALS, "put against a bare echo server, 1 connection", |b| put::puts(b, 1, 1)),
    row("echo-50", Echo, goals(NONE, 1.2), "put against a bare echo server, 50 connections", |b| put::puts(b, 50, 1)),
    row("echo-200", Echo, NO_GOALS, "put against a bare echo server, 200 connections", |b| put::puts(b, 200, 1)),
    row("pipe16-1", Quick, goals(8.0, 0.11), "put, pipelined 16, 1 connection", |b| put::puts(b, 1, 16)),
    row("pipe16-50", Full, NO_GOALS, "put, pipelined 16, 50 connections", |b| put::puts(b, 50, 16)),
    row("pipe64-1", Quick, goals(16.0, 0.08), "put, pipelined 64, 1 connection", |b| put::puts(b, 1, 64)),
    row("pipe64-50", Full, goals(16.0, 0.08), "put, pipelined 64, 50 connections", |b| put::puts(b, 50, 64)),
    row("pipe64-500", Full, NO_GOALS, "put, 500 byte bodies, pipelined 64, 2 connections", |b| put::puts_of(b, 2, 64, 500)),
    row("drain", Quick, goals(20.0, 0.06), "drain 1 M jobs, reserve + delete pipelined 64", |b| drain::drain(b, 1_000_000)),
    row("relay-50", Quick, goals(1.45, 0.58), "put to delete, 50 producers, 50 waiting workers", |b| relay(b, Shape::new(50, 50))),
    row("relay-joined", Quick, goals(1.9, 0.43), "put to delete, delete + reserve in one write", |b| relay(b, joined(50, 50))),
    row("queue-50", Full, goals(1.45, 0.58), "put to delete, 50 producers 4 jobs ahead of 50 workers", |b| relay(b, ahead(false))),
    row("queue-joined", Full, goals(1.9, 0.43), "put to delete, delete + reserve in one write", |b| relay(b, ahead(true))),
    row("paced-1", Full, times(0.9, 0.8, 1.0), "hand-off at 1,000/s to 1 waiting worker", |b| paced::hand_off(b, 1)),
    row("paced-50", Quick, times(0.9, 0.8, 1.0), "hand-off at 1,000/s to 50 waiting workers", |b| paced::hand_off(b, 50)),
    row("paced-1000", Full, times(0.9, 0.8, 1.0), "hand-off at 1,000/s to 1,000 waiting workers", |b| paced::hand_off(b, 1000)),
    row("wait-10k", Full, goals(1.5, 0.55), "put to delete, 50 producers, 10,000 waiting workers", |b| relay(b, Shape::new(50, 10_000))),
    row("watch-100", Full, goals(1.8, 0.5), "put to delete, 1,000 workers watching 100 tubes each", |b| relay(b, watching(50, 1000, 100))),
    row("watch-1000", Quick, goals(2.0, 0.5), "put to delete, 1 worker watching 1,000 tubes", |b| relay(b, watching(1, 1, 1000))),
    row("tubes-1k", Quick, goals(2.0, NONE), "prd-50 with 1,000 other tubes of one job", |b| cycle::beside_tubes(b, 50, 1000)),
    row("tubes-10k", Full, goals(25.0, NONE), "prd-50 with 10,000 other tubes of one job", |b| cycle::beside_tubes(b, 50, 10_000)),
    row("tubes-33k", Full, goals(140.0, NONE), "prd-50 with 33,000 other tubes of one job", |b| cycle::beside_tubes(b, 50, 33_000)),
    row("hold-10k", Quick, goals(7.5, NONE), "put, reserve, delete on a connection that holds 10,000 jobs", |b| cycle::holding(b, 10_000)),
    row("deep-1m", Quick, NO_GOALS, "prd-50 in a tube with 1 M jobs", |b| cycle::deep(b, 50, 1_000_000, false)),
    row("deep-3m", Full, NO_GOALS, "prd-50 in a tube with 3 M jobs", |b| cycle::deep(b, 50, 3_000_000, false)),
    row("deep-mixed", Full, NO_GOALS, "prd-50 in a tube with 1 M jobs of 1,009 priorities", |b| cycle::deep(b, 50, 1_000_000, true)),
    row("load-1m", Quick, NO_GOALS, "load 1 M jobs, pipelined 16, 1 connection", |b| put::load(b, 1_000_000)),
    row("load-3m", Full, NO_GOALS, "load 3 M jobs, pipelined 16, 1 connection", |b| put::load(b, 3_000_000)),
    row("delayed", Full, goals(NONE, 0.12), "200,000 delayed jobs due over 1-5 s (times: lateness)", |b| paced::delayed(b, 200_000)),
    row("mixed", Quick, goals(1.4, NONE), "prd-50 with 2 bulk producers", mixed::mixed),
    row("body-4k", Quick, goals(1.1, 0.85), "put, reserve, delete, 4 KiB bodies, 10 connections", |b| cycle::plain(b, 10, 4096)),
    row("body-60k", Full, goals(1.1, 1.0), "put, reserve, delete, 60 KB bodies, 10 connections", |b| cycle::plain(b, 10, 60_000)),
    row("churn", Quick, goals(1.0, 0.95), "connect, put, close", churn::churn),
    row("log-16", Binlog, goals(1.7, 0.5), "put with -b, 16 connections", |b| binlog::puts(b, 16, 1, false)),
    row("log-64", Binlog, goals(1.7, 0.55), "put with -b, 64 connections", |b| binlog::puts(b, 64, 1, false)),
    row("logf0-1", Binlog, goals(0.95, NONE), "put with -b -f0, 1 connection", |b| binlog::puts(b, 1, 1, true)),
    row("logf0-16", Binlog, goals(6.0, NONE), "put with -b -f0, 16 connections", |b| binlog::puts(b, 16, 1, true)),
    row("logf0-64", Binlog, goals(15.0, NONE), "put with -b -f0, 64 connections", |b| binlog::puts(b, 64, 1, true)),
    row("logf0-64x16", Binlog, goals(110.0, NONE), "put with -b -f0, 64 connections, pipelined 16", |b| binlog::puts(b, 64, 16, true)),
    row("restart", Binlog, NO_GOALS, "start with 1 M jobs in the log", |b| binlog::restart(b, 1_000_000)),
    row("restart-static", Static, NO_GOALS, "start of the static program with 1 M jobs in the log", |b| binlog::restart(b, 1_000_000)),
    row("mem-jobs", Quick, NO_GOALS, "memory of 1 M ready jobs", |b| memory::jobs(b, 1_000_000)),
    row("mem-tubes", Full, NO_GOALS, "memory of 10,000 tubes", |b| memory::tubes(b, 10_000)),
    row("mem-conns", Quick, NO_GOALS, "memory of 10,000 connections", |b| memory::connections(b, 10_000)),
    row("idle", Full, NO_GOALS, "nothing to do with 1 M delayed jobs, 10,000 waiting workers", |b| memory::idle(b, 1_000_000, 10_000)),
    row("size", Quick, NO_GOALS, "the program by itself", memory::size),
    row("batch-100", Alone, NO_GOALS, "jobs taken by reserve-batch 100 and delete-batch, 1 connection", |b| extended::batches(b, 1_000_000)),
    row("con-100k", Alone, NO_GOALS, "jobs of which one may be reserved at a time, 100,000 with one key", |b| extended::blocked(b, 100_000)),
    row("keys-1m", Alone, NO_GOALS, "memory of 1 M keys", |b| extended::keys(b, 1_000_000)),
    row("unique-f0", Alone, NO_GOALS, "put of unique jobs with -b -f0, 64 connections", |b| extended::durable(b, 64, 1)),
    row("unique-f0x16", Alone, NO_GOALS, "put of unique jobs with -b -f0, 64 connections, pipelined 16", |b| extended::durable(b, 64, 16)),
    row("operators-1m", Alone, NO_GOALS, "put, reserve, delete while a tube with 1 M jobs is listed and flushed", |b| extended::operators(b, 1_000_000)),
    row("bulk-1m", Alone, NO_GOALS, "put, reserve, delete while 1 M jobs are released, 1 M become dead letters, 100,000 schedules run", |b| extended::bulk(b, 1_000_000)),
];
