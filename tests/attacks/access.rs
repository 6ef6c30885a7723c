//! Attacks with too many connections or with idle ones. Checks which clients the server admits, and which it drops.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use beanpole::Client;
use socket2::{Domain, Socket, Type};

use crate::daemon::{Daemon, Folder};
use crate::traffic::{address_of, Clients};
use crate::trial::Trial;

const ANSWER: Duration = Duration::from_secs(3);

/// The reaction of the server to `list-tube-used`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Served,
    Refused,
    Closed,
    Silence,
}

fn connect_from(source: &str, daemon: &Daemon) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let source: IpAddr = source.parse().expect("an address");
    socket.bind(&SocketAddr::new(source, 0).into()).expect("a local address");
    socket.connect(&daemon.address().into()).expect("a connection");
    socket.set_read_timeout(Some(ANSWER)).expect("a connection");
    socket.into()
}

fn ask(stream: &mut (impl Read + Write)) -> Answer {
    // The server may close the connection before the request is sent.
    let _ = stream.write_all(b"list-tube-used\r\n");
    let mut bytes = [0; 64];
    match stream.read(&mut bytes) {
        Ok(0) => Answer::Closed,
        Ok(length) if bytes[..length].starts_with(b"USING") => Answer::Served,
        Ok(length) if bytes[..length].starts_with(b"OUT_OF_MEMORY") => Answer::Refused,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Answer::Silence,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Answer::Closed,
        other => panic!("unexpected reply: {other:?}"),
    }
}

/// One address opens more connections than an address may have. Clients at other addresses must still be admitted.
pub fn one_address(trial: &mut Trial) {
    let daemon = trial.start(&[], &["--max-connections", "100", "--max-connections-per-address", "10"]);
    let mut first: Vec<_> = (0..15).map(|_| connect_from("127.0.0.2", &daemon)).collect();
    let answers: Vec<Answer> = first.iter_mut().map(ask).collect();
    let expected = [vec![Answer::Served; 10], vec![Answer::Refused; 5]].concat();
    trial.same("one address", answers, expected);
    let mut second: Vec<_> = (0..10).map(|_| connect_from("127.0.0.3", &daemon)).collect();
    let answers: Vec<Answer> = second.iter_mut().map(ask).collect();
    trial.same("another address", answers, vec![Answer::Served; 10]);
    // After the first address has closed some connections, the server must admit this address again.
    first.truncate(9);
    let end = Instant::now() + ANSWER;
    while ask(&mut connect_from("127.0.0.2", &daemon)) != Answer::Served {
        if Instant::now() > end {
            trial.check(false, || "the address is refused although it has closed connections".to_owned());
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs the program in a network namespace whose loopback interface also has the address 10.77.0.1.
const APART: &str =
    "exec unshare -rn sh -c 'ip link set lo up && ip addr add 10.77.0.1/32 dev lo && exec \"$0\" \"$@\"' \"$0\" \"$@\"";

/// An address outside 127.0.0.0/8, with the port.
const ADDRESS: &str = "10.77.0.1:11300";

/// Other clients use all TCP connections. An operator must still be able to connect through the Unix socket.
pub fn operator(trial: &mut Trial) {
    let tools = ["unshare -rn ip link set lo up", "nsenter --version"];
    if !tools.iter().all(|tool| succeeds(tool)) {
        trial.note("skipped: no ip(8), nsenter(1), or unshare(1) with user namespaces".to_owned());
        return;
    }
    let folder = Folder::new();
    let socket = folder.file("socket");
    let mut command = Command::new("sh");
    command.args(["-c", APART]).arg(trial.program());
    command.args(["-l", ADDRESS, "-l", &format!("unix:{}", socket.display()), "--max-connections", "30"]);
    let daemon = Daemon::spawn(command);
    let own = std::env::current_exe().expect("the path of this program");
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &daemon.pid().to_string(), "--user", "--net", "--preserve-credentials"]).arg(own);
    // The child process exits at the end of its standard input.
    let mut crowd = enter.arg("--crowd").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child process");
    let mut line = String::new();
    BufReader::new(crowd.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    trial.same("connections served of 60 (limit 30)", line.trim(), "30");
    let answer = Client::connect_unix(&socket).map_err(|error| error.to_string()).and_then(|mut operator| {
        let figure = operator.figure("stats", "max-connections");
        figure.map_err(|error| error.to_string())
    });
    trial.check(answer.is_ok(), || format!("the operator is not served: {answer:?}"));
    drop(crowd.stdin.take());
    crowd.wait().expect("a child process");
}

/// Silent clients without credentials use all connections. A client with a valid token must still be served soon.
pub fn strangers(trial: &mut Trial) {
    let folder = Folder::new();
    let path = folder.file("access");
    let digest: String = hmac_sha256::Hash::hash(b"secret").iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(&path, format!("me token:sha256:{digest} all\n")).expect("a file");
    let path = path.to_str().expect("a UTF-8 path");
    // Tokens are not accepted over TCP without TLS.
    let socket = folder.file("socket");
    let address = format!("unix:{}", socket.display());
    let _daemon = trial.start(&[], &["-l", &address, "--access", path, "--max-connections", "100"]);
    let connect = || {
        let stream = UnixStream::connect(&socket).expect("a connection");
        stream.set_read_timeout(Some(ANSWER)).expect("a connection");
        stream
    };
    let silent: Vec<_> = (0..150).map(|_| connect()).collect();
    let began = Instant::now();
    let mut me = loop {
        let mut stream = connect();
        let mut reply = [0; 15];
        let asked = stream.write_all(b"auth secret\r\n").and_then(|()| stream.read_exact(&mut reply));
        if asked.is_ok() && &reply == b"AUTHENTICATED\r\n" {
            break stream;
        }
        assert!(began.elapsed() < ANSWER, "the client is not served");
        std::thread::sleep(Duration::from_millis(20));
    };
    trial.note(format!("served after {} ms", began.elapsed().as_millis()));
    trial.same("the client", ask(&mut me), Answer::Served);
    drop(silent);
}

/// Clients that send many requests and read no replies use all HTTP connections. `/healthz` must still be served soon.
pub fn health(trial: &mut Trial) {
    const HTTP_CONNECTIONS: usize = 88;
    let daemon = trial.start(&[], &["--http=127.0.0.1:0"]);
    let address = address_of(&daemon, "HTTP");
    let mut crowd = Clients::open_at(address, HTTP_CONNECTIONS, Some(4096));
    crowd.push(&b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2000));
    let mut half = Clients::open_at(address, HTTP_CONNECTIONS, None);
    half.push(b"GET /healthz HTTP/1.1\r\n");
    let began = Instant::now();
    while !is_healthy(address) {
        assert!(began.elapsed() < ANSWER, "/healthz is not served");
        std::thread::sleep(Duration::from_millis(20));
    }
    trial.note(format!("served after {} ms", began.elapsed().as_millis()));
}

fn is_healthy(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(ANSWER)).expect("a connection");
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut reply = Vec::new();
    let _ = stream.write_all(request).and_then(|()| stream.read_to_end(&mut reply).map(drop));
    reply.starts_with(b"HTTP/1.1 200 ")
}

