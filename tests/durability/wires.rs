//! Minimal clients for Workq and Gearman over plain sockets.
//!
//! Owns only the framing. Methods return an error if the server is killed.

use std::io::{BufRead, BufReader};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};

use super::daemon::{Daemon, PATIENCE};

/// Options that make a server listen for Workq and Gearman.
pub const ALL: [&str; 2] = ["--workq=127.0.0.1:0", "--gearman=127.0.0.1:0"];

fn connect(daemon: &Daemon, wire: &str) -> Result<BufReader<TcpStream>> {
    let name = daemon.names().iter().find_map(|name| name.strip_suffix(&format!(" ({wire})")));
    let address: SocketAddr = name.expect("an address for the protocol").parse().expect("an address");
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn read(stream: &mut BufReader<TcpStream>, count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub struct Workq(BufReader<TcpStream>);

pub fn uuid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

impl Workq {
    pub fn connect(daemon: &Daemon) -> Result<Workq> {
        connect(daemon, "Workq").map(Workq)
    }

    pub fn send(&mut self, text: &str) -> Result<()> {
        self.0.get_mut().write_all(text.as_bytes())
    }

    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or(Error::from(ErrorKind::UnexpectedEof))
    }

    /// Sends a request. Returns the first line of the reply.
    pub fn ask(&mut self, text: &str) -> Result<String> {
        self.send(text)?;
        self.line()
    }

    /// Leases a job from the named queues. Returns `None` if no job becomes available within `millis` milliseconds.
    pub fn lease(&mut self, queues: &str, millis: u64) -> Result<Option<(String, String)>> {
        if self.ask(&format!("lease {queues} {millis}\r\n"))? != "+OK 1" {
            return Ok(None);
        }
        let head = self.line()?;
        let (id, size) = (head.split(' ').next().unwrap_or_default(), head.rsplit(' ').next().unwrap_or_default());
        let size: usize = size.parse().expect("a size");
        let payload = read(&mut self.0, size + 2)?;
        Ok(Some((id.to_owned(), text(&payload[..size]))))
    }

    /// Returns the job's result, preceded by `true` if the job succeeded. Returns `None` if the job is unfinished or
    /// does not exist.
    pub fn result(&mut self, id: &str) -> Result<Option<(bool, String)>> {
        if self.ask(&format!("result {id} 0\r\n"))? != "+OK 1" {
            return Ok(None);
        }
        let head = self.line()?;
        let words: Vec<&str> = head.split(' ').collect();
        let size: usize = words[2].parse().expect("a size");
        let result = read(&mut self.0, size + 2)?;
        Ok(Some((words[1] == "1", text(&result[..size]))))
    }

    /// Returns the value for `key` in the reply to `inspect job`, or `None` if the job or the key does not
    /// exist.
    pub fn inspect(&mut self, id: &str, key: &str) -> Result<Option<String>> {
        if self.ask(&format!("inspect job {id}\r\n"))? != "+OK 1" {
            return Ok(None);
        }
        let head = self.line()?;
        let keys: usize = head.rsplit(' ').next().and_then(|keys| keys.parse().ok()).expect("a count");
        let lines: Vec<String> = (0..keys).map(|_| self.line()).collect::<Result<_>>()?;
        Ok(lines.iter().find_map(|line| line.strip_prefix(&format!("{key} "))).map(str::to_owned))
    }
}

/// Types of Gearman packets.
pub const CAN_DO: u32 = 1;
pub const SUBMIT_JOB: u32 = 7;
pub const JOB_CREATED: u32 = 8;
pub const GRAB_JOB: u32 = 9;
pub const NO_JOB: u32 = 10;
pub const JOB_ASSIGN: u32 = 11;
pub const WORK_COMPLETE: u32 = 13;
pub const GET_STATUS: u32 = 15;
pub const SUBMIT_JOB_BG: u32 = 18;
pub const STATUS_RES: u32 = 20;
pub const SUBMIT_JOB_EPOCH: u32 = 36;

pub struct Gearman(BufReader<TcpStream>);

impl Gearman {
    pub fn connect(daemon: &Daemon) -> Result<Gearman> {
        connect(daemon, "Gearman").map(Gearman)
    }

    pub fn send(&mut self, kind: u32, args: &[&str]) -> Result<()> {
        let body = args.join("\0");
        let length = body.len() as u32;
        let packet = [b"\0REQ", &kind.to_be_bytes()[..], &length.to_be_bytes(), body.as_bytes()].concat();
        self.0.get_mut().write_all(&packet)
    }

    pub fn packet(&mut self) -> Result<(u32, Vec<String>)> {
        let head = read(&mut self.0, 12)?;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let body = read(&mut self.0, word(8) as usize)?;
        Ok((word(4), body.split(|byte| *byte == 0).map(text).collect()))
    }

    pub fn submit(&mut self, kind: u32, args: &[&str]) -> Result<String> {
        self.send(kind, args)?;
        let (kind, mut args) = self.packet()?;
        assert_eq!(kind, JOB_CREATED, "{args:?}");
        Ok(args.remove(0))
    }

    /// Grabs a job. Returns its handle and payload, or `None` if there is no job.
    pub fn grab(&mut self) -> Result<Option<(String, String)>> {
        self.send(GRAB_JOB, &[])?;
        match self.packet()? {
            (NO_JOB, _) => Ok(None),
            (JOB_ASSIGN, args) => Ok(Some((args[0].clone(), args[2].clone()))),
            other => panic!("{other:?}"),
        }
    }

    pub fn knows(&mut self, handle: &str) -> Result<bool> {
        self.send(GET_STATUS, &[handle])?;
        let (kind, args) = self.packet()?;
        assert_eq!(kind, STATUS_RES, "{args:?}");
        Ok(args[1] == "1")
    }
}
