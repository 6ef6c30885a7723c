//! A small blocking client for the beanstalk protocol.
//!
//! Owns one connection, from the outside: it knows the wire and nothing of the server's rooms, so it talks to
//! beanstalkd as well. For tests, tools, and programs that embed a queue.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection to a beanstalk server.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<Transport>,
}

#[derive(Debug)]
enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Tcp(stream) => stream.read(buffer),
            Transport::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Transport {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Transport::Tcp(stream) => stream.write_all(bytes),
            Transport::Unix(stream) => stream.write_all(bytes),
        }
    }
}

/// Why a command was not carried out.
#[derive(Debug)]
pub enum ClientError {
    /// The connection failed; what was asked may or may not have been done.
    Io(io::Error),
    /// The server said something else than what was hoped for, for example `NOT_FOUND`.
    Refused(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            ClientError::Io(error) => error.fmt(formatter),
            ClientError::Refused(reply) => write!(formatter, "the server answered {reply}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> ClientError {
        ClientError::Io(error)
    }
}

/// A job in this client's hands, or one that it looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservedJob {
    /// The id that the server gave it at `put`.
    pub id: u64,
    /// The body, byte for byte, without the CR LF behind it.
    pub body: Vec<u8>,
}

type Result<T> = std::result::Result<T, ClientError>;

