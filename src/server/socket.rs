//! Streams and listeners over TCP and Unix sockets. Must not depend on protocols.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::{fmt, time::Duration};

use mio::net::{TcpListener, UnixListener};
use mio::{event::Source, unix::SourceFd, Interest, Registry, Token};
use nix::fcntl::{Flock, FlockArg};
use nix::{errno::Errno, libc::S_IFMT, libc::S_IFSOCK};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use crate::settings::config::Keepalive;
use crate::shared::files::{self, FileEntry, FilePlace};
use crate::shared::system;

/// The length of the accept queue. The kernel may apply a lower limit.
const BACKLOG: i32 = 1024;

/// The maximum number of bytes in a send. While a client reads as fast as the server writes, the thread serves other
/// clients between two sends.
pub const MAX_SENT: usize = 512 * 1024;

/// The number of attempts to lock a directory, which servers lock only while they bind a socket.
const LOCK_TRIES: u32 = 100;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Only one thread reads, but any thread may write. Unix sockets also use `TcpStream`: the system calls are the same.
pub struct Stream(TcpStream);

impl Stream {
    pub fn new(socket: impl Into<OwnedFd>) -> Stream {
        Stream(socket.into().into())
    }

    pub fn read(&self, buffers: &mut [IoSliceMut]) -> io::Result<usize> {
        // The kernel handles a single buffer faster than a list with one buffer.
        match buffers {
            [buffer] => (&self.0).read(buffer),
            buffers => (&self.0).read_vectored(buffers),
        }
    }

    pub fn write(&self, buffers: &[IoSlice]) -> io::Result<usize> {
        match buffers {
            [buffer] => (&self.0).write(buffer),
            buffers => (&self.0).write_vectored(buffers),
        }
    }

    /// Returns the number of sent bytes that the peer has not acknowledged (TCP) or read (Unix), or 0 if unknown.
    #[allow(unsafe_code)]
    pub fn unsent(&self) -> usize {
        let mut count: nix::libc::c_int = 0;
        // SAFETY: the descriptor is open as long as `self` exists, and TIOCOUTQ writes one int.
        let result = unsafe { nix::libc::ioctl(self.as_raw_fd(), nix::libc::TIOCOUTQ, &mut count) };
        usize::try_from(count).ok().filter(|_| result == 0).unwrap_or(0)
    }

    /// Must be called before the token is reused, because other references may keep the stream open.
    pub fn deregister(&self, registry: &Registry) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).deregister(registry)
    }

    /// Also requests events for urgent data, because a read stops at the urgent mark even if more data follows.
    pub fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        let interest = system::URGENT.map_or(both, |urgent| both | urgent);
        SourceFd(&self.as_raw_fd()).register(registry, token, interest)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The address of a client. Smaller than [`SocketAddr`], because each connection has one.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress {
    ip: Option<IpAddr>,
    port: u16,
    scope: u32,
    pub is_tls: bool,
}

impl PeerAddress {
    pub const UNIX: PeerAddress = PeerAddress { ip: None, port: 0, scope: 0, is_tls: false };

    pub fn new(address: SocketAddr, is_tls: bool) -> PeerAddress {
        let scope = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
        PeerAddress { ip: Some(address.ip()), port: address.port(), scope, is_tls }
    }

    /// Returns the IP address, or `None` for a Unix socket. An IPv4 client of an IPv6 listener has an IPv4 address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip.map(|ip| ip.to_canonical())
    }

    /// Depends only on the IP address.
    pub fn hash(&self) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(self.ip())
    }

    pub fn is_local(&self) -> bool {
        self.ip().is_none_or(|ip| ip.is_loopback())
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self.ip {
            Some(IpAddr::V4(ip)) => SocketAddrV4::new(ip, self.port).fmt(formatter),
            Some(IpAddr::V6(ip)) => SocketAddrV6::new(ip, self.port, 0, self.scope).fmt(formatter),
            None => formatter.write_str("unix"),
        }
    }
}

/// A blocking listener. The `accept` methods of the mio types create non-blocking connections with one system call.
pub enum Listener {
    /// The `bool` is `true` for TLS.
    Tcp(TcpListener, bool),
    Unix(UnixListener, Option<SocketFile>),
}

/// Dropping this value removes the socket file, unless it has been replaced.
pub struct SocketFile {
    path: PathBuf,
    entry: FileEntry,
}

