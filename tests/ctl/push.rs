//! Tests `work --url`, which sends jobs to an HTTP endpoint. No behavior of the endpoint may lose a job or make the
//! worker hang.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ctl::work::{lines, Running};
use crate::daemon::{run_command, unassigned, wait_until, Daemon, Folder, Signal};
use crate::support::{ctl, with_both, Server};

struct Got {
    head: String,
    body: Vec<u8>,
    /// The index of the connection, and of the request within this connection.
    place: (usize, usize),
}

/// Reads a request. Returns `None` at the end of the connection.
fn read(stream: &mut BufReader<TcpStream>, place: (usize, usize)) -> Option<Got> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        stream.read_line(&mut head).ok().filter(|count| *count > 0)?;
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).ok()?;
    Some(Got { head, body, place })
}

/// Serves each connection in a separate thread, until `respond` returns `false` for this connection.
fn serve(listener: TcpListener, respond: impl Fn(Got, &mut TcpStream) -> bool + Send + Sync + 'static) {
    let respond = Arc::new(respond);
    for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
        let respond = respond.clone();
        std::thread::spawn(move || {
            stream.set_nodelay(true).expect("a socket");
            let mut stream = BufReader::new(stream);
            for turn in 0.. {
                let Some(got) = read(&mut stream, (number, turn)) else { return };
                if !respond(got, stream.get_mut()) {
                    return;
                }
            }
        });
    }
}

fn endpoint(respond: impl Fn(Got, &mut TcpStream) -> bool + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/jobs?x=1", listener.local_addr().expect("an address"));
    std::thread::spawn(move || serve(listener, respond));
    url
}