fn succeeds(line: &str) -> bool {
    let mut command = Command::new("sh");
    let command = command.args(["-c", line]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Entry point of the child process. Opens connections, prints the number of admitted connections, and keeps all
/// connections open until the end of standard input.
pub fn crowd() {
    let connect = |_| {
        let stream = TcpStream::connect(ADDRESS).expect("a connection");
        stream.set_read_timeout(Some(ANSWER)).expect("a connection");
        stream
    };
    let mut crowd: Vec<TcpStream> = (0..60).map(connect).collect();
    println!("{}", crowd.iter_mut().map(ask).filter(|answer| *answer == Answer::Served).count());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The server drops silent clients, but not clients that wait for a job or send commands occasionally.
pub fn idle(trial: &mut Trial) {
    let daemon = trial.start(&[], &["--idle-timeout", "1"]);
    let connect = || connect_from("127.0.0.1", &daemon);
    let (mut idle, mut waiting, mut talking, mut half) = (connect(), connect(), connect(), connect());
    trial.same("a new connection", ask(&mut idle), Answer::Served);
    waiting.write_all(b"reserve\r\n").expect("a connection");
    half.write_all(b"put 0 0 60 10\r\nxxx").expect("a connection");
    let end = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < end {
        trial.same("a client that sends commands", ask(&mut talking), Answer::Served);
        std::thread::sleep(Duration::from_millis(250));
    }
    let closed = |stream: &mut TcpStream| matches!(stream.read(&mut [0; 64]), Ok(0));
    trial.check(closed(&mut idle), || "an idle connection was not closed".to_owned());
    trial.check(closed(&mut half), || "a connection with an incomplete body was not closed".to_owned());
    talking.write_all(b"put 0 0 60 1\r\nx\r\n").expect("a connection");
    let mut bytes = [0; 8];
    let woken = waiting.read_exact(&mut bytes);
    trial.check(woken.is_ok() && &bytes == b"RESERVED", || format!("a waiting client received no job: {woken:?}"));
}

/// More clients connect than the server has descriptors. Each client must get a reply.
pub fn few_files(trial: &mut Trial) {
    connect_with_files(trial, "ulimit -n 20");
}

pub fn fewest_files(trial: &mut Trial) {
    connect_with_files(trial, "ulimit -n 16");
}

fn connect_with_files(trial: &mut Trial, limit: &str) {
    let daemon = trial.start_within(limit, &[], &["-t", "1"]);
    let mut clients: Vec<_> = (0..30).map(|_| connect_from("127.0.0.1", &daemon)).collect();
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| ask(client))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client")).collect()
    });
    let count = |wanted: Answer| answers.iter().filter(|answer| **answer == wanted).count();
    trial.note(format!("{} served, {} refused", count(Answer::Served), count(Answer::Refused)));
    trial.same("clients without a reply", count(Answer::Silence), 0);
    trial.same("connections closed without a reply", count(Answer::Closed), 0);
    trial.check(count(Answer::Served) > 0, || "no client was served".to_owned());
    drop(clients);
    let end = Instant::now() + ANSWER;
    while ask(&mut connect_from("127.0.0.1", &daemon)) != Answer::Served {
        assert!(Instant::now() < end, "no client is served after the others have disconnected");
        std::thread::sleep(Duration::from_millis(50));
    }
}
