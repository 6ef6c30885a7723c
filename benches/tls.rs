//! Measures the costs of TLS: the memory of an idle connection, and the processor time of an operation and of a
//! handshake.
//!
//! Run `cargo bench --features tls --bench tls`. Requires openssl. The server is a separate process, and the clients
//! are threads of this program. Prints the values with their limits, and the values without TLS for comparison.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{crypto, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const CONNECTIONS: usize = 50;

const OPERATIONS: usize = 4000;

const IDLE: usize = 1000;

/// Handshakes per round. Only the fastest of `ROUNDS` rounds counts, because other programs can slow down a round.
const HANDSHAKES: usize = 500;
const ROUNDS: usize = 4;

struct Server {
    child: Child,
    plain: String,
    secure: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(folder: &Path) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_beanpole"));
        command.args(["-t", "1", "-l", "127.0.0.1:0", "-l", "tls:127.0.0.1:0", "--tls-cert"]);
        command.arg(folder.join("cert.pem")).arg("--tls-key").arg(folder.join("key.pem"));
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let names = line.trim().rsplit_once("listening on ").expect("the addresses").1;
        let (plain, secure) = names.split_once(" and ").expect("two addresses");
        let secure = secure.strip_prefix("tls:").expect("an address with TLS").to_owned();
        Server { child, plain: plain.to_owned(), secure }
    }

    fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()));
        let nanos = |text: String| text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("a process");
        let each = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
        let sum: u64 = each.map(nanos).sum();
        Duration::from_nanos(sum.max(stat.map_or(0, nanos)))
    }

    /// Returns the server's anonymous resident memory (without mapped files) in bytes.
    fn anonymous(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }
}

/// Creates a self-signed elliptic-curve certificate for localhost.
fn make_certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        // By default, openssl marks a self-signed certificate as a CA certificate, and clients do not accept a CA
        // certificate as a server certificate.
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(folder.join("key.pem"))
        .arg("-out")
        .arg(folder.join("cert.pem"))
        .output();
    assert!(made.expect("openssl").status.success());
}

fn client_config(folder: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("cert.pem")).expect("a PEM file")).expect("a certificate");
    let provider = Arc::new(crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

trait Link: Read + Write + Send {}
impl<T: Read + Write + Send> Link for T {}

fn connect(address: &str, config: Option<&Arc<ClientConfig>>) -> Box<dyn Link> {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("an option");
    let Some(config) = config else { return Box::new(stream) };
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(config.clone(), name).expect("a session");
    let mut stream = StreamOwned::new(session, stream);
    ask(&mut stream, b"list-tube-used\r\n", b"USING default\r\n");
    Box::new(stream)
}

fn ask(link: &mut (impl Read + Write + ?Sized), line: &[u8], expected: &[u8]) {
    link.write_all(line).expect("a peer that reads");
    let mut answer = vec![0; expected.len()];
    link.read_exact(&mut answer).expect("a reply");
    assert_eq!(answer, expected);
}

/// Returns the server's processor time for one request of 64 bytes and its reply.
fn operation(server: &Server, address: &str, config: Option<&Arc<ClientConfig>>) -> Duration {
    let line = format!("watch {}\r\n", "x".repeat(56));
    let links: Vec<_> = (0..CONNECTIONS).map(|_| connect(address, config)).collect();
    let before = server.cpu();
    let threads = links.into_iter().map(|mut link| {
        let line = line.clone();
        std::thread::spawn(move || {
            for _ in 0..OPERATIONS {
                ask(&mut *link, line.as_bytes(), b"WATCHING 2\r\n");
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().expect("a client"));
    (server.cpu() - before) / (CONNECTIONS * OPERATIONS) as u32
}

/// Returns the server's memory in bytes per idle connection. With TLS, each connection has sent one request.
fn idle(server: &Server, address: &str, config: Option<&Arc<ClientConfig>>) -> u64 {
    let first: Vec<_> = (0..IDLE).map(|_| connect(address, config)).collect();
    let before = server.anonymous();
    let second: Vec<_> = (0..IDLE).map(|_| connect(address, config)).collect();
    let bytes = server.anonymous().saturating_sub(before) / IDLE as u64;
    drop((first, second));
    bytes
}

fn main() {
    let folder = PathBuf::from(format!("{}/tls-bench-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id()));
    fs::create_dir_all(&folder).expect("a directory");
    make_certificate(&folder);
    let config = client_config(&folder);
    let server = Server::start(&folder);
    let (plain, secure) = (idle(&server, &server.plain, None), idle(&server, &server.secure, Some(&config)));
    println!("idle connection: {secure} bytes with TLS, {plain} without (bounds: tests/tls/idle.rs)");
    for _ in 0..3 {
        let plain = operation(&server, &server.plain, None);
        let secure = operation(&server, &server.secure, Some(&config));
        let ratio = secure.as_secs_f64() / plain.as_secs_f64();
        println!("operation at {CONNECTIONS} connections: {secure:?} with TLS, {plain:?} without, {ratio:.2} times (bound: 1.5)");
    }
    let rounds = (0..ROUNDS).map(|_| {
        let (before, begin) = (server.cpu(), Instant::now());
        (0..HANDSHAKES).for_each(|_| drop(connect(&server.secure, Some(&config))));
        let count = HANDSHAKES as u32;
        ((server.cpu() - before) / count, begin.elapsed() / count)
    });
    let (least, whole) = rounds.min().expect("a round");
    // Measure the cost of a new connection without TLS for comparison.
    let before = server.cpu();
    for _ in 0..HANDSHAKES {
        ask(&mut *connect(&server.plain, None), b"list-tube-used\r\n", b"USING default\r\n");
    }
    let plain = (server.cpu() - before) / HANDSHAKES as u32;
    println!(
        "handshake, ECDSA: {least:?} of processor time with connection, a command and close (bound: 300µs); \
         {plain:?} without TLS; {whole:?} in all"
    );
    drop(server);
    let _ = fs::remove_dir_all(folder);
}