/// Sends a response. Returns `false` if the client has disconnected.
fn answer(stream: &mut TcpStream, text: &str) -> bool {
    stream.write_all(text.as_bytes()).is_ok()
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_job_is_sent_with_its_headers_and_deleted() {
    with_both(|server| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let url = endpoint(move |got, stream| sender.send(got).is_ok() && answer(stream, OK));
        let mut client = server.daemon.client();
        client.use_tube("mail").expect("a tube");
        let bodies = [b"a\0\r\n\r\nb\xff".to_vec(), Vec::new(), vec![b'x'; 60_000]];
        bodies.iter().for_each(|body| _ = client.put(body, 0, 0, 60).expect("a job"));
        let ended = server.run(&["work", "mail", "-w", "0", "--url", &url]);
        assert_eq!((ended.code, server.count("mail", "ready")), (0, 0), "{}", ended.err);
        assert!(ended.err.contains("job 1 of mail: done after ") && ended.err.contains(" s; deleted"), "{}", ended.err);
        let all: Vec<Got> = receiver.try_iter().collect();
        assert_eq!(all.iter().map(|got| &got.body).collect::<Vec<_>>(), bodies.iter().collect::<Vec<_>>());
        assert_eq!(all.iter().map(|got| got.place.1).collect::<Vec<_>>(), [0, 1, 2], "the connection must be reused");
        let head = &all[1].head;
        assert!(head.starts_with("POST /jobs?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{head}");
        let expected = "Beanpole-Job-Id: 2\r\nBeanpole-Job-Tube: mail\r\nBeanpole-Job-Reserves: 1\r\n\r\n";
        assert!(head.ends_with(expected), "{head}");
    });
}

/// Tube names must not inject headers, and `Retry-After` must not cause unlimited delays.
#[test]
fn names_and_delays_are_bounded() {
    let server = Server::beanpole(&[]);
    let (sender, receiver) = std::sync::mpsc::channel();
    let url = endpoint(move |got, stream| {
        let seconds = String::from_utf8(got.body).expect("text");
        let is_sent = sender.send(got.head).is_ok();
        answer(stream, &format!("HTTP/1.1 429 x\r\nRetry-After: {seconds}\r\nContent-Length: 0\r\n\r\n")) && is_sent
    });
    let name = "\"a\\x0d\\x0aX-Evil: \\xff\\x1b[2J\"";
    for (id, seconds, expected) in [("1", "0", "try 2 in 1 s"), ("2", "99999999999999999999", "try 2 in 3600 s")] {
        server.ok(&["put", "-t", name, seconds]);
        let ended = server.run(&["work", name, "--once", "--url", &url]);
        assert!(ended.code == 1 && ended.err.contains(expected), "{}", ended.err);
        assert!(!ended.err.contains('\x1b'), "{}", ended.err);
        let head = receiver.recv().expect("a request");
        let tube = head.lines().find_map(|line| line.strip_prefix("Beanpole-Job-Tube: "));
        assert_eq!((tube, head.contains("\nX-Evil")), (Some(name), false), "{head}");
        // Otherwise, the first job would be ready again after one second, and the next worker could reserve it.
        server.ok(&["delete", id]);
    }
}

/// The table contains raw responses. After each response, the worker must either delete the job, or bury the job with a
/// reason that begins with the listed text.
#[test]
fn the_response_decides() {
    let huge = "x".repeat(1 << 20);
    let table = [
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), None),
        (
            "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nTrailer: x\r\n\r\n"
                .to_owned(),
            None,
        ),
        ("HTTP/1.0 200 OK\r\n\r\nuntil the end".to_owned(), None),
        (
            "HTTP/1.1 102 x\r\n\r\nHTTP/1.1 103 x\r\nLink: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
                .to_owned(),
            None,
        ),
        (format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{huge}", huge.len()), None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more than that".to_owned(), None),
        ("HTTP/1.1 500 x\r\nContent-Length: 9\r\n\r\n no\x1b[2J \r\n".to_owned(), Some("HTTP 500: no\\u001b[2J")),
        (format!("HTTP/1.1 500 x\r\n\r\nbegin {huge}"), Some("HTTP 500: begin xxx")),
        ("HTTP/1.1 301 x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_owned(), Some("HTTP 301")),
        ("HTTP/1.1 429 x\r\nContent-Length: 0\r\n\r\n".to_owned(), Some("HTTP 429")),
        ("HTTP/1.1 429 x\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n".to_owned(), Some("HTTP 429")),
        ("HTTP/1.1 101 x\r\nContent-Length: 0\r\n\r\n".to_owned(), Some("HTTP 101")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\ncut".to_owned(), Some("the connection was closed")),
        ("HTTP/1.1 200 OK\r\nContent-Le".to_owned(), Some("the connection was closed")),
        ("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok".to_owned(), Some("malformed")),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_owned(), Some("malformed")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n".to_owned(), Some("malformed")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok".to_owned(), Some("malformed")),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n".to_owned(), Some("malformed")),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+2\r\nok\r\n0\r\n\r\n".to_owned(), Some("malformed")),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n".to_owned(), Some("malformed")),
        (format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{huge}"), Some("malformed")),
        (format!("HTTP/1.1 200 OK\r\nX: {huge}\r\n\r\n"), Some("malformed")),
        (format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(200)), Some("malformed")),
        (huge.clone(), Some("malformed")),
        ("220 ready\r\n".to_owned(), Some("malformed")),
        (String::new(), Some("the connection was closed")),
    ];
    let server = Server::beanpole(&["-z", "4M"]);
    let url = endpoint(|got, stream| {
        answer(stream, &String::from_utf8(got.body).expect("text"));
        false
    });
    let mut client = server.daemon.client();
    table.iter().for_each(|(body, _)| _ = client.put(body.as_bytes(), 0, 0, 60).expect("a job"));
    let ended = server.run(&["work", "-w", "0", "--retries", "0", "--url", &url]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    for (place, (body, expected)) in table.iter().enumerate() {
        let begin = &body[..body.len().min(80)];
        let figures = server.run(&["stats", "-i", &(place + 1).to_string()]).out;
        let reason = figures.lines().find_map(|line| line.strip_prefix("last-error\t"));
        match expected {
            None => assert_eq!(figures, "", "{begin}"),
            Some(expected) => {
                assert!(reason.is_some_and(|reason| reason.starts_with(expected)), "{begin}: {figures}");
                assert!(figures.contains("state\tburied") && figures.len() < 6000, "{begin}: {figures}");
            }
        }
    }
    assert!(!ended.err.contains('\x1b'), "{}", ended.err);
}