/// A bound socket. Unix sockets already listen, because other servers would otherwise consider the socket dead.
pub struct Bound {
    socket: Socket,
    file: Option<SocketFile>,
    tls: bool,
}

impl Bound {
    pub fn tcp(address: SocketAddr, tls: bool) -> io::Result<Bound> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            // Allow separate listeners on "::" and "0.0.0.0".
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        Ok(Bound { socket, file: None, tls })
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok().and_then(|address| address.as_socket())
    }

    /// Binds a socket and listens. Replaces a socket file on which no server listens. `mode` is the file mode.
    pub fn unix(path: &Path, mode: u32) -> io::Result<Bound> {
        SockAddr::unix(path)?; // Fails if the path is too long for clients to connect to.
        let place = FilePlace::find(path)?;
        let fixed = place.fixed_path(path);
        // The lock serializes servers that find the same dead socket: the second one finds the first one's socket.
        let _lock = lock_directory(&place, path);
        // If the status is unknown although the file exists, `bind` also fails.
        if let Ok(found) = place.status() {
            let is_socket = found.st_mode & S_IFMT == S_IFSOCK;
            ensure!(is_socket, io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is in the way"));
            ensure!(!is_alive(&fixed)?, io::Error::new(io::ErrorKind::AddrInUse, "another server is listening on it"));
            log::info!("removing the socket file {} that nobody listens on", path.display());
            place.remove()?;
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let address = SockAddr::unix(&fixed)?;
        files::bind_with_mode(&fixed, mode, || socket.bind(&address))?;
        let file = SocketFile { path: path.to_owned(), entry: place.into_entry()? };
        socket.listen(BACKLOG)?;
        Ok(Bound { socket, file: Some(file), tls: false })
    }

    pub fn listen(self, keepalive: &Keepalive) -> io::Result<Listener> {
        if self.file.is_some() {
            return Ok(Listener::unix(self.socket, self.file));
        }
        self.socket.listen(BACKLOG)?;
        let listener = Listener::Tcp(TcpListener::from_std(self.socket.into()), self.tls);
        listener.prepare(keepalive)?;
        Ok(listener)
    }
}

impl Listener {
    /// `socket` must be listening and in blocking mode.
    pub fn tcp(socket: Socket) -> Listener {
        Listener::Tcp(TcpListener::from_std(socket.into()), false)
    }

    pub fn unix(socket: Socket, file: Option<SocketFile>) -> Listener {
        Listener::Unix(UnixListener::from_std(socket.into()), file)
    }

    /// Sets the socket options that accepted connections inherit.
    pub fn prepare(&self, keepalive: &Keepalive) -> io::Result<()> {
        let Listener::Tcp(listener, _) = self else { return Ok(()) };
        let socket = SockRef::from(listener);
        socket.set_tcp_nodelay(true)?;
        if keepalive.idle == 0 {
            return socket.set_keepalive(false);
        }
        let [idle, interval] = [keepalive.idle, keepalive.interval].map(|secs| Duration::from_secs(secs.into()));
        let probes = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(keepalive.count);
        socket.set_tcp_keepalive(&probes)?;
        // Keepalive detects dead peers only on idle connections. This limit detects peers that do not acknowledge data.
        system::limit_unacknowledged(&socket, idle + interval * keepalive.count)
    }

    pub fn accept(&self) -> io::Result<(Stream, PeerAddress)> {
        match self {
            Listener::Tcp(it, tls) => {
                it.accept().map(|(stream, peer)| (Stream::new(stream), PeerAddress::new(peer, *tls)))
            }
            Listener::Unix(it, _) => it.accept().map(|(stream, _)| (Stream::new(stream), PeerAddress::UNIX)),
        }
    }

    /// Wakes the listener thread. Shuts down the socket, but connects to an inherited one: other processes may use it.
    pub fn wake(&self, inherited: bool) {
        let socket = SockRef::from(self);
        match if inherited { call(&socket) } else { socket.shutdown(std::net::Shutdown::Both) } {
            Ok(()) => {}
            // The listener thread has not noticed the shutdown yet.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(error) => log::debug!("waking {}: {error}", self.name()),
        }
    }

    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }

    pub fn local_address(&self) -> Option<SocketAddr> {
        SockRef::from(self).local_addr().ok()?.as_socket()
    }

    pub fn name(&self) -> String {
        match (self, self.local_address(), SockRef::from(self).local_addr()) {
            (Listener::Tcp(_, true), Some(address), _) => format!("tls:{address}"),
            (Listener::Tcp(..), Some(address), _) => address.to_string(),
            (Listener::Tcp(..), None, _) => "tcp".to_owned(),
            (Listener::Unix(_, Some(file)), ..) => format!("unix:{}", file.path.display()),
            (Listener::Unix(..), _, address) => match address.ok().as_ref().and_then(SockAddr::as_pathname) {
                Some(path) => format!("unix:{}", path.display()),
                None => "unix".to_owned(),
            },
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener, _) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = self.entry.remove() {
            log::warn!("the socket file {} stays behind: {error}", self.path.display());
        }
    }
}