impl Client {
    /// Connects over TCP, without Nagle's delay. Waits as long as the system does.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(Transport::Tcp(stream)) })
    }

    /// Connects over a Unix socket.
    pub fn connect_unix(path: impl AsRef<Path>) -> io::Result<Client> {
        Ok(Client { stream: BufReader::new(Transport::Unix(UnixStream::connect(path)?)) })
    }

    /// Puts a job into the used tube; `delay` and `ttr` in seconds. Returns its id.
    pub fn put(&mut self, body: &[u8], pri: u32, delay: u32, ttr: u32) -> Result<u64> {
        let mut message = format!("put {pri} {delay} {ttr} {}\r\n", body.len()).into_bytes();
        message.extend_from_slice(body);
        message.extend_from_slice(b"\r\n");
        self.send(&message)?;
        self.number("INSERTED ")
    }

    /// Reserves a job of the watched tubes, waiting at most `timeout` seconds; without end if that is none. None: the
    /// time is over. It is refused with `DEADLINE_SOON` if the time to run of a job that this client holds ends within
    /// a second and there is no other job.
    pub fn reserve(&mut self, timeout: Option<u32>) -> Result<Option<ReservedJob>> {
        match timeout {
            Some(seconds) => self.command(&format!("reserve-with-timeout {seconds}"))?,
            None => self.command("reserve")?,
        }
        match self.line()? {
            line if line == "TIMED_OUT" => Ok(None),
            line => self.job(&line, "RESERVED ").map(Some),
        }
    }

    /// Reserves this job, ready or not, in whatever tube.
    pub fn reserve_job(&mut self, id: u64) -> Result<ReservedJob> {
        self.ask_for_job(&format!("reserve-job {id}"), "RESERVED ")
    }

    /// Deletes a job that this client holds, or that nobody holds; else `NOT_FOUND`.
    pub fn delete(&mut self, id: u64) -> Result<()> {
        self.expect(&format!("delete {id}"), "DELETED")
    }

    /// Gives a reserved job back, ready again after `delay` seconds.
    pub fn release(&mut self, id: u64, pri: u32, delay: u32) -> Result<()> {
        self.expect(&format!("release {id} {pri} {delay}"), "RELEASED")
    }

    /// Sets a reserved job aside.
    pub fn bury(&mut self, id: u64, pri: u32) -> Result<()> {
        self.expect(&format!("bury {id} {pri}"), "BURIED")
    }

    /// Starts the time to run of a reserved job again.
    pub fn touch(&mut self, id: u64) -> Result<()> {
        self.expect(&format!("touch {id}"), "TOUCHED")
    }

    /// Kicks at most `bound` jobs of the used tube; returns how many.
    pub fn kick(&mut self, bound: u32) -> Result<u64> {
        self.command(&format!("kick {bound}"))?;
        self.number("KICKED ")
    }

    /// Kicks this job, in whatever tube.
    pub fn kick_job(&mut self, id: u64) -> Result<()> {
        self.expect(&format!("kick-job {id}"), "KICKED")
    }

    /// Chooses the tube that jobs are put into.
    pub fn use_tube(&mut self, tube: &str) -> Result<()> {
        self.expect(&format!("use {tube}"), &format!("USING {tube}"))
    }

    /// Adds a tube to those that jobs are reserved from; returns how many they are.
    pub fn watch(&mut self, tube: &str) -> Result<u64> {
        self.command(&format!("watch {tube}"))?;
        self.number("WATCHING ")
    }

    /// Takes a tube from those; returns how many are left.
    pub fn ignore(&mut self, tube: &str) -> Result<u64> {
        self.command(&format!("ignore {tube}"))?;
        self.number("WATCHING ")
    }

    /// Returns a job in whatever state and tube, without reserving it.
    pub fn peek(&mut self, id: u64) -> Result<ReservedJob> {
        self.ask_for_job(&format!("peek {id}"), "FOUND ")
    }

    /// Looks at the next ready job of the used tube.
    pub fn peek_ready(&mut self) -> Result<ReservedJob> {
        self.ask_for_job("peek-ready", "FOUND ")
    }

    /// Looks at the delayed job of the used tube that is due next.
    pub fn peek_delayed(&mut self) -> Result<ReservedJob> {
        self.ask_for_job("peek-delayed", "FOUND ")
    }

    /// Looks at the job of the used tube that was buried first.
    pub fn peek_buried(&mut self) -> Result<ReservedJob> {
        self.ask_for_job("peek-buried", "FOUND ")
    }

    /// Gives out no job of a tube for so many seconds.
    pub fn pause_tube(&mut self, tube: &str, seconds: u32) -> Result<()> {
        self.expect(&format!("pause-tube {tube} {seconds}"), "PAUSED")
    }

    /// The text of `stats`, `stats-job ID`, `stats-tube TUBE` or a list of tubes.
    pub fn text(&mut self, command: &str) -> Result<String> {
        self.command(command)?;
        let length = self.number("OK ")?;
        Ok(String::from_utf8_lossy(&self.body(length)?).into_owned())
    }

    /// One figure out of such a text.
    pub fn figure(&mut self, command: &str, key: &str) -> Result<String> {
        let text = self.text(command)?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        value.map(str::to_owned).ok_or_else(|| ClientError::Refused(format!("no {key}")))
    }

    /// Sends bytes as they are; for tests of what the other methods would not say.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    /// Reads one line of a reply, without its end.
    pub fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    fn command(&mut self, command: &str) -> Result<()> {
        self.send(format!("{command}\r\n").as_bytes())
    }

    fn expect(&mut self, command: &str, reply: &str) -> Result<()> {
        self.command(command)?;
        let line = self.line()?;
        if line == reply {
            Ok(())
        } else {
            Err(ClientError::Refused(line))
        }
    }

    fn number(&mut self, word: &str) -> Result<u64> {
        let line = self.line()?;
        let number = line.strip_prefix(word).and_then(|text| text.parse().ok());
        number.ok_or(ClientError::Refused(line))
    }

    fn ask_for_job(&mut self, command: &str, word: &str) -> Result<ReservedJob> {
        self.command(command)?;
        let line = self.line()?;
        self.job(&line, word)
    }

    fn job(&mut self, line: &str, word: &str) -> Result<ReservedJob> {
        let numbers = line.strip_prefix(word).and_then(|rest| rest.split_once(' '));
        let parsed = numbers.and_then(|(id, length)| Some((id.parse().ok()?, length.parse().ok()?)));
        let (id, length) = parsed.ok_or_else(|| ClientError::Refused(line.to_owned()))?;
        Ok(ReservedJob { id, body: self.body(length)? })
    }

    /// Reads a body and the CR LF behind it.
    fn body(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        (&mut self.stream).take(length + 2).read_to_end(&mut body)?;
        if body.len() as u64 != length + 2 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        body.truncate(length as usize);
        Ok(body)
    }
}