/// After a response with `Retry-After`, the worker must wait for the given time before it sends any job.
#[test]
fn a_busy_endpoint_receives_no_requests() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        with_both(|server| {
            let count = Arc::new(AtomicUsize::new(0));
            let seen = count.clone();
            let url = endpoint(move |_, stream| match count.fetch_add(1, Ordering::SeqCst) {
                0 => answer(stream, &format!("HTTP/1.1 {status}\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n")),
                _ => answer(stream, OK),
            });
            server.ok(&["put", "a"]);
            let begun = Instant::now();
            let line = ["work", "-j", "3", "--retries", "0", "--url", &url];
            let mut worker = Running::start(server.command(&line));
            wait_until("the job is delayed", || server.count("default", "delayed") == 1);
            server.ok(&["put", "b", "c", "d"]);
            wait_until("all jobs are done", || seen.load(Ordering::SeqCst) == 5);
            assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
            worker.signal(Signal::SIGTERM);
            assert_eq!(worker.code(), Some(0));
            assert_eq!(server.figure("stats", "current-jobs-buried"), "0");
        });
    }
}

/// A child process that another test has just started can keep the old listener for some milliseconds.
fn bound_again(address: SocketAddr) -> TcpListener {
    let mut listener = None;
    wait_until("the port is free", || {
        listener = TcpListener::bind(address).ok();
        listener.is_some()
    });
    listener.expect("a listener")
}

/// In a tube that limits the tries, a busy or unreachable endpoint must not use up a try.
#[test]
fn waiting_for_an_endpoint_is_no_try() {
    let server = Server::beanpole(&[]);
    server.ok(&["tube", "mail", "try:1"]);
    let listener = TcpListener::bind(unassigned("127.91.0.1")).expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut worker = Running::start(server.command(&["work", "mail", "--url", &format!("http://{address}")]));
    wait_until("the worker waits", || server.figure("stats", "current-waiting") == "1");
    drop(listener);
    server.ok(&["put", "-t", "mail", "-r", "5", "a"]);
    wait_until("the worker touches the job", || server.figure("stats", "cmd-touch") != "0");
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    let listener = bound_again(address);
    let busy = "HTTP/1.1 503 x\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n";
    let respond = move |_: Got, stream: &mut TcpStream| match count.fetch_add(1, Ordering::SeqCst) {
        0 => answer(stream, busy),
        _ => answer(stream, OK),
    };
    std::thread::spawn(move || serve(listener, respond));
    wait_until("the job is done", || server.figure("stats", "cmd-delete") == "1");
    assert_eq!((seen.load(Ordering::SeqCst), server.figure("stats", "cmd-release")), (2, "0".to_owned()));
    assert_eq!((server.figure("stats", "job-timeouts"), server.count("mail", "buried")), ("0".to_owned(), 0));
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.code(), Some(0));
}

/// When a worker stops, it releases its job instead of waiting for a busy endpoint. The release counts as an attempt.
/// After the last attempt, the job must be buried with a reason.
#[test]
fn the_last_attempt_at_a_busy_endpoint_has_a_reason() {
    let server = Server::beanpole(&[]);
    server.ok(&["tube", "mail", "try:1"]);
    server.ok(&["put", "-t", "mail", "a"]);
    let url =
        endpoint(|_, stream| answer(stream, "HTTP/1.1 503 x\r\nRetry-After: 1\r\nContent-Length: 5\r\n\r\nlater"));
    let ended = server.run(&["work", "mail", "--once", "--url", &url]);
    assert!(ended.code == 1 && ended.err.contains("HTTP 503: later") && ended.err.contains("buried"), "{}", ended.err);
    assert!(server.ok(&["stats", "-i", "1"]).contains("last-error\tHTTP 503: later\n"));
    server.ok(&["put", "-t", "mail", "b"]);
    let busy = "HTTP/1.1 503 x\r\nRetry-After: 9999\r\nContent-Length: 0\r\n\r\n";
    let url = endpoint(move |_, stream| answer(stream, busy));
    let mut worker = Running::start(server.command(&["work", "mail", "--url", &url]));
    wait_until("the worker touches the job", || server.figure("stats", "cmd-touch") != "0");
    worker.signal(Signal::SIGTERM);
    assert_eq!((worker.code(), server.count("mail", "buried")), (Some(0), 2));
}