/// Connects without blocking. If the accept queue is full, earlier connections wake the listener.
fn call(listener: &SockRef) -> io::Result<()> {
    let mut address = listener.local_addr()?;
    if let Some(mut tcp) = address.as_socket().filter(|tcp| tcp.ip().is_unspecified()) {
        tcp.set_ip(if tcp.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        address = tcp.into();
    }
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address) {
        Err(error) if error.raw_os_error() == Some(nix::libc::EINPROGRESS) => {
            // A connection that is closed too early is never accepted.
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        }
        other => other,
    }
}

/// Gives up after some attempts, because a script could hold the lock while it waits for the server.
fn lock_directory(place: &FilePlace, path: &Path) -> Option<Flock<File>> {
    let mut file = place.open_folder().ok()?;
    for _ in 0..LOCK_TRIES {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(turn) => return Some(turn),
            Err((unlocked, Errno::EWOULDBLOCK | Errno::EINTR)) => file = unlocked,
            Err(_) => return None,
        }
        std::thread::sleep(LOCK_INTERVAL);
    }
    let folder = path.parent().unwrap_or(path).display();
    log::warn!("the folder {folder} stays locked by somebody else; going on without its lock");
    None
}

/// `true` if a server listens, even if its accept queue is full. Never blocks.
fn is_alive(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(false),
            io::ErrorKind::WouldBlock => Ok(true),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(keepalive: Keepalive) -> Stream {
        let bound = Bound::tcp("127.0.0.1:0".parse().expect("an address"), false).expect("a free port");
        let listener = bound.listen(&keepalive).expect("a listener");
        let _client = std::net::TcpStream::connect(listener.local_address().expect("TCP")).expect("a connection");
        listener.accept().expect("a connection").0
    }

    #[test]
    fn sockets_have_nodelay_and_keepalive() {
        let stream = accepted(Keepalive { idle: 61, interval: 11, count: 4 });
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().expect("an option") && socket.keepalive().expect("an option"));
        assert_eq!(socket.tcp_keepalive_time().expect("an option"), Duration::from_secs(61));
        assert_eq!(socket.tcp_keepalive_interval().expect("an option"), Duration::from_secs(11));
        assert_eq!(socket.tcp_keepalive_retries().expect("an option"), 4);
        assert_eq!(socket.tcp_user_timeout().expect("an option"), Some(Duration::from_secs(61 + 4 * 11)));
    }

    // Tests promise P10 of beanpole-promises(7).
    #[test]
    fn an_unreachable_peer_is_detected_within_90_seconds_by_default() {
        let stream = accepted(crate::settings::config::Config::default().keepalive);
        let socket = SockRef::from(&stream);
        let idle = socket.tcp_keepalive_time().expect("an option");
        let interval = socket.tcp_keepalive_interval().expect("an option");
        let probes = socket.tcp_keepalive_retries().expect("an option");
        assert!(socket.keepalive().expect("an option"));
        assert_eq!(idle + interval * probes, Duration::from_secs(90));
        assert_eq!(socket.tcp_user_timeout().expect("an option"), Some(Duration::from_secs(90)));
    }

    #[test]
    fn keepalive_can_be_disabled() {
        let stream = accepted(Keepalive { idle: 0, interval: 10, count: 3 });
        let socket = SockRef::from(&stream);
        assert!(!socket.keepalive().expect("an option"));
        assert_eq!(socket.tcp_user_timeout().expect("an option"), None);
    }

    #[test]
    fn bytes_that_a_peer_has_not_read_are_counted() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("two sockets");
        let stream = Stream::new(ours);
        assert_eq!(stream.unsent(), 0);
        assert_eq!(stream.write(&[IoSlice::new(b"hello")]).expect("space in the socket"), 5);
        assert!(stream.unsent() > 0);
        (&theirs).read_exact(&mut [0; 5]).expect("hello");
        assert_eq!(stream.unsent(), 0);
    }
}
