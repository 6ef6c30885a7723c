//! A small blocking client for any server that speaks the beanstalk protocol.

mod http;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod types;

use std::io::{self, BufRead, BufReader, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::{os::fd::OwnedFd, os::unix::net::UnixStream, path::Path, time::Duration};

use socket2::TcpKeepalive;

pub use http::{Exchange, Keep, Response};
#[cfg(feature = "tls")]
pub use tls::ClientTls;
pub use transport::{Closer, Security, Transport};
use types::{checked, one_line, Result};
pub use types::{ClientError, ClientTlsFiles, PutResult, PutTags, Reply, ReservedJob, WaitResult};

/// The maximum length of a reply line in bytes. A line with a quoted tube name can exceed 2,000 bytes.
const MAX_REPLY_LINE: u64 = 4096;

/// A connection to a beanstalk server.
///
/// Times are in whole seconds, as in the protocol. A method fails with [`ClientError::Refused`] if the server sends an
/// unexpected reply, with [`ClientError::Invalid`] if the protocol cannot express an argument, and with
/// [`ClientError::Io`] if the connection fails or a reply is malformed. After an `Io` error, the client is unusable.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = beanpole::Server::start()?;
/// # let address = server.address();
/// use beanpole::{Client, ClientError};
///
/// let mut producer = Client::connect(address)?;
/// producer.use_tube("mail")?;
/// let id = producer.put(b"hello", 1024, 0, 60)?;
///
/// let mut worker = Client::connect(address)?;
/// worker.watch("mail")?;
/// while let Some(job) = worker.reserve(Some(0))? {
///     assert_eq!((job.id, &job.body[..]), (id, &b"hello"[..]));
///     match worker.delete(job.id) {
///         // The time to run expired before the delete.
///         Err(ClientError::Refused(reply)) if reply == "NOT_FOUND" => {}
///         other => other?,
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    stream: BufReader<Transport>,
    /// The memory that a reply may use, in bytes. A parsed list needs many times as much memory as the list's text.
    pub(crate) memory: u64,
}

