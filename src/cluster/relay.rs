//! A standby's TCP proxy to the active server, for clients that are configured with a single host. Interprets only the
//! path of the first HTTP request, because a standby itself answers requests about its state.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, sync::Arc, thread::JoinHandle};

use crate::client::{connect_tcp, keep_alive};
use crate::shared::lock_order::LeafMutex;

/// The maximum number of clients. Each client uses two threads. Further connections are closed.
const MAX_CLIENTS: usize = 1000;
const CONNECT: Duration = Duration::from_secs(1);
const FIRST_LINE: Duration = Duration::from_secs(10);
const STACK: usize = 64 * 1024;
/// The name of the protocol whose first request is inspected.
pub const HTTP: &str = "http";
const OWN: [&[u8]; 3] = [b"/healthz", b"/metrics", b"/readyz"];
pub type Services = BTreeMap<String, String>;

pub struct Relay {
    shared: Arc<Shared>,
    /// Each listening socket and its thread. The standard library shuts down only sockets of the type `TcpStream`.
    listening: Vec<(TcpStream, JoinHandle<()>)>,
}

#[derive(Default)]
struct Shared {
    closed: AtomicBool,
    max_clients: usize,
    own: Option<SocketAddr>,
    state: LeafMutex<State>,
}

#[derive(Default)]
struct State {
    /// Empty if no other server is active.
    targets: Services,
    listening: Vec<SocketAddr>,
    open: HashMap<u64, Vec<Arc<TcpStream>>>,
    next: u64,
}

impl Relay {
    /// Listens on each address for its protocol, and forwards at most `max_clients` connections at a time. `own`
    /// receives HTTP requests about this server's state. An error message contains the address.
    pub fn start(addresses: &[(String, String)], max_clients: usize, own: Option<SocketAddr>) -> io::Result<Relay> {
        let shared = Arc::new(Shared { max_clients: max_clients.min(MAX_CLIENTS), own, ..Shared::default() });
        let mut relay = Relay { shared: shared.clone(), listening: Vec::new() };
        for (protocol, address) in addresses {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
            let listener = TcpListener::bind(address).map_err(named)?;
            let (shared, protocol) = (shared.clone(), protocol.clone());
            shared.state.lock().listening.push(listener.local_addr()?);
            let socket = TcpStream::from(OwnedFd::from(listener.try_clone()?));
            let run = move || shared.listen(&listener, &protocol);
            relay.listening.push((socket, std::thread::Builder::new().name("relay".to_owned()).spawn(run)?));
        }
        Ok(relay)
    }

    /// Replaces the addresses of the active server, and closes all connections, because the old server may be
    /// unreachable. Without addresses, accepts only HTTP requests about this server's state.
    pub fn point_to(&self, targets: Services) {
        let mut state = self.shared.state.lock();
        state.targets = targets;
        state.close();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        for (socket, thread) in self.listening.drain(..) {
            // Unblocks the `accept` call. On macOS, the shutdown fails, but a connection unblocks the call.
            let connect = |_| TcpStream::connect_timeout(&socket.local_addr()?, CONNECT).map(drop);
            let _ = socket.shutdown(Shutdown::Both).or_else(connect);
            let _ = thread.join();
        }
        self.shared.state.lock().close();
    }
}