#[test]
fn the_worker_waits_for_an_unreachable_endpoint() {
    with_both(|server| {
        let listener = TcpListener::bind(unassigned("127.91.0.2")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let url = format!("http://{address}");
        let line = ["work", "--retries", "0", "--backoff", "0", "--url", &url];
        let mut worker = Running::start(server.command(&line));
        wait_until("the worker waits", || server.figure("stats", "current-waiting") == "1");
        drop(listener);
        server.ok(&["put", "a"]);
        wait_until("the worker releases the job", || server.figure("stats", "cmd-release") != "0");
        server.ok(&["put", "b"]);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(server.figure("stats", "cmd-release"), "1", "a job was reserved without an endpoint");
        let listener = bound_again(address);
        std::thread::spawn(move || serve(listener, |_, stream| answer(stream, OK)));
        wait_until("both jobs are done", || server.figure("stats", "cmd-delete") == "2");
        worker.signal(Signal::SIGTERM);
        assert_eq!(worker.code(), Some(0));
        // The worker reports an unusable URL when it starts.
        let wrong = server.run(&["work", "--url", "http://127.0.0.1:1/"]);
        assert!(wrong.code == 3 && wrong.err.contains("http://127.0.0.1:1/: Connection refused"), "{}", wrong.err);
    });
}

/// The endpoints send nothing, or bytes that never form a complete response.
#[test]
fn requests_to_a_slow_endpoint_time_out() {
    let server = Server::beanpole(&["-z", "40M"]);
    let drip = |stream: &mut TcpStream, text: &str, byte: &str| {
        let _ = stream.write_all(text.as_bytes());
        while stream.write_all(byte.as_bytes()).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    };
    let url = endpoint(move |got, stream| match &got.body[..] {
        b"head" => drip(stream, "HTTP/1.1 200 OK\r\nX:", "x"),
        b"body" => drip(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", "x"),
        b"close" => drip(stream, "HTTP/1.1 500 x\r\n\r\n", "x"),
        b"chunk" => drip(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"),
        b"trailer" => drip(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n"),
        b"continue" => drip(stream, "", "HTTP/1.1 100 x\r\n\r\n"),
        b"flood" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
            false
        }
        _ => drip(stream, "", ""),
    });
    let names = ["silence", "head", "body", "close", "chunk", "trailer", "continue", "flood"];
    server.ok(&[&["put", "-r", "4", "--"][..], &names].concat());
    let ended = server.run(&["work", "-j", "9", "-w", "2", "--retries", "0", "--url", &url]);
    assert_eq!((ended.code, server.count("default", "buried")), (0, names.len() as u64), "{}", ended.err);
    assert_eq!(server.figure("stats", "job-timeouts"), "0");
    for id in 1..=names.len() {
        let figures = server.ok(&["stats", "-i", &id.to_string()]);
        assert!(figures.contains("last-error\tno response within 4 s\n"), "{figures}");
    }
    // None of these endpoints reads the request. The first one never responds, and the others respond immediately.
    for text in ["", "HTTP/1.1 413 x\r\nContent-Length: 5\r\n\r\nlarge", OK] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let silent = std::thread::spawn(move || {
            let probe = listener.accept();
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.write_all(text.as_bytes()).expect("a client");
            (probe, stream)
        });
        let id = server.daemon.client().put(&vec![b'x'; 30 << 20], 0, 0, 60).expect("a job");
        let ended = server.run(&["work", "--once", "--max-time", "2", "--retries", "0", "--url", &url]);
        drop(silent.join().expect("an endpoint"));
        let expected = match text {
            "" => "no response within 2 s",
            OK => "done after",
            _ => "HTTP 413: large",
        };
        assert!(ended.err.contains(&format!("job {id} of default: {expected}")), "{text}: {}", ended.err);
    }
}

/// The response takes longer than the job's time to run. Without a touch, the job would become ready again.
#[test]
fn a_job_is_touched_while_its_request_runs() {
    with_both(|server| {
        let url = endpoint(|_, stream| {
            std::thread::sleep(Duration::from_secs(3));
            answer(stream, OK)
        });
        server.ok(&["put", "-r", "2", "slow"]);
        let ended = server.run(&["work", "--once", "--max-time", "10", "--url", &url]);
        assert!(ended.code == 0 && ended.err.contains("; deleted"), "{}", ended.err);
        assert_eq!(server.figure("stats", "job-timeouts"), "0");
    });
}

/// If the endpoint has closed the idle connection, the worker must repeat the request once on a new connection.
#[test]
fn a_closed_idle_connection_is_replaced() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "a", "b"]);
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    let url = endpoint(move |got, stream| {
        count.fetch_add(1, Ordering::SeqCst);
        got.place.1 == 0 && answer(stream, OK)
    });
    let ended = server.run(&["work", "-w", "0", "--url", &url]);
    assert_eq!(
        (server.figure("stats", "cmd-delete"), seen.load(Ordering::SeqCst)),
        ("2".to_owned(), 3),
        "{}",
        ended.err
    );
    // On a new connection, the job itself may be the cause of a failure, so the request must not be repeated.
    let url = endpoint(|_, _| false);
    server.ok(&["put", "c"]);
    let ended = server.run(&["work", "--once", "--retries", "0", "--url", &url]);
    assert!(ended.err.contains("the connection was closed before") && ended.err.contains("buried"), "{}", ended.err);
}

