//! A standby's door for clients that know one host only: it hands their bytes to the active server, whatever they are.
//!
//! Owns a listener and two threads for each connection. It ends with the process. Must not look at what it passes on.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Connections that are passed on at a time; more are closed at once.
const MOST: usize = 1000;

/// How long a connection to the active server may take to come about.
const CONNECT: Duration = Duration::from_secs(1);

/// Bytes of stack of a thread that only copies.
const STACK: usize = 64 * 1024;

pub struct Relay {
    shared: Arc<Shared>,
    address: SocketAddr,
    listening: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    closed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The address of the active server. Empty if there is none but this one.
    target: String,
    /// The connections to clients and to the active server, by a number of their own.
    open: HashMap<u64, Vec<TcpStream>>,
    next: u64,
}

impl Relay {
    /// Listens here from now on.
    pub fn start(address: impl ToSocketAddrs) -> io::Result<Relay> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::<Shared>::default();
        let run = {
            let shared = shared.clone();
            move || {
                for client in listener.incoming() {
                    if shared.closed.load(Ordering::Acquire) {
                        return;
                    }
                    match client {
                        Ok(client) => shared.accept(client),
                        Err(_) => std::thread::sleep(Duration::from_millis(10)),
                    }
                }
            }
        };
        let listening = Some(std::thread::Builder::new().name("relay".to_owned()).spawn(run)?);
        Ok(Relay { shared, address, listening })
    }

    /// Forwards new clients to this address, and closes all connections to another one, which may be those of a machine
    /// that is gone. An empty address means that this server was active last: it must not forward to itself.
    pub fn point_to(&self, address: &str) {
        let mut state = self.shared.state.lock();
        if state.target != address {
            address.clone_into(&mut state.target);
            state.open.values().flatten().for_each(close);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        // It sees that at its next connection.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT);
        if let Some(thread) = self.listening.take() {
            let _ = thread.join();
        }
        self.shared.state.lock().open.values().flatten().for_each(close);
    }
}

fn close(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

impl Shared {
    /// Forwards a client in a thread of its own, unless there is no active server or there are too many clients.
    fn accept(self: &Arc<Self>, client: TcpStream) {
        let mut state = self.state.lock();
        let Ok(own) = client.try_clone() else { return };
        if state.target.is_empty() || state.open.len() >= MOST {
            return;
        }
        let (number, target, shared) = (state.next, state.target.clone(), self.clone());
        state.next += 1;
        state.open.insert(number, vec![own]);
        drop(state);
        let pass = move || {
            let _ = shared.pass_on(number, &client, &target);
            shared.state.lock().open.remove(&number);
            close(&client);
        };
        if std::thread::Builder::new().stack_size(STACK).spawn(pass).is_err() {
            self.state.lock().open.remove(&number);
        }
    }

    fn pass_on(&self, number: u64, client: &TcpStream, target: &str) -> io::Result<()> {
        let address = target.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
        let server = TcpStream::connect_timeout(&address, CONNECT)?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        {
            let mut state = self.state.lock();
            if state.target != target {
                return Ok(());
            }
            if let Some(streams) = state.open.get_mut(&number) {
                streams.push(server.try_clone()?);
            }
        }
        let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
        let back = std::thread::Builder::new().stack_size(STACK).spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            // The server has ended, in order or not: so must the client's connection.
            close(&to);
        })?;
        let _ = io::copy(&mut &*client, &mut &server);
        let _ = server.shutdown(Shutdown::Write);
        let _ = back.join();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_switch_closes_the_connections_to_the_server_before_and_nothing_goes_to_this_one() {
        let servers: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let address = |number: usize| servers[number].local_addr().expect("an address").to_string();
        let relay = Relay::start("127.0.0.1:0").expect("a relay");
        let client = || TcpStream::connect(relay.address).expect("a relay");
        let is_closed = |mut client: TcpStream| client.read(&mut [0]).map_or(true, |count| count == 0);
        relay.point_to(&address(0));
        let first = client();
        // Neither side ends by itself.
        let _held = servers[0].accept().expect("a client");
        relay.point_to(&address(0));
        relay.point_to(&address(1));
        assert!(is_closed(first));
        let second = client();
        let (mut server, _) = servers[1].accept().expect("a client");
        io::Write::write_all(&mut server, b"x").expect("a client");
        (&second).read_exact(&mut [0]).expect("what the server sent");
        relay.point_to("");
        assert!(is_closed(second) && is_closed(client()));
    }
}
