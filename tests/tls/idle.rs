//! Compares the memory of an idle TLS connection with the sizes in beanpole-access(7) and beanpole-memory(7): what the
//! real program uses, what the TLS library holds in a session of this process, and what the server charges.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::Arc;

use beanpole::internals::system::raise_file_limit;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{crypto, ClientConnection, ServerConfig};

use super::{address, ask, config, connect, folder, start};
use crate::daemon::{Daemon, Folder};
use crate::growth::figure;

const CONNECTIONS: u64 = 500;

/// The capacity of the buffers between the two ends of a session, sufficient for a handshake.
const ROOM: usize = 32 * 1024;

thread_local! {
    /// The bytes that this thread has allocated and not freed. Wraps if the thread frees memory of other threads.
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system's allocator executes each call.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get().wrapping_add(layout.size()));
        // SAFETY: the caller fulfills the requirements of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.set(ALLOCATED.get().wrapping_sub(layout.size()));
        // SAFETY: the pointer was returned by `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Lets the server process `input`, and appends its reply to `output`. Returns the length of the received plaintext.
fn process(server: &mut UnbufferedServerConnection, input: &mut Vec<u8>, output: &mut Vec<u8>) -> usize {
    let mut received = 0;
    loop {
        let UnbufferedStatus { mut discard, state } = server.process_tls_records(input);
        let mut more = true;
        match state.expect("a correct client") {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.expect("a record");
                    discard += record.discard;
                    received += record.payload.len();
                }
            }
            ConnectionState::EncodeTlsData(mut data) => {
                let begin = output.len();
                output.resize(ROOM, 0);
                let count = data.encode(&mut output[begin..]).expect("buffer space");
                output.truncate(begin + count);
            }
            ConnectionState::TransmitTlsData(data) => data.done(),
            _ => more = false,
        }
        input.drain(..discard);
        if !more {
            return received;
        }
    }
}

/// Returns the number of bytes that the library holds for a session without pending data.
fn held_by_the_library(folder: &Folder) -> u64 {
    let chain = CertificateDer::pem_file_iter(folder.file("server.pem")).expect("a file");
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(folder.file("server.key")).expect("a key");
    let builder = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let mut own = builder.with_single_cert(chain, key).expect("a pair");
    own.session_storage = Arc::new(NoServerSessionStorage {});
    own.send_tls13_tickets = 0;
    let own = Arc::new(own);
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(config(folder, None), name).expect("a session");
    client.writer().write_all(b"list-tube-used\r\n").expect("buffer space");
    let (mut input, mut output) = (Vec::with_capacity(ROOM), Vec::with_capacity(ROOM));
    let before = ALLOCATED.get();
    let mut server = Box::new(UnbufferedServerConnection::new(own.clone()).expect("a session"));
    let mut held = ALLOCATED.get().wrapping_sub(before);
    let mut received = 0;
    while client.wants_write() {
        client.write_tls(&mut input).expect("buffer space");
        let before = ALLOCATED.get();
        received += process(&mut server, &mut input, &mut output);
        held = held.wrapping_add(ALLOCATED.get().wrapping_sub(before));
        let mut reply = output.as_slice();
        while !reply.is_empty() {
            client.read_tls(&mut reply).expect("buffer space");
            client.process_new_packets().expect("a correct server");
        }
        output.clear();
    }
    assert_eq!((received, server.is_handshaking()), (b"list-tube-used\r\n".len(), false));
    held as u64
}

/// Returns the program's memory in bytes, without mapped files. This figure is exact, unlike those in
/// `/proc/PID/status`.
fn anonymous(daemon: &Daemon) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", daemon.pid())).expect("a running process");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Returns the memory in bytes of an idle connection that has received a reply, and the bytes that the server charges.
fn per_connection<L: Read + Write>(daemon: &Daemon, link: impl Fn() -> L) -> (u64, u64) {
    let idle = || {
        let mut link = link();
        assert_eq!(ask(&mut link, "list-tube-used").expect("a reply"), "USING default");
        link
    };
    let mut observer = daemon.client();
    let mut now = || (anonymous(daemon), figure(&mut observer, "memory-buffers"));
    let connections = || (0..CONNECTIONS).map(|_| idle()).collect::<Vec<L>>();
    let first = connections();
    let before = now();
    let second = connections();
    let after = now();
    drop((first, second));
    (after.0.saturating_sub(before.0) / CONNECTIONS, after.1.saturating_sub(before.1) / CONNECTIONS)
}

/// Returns the number before `words` in a man page.
fn documented(page: &str, words: &str) -> u64 {
    let text = std::fs::read_to_string(format!("man/{page}")).expect("a page").replace('\n', " ");
    let (before, _) = text.split_once(words).unwrap_or_else(|| panic!("{page}: there is no \"{words}\""));
    before.split_whitespace().last().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn idle_connections_use_the_documented_memory() {
    raise_file_limit();
    let folder = folder();
    let server = || start(&folder, &["-l", "127.0.0.1:0", "-t", "1"]);
    let daemon = server();
    let (plain, plain_charge) = per_connection(&daemon, || daemon.tcp());
    let daemon = server();
    let at = address(&daemon, "");
    let (secure, charge) = per_connection(&daemon, || connect(&folder, &at, None));
    let library = held_by_the_library(&folder);
    let (added, charged) = (secure - plain, charge - plain_charge);
    println!("TLS adds {added} bytes to {plain}, of which the library holds {library}; the server charges {charged}");
    let at_most = |measured, words| {
        let documented = documented("beanpole-access.7", words);
        assert!(
            (documented * 4 / 5..=documented).contains(&measured),
            "measured {measured}, documented as {documented}{words}"
        );
    };
    at_most(added, " bytes more memory than an unencrypted connection");
    at_most(library, " bytes for the keys and the state of the session");
    assert_eq!(charged, documented("beanpole-memory.7", " bytes more if it uses TLS"));
    assert!(added <= charged);
}