#[test]
fn a_revoked_job_and_a_second_signal_abort_the_request() {
    let server = Server::beanpole(&[]);
    let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (starts, ends) = (begun.clone(), ended.clone());
    let url = endpoint(move |_, stream| {
        begun.fetch_add(1, Ordering::SeqCst);
        let _ = stream.read(&mut [0]);
        ended.fetch_add(1, Ordering::SeqCst);
        false
    });
    // The worker notices the revocation only when it touches the job, so it must touch the job long before half of this
    // time to run has passed.
    server.ok(&["put", "-r", "100000", "x"]);
    let line = ["work", "--once", "--max-time", "600", "--url", &url];
    let mut worker = Running::start(server.command(&line));
    wait_until("the request runs", || starts.load(Ordering::SeqCst) == 1);
    server.ok(&["revoke", "1"]);
    wait_until("the request is aborted", || ends.load(Ordering::SeqCst) == 1);
    assert_eq!((worker.code(), server.count("default", "buried")), (Some(1), 1));
    server.ok(&["put", "y"]);
    let mut worker = Running::start(server.command(&line));
    wait_until("the request runs", || starts.load(Ordering::SeqCst) == 2);
    worker.signal(Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(ends.load(Ordering::SeqCst), 1, "the first signal must not abort the request");
    worker.signal(Signal::SIGTERM);
    wait_until("the request is aborted", || ends.load(Ordering::SeqCst) == 2);
    assert_eq!((worker.code(), server.count("default", "ready")), (Some(1), 1));
}

/// A client tries to revoke each job at about the time at which the worker sends the job's HTTP request. If the server
/// accepts the revocation, the job must be buried. Otherwise, the job must be deleted.
#[test]
fn a_revoke_that_races_with_the_response_has_one_winner() {
    let server = Server::beanpole(&[]);
    let url = endpoint(|_, stream| answer(stream, OK));
    let mut worker = Running::start(server.command(&["work", "-q", "-j", "2", "--url", &url]));
    let (mut put, mut revoked) = (0, 0);
    let mut client = server.daemon.client();
    while put < 300 {
        let id = client.put(b"x", 0, 0, 60).expect("a job");
        put += 1;
        client.send(format!("revoke {id} 0\r\n").as_bytes()).expect("a server");
        revoked += u64::from(client.reply().expect("a reply").line == "REVOKED");
    }
    wait_until("all jobs are done", || {
        server.count("default", "ready") + server.count("default", "reserved") == 0
            && server.count("default", "buried") == revoked
    });
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.code(), Some(0));
}