impl Client {
    /// Connects over TCP with `TCP_NODELAY`. The operating system determines the timeout.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Client::over(Transport::Plain(stream)))
    }

    /// Connects over a Unix socket.
    pub fn connect_unix(path: impl AsRef<Path>) -> io::Result<Client> {
        let stream = OwnedFd::from(UnixStream::connect(path)?);
        Ok(Client::over(Transport::Plain(stream.into())))
    }

    /// Connects over TCP to the first of `addresses` that accepts a connection within `limit`. The connection uses TCP
    /// keepalive: a wait for a job fails a few minutes after the server's machine has become unreachable.
    pub fn connect_within(addresses: impl ToSocketAddrs, limit: Duration) -> io::Result<Client> {
        connect_tcp(addresses, limit).map(|stream| Client::over(Transport::Plain(stream)))
    }

    /// Connects over TLS. The server's certificate must be valid for `host`, which is a name or an IP address. `limit`
    /// is the timeout of each connection attempt and of each step of the handshake.
    #[cfg(feature = "tls")]
    pub fn connect_tls(host: &str, port: u16, tls: &ClientTls, limit: Duration) -> io::Result<Client> {
        let stream = connect_tcp((host, port), limit)?;
        let client = Client::over(Transport::Tls(tls.connect(host, stream, limit)?));
        client.stream.get_ref().set_timeout(None)?;
        Ok(client)
    }

    #[doc(hidden)]
    pub fn over(transport: Transport) -> Client {
        Client { stream: BufReader::new(transport), memory: u64::MAX }
    }

    /// Sets the timeout of each read and write (by default `None`: no timeout). After a timeout, the call fails with
    /// `WouldBlock` or `TimedOut`, and the connection is unusable. The timeout must exceed the longest wait for a job.
    pub fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.get_ref().set_timeout(limit)
    }

    /// Returns a handle that closes this connection from another thread.
    pub fn closer(&self) -> io::Result<Closer> {
        self.stream.get_ref().closer()
    }

    /// Authenticates with a token, which a server with the option `--access` requires. If the token is invalid, the
    /// server replies `UNAUTHORIZED` and closes the connection.
    pub fn authenticate(&mut self, token: &[u8]) -> Result<()> {
        one_line(token)?;
        self.send(&[b"auth ", token, b"\r\n"].concat())?;
        self.expect_reply("AUTHENTICATED")
    }

    /// Puts a job into the used tube, and returns the ID of the job. Jobs with a lower `pri` are more urgent. The job
    /// becomes ready after `delay` seconds. A worker that reserves the job must finish within `ttr` seconds.
    ///
    /// Fails with `JOB_TOO_BIG`, `OUT_OF_MEMORY`, `TUBE_FULL` or `DRAINING` if the server refuses the job.
    pub fn put(&mut self, body: &[u8], pri: u32, delay: u32, ttr: u32) -> Result<u64> {
        self.send_put(body, &format!("{pri} {delay} {ttr} {}", body.len()))?;
        Ok(self.numbered("INSERTED")?.0)
    }

    /// Reserves the most urgent job of the watched tubes. Waits for at most `timeout` seconds, or without limit if
    /// `timeout` is `None`. Returns `None` if no job becomes available in time.
    ///
    /// Fails with `DEADLINE_SOON` if no job is ready and a reserved job of this client has less than a second left.
    pub fn reserve(&mut self, timeout: Option<u32>) -> Result<Option<ReservedJob>> {
        let command = timeout.map(|seconds| format!("reserve-with-timeout {seconds}"));
        self.command(command.as_deref().unwrap_or("reserve"))?;
        match self.job("RESERVED") {
            Err(ClientError::Refused(line)) if line == "TIMED_OUT" => Ok(None),
            reserved => reserved.map(Some),
        }
    }

    /// Puts a job with tags. Check first that [`Client::extensions`] contains the names of the tags: a server that does
    /// not support tags interprets the body as commands. Fails like `put`, and with `BAD_FORMAT` for invalid tags.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = beanpole::Server::start()?;
    /// use beanpole::{Client, PutResult, PutTags};
    ///
    /// let mut client = Client::connect(server.address())?;
    /// assert!(client.extensions()?.contains(&"idp".to_owned()));
    /// let tags = PutTags::default().with(|tags| tags.unique = Some(("order-17".to_owned(), 60)));
    /// let first = client.put_tagged(b"x", 0, 0, 60, &tags)?;
    /// let again = client.put_tagged(b"x", 0, 0, 60, &tags)?;
    /// assert_eq!(again, PutResult::Duplicate { id: first.id(), state: "READY".to_owned() });
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_tagged(&mut self, body: &[u8], pri: u32, delay: u32, ttr: u32, tags: &PutTags) -> Result<PutResult> {
        tags.check()?;
        self.send_put(body, &format!("{pri} {delay} {ttr} {}{tags}", body.len()))?;
        let reply = self.reply()?;
        let Some(id) = reply.number("INSERTED") else { return Err(ClientError::Refused(reply.line)) };
        Ok(match reply.line.split(' ').nth(2) {
            Some("SCHEDULED") | None => PutResult::New(id),
            Some("REPLACED") => PutResult::Replaced(id),
            Some(state) => PutResult::Duplicate { id, state: state.to_owned() },
        })
    }

    /// Returns the names of the protocol extensions that the server supports. The list is empty for beanstalkd.
    pub fn extensions(&mut self) -> Result<Vec<String>> {
        let text = self.text("stats")?;
        let words = text.lines().find_map(|line| line.strip_prefix("extensions: "));
        Ok(words.unwrap_or_default().trim_matches('"').split_whitespace().map(str::to_owned).collect())
    }

    /// Reserves up to `count` jobs, at most 1,000. Waits up to `timeout` seconds for the first job, or not at all if
    /// `timeout` is `None`. Returns an empty list if no job is available. Fails with `DEADLINE_SOON` like
    /// [`Client::reserve`].
    pub fn reserve_batch(&mut self, count: u32, timeout: Option<u32>) -> Result<Vec<ReservedJob>> {
        let timeout = timeout.map_or(String::new(), |seconds| format!(" {seconds}"));
        self.command(&format!("reserve-batch {count}{timeout}"))?;
        let (reserved, _) = self.numbered("RESERVED_BATCH")?;
        (0..reserved).map(|_| self.job("RESERVED")).collect()
    }

    /// Deletes up to 1,000 jobs, and returns the number of deleted jobs. Sends nothing if `ids` is empty.
    pub fn delete_batch(&mut self, ids: &[u64]) -> Result<u64> {
        if ids.is_empty() {
            return Ok(0);
        }
        let ids: String = ids.iter().map(|id| format!(" {id}")).collect();
        self.request_number(&format!("delete-batch{ids}"), "DELETED_BATCH")
    }

    /// Restarts the time to run of all jobs that this client has reserved, and returns the number of jobs.
    pub fn touch_all(&mut self) -> Result<u64> {
        self.request_number("touch-all", "TOUCHED_ALL")
    }

    /// Waits up to `seconds` seconds until the job is deleted or buried. Fails with `NOT_FOUND` if the job does not
    /// exist, and with `DEADLINE_SOON` like [`Client::reserve`].
    pub fn wait(&mut self, id: u64, seconds: u32) -> Result<WaitResult> {
        self.command(&format!("wait {id} {seconds}"))?;
        let reply = self.reply()?;
        match reply.line.split(' ').next() {
            Some("DELETED") => Ok(WaitResult::Deleted),
            Some("BURIED") => Ok(WaitResult::Buried),
            Some("TIMED_OUT") => Ok(WaitResult::TimedOut),
            _ => Err(ClientError::Refused(reply.line)),
        }
    }

    /// Deletes all jobs in a tube except schedules, and returns the number of deleted jobs.
    pub fn flush_tube(&mut self, tube: &str) -> Result<u64> {
        self.request_number(&format!("flush-tube {}", checked(tube)?), "FLUSHED")
    }

    /// Deletes the buried jobs of a tube, and returns the number of deleted jobs.
    pub fn flush_buried(&mut self, tube: &str) -> Result<u64> {
        self.request_number(&format!("flush-buried {}", checked(tube)?), "FLUSHED")
    }

    /// Returns the IDs of jobs in a tube in ascending order: the first `count` (at most 1,000) IDs that exceed `above`.
    /// `state` is `ready`, `delayed`, `reserved`, `buried`, `held` or `scheduled`. A missing tube causes `NOT_FOUND`.
    pub fn list_jobs(&mut self, tube: &str, state: &str, above: u64, count: u32) -> Result<Vec<u64>> {
        let list = self.text(&format!("list-jobs {} {} {above} {count}", checked(tube)?, checked(state)?))?;
        Ok(list.lines().filter_map(|line| line.strip_prefix("- ")?.parse().ok()).collect())
    }

    /// Moves a job to another tube, in which the job becomes ready after `delay` seconds. Fails with `NOT_FOUND` if the
    /// job does not exist, is a schedule, or is reserved by another client, or if its key is in use in `tube`.
    pub fn move_job(&mut self, id: u64, tube: &str, pri: u32, delay: u32) -> Result<()> {
        self.request(&format!("move-job {id} {} {pri} {delay}", checked(tube)?), "MOVED")
    }

    /// Moves up to `bound` jobs from one tube to another, and returns the number of moved jobs. `state` selects
    /// `ready`, `delayed` or `buried` jobs, and the jobs keep this state.
    pub fn move_tube(&mut self, from: &str, to: &str, state: &str, bound: u64) -> Result<u64> {
        self.request_number(
            &format!("move-tube {} {} {} {bound}", checked(from)?, checked(to)?, checked(state)?),
            "MOVED",
        )
    }

    /// Limits the number of jobs in a tube, not counting buried jobs. 0 removes the limit.
    pub fn limit_tube(&mut self, tube: &str, count: u32) -> Result<()> {
        self.request(&format!("limit-tube {} {count}", checked(tube)?), "LIMITED")
    }

    /// Replaces the settings of a tube, which apply to the jobs of all clients. An example of `settings` is `try:5:10
    /// dead:mail-dead`. beanpole-beanstalk(7) lists all settings. Fails with `BAD_FORMAT` for invalid settings.
    pub fn set_tube(&mut self, tube: &str, settings: &str) -> Result<()> {
        self.request(&format!("set-tube {} {settings}", checked(tube)?), "SET")
    }

    /// Makes the server refuse new jobs if `drains` is `true`, or accept new jobs again if `drains` is `false`.
    pub fn drain(&mut self, drains: bool) -> Result<()> {
        let (command, reply) = if drains { ("drain", "DRAINING") } else { ("undrain", "NOT_DRAINING") };
        self.request(command, reply)
    }

    /// Watches a tube with a weight, and enables weighted reservations: this client receives jobs of the watched tubes
    /// in proportion to the weights. Returns the number of watched tubes.
    pub fn watch_weighted(&mut self, tube: &str, weight: u32) -> Result<u64> {
        self.request("reserve-mode weighted", "USING weighted")?;
        self.request_number(&format!("watch {} {weight}", checked(tube)?), "WATCHING")
    }

    /// Reserves a ready, delayed, buried or held job from any tube. Fails with `NOT_FOUND` for other jobs.
    pub fn reserve_job(&mut self, id: u64) -> Result<ReservedJob> {
        self.request_job(&format!("reserve-job {id}"), "RESERVED")
    }

    /// Deletes a job. Fails with `NOT_FOUND` if another client has reserved the job, or if the job does not exist.
    pub fn delete(&mut self, id: u64) -> Result<()> {
        self.request(&format!("delete {id}"), "DELETED")
    }

    /// Makes a reserved job ready again after `delay` seconds. Fails with `BURIED` if the server buried the job because
    /// its tag `try` allows no further try, and with `NOT_FOUND` if this client has not reserved the job.
    pub fn release(&mut self, id: u64, pri: u32, delay: u32) -> Result<()> {
        self.request(&format!("release {id} {pri} {delay}"), "RELEASED")
    }

    /// Reports that a reserved job has failed. Returns the number of seconds until the next try, or `None` if the
    /// server buried the job, because this was the last try or because the number of tries is not limited. The server
    /// stores at most 4,096 bytes of `reason`. Fails with `NOT_FOUND` if this client has not reserved the job.
    pub fn fail(&mut self, id: u64, pri: u32, reason: &[u8]) -> Result<Option<u64>> {
        self.send(&[format!("fail {id} {pri} {}\r\n", reason.len()).as_bytes(), reason, b"\r\n"].concat())?;
        let reply = self.reply()?;
        match reply.number("RELEASED") {
            None if reply.line != "BURIED" => Err(ClientError::Refused(reply.line)),
            delay => Ok(delay),
        }
    }

    /// Buries a job that this client has reserved. Fails with `NOT_FOUND` for other jobs.
    pub fn bury(&mut self, id: u64, pri: u32) -> Result<()> {
        self.request(&format!("bury {id} {pri}"), "BURIED")
    }

    /// Restarts the time to run of a job that this client has reserved. Fails with `NOT_FOUND` for other jobs.
    pub fn touch(&mut self, id: u64) -> Result<()> {
        self.request(&format!("touch {id}"), "TOUCHED")
    }

    /// Kicks up to `bound` jobs of the used tube: buried ones or, if there are none, delayed ones. Returns the count.
    pub fn kick(&mut self, bound: u32) -> Result<u64> {
        self.request_number(&format!("kick {bound}"), "KICKED")
    }

    /// Kicks a buried, delayed, held or Workq-leased job, or runs a schedule. Fails with `NOT_FOUND` for other jobs.
    pub fn kick_job(&mut self, id: u64) -> Result<()> {
        self.request(&format!("kick-job {id}"), "KICKED")
    }

    /// Selects the tube into which this client puts jobs from now on.
    pub fn use_tube(&mut self, tube: &str) -> Result<()> {
        self.request(&format!("use {}", checked(tube)?), &format!("USING {tube}"))
    }

    /// Adds a tube to the watched tubes, from which this client reserves jobs. Returns the number of watched tubes.
    pub fn watch(&mut self, tube: &str) -> Result<u64> {
        self.request_number(&format!("watch {}", checked(tube)?), "WATCHING")
    }

    /// Stops watching a tube. Returns the number of watched tubes. Fails with `NOT_IGNORED` for the last watched tube.
    pub fn ignore(&mut self, tube: &str) -> Result<u64> {
        self.request_number(&format!("ignore {}", checked(tube)?), "WATCHING")
    }

    /// Returns a job in any state and tube without reserving the job. Fails with `NOT_FOUND` if the job does not exist.
    pub fn peek(&mut self, id: u64) -> Result<ReservedJob> {
        self.request_job(&format!("peek {id}"), "FOUND")
    }

    /// Returns the next ready job of the used tube. Fails with `NOT_FOUND` if no job is ready.
    pub fn peek_ready(&mut self) -> Result<ReservedJob> {
        self.request_job("peek-ready", "FOUND")
    }

    /// Returns the used tube's delayed job that is due next. Fails with `NOT_FOUND` if no job is delayed.
    pub fn peek_delayed(&mut self) -> Result<ReservedJob> {
        self.request_job("peek-delayed", "FOUND")
    }

    /// Returns the job that was buried first in the used tube. Fails with `NOT_FOUND` if no job is buried.
    pub fn peek_buried(&mut self) -> Result<ReservedJob> {
        self.request_job("peek-buried", "FOUND")
    }

    /// Returns the used tube's reserved job whose time to run expires first. Fails with `NOT_FOUND` if there is none.
    pub fn peek_reserved(&mut self) -> Result<ReservedJob> {
        self.request_job("peek-reserved", "FOUND")
    }

    /// Pauses a tube for `seconds` seconds. 0 ends a pause. Fails with `NOT_FOUND` if there is no such tube.
    pub fn pause_tube(&mut self, tube: &str, seconds: u32) -> Result<()> {
        self.request(&format!("pause-tube {} {seconds}", checked(tube)?), "PAUSED")
    }

    /// Sends a command such as `stats`, `stats-job ID` or `list-tubes`, and returns the text of the reply.
    pub fn text(&mut self, command: &str) -> Result<String> {
        self.command(command)?;
        Ok(String::from_utf8_lossy(&self.numbered("OK")?.1).into_owned())
    }

    /// Sends a command such as `stats`, and returns the value of `key`. Fails with `no KEY` if the reply lacks the key.
    pub fn figure(&mut self, command: &str, key: &str) -> Result<String> {
        let text = self.text(command)?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        value.map(str::to_owned).ok_or_else(|| ClientError::Refused(format!("no {key}")))
    }

    /// Sends bytes unchanged, for example to pipeline commands, or to send a command that has no method.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    /// Reads the reply to a command that was sent with [`Client::send`], including the body if the reply has one.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let mut line = Vec::with_capacity(32);
        (&mut self.stream).take(MAX_REPLY_LINE).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\r\n") {
            let is_long = line.len() as u64 == MAX_REPLY_LINE || line.ends_with(b"\n");
            let kind = if is_long { io::ErrorKind::InvalidData } else { io::ErrorKind::UnexpectedEof };
            return Err(kind.into());
        }
        line.truncate(line.len() - 2);
        let line = String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut words = line.split(' ');
        // In these replies, the last word of the line is the length of the body.
        let Some(word @ ("RESERVED" | "FOUND" | "OK")) = words.next() else {
            return Ok(Reply { line, body: Vec::new() });
        };
        let max = self.memory / if word == "OK" { 64 } else { 4 };
        let length = words.next_back().and_then(|word| word.parse::<u64>().ok());
        let length = length.filter(|length| *length < u64::from(u32::MAX)).ok_or(io::ErrorKind::InvalidData)?;
        ensure!(length <= max, io::ErrorKind::OutOfMemory);
        let mut body = Vec::with_capacity((length as usize + 2).min(1 << 16));
        (&mut self.stream).take(length + 2).read_to_end(&mut body)?;
        ensure!(body.len() as u64 == length + 2, io::ErrorKind::UnexpectedEof);
        ensure!(body.ends_with(b"\r\n"), io::ErrorKind::InvalidData);
        body.truncate(length as usize);
        Ok(Reply { line, body })
    }

    /// Reads one line of a reply, and returns the line without CR LF.
    pub fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        let text = line.strip_suffix(b"\r\n").ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// `arguments` is not checked, so it must consist of numbers and checked tags.
    fn send_put(&mut self, body: &[u8], arguments: &str) -> Result<()> {
        self.send(&[b"put ", arguments.as_bytes(), b"\r\n", body, b"\r\n"].concat())
    }

    /// Adds CR LF to a command, and sends it. Fails with [`ClientError::Invalid`] if the command contains a line break.
    pub(crate) fn command(&mut self, command: &str) -> Result<()> {
        one_line(command.as_bytes())?;
        self.send(format!("{command}\r\n").as_bytes())
    }

    fn request(&mut self, command: &str, reply: &str) -> Result<()> {
        self.command(command)?;
        self.expect_reply(reply)
    }

    fn expect_reply(&mut self, line: &str) -> Result<()> {
        let reply = self.reply()?;
        (reply.line == line).then_some(()).ok_or(ClientError::Refused(reply.line))
    }

    /// Reads a reply that must begin with `word` and a number. Returns the number and the body.
    fn numbered(&mut self, word: &str) -> Result<(u64, Vec<u8>)> {
        let reply = self.reply()?;
        let number = reply.number(word).ok_or(ClientError::Refused(reply.line))?;
        Ok((number, reply.body))
    }

    fn request_number(&mut self, command: &str, word: &str) -> Result<u64> {
        self.command(command)?;
        Ok(self.numbered(word)?.0)
    }

    fn request_job(&mut self, command: &str, word: &str) -> Result<ReservedJob> {
        self.command(command)?;
        self.job(word)
    }

    fn job(&mut self, word: &str) -> Result<ReservedJob> {
        self.numbered(word).map(|(id, body)| ReservedJob { id, body })
    }
}

/// Connects to the first of `addresses` that accepts a connection within `limit`, and enables TCP keepalive.
pub fn connect_tcp(addresses: impl ToSocketAddrs, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => return keep_alive(&stream).map(|()| stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Enables `TCP_NODELAY` and TCP keepalive.
pub fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(10));
    stream.set_nodelay(true)?;
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
