//! Measures one client and one worker that take turns and use blocking reads, like client libraries.
//!
//! Owns the steps of a cycle: PRE_SLEEP, SUBMIT_JOB, NOOP, GRAB_JOB, JOB_ASSIGN, WORK_COMPLETE, GRAB_JOB, NO_JOB.
//! Before each request, the benchmark waits for the packets that the previous request causes, so that a cycle takes
//! four round trips.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::driver::PATIENCE;
use super::measure::{Bench, Outcome, Span};
use super::stats::Histogram;
use super::verify::{data, number, result, Ledger};
use super::wire::{next, unexpected, Out, Reply};

struct Line {
    stream: TcpStream,
    input: Vec<u8>,
    out: Out,
}

impl Line {
    fn connect(address: SocketAddr) -> std::io::Result<Line> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Line { stream, input: Vec::new(), out: Out::default() })
    }

    fn send(&mut self) -> Result<(), String> {
        let sent = self.stream.write_all(&self.out.bytes);
        self.out.bytes.clear();
        sent.map_err(|error| error.to_string())
    }

    fn expect<T>(&mut self, judge: impl FnOnce(Reply, &mut Out) -> Result<T, String>) -> Result<T, String> {
        loop {
            let mut rest = self.input.as_slice();
            if let Some(reply) = next(&mut rest)? {
                let judged = judge(reply, &mut self.out);
                let used = self.input.len() - rest.len();
                self.input.drain(..used);
                return judged;
            }
            let mut buffer = [0; 4096];
            let count = self.stream.read(&mut buffer).map_err(|error| error.to_string())?;
            if count == 0 {
                return Err("the server closed a connection".to_owned());
            }
            self.input.extend_from_slice(&buffer[..count]);
        }
    }

    fn just(&mut self, wanted: Reply) -> Result<(), String> {
        self.expect(|reply, _| if reply == wanted { Ok(()) } else { Err(unexpected(reply)) })
    }
}

fn cycle(client: &mut Line, worker: &mut Line, ledger: &mut Ledger) -> Result<(), String> {
    let job = ledger.next();
    client.out.submit(&data(job));
    client.send()?;
    client.expect(|reply, _| match reply {
        Reply::Created(handle) => ledger.has_handle(job, handle),
        other => Err(unexpected(other)),
    })?;
    worker.just(Reply::Noop)?;
    worker.out.grab();
    worker.send()?;
    worker.expect(|reply, out| match reply {
        Reply::Assigned(handle, data) => {
            ledger.assigned(number(data)?, handle)?;
            out.complete(handle, &result(data));
            Ok(())
        }
        other => Err(unexpected(other)),
    })?;
    worker.send()?;
    client.expect(|reply, _| match reply {
        Reply::Complete(handle, received) if received == result(&data(job)) => ledger.has_handle(job, handle),
        other => Err(unexpected(other)),
    })?;
    worker.out.grab();
    worker.send()?;
    worker.just(Reply::NoJob)?;
    worker.out.sleep();
    worker.send()
}

pub fn serial(bench: Bench) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let connect = || Line::connect(server.address).map_err(|error| error.to_string());
    let (mut client, mut worker) = (connect()?, connect()?);
    let (mut ledger, mut times) = (Ledger::default(), Histogram::default());
    worker.out.can_do();
    worker.out.sleep();
    worker.send()?;
    let mut around = |time: Duration, times: &mut Histogram| {
        let (begin, mut last, mut count) = (Instant::now(), Instant::now(), 0);
        while last - begin < time {
            cycle(&mut client, &mut worker, &mut ledger)?;
            let now = Instant::now();
            times.add(now - last);
            (last, count) = (now, count + 1);
        }
        Ok::<u64, String>(count)
    };
    around(bench.scale.warm_up, &mut times)?;
    times.clear();
    let span = Span::start(&server);
    let count = around(bench.scale.time, &mut times)?;
    Ok(Outcome::of(span.end(count, &times)))
}