/// Runs an endpoint that records each job in a file. The next test starts and kills a process that runs this function.
#[test]
#[ignore = "run by no_job_is_lost_when_any_process_is_killed"]
fn acts_as_an_endpoint() {
    let Some(ledger) = std::env::var_os("BEANPOLE_LEDGER") else { return };
    let address: SocketAddr = std::env::var("BEANPOLE_ADDRESS").expect("a variable").parse().expect("an address");
    let ledger = std::path::PathBuf::from(ledger);
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    listener.set_reuse_address(true).expect("a socket");
    listener.bind(&address.into()).and_then(|()| listener.listen(64)).expect("a port");
    serve(listener.into(), move |got, stream| {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&ledger).expect("a file");
        file.write_all(&[&got.body[..], b"\n"].concat()).expect("a file");
        std::thread::sleep(Duration::from_millis(5));
        answer(stream, OK)
    });
}

/// The test repeatedly kills the worker, the server and the endpoint. In the end, each job must have been processed.
#[test]
fn no_job_is_lost_when_any_process_is_killed() {
    let folder = Folder::new();
    let (binlog, ledger) = (folder.file("log"), folder.file("ledger"));
    fs::create_dir(&binlog).expect("a directory");
    let binlog = binlog.display().to_string();
    let socket = format!("unix:{}", folder.file("socket").display());
    let free = unassigned("127.91.0.3");
    let url = format!("http://{free}/");
    let start_server = || Daemon::start(&["-l", &socket, "-b", &binlog, "-f0"]);
    let start_endpoint = || {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--ignored", "--exact", "ctl::push::acts_as_an_endpoint"]).env("BEANPOLE_LEDGER", &ledger);
        let child = command.env("BEANPOLE_ADDRESS", free.to_string()).stdout(Stdio::null()).spawn().expect("a child");
        wait_until("the endpoint listens", || TcpStream::connect(free).is_ok());
        Running(child)
    };
    let line = ["work", "-j", "3", "-q", "--retries", "100000", "--backoff", "0", "--url", &url];
    let start_worker = || Running::start(ctl(&socket, &line));
    let (mut server, mut endpoint) = (start_server(), start_endpoint());
    let mut worker = start_worker();
    let all: BTreeSet<String> = (0..400).map(|number| format!("job {number}")).collect();
    let mut put = ctl(&socket, &["put"]);
    put.args(&all);
    assert_eq!(run_command(put).code, 0);
    for round in 0..9 {
        let before = lines(&ledger).len();
        wait_until("more jobs are sent", || lines(&ledger).len() > before + 5);
        match round % 3 {
            0 => {
                worker.signal(Signal::SIGKILL);
                worker = start_worker();
            }
            1 => {
                server.signal(Signal::SIGKILL);
                drop(server);
                server = start_server();
            }
            _ => {
                endpoint.signal(Signal::SIGKILL);
                drop(endpoint);
                endpoint = start_endpoint();
            }
        }
    }
    let left = |server: &Daemon| {
        let mut client = server.client();
        ["ready", "reserved", "delayed", "buried"]
            .map(|state| client.figure("stats", &format!("current-jobs-{state}")).ok())
    };
    let none = [(); 4].map(|()| Some("0".to_owned()));
    wait_until("all jobs are done", || left(&server) == none);
    let done = lines(&ledger);
    assert_eq!(done.iter().cloned().collect::<BTreeSet<String>>(), all);
    assert!(done.len() < all.len() + 9 * 3 + 1, "only the jobs in progress may be sent again: {} requests", done.len());
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.code(), Some(0));
}