impl State {
    fn close(&self) {
        self.open.values().flatten().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Detects an address at which this relay itself listens. A client forwarded to it would use all connections.
    fn is_own(&self, target: SocketAddr) -> bool {
        let ip = target.ip();
        let source = || {
            let socket = UdpSocket::bind(if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
            socket.connect(target).and_then(|()| socket.local_addr())
        };
        // An address of this machine is also the source of packets to it, except for most loopback addresses.
        let is_local = || ip.is_loopback() || source().is_ok_and(|source| source.ip() == ip);
        let covers = |own: IpAddr| own == ip || ip.is_unspecified() || (own.is_unspecified() && is_local());
        self.listening.iter().any(|own| own.port() == target.port() && covers(own.ip()))
    }
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: &TcpListener, protocol: &str) {
        for client in listener.incoming() {
            if self.closed.load(Ordering::Acquire) {
                return;
            }
            match client {
                Ok(client) => self.accept(Arc::new(client), protocol),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn accept(self: &Arc<Self>, client: Arc<TcpStream>, protocol: &str) {
        let mut state = self.state.lock();
        let target = state.targets.get(protocol).cloned();
        let is_http = protocol == HTTP && self.own.is_some();
        if (target.is_none() && !is_http) || state.open.len() >= self.max_clients {
            return;
        }
        let (number, shared) = (state.next, self.clone());
        state.next += 1;
        state.open.insert(number, vec![client.clone()]);
        drop(state);
        let pass = move || {
            let _ = shared.forward(number, &client, target.filter(|_| !is_http || !is_state_request(&client)));
            shared.state.lock().open.remove(&number);
            let _ = client.shutdown(Shutdown::Both);
        };
        if std::thread::Builder::new().stack_size(STACK).spawn(pass).is_err() {
            self.state.lock().open.remove(&number);
        }
    }

    /// Connects the client to `target`. `None` means the HTTP address of this server.
    fn forward(&self, number: u64, client: &Arc<TcpStream>, target: Option<String>) -> io::Result<()> {
        let mut addresses: Vec<_> = match &target {
            Some(target) => target.to_socket_addrs()?.collect(),
            None => self.own.into_iter().collect(),
        };
        addresses.retain(|address| !self.state.lock().is_own(*address));
        let server = Arc::new(connect_tcp(&*addresses, CONNECT)?);
        keep_alive(client)?;
        {
            let mut state = self.state.lock();
            if target.is_some_and(|target| !state.targets.values().any(|other| *other == target)) {
                return Ok(());
            }
            state.open.get_mut(&number).into_iter().for_each(|streams| streams.push(server.clone()));
        }
        let (from, to) = (server.clone(), client.clone());
        let back = std::thread::Builder::new().stack_size(STACK).spawn(move || {
            let _ = io::copy(&mut &*from, &mut &*to);
            let _ = to.shutdown(Shutdown::Both);
        })?;
        let _ = io::copy(&mut &**client, &mut &*server);
        let _ = server.shutdown(Shutdown::Write);
        let _ = back.join();
        Ok(())
    }
}

/// Detects a request for this server's state. Peeks, so that the bytes of the request stay in the socket buffer.
fn is_state_request(client: &TcpStream) -> bool {
    let mut bytes = [0; 64];
    let _ = client.set_read_timeout(Some(FIRST_LINE));
    let began = Instant::now();
    let is_own = loop {
        let count = client.peek(&mut bytes).unwrap_or(0);
        let line = &bytes[..count];
        let mut words = line.split(|byte| b" \r\n".contains(byte));
        let path = words.by_ref().nth(1).unwrap_or_default();
        // The path is complete or too long, or the client has closed the connection or is too slow.
        if words.next().is_some() || [0, bytes.len()].contains(&count) || began.elapsed() > FIRST_LINE {
            break OWN.iter().any(|own| path.strip_prefix(*own).is_some_and(|rest| matches!(rest, [] | [b'?', ..])));
        }
        // `peek` returns immediately while old bytes are unread.
        std::thread::sleep(Duration::from_millis(5));
    };
    let _ = client.set_read_timeout(None);
    is_own
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn services(protocol: &str, listener: &TcpListener) -> Services {
        let address = listener.local_addr().expect("an address").to_string();
        Services::from([(protocol.to_owned(), address)])
    }

    fn relay(protocol: &str, max_clients: usize, own: Option<SocketAddr>) -> (Relay, SocketAddr) {
        let relay =
            Relay::start(&[(protocol.to_owned(), "127.0.0.1:0".to_owned())], max_clients, own).expect("a relay");
        let address = relay.shared.state.lock().listening[0];
        (relay, address)
    }

    fn server() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").expect("a port")
    }

    fn is_closed(mut client: TcpStream) -> bool {
        client.read(&mut [0]).map_or(true, |count| count == 0)
    }

    #[test]
    fn a_switch_closes_the_connections_to_the_previous_server() {
        let servers = [server(), server()];
        let (relay, address) = relay("beanstalk", 9, None);
        let client = || TcpStream::connect(address).expect("a relay");
        relay.point_to(services("beanstalk", &servers[0]));
        let first = client();
        // Keep the server's end of the connection open.
        let _held = servers[0].accept().expect("a client");
        // The same server is active again after its connections may have been lost.
        relay.point_to(services("beanstalk", &servers[0]));
        assert!(is_closed(first));
        let first = client();
        let _held = servers[0].accept().expect("a client");
        relay.point_to(services("beanstalk", &servers[1]));
        assert!(is_closed(first));
        let second = client();
        let (mut server, _) = servers[1].accept().expect("a client");
        io::Write::write_all(&mut server, b"x").expect("a client");
        (&second).read_exact(&mut [0]).expect("the server's byte");
        relay.point_to(Services::new());
        assert!(is_closed(second) && is_closed(client()));
    }

    #[test]
    fn the_number_of_clients_is_limited() {
        let server = server();
        let (relay, address) = relay("workq", 2, None);
        relay.point_to(services("workq", &server));
        let clients: Vec<_> = (0..2).map(|_| TcpStream::connect(address).expect("a relay")).collect();
        let held: Vec<_> = (0..2).map(|_| server.accept().expect("a client")).collect();
        assert!(is_closed(TcpStream::connect(address).expect("a relay")));
        drop((clients, held));
    }

    #[test]
    fn a_relay_does_not_forward_clients_to_itself() {
        for (listen, target) in [
            ("0.0.0.0:0", "0.0.0.0"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.8.8.8"),
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.1:0", "0.0.0.0"),
        ] {
            let relay = Relay::start(&[("workq".to_owned(), listen.to_owned())], 9, None).expect("a relay");
            let port = relay.shared.state.lock().listening[0].port();
            relay.point_to(Services::from([("workq".to_owned(), format!("{target}:{port}"))]));
            let client = TcpStream::connect(("127.0.0.1", port)).expect("a relay");
            client.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
            assert!(matches!((&client).read(&mut [0]), Ok(0)), "{listen} {target}");
            assert_eq!(relay.shared.state.lock().next, 1, "{listen} {target}");
        }
    }

    #[test]
    fn a_relay_forwards_clients_to_another_server_of_the_same_port() {
        let (relay, address, server) = loop {
            let (relay, address) = relay("workq", 9, None);
            // Another process may use the port of the second address.
            if let Ok(server) = TcpListener::bind(("127.0.0.2", address.port())) {
                break (relay, address, server);
            }
        };
        relay.point_to(services("workq", &server));
        let _client = TcpStream::connect(address).expect("a relay");
        server.accept().expect("a client");
    }

    #[test]
    fn every_address_of_the_active_server_is_tried() {
        let server = server();
        let port = server.local_addr().expect("an address").port();
        let (relay, address) = relay("workq", 9, None);
        // Where the name also has an IPv6 address, nothing listens at the IPv6 address.
        relay.point_to(Services::from([("workq".to_owned(), format!("localhost:{port}"))]));
        let _client = TcpStream::connect(address).expect("a relay");
        server.accept().expect("a client");
    }

    #[test]
    fn http_requests_about_this_server_are_not_forwarded() {
        let (active, own) = (server(), server());
        let (relay, address) = relay(HTTP, 9, Some(own.local_addr().expect("an address")));
        relay.point_to(services(HTTP, &active));
        for (request, is_own) in [
            ("GET /readyz HTTP/1.1\r\n\r\n", true),
            ("GET /metrics?x HTTP/1.1\r\n\r\n", true),
            ("HEAD /healthz HTTP/1.1\r\n\r\n", true),
            ("GET /metricsx HTTP/1.1\r\n\r\n", false),
            ("POST /tubes/readyz/jobs HTTP/1.1\r\n\r\n", false),
            ("GET / HTTP/1.1\r\n\r\n", false),
        ] {
            let mut client = TcpStream::connect(address).expect("a relay");
            let (start, end) = request.split_at(6);
            io::Write::write_all(&mut client, start.as_bytes()).expect("a relay");
            // Longer than the relay's pause between two peeks at the request.
            std::thread::sleep(Duration::from_millis(20));
            io::Write::write_all(&mut client, end.as_bytes()).expect("a relay");
            let (mut server, _) = if is_own { &own } else { &active }.accept().expect("a client");
            let mut bytes = vec![0; request.len()];
            server.read_exact(&mut bytes).expect("the request");
            assert_eq!(bytes, request.as_bytes());
        }
        relay.point_to(Services::new());
        let mut client = TcpStream::connect(address).expect("a relay");
        io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\n\r\n").expect("a relay");
        own.accept().expect("a request to this server");
    }
}
