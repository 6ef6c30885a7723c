//! A standby's door for clients that know one host only: it hands their bytes to the active server, whatever they are.
//!
//! Owns a listener and two threads for each connection. It ends with the process. Must not look at what it passes on.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    target: Arc<Mutex<String>>,
    closed: Arc<AtomicBool>,
    address: SocketAddr,
    listening: Option<std::thread::JoinHandle<()>>,
}

impl Relay {
    /// Listens here from now on.
    pub fn start(address: impl ToSocketAddrs) -> io::Result<Relay> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (target, closed) = (Arc::new(Mutex::new(String::new())), Arc::new(AtomicBool::new(false)));
        let (to, ends, count) = (target.clone(), closed.clone(), Arc::new(AtomicUsize::new(0)));
        let run = move || {
            for client in listener.incoming() {
                if ends.load(Ordering::Acquire) {
                    return;
                }
                let Ok(client) = client else {
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                };
                if count.load(Ordering::Relaxed) < MOST {
                    let (to, count) = (to.lock().clone(), count.clone());
                    count.fetch_add(1, Ordering::Relaxed);
                    let pass = move || {
                        let _ = pass_on(&client, &to);
                        count.fetch_sub(1, Ordering::Relaxed);
                    };
                    let _ = std::thread::Builder::new().stack_size(STACK).spawn(pass);
                }
            }
        };
        let listening = Some(std::thread::Builder::new().name("relay".to_owned()).spawn(run)?);
        Ok(Relay { target, closed, address, listening })
    }

    /// Where the active server is.
    pub fn point_to(&self, address: &str) {
        address.clone_into(&mut self.target.lock());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        // It sees that at its next connection.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT);
        if let Some(thread) = self.listening.take() {
            let _ = thread.join();
        }
    }
}

fn pass_on(client: &TcpStream, target: &str) -> io::Result<()> {
    let address = target.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let server = TcpStream::connect_timeout(&address, CONNECT)?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    let back = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        // The server has ended, in order or not: so must the client's connection.
        let _ = to.shutdown(Shutdown::Both);
    })?;
    let _ = io::copy(&mut &*client, &mut &server);
    let _ = server.shutdown(Shutdown::Write);
    let _ = back.join();
    Ok(())
}
